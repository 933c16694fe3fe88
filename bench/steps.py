"""What a step costs: ours, the same in plain form, without a CUDA graph, and sparse; beside it its convolutions alone.

    python -m bench.steps [--cases darts,parsec-16] [--precision bfloat16] [--forms fast,plain] [--out FILE]

A case is a method on a space at its full size (batch 64, images of 32 pixels a side; random ones, for what is in them
does not change the time): on NAS-Bench-201 (C=16, N=5), or, where its name says so, on the DARTS space (C=16, 8 layers)
or on the third NAS-Bench-1Shot1 (C=16, 9 cells). Milliseconds are of a step, for SoTL of a weight update: the median of
five rounds. Forms:

    fast     fused where the space has such a form, one CUDA graph: what a user gets
    plain    operation by operation, one CUDA graph
    eager    the same without a graph
    sparse   of methods that sample: only the operations that were drawn, which cannot be a graph
    floor    the convolutions that a dense step hands to cuDNN, alone, in one CUDA graph: of the fast form, unless that
             has kernels of its own for many of them; then of the plain one

All forms of a case are measured one after another in one process, and ratios are of those. Memory is what the process
reserved beyond what it had before. Prints one JSON line a case, and at the end one table. On a CPU (`--device cpu
--small`) the script runs to try it out: there is no fast form and no graph.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import polyarch as pa
from bench.measuring import (
    CIFAR,
    SMALL,
    Held,
    Kept,
    finish_work,
    loop_of,
    measured,
    over,
    problem_of,
    steps_of,
    table,
    why_plain,
)
from polyarch.core import Info, Method
from polyarch.settings import updated

BATCH, ROLL_OUT = 64, 10
AUGMENTED: Any = {"crop": 4, "flip": True}
SHARED: Any = {"augment": AUGMENTED, "batch_size": BATCH, "form": "dense"}
FORMS = {"fast": (True, True), "plain": (False, True), "eager": (False, False), "sparse": (False, False)}
"""Whether it is fused, and whether it is captured."""
OWN_KERNELS = 0.85
"""With a smaller share of the plain form's multiply-accumulates, a fast form has convolutions that cuDNN does not see.
Where an edge has one kernel in place of a 1x1 and a 3x3 one, as in NAS-Bench-201, nine tenths are left."""
RECORDED = (
    "Recorded, not measured here: on a CPU, AutoDL-Projects' own step took 3.90 s where ours took 3.57 s, and "
    "quark0/darts's own step took 26.2 s where ours took 23.5 s."
)


@dataclass(frozen=True)
class Case:
    """A method on a space."""

    method: Method
    space: str = "nasbench201"

    @property
    def updates(self) -> int:
        """Of weights, in one step."""
        objective = getattr(self.method, "objective", None)
        return ROLL_OUT if objective is not None and objective.loss == "sotl" else 1

    def in_form(self, form: str) -> Method | None:
        """The method as a form has it; None where it has no such form."""
        if form != "sparse":
            return self.method
        return updated(self.method, {"form": "sparse"}) if hasattr(self.method, "form") else None


DARTS = pa.methods.Darts(augment=AUGMENTED)
SINGLE_PATH = pa.methods.OneShot(**SHARED)
CASES: dict[str, Case] = {
    "darts": Case(DARTS),
    "darts-second": Case(pa.methods.Darts(augment=AUGMENTED, objective={"order": "second"})),
    "drnas": Case(pa.methods.Drnas(augment=AUGMENTED)),
    "gdas": Case(pa.methods.Gdas(augment=AUGMENTED)),
    "balenas": Case(pa.methods.Balenas(augment=AUGMENTED)),
    "sotl-darts": Case(
        pa.methods.Darts(augment=AUGMENTED, objective={"loss": "sotl", "steps": ROLL_OUT}, weights={"grad_clip": 0.0})
    ),
    "parsec-16": Case(pa.methods.Parsec(augment=AUGMENTED, samples=16, form="dense")),
    "single-path": Case(SINGLE_PATH),
    "fairnas": Case(pa.methods.OneShot(**SHARED, sampling="fair")),
    "multipath": Case(pa.methods.OneShot(**SHARED, paths=4)),
    "darts/darts": Case(DARTS, "darts"),
    "darts/single-path": Case(SINGLE_PATH, "darts"),
    "nasbench1shot1-3/darts": Case(DARTS, "nasbench1shot1-3"),
    "nasbench1shot1-3/single-path": Case(SINGLE_PATH, "nasbench1shot1-3"),
}


def space_of(name: str, small: bool) -> pa.spaces.Space:
    """A space at its full size, or as small as it can be."""
    if name == "nasbench201":
        return pa.spaces.NasBench201(**({"channels": 4, "cells": 1} if small else {}))
    if name == "darts":
        return pa.spaces.Darts(channels=4 if small else 16, layers=3 if small else 8)
    return pa.spaces.NasBench1Shot1(sub_space=3, **({"channels": 4, "cells": 3} if small else {}))


# ---------------------------------------------------------------------------------------------------------------------
# Convolutions alone.


class Convolutions(TorchDispatchMode):
    """Notes every convolution that is computed inside it, backwards too, without its numbers."""

    def __init__(self) -> None:
        """Nothing is noted."""
        super().__init__()
        self.calls: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []
        self.macs = 0

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        found = func(*args, **(kwargs or {}))
        if func is torch.ops.aten.convolution.default:
            self._note(func, args)
            self.macs += found.numel() * args[1][0].numel()
        elif func is torch.ops.aten.convolution_backward.default:
            self._note(func, args)
            self.macs += args[0].numel() * args[2][0].numel() * sum(args[10][:2])  # of the input and of the weight
        return found

    def _note(self, func: Callable[..., Any], args: Sequence[Any]) -> None:
        self.calls.append((func, tuple(_Shape.of(a) if isinstance(a, Tensor) else a for a in args)))

    def again(self, device: str) -> Callable[[], None]:
        """Makes all of them once more, on random numbers: one tensor stands for all that are alike."""
        made: dict[_Shape, Tensor] = {}

        def real(value: Any) -> Any:
            if not isinstance(value, _Shape):
                return value
            if value not in made:
                made[value] = torch.empty_strided(value.size, value.stride, dtype=value.dtype, device=device).normal_()
            return made[value]

        calls = [partial(func, *(real(value) for value in args)) for func, args in self.calls]

        def run() -> None:
            for call in calls:
                call()

        return run


@dataclass(frozen=True)
class _Shape:
    size: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype

    @classmethod
    def of(cls, value: Tensor) -> _Shape:
        return cls(tuple(value.shape), value.stride(), value.dtype)


def convolutions_of(method: Method, settings: Mapping[str, Any]) -> Convolutions:
    """Those of one step without a graph."""
    loop = loop_of(method, problem_of(**settings), captured=False)
    with Convolutions() as seen:
        next(steps_of(loop))
    return seen


def milliseconds(run: Callable[[], None], device: str, seconds: float = 0.5) -> float:
    """Of a call, in a CUDA graph where there is one."""
    if device == "cuda":
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            run()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            run()
        run = graph.replay
    run()
    finish_work(device)
    start, count = time.perf_counter(), 0
    while count < 3 or time.perf_counter() - start < seconds:
        run()
        finish_work(device)
        count += 1
    return 1000 * (time.perf_counter() - start) / count


def floor(case: Case, settings: Mapping[str, Any]) -> dict[str, Any]:
    """What the convolutions of a step take alone, and whose they are."""
    plain = convolutions_of(case.method, {**settings, "fast": False})
    fast = convolutions_of(case.method, {**settings, "fast": True})
    share = fast.macs / plain.macs
    form, seen = ("fast", fast) if share >= OWN_KERNELS else ("plain", plain)
    device = settings["device"]
    Held(device)  # gives back the memory of both steps
    with torch.no_grad():
        taken = milliseconds(seen.again(device), device) / case.updates
    return {"ms": round(taken, 3), "of": form, "convolutions": len(seen.calls), "macs_over_plain": round(share, 3)}


# ---------------------------------------------------------------------------------------------------------------------


def profile(steps: Iterator[Info]) -> None:
    """Prints where the time of a step goes, by kernel."""
    for _ in range(2):
        next(steps)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
        next(steps)
        torch.cuda.synchronize()
    print(seen.key_averages().table(sort_by="cuda_time_total", row_limit=45, max_name_column_width=70))


def row_of(name: str, given: argparse.Namespace) -> dict[str, Any]:
    """All forms of a case. What fails is told in its place: the other forms are worth having."""
    case = CASES[name]
    settings = {
        "space": space_of(case.space, given.small),
        "repeats": given.repeats,
        "precision": given.precision,
        "device": given.device,
        "shape": SMALL if given.small else CIFAR,
    }
    row: dict[str, Any] = {"case": name, "precision": given.precision, "repeats": given.repeats}
    row["why_plain"] = why_plain(problem_of(**settings, fast=True))
    for form in given.forms.split(","):
        fast, captured = FORMS.get(form, (False, False))
        try:
            if form == "floor":
                row[form] = floor(case, settings)
            elif (method := case.in_form(form)) is not None:
                own = {**settings, "fast": fast}
                row[form] = measured(method, own, captured=captured, seconds=given.seconds, divided=case.updates)
        except (RuntimeError, pa.PolyarchError) as error:
            row[form] = {"failed": f"{type(error).__name__}: {str(error)[:300]}"}
    if given.profile:
        profile(steps_of(loop_of(case.method, problem_of(**settings, fast=True))))
    return row


def shown_rows(rows: Sequence[Mapping[str, Any]]) -> str:
    """The table: times, then their ratios, then memory and its ratios."""
    titles = ["case", "fast ms", "plain ms", "eager ms", "sparse ms", "floor ms", "plain/fast", "eager/fast"]
    titles += ["fast/floor", "over darts", "fast GiB", "plain GiB", "sparse GiB", "fast/plain GiB", "fast/sparse GiB"]
    darts = next((row["fast"].get("ms") for row in rows if row["case"] == "darts" and "fast" in row), None)
    lines = []
    for row in rows:
        ms, gib = ({form: row.get(form, {}).get(kind) for form in (*FORMS, "floor")} for kind in ("ms", "gib"))
        lines.append(
            [
                row["case"] + ("*" if row["why_plain"] else ""),
                *(ms[form] for form in (*FORMS, "floor")),
                over(ms["plain"], ms["fast"]),
                over(ms["eager"], ms["fast"]),
                over(ms["fast"], ms["floor"]),
                over(ms["fast"], darts),
                *(gib[form] for form in ("fast", "plain", "sparse")),
                over(gib["fast"], gib["plain"]),
                over(gib["fast"], gib["sparse"]),
            ]
        )
    reasons = {row["why_plain"] for row in rows if row["why_plain"]}
    return "\n".join([table(titles, lines), *(f"* no fast form: {reason}" for reason in sorted(reasons))])


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--cases", default=",".join(CASES))
    made.add_argument("--forms", default=",".join([*FORMS, "floor"]))
    made.add_argument("--precision", default="float32")
    made.add_argument("--repeats", type=int, default=1)
    made.add_argument("--seconds", type=float, default=1.0, help="about how long a form is measured")
    made.add_argument("--profile", action="store_true", help="also print the kernels of a fast step")
    made.add_argument("--exact", action="store_true", help="convolutions in single precision, not in TF32")
    made.add_argument("--device", default="cuda")
    made.add_argument("--small", action="store_true", help="small networks and images, to try this out")
    made.add_argument("--out", type=Path, help="a file that JSON lines are added to")
    return made


def main(words: Sequence[str] | None = None) -> None:
    given = parser().parse_args(words)
    torch.backends.cudnn.allow_tf32 = not given.exact
    kept = Kept(given.out, given.device, tf32=not given.exact, rounds=5, seeds=[0])
    for name in given.cases.split(","):
        kept.add(row_of(name, given))
    print(f"\n{shown_rows(kept.rows)}\n\n{RECORDED}")


if __name__ == "__main__":
    main()
