import os

import torch

# Small networks: threads cost more than they give, and tests share the machine. In processes that tests start, too.
torch.set_num_threads(1)
os.environ["OMP_NUM_THREADS"] = "1"
