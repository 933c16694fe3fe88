"""BaLeNAS (Zhang et al. 2022): Gaussian belief about architecture parameters, learnt by natural gradients.

Every edge mixes operations by the softmax of alpha ~ N(mean, deviation^2). Belief minimises the expected validation
loss and the distance to a prior N(0, 1 / delta) (Eqs. 9 and 10), by gradients at drawn alpha; weights are trained at
the mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from typing_extensions import override

from polyarch.core import Feed, Meaning, Problem, State
from polyarch.distributions.base import Distribution
from polyarch.distributions.gaussian import GaussianLogits
from polyarch.errors import PolyarchError
from polyarch.methods.bilevel import (
    Bilevel,
    Gradients,
    by_simplex,
    first_logits,
    noise_of,
    open_logits,
    simplices_shape,
)
from polyarch.settings import Count, Positive, PositiveFloat, at_least
from polyarch.spaces.base import Space, relaxation_of
from polyarch.spaces.views import Soft
from polyarch.streams import Streams
from polyarch.training.natural import (
    NaturalGradient,
    Posterior,
    bayes_by_backprop,
    curvature_by_noise,
    deviation,
    newton,
    vadam,
    vadam_printed,
)
from polyarch.training.reach import Published


@dataclass(frozen=True, kw_only=True)
class Balenas(Bilevel):
    """Learns one Gaussian per architecture parameter; its mean is read out."""

    name: ClassVar[str] = "balenas"
    meaning: ClassVar[Meaning] = Meaning(
        "posterior",
        "A variational posterior given the weights, on validation data that counts as data_size examples. It is about "
        "logits: a probability is how often an option has the largest.",
    )
    published: ClassVar[Published] = Published(lr=3e-4, steps=19_500)  # as DARTS

    arch: NaturalGradient = NaturalGradient()
    """How belief moves."""
    samples: Positive = 1
    """How many alpha are drawn for one gradient of belief (the paper's code)."""
    prior_precision: PositiveFloat = 1.0
    """delta, the precision of the Gaussian prior around 0 (the library)."""
    data_size: Count = 25_000
    """N, the number of examples that the prior is weighed against (the paper's code: half of CIFAR-10); 0 is the number
    of validation examples, which on small data selects skips (docs/results/balenas.md)."""
    initial_precision: PositiveFloat = 1.0
    """1 / deviation^2 before the first step, at least the prior's (the library)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.objective.loss != "valid":
            raise PolyarchError(
                f"balenas has objective.loss=valid alone, not {self.objective.loss}: Eq. 9 is of validation data"
            )
        at_least("initial_precision", self.initial_precision, self.prior_precision)

    @property
    @override
    def draws(self) -> int:
        return self.samples

    @override
    def belief_steps(self, problem: Problem) -> int:
        """Only steps of `vadam` are as long as the learning rate, like Adam's."""
        return super().belief_steps(problem) if self.arch.update == "vadam" else 0

    @override
    def first_belief(self, problem: Problem, streams: Sequence[Streams]) -> dict[str, Tensor]:
        # The mean is 1e-3 times standard normal; the precision is 1 / deviation^2.
        mean = first_logits(problem, streams)
        precision = torch.full_like(mean, self.initial_precision, dtype=torch.float64)
        return {"mean": mean.requires_grad_(), "precision": precision}

    @override
    def belief_buffers(self, movable: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Without a second moment: the curvature s is part of belief's precision."""
        return {name: value for name, value in super().belief_buffers(movable).items() if not name.endswith(".second")}

    @override
    def noise(self, problem: Problem, generator: torch.Generator, passes: int) -> dict[str, Tensor]:
        """Standard normal for every draw; 0 for the last pass, which trains the weights at the mean."""
        shape = simplices_shape(problem.space)
        drawn = torch.randn(passes - 1, *shape, generator=generator)
        return {"normal": torch.cat([drawn, torch.zeros(1, *shape)])}

    @override
    def mixture(
        self, space: Space, belief: Mapping[str, Tensor], noise: Mapping[str, Tensor], schedule: Mapping[str, Tensor]
    ) -> Soft:
        """Softmax of a drawn alpha; its gradient in the mean is that in alpha."""
        alpha = belief["mean"] + deviation(belief["precision"]) * noise["normal"]
        return by_simplex(space, open_logits(space, belief, alpha).softmax(-1))

    @override
    def move_belief(self, problem: Problem, state: State, found: Sequence[Gradients], feed: Feed) -> None:
        """Moves mean and precision by the gradients at every drawn alpha."""
        belief = Posterior(
            mean=state.belief["mean"],
            precision=state.belief["precision"],
            data_size=float(self.data_size or len(problem.data["search"])),
            prior_precision=self.prior_precision,
        )
        gradients = torch.stack([gradient for [gradient] in found])  # [samples, repeats, simplices, longest]
        noise = torch.stack([noise_of(feed, k)["normal"] for k in range(self.samples)])
        mean, first, lr = gradients.mean(0), state.optimiser["belief.mean.first"], feed.schedule["arch.lr"]
        match self.arch.update:
            case "vadam":
                steps, betas = state.optimiser["belief.steps"], (self.arch.beta1, self.arch.beta2)
                vadam(belief, gradients, first, steps, lr=lr, betas=betas)
            case "printed":
                vadam_printed(belief, mean, first, lr=lr, momentum=self.arch.beta1)
            case "von":
                newton(belief, mean, curvature_by_noise(gradients, noise, belief.precision), lr=lr)
            case "vprop":
                newton(belief, mean, mean.square(), lr=lr)
            case "bayes-by-backprop":
                bayes_by_backprop(belief, gradients, noise, lr=lr)

    @override
    def distribution(self, space: Space, belief: Mapping[str, Tensor]) -> Distribution:
        mean, width = open_gaussian(space, belief)
        relaxation = relaxation_of(space)
        return relaxation.belief(GaussianLogits(relaxation.simplices, mean, width))

    @override
    def evaluate(self, problem: Problem, state: State, split: str) -> dict[str, Tensor]:
        """As for every method that shares weights, and two more.

        `sigma` is the mean deviation of alpha, `discretisation_gap` the loss of the mode less that of the supernet
        mixed by belief, both with the shared weights (what Eq. 2 expands).
        """
        found = super().evaluate(problem, state, split)
        _, width = open_gaussian(problem.space, state.belief)
        found["sigma"] = width.sum((-1, -2)) / (width > 0).sum((-1, -2))
        found["discretisation_gap"] = found["supernet_log_likelihood"] - found["log_likelihood"]
        return found


def open_gaussian(space: Space, belief: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Mean and deviation of alpha, [repeats, simplices, longest]; -inf and 0 for options that there are not."""
    mean = open_logits(space, belief, belief["mean"])
    return mean, deviation(belief["precision"]).masked_fill(mean == -torch.inf, 0)
