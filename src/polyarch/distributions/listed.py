"""Belief over a list of architectures: finite spaces, as of stochastic architectures (Deng et al. 2020)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from typing_extensions import override

from polyarch.architecture import Decision
from polyarch.distributions.base import Distribution
from polyarch.errors import PolyarchError


@dataclass(frozen=True, eq=False)
class Listed(Distribution):
    """So many architectures, each with a probability; all others have none."""

    decisions: tuple[Decision, ...]
    choices: Tensor
    """[..., listed, decisions], all different."""
    logits: Tensor
    """[..., listed]."""

    def __post_init__(self) -> None:
        if self.choices.shape != (*self.logits.shape, len(self.decisions)) or not self.logits.shape[-1]:
            raise PolyarchError(
                f"choices of shape {tuple(self.choices.shape)} and logits of shape {tuple(self.logits.shape)} do not "
                f"fit {len(self.decisions)} decisions; expected [..., n, {len(self.decisions)}] and [..., n], n > 0"
            )

    @property
    @override
    def architectures(self) -> int:
        return self.logits.shape[-1]

    @override
    def support(self) -> Tensor:
        """The list."""
        return self.choices

    @property
    def log_weights(self) -> Tensor:
        """Log-probabilities [..., listed] of the list."""
        return self.logits.log_softmax(-1)

    def probs(self) -> dict[str, Tensor]:
        """The decisions' marginal probabilities."""
        weights = self.logits.softmax(-1)
        options = ((self.choices[..., k], len(d)) for k, d in enumerate(self.decisions))
        found = [
            torch.stack([(weights * (chosen == option)).sum(-1) for option in range(count)], -1)
            for chosen, count in options
        ]
        return {d.name: probs for d, probs in zip(self.decisions, found, strict=True)}

    def mean_weights(self) -> tuple[Tensor, ...]:
        """Not defined: decisions hang together, so that no mixture of their options stands for a list."""
        raise PolyarchError("a list of architectures has no soft weights to mix by; run its members instead")

    @override
    def log_prob(self, choices: Tensor) -> Tensor:
        """Minus infinity for what is not listed."""
        same = (choices.unsqueeze(-2) == self.choices.unsqueeze(-3)).all(-1)
        return self.log_weights.unsqueeze(-2).masked_fill(~same, -torch.inf).logsumexp(-1)

    @override
    def entropy(self) -> Tensor:
        return self._expected(-self.log_weights)  # not the negative of a sum: that of what is certain would be -0.0

    @override
    def mode(self) -> Tensor:
        """Of equally probable ones the first."""
        place = self.logits.argmax(-1)[..., None, None].expand(*self.logits.shape[:-1], 1, len(self.decisions))
        return self.choices.gather(-2, place).squeeze(-2)

    @override
    def kl(self, prior: Distribution) -> Tensor:
        """Exact, by enumeration of the list."""
        return self._expected(self.log_weights - prior.log_prob(self.choices))

    @override
    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        if self.logits.dim() != 1:
            raise PolyarchError("cannot sample from the belief of several repeats at once; take repeat(k) first")
        places = torch.multinomial(self.logits.softmax(-1).cpu(), n, replacement=True, generator=generator)
        return self.choices[places.to(self.choices.device)]

    def relax(self, n: int, generator: torch.Generator, temperature: float) -> tuple[Tensor, ...]:
        """Not defined, as for `mean_weights`."""
        return self.mean_weights()

    @override
    def repeat(self, index: int) -> Listed:
        return Listed(self.decisions, self.choices[index], self.logits[index])

    def _expected(self, values: Tensor) -> Tensor:
        """Sum of probability times value; what has no probability adds 0."""
        weights = self.logits.softmax(-1)
        return (weights * values.masked_fill(weights == 0, 0)).sum(-1)
