"""DrNAS: the mixture of every edge is drawn from a Dirichlet, whose concentration is learnt by pathwise gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from polyarch.core import Problem
from polyarch.distributions.base import Distribution
from polyarch.distributions.dirichlet import Dirichlet, dirichlet_from_noise, dirichlet_noise
from polyarch.methods.bilevel import Bilevel, by_simplex, first_logits, open_logits, simplices_shape
from polyarch.spaces.base import Space, relaxation_of
from polyarch.spaces.views import Soft
from polyarch.streams import Streams


@dataclass(frozen=True, kw_only=True)
class Drnas(Bilevel):
    """Learns a Dirichlet an edge; every pass mixes by a draw of it."""

    name: ClassVar[str] = "drnas"

    epochs: int = 100
    """Passes over the training data (DrNAS on NAS-Bench-201)."""

    def first_belief(self, problem: Problem, streams: Sequence[Streams]) -> dict[str, Tensor]:
        """Beta is 1e-3 times standard normal: concentrations start near 1, the flat Dirichlet."""
        return {"beta": first_logits(problem, streams).requires_grad_()}

    def noise(self, problem: Problem, generator: torch.Generator, passes: int) -> dict[str, Tensor]:
        """From which draws are made inside the step."""
        return dirichlet_noise((passes, *simplices_shape(problem.space)), generator)

    def mixture(self, space: Space, belief: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> Soft:
        """A draw of the weights."""
        return by_simplex(space, dirichlet_from_noise(concentration(open_logits(space, belief, belief["beta"])), given))

    def distribution(self, space: Space, belief: Mapping[str, Tensor]) -> Distribution:
        """The Dirichlet of every edge, from whose mean architectures are read out."""
        relaxation = relaxation_of(space)
        return relaxation.belief(
            Dirichlet(relaxation.simplices, concentration(open_logits(space, belief, belief["beta"])))
        )


def concentration(beta: Tensor) -> Tensor:
    """elu(beta) + 1, positive everywhere; 0 at -inf, for options that do not exist."""
    # Not torch's elu, whose -1 + exp(beta) rounds to -1 where beta is below -17.
    return beta.clamp_max(0).exp() + beta.relu()
