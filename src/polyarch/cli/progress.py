"""Progress on standard error: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from typing_extensions import override

from polyarch.callbacks import Beginning, Callback, Evaluation, Foretold
from polyarch.cli.saying import is_verbose, on_terminal, tell

if TYPE_CHECKING:
    from rich.live import Live

PLAIN_SECONDS = 5.0
METRICS = {
    "accuracy": ("accuracy", ".4f"),
    "squared_error": ("squared error", ".4g"),
    "hamming_accuracy": ("Hamming accuracy", ".4f"),
    "absolute_error": ("absolute error", ".4g"),
    "log_likelihood": ("log-lik.", ".4g"),
}
"""What is told of a network, under which name and in which form."""


@final
@dataclass(frozen=True)
class Followed:
    """What a command does after a search."""

    trains: bool = False
    """Trains the selected network alone, where that has a sense."""
    plain: bool = False
    """Fits plain models."""

    def by(self, foretold: Foretold) -> dict[str, float]:
        """Seconds of everything that comes after the last epoch, under what it is for."""
        found = {"to evaluate what they find": foretold.ending}
        if self.trains and foretold.training:
            found["to train what is selected"] = foretold.training
        if self.plain:
            from polyarch.runs.plain import FLOOR, SHARE

            found["for plain models"] = max(FLOOR, SHARE * foretold.searching)
        return found


NOTHING = Followed()


class Shown(Callback, ABC):
    """Shows how far a search is, and says if it collapses."""

    def __init__(self, title: str, followed: Followed = NOTHING) -> None:
        """Takes what the search is called, and what comes after it."""
        self.title, self.followed = title, followed
        self._said_collapse = False
        self._stage, self._begun, self._since = 0, 0, 0.0
        self._afterwards = 0.0

    @abstractmethod
    def say(self, text: str) -> None:
        """Prints a line."""

    @abstractmethod
    def show(self, evaluation: Evaluation) -> None:
        """Shows what an evaluation found."""

    @override
    def on_forecast(self, foretold: Foretold) -> None:
        self._afterwards = sum(self.followed.by(foretold).values())
        if foretold.searching + self._afterwards >= 1:
            self.say(f"{self.title}: {in_words(foretold, self.followed)}")

    @override
    def on_begin(self, beginning: Beginning) -> None:
        self._from(beginning.stage, beginning.epoch)
        sizes = ", ".join(f"{count:,} {split}" for split, count in beginning.examples.items())
        tokens = f" of {beginning.tokens:,} tokens each" if beginning.tokens else ""
        self.say(f"{self.title}: {sizes} examples{tokens}")

    @override
    def on_evaluation(self, evaluation: Evaluation) -> None:
        self.show(evaluation)
        seen = evaluation.metrics.get("watch", {})
        if any(seen.get("collapsed", ())) and not self._said_collapse:
            self._said_collapse = True
            self.say(
                f"polyarch: epoch {evaluation.metrics['epoch']}: {max(seen['skip_share']):.0%} of the operations that "
                "would be selected are skips: the search is collapsing; stop it earlier, or try "
                "objective.loss=sotl, drnas or parsec"
            )

    @override
    def on_finishing(self, doing: str) -> None:
        self.say(f"{self.title}: {doing}")

    def left(self, evaluation: Evaluation) -> str:
        """How long the stage goes on at this pace, and where it is the only one, what follows as it was foretold."""
        stage, epoch = evaluation.metrics["stage"], evaluation.metrics["epoch"]
        if stage != self._stage:
            self._from(stage, 0)
        if epoch == self._begun or epoch == evaluation.epochs:
            return ""
        seconds = (time.monotonic() - self._since) / (epoch - self._begun) * (evaluation.epochs - epoch)
        if evaluation.stages > 1:
            return f"{duration(seconds)} left of this stage"
        return f"{duration(seconds + self._afterwards)} left"

    def _from(self, stage: int, epoch: int) -> None:
        self._stage, self._begun, self._since = stage, epoch, time.monotonic()


@final
class Says(Callback):
    """Says something as a search begins, and nothing of one that is refused."""

    def __init__(self, shown: Shown, text: str) -> None:
        """Takes what shows the search, and what to say there."""
        self.shown, self.text = shown, text

    @override
    def on_begin(self, beginning: Beginning) -> None:
        self.shown.say(f"{self.shown.title}: {self.text}")


@contextmanager
def progress(title: str = "search", followed: Followed = NOTHING) -> Iterator[Shown]:
    """The callback that shows the progress of one search; a bar is taken down at the end, whatever happened."""
    if not on_terminal() or is_verbose():
        yield Lines(title, followed)
        return
    from rich.console import Console
    from rich.live import Live

    with Live(console=Console(stderr=True, highlight=False)) as live:
        yield Bar(title, live, followed)


@final
class Lines(Shown):
    """Plain lines, not too many."""

    def __init__(self, title: str, followed: Followed = NOTHING) -> None:
        """Nothing is printed yet."""
        super().__init__(title, followed)
        self._printed = -PLAIN_SECONDS

    @override
    def say(self, text: str) -> None:
        tell(text)

    @override
    def show(self, evaluation: Evaluation) -> None:
        now, epoch, left = time.monotonic(), evaluation.metrics["epoch"], self.left(evaluation)
        if now - self._printed < PLAIN_SECONDS and epoch < evaluation.epochs and not is_verbose():
            return
        self._printed = now
        where = f"{self.title}{_stage(evaluation)}: epoch {epoch}/{evaluation.epochs}{left and f', {left}'}"
        self.say(f"{where}; {_said(evaluation)}")


@final
class Bar(Shown):
    """A bar with the time that is left, and beneath it what the last evaluation found."""

    def __init__(self, title: str, live: Live, followed: Followed = NOTHING) -> None:
        """Takes where it is drawn."""
        from rich.console import Group
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
        from rich.text import Text

        super().__init__(title, followed)
        epochs = TextColumn("epoch {task.completed}/{task.total}")
        self._live, self._numbers = live, Text()
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            epochs,
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
        )
        self._job = self._bar.add_task(title, total=None, left="")
        live.update(Group(self._bar, self._numbers))

    @override
    def say(self, text: str) -> None:
        self._live.console.print(text, markup=False)

    @override
    def on_begin(self, beginning: Beginning) -> None:
        super().on_begin(beginning)
        self._bar.update(self._job, completed=beginning.epoch, total=beginning.epochs)

    @override
    def show(self, evaluation: Evaluation) -> None:
        done, total = evaluation.metrics["epoch"], evaluation.epochs
        where, left = f"{self.title}{_stage(evaluation)}", self.left(evaluation)
        self._bar.update(self._job, description=where, completed=done, total=total, left=left)
        self._numbers.plain = _said(evaluation)


@contextmanager
def counting(title: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Shows how many of something are done: calls with how many more.

    Elsewhere than on a terminal a line tells it now and then, where it takes longer than that.
    """
    if on_terminal():
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
        from rich.progress import TimeRemainingColumn as Left

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), Left())
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            job = bar.add_task(title, total=total)
            yield lambda more: bar.advance(job, more)
        return
    done, begun = 0, time.monotonic()
    told = begun

    def advance(more: int) -> None:
        nonlocal done, told
        done, now = done + more, time.monotonic()
        if now - told < PLAIN_SECONDS:
            return
        told = now
        left = f" of {total:,}, {duration((now - begun) / done * (total - done))} left" if total else ""
        tell(f"{title}: {done:,}{left}")

    yield advance


def in_words(foretold: Foretold, followed: Followed) -> str:
    """How long a search takes with what follows it, and what for."""
    told = {f"for {foretold.epochs} epochs": foretold.searching, **followed.by(foretold)}
    parts = ", ".join(f"{duration(seconds)} {what}" for what, seconds in told.items() if seconds >= 0.5)
    return f"about {duration(sum(told.values()))}: {parts}"


def duration(seconds: float) -> str:
    """In the unit that suits it."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _stage(evaluation: Evaluation) -> str:
    return f", stage {evaluation.metrics['stage'] + 1}/{evaluation.stages}" if evaluation.stages > 1 else ""


def _said(evaluation: Evaluation) -> str:
    """The few numbers worth watching, as means over repeats, each under the name of what it is about."""
    line = evaluation.metrics
    split = "select" if "select" in line else "train"
    parts = []
    for prefix, about in evaluation.evaluates.items():
        told = [
            f"{label} {_mean(line[split][f'{prefix}{name}']):{form}}"
            for name, (label, form) in METRICS.items()
            if f"{prefix}{name}" in line[split]
        ]
        parts.append(f"{about} {', '.join(told)}")
    known = {name: [value for value in line.get(name, ()) if value is not None] for name in ("truth", "predicted")}
    if evaluation.space.count() != 1:  # else there is nothing to believe
        parts.append(f"entropy {_mean(line['entropy']):.2f}")
    parts += [f"{name} {_mean(values):.5g}" for name, values in known.items() if values]
    return f"{split}: {' | '.join(parts)}"


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
