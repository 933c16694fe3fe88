"""DARTS: every edge mixes all operations by softmax of architecture parameters alpha (3.8 of the SoTL thesis)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from polyarch.core import Problem
from polyarch.distributions.base import Distribution
from polyarch.distributions.categorical import Categorical
from polyarch.methods.bilevel import Bilevel, by_simplex, first_logits, open_logits
from polyarch.spaces.base import Space, relaxation_of
from polyarch.spaces.views import Soft
from polyarch.streams import Streams


@dataclass(frozen=True, kw_only=True)
class Darts(Bilevel):
    """Learns a mixture of operations an edge by gradient; belief is the softmax of alpha."""

    name: ClassVar[str] = "darts"

    def first_belief(self, problem: Problem, streams: Sequence[Streams]) -> dict[str, Tensor]:
        """Alpha is 1e-3 times standard normal."""
        return {"alpha": first_logits(problem, streams).requires_grad_()}

    def mixture(self, space: Space, belief: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> Soft:
        """Softmax of alpha."""
        return by_simplex(space, open_logits(space, belief, belief["alpha"]).softmax(-1))

    def distribution(self, space: Space, belief: Mapping[str, Tensor]) -> Distribution:
        """Softmax of alpha for every edge, from which architectures are read out."""
        relaxation = relaxation_of(space)
        return relaxation.belief(Categorical(relaxation.simplices, open_logits(space, belief, belief["alpha"])))
