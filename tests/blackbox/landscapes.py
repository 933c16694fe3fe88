"""A space small enough to enumerate, an evaluator whose answers are known, and ways to ask."""

import itertools
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from polyarch.architecture import Decision
from polyarch.blackbox import Evaluator, Spent
from polyarch.spaces.base import Space

OPTIONS = (3, 1, 4, 2)
EVERY = tuple(itertools.product(*map(range, OPTIONS)))


@dataclass(frozen=True, kw_only=True)
class Grid(Space):
    """Nothing but decisions: black-box search sees no more of a space."""

    name: ClassVar[str] = "grid"

    @property
    def decisions(self):
        return tuple(Decision(f"d{k}", tuple(map(str, range(count)))) for k, count in enumerate(OPTIONS))

    def supernet(self, shape, repeats=1):
        raise NotImplementedError

    def build(self, architecture, shape):
        raise NotImplementedError


class Rugged(Evaluator):
    """A random landscape with many local optima; prices differ between architectures."""

    def __init__(self, seed=0):
        random = np.random.default_rng(seed)
        self.rewards = dict(zip(EVERY, random.permutation(len(EVERY)).astype(float).tolist(), strict=True))
        self.seconds = dict(zip(EVERY, random.uniform(1, 3, len(EVERY)).tolist(), strict=True))

    def price(self, choices):
        return Spent(evaluations=1, forward=30, backward=20, seconds=self.seconds[choices])

    def reward(self, choices):
        return self.rewards[choices]


def chance(seed=0):
    return torch.Generator().manual_seed(seed)


def asked(history):
    return [each.choices for each in history.evaluations]


def answered(asking, rewards):
    """Drives a method by hand: what it asks when it is given these rewards, and what it returns if it ends."""
    questions = [next(asking)]
    try:
        while True:
            questions.append(asking.send(rewards[questions[-1]]))
    except StopIteration as end:
        return questions, end.value
