"""Compiles the kernels of fused networks for a device that need not be here, and tells what each takes of it.

    python -m bench.kernels [--spaces nasbench201,darts] [--forms mixed,chosen] [--precision bfloat16] [--capability 90]

Passes forward and backward of small networks, of all widths that a search on CIFAR-10 has (C=16 and twice and four
times that, 32x32 pixels, batch 64). No kernel is run, so that nothing is said of speed or of what is computed: Triton's
interpreter tests that. Prints one JSON line a kernel: seconds to compile it, registers and stack (what registers are
spilt to) of a thread, the latter in bytes, and shared memory of a program; and at the end a line for every form. Exits
with 1 where a kernel needs more shared memory than a program can have.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

import polyarch as pa
from polyarch.data.task import TaskShape
from polyarch.spaces import (
    darts_merged,
    darts_triton,
    nasbench1shot1_merged,
    nasbench1shot1_triton,
    nasbench201_chosen,
    nasbench201_merged,
    nasbench201_triton,
)
from polyarch.spaces.base import relaxation_of
from polyarch.spaces.layers import BatchNorm
from polyarch.spaces.supernets import ChoiceSupernet
from polyarch.spaces.views import Dense, Soft

SPACES: dict[str, pa.spaces.Space] = {
    "nasbench201": pa.spaces.NasBench201(cells=1),
    "darts": pa.spaces.Darts(layers=3),
    "nasbench1shot1-3": pa.spaces.NasBench1Shot1(sub_space=3, cells=3),
}
FORMS = ("mixed", "chosen")
MOST_SHARED = 227 * 1024
"""Bytes of shared memory that a program can have on a Hopper GPU."""
TOOL = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"


class Elsewhere:
    """Stands for the driver of a device that kernels are compiled for alone."""

    def __init__(self, capability: int) -> None:
        """Of such a compute capability, times ten."""
        self._target = GPUTarget("cuda", capability, 32)

    def get_current_target(self) -> GPUTarget:
        """The device."""
        return self._target

    def get_current_device(self) -> int:
        """Its number."""
        return 0

    def get_current_stream(self, device: int) -> int:
        """The stream that nothing is put on."""
        return 0


@contextmanager
def compiling(capability: int, found: list[dict[str, Any]]) -> Iterator[None]:
    """Kernels that are called in here are compiled, once each, and not run; networks take them on a CPU, too."""
    run, known = JITFunction.run, set[int]()

    def compiled(self: JITFunction, *given: Any, warmup: bool, **named: Any) -> Any:
        began = time.perf_counter()
        made = run(self, *given, warmup=True, **named)
        if id(made) not in known:
            known.add(id(made))
            took = round(time.perf_counter() - began, 2)
            found.append({"kernel": self.__name__, "compiled_s": took, **_taken(made.asm["cubin"])})
            found[-1] |= {"shared": made.metadata.shared, "warps": made.metadata.num_warps}
        return made

    merged = {
        nasbench201_merged: nasbench201_triton,
        darts_merged: darts_triton,
        nasbench1shot1_merged: nasbench1shot1_triton,
    }
    with ExitStack() as patches:
        driver.set_active(Elsewhere(capability))
        patches.enter_context(patch.object(JITFunction, "run", compiled))
        for module, kernels in merged.items():
            patches.enter_context(patch.object(module, "operations_of", lambda like, kernels=kernels: kernels))
        chosen = nasbench201_chosen.ChosenCell.apply
        patches.enter_context(patch.object(nasbench201_merged, "chosen_cell", chosen))
        yield


def _taken(binary: bytes) -> dict[str, int]:
    """Registers and stack of a thread."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary)
        file.flush()
        told = subprocess.run([TOOL, "-res-usage", file.name], capture_output=True, text=True, check=True).stdout
    return {
        name: int(re.search(rf"{word}:(\d+)", told)[1])  # type: ignore[index]
        for name, word in (("registers", "REG"), ("stack", "STACK"))
    }


def passed(space: pa.spaces.Space, form: str, dtype: torch.dtype) -> None:
    """Once forward and back, by the fused form. All is without memory: shapes and types are enough."""
    with torch.device("meta"):
        supernet = space.supernet(TaskShape((3, 32, 32), 10))
        x, choices = torch.empty(1, 64, 3, 32, 32, dtype=dtype), torch.zeros(1, len(space.decisions), dtype=torch.int64)
        weights = [torch.ones(1, len(s), requires_grad=True) for s in relaxation_of(space).simplices]
    for module in supernet.eval().modules():  # as autocast has it: batch norm stays in single precision
        for parameter in module.parameters(recurse=False) if not isinstance(module, BatchNorm) else ():
            parameter.data = parameter.data.to(dtype)
    assert isinstance(supernet, ChoiceSupernet)
    assert supernet.merged is not None
    selections = supernet._selections(Soft(tuple(weights)) if form == "mixed" else Dense(choices), x)
    supernet.merged(x, selections, form == "chosen").sum().backward()


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spaces", default=",".join(SPACES))
    parser.add_argument("--forms", default=",".join(FORMS))
    parser.add_argument("--precision", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--capability", type=int, default=90, help="90 is Hopper, 80 an A100")
    given = parser.parse_args(words)
    too_large = []
    for name in given.spaces.split(","):
        for form in given.forms.split(","):
            found: list[dict[str, Any]] = []
            with compiling(given.capability, found):
                passed(SPACES[name], form, getattr(torch, given.precision))
            for row in found:
                print(json.dumps({"space": name, "form": form, **row}), flush=True)
            too_large += [row["kernel"] for row in found if row["shared"] > MOST_SHARED]
            told = {
                "kernels": len(found),
                "compiled_s": round(sum(row["compiled_s"] for row in found), 1),
                "spilling": sum(row["stack"] > 0 for row in found),
            }
            print(json.dumps({"space": name, "form": form, "precision": given.precision, **told}), flush=True)
    sys.exit(bool(too_large))


if __name__ == "__main__":
    main()
