"""A residual network of one fixed depth: the baseline of Antorán et al. 2020 (there DDN), nothing learnt of depth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Protocol, runtime_checkable

import torch
from torch import Tensor
from typing_extensions import override

from polyarch.architecture import Architecture
from polyarch.core import Feed, Info, Meaning, Method, Problem, Stage, State, gradients
from polyarch.distributions.categorical import Categorical
from polyarch.errors import PolyarchError
from polyarch.settings import TakesMemory
from polyarch.spaces.base import Space
from polyarch.spaces.views import Sparse
from polyarch.streams import Streams
from polyarch.training.augment import Augment
from polyarch.training.evaluation import evaluate_view
from polyarch.training.optimisers import Sgd, momentum_buffers


@runtime_checkable
class Prunable(Protocol):
    """A nested space that can be cut after one of its options."""

    def pruned(self, architecture: Architecture) -> Space:
        """The space that ends at an architecture."""


@dataclass(frozen=True, kw_only=True)
class FixedDepth(Method):
    """Trains one depth alone: belief is a point mass, only the last output is trained."""

    name: ClassVar[str] = "fixed-depth"
    meaning: ClassVar[Meaning] = Meaning("fixed", "A point: one architecture is trained, and none is searched.")

    depth: Annotated[int, TakesMemory()] = -1
    """The depth to train, or of another nested space the number of its option, from 0; -1 is the last."""
    weights: Sgd = Sgd(lr=0.1, momentum=0.5)
    """How weights are trained (appendix B; for images, to a tenth of the rate after 30 epochs)."""
    augment: Augment = Augment()
    """How training images are changed."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.depth < -1:
            raise PolyarchError(f"depth must be 0 or more, or -1 for the deepest of the space; not {self.depth}")

    @override
    def check(self, space: Space) -> None:
        """Only a nested space has a depth, or the like, to fix."""
        if not space.nested:
            raise PolyarchError(
                f"fixed-depth trains one option of a nested space such as 'depth', and {space.name!r} is none; use "
                "standalone"
            )
        [decision] = space.decisions
        if self.depth >= len(decision):
            raise PolyarchError(
                f"depth={self.depth} is beyond {decision.name}={decision.options[-1]}, the last of this space; lower "
                "it, or search a space that goes further"
            )

    @override
    def stages(self, space: Space) -> tuple[Stage, ...]:
        """One, where a space can be cut in the space that ends at the fixed depth: deeper blocks are never made."""
        if isinstance(space, Prunable):
            space = space.pruned(space.architecture([self._option(space)]))
        return (Stage(space, self.epochs),)

    @override
    def schedule(self, epoch: int) -> dict[str, float]:
        return {"weights.lr": self.weights.lr_at(epoch, self.epochs)}

    @override
    def draw(self, problem: Problem, streams: Streams) -> dict[str, Any]:
        return self.augment.draw(problem, self.feeds(problem), streams)

    @override
    def init(self, problem: Problem, streams: Sequence[Streams], previous: State | None) -> State:
        """Default initial weights; belief that nothing moves."""
        self.augment.check(problem.supernet.shape.input)
        problem.supernet.reset_parameters([s["init"] for s in streams])
        depths = len(problem.space.decisions[0])
        point = torch.full((problem.repeats, 1, depths), -torch.inf, device=problem.device)
        point[..., self._option(problem.space)] = 0
        state = State.of(problem.supernet, {"logits": point})
        state.optimiser = momentum_buffers(weights=state.weights)
        return state

    @override
    def distribution(self, space: Space, belief: Mapping[str, Tensor]) -> Categorical:
        """All mass on the one network."""
        return Categorical(space.decisions, belief["logits"])

    @override
    def step(self, problem: Problem, state: State, feed: Feed) -> Info:
        """One step of gradient ascent on the mean log-likelihood."""
        batch = self.augment.batch(problem, feed.batches["train"][0])
        problem.supernet.train()
        fit = problem.log_likelihood(problem.supernet(batch.x, self._view(problem)), batch)
        self.weights.step(state, gradients(-fit, list(state.weights.values())), feed.schedule["weights.lr"])
        return Info({"log_likelihood": fit.detach()}, forward=batch.size, backward=batch.size)

    @override
    def evaluate(self, problem: Problem, state: State, split: str) -> dict[str, Tensor]:
        return evaluate_view(problem, self._view(problem), split)

    def _view(self, problem: Problem) -> Sparse:
        return Sparse((self._option(problem.space),))

    def _option(self, space: Space) -> int:
        """The number of the option to train, which is the same where the space is cut after it."""
        return self.depth if self.depth >= 0 else len(space.decisions[0]) - 1
