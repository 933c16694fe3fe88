"""Predicting with a whole distribution over architectures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor, nn

from polyarch.data.task import Classification, Likelihood, Standardise
from polyarch.errors import PolyarchError
from polyarch.spaces.base import Supernet, View
from polyarch.uncertainty.predictive import Predictive


@final
class Ensemble(nn.Module):
    """The mixture sum_m weights[m] p(y | x, member m) on raw inputs; nested members share one pass."""

    weights: Tensor

    def __init__(
        self,
        standardise: Standardise,
        supernet: Supernet,
        views: Sequence[View],
        weights: Tensor,
        likelihood: Likelihood,
    ) -> None:
        """Takes a supernet of one repeat, the views that give the members' outputs, and their weights [members]."""
        super().__init__()
        self.views = tuple(views)
        self.standardise = standardise
        self.supernet = supernet.requires_grad_(False)
        self.register_buffer("weights", weights)
        self.likelihood = likelihood

    def members(self, x: Tensor) -> Tensor:
        """Every member's output: [members, n, outputs]."""
        inputs = self.standardise(x).unsqueeze(0)
        outputs = [self.supernet(inputs, view) for view in self.views]
        return torch.cat([out.reshape(-1, *out.shape[-2:]) for out in outputs])

    def output(self, x: Tensor) -> Tensor:
        """The mixture's output [n, outputs]: log-probabilities for classes, the mean for regression."""
        return self.likelihood.mixture(self.members(x), self.weights)

    def log_likelihood(self, x: Tensor, target: Tensor) -> Tensor:
        """Log sum_m w_m p(target | x, m), [n]."""
        fit = self.likelihood.log_likelihood(self.members(x), target)
        return (fit + self.weights.log()[:, None]).logsumexp(0)

    def forward(self, x: Tensor) -> Predictive:
        """Mean prediction, entropy and mutual information of a batch of raw inputs."""
        if not isinstance(self.likelihood, Classification):
            raise PolyarchError("entropy and mutual information are for classification; use output(x) for regression")
        with torch.no_grad():
            return Predictive.from_members(self.members(x).log_softmax(-1), self.weights)
