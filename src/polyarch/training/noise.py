"""The standard deviation of a task's noise while weights are learnt: from validation data, evaluation by evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import final

import torch
from torch import Tensor

from polyarch.core import Problem
from polyarch.data.likelihood import Gaussian

LEAST = 1e-3
"""Of the deviation of the targets: the least scale, where a network makes no error on validation data."""


@final
class NoiseScale:
    """One number per repeat, in a fixed place, so that a recorded step sees what becomes of it.

    Never from training residuals, which shrink as a network overfits: evidence would then be for whatever fits training
    data best, and surer with every epoch.
    """

    def __init__(self, problem: Problem, likelihood: Gaussian) -> None:
        """Starts at the deviation of the targets, which is what a network knows before it has learnt anything."""
        self.least = LEAST * float(likelihood.scale)
        self.scale = torch.full((problem.repeats,), float(likelihood.scale), device=problem.device)
        self.problem = replace(problem, likelihood=replace(likelihood, scale=self.scale))
        """The problem whose likelihood has this scale."""

    @classmethod
    def of(cls, problem: Problem) -> NoiseScale | None:
        """That of a problem which has one for the task and data to learn it from; else None."""
        likelihood = problem.likelihood
        learnt = isinstance(likelihood, Gaussian) and likelihood.noise == "task" and "select" in problem.data
        return cls(problem, likelihood) if learnt else None  # type: ignore[arg-type]

    def update(self, told: Mapping[str, Tensor]) -> None:
        """Takes the root of the mean squared error that an evaluation of validation data told: [repeats].

        Of several, such as that of a supernet beside that of its likeliest network, the smallest: the other is the
        error of weights in a place that they were not trained for.
        """
        errors = [value for name, value in told.items() if name.endswith(Gaussian.metric)]
        if not errors:  # of a method of one's own: it stays until the end, when it is fitted anew
            return
        self.scale.copy_(torch.stack(errors).amin(0).sqrt().clamp_min(self.least))
