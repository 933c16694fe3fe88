"""Weights trained by momentum SGD on images that may be changed at random: what most methods do with weights."""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from polyarch import distributed
from polyarch.core import Batch, Feed, Method, Problem, State
from polyarch.settings import at_least
from polyarch.streams import Streams
from polyarch.training.augment import Augment
from polyarch.training.optimisers import check_sgd, clip, sgd


@dataclass(frozen=True, kw_only=True)
class Recipe(Method, ABC):
    """How weights are trained; a subclass says on what, and gives the defaults of its paper."""

    rate: float = 0.025
    """First learning rate of the weights (DARTS)."""
    momentum: float = 0.9
    """Of the weights (DARTS, NAS-Bench-201)."""
    nesterov: bool = False
    """Nesterov's momentum (NAS-Bench-201)."""
    weight_decay: float = 3e-4
    """L2, on every weight (DARTS; NAS-Bench-201: 5e-4)."""
    clip: float = 5.0
    """Gradients of the weights are scaled down to this norm; 0 is never (DARTS: 5)."""
    crop: int = 0
    """Images are padded with black by so many pixels and cropped at random (DARTS, NAS-Bench-201: 4)."""
    flip: bool = False
    """Images are mirrored at random (DARTS, NAS-Bench-201)."""
    cutout: int = 0
    """Side of a square that is cut out of every image at random (evaluation in DARTS: 16)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sgd(self.rate, self.momentum, 0)
        at_least("weight_decay", self.weight_decay, 0)
        at_least("clip", self.clip, 0)
        self._augment()

    def draw(self, problem: Problem, streams: Streams) -> dict[str, Tensor]:
        """How the images of every batch are changed, under `FEED:NAME`."""
        drawn: dict[str, Tensor] = {}
        for feed, spec in self.feeds(problem).items():
            found = self._augment().draw(problem.supernet.shape.input, spec.size * spec.count, streams["augment"])
            drawn |= {f"{feed}:{name}": value for name, value in found.items()}
        return drawn

    def batch(self, problem: Problem, feed: Feed, name: str, k: int = 0) -> Batch:
        """The k-th batch of a feed, its images changed as was drawn."""
        batch = feed.batches[name][k]
        size = batch.y.shape[-1] * distributed.size()
        own = {
            key.removeprefix(f"{name}:"): value[:, k * size : (k + 1) * size]
            for key, value in feed.draws.items()
            if key.startswith(f"{name}:")
        }
        return Batch(self._augment().apply(batch.x, own, problem.black), batch.y)

    def start(self, problem: Problem, streams: Sequence[Streams]) -> None:
        """Fresh weights; refuses images that cannot be changed as the settings say."""
        self._augment().check(problem.supernet.shape.input)
        problem.supernet.reset_parameters([s["init"] for s in streams])

    def move_weights(self, state: State, gradients: list[Tensor], rate: Tensor) -> None:
        """One step of momentum SGD."""
        if self.clip:
            clip(gradients, self.clip)
        sgd(
            list(state.weights.values()),
            gradients,
            [state.optimiser[f"weights.{name}"] for name in state.weights],
            rate=rate,
            momentum=self.momentum,
            nesterov=self.nesterov,
            weight_decay=self.weight_decay,
        )

    def _augment(self) -> Augment:
        return Augment(self.crop, self.flip, self.cutout)
