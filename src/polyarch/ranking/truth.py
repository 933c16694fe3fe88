"""Where the truth of a ranking comes from."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from polyarch import tables
from polyarch.architecture import Architecture
from polyarch.errors import PolyarchError
from polyarch.ranking.statistics import Better, Numbers
from polyarch.spaces.base import Space
from polyarch.spaces.nasbench201 import NasBench201
from polyarch.streams import Streams
from polyarch.tables import Table, find_table, open_table
from polyarch.tables.columns import abridged

OWN = Path(tables.__file__).parent / "nasbench201-fashion14.npz"


@dataclass(frozen=True)
class Truth:
    """A column of a table, as the truth that scores are compared with."""

    table: Table
    column: str
    better: Better

    def of(self, space: Space, architectures: Sequence[Architecture]) -> Numbers:
        """Its numbers [n]; raises where the table lacks some, and says how many."""
        choices = torch.tensor([architecture.choices for architecture in architectures])
        found: Numbers = self.table.values(self.column, space, choices).numpy().astype(np.float64)
        return found

    def draw(self, space: Space, n: int, seed: int) -> list[Architecture]:
        """Different architectures of the table, as they come; a smaller draw is the beginning of a larger one."""
        order = torch.randperm(len(self.table), generator=Streams(seed)["architecture"]).tolist()
        return [space.parse(self.table.architectures[row]) for row in order[:n]]


def find_truth(space: Space, table: str | os.PathLike[str] | None, column: str | None) -> Truth:
    """The truth for a space.

    Args:
        space: what is ranked.
        table: a path or a name; without it, the default of the space, if it has one.
        column: by default the only one of test accuracy, or else of validation accuracy, or else the only one.
    """
    opened = open_table(find_table(table).resolve()) if table else default_truth(space)
    if opened is None:
        raise PolyarchError(
            f"there is nothing to compare scores of the space {space.name!r} with; name a table and a column of true "
            "numbers with --table and --column (nasbench201 with channels=8 and cells=1 comes with one)"
        )
    found = opened.column(column or _usual_column(opened))
    if found.better is None:
        raise PolyarchError(
            f"{opened.where}: column {found.name!r} does not say which direction is better; take another, or make the "
            "table with `polyarch table convert --higher` or `--lower`"
        )
    return Truth(opened, found.name, found.better)


def default_truth(space: Space) -> Table | None:
    """The table that comes with the library for a space; None where there is none.

    It has cells of NAS-Bench-201 at C = 8 and N = 1, trained on Fashion-MNIST at 14 x 14 (reproduce/own_truth.py).
    """
    fits = isinstance(space, NasBench201) and (space.channels, space.cells) == (8, 1)
    return open_table(OWN) if fits else None


def _usual_column(table: Table) -> str:
    accuracies = [c for c in table.columns.values() if c.better == "higher"]
    for fitting in (
        [c.name for c in accuracies if c.split == "test" and c.place is None],
        [c.name for c in accuracies if c.split == "valid" and c.place is None],
        list(table.columns),
    ):
        if len(fitting) == 1:
            return fitting[0]
        if fitting:
            break
    raise PolyarchError(f"{table.where} has several columns: {abridged(fitting)}; name one with --column")
