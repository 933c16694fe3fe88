"""Counts: whole numbers from 0 up."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, final

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from polyarch.data.checks import Array, checked_numbers, first_bad
from polyarch.data.likelihood import Likelihood

MOST = 60.0
"""The logarithm of the largest rate that is told: what a network says before it has learnt anything stays a number."""


@final
@dataclass(frozen=True)
class Counts(Likelihood):
    """Poisson likelihood; the output is the logarithm of the rate, in the unit of the mean of training targets.

    Values are those of the Poisson distribution, gradients those in Fisher's metric (natural ones): by the output the
    residual, as a share of the rate, or of what counts usually are where that is more. Else counts in the thousands
    would be learnt a thousand times as fast as others, and one rate that is far too high would throw training off.
    """

    metric: ClassVar[str] = "absolute_error"
    higher_is_better: ClassVar[bool] = False
    predicts: ClassVar[str] = "counts"

    unit: float = 1.0
    """The rate where the output is 0: the mean of training counts."""
    spread: float = 1.0
    """Their standard deviation."""

    @property
    @override
    def outputs(self) -> int:
        return 1

    @property
    @override
    def words(self) -> str:
        return "a count"

    @override
    def log_likelihood(self, output: Tensor, target: Tensor) -> Tensor:
        # Not torch.distributions.Poisson: it reads values back to validate them, which no captured step may.
        log_rate = output[..., 0] + math.log(self.unit)
        fit = target * log_rate - log_rate.clamp_max(MOST).exp() - (target + 1).lgamma()
        by = log_rate.clamp_min(math.log(max(self.unit, self.spread)))
        natural = (target * (-by).exp() - (log_rate - by).exp()).detach() * log_rate
        return fit.detach() + (natural - natural.detach())

    @override
    def mixture(self, outputs: Tensor, weights: Tensor) -> Tensor:
        """That of the mean rate; the mixture itself is wider than a Poisson distribution."""
        return (outputs + weights.log()[..., None, None]).logsumexp(0)

    @override
    def mean(self, output: Tensor) -> Tensor:
        """The rate."""
        return output[..., 0].clamp_max(MOST).exp() * self.unit

    @override
    def variance(self, output: Tensor) -> Tensor:
        """The rate, too."""
        return self.mean(output)

    @override
    def metric_values(self, output: Tensor, target: Tensor) -> Tensor:
        """How far the rate is from the count."""
        return (self.mean(output) - target).abs()

    @override
    def figures(self, mean: Tensor, target: Tensor) -> dict[str, float]:
        """`deviance`, of Poisson: twice what log-likelihood lacks of that of rates that are the counts themselves."""
        lacks = torch.xlogy(target, target / mean) - target + mean
        return {"deviance": 2 * lacks.mean().item()}

    @override
    def checked(self, y: Array, what: str) -> Array:
        y = checked_numbers(y, what)
        first_bad(y, (y < 0) | (y != np.round(y)), what, "counts are whole numbers from 0 up")
        return y

    @override
    def learn(self, y: Array) -> Counts:
        mean, spread = float(y.mean(dtype=np.float64)), float(y.std(dtype=np.float64))
        return replace(self, unit=mean or 1.0, spread=spread or 1.0)
