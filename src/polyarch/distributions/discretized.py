"""Belief about what a supernet mixes by, in spaces that read their architectures out of that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor
from typing_extensions import override

from polyarch.architecture import Decision
from polyarch.distributions.base import Distribution
from polyarch.errors import PolyarchError


@final
@dataclass(frozen=True, eq=False)
class Discretized(Distribution):
    """Belief over simplices, from whose weights architectures are read out.

    Modes and samples are choices of the decisions. What else can be said speaks of the simplices: a read-out such as
    the best two of many edges has no probabilities in closed form.
    """

    decisions: tuple[Decision, ...]
    simplices: Distribution
    discretize: Callable[[Sequence[Tensor]], Tensor]
    """From weights [n, options], one tensor per simplex, to choices [n, decisions]."""

    @property
    @override
    def factors(self) -> tuple[Decision, ...]:
        """The simplices."""
        return self.simplices.factors

    @property
    @override
    def exact(self) -> bool:
        """It is not."""
        return False

    @override
    def probs(self) -> dict[str, Tensor]:
        return self.simplices.probs()

    @override
    def mean_weights(self) -> tuple[Tensor, ...]:
        return self.simplices.mean_weights()

    @override
    def log_prob(self, choices: Tensor) -> Tensor:
        """Raises: not known."""
        raise self._unknown("log-probability")

    @override
    def entropy(self) -> Tensor:
        """Entropy [...] over the simplices' options, in nats; not over architectures."""
        return self.simplices.entropy()

    @override
    def mode(self) -> Tensor:
        """Choices [..., decisions] read out of the mean weights."""
        mean = self.mean_weights()
        choices = self.discretize([weights.reshape(-1, weights.shape[-1]) for weights in mean])
        return choices.reshape(*mean[0].shape[:-1], len(self.decisions))

    @override
    def kl(self, prior: Distribution) -> Tensor:
        """Raises: not known."""
        raise self._unknown("KL")

    @override
    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """Choices [n, decisions] read out of relaxed draws at temperature 1."""
        return self.discretize(self.relax(n, generator, 1.0))

    @override
    def relax(self, n: int, generator: torch.Generator, temperature: float) -> tuple[Tensor, ...]:
        return self.simplices.relax(n, generator, temperature)

    @override
    def repeat(self, index: int) -> Discretized:
        return Discretized(self.decisions, self.simplices.repeat(index), self.discretize)

    def _unknown(self, what: str) -> PolyarchError:
        return PolyarchError(
            f"the {what} of architectures that are read out of {len(self.factors)} simplices has no closed form; "
            "draw some with sample(n, generator) and count"
        )
