"""Training one network properly: the network that was found, or any other of a space.

Two published protocols are presets: that of DARTS (cutout, auxiliary tower, drop path) and that of NAS-Bench-201.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from polyarch import distributed
from polyarch.core import Feed, Info, Problem, Stage, State, gradients
from polyarch.distributions.categorical import Categorical
from polyarch.errors import PolyarchError
from polyarch.methods.recipe import Recipe
from polyarch.settings import at_least
from polyarch.spaces.base import Space
from polyarch.spaces.only import Only
from polyarch.spaces.views import Sparse
from polyarch.streams import Streams
from polyarch.training.judging import judged
from polyarch.training.optimisers import cosine, momentum_buffers


@dataclass(frozen=True, kw_only=True)
class Standalone(Recipe):
    """Trains the network of one architecture: belief is a point mass."""

    name: ClassVar[str] = "standalone"
    stays_listed: ClassVar[bool] = True

    architecture: str = ""
    """The architecture's text; `polyarch train` fills it in."""
    network: Literal["evaluation", "search"] = "evaluation"
    """`evaluation`: the form in which networks of the space are trained and used; `search`: as in its supernet, which
    inherited weights fit."""
    epochs: int = 50
    """Passes over the training data (DARTS: 600; NAS-Bench-201: 200, or 12)."""
    batch_size: int = 64
    """Examples a step, over all ranks; a last partial batch is dropped (DARTS: 96; NAS-Bench-201: 256)."""
    rate: float = 0.05
    """First learning rate; it falls to 0 along a cosine, epoch by epoch (DARTS: 0.025; NAS-Bench-201: 0.1)."""
    weight_decay: float = 5e-4
    """L2, on every weight (NAS-Bench-201; DARTS: 3e-4)."""
    clip: float = 0.0
    """Gradients are scaled down to this norm; 0 is never (DARTS: 5)."""
    auxiliary: float = 0.0
    """Weight of the auxiliary tower's loss (DARTS: 0.4)."""
    drop_path: float = 0.0
    """Probability that an edge is left out in the last epoch, rising from 0 (DARTS: 0.2)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least("auxiliary", self.auxiliary, 0)
        if not 0 <= self.drop_path < 1:
            raise PolyarchError(f"drop_path is a probability below 1, not {self.drop_path}")

    def check(self, space: Space) -> None:
        """Raises when the architecture is none of the space's."""
        if not self.architecture:
            raise PolyarchError("say which architecture to train: --arch TEXT, or a run to take it from")
        space.parse(self.architecture)

    def stages(self, space: Space) -> tuple[Stage, ...]:
        """One, in the space of that architecture alone."""
        form = space.evaluated() if self.network == "evaluation" else space
        return (Stage(Only(form, form.parse(self.architecture)), self.epochs),)

    def draw(self, problem: Problem, streams: Streams) -> dict[str, Tensor]:
        """How images are changed, and which edges are left out for which examples."""
        [spec] = self.feeds(problem).values()
        drawn = super().draw(problem, streams)
        if self.drop_path and problem.supernet.drop_paths:
            places = len(problem.supernet.drop_paths)
            drawn["drop_path"] = torch.rand(places, spec.size, generator=streams["noise"])
        return drawn

    def rates(self, epoch: int) -> dict[str, float]:
        """See `Method.rates`."""
        return {"weights": cosine(self.rate, epoch, self.epochs), "drop_path": self.drop_path * epoch / self.epochs}

    def init(self, problem: Problem, streams: Sequence[Streams], previous: State | None) -> State:
        """Fresh weights, or those of `previous`."""
        self.start(problem, streams)
        point = torch.zeros(problem.repeats, len(problem.space.decisions), 1, device=problem.data["train"].y.device)
        state = State.of(problem.supernet, {"logits": point})
        if previous is not None:
            _inherit(state, previous)
        state.optimiser = momentum_buffers(weights=state.weights)
        return state

    def distribution(self, space: Space, belief: Mapping[str, Tensor]) -> Categorical:
        """All mass on the one architecture."""
        return Categorical(space.decisions, belief["logits"])

    def step(self, problem: Problem, state: State, feed: Feed) -> Info:
        """One step of gradient ascent on the mean log-likelihood, the auxiliary tower's added by weight."""
        batch = self.batch(problem, feed, "train")
        problem.supernet.train()
        output, *towers = problem.supernet.outputs(batch.x, _view(problem), self._kept(problem, feed))
        fit = distributed.mean(problem.likelihood.log_likelihood(output, batch.y))
        objective = fit
        for tower in towers:
            objective = objective + self.auxiliary * distributed.mean(problem.likelihood.log_likelihood(tower, batch.y))
        found = gradients(-objective, list(state.weights.values()))
        self.move_weights(state, found, feed.rates["weights"])
        examples = batch.y.shape[-1] * distributed.size()
        return Info({"log_likelihood": fit.detach()}, forward=examples, backward=examples)

    def evaluate(self, problem: Problem, state: State, split: str) -> dict[str, Tensor]:
        """See `judged`."""
        return judged(problem, _view(problem), split)

    def _kept(self, problem: Problem, feed: Feed) -> Mapping[str, Tensor]:
        """Weights [repeats, batch] of every place that may be left out: 0, or 1 / (1 - rate)."""
        if "drop_path" not in feed.draws:
            return {}
        keep = 1 - feed.rates["drop_path"]
        kept = (distributed.share(feed.draws["drop_path"], 2) < keep) / keep
        return {name: kept[:, k] for k, name in enumerate(problem.supernet.drop_paths)}


def _view(problem: Problem) -> Sparse:
    return Sparse((0,) * len(problem.space.decisions))


@torch.no_grad()
def _inherit(state: State, previous: State) -> None:
    """Takes over weights and statistics; every one must be there, in its shape."""
    for own, given in ((state.weights, previous.weights), (state.buffers, previous.buffers)):
        for name, value in own.items():
            if name not in given or given[name].shape[1:] != value.shape[1:]:
                raise PolyarchError(
                    f"the inherited weights do not fit this network ({name} is missing or has another shape); "
                    "train it from scratch"
                )
            value.copy_(given[name].expand_as(value))
