"""Progress on standard error: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, final

from typing_extensions import override

from polyarch.callbacks import Callback, Evaluation

PLAIN_SECONDS = 5.0


@final
class ProgressBar(Callback):
    """Shows how far a search is, and says if it collapses."""

    def __init__(self, show: Callable[[Evaluation], None]) -> None:
        """Takes what draws the bar or prints the line of an evaluation."""
        self._show = show
        self._said_collapse = False

    @override
    def on_evaluation(self, evaluation: Evaluation) -> None:
        self._show(evaluation)
        seen = evaluation.metrics.get("watch", {})
        if any(seen.get("collapsed", ())) and not self._said_collapse:
            self._said_collapse = True
            print(
                f"polyarch: epoch {evaluation.metrics['epoch']}: {max(seen['skip_share']):.0%} of the operations that "
                "would be selected are skips: the search is collapsing; stop it earlier, or try "
                "objective.loss=sotl, drnas or parsec",
                file=sys.stderr,
            )


@contextmanager
def progress(title: str = "search") -> Iterator[ProgressBar]:
    """The callback that shows the progress of one search; a bar is taken down at the end, whatever happened."""
    if not sys.stderr.isatty():
        yield ProgressBar(_plain_lines(title))
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("epoch {task.completed}/{task.total}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[said]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=False) as bar:
        job = bar.add_task(title, total=None, said="")

        def show(evaluation: Evaluation) -> None:
            bar.update(
                job,
                description=f"{title}{_stage(evaluation)}",
                completed=evaluation.metrics["epoch"],
                total=evaluation.epochs,
                said=_said(evaluation.metrics),
            )

        yield ProgressBar(show)


def _plain_lines(title: str) -> Callable[[Evaluation], None]:
    last = -math.inf

    def show(evaluation: Evaluation) -> None:
        nonlocal last
        if time.monotonic() - last >= PLAIN_SECONDS:
            last = time.monotonic()
            where = f"{title}{_stage(evaluation)}: epoch {evaluation.metrics['epoch']}/{evaluation.epochs}"
            print(f"{where} {_said(evaluation.metrics)}", file=sys.stderr, flush=True)

    return show


def _stage(evaluation: Evaluation) -> str:
    return f", stage {evaluation.metrics['stage'] + 1}/{evaluation.stages}" if evaluation.stages > 1 else ""


def _said(line: Mapping[str, Any]) -> str:
    """The few numbers worth watching, as means over repeats."""
    split = "select" if "select" in line else "train"
    shown = {"log_likelihood": "log-lik.", "accuracy": "accuracy", "squared_error": "squared error"}
    parts = [f"{label} {_mean(line[split][name]):.4f}" for name, label in shown.items() if name in line[split]]
    known = [value for value in line.get("truth", ()) if value is not None]
    truth = f", truth {_mean(known):.5g}" if known else ""
    return f"{split} {', '.join(parts)}, entropy {_mean(line['entropy']):.2f}{truth}"


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
