"""Weights that architectures share, trained under architectures drawn from the space: what such methods have in common.

No distribution is learnt: belief is what the space draws from, and all architectures predict together.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from typing_extensions import override

from polyarch.core import LAST, EarlyStopping, FeedSpec, Meaning, Method, Problem, State
from polyarch.distributions.base import Distribution
from polyarch.distributions.categorical import Categorical
from polyarch.distributions.listed import Listed
from polyarch.errors import PolyarchError
from polyarch.spaces.base import Space
from polyarch.spaces.sub_spaces import HasMembers
from polyarch.spaces.views import PerExample, Sparse, View
from polyarch.streams import Streams
from polyarch.training.augment import Augment
from polyarch.training.evaluation import best_architecture, drawn_within, evaluate_mean
from polyarch.training.optimisers import Sgd, momentum_buffers

EVALUATED = 4
"""Architectures whose mean an evaluation reports: the same ones every time."""
COMPARED = 20
"""Architectures among which the selected one is the best."""


@dataclass(frozen=True, kw_only=True)
class DrawnArchitectures(Method, ABC):
    """Draws architectures; a subclass says what the weights learn under them, and how they are trained."""

    draws_from_space: ClassVar[bool] = True
    evaluates: ClassVar[Mapping[str, str]] = {"": f"mean of {EVALUATED} drawn"}
    meaning: ClassVar[Meaning] = Meaning("fixed", "None is learnt: it is what the space draws architectures from.")

    stopping: EarlyStopping = LAST
    """As for every method; the paper reports the last epoch."""
    weights: Sgd
    """How the shared weights are trained."""
    augment: Augment = Augment()
    """How images are changed at random."""

    def check(self, space: Space) -> None:
        """Belief must be something that numbers between 0 and 1 can be turned into architectures by."""
        if not isinstance(space.random(), Categorical | Listed):
            raise PolyarchError(f"{self.name} does not know how to draw from the space {space.name!r}")

    def prior(self, space: Space) -> None:
        """Architectures come from the space."""

    def draws_for(self, spec: FeedSpec) -> int:
        """How many architectures a batch needs; one for every example by default."""
        return spec.size

    @override
    def draw(self, problem: Problem, streams: Streams) -> dict[str, Any]:
        """How images are changed, and numbers that architectures are made from inside the step."""
        drawn: dict[str, Any] = self.augment.draw(problem, self.feeds(problem), streams)
        for feed, spec in self.feeds(problem).items():
            shape = (self.draws_for(spec), len(problem.space.decisions))
            drawn[feed]["uniform"] = torch.rand(shape, generator=streams["architecture"]).unsqueeze(0)
        return drawn

    @override
    def schedule(self, epoch: int) -> dict[str, float]:
        return {"weights.lr": self.weights.lr_at(epoch, self.epochs)}

    def init(self, problem: Problem, streams: Sequence[Streams], previous: State | None) -> State:
        """Fresh weights; what the space draws from."""
        self.augment.check(problem.supernet.shape.input)
        problem.supernet.reset_parameters([s["init"] for s in streams])
        source, device = problem.space.random(), problem.device
        held = {"choices": source.choices} if isinstance(source, Listed) else {}
        assert isinstance(source, Categorical | Listed)
        belief = {
            name: value.to(device).expand(problem.repeats, *value.shape).clone()
            for name, value in {**held, "logits": source.logits}.items()
        }
        state = State.of(problem.supernet, belief)
        state.optimiser = momentum_buffers(weights=state.weights)
        return state

    def distribution(self, space: Space, belief: Mapping[str, Tensor]) -> Distribution:
        """What architectures were drawn from."""
        if "choices" in belief:
            return Listed(space.decisions, belief["choices"], belief["logits"])
        return Categorical(space.decisions, belief["logits"])

    def view(self, problem: Problem, state: State, uniform: Tensor) -> View:
        """Architectures of every example, from numbers [repeats, examples, decisions]."""
        # An only one is known to the host, and sums of what it reads are quickest; but not on a CUDA device, where
        # kernels move less memory, nor with weights of its own, whose place the host would have to read.
        space = problem.space
        if isinstance(space, HasMembers) and len(space.members) == 1 and not space.listed_only and not uniform.is_cuda:
            return Sparse(space.members[0].choices)
        return PerExample(self.chosen(state, uniform))

    def chosen(self, state: State, uniform: Tensor) -> Tensor:
        """Where uniform numbers fall on the cumulated probabilities of belief; a list needs one number alone.

        Args:
            state: whose belief is asked.
            uniform: [repeats, n, decisions].

        Returns:
            Choices [repeats, n, decisions].
        """
        if "choices" in state.belief:
            uniform = uniform[..., 0]
        probs = state.belief["logits"].softmax(-1)  # [repeats, listed] or [repeats, decisions, longest]
        edges = probs.cumsum(-1)[..., :-1].unsqueeze(1)
        found = (uniform.unsqueeze(-1) > edges).sum(-1)  # [repeats, n] or [repeats, n, decisions]
        if "choices" not in state.belief:
            return found
        width = state.belief["choices"].shape[-1]
        return state.belief["choices"].gather(1, found.unsqueeze(-1).expand(-1, -1, width))

    def evaluate(self, problem: Problem, state: State, split: str) -> dict[str, Tensor]:
        """The mean over a few architectures, with the shared weights and statistics; always the same ones."""
        return evaluate_mean(problem, self._some(problem, state, EVALUATED), split)

    def preferred(self, problem: Problem, state: State) -> Tensor:
        """Of a few architectures, the one that fits validation data best."""
        belief = self.distribution(problem.space, state.belief).repeat(0)
        return best_architecture(problem, drawn_within(problem, belief, COMPARED, seed=0))

    def _some(self, problem: Problem, state: State, count: int) -> Tensor:
        """The first of the list, or as many draws: [count or fewer, decisions]."""
        belief = self.distribution(problem.space, state.belief).repeat(0)
        if isinstance(belief, Listed):
            return belief.choices[:count]
        return belief.sample(count, torch.Generator().manual_seed(0))
