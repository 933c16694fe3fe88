"""What a benchmark's table says: the score that knows the answer, or a cheaper column that guesses it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from typing_extensions import override

from polyarch.errors import PolyarchError
from polyarch.scores.base import Candidate, Need, Score


@dataclass(frozen=True, kw_only=True)
class Tabulated(Score):
    """A column of a table."""

    name: ClassVar[str] = "table"
    larger_is_better: ClassVar[bool] = True
    meaning: ClassVar[str] = "What a benchmark's table says; with its sign turned where less is better."
    cost: ClassVar[str] = "A look into a table; the training it stands for was done by others."
    needs: ClassVar[frozenset[Need]] = frozenset({"table"})

    column: str = ""
    """The column; empty is the one that the candidates come with."""

    @override
    def __call__(self, candidates: Sequence[Candidate], generator: torch.Generator) -> Tensor:
        return torch.tensor([self._one(candidate) for candidate in candidates], dtype=torch.float64)

    def _one(self, candidate: Candidate) -> float:
        self.check(candidate)
        assert candidate.table is not None
        column = candidate.table.column(self.column or candidate.column)
        if column.better is None:
            raise PolyarchError(
                f"{candidate.table.where}: column {column.name!r} does not say which direction is better; take another"
            )
        value = candidate.table.value(column.name, candidate.space, candidate.architecture)
        return value if column.better == "higher" else -value
