"""Gaussian logits: the belief of BaLeNAS."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from polyarch.architecture import Decision
from polyarch.distributions.base import Distribution
from polyarch.distributions.categorical import Categorical
from polyarch.errors import PolyarchError

REACH = 8
"""Deviations from its mean beyond which a Gaussian is not integrated: a mass of 1e-15."""
POINTS = 6
"""Points of the Gauss-Legendre rule between two neighbours of the grid."""
NARROWEST = 1e-8
"""The least deviation that is integrated, as a share of the decision's largest."""


@dataclass(frozen=True, eq=False)
class GaussianLogits(Distribution):
    """Independent logits ~ N(mean, deviation^2), and of every decision the option with the largest.

    `mean` and `deviation` are [..., decisions, longest]; options that a decision does not have are at -inf and 0.
    Probabilities are those of being the largest, worked out once by numerical integration: make a new one when mean or
    deviation have changed.
    """

    decisions: tuple[Decision, ...]
    mean: Tensor
    deviation: Tensor

    def __post_init__(self) -> None:
        expected = (len(self.decisions), max(len(d) for d in self.decisions))
        if self.mean.shape[-2:] != expected or self.deviation.shape != self.mean.shape:
            raise PolyarchError(
                f"mean and deviation of shapes {tuple(self.mean.shape)} and {tuple(self.deviation.shape)} do not fit "
                f"the decisions; expected [..., {expected[0]}, {expected[1]}] for both"
            )

    @cached_property
    def _winners(self) -> Categorical:
        """The categoricals of which option has the largest logit."""
        probs = winning(self.mean, self.deviation)
        never = probs == 0
        # Filled before the logarithm too, whose gradient at 0 is not finite.
        return Categorical(self.decisions, probs.masked_fill(never, 1).log().masked_fill(never, -torch.inf))

    @property
    @override
    def product(self) -> Categorical:
        """The softmax of the mean, whose largest are read out."""
        return Categorical(self.decisions, self.mean)

    @override
    def probs(self) -> dict[str, Tensor]:
        """How probable it is that an option's logit is the largest."""
        return self._winners.probs()

    def mean_weights(self) -> tuple[Tensor, ...]:
        """The softmax of the mean."""
        return self._split(self.mean.softmax(-1))

    @override
    def log_prob(self, choices: Tensor) -> Tensor:
        return self._winners.log_prob(choices)

    @override
    def entropy(self) -> Tensor:
        """Of architectures, not of logits."""
        return self._winners.entropy()

    def mode(self) -> Tensor:
        """The largest of the mean, as BaLeNAS reads out.

        Not always the most probable: an option of lower mean but larger deviation may be the largest more often.
        """
        return self.mean.argmax(-1)

    @override
    def kl(self, prior: Distribution) -> Tensor:
        """Against a categorical prior."""
        return self._winners.kl(prior)

    @override
    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """The largest of drawn logits."""
        return self.drawn(self._noise(n, generator)).argmax(-1)

    def relax(self, n: int, generator: torch.Generator, temperature: float) -> tuple[Tensor, ...]:
        """The softmax of drawn logits over the temperature."""
        return self._split((self.drawn(self._noise(n, generator)) / temperature).softmax(-1))

    def drawn(self, noise: Tensor) -> Tensor:
        """Logits from standard normal noise of the mean's shape; axes before it are more draws."""
        return self.mean + self.deviation * noise

    @override
    def repeat(self, index: int) -> GaussianLogits:
        return GaussianLogits(self.decisions, self.mean[index], self.deviation[index])

    def _noise(self, n: int, generator: torch.Generator) -> Tensor:
        if self.mean.dim() != 2:
            raise PolyarchError("cannot draw from the belief of several repeats at once; take repeat(k) first")
        return torch.randn(n, *self.mean.shape, generator=generator).to(self.mean)

    def _split(self, weights: Tensor) -> tuple[Tensor, ...]:
        return tuple(weights[..., k, : len(d)] for k, d in enumerate(self.decisions))


def winning(mean: Tensor, deviation: Tensor) -> Tensor:
    """How probable it is that each of independent Gaussians [..., options] is the largest; differentiable.

    Of several without deviation only the best can be, and among equals the first, as for `argmax`.
    """
    wide, lost = mean.double(), (mean == -torch.inf) | _beaten(mean, deviation)
    top = wide.detach().amax(-1, keepdim=True)
    m = (wide - top).masked_fill(lost, 0)
    largest = deviation.detach().amax(-1, keepdim=True).double()
    # One without any deviation is taken as very narrow; the error is of the order of the square of its share.
    s = torch.maximum(deviation.double(), (NARROWEST * largest).where(largest > 0, 1)).masked_fill(lost, 1)

    t, weight = _grid(m.detach(), s.detach())
    z = (t.unsqueeze(-1) - m.unsqueeze(-2)) / s.unsqueeze(-2)  # [..., points, options]
    below = torch.special.log_ndtr(z).masked_fill(lost.unsqueeze(-2), 0)
    log_density = -(z**2) / 2 - s.log().unsqueeze(-2) - math.log(2 * math.pi) / 2
    first = (log_density + below.sum(-1, keepdim=True) - below).exp().masked_fill(lost.unsqueeze(-2), 0)
    probs = (first * weight.unsqueeze(-1)).sum(-2)
    return (probs / probs.sum(-1, keepdim=True)).to(mean.dtype)


def _beaten(mean: Tensor, deviation: Tensor) -> Tensor:
    """Options without deviation that another one without deviation always beats."""
    fixed = deviation == 0
    best = mean.masked_fill(~fixed, -torch.inf).argmax(-1, keepdim=True)
    return fixed & (torch.arange(mean.shape[-1], device=mean.device) != best)


def _grid(mean: Tensor, deviation: Tensor) -> tuple[Tensor, Tensor]:
    """Points and weights [..., points] that integrate products of functions of all these Gaussians.

    Every Gaussian adds a border at each whole deviation from its mean. Between two borders each is smooth on its own
    scale or as good as constant, however much the scales differ; a Gauss-Hermite rule would miss the narrow ones.
    """
    steps = torch.arange(-REACH, REACH + 1, device=mean.device)
    borders = (mean.unsqueeze(-1) + deviation.unsqueeze(-1) * steps).flatten(-2).sort(-1).values
    half = borders.diff(dim=-1) / 2
    middle = borders[..., :-1] + half
    # Plain numbers, not tensors: a captured step can copy none to the device.
    nodes, weights = (values.tolist() for values in np.polynomial.legendre.leggauss(POINTS))
    return torch.cat([middle + x * half for x in nodes], -1), torch.cat([w * half for w in weights], -1)
