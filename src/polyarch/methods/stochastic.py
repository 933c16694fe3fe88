"""Networks with stochastic architectures (NSA): one set of weights, trained under architectures drawn at random.

`per=batch` draws one architecture a batch (Eq. 1): min_w E_alpha [loss of the batch under alpha]. `per=instance` draws
one for every example (Eq. 3, NSA-i), so that batch norm sees many architectures in every batch, and its statistics fit
any of them. With parameters of every architecture's own (settings of the space `wiring`) this is NSA-id. No
distribution is learnt: architectures come from what the space draws from, and all of them predict together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from polyarch import distributed
from polyarch.core import Feed, FeedSpec, Info, Problem, State, gradients
from polyarch.errors import PolyarchError
from polyarch.methods.drawn import DrawnArchitectures
from polyarch.settings import at_least
from polyarch.spaces.views import Dense, PerExample, View
from polyarch.streams import Streams


@dataclass(frozen=True, kw_only=True)
class StochasticArchitectures(DrawnArchitectures):
    """Trains shared weights; belief is what the space draws from, and stays it."""

    name: ClassVar[str] = "stochastic-architectures"
    drops: ClassVar[tuple[float, ...]] = (0.3, 0.6, 0.8)  # the paper: epochs 90, 180 and 240 of 300

    per: Literal["instance", "batch"] = "instance"
    """Draw an architecture for every example (NSA-i) or for every batch (NSA)."""
    epochs: int = 300
    """Passes over the training data (the paper)."""
    batch_size: int = 128
    """Examples a step, over all ranks (the paper)."""
    rate: float = 0.1
    """First learning rate; a fifth after 30, 60 and 80 % of the epochs (the paper)."""

    auxiliary: float = 0.1
    """Weight of an auxiliary classifier's loss, where the space has one (the paper)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least("auxiliary", self.auxiliary, 0)

    def draws_for(self, spec: FeedSpec) -> int:
        """One for every example, or one."""
        return spec.size if self.per == "instance" else 1

    def init(self, problem: Problem, streams: Sequence[Streams], previous: State | None) -> State:
        """Fresh weights; what the space draws from."""
        if self.per == "instance" and PerExample not in problem.supernet.views:
            raise PolyarchError(f"networks of the space {problem.space.name!r} run no batch of several; set per=batch")
        return super().init(problem, streams, previous)

    def step(self, problem: Problem, state: State, feed: Feed) -> Info:
        """One step on the mean log-likelihood, every example (or the batch) under its own architecture."""
        batch = self.batch(problem, feed, "train")
        problem.supernet.train()
        outputs = problem.supernet.outputs(batch.x, self._view(problem, state, feed))
        fit, *towers = (distributed.mean(problem.likelihood.log_likelihood(output, batch.y)) for output in outputs)
        objective = fit + self.auxiliary * sum(towers)
        self.move_weights(state, gradients(-objective, list(state.weights.values())), feed.rates["weights"])
        examples = batch.y.shape[-1] * distributed.size()
        return Info({"log_likelihood": fit.detach()}, forward=examples, backward=examples)

    def _view(self, problem: Problem, state: State, feed: Feed) -> View:
        """The batch's architecture, or every example's."""
        uniform = feed.draws["train:uniform"]
        if self.per == "batch":
            return Dense(self.chosen(state, uniform)[:, 0])
        return self.view(problem, state, distributed.share(uniform, 1))
