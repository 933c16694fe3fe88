"""Networks with stochastic architectures (NSA): one set of weights, trained under architectures drawn at random.

`per=batch` draws one architecture a batch (Eq. 1): min_w E_alpha [loss of the batch under alpha]. `per=instance` draws
one for every example (Eq. 3, NSA-i), so that batch norm sees many architectures in every batch, and its statistics fit
any of them. With parameters of every architecture's own (settings of the space `wiring`) this is NSA-id. No
distribution is learnt: architectures come from what the space draws from, and all of them predict together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from polyarch.distributions.base import Distribution
from polyarch.distributions.categorical import Categorical
from polyarch.distributions.listed import Listed
from polyarch.errors import PolyarchError
from polyarch.methods.base import Feed, FeedSpec, Info, Problem, State, gradients
from polyarch.methods.recipe import Recipe
from polyarch.settings import at_least
from polyarch.spaces.base import Hard, PerExample, Space, View
from polyarch.training import world
from polyarch.training.judging import best_judged, judged_on_average
from polyarch.training.optimisers import momentum_buffers
from polyarch.training.streams import Streams

DROPS = (0.3, 0.6, 0.8)
"""After these parts of the training the rate falls (the paper: epochs 90, 180 and 240 of 300)."""
FACTOR = 0.2
"""What it falls by."""
JUDGED = 4
"""Architectures whose mean an evaluation reports: the same ones every time."""
COMPARED = 20
"""Architectures among which the selected one is the best."""


@dataclass(frozen=True, kw_only=True)
class StochasticArchitectures(Recipe):
    """Trains shared weights; belief is what the space draws from, and stays it."""

    name: ClassVar[str] = "stochastic-architectures"

    per: Literal["instance", "batch"] = "instance"
    """Draw an architecture for every example (NSA-i) or for every batch (NSA)."""
    stop: Literal["auto", "train", "valid", "never"] = "never"
    """As for every method; the paper reports the last epoch."""
    epochs: int = 300
    """Passes over the training data (the paper)."""
    batch_size: int = 128
    """Examples a step, over all ranks (the paper)."""
    rate: float = 0.1
    """First learning rate; a fifth after 30, 60 and 80 % of the epochs (the paper)."""
    nesterov: bool = True
    """Nesterov's momentum (the paper)."""
    weight_decay: float = 5e-4
    """L2, on every weight (the released code)."""
    clip: float = 0.0
    """Gradients are scaled down to this norm; 0 is never."""

    auxiliary: float = 0.1
    """Weight of an auxiliary classifier's loss, where the space has one (the paper)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least("auxiliary", self.auxiliary, 0)

    def check(self, space: Space) -> None:
        """Belief must be something that numbers between 0 and 1 can be turned into architectures by."""
        if not isinstance(space.drawn_from(), Categorical | Listed):
            raise PolyarchError(f"{self.name} does not know how to draw from the space {space.name!r}")

    def takes_prior(self, space: Space) -> bool:
        """Architectures come from the space."""
        return False

    def feeds(self, problem: Problem) -> dict[str, FeedSpec]:
        """A training batch."""
        size = min(self.batch_size, problem.train_size)
        return {"train": FeedSpec("train", size - size % world.size())}

    def draw(self, problem: Problem, streams: Streams) -> dict[str, Tensor]:
        """How images are changed, and numbers that architectures are made from inside the step."""
        count = self.feeds(problem)["train"].size if self.per == "instance" else 1
        uniform = torch.rand(count, len(problem.space.decisions), generator=streams["architecture"])
        return super().draw(problem, streams) | {"uniform": uniform}

    def rates(self, epoch: int) -> dict[str, float]:
        """See `Method.rates`."""
        return {"weights": self.rate * FACTOR ** sum(epoch >= part * self.epochs for part in DROPS)}

    def init(self, problem: Problem, streams: Sequence[Streams], previous: State | None) -> State:
        """Fresh weights; what the space draws from."""
        if self.per == "instance" and PerExample not in problem.supernet.views:
            raise PolyarchError(f"networks of the space {problem.space.name!r} run no batch of several; set per=batch")
        self.start(problem, streams)
        source, device = problem.space.drawn_from(), problem.data["train"].y.device
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

    def step(self, problem: Problem, state: State, feed: Feed) -> Info:
        """One step on the mean log-likelihood, every example (or the batch) under its own architecture."""
        batch = self.batch(problem, feed, "train")
        problem.supernet.train()
        outputs = problem.supernet.outputs(batch.x, self._view(state, feed))
        fit, *towers = (world.mean(problem.likelihood.log_likelihood(output, batch.y)) for output in outputs)
        objective = fit + self.auxiliary * sum(towers)
        self.move_weights(state, gradients(-objective, list(state.weights.values())), feed.rates["weights"])
        examples = batch.y.shape[-1] * world.size()
        return Info({"log_likelihood": fit.detach()}, forward=examples, backward=examples)

    def _view(self, state: State, feed: Feed) -> View:
        """Where uniform numbers fall on the cumulated probabilities of belief; a list needs one number alone."""
        uniform = feed.draws["uniform"] if self.per == "batch" else world.share(feed.draws["uniform"], 1)
        if "choices" in state.belief:
            uniform = uniform[..., 0]
        probs = state.belief["logits"].softmax(-1)  # [repeats, listed] or [repeats, decisions, longest]
        edges = probs.cumsum(-1)[..., :-1].unsqueeze(1)
        chosen = (uniform.unsqueeze(-1) > edges).sum(-1)  # [repeats, n] or [repeats, n, decisions]
        if "choices" in state.belief:
            width = state.belief["choices"].shape[-1]
            chosen = state.belief["choices"].gather(1, chosen.unsqueeze(-1).expand(-1, -1, width))
        return PerExample(chosen) if self.per == "instance" else Hard(chosen[:, 0])

    def evaluate(self, problem: Problem, state: State, split: str) -> dict[str, Tensor]:
        """The mean over a few architectures, with the shared weights and statistics; always the same ones."""
        return judged_on_average(problem, self._some(problem, state, JUDGED), split)

    def preferred(self, problem: Problem, state: State) -> Tensor:
        """Of a few architectures, the one that fits validation data best."""
        return best_judged(problem, self._some(problem, state, COMPARED))

    def _some(self, problem: Problem, state: State, count: int) -> Tensor:
        """The first of the list, or as many draws: [count or fewer, decisions]."""
        belief = self.distribution(problem.space, state.belief).repeat(0)
        if isinstance(belief, Listed):
            return belief.choices[:count]
        return belief.sample(count, torch.Generator().manual_seed(0))
