"""How long a search takes, foretold from a few of its steps, and how to make it shorter as a whole."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import chain, repeat
from typing import Any, final, get_args

import torch

from polyarch.core import Info, Method
from polyarch.settings import InEpochs, settings_of, updated
from polyarch.training.loop import Loop

STEPS = 5
"""Of every kind, that are timed, where there is time for so many."""
SAMPLE = 1024
"""Examples of a split that an evaluation is timed on."""


@final
@dataclass(frozen=True)
class Pace:
    """Seconds that the parts of a stage take, on this machine and as busy as it is."""

    start: float
    """Before its first epoch, and what first steps take longer than others."""
    epoch: float
    """All its steps, and what ends it."""
    evaluation: float
    example: float
    """Of an evaluation, for one example."""

    def seconds(self, epochs: int, every: int) -> float:
        """Of so many epochs, with an evaluation after `every` few of them and after the last."""
        return self.start + epochs * self.epoch + math.ceil(epochs / every) * self.evaluation


def with_epochs(method: Method, epochs: int) -> Method:
    """The same search in another number of epochs: what counts in epochs (`InEpochs`) keeps its share of them."""
    share, told = epochs / method.epochs, dict[str, Any](epochs=epochs)
    for name, setting in settings_of(type(method)).items():
        if any(isinstance(mark, InEpochs) for mark in get_args(setting.type)):
            value: Any = reduce(getattr, name.split("."), method)
            told[name] = tuple(_shared(own, share) for own in value) if isinstance(value, tuple) else int(value * share)
    return updated(method, told)


def _shared(milestone: float, share: float) -> float:
    """A milestone below 1 is a share of the epochs already."""
    return max(1.0, float(round(milestone * share))) if milestone >= 1 else milestone


def measure(loop: Loop, seconds: float) -> Pace:
    """Makes a few steps of every kind, ends an epoch and evaluates; the loop is of no use for a search afterwards.

    Args:
        loop: as it begins a stage.
        seconds: steps are timed for about so long; two of every kind are made in any case.
    """
    kinds, examples = kinds_of_epochs(loop), {name: len(split) for name, split in loop.problem.data.items()}
    start = steps = 0.0
    for epoch, share in kinds.items():
        first, others = _steps(loop, epoch, seconds / len(kinds))
        start += max(0.0, first - others)
        counts = loop.batches.counts
        steps += share * others * sum(counts) / counts[0]
    some = {name: split.some(SAMPLE) for name, split in loop.problem.data.items()}
    problem, last = replace(loop.problem, data=some), loop.epochs - 1
    end = partial(loop.method.end_epoch, problem, loop.state, last)
    ends = {evaluated: _settled(loop, partial(end, evaluated)) for evaluated in (False, True)}
    looked_at = loop.looked_at()
    looks = _settled(loop, partial(loop.evaluate, looked_at, most=SAMPLE))
    example = looks / sum(min(examples[name], SAMPLE) for name in looked_at)
    whole = max(1.0, examples["train"] / SAMPLE)
    return Pace(
        start=start,
        epoch=steps + ends[False] * whole,
        evaluation=example * sum(examples[name] for name in looked_at) + max(0.0, ends[True] - ends[False]),
        example=example,
    )


def kinds_of_epochs(loop: Loop) -> dict[int, float]:
    """Of every kind of epoch, by what its steps are made of, the first, and the share of epochs that are so."""
    count = max(loop.batches.counts)
    found = [
        tuple(part.name for part in loop.method.parts(loop.problem, loop.state, epoch, count))
        for epoch in range(loop.epochs)
    ]
    return {found.index(names): times / len(found) for names, times in Counter(found).items()}


def _steps(loop: Loop, epoch: int, seconds: float) -> tuple[float, float]:
    """Seconds of the first step of an epoch, and the mean of a few others."""
    loop.progress.epoch = epoch
    endless: Iterator[Info] = chain.from_iterable(loop.steps() for _ in repeat(None))
    first, taken, ends = _timed(loop, partial(next, endless)), list[float](), time.monotonic() + seconds
    while not taken or (len(taken) < STEPS and time.monotonic() < ends):
        taken.append(_timed(loop, partial(next, endless)))
    return first, sum(taken) / len(taken)


def _settled(loop: Loop, run: Callable[[], object]) -> float:
    """Seconds of what is done many times: the first may be recorded, or have memory to find."""
    _timed(loop, run)
    return _timed(loop, run)


def _timed(loop: Loop, run: Callable[[], object]) -> float:
    begun = time.monotonic()
    run()
    if loop.device.type == "cuda":
        torch.cuda.synchronize(loop.device)
    return time.monotonic() - begun
