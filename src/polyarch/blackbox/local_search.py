"""Local search: uphill among neighbours, and again from elsewhere (White et al., 2021, for architectures)."""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from typing_extensions import override

from polyarch.blackbox.base import Asking, BlackBox, drawn, neighbours, options_of
from polyarch.blackbox.history import Choices
from polyarch.spaces.base import Space

Known = dict[Choices, float]
"""Rewards of all that was evaluated."""


@dataclass(frozen=True, kw_only=True)
class LocalSearch(BlackBox):
    """Moves to a better architecture that differs in one decision; where there is none, starts again at random.

    It keeps a record and asks about no architecture twice. It ends early only where all that could be drawn is known.
    """

    name: ClassVar[str] = "local-search"
    meaning: ClassVar[str] = "Uphill among architectures that differ in one decision; again from elsewhere when stuck."

    move: Literal["first", "best"] = "first"
    """To the first neighbour that is better, in random order, or to the best of all neighbours. The first is ours: it
    finds its way for a few evaluations a step, where the best (steepest ascent) pays for all neighbours each time."""

    @override
    def ask(self, space: Space, generator: torch.Generator) -> Asking:
        """Every climb starts at an architecture that is not known yet."""
        known: Known = {}
        source, options, starts = space.random(), options_of(space), set[Choices]()
        while len(known) < math.prod(options) and len(starts) < source.architectures:
            start = drawn(source, generator)
            starts.add(start)
            if start not in known:
                known[start] = yield start
                yield from self.climb(start, known, options, generator)

    def climb(
        self, start: Choices, known: Known, options: Sequence[int], generator: torch.Generator
    ) -> Generator[Choices, float, Choices]:
        """Asks its way up to a local optimum, which it returns: no neighbour of it is better.

        Args:
            start: where to begin; its reward is known.
            known: rewards so far; grows.
            options: how many each decision has.
            generator: as for `ask`.
        """
        here, better = start, (yield from self._better(start, known, options, generator))
        while better != here:
            here, better = better, (yield from self._better(better, known, options, generator))
        return here

    def _better(
        self, here: Choices, known: Known, options: Sequence[int], generator: torch.Generator
    ) -> Generator[Choices, float, Choices]:
        """A better neighbour, or `here` itself where none is."""
        around = neighbours(here, options)
        found = here
        for place in torch.randperm(len(around), generator=generator).tolist():
            neighbour = around[place]
            if neighbour not in known:
                known[neighbour] = yield neighbour
            if known[neighbour] > known[found]:
                found = neighbour
                if self.move == "first":
                    break
        return found
