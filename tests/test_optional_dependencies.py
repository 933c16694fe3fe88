"""The library imports and searches with what pyproject.toml lists alone."""

import subprocess
import sys

OPTIONAL = (
    "triton", "torchmetrics", "torchvision", "pandas", "pyarrow", "ray", "onnx", "onnxscript", "onnxruntime",
    "tensorboard",
)  # fmt: skip
BLOCKED = f"import sys; sys.modules.update(dict.fromkeys({OPTIONAL!r}))"  # None says that there is no such module
SEARCH = """
import importlib, pkgutil
import torch
import polyarch as pa

torch.set_num_threads(1)
for module in pkgutil.walk_packages(pa.__path__, "polyarch."):
    if not module.name.endswith(("_triton", "_cuda", "__main__", "testing.ranks")):  # kernels are for CUDA devices
        importlib.import_module(module.name)
from polyarch.report import write_report

space = pa.spaces.ResidualDepth(max_depth=2, width=4)
task = pa.data.load("spirals")
run = pa.search(space, task, pa.methods.VariationalDepth(epochs=2), out="run")
write_report(run, task)
print(run.architecture)
"""


def test_imports_and_searches_without_optional_dependencies(tmp_path):
    command = [sys.executable, "-c", BLOCKED + SEARCH]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.startswith("depth=")
    assert (tmp_path / "run" / "report.html").exists()
