import os

import pytest
import torch

# Small networks: threads cost more than they give, and tests share the machine. In processes that tests start, too.
torch.set_num_threads(1)
os.environ["OMP_NUM_THREADS"] = "1"


def pytest_runtest_setup(item):
    if item.get_closest_marker("cuda") and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
