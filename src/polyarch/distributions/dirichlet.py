"""Dirichlet weights for every decision: the belief of DrNAS."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from typing_extensions import override

from polyarch.architecture import Decision
from polyarch.distributions.base import Distribution
from polyarch.distributions.categorical import Categorical
from polyarch.errors import PolyarchError

TRIES = 8
"""Proposals for a Gamma draw. Each is taken with probability 0.95 at least, so that all fail once in 10^10."""


@dataclass(frozen=True, eq=False)
class Dirichlet(Distribution):
    """Weights theta ~ Dirichlet for every decision, and its option ~ Categorical(theta).

    `concentration` is [..., decisions, longest], 0 for options that a decision does not have. With theta integrated
    out, an architecture is as probable as under independent categoricals with the mean of theta: probabilities,
    entropy and KL are theirs. Worked out once: make a new one when the concentration has changed.
    """

    decisions: tuple[Decision, ...]
    concentration: Tensor

    def __post_init__(self) -> None:
        expected = (len(self.decisions), max(len(d) for d in self.decisions))
        if self.concentration.shape[-2:] != expected:
            raise PolyarchError(
                f"a concentration of shape {tuple(self.concentration.shape)} does not fit the decisions; "
                f"expected [..., {expected[0]}, {expected[1]}]"
            )

    @cached_property
    def _compound(self) -> Categorical:
        """The categoricals with theta integrated out."""
        missing = self.concentration == 0
        # Filled before the logarithm too, whose gradient at 0 is not finite.
        logits = self.concentration.masked_fill(missing, 1).log().masked_fill(missing, -torch.inf)
        return Categorical(self.decisions, logits)

    @property
    @override
    def product(self) -> Categorical:
        """With theta integrated out."""
        return self._compound

    def probs(self) -> dict[str, Tensor]:
        """The mean of theta."""
        return self._compound.probs()

    def mean_weights(self) -> tuple[Tensor, ...]:
        """The mean of theta."""
        return self._compound.mean_weights()

    @override
    def log_prob(self, choices: Tensor) -> Tensor:
        return self._compound.log_prob(choices)

    @override
    def entropy(self) -> Tensor:
        """Of architectures, not of theta."""
        return self._compound.entropy()

    @override
    def mode(self) -> Tensor:
        return self.concentration.argmax(-1)

    @override
    def kl(self, prior: Distribution) -> Tensor:
        """Exact, against a categorical prior."""
        return self._compound.kl(prior)

    @override
    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        return self._compound.sample(n, generator)

    def relax(self, n: int, generator: torch.Generator, temperature: float) -> tuple[Tensor, ...]:
        """Draws of theta. They are soft as they are: the temperature changes nothing."""
        if self.concentration.dim() != 2:
            raise PolyarchError("cannot relax the belief of several repeats at once; take repeat(k) first")
        noise = dirichlet_noise((n, *self.concentration.shape), generator)
        theta = dirichlet_from_noise(self.concentration, {k: v.to(self.concentration) for k, v in noise.items()})
        return tuple(theta[:, k, : len(d)] for k, d in enumerate(self.decisions))

    @override
    def repeat(self, index: int) -> Dirichlet:
        return Dirichlet(self.decisions, self.concentration[index])


# ---------------------------------------------------------------------------------------------------------------------
# Draws from noise that is made beforehand, so that a step that draws can be captured.


def dirichlet_noise(shape: Sequence[int], generator: torch.Generator) -> dict[str, Tensor]:
    """What `dirichlet_from_noise` needs for weights of a shape [..., options]; for `Method.draw`."""
    return {
        "dirichlet_normal": torch.randn(*shape, TRIES, generator=generator),
        "dirichlet_uniform": torch.rand(*shape, TRIES, generator=generator),
        # Not exponential_, which fake tensors cannot draw with a generator.
        "dirichlet_exponential": -torch.rand(*shape, generator=generator)
        .clamp_min(torch.finfo(torch.float32).tiny)
        .log(),
    }


def dirichlet_from_noise(concentration: Tensor, noise: Mapping[str, Tensor]) -> Tensor:
    """Weights [..., options] ~ Dirichlet, with pathwise gradients; options of concentration 0 have none.

    Gradients are of the first order: what differentiates them again finds too little.

    Args:
        concentration: [..., options].
        noise: what `dirichlet_noise` drew, on the device of the concentration; other draws may be among it. Axes
            before those of the concentration are more draws.
    """
    missing = concentration == 0
    filled = concentration.masked_fill(missing, 1)
    with torch.no_grad():
        theta = log_gamma_from_noise(filled, noise).masked_fill(missing, -torch.inf).softmax(-1)
        # The rejection must not be differentiated. This is how a weight moves with its concentration at a fixed
        # quantile, as torch has it for its own Dirichlet draws, which take no generator and cannot be made beforehand.
        total = concentration.sum(-1, keepdim=True).expand_as(theta)
        slope = torch._dirichlet_grad(theta, filled.expand_as(theta), total).masked_fill(missing, 0)
    moved = slope * (filled - filled.detach())  # 0, with a gradient
    return theta + moved - theta * moved.sum(-1, keepdim=True)


def log_gamma_from_noise(concentration: Tensor, noise: Mapping[str, Tensor]) -> Tensor:
    """Logarithms of draws ~ Gamma(concentration, 1), from what `dirichlet_noise` drew.

    A draw for c is one for c + 1 times u^(1/c) with u uniform (Marsaglia and Tsang 2000, section 6). The logarithm
    stays finite where c is small and the draw itself would round to 0.
    """
    gamma = _marsaglia_tsang(concentration + 1, noise["dirichlet_normal"], noise["dirichlet_uniform"])
    return gamma.log() - noise["dirichlet_exponential"] / concentration  # the exponential is -log u


def _marsaglia_tsang(shape: Tensor, normal: Tensor, uniform: Tensor) -> Tensor:
    """Draws ~ Gamma(shape, 1) for shapes of 1 and above: the first proposal [..., TRIES] that is accepted."""
    d = (shape - 1 / 3).unsqueeze(-1)
    cube = (1 + normal / (9 * d).sqrt()) ** 3
    v = cube.clamp_min(torch.finfo(cube.dtype).tiny)
    accepted = (cube > 0) & (uniform.log() < normal**2 / 2 + d * (1 - v + v.log()))
    first = accepted.byte().argmax(-1, keepdim=True)
    return (d * v).gather(-1, first).squeeze(-1)
