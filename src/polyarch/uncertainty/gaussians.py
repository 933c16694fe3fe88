"""What belief over architectures says about a number: a mixture of Gaussians for every input."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import final

import torch
from torch import Tensor
from torch.special import ndtr, ndtri

from polyarch.data.likelihood import Gaussian
from polyarch.errors import PolyarchError
from polyarch.uncertainty.arrays import takes_arrays

HALVINGS = 64
"""After so many, what is left of an interval is below the precision of its ends."""
ROUNDS, SETTLED = 1000, 1e-13
"""Of expectation maximisation: at most so many rounds, and the relative change of the scale's square that ends them."""
EXACT = 1e-12
"""Networks that make no error leave no noise to measure: the least square of a scale, by that before."""


@final
@dataclass(frozen=True, eq=False)
class Gaussians:
    """sum_m weights[m] N(means[m, i], deviations[m, i]^2) for every input i, in double precision on the CPU."""

    means: Tensor
    """[members, n]."""
    deviations: Tensor
    """[members, n], above 0."""
    weights: Tensor
    """[members], not negative and summing to 1."""

    @classmethod
    def of(cls, outputs: Tensor, weights: Tensor, likelihood: Gaussian) -> Gaussians:
        """What outputs [members, n, outputs] say under a likelihood; members of weight 0 are left out."""
        if outputs.dim() != 3 or weights.shape != outputs.shape[:1] or outputs.shape[-1] != likelihood.outputs:
            raise PolyarchError(
                f"members must be [members, n, {likelihood.outputs}] and weights [members], got "
                f"{list(outputs.shape)} and {list(weights.shape)}; stack members on a new first axis"
            )
        weights = weights.detach().cpu().double()
        outputs, weights = outputs.detach().cpu().double()[weights > 0], weights[weights > 0]
        return cls(likelihood.mean(outputs), likelihood.deviation(outputs), weights / weights.sum())

    @classmethod
    def joined(cls, parts: Sequence[Gaussians]) -> Gaussians:
        """What the same members say of several batches, as one."""
        means, deviations = ([getattr(part, name) for part in parts] for name in ("means", "deviations"))
        return cls(torch.cat(means, 1), torch.cat(deviations, 1), parts[0].weights)

    def __repr__(self) -> str:
        members, n = self.means.shape
        return f"<Gaussians of {n} inputs: {members} members, mean standard deviation {self.std.mean():.3g}>"

    @property
    def mean(self) -> Tensor:
        """[n]."""
        return self.weights @ self.means

    @property
    def variance(self) -> Tensor:
        """[n]: the mean of the members' variances, which is noise, and the variance of their means, disagreement."""
        return self.weights @ (self.deviations.square() + (self.means - self.mean).square())

    @property
    def std(self) -> Tensor:
        """[n], the standard deviation: the root of `variance`."""
        return self.variance.sqrt()

    @takes_arrays
    def log_prob(self, y: Tensor) -> Tensor:
        """Log sum_m w_m N(y), [n], in nats."""
        residuals = (y - self.means) / self.deviations
        own = -0.5 * residuals.square() - self.deviations.log() - 0.5 * math.log(2 * math.pi)
        return (own + self.weights.log()[:, None]).logsumexp(0)

    @takes_arrays
    def cdf(self, y: Tensor) -> Tensor:
        """The probability of at most y, [n]."""
        return self.weights @ ndtr((y - self.means) / self.deviations)

    def quantile(self, probability: float) -> Tensor:
        """The number that the target is below with this probability, [n].

        By halving the interval between the least and the largest quantile of a member, where that of the mixture lies:
        it cannot miss, however far members are apart, where a step by slope could.
        """
        if not 0 < probability < 1:
            raise PolyarchError(f"a quantile is asked for at a probability of {probability}; give one between 0 and 1")
        own = self.means + self.deviations * ndtri(torch.tensor(probability, dtype=torch.float64))
        low, high = own.amin(0), own.amax(0)
        for _ in range(HALVINGS if len(self.weights) > 1 else 0):
            middle = (low + high) / 2
            below = self.cdf(middle) < probability
            low, high = torch.where(below, middle, low), torch.where(below, high, middle)
        return (low + high) / 2

    def interval(self, coverage: float) -> tuple[Tensor, Tensor]:
        """The ends [n] of the central interval that holds the target with this probability."""
        return self.quantile((1 - coverage) / 2), self.quantile((1 + coverage) / 2)

    @takes_arrays
    def centrality(self, y: Tensor) -> Tensor:
        """The probability of the smallest central interval that y is in, [n]: evenly spread over 0 to 1 if honest."""
        return (2 * self.cdf(y) - 1).abs()

    @takes_arrays
    def crps(self, y: Tensor) -> Tensor:
        """Continuous ranked probability score (Grimit et al. 2006), [n], in the unit of y; less is better.

        E|Y - y| - E|Y - Y'| / 2, which is |mean - y| where there is no doubt.
        """
        members = zip(self.means, self.deviations, strict=True)  # one by one: members^2 * n may be much memory
        between = [_expected_size(mean - self.means, (own**2 + self.deviations**2).sqrt()) for mean, own in members]
        spread = self.weights @ torch.stack([self.weights @ row for row in between])
        return self.weights @ _expected_size(y - self.means, self.deviations) - spread / 2


def fitted(outputs: Tensor, weights: Tensor, target: Tensor, likelihood: Gaussian) -> Gaussian:
    """The likelihood with the scale under which held-out targets are most probable.

    For one network that is its scale times the root mean square of (y - mean) / deviation. For a mixture, whose
    disagreement is part of its uncertainty already, expectation maximisation starts there.

    Args:
        outputs: [members, n, outputs], of frozen networks.
        weights: [members].
        target: [n], that no network was trained on.
        likelihood: whose scale is any so far.
    """
    said = Gaussians.of(outputs, weights, likelihood)
    squares = ((target.detach().cpu().double() - said.means) / said.deviations).square()
    prior = said.weights.log()[:, None] - said.deviations.log()
    factor = (said.weights @ squares).mean().clamp_min(EXACT)
    for _ in range(ROUNDS):
        shares = (prior - 0.5 * squares / factor).softmax(0)
        before, factor = factor, (shares * squares).sum(0).mean().clamp_min(EXACT)
        if (factor - before).abs() <= SETTLED * factor:
            break
    return replace(likelihood, scale=likelihood.scale * factor.sqrt().item())


def _expected_size(mean: Tensor, deviation: Tensor) -> Tensor:
    """E|Z| of Z ~ N(mean, deviation^2)."""
    z = mean / deviation
    density = torch.exp(-0.5 * z.square()) / math.sqrt(2 * math.pi)
    return 2 * deviation * density + mean * (2 * ndtr(z) - 1)
