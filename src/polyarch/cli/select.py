"""`polyarch select`: an architecture from what a run believes, by a score; or by a black-box search."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from polyarch.cli.options import AllowChanged, Json, Limits

if TYPE_CHECKING:
    from polyarch.scores.base import Score
    from polyarch.scores.sampling import Evaluated, Sample


def select(
    run: Annotated[Path | None, typer.Argument(metavar="[RUN]", help="The folder of a run.")] = None,
    by: Annotated[
        str | None, typer.Option("--by", metavar="SCORE", help="See `polyarch list`; or package.module:Class.")
    ] = None,
    sample: Annotated[int, typer.Option("--sample", min=1, help="How many architectures to draw.")] = 100,
    seed: Annotated[int, typer.Option("--seed", help="Of the draw, the batch of data and the first weights.")] = 0,
    top: Annotated[int, typer.Option("--top", min=1, help="How many of the best to print.")] = 5,
    settings: Annotated[
        list[str], typer.Option("--set", metavar="NAME=VALUE", help="A setting of the score. May be repeated.")
    ] = [],  # noqa: B006
    method: Annotated[
        str | None,
        typer.Option(
            "--method",
            metavar="BASELINE",
            help="Search by this instead of drawing from belief: random-search, regularised-evolution, local-search.",
        ),
    ] = None,
    budget: Annotated[float, typer.Option("--budget", help="Of --method, in --unit.")] = 100,
    unit: Annotated[str, typer.Option("--unit", help="evaluations, seconds, forward or backward.")] = "evaluations",
    space: Annotated[str | None, typer.Option("--space", help="Without a run: what to search, in a table.")] = None,
    table: Annotated[str | None, typer.Option("--table", help="A .npz file, or a name in POLYARCH_TABLES.")] = None,
    column: Annotated[
        str | None,
        typer.Option("--column", help="Of --table: what to search for. [default: the only one of validation accuracy]"),
    ] = None,
    truth: Annotated[str | None, typer.Option("--truth", metavar="COLUMN", help="What it is then worth.")] = None,
    seconds: Annotated[str, typer.Option("--seconds", help="What an evaluation takes: a column, or a number.")] = "0",
    share: Annotated[float, typer.Option("--share", help="How much of these seconds is paid, such as 0.06.")] = 1.0,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="How many searches, from --seed on.")] = 1,
    limit: Limits = [],  # noqa: B006
    allow_changed: AllowChanged = False,
    as_json: Json = False,
) -> None:
    """Draw architectures from belief, evaluate them by a score, and print the best; or search by --method."""
    from polyarch.cli.choices import assign, find
    from polyarch.errors import PolyarchError
    from polyarch.runs.run import open_run
    from polyarch.scores.sampling import sample_and_score
    from polyarch.settings import make
    from polyarch.tables import find_table

    if method:
        if limit:
            raise PolyarchError("--limit is for what belief selects, and --method has none; leave one of them out")
        from polyarch.cli.blackbox import Request
        from polyarch.cli.blackbox import search as search_black_box

        asked = (
            method,
            run,
            by,
            space,
            table,
            column,
            truth,
            seconds,
            share,
            budget,
            unit,
            seeds,
            seed,
            settings,
            allow_changed,
        )
        search_black_box(Request(*asked), as_json)
        return
    if run is None or not (by or limit):
        raise PolyarchError("give the folder of a run and --by SCORE or --limit; or --method to search a space")
    if by is None:
        _by_belief(run, limit, table or "", allow_changed, as_json)
        return
    cls, preset = find("score", by)
    score = make(cls, {**preset, **assign({"score": cls}, settings)["score"]})
    file = str(find_table(table)) if table and limit else ""
    found = sample_and_score(open_run(run, allow_changed=allow_changed), score, sample, seed, limit, table=file)
    if not as_json:
        _show(found, score, top)
        return
    said = {
        "run": str(run),
        "by": by,
        "sampled": found.drawn,
        "distinct": len(found.candidates),
        "architecture": str(found.best.architecture),
        "candidates": [_told(each) for each in found.candidates[:top]],
        "argmax": _told(found.argmax),
    }
    print(json.dumps(said))


def _by_belief(folder: Path, limit: list[str], table: str, allow_changed: bool, as_json: bool) -> None:
    """What the run's own rule selects within limits, and what it costs."""
    from polyarch.errors import PolyarchError
    from polyarch.runs.run import open_run
    from polyarch.spaces.limits import in_words
    from polyarch.tables import find_table

    run, file = open_run(folder, allow_changed=allow_changed), str(find_table(table)) if table else ""
    if run.meaning.kind == "fixed":
        raise PolyarchError(f"belief of {folder} is fixed and prefers nothing; say by which score: --by valid-loss")
    bounds = run.within(limit, file)
    assert bounds is not None
    architecture = run.selected(run.config.select, bounds)
    costs = bounds.costs(architecture)
    if as_json:
        said = {"run": str(folder), "rule": run.config.select, "limits": costs, "architecture": str(architecture)}
        print(json.dumps(said))
        return
    for limit_text, cost in costs.items():
        print(in_words(limit_text, cost))
    print(architecture)


def _told(evaluated: Evaluated) -> dict[str, Any]:
    chance = {} if evaluated.log_prob is None else {"log_prob": evaluated.log_prob}
    return {"architecture": str(evaluated.architecture), "score": evaluated.score, **chance}


def _show(found: Sample, score: Score, top: int) -> None:
    """Plain lines, the architecture last: it may be long, and a table would cut it."""
    direction = "largest" if score.larger_is_better else "smallest"
    print(f"{len(found.candidates)} different networks among {found.drawn} drawn, {direction} {score.name} first:")
    with_chance = found.argmax.log_prob is not None
    print(f"{score.name:>14}" + ("  probability" if with_chance else "") + "  architecture")
    for evaluated in found.candidates[:top]:
        print(_line(evaluated))
    print("beside them the most probable architecture:")
    print(_line(found.argmax))
    print(f"\n{score.name}: {score.meaning}")


def _line(evaluated: Evaluated) -> str:
    chance = "" if evaluated.log_prob is None else f"  {math.exp(evaluated.log_prob):>11.3g}"
    return f"{evaluated.score:>14.6g}{chance}  {evaluated.architecture}"
