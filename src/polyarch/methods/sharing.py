"""What methods have in common that train the shared weights of many architectures: the recipe for the weights."""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from polyarch.architecture import Architecture
from polyarch.errors import PolyarchError
from polyarch.methods.base import Batch, Feed, FeedSpec, Method, Problem, State
from polyarch.settings import at_least
from polyarch.spaces.base import Hard, Soft, Space, View
from polyarch.spaces.only import certain
from polyarch.training import world
from polyarch.training.augment import Augment
from polyarch.training.judging import judged
from polyarch.training.optimisers import check_sgd, clip, cosine, sgd
from polyarch.training.streams import Streams


@dataclass(frozen=True, kw_only=True)
class WeightSharing(Method, ABC):
    """Trains shared weights on training data by the recipe of DARTS; how belief moves is each method's own."""

    stop: Literal["auto", "train", "valid", "never"] = "never"
    """As for every method; these searches keep the last state."""
    epochs: int = 50
    """Passes over the training data (DARTS)."""
    batch_size: int = 64
    """Examples of a training batch and of a search batch, over all ranks (DARTS)."""
    rate: float = 0.025
    """First learning rate of the weights (DARTS)."""
    last_rate: float = 0.001
    """What it falls to along a cosine (DARTS)."""
    momentum: float = 0.9
    """Of the weights (DARTS)."""
    nesterov: bool = False
    """Nesterov's momentum (searches on NAS-Bench-201)."""
    weight_decay: float = 3e-4
    """L2, on every weight (DARTS; searches on NAS-Bench-201: 5e-4)."""
    clip: float = 5.0
    """Gradients of the weights are scaled down to this norm; 0 is never (DARTS)."""
    crop: int = 0
    """Images are padded with black by so many pixels and cropped at random, in both kinds of batches (DARTS: 4)."""
    flip: bool = False
    """Images are mirrored at random (DARTS)."""
    cutout: int = 0
    """Side of a square that is cut out of every image at random."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sgd(self.rate, self.momentum, 0)
        for name in ("last_rate", "weight_decay", "clip"):
            at_least(name, getattr(self, name), 0)
        self._augment()

    def feeds(self, problem: Problem) -> dict[str, FeedSpec]:
        """A training batch for the weights, a search batch from validation data for belief."""
        size = self.size(problem, "train", "valid")
        return {"train": FeedSpec("train", size), "search": FeedSpec("valid", size)}

    def size(self, problem: Problem, *splits: str) -> int:
        """Examples of a batch: `batch_size`, or what the smallest of the splits has."""
        if "valid" in splits and "valid" not in problem.data:
            raise PolyarchError(f"{self.name} judges architectures on validation data; set valid (of the data) above 0")
        size = min(self.batch_size, *(len(problem.data[split]) for split in splits))
        return size - size % world.size()

    def rates(self, epoch: int) -> dict[str, float]:
        """See `Method.rates`."""
        return {"weights": cosine(self.rate, epoch, self.epochs, self.last_rate)}

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
        size = batch.y.shape[-1] * world.size()
        own = {
            key.removeprefix(f"{name}:"): value[:, k * size : (k + 1) * size]
            for key, value in feed.draws.items()
            if key.startswith(f"{name}:")
        }
        return Batch(self._augment().apply(batch.x, own, problem.black), batch.y)

    def start(self, problem: Problem, streams: Sequence[Streams]) -> None:
        """Fresh weights; refuses images that cannot be changed as the settings say."""
        self._augment().check(problem.supernet.shape.input)
        problem.supernet.reset([s["init"] for s in streams])

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

    def evaluate(self, problem: Problem, state: State, split: str) -> dict[str, Tensor]:
        """The mode's mean log-likelihood and everyday measure, with the shared weights; the objective is the mixture's.

        `supernet_...` is the supernet mixed by belief, where it can be; else the mode is the objective too.
        """
        belief = self.distribution(problem.space, state.belief)
        found = judged(problem, Hard(belief.mode()), split)
        if Soft in problem.supernet.views:
            mixed = judged(problem, Soft(belief.centre()), split)
            found |= {f"supernet_{name}": value for name, value in mixed.items() if name != "objective"}
            found["objective"] = mixed["objective"]
        return found

    def watch(self, problem: Problem, state: State) -> dict[str, Tensor]:
        """Of the mode of a cell space: the share of skips among its operations, and its depth in edges."""
        if not problem.space.has_cells:
            return {}
        modes = problem.space.decode(self.distribution(problem.space, state.belief).mode())
        found = [collapse(problem.space, mode) for mode in modes]
        return {name: torch.tensor([own[name] for own in found]) for name in found[0]}

    def _augment(self) -> Augment:
        return Augment(self.crop, self.flip, self.cutout)


def collapse(space: Space, architecture: Architecture) -> dict[str, float]:
    """How far an architecture has collapsed.

    Its first cell's `cell_depth`, the `skip_share` of its operations, and whether that is more than the space bears
    (`collapsed`, 1 or 0).
    """
    cell = space.graphs(certain(space, architecture))[0]
    operations = [edge.label for edge in cell.edges if edge.label]
    found = {"cell_depth": float(cell.depth())}
    if operations:
        share = sum(label.startswith("skip") for label in operations) / len(operations)
        found |= {"skip_share": share, "collapsed": float(share > space.most_skips)}
    return found


def loss(problem: Problem, batch: Batch, view: View) -> Tensor:
    """Mean negative log-likelihood [repeats] of a batch."""
    return -world.mean(problem.likelihood.log_likelihood(problem.supernet(batch.x, view), batch.y))
