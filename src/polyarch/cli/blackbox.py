"""Black-box search from the command line: what `polyarch select --method` does."""

from __future__ import annotations

import json
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from polyarch.blackbox import Evaluator, History
    from polyarch.blackbox.history import Unit
    from polyarch.spaces.base import Space
    from polyarch.tables.benchmark import Benchmark


@dataclass(frozen=True)
class Request:
    """What a command line asks for."""

    method: str
    run: Path | None
    by: str | None
    space: str | None
    table: str | None
    column: str | None
    truth: str | None
    seconds: str
    share: float
    budget: float
    unit: str
    seeds: int
    seed: int
    settings: list[str]
    allow_changed: bool


def search(asked: Request, as_json: bool) -> None:
    """Searches once per seed, and prints what was found."""
    import torch

    from polyarch.blackbox import Budget
    from polyarch.cli.choices import find
    from polyarch.settings import make

    method, preset = find("baseline", asked.method)
    given = _prepared(asked, {"method": method})
    made = make(method, {**preset, **given.settings["method"]})
    budget = Budget(asked.budget, cast("Unit", asked.unit))
    histories = [
        made.search(given.space, given.evaluator, budget, torch.Generator().manual_seed(asked.seed + k))
        for k in range(asked.seeds)
    ]
    found = [_told(history, given.space, asked, given.table) for history in histories]
    told = {"method": asked.method, "by": given.goal, "budget": asked.budget, "unit": asked.unit, "runs": found}
    if as_json:
        print(json.dumps(told))
    else:
        _show(asked.method, given.goal, found)


@dataclass(frozen=True)
class _Prepared:
    """What a search needs."""

    space: Space
    evaluator: Evaluator
    goal: str
    """What the evaluator goes by: a score, or a column of the table."""
    table: Benchmark | None
    settings: dict[str, dict[str, Any]]
    """Of everything, by group."""


def _prepared(asked: Request, groups: dict[str, type[Any]]) -> _Prepared:
    """Everything that was asked for, found and checked; `groups` have settings too."""
    from polyarch.blackbox import ScoreEvaluator, TableEvaluator
    from polyarch.cli.choices import assign, find
    from polyarch.errors import PolyarchError
    from polyarch.runs.run import open_run
    from polyarch.scores.sampling import candidates_of
    from polyarch.settings import make
    from polyarch.streams import Streams
    from polyarch.tables import find_truth, open_table

    if asked.run:
        if not asked.by:
            raise PolyarchError("say by which score to search a run: --by SCORE")
        if asked.column:
            raise PolyarchError("--column is what to search a table for, and a run is searched by --by; leave one out")
        table = open_table(asked.table) if asked.table else None
        cls, preset = find("score", asked.by)
        values = assign({**groups, "score": cls}, asked.settings)
        run, score = open_run(asked.run, allow_changed=asked.allow_changed), make(cls, {**preset, **values["score"]})
        [like] = candidates_of(run, [run.selected("argmax")], score.needs, Streams(asked.seed)["data"])
        evaluator = ScoreEvaluator(score, like, score.trained_examples, score.trained_examples, asked.seed)
        return _Prepared(run.space, evaluator, asked.by, table, values)
    if not (asked.space and asked.table):
        raise PolyarchError("say what to search: a run and --by SCORE, or --space and --table")
    cls, preset = find("space", asked.space)
    values = assign({**groups, "space": cls}, asked.settings)
    space = make(cls, {**preset, **values["space"]})
    seconds: str | float = float(asked.seconds) if asked.seconds.replace(".", "", 1).isdigit() else asked.seconds
    goal = find_truth(space, asked.table, asked.column, splits=("valid",))
    paid = TableEvaluator(goal.table, space, goal.column.name, seconds, asked.share)
    return _Prepared(space, paid, goal.column.name, goal.table, values)


def _told(history: History, space: Space, asked: Request, table: Benchmark | None) -> dict[str, Any]:
    best = history.best
    told: dict[str, Any] = {
        "architecture": space.architecture(best.choices).text,
        "reward": best.reward,
        "evaluations": history.spent.evaluations,
        "seconds": history.spent.seconds,
        "forward": history.spent.forward,
        "backward": history.spent.backward,
    }
    if table and asked.truth:
        name = "predicted" if table.column(asked.truth).predicted else "truth"
        told[name] = table.value(asked.truth, space, space.architecture(best.choices))
    return told


def _show(method: str, goal: str, found: list[dict[str, Any]]) -> None:
    best = max(found, key=lambda one: one["reward"])
    print(best["architecture"])
    print(f"  the best by {goal} of {len(found)} searches by {method}; of each:")
    for name in ("reward", "truth", "predicted", "evaluations"):
        values = [float(one[name]) for one in found if name in one]
        if values:
            spread = f" ± {statistics.stdev(values):.4g}" if len(values) > 1 else ""
            print(f"  {name:<12} {statistics.fmean(values):.6g}{spread}")
