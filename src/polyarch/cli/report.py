"""`polyarch report`: the page about a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from polyarch.cli.options import AllowChanged, Json, RunFolder

if TYPE_CHECKING:
    from polyarch.runs.run import Run


def report(
    run: RunFolder,
    baselines: Annotated[
        list[Path],
        typer.Option("--baseline", metavar="RUN", help="A run of one option to show beside it; may be repeated."),
    ] = [],  # noqa: B006
    allow_changed: AllowChanged = False,
    as_json: Json = False,
) -> None:
    """Write the one-file HTML report of a run again, or the page of a comparison."""
    from polyarch.report import write_comparison
    from polyarch.runs.examples import COMPARISON
    from polyarch.runs.standings import Comparison

    if (run / COMPARISON).exists():
        page = write_comparison(Comparison(run))
    else:
        page = write(run, baselines, allow_changed=allow_changed)
    print(json.dumps({"run": str(run), "report": str(page)}) if as_json else page)


def write(
    folder: Path,
    baselines: list[Path] | None = None,
    runs: list[Run] | None = None,
    *,
    allow_changed: bool = False,
) -> Path:
    """Writes the report of a run, or of every repeat and their summary; baselines beneath the run come along.

    `runs` are those in the folder, where they are at hand with their data and what was asked of them.
    """
    from polyarch.report import write_report, write_summary_report
    from polyarch.runs.run import open_repeats

    runs = runs or open_repeats(folder, allow_changed=allow_changed)
    own = sorted((folder / "baselines").glob("*"))
    others = [open_repeats(path, allow_changed=allow_changed) for path in [*own, *(baselines or [])]]

    def beside(seed: int) -> list[Run]:
        return [next((run for run in repeats if run.seed == seed), repeats[0]) for repeats in others]

    task = runs[0].task(sample=True)
    pages = [write_report(run, task, baselines=beside(run.seed)) for run in runs]
    if len(runs) == 1:
        return pages[0]
    every = [run for repeats in others for run in repeats]
    return write_summary_report(folder, runs, task, baselines=every)
