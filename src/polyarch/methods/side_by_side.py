"""Training many networks of one space at once: every repeat is another architecture.

All of them run in one supernet, whose weights each repeat has for itself, and each runs its own operations alone. On a
GPU that is much faster than small networks one after another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from typing_extensions import override

from polyarch.architecture import Architecture
from polyarch.core import Feed, Info, Method, Problem, Stage, State, gradients
from polyarch.distributions.categorical import Categorical
from polyarch.errors import PolyarchError
from polyarch.settings import Positive
from polyarch.spaces.base import Space
from polyarch.spaces.views import Dense, SparsePerRepeat, one_hot
from polyarch.streams import Streams
from polyarch.training.augment import Augment
from polyarch.training.evaluation import evaluate_view
from polyarch.training.optimisers import Schedule, Sgd, momentum_buffers


@dataclass(frozen=True, kw_only=True)
class SideBySide(Method):
    """Trains as many networks as there are repeats; belief is a point mass, each repeat's own."""

    name: ClassVar[str] = "side-by-side"

    architectures: tuple[Architecture, ...] = field(kw_only=False)
    network: Literal["evaluation", "search"] = "evaluation"
    """As for `Standalone`: in the form to train and use, or as in the space's supernet."""
    epochs: Positive = 12
    """Passes over the training data (the short recipe of NAS-Bench-201)."""
    batch_size: Positive = 128
    """Examples per step of each network, over all ranks; a last partial batch is dropped."""
    weights: Sgd = Sgd(lr=0.1, nesterov=True, weight_decay=5e-4, schedule=Schedule(kind="cosine"))
    """How the weights of each network are trained (NAS-Bench-201)."""
    augment: Augment = Augment()
    """How images are changed at random (NAS-Bench-201: crop 4, flip)."""

    @override
    def stages(self, space: Space) -> tuple[Stage, ...]:
        """One, in the form to train."""
        return (Stage(space.evaluated() if self.network == "evaluation" else space, self.epochs),)

    @override
    def draw(self, problem: Problem, streams: Streams) -> dict[str, Any]:
        return self.augment.draw(problem, self.feeds(problem), streams)

    @override
    def schedule(self, epoch: int) -> dict[str, float]:
        return {"weights.lr": self.weights.lr_at(epoch, self.epochs)}

    @override
    def init(self, problem: Problem, streams: Sequence[Streams], previous: State | None) -> State:
        """Fresh weights, drawn for every repeat by itself."""
        if problem.repeats != len(self.architectures):
            raise PolyarchError(f"{len(self.architectures)} architectures need as many repeats, not {problem.repeats}")
        self.augment.check(problem.supernet.shape.input)
        problem.supernet.reset_parameters([s["init"] for s in streams])
        choices = torch.tensor([a.choices for a in self.architectures], device=problem.device)
        longest = max(len(decision) for decision in problem.space.decisions)
        logits = torch.zeros(*choices.shape, longest, device=choices.device)
        state = State.of(problem.supernet, {"logits": logits.masked_fill(~one_hot(choices, longest), -torch.inf)})
        state.optimiser = momentum_buffers(weights=state.weights)
        return state

    @override
    def distribution(self, space: Space, belief: Mapping[str, Tensor]) -> Categorical:
        """All mass on each repeat's architecture."""
        return Categorical(space.decisions, belief["logits"])

    @override
    def step(self, problem: Problem, state: State, feed: Feed) -> Info:
        """One step of every network."""
        problem.supernet.train()
        batch = self.augment.batch(problem, feed.batches["train"][0])
        fit = problem.log_likelihood(problem.supernet(batch.x, self._view(problem, state)), batch)
        self.weights.step(state, gradients(-fit, list(state.weights.values())), feed.schedule["weights.lr"])
        return Info({"log_likelihood": fit.detach()}, forward=batch.size, backward=batch.size)

    @override
    def evaluate(self, problem: Problem, state: State, split: str) -> dict[str, Tensor]:
        return evaluate_view(problem, self._view(problem, state), split)

    def _view(self, problem: Problem, state: State) -> SparsePerRepeat | Dense:
        if SparsePerRepeat in problem.supernet.views:
            return SparsePerRepeat(tuple(a.choices for a in self.architectures))
        return Dense(state.belief["logits"].argmax(-1))
