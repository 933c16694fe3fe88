"""Callbacks: what looks on while a search runs, adds to what it says, or ends it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from torch import Tensor
from typing_extensions import override

from polyarch.architecture import Architecture
from polyarch.distributions.base import Distribution
from polyarch.errors import PolyarchError
from polyarch.spaces.base import Space

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


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


@final
class TensorBoard(Callback):
    """Writes what every evaluation says for TensorBoard, by epoch: `tensorboard --logdir FOLDER` shows it.

    Several stages and repeats have folders of their own in it, `stage-K` and `repeat-K`. A search that is resumed with
    it goes on in the same curves.
    """

    def __init__(self, folder: str | Path) -> None:
        """Takes where to write."""
        try:
            import tensorboard  # noqa: F401
        except ImportError:
            raise PolyarchError("writing for TensorBoard needs it; install polyarch[tensorboard]") from None
        self.folder = Path(folder)
        self._begun = (0, 0)
        self._writers: dict[Path, SummaryWriter] = {}

    @override
    def on_begin(self, beginning: Beginning) -> None:
        self._begun = (beginning.stage, beginning.epoch)

    @override
    def on_evaluation(self, evaluation: Evaluation) -> None:
        line = evaluation.metrics
        stage, epoch = line["stage"], line["epoch"]
        home = self.folder / f"stage-{stage}" if evaluation.stages > 1 else self.folder
        for repeat in range(evaluation.repeats):
            own = home / f"repeat-{repeat}" if evaluation.repeats > 1 else home
            writer = self._writer(own, stage)
            for name, value in numbers(one_repeat(line, repeat)):
                if name not in ("stage", "epoch"):
                    writer.add_scalar(name.replace(".", "/"), float(value), epoch)
            writer.flush()

    @override
    def on_end(self, ending: Ending) -> None:
        for writer in self._writers.values():
            writer.close()

    def _writer(self, folder: Path, stage: int) -> SummaryWriter:
        """The writer of a folder, which drops what an interrupted search had written after its last checkpoint."""
        from torch.utils.tensorboard import SummaryWriter

        if folder not in self._writers:
            done = self._begun[1] if stage == self._begun[0] else 0
            self._writers[folder] = SummaryWriter(str(folder), purge_step=done + 1)
        return self._writers[folder]


def one_repeat(value: Any, repeat: int) -> Any:
    """One repeat's part of a line of metrics: every list's entry of that repeat."""
    if isinstance(value, dict):
        return {name: one_repeat(v, repeat) for name, v in value.items()}
    return value[repeat] if isinstance(value, list) else value


def numbers(value: Any, name: str = "") -> Iterator[tuple[str, float]]:
    """All numbers of a line of metrics of one repeat, each by its dotted name: `select.accuracy`, `probs.depth.3`."""
    if isinstance(value, Mapping | list):
        for key, inside in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from numbers(inside, f"{name}.{key}" if name else str(key))
    elif isinstance(value, int | float):
        yield name, value
