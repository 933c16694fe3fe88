"""Benchmark: what is known of architectures, as columns of numbers; measured and kept, or predicted."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyarch.architecture import Architecture
from polyarch.errors import PolyarchError, unknown
from polyarch.spaces.base import Space
from polyarch.tables.columns import Column, abridged


@dataclass(frozen=True)
class Coverage:
    """How much of a space a benchmark knows."""

    architectures: int
    """How many the space has."""
    covered: int
    """How many of them have a row, or can be predicted."""
    missing: tuple[str, ...]
    """The first few that have none; not known for a space too large to enumerate."""
    foreign: int
    """Rows that are of no architecture of the space."""


class Benchmark(ABC):
    """Columns of numbers by architecture: a `Table` has been measured, a `Surrogate` predicts."""

    where: str
    """What to call it in an error; its path."""
    columns: dict[str, Column]
    """By name, in order."""

    def column(self, name: str) -> Column:
        """What a column means."""
        if name not in self.columns:
            raise self._no_column(name)
        return self.columns[name]

    def value(self, column: str, space: Space, architecture: Architecture) -> float:
        """The number of one architecture."""
        return float(self.values(column, space, torch.tensor([architecture.choices]))[0])

    @abstractmethod
    def values(self, column: str, space: Space, choices: Tensor) -> Tensor:
        """Numbers of many architectures; raises where there is none for some, and says how many.

        Args:
            column: a column's name.
            space: what the choices belong to.
            choices: int64 [n, decisions].

        Returns:
            float64 [n], on the device of the choices.
        """

    @abstractmethod
    def known(self, column: str, space: Space, choices: Tensor) -> NDArray[np.float64]:
        """The same [n] on the host, not finite where there is none."""

    @abstractmethod
    def with_gaps(self, name: str) -> NDArray[np.float64]:
        """All numbers of a column that are kept [rows], also where some are not finite; none where it predicts."""

    @abstractmethod
    def check_whole(self, name: str) -> None:
        """Raises where a column cannot be asked of all architectures that are known."""

    @abstractmethod
    def coverage(self, space: Space) -> Coverage:
        """How many of a space's architectures are known; raises where none is."""

    @abstractmethod
    def draw(self, space: Space, n: int, generator: torch.Generator) -> list[Architecture]:
        """Different architectures that are known; a smaller draw is the beginning of a larger one."""

    @abstractmethod
    def random(self, space: Space, n: int, generator: torch.Generator) -> Tensor:
        """Choices [n, decisions] of random architectures of a large space, to compare others with."""

    def _no_column(self, name: str) -> PolyarchError:
        array = name.partition("[")[0]
        labels = [str(column.label) for column in self.columns.values() if column.array == array]
        if labels and labels != ["None"]:
            return PolyarchError(f"{self.where}: no column {name!r}; {array} has the columns [{abridged(labels)}]")
        return unknown(f"column of {self.where}", name, {column.array for column in self.columns.values()})
