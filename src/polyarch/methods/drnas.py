"""DrNAS (Chen et al. 2021): every edge mixes by a draw from a Dirichlet, learnt by pathwise gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from typing_extensions import override

from polyarch.core import Feed, Meaning, Problem, State
from polyarch.distributions.base import Distribution
from polyarch.distributions.dirichlet import Dirichlet, dirichlet_from_noise, dirichlet_noise
from polyarch.methods.bilevel import (
    Bilevel,
    Gradients,
    by_simplex,
    first_logits,
    mean_gradients,
    moving,
    open_logits,
    simplices_shape,
)
from polyarch.settings import Positive
from polyarch.spaces.base import Space, relaxation_of
from polyarch.spaces.views import Soft
from polyarch.streams import Streams
from polyarch.training.optimisers import DARTS_ARCH, Adam
from polyarch.training.reach import Published


@dataclass(frozen=True, kw_only=True)
class Drnas(Bilevel):
    """Learns one Dirichlet per edge; every pass mixes by a draw of it."""

    name: ClassVar[str] = "drnas"
    meaning: ClassVar[Meaning] = Meaning(
        "mixing",
        "A Dirichlet over mixing weights, told by its mean: how much each operation counts in the supernet, not how "
        "likely it is to be right.",
    )
    published: ClassVar[Published] = Published(
        lr=3e-4, steps=39_000
    )  # 100 epochs of 25,000 images in batches of 64, on NAS-Bench-201

    epochs: Positive = 100
    """Passes over the training data (DrNAS on NAS-Bench-201)."""
    arch: Adam = DARTS_ARCH
    """How beta is trained (as in DARTS)."""

    @override
    def first_belief(self, problem: Problem, streams: Sequence[Streams]) -> dict[str, Tensor]:
        # 1e-3 times standard normal: concentrations start near 1, the flat Dirichlet.
        return {"beta": first_logits(problem, streams).requires_grad_()}

    @override
    def noise(self, problem: Problem, generator: torch.Generator, passes: int) -> dict[str, Tensor]:
        return dirichlet_noise((passes, *simplices_shape(problem.space)), generator)

    @override
    def mixture(
        self, space: Space, belief: Mapping[str, Tensor], noise: Mapping[str, Tensor], schedule: Mapping[str, Tensor]
    ) -> Soft:
        return by_simplex(space, dirichlet_from_noise(concentration(open_logits(space, belief, belief["beta"])), noise))

    @override
    def move_belief(self, problem: Problem, state: State, found: Sequence[Gradients], feed: Feed) -> None:
        self.arch.step(state, moving(state), mean_gradients(found), feed.schedule["arch.lr"])

    @override
    def distribution(self, space: Space, belief: Mapping[str, Tensor]) -> Distribution:
        relaxation = relaxation_of(space)
        return relaxation.belief(
            Dirichlet(relaxation.simplices, concentration(open_logits(space, belief, belief["beta"])))
        )


def concentration(beta: Tensor) -> Tensor:
    """elu(beta) + 1, positive everywhere; 0 at -inf, for options that do not exist."""
    # Not torch's elu, whose -1 + exp(beta) rounds to -1 where beta is below -17.
    return beta.clamp_max(0).exp() + beta.relu()
