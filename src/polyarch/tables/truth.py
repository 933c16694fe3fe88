"""What a benchmark says of the architectures of a space: one column of a table, to compare with, not to choose by."""

from __future__ import annotations

import itertools
import logging
import math
import os
import statistics
from collections.abc import Sequence
from functools import cached_property
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyarch.architecture import Architecture
from polyarch.errors import PolyarchError
from polyarch.spaces.base import Space
from polyarch.spaces.nasbench201 import NasBench201
from polyarch.streams import Streams
from polyarch.tables.benchmark import Benchmark
from polyarch.tables.columns import PREDICTION, Better, Column, abridged
from polyarch.tables.finding import OWN, find_table, open_table

ENUMERATED = 20_000
"""Random architectures of a space of at most so many are all of them; a key can be dear (a module hash is)."""
DRAWN = 1000
"""Of a larger space they are so many draws."""

logger = logging.getLogger("polyarch")


@final
class Truth:
    """One column of a table, as the truth about the architectures of one space."""

    def __init__(self, table: Benchmark, column: Column, space: Space) -> None:
        """Nothing is looked up yet."""
        self.table, self.column, self.space = table, column, space
        self._said = False

    @property
    def better(self) -> Better:
        """Which direction is better; raises where the table does not say."""
        if self.column.better is None:
            raise PolyarchError(
                f"{self.table.where}: column {self.column.name!r} does not say which direction is better; take "
                "another, or make the table with `polyarch table convert --higher` or `--lower`"
            )
        return self.column.better

    def values(self, architectures: Sequence[Architecture]) -> NDArray[np.float64]:
        """Numbers [n] of architectures; raises where the table lacks some, and says how many."""
        choices = torch.tensor([architecture.choices for architecture in architectures])
        found: NDArray[np.float64] = self.table.values(self.column.name, self.space, choices).numpy()
        return found

    @property
    def words(self) -> str:
        """The column in words, which of a prediction say that it is one."""
        return f"predicted {self.column.name}" if self.column.predicted else self.column.name

    def known(self, space: Space, choices: Tensor) -> list[float | None]:
        """Numbers of choices [n, decisions]; None where the table has none, which is logged once.

        Args:
            space: what the choices belong to: the truth's own, or that of a stage of a search in it.
            choices: int64.
        """
        numbers = self.table.known(self.column.name, space, choices)
        lacking = np.flatnonzero(~np.isfinite(numbers))
        if len(lacking) and not self._said:
            self._said = True
            first = space.architecture(choices[int(lacking[0])].tolist())
            logger.warning(
                f"{self.table.where} has no {self.column.name} for {first}; its truth is null, and so is that of "
                "others the table lacks"
            )
        return [number if math.isfinite(number) else None for number in numbers.tolist()]

    def draw(self, n: int, seed: int) -> list[Architecture]:
        """Different architectures of the table, as they come; a smaller draw is the beginning of a larger one."""
        return self.table.draw(self.space, n, Streams(seed)["architecture"])

    def result(self, space: Space, architecture: Architecture) -> dict[str, Any]:
        """The number of what was selected, beside what random architectures have and the best there is.

        `predicted` says whether all of that are predictions. `random` is over all architectures of a small space, else
        over draws; those the table lacks are left out. `best` is of the whole space where it is small enough to
        enumerate, else of all rows of the table; None where it has none, or where the column does not say which
        direction is better.
        """
        return {
            "table": self.table.where,
            "column": self.column.name,
            "predicted": self.column.predicted,
            "selected": self.known(space, torch.tensor([architecture.choices]))[0],
            **self._baselines,
        }

    def check_fits(self) -> None:
        """Raises when no architecture is of the space; most often a few draws settle it, where enumerating is slow."""
        if not len(self._known_of(self._drawn)):
            self.table.coverage(self.space)

    @cached_property
    def _baselines(self) -> dict[str, Any]:
        drawn = self.space.random()
        whole = drawn.architectures <= ENUMERATED
        known = self._known_of(drawn.support() if whole else self._drawn)
        every = known if whole else self.table.with_gaps(self.column.name)
        return {
            "random": _spread(known.tolist()) if len(known) else None,
            "best": self._best(every[np.isfinite(every)].tolist()),
        }

    @property
    def _drawn(self) -> Tensor:
        return self.table.random(self.space, DRAWN, torch.Generator().manual_seed(0))

    def _known_of(self, choices: Tensor) -> NDArray[np.float64]:
        """The numbers that there are."""
        numbers = self.table.known(self.column.name, self.space, choices)
        return numbers[np.isfinite(numbers)]

    def _best(self, numbers: list[float]) -> float | None:
        if not numbers or self.column.better is None:
            return None
        return max(numbers) if self.column.better == "higher" else min(numbers)


def find_truth(
    space: Space,
    table: str | os.PathLike[str] | None = None,
    column: str | None = None,
    *,
    splits: Sequence[str] = ("test", "valid"),
) -> Truth:
    """The truth about the architectures of a space.

    Args:
        space: what they are of.
        table: a path, or a name in the folders of tables; without it, the one that comes with the library for this
            space, if there is one.
        column: a column's name; by default the only one of accuracy on the first of `splits` that has any, or else the
            only one there is.
        splits: of which accuracy is the truth where no column is named.
    """
    opened = open_table(find_table(table).resolve()) if table else default_table(space)
    if opened is None:
        raise PolyarchError(
            f"there is nothing to compare scores of the space {space.name!r} with; name a table and a column of true "
            "numbers with --table and --column (nasbench201 with channels=8 and cells=1 comes with one)"
        )
    return Truth(opened, opened.column(column or _usual_column(opened, splits)), space)


def default_table(space: Space) -> Benchmark | None:
    """The table that comes with the library for a space; None where there is none.

    It has cells of NAS-Bench-201 at C = 8 and N = 1, trained on Fashion-MNIST at 14 x 14 (reproduce/own_truth.py).
    """
    fits = isinstance(space, NasBench201) and (space.channels, space.cells) == (8, 1)
    return open_table(OWN / "nasbench201-fashion14.npz") if fits else None


def _usual_column(table: Benchmark, splits: Sequence[str]) -> str:
    """The one column of accuracy on a split, arrays of several columns last; or of predicted accuracy, or the one."""
    words = {"valid": "validation accuracy", "test": "test accuracy", PREDICTION: "predicted accuracy"}
    fitting, what = list(table.columns), f"columns, and none of {' or '.join(words[split] for split in splits)}"
    for several, split in itertools.product((False, True), (*splits, PREDICTION)):
        accuracies = [c for c in table.columns.values() if c.split == split and c.better == "higher"]
        found = [column.name for column in accuracies if several or column.place is None]
        if found:
            fitting, what = found, f"columns of {words[split]}"
            break
    if len(fitting) > 1:
        raise PolyarchError(f"{table.where} has {len(fitting)} {what}: {abridged(fitting)}; name one with --column")
    return fitting[0]


def _spread(numbers: list[float]) -> dict[str, Any]:
    mean = statistics.fmean(numbers)
    return {"mean": mean, "std": statistics.pstdev(numbers, mean), "architectures": len(numbers)}
