"""What any belief over architectures can be asked."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from polyarch.architecture import Decision

if TYPE_CHECKING:
    from polyarch.distributions.categorical import Categorical


class Distribution(ABC):
    """Belief over the architectures of a space: a value wrapping tensors that it does not own.

    Everything here speaks of architectures, never of a density of logits. Tensors may have leading axes (repeats);
    results then have them too. What cannot be computed raises and says why.
    """

    decisions: tuple[Decision, ...]

    @property
    def factors(self) -> tuple[Decision, ...]:
        """What `probs` speaks of: the decisions, or the simplices that architectures are read out of."""
        return self.decisions

    @property
    def exact(self) -> bool:
        """Whether `log_prob` and `kl` of architectures are known; else they raise, and `sample` is what is left."""
        return True

    @property
    def architectures(self) -> int:
        """How many architectures can be drawn."""
        return math.prod(len(d) for d in self.decisions)

    @property
    def product(self) -> Categorical | None:
        """The independent categoricals whose mode is this belief's own, where there are any."""
        return None

    def support(self) -> Tensor:
        """Choices [architectures, decisions] of all that can be drawn; for belief without leading axes, over few."""
        choices = torch.cartesian_prod(*(torch.arange(len(d)) for d in self.decisions))
        return choices.reshape(-1, len(self.decisions))  # of one decision, torch drops the axis

    @abstractmethod
    def probs(self) -> dict[str, Tensor]:
        """For each factor the probabilities [..., options] of its options."""

    @abstractmethod
    def mean_weights(self) -> tuple[Tensor, ...]:
        """The soft weights at the mean of belief, one tensor [..., options] per factor: what a Soft run mixes by."""

    @abstractmethod
    def log_prob(self, choices: Tensor) -> Tensor:
        """Log-probability [..., n] of choices [..., n, decisions]."""

    @abstractmethod
    def entropy(self) -> Tensor:
        """Entropy [...] over architectures, in nats."""

    @abstractmethod
    def mode(self) -> Tensor:
        """Choices [..., decisions] of the most probable architecture."""

    @abstractmethod
    def kl(self, prior: Distribution) -> Tensor:
        """KL(self || prior) [...], in nats."""

    @abstractmethod
    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """Choices [n, decisions]; for belief without leading axes."""

    @abstractmethod
    def relax(self, n: int, generator: torch.Generator, temperature: float) -> tuple[Tensor, ...]:
        """Differentiable soft weights, one tensor [n, options] per factor; for belief without leading axes."""

    @abstractmethod
    def repeat(self, index: int) -> Distribution:
        """The belief of one repeat."""
