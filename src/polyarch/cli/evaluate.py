"""`polyarch evaluate`: how good a finished run is, on its test data or on other data."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from polyarch.cli.options import Json, RunFolder
from polyarch.cli.tables import print_figures


def evaluate(
    run: RunFolder,
    data: Annotated[
        str | None,
        typer.Option("--data", help="Judge on this labelled data (its test split, or all of it) instead."),
    ] = None,
    select: Annotated[str, typer.Option("--select", help="Another selection rule: argmax, 95%, expectation.")] = "",
    as_json: Json = False,
) -> None:
    """Accuracy, log-likelihood, Brier score and calibration of the selected network and of the mixtures."""
    from polyarch.errors import PolyarchError
    from polyarch.runs.results import judge
    from polyarch.runs.run import open_run

    opened = open_run(run)
    architecture = opened.selected(select) if select else opened.architecture
    split = opened.task().test if data is None else opened.other_data(data)
    if split is None:
        raise PolyarchError("this run has no test data; name some with --data")
    found = judge(opened, architecture, split)
    if as_json:
        print(json.dumps({"run": str(run), "architecture": str(architecture), "metrics": found}))
        return
    print_figures(f"{architecture}, {len(split)} examples", {row: [figures] for row, figures in found.items()})
