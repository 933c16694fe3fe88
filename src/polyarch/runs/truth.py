"""What a benchmark's table says of the architectures a search comes by: to be watched, never to choose by."""

from __future__ import annotations

import math
import os
import statistics
import sys
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from polyarch.architecture import Architecture
from polyarch.errors import PolyarchError
from polyarch.spaces.base import Space
from polyarch.tables.columns import abridged
from polyarch.tables.finding import find_table, open_table
from polyarch.tables.table import Table

ENUMERATED = 20_000
"""Random architectures of a space of at most so many are all of them; a key can be dear (a module hash is)."""
DRAWN = 1000
"""Of a larger space they are so many draws."""


class Truth:
    """One column of a table, for the architectures of one space."""

    def __init__(self, table: str | os.PathLike[str], column: str | None, space: Space) -> None:
        """Reads the table; raises where it has no such column, or none of the space's architectures.

        Args:
            table: a path, or a name in the folders of tables.
            column: a column's name; by default the only one of validation accuracy.
            space: what is searched.
        """
        self.table = str(find_table(table).resolve())
        """The table's file."""
        opened = open_table(self.table)
        self.column = opened.column(column or _usual_column(opened))
        self._space = space
        self._check_fits(opened)
        numbers = zip(opened.architectures, opened.with_gaps(self.column.name).tolist(), strict=True)
        self._numbers = {name: number for name, number in numbers if math.isfinite(number)}
        self._said = False

    def of(self, space: Space, choices: Tensor) -> list[float | None]:
        """Numbers of choices [n, decisions]; None where the table has none, which is said once on standard error.

        Args:
            space: what the choices belong to: the searched space, or that of a stage of the search.
            choices: int64.
        """
        return [self._number(space, architecture) for architecture in space.decode(choices)]

    def result(self, space: Space, architecture: Architecture) -> dict[str, Any]:
        """The number of what was selected, beside what random architectures have and the best there is.

        `random` is over all architectures of a small space, else over draws; those the table lacks are left out.
        `best` is of the whole space where it is small enough to enumerate, else of all rows of the table; None where
        the column does not say which direction is better.
        """
        return {
            "table": self.table,
            "column": self.column.name,
            "selected": self._number(space, architecture),
            **self._baselines,
        }

    def _number(self, space: Space, architecture: Architecture) -> float | None:
        number = self._numbers.get(space.key(architecture))
        if number is None and not self._said:
            self._said = True
            print(
                f"polyarch: {self.table} has no {self.column.name} for {architecture}; its truth is null, and so is "
                "that of others the table lacks",
                file=sys.stderr,
            )
        return number

    @cached_property
    def _baselines(self) -> dict[str, Any]:
        drawn = self._space.random()
        whole = drawn.architectures <= ENUMERATED
        if whole:
            keys = [self._space.key(architecture) for architecture in self._space.decode(drawn.support())]
        else:
            keys = _random_keys(self._space)
        known = [self._numbers[key] for key in keys if key in self._numbers]
        return {
            "random": _spread(known) if known else None,
            "best": self._best(known if whole else list(self._numbers.values())),
        }

    def _best(self, numbers: list[float]) -> float | None:
        if not numbers or self.column.better is None:
            return None
        return max(numbers) if self.column.better == "higher" else min(numbers)

    def _check_fits(self, table: Table) -> None:
        """Raises when no row is of the space; most often a few draws settle it, where enumerating may take long."""
        if set(table.architectures).isdisjoint(_random_keys(self._space)):
            table.coverage(self._space)


def _spread(numbers: list[float]) -> dict[str, Any]:
    mean = statistics.fmean(numbers)
    return {"mean": mean, "std": statistics.pstdev(numbers, mean), "architectures": len(numbers)}


def _usual_column(table: Table) -> str:
    """The one column of validation accuracy, or the one column there is."""
    accuracies = [c.name for c in table.columns.values() if c.split == "valid" and c.better == "higher"]
    fitting = accuracies or list(table.columns)
    if len(fitting) > 1:
        what = "columns of validation accuracy" if accuracies else "columns, and none of validation accuracy"
        raise PolyarchError(f"{table.where} has {len(fitting)} {what}: {abridged(fitting)}; name one with --column")
    return fitting[0]


def _random_keys(space: Space) -> list[str]:
    drawn = space.random().sample(DRAWN, torch.Generator().manual_seed(0))
    return [space.key(architecture) for architecture in space.decode(drawn)]
