"""Progress on standard error: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

PLAIN_SECONDS = 5.0


@contextmanager
def watching(title: str = "search") -> Iterator[Callable[[dict[str, Any]], None]]:
    """A function that takes every evaluation of a search, shows how far it is, and says if it collapses."""
    said: set[str] = set()
    with _showing(title) as show:

        def watch(line: dict[str, Any]) -> None:
            show(line)
            say_collapse(line, said)

        yield watch


@contextmanager
def _showing(title: str) -> Iterator[Callable[[dict[str, Any]], None]]:
    if not sys.stderr.isatty():
        yield _plain_lines(title)
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

        def show(line: dict[str, Any]) -> None:
            bar.update(
                job,
                description=f"{title}{_stage(line)}",
                completed=line["epoch"],
                total=line["epochs"],
                said=_said(line),
            )

        yield show


def _plain_lines(title: str) -> Callable[[dict[str, Any]], None]:
    last = -math.inf

    def show(line: dict[str, Any]) -> None:
        nonlocal last
        if time.monotonic() - last >= PLAIN_SECONDS:
            last = time.monotonic()
            where = f"{title}{_stage(line)}: epoch {line['epoch']}/{line['epochs']}"
            print(f"{where} {_said(line)}", file=sys.stderr, flush=True)

    return show


def _stage(line: dict[str, Any]) -> str:
    return f", stage {line['stage'] + 1}/{line['stages']}" if line["stages"] > 1 else ""


def _said(line: dict[str, Any]) -> str:
    """The few numbers worth watching, as means over repeats."""
    split = "select" if "select" in line else "train"
    shown = {"log_likelihood": "log-lik.", "accuracy": "accuracy", "squared_error": "squared error"}
    parts = [f"{label} {_mean(line[split][name]):.4f}" for name, label in shown.items() if name in line[split]]
    known = [value for value in line.get("truth", ()) if value is not None]
    truth = f", truth {_mean(known):.5g}" if known else ""
    return f"{split} {', '.join(parts)}, entropy {_mean(line['entropy']):.2f}{truth}"


def say_collapse(line: dict[str, Any], said: set[str]) -> None:
    """Says on standard error, once a search, that the cell it would select is little more than skips."""
    seen = line.get("watch", {})
    if any(seen.get("collapsed", ())) and "collapse" not in said:
        said.add("collapse")
        share = max(seen["skip_share"])
        print(
            f"polyarch: epoch {line['epoch']}: {share:.0%} of the operations that would be selected are skips: the "
            "search is collapsing; stop it earlier, or try objective=sotl, drnas or parsec",
            file=sys.stderr,
        )


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
