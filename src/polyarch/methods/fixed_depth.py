"""A residual network of one fixed depth: LDN's baseline (there DDN), trained alike, nothing learnt of depth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from polyarch import distributed
from polyarch.core import Feed, Info, Method, Problem, Stage, State, gradients
from polyarch.distributions.categorical import Categorical
from polyarch.errors import PolyarchError
from polyarch.spaces.base import Space
from polyarch.spaces.depth import ResidualDepth
from polyarch.spaces.views import Sparse
from polyarch.streams import Streams
from polyarch.training.judging import judged
from polyarch.training.optimisers import check_sgd, dropped, momentum_buffers, sgd


@dataclass(frozen=True, kw_only=True)
class FixedDepth(Method):
    """Trains one depth alone: belief is a point mass, only the last output is trained."""

    name: ClassVar[str] = "fixed-depth"

    depth: int = -1
    """The depth to train; -1 is the deepest of the space."""
    rate: float = 0.1
    """Learning rate (appendix B)."""
    momentum: float = 0.5
    """Appendix B."""
    drop_after: int = 0
    """Epochs after which the rate falls to a tenth; 0 is never. The paper: 30 for images."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.depth < -1:
            raise PolyarchError(f"depth must be 0 or more, or -1 for the deepest of the space; not {self.depth}")
        check_sgd(self.rate, self.momentum, self.drop_after)

    def check(self, space: Space) -> None:
        """Only the depth space has a depth to fix."""
        if not isinstance(space, ResidualDepth):
            raise PolyarchError(f"fixed-depth trains networks of the space 'depth', not of {space.name!r}")
        if self.depth > space.max_depth:
            raise PolyarchError(f"depth={self.depth} is deeper than max_depth={space.max_depth}; raise max_depth")

    def stages(self, space: Space) -> tuple[Stage, ...]:
        """One, in the space that ends at the fixed depth: deeper blocks are never made."""
        assert isinstance(space, ResidualDepth)
        depth = space.max_depth if self.depth < 0 else self.depth
        return (Stage(replace(space, max_depth=depth), self.epochs),)

    def rates(self, epoch: int) -> dict[str, float]:
        """See `Method.rates`."""
        return {"weights": dropped(self.rate, self.drop_after, epoch)}

    def init(self, problem: Problem, streams: Sequence[Streams], previous: State | None) -> State:
        """Default initial weights; belief that nothing moves."""
        problem.supernet.reset_parameters([s["init"] for s in streams])
        depths = len(problem.space.decisions[0])
        point = torch.full((problem.repeats, 1, depths), -torch.inf, device=problem.data["train"].y.device)
        point[..., -1] = 0
        state = State.of(problem.supernet, {"logits": point})
        state.optimiser = momentum_buffers(weights=state.weights)
        return state

    def distribution(self, space: Space, belief: Mapping[str, Tensor]) -> Categorical:
        """All mass on the deepest network of the (cut) space."""
        return Categorical(space.decisions, belief["logits"])

    def step(self, problem: Problem, state: State, feed: Feed) -> Info:
        """One step of gradient ascent on the mean log-likelihood."""
        [batch] = feed.batches["train"]
        problem.supernet.train()
        outputs = problem.supernet(batch.x, self._view(problem))
        fit = distributed.mean(problem.likelihood.log_likelihood(outputs, batch.y))
        parameters = list(state.weights.values())
        found = gradients(-fit, parameters)
        momenta = [state.optimiser[f"weights.{name}"] for name in state.weights]
        sgd(parameters, found, momenta, rate=feed.rates["weights"], momentum=self.momentum)
        examples = batch.y.shape[-1] * distributed.size()
        return Info({"log_likelihood": fit.detach()}, forward=examples, backward=examples)

    def evaluate(self, problem: Problem, state: State, split: str) -> dict[str, Tensor]:
        """See `judged`."""
        return judged(problem, self._view(problem), split)

    def _view(self, problem: Problem) -> Sparse:
        return Sparse((len(problem.space.decisions[0]) - 1,))
