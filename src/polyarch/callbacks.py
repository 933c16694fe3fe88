"""Callbacks: what looks on while a search runs, adds to what it says, or ends it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

from torch import Tensor
from typing_extensions import override

from polyarch.architecture import Architecture
from polyarch.distributions.base import Distribution
from polyarch.spaces.base import Space


@final
@dataclass(frozen=True)
class Foretold:
    """How many seconds a search is going to take, by a few steps that were made before it."""

    epochs: int
    """Of all stages, at most."""
    searching: float
    ending: float
    """To evaluate what was found."""
    training: float
    """To train the selected network of every repeat alone afterwards (`train_selected`); 0 where that has no sense."""


@final
@dataclass(frozen=True)
class Beginning:
    """A search that is about to make its first step, or to go on where it was interrupted."""

    examples: Mapping[str, int]
    """How many every split of the data has."""
    epochs: int
    """Of the stage, at most."""
    stages: int
    stage: int
    """Where it goes on, from 0."""
    epoch: int
    """Whole epochs of the stage that are done."""
    tokens: int = 0
    """How many an example has, where inputs are tokens; 0: they are numbers."""


@final
@dataclass(frozen=True)
class Step:
    """One training step, just made."""

    stage: int
    epoch: int
    """Whole epochs of the stage before it."""
    step: int
    """Of its epoch, from 0."""
    metrics: Mapping[str, Tensor]
    """What the method says of the step: tensors [repeats] on the device. The next step may write into the same memory,
    so clone what you keep; reading a value (`.item()`, `print`) makes the search wait for the device."""


@final
@dataclass
class Evaluation:
    """What a search says of itself after every `evaluation.every` epochs; not yet written."""

    metrics: dict[str, Any]
    """The next line of metrics.jsonl: `stage`, `epoch`, `step`, `train`, `probs`, `seconds` and so on. Values that
    differ between repeats are lists with one entry per repeat. What a callback adds is written too."""
    space: Space
    """What the stage searches."""
    belief: Distribution
    """Over the architectures of the space, with a leading axis of repeats."""
    evaluates: Mapping[str, str]
    """What the numbers of a split are about, by the beginning of their names (`Method.evaluates`)."""
    epochs: int
    """Of the stage, at most."""
    stages: int
    repeats: int
    stopped: bool = field(default=False, init=False)
    saved: bool = field(default=False, init=False)

    def stop(self) -> None:
        """Ends the search here, on every rank and for all repeats: no more epochs, no more stages.

        What was learnt is finished as usual, from the best state so far. The next checkpoint says that the search was
        stopped, so that one that is killed while it finishes ends here again when it is resumed.
        """
        self.stopped = True

    def checkpoint(self) -> None:
        """Writes a checkpoint as soon as all callbacks were called."""
        self.saved = True


@final
@dataclass(frozen=True)
class Ending:
    """What a search came to; not yet written."""

    space: Space
    """What the last stage searched."""
    architectures: Sequence[Architecture]
    """The selected one of every repeat."""
    results: Sequence[dict[str, Any]]
    """What result.json will hold, one dictionary per repeat. What a callback adds is written too."""


class Callback:
    """Told how a search goes. A subclass defines what it wants to hear of.

    Callbacks are called on rank 0 alone, which writes the files, in the order in which `search` was given them: what
    one adds, the next sees. On other ranks they are never called, and only `Evaluation.stop` reaches them. What a
    callback raises ends the search and reaches whoever called it; the run can be resumed from its last checkpoint.
    Callbacks are not part of a run: who resumes it gives them again. `TableTruth` is the exception.
    """

    def on_forecast(self, foretold: Foretold) -> None:
        """Before a new search begins; only where a subclass defines it, since a few steps must be made for it.

        Not of a search that makes no more than a few steps itself, nor of one in several processes.
        """

    def on_begin(self, beginning: Beginning) -> None:
        """Before the first step, or before the first after an interruption."""

    def on_step(self, step: Step) -> None:
        """After every training step; only called where a subclass defines it, since it must not wait for the device."""

    def on_evaluation(self, evaluation: Evaluation) -> None:
        """After every evaluation, before it is written."""

    def on_finishing(self, doing: str) -> None:
        """After the last epoch, before the end: what is being done, in a few words."""

    def on_end(self, ending: Ending) -> None:
        """After the search, before its results are written; again where it was killed in between and is resumed."""


def hears_forecasts(callback: Callback) -> bool:
    """Whether a callback defines `on_forecast`."""
    return type(callback).on_forecast is not Callback.on_forecast


def hears_steps(callback: Callback) -> bool:
    """Whether a callback defines `on_step`."""
    return type(callback).on_step is not Callback.on_step


@final
class Checkpoints(Callback):
    """Writes a checkpoint at an evaluation, at least so many seconds after the last one.

    Killed, a search loses that much and what it learnt since its last evaluation. A search that is given none of these
    has one with the default.
    """

    def __init__(self, seconds: float = 10.0) -> None:
        """Counts from now on."""
        self._seconds, self._last = seconds, time.monotonic()

    @override
    def on_evaluation(self, evaluation: Evaluation) -> None:
        if time.monotonic() - self._last >= self._seconds:
            evaluation.checkpoint()
            self._last = time.monotonic()
