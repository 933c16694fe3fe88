"""Networks with stochastic architectures (NSA, Deng et al. 2020): one set of weights under many architectures.

`per=batch` draws one architecture per batch (Eq. 1): min_w E_alpha [loss of the batch under alpha]. `per=instance`
draws one for every example (Eq. 3, NSA-i), so that batch norm sees many architectures in every batch, and its
statistics fit any of them. With parameters of every architecture's own (settings of the space `wiring`) this is NSA-id.
No distribution is learnt: architectures come from what the space draws from, and all of them predict together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from typing_extensions import override

from polyarch import distributed
from polyarch.core import Batch, Feed, FeedSpec, Info, Problem, State, gradients
from polyarch.errors import PolyarchError
from polyarch.methods.drawn import DrawnArchitectures
from polyarch.settings import NonNegative, Positive
from polyarch.spaces.views import Dense, PerExample, View
from polyarch.streams import Streams
from polyarch.training.optimisers import Schedule, Sgd


@dataclass(frozen=True, kw_only=True)
class StochasticArchitectures(DrawnArchitectures):
    """Trains shared weights; belief is what the space draws from, and stays it."""

    name: ClassVar[str] = "stochastic-architectures"

    per: Literal["instance", "batch"] = "instance"
    """Draw an architecture for every example (NSA-i) or for every batch (NSA)."""
    epochs: Positive = 300
    """Passes over the training data (the paper)."""
    batch_size: Positive = 128
    """Examples per step, over all ranks (the paper)."""
    weights: Sgd = Sgd(
        lr=0.1,
        nesterov=True,
        weight_decay=5e-4,
        schedule=Schedule(kind="multistep", milestones=(0.3, 0.6, 0.8), gamma=0.2),
    )
    """How the shared weights are trained (the paper: milestones at epochs 90, 180 and 240; L2 of the released code)."""
    auxiliary: NonNegative = 0.1
    """Weight of an auxiliary classifier's loss, where the space has one (the paper)."""

    @override
    def draws_for(self, spec: FeedSpec) -> int:
        """One for every example, or one."""
        return spec.size if self.per == "instance" else 1

    @override
    def init(self, problem: Problem, streams: Sequence[Streams], previous: State | None) -> State:
        """Fresh weights; what the space draws from."""
        if self.per == "instance" and PerExample not in problem.supernet.views:
            raise PolyarchError(f"networks of the space {problem.space.name!r} run no batch of several; set per=batch")
        return super().init(problem, streams, previous)

    @override
    def step(self, problem: Problem, state: State, feed: Feed) -> Info:
        """One step on the mean log-likelihood, every example (or the batch) under its own architecture."""
        problem.supernet.train()
        batch = self.augment.batch(problem, feed.batches["train"][0])
        outputs = problem.supernet.outputs(batch.x, self._view(problem, state, batch))
        fit, *towers = (problem.log_likelihood(output, batch) for output in outputs)
        objective = fit + self.auxiliary * sum(towers)
        self.weights.step(state, gradients(-objective, list(state.weights.values())), feed.schedule["weights.lr"])
        return Info({"log_likelihood": fit.detach()}, forward=batch.size, backward=batch.size)

    def _view(self, problem: Problem, state: State, batch: Batch) -> View:
        """The batch's architecture, or every example's."""
        uniform = batch.draws["uniform"]
        if self.per == "batch":
            return Dense(self.chosen(state, uniform)[:, 0])
        return self.view(problem, state, distributed.share(uniform, 1))
