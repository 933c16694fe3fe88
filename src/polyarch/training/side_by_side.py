"""Training many networks of one space at once: every repeat is another architecture.

All of them run in one supernet, whose weights each repeat has for itself, and each runs its own operations alone. On a
GPU that is much faster than small networks one after another. The library fine-tunes candidates so, and the table that
comes with it was trained so. It is not in the catalogue: which architectures it trains is no setting.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, final

import torch
from torch import Tensor
from typing_extensions import override

from polyarch.architecture import Architecture
from polyarch.core import Feed, Info, Method, Problem, State, gradients
from polyarch.distributions.categorical import Categorical
from polyarch.errors import PolyarchError
from polyarch.spaces.base import Space
from polyarch.spaces.views import Dense, SparsePerRepeat, one_hot
from polyarch.streams import Streams
from polyarch.training.evaluation import evaluate_view
from polyarch.training.optimisers import Sgd, momentum_buffers


@final
@dataclass(frozen=True, kw_only=True)
class SideBySide(Method):
    """Trains as many networks as there are repeats; belief is a point mass, each repeat's own."""

    name: ClassVar[str] = "side-by-side"

    architectures: tuple[Architecture, ...] = field(kw_only=False)
    weights: Sgd = Sgd()
    """How the weights of each network are trained."""
    tells_gradients: bool = False
    """Whether a step also says, over all weights and without weight decay, the L1 norm of its gradient
    (`gradient_norm`) and of the sum of all gradients so far (`gradient_sum`)."""

    @override
    def schedule(self, epoch: int) -> dict[str, float]:
        return {"weights.lr": self.weights.lr_at(epoch, self.epochs)}

    @override
    def init(self, problem: Problem, streams: Sequence[Streams], previous: State | None) -> State:
        """Fresh weights, drawn for every repeat by itself; with `previous`, those that the supernet has."""
        if problem.repeats != len(self.architectures):
            raise PolyarchError(f"{len(self.architectures)} architectures need as many repeats, not {problem.repeats}")
        if previous is None:
            problem.supernet.reset_parameters([s["init"] for s in streams])
        choices = torch.tensor([a.choices for a in self.architectures], device=problem.device)
        longest = max(len(decision) for decision in problem.space.decisions)
        logits = torch.zeros(*choices.shape, longest, device=choices.device)
        state = State.of(problem.supernet, {"logits": logits.masked_fill(~one_hot(choices, longest), -torch.inf)})
        state.optimiser = momentum_buffers(weights=state.weights)
        if self.tells_gradients:
            sums = {name: torch.zeros_like(value, dtype=torch.float64) for name, value in state.optimiser.items()}
            state.optimiser |= {f"sum.{name}": value for name, value in sums.items()}
        return state

    @override
    def distribution(self, space: Space, belief: Mapping[str, Tensor]) -> Categorical:
        return Categorical(space.decisions, belief["logits"])

    @override
    def step(self, problem: Problem, state: State, feed: Feed) -> Info:
        [batch] = feed.batches["train"]
        problem.supernet.train()
        fused = problem.device.type == "cuda" and problem.supernet.fuses(Dense)
        view = Dense(self.distribution(problem.space, state.belief).mode()) if fused else self.view
        fit = problem.log_likelihood(problem.supernet(batch.x, view), batch)
        told = {"log_likelihood": fit.detach()}
        found = gradients(-fit, list(state.weights.values())) if state.weights else []
        if self.tells_gradients:
            sums = [state.optimiser[f"sum.weights.{name}"] for name in state.weights]
            for total, gradient in zip(sums, found, strict=True):
                total.add_(gradient)
            told |= {"gradient_norm": _l1_norm(found, fit), "gradient_sum": _l1_norm(sums, fit)}
        if state.weights:  # a network may be without
            self.weights.step(state, found, feed.schedule["weights.lr"])
        return Info(told, forward=batch.size, backward=batch.size)

    @override
    def evaluate(self, problem: Problem, state: State, split: str) -> dict[str, Tensor]:
        return evaluate_view(problem, self.view, split)

    @property
    def view(self) -> SparsePerRepeat:
        """Each repeat's own architecture, which the host knows."""
        return SparsePerRepeat(tuple(a.choices for a in self.architectures))


def _l1_norm(tensors: Sequence[Tensor], like: Tensor) -> Tensor:
    """The L1 norm over all entries of all tensors, [repeats] as `like`, in double precision."""
    total = torch.zeros_like(like, dtype=torch.float64)
    return sum((t.reshape(len(like), -1).double().abs().sum(1) for t in tensors), start=total)
