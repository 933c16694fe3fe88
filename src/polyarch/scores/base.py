"""What a score is given and must answer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from polyarch.architecture import Architecture
from polyarch.data.task import Likelihood, TaskShape
from polyarch.errors import PolyarchError
from polyarch.methods.base import Examples
from polyarch.settings import check_types
from polyarch.spaces.base import Space, Supernet
from polyarch.spaces.cost import Cost

Need = Literal["data", "weights"]
"""What a score may ask for beside the architecture: a batch of examples, the supernet's weights."""


@dataclass(frozen=True)
class Candidate:
    """An architecture to be judged. Whatever network a score asks for is its own to change."""

    architecture: Architecture
    space: Space
    shape: TaskShape
    supernet: Supernet | None = None
    data: Examples | None = None
    """One batch of training examples, standardised: `x` [n, ...], `y` [n]; the same for all that are compared."""
    likelihood: Likelihood | None = None
    """How outputs for that batch are judged."""

    def fresh(self, generator: torch.Generator) -> nn.Module:
        """The network to train, with first weights drawn from `generator` alone."""
        with chance(generator):
            return self.space.evaluated().build(self.architecture, self.shape)

    def inherited(self) -> nn.Module:
        """A copy of the network with the supernet's weights."""
        if self.supernet is None:
            raise PolyarchError("this score needs trained weights; give a run, not a bare space")
        return self.supernet.extract(self.architecture)

    def loss(self, network: nn.Module) -> Tensor:
        """Mean negative log-likelihood of the batch under a network; for classes that is the cross-entropy."""
        if self.data is None or self.likelihood is None:
            raise PolyarchError("this score needs data; give its candidates a batch and the likelihood")
        return -self.likelihood.log_likelihood(answer(network, self.data.x), self.data.y).mean()

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
    cost: ClassVar[str]
    """What judging one candidate takes, in a sentence."""
    needs: ClassVar[frozenset[Need]] = frozenset()
    """What its candidates must have."""

    def __post_init__(self) -> None:
        check_types(self)

    @abstractmethod
    def __call__(self, candidates: Sequence[Candidate], generator: torch.Generator) -> Tensor:
        """One number a candidate, [n], float64; the same for the same generator state."""


@contextmanager
def chance(generator: torch.Generator) -> Iterator[None]:
    """Torch's own chance, seeded from `generator` and afterwards put back: for code that takes no generator."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(torch.randint(2**62, (), generator=generator)))
        yield


def answer(network: nn.Module, x: Tensor) -> Tensor:
    """What a network says of x, [n, ...] -> [n, outputs], without an auxiliary tower, which speaks in training mode."""
    said = network(x)
    output: Tensor = said[0] if isinstance(said, tuple) else said
    return output
