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
    from polyarch.tables.table import Table


@dataclass(frozen=True)
class Request:
    """What a command line asks for."""

    method: str
    run: Path | None
    by: str | None
    space: str | None
    table: str | None
    reward: str | None
    truth: str | None
    seconds: str
    share: float
    budget: float
    unit: str
    seeds: int
    seed: int
    settings: list[str]


def search(asked: Request, as_json: bool) -> None:
    """Searches once per seed, and prints what was found."""
    import torch

    from polyarch.blackbox import Budget
    from polyarch.cli.choices import find
    from polyarch.settings import make

    method, preset = find("baseline", asked.method)
    space, evaluator, table, values = _prepared(asked, {"method": method})
    made = make(method, {**preset, **values["method"]})
    budget = Budget(asked.budget, cast("Unit", asked.unit))
    histories = [
        made.search(space, evaluator, budget, torch.Generator().manual_seed(asked.seed + k)) for k in range(asked.seeds)
    ]
    found = [_told(history, space, asked, table) for history in histories]
    told = {"method": asked.method, "budget": asked.budget, "unit": asked.unit, "runs": found}
    if as_json:
        print(json.dumps(told))
    else:
        _show(asked, found)


def _prepared(
    asked: Request, groups: dict[str, type[Any]]
) -> tuple[Space, Evaluator, Table | None, dict[str, dict[str, Any]]]:
    """The space, what evaluates, the table if there is one, and the settings of everything."""
    from polyarch.blackbox import ScoreEvaluator, TableEvaluator
    from polyarch.cli.choices import assign, find
    from polyarch.errors import PolyarchError
    from polyarch.runs.run import open_run
    from polyarch.scores.sampling import candidates_of
    from polyarch.settings import make
    from polyarch.streams import Streams
    from polyarch.tables import open_table

    table = open_table(asked.table) if asked.table else None
    if asked.run:
        if not asked.by:
            raise PolyarchError("say by which score to search a run: --by SCORE")
        cls, preset = find("score", asked.by)
        values = assign({**groups, "score": cls}, asked.settings)
        run, score = open_run(asked.run), make(cls, {**preset, **values["score"]})
        [like] = candidates_of(run, [run.selected("argmax")], score.needs, Streams(asked.seed)["data"])
        evaluator = ScoreEvaluator(score, like, score.trained_examples, score.trained_examples, asked.seed)
        return run.space, evaluator, table, values
    if not (asked.space and table and asked.reward):
        raise PolyarchError("say what to search: a run and --by SCORE, or --space, --table and --reward COLUMN")
    cls, preset = find("space", asked.space)
    values = assign({**groups, "space": cls}, asked.settings)
    space = make(cls, {**preset, **values["space"]})
    seconds: str | float = float(asked.seconds) if asked.seconds.replace(".", "", 1).isdigit() else asked.seconds
    return space, TableEvaluator(table, space, asked.reward, seconds, asked.share), table, values


def _told(history: History, space: Space, asked: Request, table: Table | None) -> dict[str, Any]:
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
        told["truth"] = table.value(asked.truth, space, space.architecture(best.choices))
    return told


def _show(asked: Request, found: list[dict[str, Any]]) -> None:
    best = max(found, key=lambda one: one["reward"])
    print(best["architecture"])
    print(f"  the best of {len(found)} searches by {asked.method}; of each:")
    for name in ("reward", "truth", "evaluations"):
        values = [float(one[name]) for one in found if name in one]
        if values:
            spread = f" ± {statistics.stdev(values):.4g}" if len(values) > 1 else ""
            print(f"  {name:<12} {statistics.fmean(values):.6g}{spread}")
