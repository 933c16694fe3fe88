"""Kernels of fused networks compile for a GPU, also where there is none."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec

import pytest


@pytest.mark.nightly
@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
@pytest.mark.parametrize("space", ["nasbench201", "darts", "nasbench1shot1-3"])
def test_kernels_compile_for_hopper(space, tmp_path):
    """In a process of its own, where Triton compiles and does not interpret; with nothing compiled before."""
    words = ["-m", "bench.kernels", "--spaces", space, "--precision", "bfloat16"]
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, *words], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert {row["form"] for row in rows if "kernels" in row} == {"mixed", "chosen"}
    assert all(row["shared"] < 227 * 1024 for row in rows if "kernel" in row)
