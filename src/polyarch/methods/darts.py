"""DARTS (Liu et al. 2019): every edge mixes all operations by softmax of architecture parameters alpha."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor
from typing_extensions import override

from polyarch.core import Feed, Meaning, Problem, State
from polyarch.distributions.base import Distribution
from polyarch.distributions.categorical import Categorical
from polyarch.methods.bilevel import (
    Bilevel,
    Gradients,
    by_simplex,
    first_logits,
    mean_gradients,
    moving,
    open_logits,
)
from polyarch.spaces.base import Space, relaxation_of
from polyarch.spaces.views import Soft
from polyarch.streams import Streams
from polyarch.training.optimisers import DARTS_ARCH, Adam
from polyarch.training.reach import Published


@dataclass(frozen=True, kw_only=True)
class Darts(Bilevel):
    """Learns one mixture of operations per edge by gradient; belief is the softmax of alpha."""

    name: ClassVar[str] = "darts"
    meaning: ClassVar[Meaning] = Meaning(
        "mixing", "Mixing weights: how much each operation counts in the supernet, not how likely it is to be right."
    )
    published: ClassVar[Published] = Published(lr=3e-4, steps=19_500)  # 50 epochs of 25,000 images in batches of 64

    arch: Adam = DARTS_ARCH
    """How alpha is trained (DARTS)."""

    @override
    def first_belief(self, problem: Problem, streams: Sequence[Streams]) -> dict[str, Tensor]:
        # 1e-3 times standard normal.
        return {"alpha": first_logits(problem, streams).requires_grad_()}

    @override
    def mixture(
        self, space: Space, belief: Mapping[str, Tensor], noise: Mapping[str, Tensor], schedule: Mapping[str, Tensor]
    ) -> Soft:
        return by_simplex(space, open_logits(space, belief, belief["alpha"]).softmax(-1))

    @override
    def move_belief(self, problem: Problem, state: State, found: Sequence[Gradients], feed: Feed) -> None:
        self.arch.step(state, moving(state), mean_gradients(found), feed.schedule["arch.lr"])

    @override
    def distribution(self, space: Space, belief: Mapping[str, Tensor]) -> Distribution:
        relaxation = relaxation_of(space)
        return relaxation.belief(Categorical(relaxation.simplices, open_logits(space, belief, belief["alpha"])))
