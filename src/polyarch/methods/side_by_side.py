"""Training many networks of one space at once: every repeat is another architecture.

All of them run in one supernet, whose weights each repeat has for itself, and each runs its own operations alone. On a
GPU that is much faster than small networks one after another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from torch import Tensor

from polyarch import distributed
from polyarch.architecture import Architecture
from polyarch.core import Feed, Info, Problem, Stage, State, gradients
from polyarch.distributions.categorical import Categorical
from polyarch.errors import PolyarchError
from polyarch.methods.recipe import Recipe
from polyarch.methods.sharing import loss
from polyarch.spaces.base import Space
from polyarch.spaces.views import Dense, SparsePerRepeat, one_hot
from polyarch.streams import Streams
from polyarch.training.judging import judged
from polyarch.training.optimisers import cosine, momentum_buffers


@dataclass(frozen=True, kw_only=True)
class SideBySide(Recipe):
    """Trains as many networks as there are repeats; belief is a point mass, each repeat's own."""

    name: ClassVar[str] = "side-by-side"

    architectures: tuple[Architecture, ...] = field(kw_only=False)
    network: Literal["evaluation", "search"] = "evaluation"
    """As for `Standalone`: in the form to train and use, or as in the space's supernet."""
    epochs: int = 12
    """Passes over the training data (the short recipe of NAS-Bench-201)."""
    batch_size: int = 128
    """Examples a step of each network, over all ranks; a last partial batch is dropped."""
    rate: float = 0.1
    """First learning rate; it falls to 0 along a cosine, epoch by epoch (NAS-Bench-201)."""
    nesterov: bool = True
    """Nesterov's momentum (NAS-Bench-201)."""
    weight_decay: float = 5e-4
    """L2, on every weight (NAS-Bench-201)."""
    clip: float = 0.0
    """Gradients are scaled down to this norm; 0 is never."""

    def stages(self, space: Space) -> tuple[Stage, ...]:
        """One, in the form to train."""
        return (Stage(space.evaluated() if self.network == "evaluation" else space, self.epochs),)

    def rates(self, epoch: int) -> dict[str, float]:
        """See `Method.rates`."""
        return {"weights": cosine(self.rate, epoch, self.epochs)}

    def init(self, problem: Problem, streams: Sequence[Streams], previous: State | None) -> State:
        """Fresh weights, drawn for every repeat by itself."""
        if problem.repeats != len(self.architectures):
            raise PolyarchError(f"{len(self.architectures)} architectures need as many repeats, not {problem.repeats}")
        self.start(problem, streams)
        choices = torch.tensor([a.choices for a in self.architectures], device=problem.data["train"].y.device)
        longest = max(len(decision) for decision in problem.space.decisions)
        logits = torch.zeros(*choices.shape, longest, device=choices.device)
        state = State.of(problem.supernet, {"logits": logits.masked_fill(~one_hot(choices, longest), -torch.inf)})
        state.optimiser = momentum_buffers(weights=state.weights)
        return state

    def distribution(self, space: Space, belief: Mapping[str, Tensor]) -> Categorical:
        """All mass on each repeat's architecture."""
        return Categorical(space.decisions, belief["logits"])

    def step(self, problem: Problem, state: State, feed: Feed) -> Info:
        """One step of every network."""
        batch = self.batch(problem, feed, "train")
        problem.supernet.train()
        fit = loss(problem, batch, self._view(problem, state))
        self.move_weights(state, gradients(fit, list(state.weights.values())), feed.rates["weights"])
        examples = batch.y.shape[-1] * distributed.size()
        return Info({"log_likelihood": -fit.detach()}, forward=examples, backward=examples)

    def evaluate(self, problem: Problem, state: State, split: str) -> dict[str, Tensor]:
        """See `judged`."""
        return judged(problem, self._view(problem, state), split)

    def _view(self, problem: Problem, state: State) -> SparsePerRepeat | Dense:
        if SparsePerRepeat in problem.supernet.views:
            return SparsePerRepeat(tuple(a.choices for a in self.architectures))
        return Dense(state.belief["logits"].argmax(-1))
