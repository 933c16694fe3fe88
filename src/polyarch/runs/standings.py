"""What came out of a comparison: of every method and baseline the mean over seeds, its spread, and its rank."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, final

from polyarch.data.likelihood import Likelihood
from polyarch.errors import PolyarchError
from polyarch.files import read_json
from polyarch.runs.config import Config
from polyarch.runs.grid import RUNS, Entrant, Grid, Planned, failed
from polyarch.runs.run import RESULT, TRAINED

ENDINGS = ("_trained", "_ensemble", "")
"""Of names of metrics, in order: what a run hands over is the network trained alone, or the mixture, or the network."""


@final
@dataclass(frozen=True)
class Figures:
    """One run's result: what it hands over is worth, and what it took."""

    run: Planned
    metrics: dict[str, float]
    """Of what the run hands over (`run.predict`), on the split that the comparison is about."""
    architecture: str
    parameters: int
    spent: int
    """Examples passed forward and backward, in the search and in training what it selected."""
    epochs: int
    """Of the search, until it stopped."""


@final
@dataclass(frozen=True)
class Row:
    """A method or a baseline in a space."""

    entrant: Entrant
    found: tuple[Figures, ...]
    """By seed."""
    failed: Mapping[str, str]
    """Why runs have no result, by their names."""
    waiting: int
    """Runs that are still to be made."""
    rank: int | None
    """By the mean of the first metric, among all rows that have any; equal means have equal ranks."""
    behind: tuple[float, float | None] | None
    """By how much it is worse than the first, mean over the seeds that both have, and the standard error of that."""

    def values(self, metric: str) -> list[float]:
        """Of every run that has it."""
        return [own.metrics[metric] for own in self.found if metric in own.metrics]

    def mean(self, metric: str) -> float | None:
        """Over seeds; None where no run is finished."""
        values = self.values(metric)
        return statistics.fmean(values) if values else None

    def std(self, metric: str) -> float | None:
        """Over seeds; None of fewer than two."""
        values = self.values(metric)
        return statistics.stdev(values) if len(values) > 1 else None

    @property
    def spent(self) -> float | None:
        """Mean over runs."""
        return statistics.fmean(own.spent for own in self.found) if self.found else None


@final
class Comparison:
    """A comparison's folder, finished or not."""

    def __init__(self, folder: str | Path) -> None:
        """Opens it; results are read when they are asked for, and those of then are kept."""
        self.folder = Path(folder)
        self.grid = Grid.read(self.folder)

    @property
    def config(self) -> Config:
        """Of its first entrant; data and seeds are the same for all."""
        return self.grid.config_of(self.grid.entrants[0])

    @cached_property
    def likelihood(self) -> Likelihood:
        """Of its data."""
        return self.config.likelihood()

    @property
    def split(self) -> str:
        """What its figures are about: test data, or validation data where there is none."""
        examples = self.grid.data["examples"]
        return next((name for name in ("test", "select") if name in examples), "")

    @cached_property
    def metrics(self) -> list[str]:
        """Names of what was measured of every run, the everyday one first: rows are ranked by that."""
        every = [own.metrics for own in self._found.values()]
        return [name for name in every[0] if all(name in own for own in every)] if every else []

    @property
    def higher_is_better(self) -> bool:
        """Whether that is so of the everyday metric."""
        return self.likelihood.higher_is_better

    @cached_property
    def rows(self) -> list[Row]:
        """The best first; what has no result yet comes last."""
        grouped = [
            [self._found[run.name] for run in self.grid.runs if run.entrant == place and run.name in self._found]
            for place in range(len(self.grid.entrants))
        ]
        sign = 1 if self.higher_is_better else -1
        metric = self.metrics[0] if self.metrics else ""
        merits = [
            sign * statistics.fmean(own.metrics[metric] for own in found) if found and metric else -math.inf
            for found in grouped
        ]
        best = grouped[merits.index(max(merits))]
        rows = []
        for place, (entrant, found, merit) in enumerate(zip(self.grid.entrants, grouped, merits, strict=True)):
            own = [run for run in self.grid.runs if run.entrant == place]
            why = {run.name: text for run in own if (text := self._failed.get(run.name))}
            rank = 1 + sum(other > merit for other in merits) if found else None
            behind = _behind(best, found, metric, sign) if found and found is not best else None
            rows.append(Row(entrant, tuple(found), why, len(own) - len(found) - len(why), rank, behind))
        return sorted(rows, key=lambda row: row.rank or len(rows) + 1)

    @cached_property
    def _found(self) -> dict[str, Figures]:
        return {run.name: self._figures(run) for run in self.grid.runs if self.grid.finished(self.folder, run)}

    @cached_property
    def _failed(self) -> dict[str, str]:
        return {run.name: failed(self.folder, run) for run in self.grid.runs if run.name not in self._found}

    def _figures(self, run: Planned) -> Figures:
        home = self.folder / RUNS / run.name
        result = read_json(home / RESULT)
        metrics, budgets, kept = dict(result["metrics"]), [result["budget"]], result
        if self.grid.entrants[run.entrant].trains:
            kept = read_json(home / TRAINED / RESULT)
            budgets.append(kept["budget"])
            metrics |= {f"{split}_trained": own for split, own in kept["metrics"].items() if split == self.split}
        own = handed_over(metrics, self.split)
        if own is None:
            raise PolyarchError(
                f"{home} has no figures on test or validation data; give the data some: test, or select"
            )
        return Figures(
            run,
            {name: value for name, value in own.items() if isinstance(value, int | float)},
            result["architecture"],
            result["cost"]["selected"]["parameters"],
            sum(each["forward"] + each["backward"] for each in budgets),
            result["kept"]["epoch"],
        )

    def summary(self) -> dict[str, Any]:
        """All of it in plain values: what `polyarch compare --json` prints."""
        return {
            "comparison": str(self.folder),
            "data": self.grid.data["name"],
            "split": self.split,
            "metric": self.metrics[0] if self.metrics else None,
            "higher_is_better": self.higher_is_better,
            "budget": self.grid.budget,
            "rows": [self._row(row) for row in self.rows],
            "failed": {name: text for name, text in self._failed.items() if text},
        }

    def _row(self, row: Row) -> dict[str, Any]:
        return {
            "name": row.entrant.name,
            "space": row.entrant.space,
            "baseline": row.entrant.baseline,
            "about": row.entrant.about,
            "rank": row.rank,
            "n": len(row.found),
            "failed": len(row.failed),
            "waiting": row.waiting,
            "metrics": {name: {"mean": row.mean(name), "std": row.std(name)} for name in self.metrics if row.found},
            "behind": None if row.behind is None else {"mean": row.behind[0], "error": row.behind[1]},
            "spent": row.spent,
            "runs": {
                own.run.name: {
                    "seed": own.run.seed,
                    "architecture": own.architecture,
                    "parameters": own.parameters,
                    "spent": own.spent,
                    "metrics": own.metrics,
                }
                for own in row.found
            },
        }


def handed_over(metrics: Mapping[str, Mapping[str, Any]], split: str) -> dict[str, Any] | None:
    """Of a result's metrics on a split, those of what the run hands over; None where it has none there."""
    found = next((metrics[split + ending] for ending in ENDINGS if split + ending in metrics), None)
    return None if found is None else dict(found)


def _behind(best: list[Figures], found: list[Figures], metric: str, sign: int) -> tuple[float, float | None] | None:
    """Mean difference over the seeds that both have, since the same seed is the same luck, and its standard error."""
    mine = {own.run.seed: own.metrics[metric] for own in found}
    both = [sign * (own.metrics[metric] - mine[own.run.seed]) for own in best if own.run.seed in mine]
    if not both:
        return None
    return statistics.fmean(both), statistics.stdev(both) / math.sqrt(len(both)) if len(both) > 1 else None
