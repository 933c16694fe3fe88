"""`polyarch trust`: should I believe what a run believes?"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from polyarch.cli.options import AllowChanged, Json, RunFolder
from polyarch.cli.ranks import last_word

if TYPE_CHECKING:
    from polyarch.ranking import Trust
    from polyarch.runs.run import Run

TRAIN, SAMPLE = 8, 100


def trust(
    run: RunFolder,
    train: Annotated[
        int | None,
        typer.Option(
            "--train",
            metavar="N",
            help=f"Train so many architectures alone, half drawn from belief and half uniformly, beside the selected "
            f"one. A larger N later goes on from these. [default: {TRAIN}]",
        ),
    ] = None,
    table: Annotated[
        str | None,
        typer.Option("--table", metavar="NAME_OR_FILE", help="Look them up in ground truth (.npz) instead."),
    ] = None,
    column: Annotated[
        str | None,
        typer.Option("--column", metavar="NAME", help="Of --table. [default: the only one of test accuracy]"),
    ] = None,
    sample: Annotated[
        int | None, typer.Option("--sample", metavar="N", help=f"With --table: look up so many. [default: {SAMPLE}]")
    ] = None,
    settings: Annotated[
        list[str],
        typer.Option("--set", metavar="NAME=VALUE", help="Of training, as in `polyarch train`. May be repeated."),
    ] = [],  # noqa: B006
    device: Annotated[str, typer.Option("--device", help="Of training: auto, cpu, cuda or cuda:N.")] = "auto",
    allow_changed: AllowChanged = False,
    as_json: Json = False,
) -> None:
    """Whether belief orders architectures, and whether what it likes beats a random draw; in the run and its report."""
    from polyarch.cli.report import write
    from polyarch.errors import PolyarchError
    from polyarch.runs.run import open_run

    opened = open_run(run, allow_changed=allow_changed)
    if table is None:
        for option, given in (("--column", column), ("--sample", sample)):
            if given is not None:
                raise PolyarchError(f"{option} is for a table; name one with --table, or leave it out")
        found = _by_training(opened, TRAIN if train is None else train, settings, device)
    elif train is not None or settings:
        raise PolyarchError("with --table nothing is trained; leave --train and --set out")
    else:
        found = _by_table(opened, table, column, SAMPLE if sample is None else sample)
    page = write(run, allow_changed=allow_changed) if opened.config.data["source"] else None
    if as_json:
        print(json.dumps(found.summary() | {"run": str(run)}))
        return
    print("\n".join(found.sentences()))
    if page:
        print(f"\nreport: {page}")


def _by_training(run: Run, count: int, settings: list[str], device: str) -> Trust:
    from polyarch.cli.choices import assign
    from polyarch.cli.progress import progress
    from polyarch.errors import PolyarchError
    from polyarch.methods.standalone import Standalone
    from polyarch.ranking import trust_by_training
    from polyarch.runs.options import Compute
    from polyarch.settings import make

    given = assign({"method": Standalone}, settings)["method"]
    if "architecture" in given:
        raise PolyarchError("architectures are drawn; leave architecture out, or train that one with `polyarch train`")
    try:
        return trust_by_training(run, count, make(Standalone, given), compute=Compute(device), progress=progress)
    except KeyboardInterrupt:
        last_word("interrupted; the same command goes on where it was")
        raise typer.Exit(130) from None


def _by_table(run: Run, table: str, column: str | None, count: int) -> Trust:
    from polyarch.ranking import trust_by_table
    from polyarch.tables import find_truth

    return trust_by_table(run, find_truth(run.space, table, column), count)
