"""What methods have in common that train the shared weights of many architectures."""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from polyarch import distributed
from polyarch.architecture import Architecture
from polyarch.core import Batch, FeedSpec, Problem, State
from polyarch.errors import PolyarchError
from polyarch.methods.recipe import Recipe
from polyarch.settings import at_least
from polyarch.spaces.base import Space
from polyarch.spaces.only import certain
from polyarch.spaces.views import Dense, Soft, View
from polyarch.training.judging import judged
from polyarch.training.optimisers import cosine


@dataclass(frozen=True, kw_only=True)
class WeightSharing(Recipe, ABC):
    """Trains shared weights on training data by the recipe of DARTS; how belief moves is each method's own."""

    stop: Literal["auto", "train", "valid", "never"] = "never"
    """As for every method; these searches keep the last state."""
    epochs: int = 50
    """Passes over the training data (DARTS)."""
    batch_size: int = 64
    """Examples of a training batch and of a search batch, over all ranks (DARTS)."""
    last_rate: float = 0.001
    """What the learning rate falls to along a cosine (DARTS)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least("last_rate", self.last_rate, 0)

    def feeds(self, problem: Problem) -> dict[str, FeedSpec]:
        """A training batch for the weights, a search batch from validation data for belief."""
        size = self.size(problem, "train", "valid")
        return {"train": FeedSpec("train", size), "search": FeedSpec("valid", size)}

    def size(self, problem: Problem, *splits: str) -> int:
        """Examples of a batch: `batch_size`, or what the smallest of the splits has."""
        if "valid" in splits and "valid" not in problem.data:
            raise PolyarchError(f"{self.name} judges architectures on validation data; set valid (of the data) above 0")
        size = min(self.batch_size, *(len(problem.data[split]) for split in splits))
        return size - size % distributed.size()

    def rates(self, epoch: int) -> dict[str, float]:
        """See `Method.rates`."""
        return {"weights": cosine(self.rate, epoch, self.epochs, self.last_rate)}

    def evaluate(self, problem: Problem, state: State, split: str) -> dict[str, Tensor]:
        """The mode's mean log-likelihood and everyday measure, with the shared weights; the objective is the mixture's.

        `supernet_...` is the supernet mixed by belief, where it can be; else the mode is the objective too.
        """
        belief = self.distribution(problem.space, state.belief)
        found = judged(problem, Dense(belief.mode()), split)
        if Soft in problem.supernet.views:
            mixed = judged(problem, Soft(belief.mean_weights()), split)
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


def loss(problem: Problem, batch: Batch, view: View, kept: Mapping[str, Tensor] | None = None) -> Tensor:
    """Mean negative log-likelihood [repeats] of a batch; `kept` is what `Supernet.outputs` takes."""
    outputs = problem.supernet.outputs(batch.x, view, kept)[0]
    return -distributed.mean(problem.likelihood.log_likelihood(outputs, batch.y))
