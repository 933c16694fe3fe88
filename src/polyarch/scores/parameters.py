"""The plainest score, to print beside every other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from typing_extensions import override

from polyarch.scores.base import Candidate, Score


@dataclass(frozen=True, kw_only=True)
class Parameters(Score):
    """How many parameters a network has."""

    name: ClassVar[str] = "parameters"
    larger_is_better: ClassVar[bool] = True
    meaning: ClassVar[str] = "Number of trained parameters; in many spaces larger networks are simply better."
    cost: ClassVar[str] = "A count; no network is run on data."

    @override
    def __call__(self, candidates: Sequence[Candidate], generator: torch.Generator) -> Tensor:
        return torch.tensor([c.cost().parameters for c in candidates], dtype=torch.float64)
