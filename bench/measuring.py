"""What benches of steps share: a problem on a device, steps that are timed, results that are kept as they come, tables.

A file of results is JSON lines: first the command, the commit and the machine, then one line a row.
"""

from __future__ import annotations

import gc
import json
import platform
import shlex
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from bench.gpu import commit
from polyarch.core import Info, Method, Problem
from polyarch.data.likelihood import Classification
from polyarch.data.task import Split, Task, TaskShape
from polyarch.distributions import uniform
from polyarch.spaces import Space
from polyarch.streams import Streams
from polyarch.training.allocation import Allocation
from polyarch.training.loop import Loop, Progress

NOTHING = "–"
"""What a table shows where there is no number."""
EXAMPLES = 2560
"""Forty batches of 64: a whole number of roll-outs of ten, so that all steps of an epoch are as long."""
CIFAR, SMALL = TaskShape((3, 32, 32), 10), TaskShape((3, 8, 8), 10)
PRIVATE = ("--out", "--data", "--images", "--table")
"""Options whose values say where things lie."""


# ---------------------------------------------------------------------------------------------------------------------
# Results.


def machine(device: str) -> str:
    """What numbers were made on."""
    cpu = f"{platform.machine()} CPU, {torch.get_num_threads()} threads"
    what = torch.cuda.get_device_name() if device == "cuda" else cpu
    return f"{what}, torch {torch.__version__}, Python {platform.python_version()}"


def command() -> str:
    """How to run this again, without where data and results lie."""
    words = [Path(w).name if before in PRIVATE else w for before, w in zip(sys.argv, sys.argv[1:], strict=False)]
    return shlex.join(["python", "-m", f"bench.{Path(sys.argv[0]).stem}", *words])


class Kept:
    """Rows that are printed and, where there is a file, added to it, so that what is cut short is not lost."""

    def __init__(self, file: Path | None, device: str, **about: Any) -> None:
        """Begins with what the rows are about; `about` may hold more of that."""
        self.file, self.rows = file, list[dict[str, Any]]()
        self._write({"command": command(), "commit": commit(), "machine": machine(device)} | about)

    def add(self, row: dict[str, Any]) -> None:
        """One more row."""
        self.rows.append(row)
        self._write(row)

    def _write(self, row: Mapping[str, Any]) -> None:
        text = json.dumps(row)
        print(text, flush=True)
        if self.file:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            with self.file.open("a", encoding="utf-8") as file:
                file.write(text + "\n")


def table(titles: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Columns side by side, in Markdown: words to the left, numbers to the right."""
    texts = [[shown(value) for value in row] for row in rows]
    widths = [max(len(text) for text in column) for column in zip(titles, *texts, strict=True)]

    lines = []
    for cells in (titles, [":--", *["--:"] * (len(titles) - 1)], *texts):
        name, *numbers = zip(cells, widths, strict=True)
        aligned = [name[0].ljust(name[1]), *(cell.rjust(width) for cell, width in numbers)]
        lines.append(f"| {' | '.join(aligned)} |")
    return "\n".join(lines)


def shown(value: Any) -> str:
    """A number in three digits, or what else it is."""
    if value is None:
        return NOTHING
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"
    return str(value)


def over(one: float | None, other: float | None) -> float | None:
    """A ratio; None where it lacks a number."""
    return round(one / other, 3) if one and other else None


# ---------------------------------------------------------------------------------------------------------------------
# Steps.


def problem_of(
    space: Space,
    repeats: int,
    precision: str,
    fast: bool,
    device: str = "cuda",
    shape: TaskShape = CIFAR,
) -> Problem:
    """Random images on the device: what is in them does not change the time."""
    chance = torch.Generator().manual_seed(0)

    def split() -> Split:
        images = torch.randn(EXAMPLES, *shape.input, generator=chance)
        return Split(images.to(device), torch.randint(shape.outputs, (EXAMPLES,), generator=chance).to(device))

    search, train = split(), split()
    data = {"train": train, "search": search, "select": search}
    return _problem(space, shape, repeats, precision, fast, data, torch.zeros(shape.input[0], 1, 1).to(device))


def problem_on(task: Task, space: Space, *, fast: bool, device: str = "cuda", repeats: int = 1) -> Problem:
    """The images of a task, in single precision."""
    data = {name: task.seen(split, torch.device(device)) for name, split in task.learning_data().items()}
    black = task.preprocess(torch.zeros(task.input_shape[0], 1, 1)).to(device)
    return _problem(space, task.shape, repeats, "float32", fast, data, black)


def _problem(
    space: Space,
    shape: TaskShape,
    repeats: int,
    precision: str,
    fast: bool,
    data: Mapping[str, Split],
    black: torch.Tensor,
) -> Problem:
    """Where `black` is, that is the device."""
    with black.device:
        supernet = space.supernet(shape, repeats)
    prior = uniform(space.decisions)
    return Problem(
        space=space,
        supernet=supernet,
        likelihood=Classification(shape.outputs),
        prior=replace(prior, logits=prior.logits.to(black.device)),
        data=data,
        black=black,
        precision=precision,
        fast=fast,
    )


def loop_of(method: Method, problem: Problem, *, captured: bool = True, first_seed: int = 0) -> Loop:
    """A search before its first step; its repeats have seeds one after another."""
    streams = [Streams(first_seed + k) for k in range(problem.repeats)]
    loop = Loop(method, problem, method.init(problem, streams, None), streams, Progress(), method.epochs)
    loop._captures &= captured
    return loop


def steps_of(loop: Loop) -> Iterator[Info]:
    """Steps without end; an epoch passes where its data do."""
    while True:
        yield from loop.steps()
        loop.progress.epoch = min(loop.progress.epoch + 1, loop.epochs - 1)


def finish_work(device: str) -> None:
    """Waits for what a device still does."""
    if device == "cuda":
        torch.cuda.synchronize()


class Held:
    """The most memory of a measurement beyond what the process held before it; on a CPU it is not measured."""

    def __init__(self, device: str) -> None:
        """Gives back what earlier measurements left, cuBLAS's workspaces among it."""
        self.cuda = device == "cuda"
        gc.collect()
        if self.cuda:
            torch.cuda.synchronize()
            torch._C._cuda_clearCublasWorkspaces()
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            self._reserved, self._allocated = torch.cuda.memory_reserved(), torch.cuda.memory_allocated()

    def most(self) -> dict[str, float | None]:
        """In GiB: what was reserved, which is what another process lacks, and what tensors of it took."""
        if not self.cuda:
            return {"gib": None, "gib_allocated": None}
        return {
            "gib": round((torch.cuda.max_memory_reserved() - self._reserved) / 2**30, 4),
            "gib_allocated": round((torch.cuda.max_memory_allocated() - self._allocated) / 2**30, 4),
        }


def timed(steps: Iterator[Info], device: str, seconds: float, rounds: int = 5) -> tuple[list[float], float]:
    """Seconds of a step in every round, all of them in about so many `seconds`; and those of the first step, apart.

    A round has one step at least: slow steps take longer than asked for.
    """
    start = time.perf_counter()
    next(steps)
    finish_work(device)
    first = time.perf_counter() - start

    def run(count: int) -> float:
        start = time.perf_counter()
        for _ in range(count):
            next(steps)
        finish_work(device)
        return (time.perf_counter() - start) / count

    each = max(1, int(seconds / rounds / run(2)))
    return [run(each) for _ in range(rounds)], first


def measured(
    method: Method, problem_settings: Mapping[str, Any], *, captured: bool, seconds: float, divided: int = 1
) -> dict[str, Any]:
    """Time and memory of steps: milliseconds of the median round, the least and the most; GiB; seconds to the first.

    Args:
        method: whose steps.
        problem_settings: what `problem_of` is given.
        captured: whether CUDA graphs may be.
        seconds: about how long to measure.
        divided: how many updates of weights a step has.
    """
    device = problem_settings["device"]
    held = Held(device)
    begun = time.perf_counter()
    problem = problem_of(**problem_settings)
    loop = loop_of(method, problem, captured=captured)
    built = time.perf_counter() - begun
    taken, first = timed(steps_of(loop), device, seconds)
    found = {name: round(1000 * value / divided, 3) for name, value in spread(taken).items()}
    found |= held.most() | {"first_s": round(built + first, 1), "captured": bool(loop._captures)}
    if device == "cpu":  # counted apart: it takes time itself
        with Allocation() as made:
            next(steps_of(loop))
        found["gib_allocated"] = round(made.peak / 2**30, 6)
    return found


def spread(taken: Sequence[float]) -> dict[str, float]:
    """The median, and how far rounds are apart."""
    return {"ms": statistics.median(taken), "least": min(taken), "most": max(taken)}


def why_plain(problem: Problem) -> str:
    """Why a problem's networks have no fast form; empty where they have one."""
    return problem.supernet.allow_fast(True)
