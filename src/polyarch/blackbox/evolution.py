"""Regularised evolution: a population in which the oldest dies, however good it is (Real et al., 2019, Algorithm 1)."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import ClassVar

import torch
from typing_extensions import override

from polyarch.blackbox.base import Asking, BlackBox, drawn, mutated, options_of
from polyarch.blackbox.history import Choices
from polyarch.settings import Positive
from polyarch.spaces.base import Space


@dataclass(frozen=True, kw_only=True)
class RegularisedEvolution(BlackBox):
    """The best of a few random members has a child that differs in one decision; the oldest member dies.

    Members are drawn with replacement, as in the paper's listing; a child may be one that lived before.
    """

    name: ClassVar[str] = "regularised-evolution"
    meaning: ClassVar[str] = "Children of the best of a few random members, in a population whose oldest member dies."

    population: Positive = 10
    """How many live at a time (10 in NAS-Bench-201's comparison; 100 in Real et al., 2019)."""
    sample: Positive = 3
    """How many are drawn for the best of them to be the parent (3 in NAS-Bench-201's comparison; 25 in Real et al.)."""

    @override
    def ask(self, space: Space, generator: torch.Generator) -> Asking:
        source, options = space.random(), options_of(space)
        members: deque[tuple[float, Choices]] = deque(maxlen=self.population)  # a full one drops its oldest
        while len(members) < self.population:
            choices = drawn(source, generator)
            members.append(((yield choices), choices))
        while True:
            places = torch.randint(self.population, (self.sample,), generator=generator).tolist()
            _, parent = max((members[place] for place in places), key=lambda member: member[0])
            child = mutated(parent, options, generator)
            members.append(((yield child), child))
