"""Belief about what a supernet mixes by, in spaces that read their architectures out of that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from typing_extensions import override

from polyarch.architecture import Decision
from polyarch.distributions.base import Distribution
from polyarch.errors import PolyarchError

if TYPE_CHECKING:
    from polyarch.spaces.base import Space


@dataclass(frozen=True, eq=False)
class ReadOut(Distribution):
    """Belief over a space's `mixing` simplices, from whose weights its architectures are read out.

    Modes and samples are choices of the space's decisions. What else can be said speaks of the simplices: a read-out
    such as the best two of many edges has no probabilities in closed form.
    """

    decisions: tuple[Decision, ...]
    simplices: Distribution
    read_out: Callable[[Sequence[Tensor]], Tensor]
    """`Space.read_out`: weights [n, options], one tensor a simplex, to choices [n, decisions]."""

    def probs(self) -> dict[str, Tensor]:
        """For each simplex the probabilities [..., options] of its options."""
        return self.simplices.probs()

    @override
    def centre(self) -> tuple[Tensor, ...]:
        """One tensor a simplex."""
        return self.simplices.centre()

    def log_prob(self, choices: Tensor) -> Tensor:
        """Raises: not known."""
        raise self._unknown("log-probability")

    def entropy(self) -> Tensor:
        """Entropy [...] over the simplices' options, in nats; not over architectures."""
        return self.simplices.entropy()

    def mode(self) -> Tensor:
        """Choices [..., decisions] read out of the centre."""
        centre = self.centre()
        choices = self.read_out([weights.reshape(-1, weights.shape[-1]) for weights in centre])
        return choices.reshape(*centre[0].shape[:-1], len(self.decisions))

    def kl(self, prior: Distribution) -> Tensor:
        """Raises: not known."""
        raise self._unknown("KL")

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """Choices [n, decisions] read out of relaxed draws at temperature 1."""
        return self.read_out(self.relax(n, generator, 1.0))

    @override
    def relax(self, n: int, generator: torch.Generator, temperature: float) -> tuple[Tensor, ...]:
        """One tensor a simplex."""
        return self.simplices.relax(n, generator, temperature)

    @override
    def repeat(self, index: int) -> ReadOut:
        return ReadOut(self.decisions, self.simplices.repeat(index), self.read_out)

    def _unknown(self, what: str) -> PolyarchError:
        return PolyarchError(
            f"the {what} of architectures that are read out of {len(self.centre())} simplices has no closed form; "
            "draw some with sample(n, generator) and count"
        )


def belief_over(space: Space, simplices: Distribution) -> Distribution:
    """Belief over a space's architectures, from belief about its `mixing` simplices."""
    if space.mixing == space.decisions:
        return simplices
    return ReadOut(space.decisions, simplices, space.read_out)
