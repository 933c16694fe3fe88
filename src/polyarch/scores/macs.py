"""Work as a score: the other plain one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from typing_extensions import override

from polyarch.scores.base import Candidate, Score


@dataclass(frozen=True, kw_only=True)
class Macs(Score):
    """How many multiply-accumulates a network takes for one example."""

    name: ClassVar[str] = "macs"
    larger_is_better: ClassVar[bool] = True
    meaning: ClassVar[str] = "Multiply-accumulates for one example; in many spaces more work is simply better."
    cost: ClassVar[str] = "A count; no network is run on data."

    @override
    def __call__(self, candidates: Sequence[Candidate], generator: torch.Generator) -> Tensor:
        return torch.tensor([c.cost().macs for c in candidates], dtype=torch.float64)
