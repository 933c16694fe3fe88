"""What a comparison always has beside its methods: networks that nobody searched for, at the same budget.

- **random architecture**: one that the space draws at random, another for every seed, trained alone for all of the
  budget.
- **largest network**: of a nested space the one that contains all others, trained alone.
- **uniform belief**: a search that learns nothing of architectures. Weights are shared by architectures that are drawn
  uniformly (`single-path`, or, where a space has networks for listed architectures alone,
  `stochastic-architectures`), and what is selected is the best on validation data of a few that are drawn.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

from polyarch.architecture import Architecture
from polyarch.core import Method
from polyarch.methods.fixed_depth import FixedDepth
from polyarch.methods.one_shot import OneShot
from polyarch.methods.standalone import alone
from polyarch.methods.stochastic import StochasticArchitectures
from polyarch.settings import dotted, make, plain, settings_of
from polyarch.spaces.base import Space
from polyarch.streams import Streams

TRAINING = ("weights", "augment", "stopping", "evaluation", "epochs", "batch_size")
"""Settings and parts that say how weights are trained."""


@final
@dataclass(frozen=True)
class Baseline:
    """A method that a comparison has unasked."""

    name: str
    about: str
    method: Callable[[int], Method]
    """By the seed of a run."""
    same_for_all: bool = True
    """Whether that is one method whatever the seed."""


def baselines_of(space: Space, like: Method) -> list[Baseline]:
    """Those of a space.

    Args:
        space: what is searched.
        like: a method whose training of weights they take over.
    """

    def trained(architecture: Architecture) -> Method:
        if space.nested:
            return made(FixedDepth, like, depth=architecture.choices[0])
        return alone(like, space, architecture)

    found = []
    if space.random().architectures > 1:
        about = "drawn from the space, another for every seed, and trained alone for all of the budget"
        found.append(Baseline("random architecture", about, lambda seed: trained(drawn(space, seed)), False))
    if space.nested:
        largest = space.architecture([len(space.decisions[0]) - 1])
        about = f"{largest}, which contains all others, trained alone for all of the budget"
        found.append(Baseline("largest network", about, lambda seed: made(FixedDepth, like)))
    if space.random().architectures > 1:
        kind = StochasticArchitectures if space.listed_only else OneShot
        about = "weights shared by architectures drawn uniformly, and nothing learnt of which are better"
        found.append(Baseline("uniform belief", about, lambda seed: made(kind, like)))
    return found


def drawn(space: Space, seed: int) -> Architecture:
    """The random architecture of a seed."""
    [choices] = space.random().sample(1, Streams(seed)["architecture"]).tolist()
    return space.architecture(choices)


def made(kind: type[Method], like: Method, **own: Any) -> Method:
    """A method with settings of its own, and those of another's training that are not what that has by default."""
    usual, known = settings_of(type(like)), settings_of(kind)
    told = {
        name: value
        for name, value in dotted(type(like), plain(like)).items()
        if name.partition(".")[0] in TRAINING and name in known and value != usual[name].default
    }
    method: Method = make(kind, {**told, **own})
    return method
