"""P-DARTS (Chen et al. 2019): a search in stages, each with a deeper network and fewer operations per edge.

What is read out of a search network of 8 cells is used in one of 20. P-DARTS closes the gap step by step: from stage to
stage the network grows while the least likely operations of every edge are left out, and fresh weights and belief are
learnt for the rest. Skips win easily in a young network, so their values pass through dropout that fades; belief rests
while the weights of a stage settle; and of the cell that is read out in the end, surplus skips are taken back.

`Progressive` is a plan that any method may have that mixes operations (`Mixes`). Which operations a stage leaves open
is learnt, for every repeat by itself, and so it is part of belief, under `open`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Annotated, Protocol

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from polyarch.core import Problem, Stage, State
from polyarch.distributions.base import Distribution
from polyarch.distributions.categorical import masked
from polyarch.errors import PolyarchError
from polyarch.settings import AtLeast, Below, TakesMemory, settle
from polyarch.spaces.base import Space, relaxation_of
from polyarch.spaces.darts import SKIP_DROPOUT, Darts

FADING = 0.2
"""How fast dropout fades once belief moves: by exp(-0.2) per epoch (the authors' code)."""
OPEN = "open"
"""In a state's belief: which options are left, bool [repeats, simplices, longest]."""


class Mixes(Protocol):
    """What the plan needs of a method: how long a stage is and belief rests, and the mixture that was learnt."""

    @property
    def epochs(self) -> int:
        """Of a stage."""

    @property
    def warmup_epochs(self) -> int:
        """First epochs of a stage, in which belief rests."""

    def distribution(self, space: Space, belief: Mapping[str, Tensor]) -> Distribution:
        """See `Method.distribution`; its mean weights are what is mixed by."""


@dataclass(frozen=True)
class ProgressiveStage:
    """One stage: the cells of the network, the operations left on an edge, and the first rate of dropout on skips."""

    layers: Annotated[int, AtLeast(1)]
    operations: Annotated[int, AtLeast(3)]  # of three, one at least is neither `none` nor a skip
    dropout: Annotated[float, AtLeast(0), Below(1)]


@dataclass(frozen=True, kw_only=True)
class Progressive:
    """Stages of the space darts, whose networks can grow."""

    stages: Annotated[tuple[ProgressiveStage, ...], TakesMemory()] = ()
    """LAYERS:OPERATIONS:DROPOUT of every stage; none: no stages (the paper: 5:8:0.1,11:5:0.4,17:3:0.7)."""
    skips: Annotated[int, AtLeast(0)] = 2
    """With stages, at most so many skips in the normal cell that is read out (P-DARTS)."""

    def __post_init__(self) -> None:
        settle(self)
        if any(after.layers <= before.layers for before, after in pairwise(self.stages)):
            raise PolyarchError("plan.stages must have more layers from stage to stage, such as 5:8:0.1,11:5:0.4")

    def __bool__(self) -> bool:
        return bool(self.stages)

    def check(self, space: Space) -> None:
        """Raises for a space whose networks cannot grow."""
        if self and not isinstance(space, Darts):
            raise PolyarchError(f"progressive stages are for the space darts, not {space.name!r}; set plan.stages=")

    def spaces(self, space: Space, epochs: int) -> tuple[Stage, ...]:
        """The stages of a search; cells that are read out of any of them have few skips."""
        assert isinstance(space, Darts)
        limit = min(self.skips, space.skip_limit)
        return tuple(Stage(replace(space, layers=part.layers, skip_limit=limit), epochs) for part in self.stages)

    def stage_of(self, space: Space) -> ProgressiveStage:
        """The stage that a space belongs to: networks differ in their layers."""
        assert isinstance(space, Darts)
        [found] = [stage for stage in self.stages if stage.layers == space.layers]
        return found

    def open_options(self, method: Mixes, problem: Problem, previous: State | None) -> Tensor:
        """Which options a stage begins with, bool [repeats, simplices, longest]: all, or the likeliest before it."""
        space = problem.space
        simplices = relaxation_of(space).simplices
        longest = max(len(simplex) for simplex in simplices)
        zeros = torch.zeros(problem.repeats, len(simplices), longest, device=problem.device)
        if previous is None:
            return masked(zeros, simplices) == 0
        learnt = method.distribution(space, previous.belief).mean_weights()
        return survivors(learnt, previous.belief[OPEN], self.stage_of(space).operations)

    def leave_out(self, problem: Problem, state: State) -> None:
        """Has options that no repeat has left not run any more; reads the state."""
        if isinstance(state.belief[OPEN], FakeTensor):  # a dry run has no values, and counts all options
            return
        rows = zip(relaxation_of(problem.space).simplices, state.belief[OPEN].any(0).tolist(), strict=True)
        left = {simplex.name: [k for k, is_open in enumerate(row) if is_open] for simplex, row in rows}
        problem.supernet.keep_running(left)

    def fading(self, method: Mixes, epoch: int) -> float:
        """The share of a stage's first dropout that is left in an epoch (from 0).

        It falls linearly while belief rests; then it starts anew from the whole and falls exponentially.
        """
        if epoch < method.warmup_epochs:
            return (method.epochs - epoch - 1) / method.epochs
        return math.exp(-FADING * (epoch - method.warmup_epochs))

    def dropout(self, space: Space, share: Tensor, seeds: Tensor) -> dict[str, Tensor]:
        """What `Supernet.outputs` is told of dropout on skips, given its share that is left and a seed per repeat."""
        rate = (self.stage_of(space).dropout * share).double()
        return {SKIP_DROPOUT: torch.stack([rate.expand(seeds.shape), seeds.double()], -1)}


def survivors(weights: Sequence[Tensor], still_open: Tensor, keep: int) -> Tensor:
    """Which options of every simplex go on to the next stage: the `keep` likeliest of those still open.

    Args:
        weights: the mixture that was learnt, [repeats, options] for every simplex.
        still_open: bool [repeats, simplices, longest].
        keep: how many.
    """
    found = torch.zeros_like(still_open)
    for k, own in enumerate(weights):
        # Options that are left out stay behind those that are not, also where these have come down to 0.
        among = own.detach().masked_fill(~still_open[:, k, : own.shape[1]], -1)
        ranked = among.argsort(dim=-1, descending=True, stable=True)
        found[:, k].scatter_(1, ranked[:, :keep], True)
    return found & still_open
