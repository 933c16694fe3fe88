"""Training one network properly: the network that was found, or any other of a space.

Two published protocols are presets: that of DARTS (cutout, auxiliary tower, drop path) and that of NAS-Bench-201.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from typing_extensions import override

from polyarch import distributed
from polyarch.architecture import Architecture
from polyarch.core import Batch, Feed, Info, Meaning, Method, Problem, Stage, State, gradients
from polyarch.distributions.categorical import Categorical
from polyarch.errors import PolyarchError
from polyarch.settings import NonNegative, Positive, Share, parts_of, settings_of
from polyarch.spaces.base import Space
from polyarch.spaces.sub_spaces import Restricted
from polyarch.spaces.views import Sparse
from polyarch.streams import Streams
from polyarch.training.augment import Augment
from polyarch.training.evaluation import evaluate_view
from polyarch.training.optimisers import Schedule, Sgd, momentum_buffers


@dataclass(frozen=True, kw_only=True)
class Standalone(Method):
    """Trains the network of one architecture: belief is a point mass."""

    name: ClassVar[str] = "standalone"
    meaning: ClassVar[Meaning] = Meaning("fixed", "A point: one architecture is trained, and none is searched.")
    draws_from_space: ClassVar[bool] = True

    architecture: str = ""
    """The architecture's text; `polyarch train` fills it in."""
    network: Literal["evaluation", "search"] = "evaluation"
    """`evaluation`: the form in which networks of the space are trained and used; `search`: as in its supernet, which
    inherited weights fit."""
    epochs: Positive = 50
    """Passes over the training data (DARTS: 600; NAS-Bench-201: 200, or 12)."""
    batch_size: Positive = 64
    """Examples per step, over all ranks; a last partial batch is dropped (DARTS: 96; NAS-Bench-201: 256)."""
    weights: Sgd = Sgd(lr=0.05, weight_decay=5e-4, schedule=Schedule(kind="cosine"))
    """How weights are trained (DARTS: lr 0.025, weight_decay 3e-4, grad_clip 5; NAS-Bench-201: lr 0.1, nesterov)."""
    augment: Augment = Augment()
    """How images are changed at random (DARTS: crop 4, flip, cutout 16; NAS-Bench-201: crop 4, flip)."""
    auxiliary: NonNegative = 0.0
    """Weight of the auxiliary tower's loss (DARTS: 0.4)."""
    drop_path: Share = 0.0
    """Probability that an edge is left out in the last epoch, rising from 0 (DARTS: 0.2)."""

    @override
    def check(self, space: Space) -> None:
        """Raises when the architecture is none of the space's."""
        if not self.architecture:
            raise PolyarchError("say which architecture to train: --arch TEXT, or a run to take it from")
        space.parse(self.architecture)

    @override
    def stages(self, space: Space) -> tuple[Stage, ...]:
        """One, in the space of that architecture alone."""
        form = space.evaluated() if self.network == "evaluation" else space
        return (Stage(Restricted.to(form, form.parse(self.architecture)), self.epochs),)

    @override
    def draw(self, problem: Problem, streams: Streams) -> dict[str, Any]:
        """How images are changed, and which edges are left out for which examples."""
        feeds = self.feeds(problem)
        drawn: dict[str, Any] = self.augment.draw(problem, feeds, streams)
        if self.drop_path and problem.supernet.drop_paths:
            shape = (1, len(problem.supernet.drop_paths), feeds["train"].size)
            drawn["train"]["drop_path"] = torch.rand(shape, generator=streams["noise"])
        return drawn

    @override
    def schedule(self, epoch: int) -> dict[str, float]:
        lr = self.weights.lr_at(epoch, self.epochs)
        return {"weights.lr": lr, "drop_path": self.drop_path * epoch / self.epochs}

    @override
    def init(self, problem: Problem, streams: Sequence[Streams], previous: State | None) -> State:
        """Fresh weights, or those of `previous`."""
        self.augment.check(problem.supernet.shape.input)
        problem.supernet.reset_parameters([s["init"] for s in streams])
        point = torch.zeros(problem.repeats, len(problem.space.decisions), 1, device=problem.device)
        state = State.of(problem.supernet, {"logits": point})
        if previous is not None:
            _inherit(state, previous)
        state.optimiser = momentum_buffers(weights=state.weights)
        return state

    @override
    def distribution(self, space: Space, belief: Mapping[str, Tensor]) -> Categorical:
        """All mass on the one architecture."""
        return Categorical(space.decisions, belief["logits"])

    @override
    def step(self, problem: Problem, state: State, feed: Feed) -> Info:
        """One step of gradient ascent on the mean log-likelihood, the auxiliary tower's added by weight."""
        problem.supernet.train()
        batch = self.augment.batch(problem, feed.batches["train"][0])
        output, *towers = problem.supernet.outputs(batch.x, _view(problem), self._kept(problem, feed, batch))
        fit = problem.log_likelihood(output, batch)
        objective = fit
        for tower in towers:
            objective = objective + self.auxiliary * problem.log_likelihood(tower, batch)
        self.weights.step(state, gradients(-objective, list(state.weights.values())), feed.schedule["weights.lr"])
        return Info({"log_likelihood": fit.detach()}, forward=batch.size, backward=batch.size)

    @override
    def evaluate(self, problem: Problem, state: State, split: str) -> dict[str, Tensor]:
        return evaluate_view(problem, _view(problem), split)

    def _kept(self, problem: Problem, feed: Feed, batch: Batch) -> Mapping[str, Tensor]:
        """Weights [repeats, batch] of every place that may be left out: 0, or 1 / (1 - rate)."""
        if "drop_path" not in batch.draws:
            return {}
        keep = 1 - feed.schedule["drop_path"]
        kept = (distributed.share(batch.draws["drop_path"], 2) < keep) / keep
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


def alone(search: Method, space: Space, architecture: Architecture) -> Standalone:
    """How a network of a search is trained alone: as `polyarch train` has it, but for what was set for the search.

    A rate, a batch size, changes to images and a number of epochs that somebody set suit the data, and stay. Those that
    a method has by default suit weights that many networks share, which one network learns from too slowly, and time in
    which belief forms. In no case are there more epochs than the search had. What a method of one's own does not have,
    or has in another form, is as `polyarch train` has it. So is early stopping: a search often keeps its last state,
    since belief goes on learning, and here nothing but weights does.
    """
    usual, own = Standalone(architecture=str(architecture)), type(search)
    defaults = {name: setting.default for name, setting in {**settings_of(own), **parts_of(own)}.items()}
    kept: dict[str, Any] = {}
    for name, kind in (("weights", Sgd), ("augment", Augment), ("batch_size", int)):
        value = getattr(search, name, None)
        if isinstance(value, kind) and value != defaults.get(name):
            kept[name] = value
    epochs = sum(stage.epochs for stage in search.stages(space))
    kept["epochs"] = epochs if epochs != defaults.get("epochs") else min(epochs, usual.epochs)
    return replace(usual, **kept)
