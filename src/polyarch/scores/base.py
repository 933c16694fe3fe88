"""What a score is given and must answer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from polyarch.architecture import Architecture
from polyarch.data.task import TaskShape
from polyarch.errors import PolyarchError
from polyarch.settings import check_types
from polyarch.spaces.base import Space, Supernet
from polyarch.spaces.cost import Cost


@dataclass(frozen=True)
class Candidate:
    """An architecture to be judged. Whatever network a score asks for is its own to change."""

    architecture: Architecture
    space: Space
    shape: TaskShape
    supernet: Supernet | None = None

    def fresh(self, generator: torch.Generator) -> nn.Module:
        """The network with first weights drawn from `generator` alone."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(torch.randint(2**62, (), generator=generator)))
            return self.space.build(self.architecture, self.shape)

    def inherited(self) -> nn.Module:
        """A copy of the network with the supernet's weights."""
        if self.supernet is None:
            raise PolyarchError("this score needs trained weights; give a run, not a bare space")
        return self.supernet.extract(self.architecture)

    def cost(self) -> Cost:
        """Parameters and multiply-accumulates."""
        return self.space.cost(self.architecture, self.shape)


@dataclass(frozen=True, kw_only=True)
class Score(ABC):
    """Judges many candidates at once. A subclass is a frozen dataclass whose fields are its settings."""

    name: ClassVar[str]
    larger_is_better: ClassVar[bool]
    meaning: ClassVar[str]
    """One sentence for a person."""

    def __post_init__(self) -> None:
        check_types(self)

    @abstractmethod
    def __call__(self, candidates: Sequence[Candidate], generator: torch.Generator) -> Tensor:
        """One number a candidate, [n], float64; the same for the same generator state."""
