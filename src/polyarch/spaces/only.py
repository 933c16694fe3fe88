"""One architecture of a space, alone: what is left to search once it is chosen, which is nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from torch import nn

from polyarch.architecture import Architecture, Decision
from polyarch.data.task import TaskShape
from polyarch.errors import PolyarchError
from polyarch.spaces.base import Space
from polyarch.spaces.graph import Graph
from polyarch.spaces.supernets import Looped


@dataclass(frozen=True, kw_only=True)
class Only(Space):
    """The network that `space.build` makes of one architecture, with any number of seeds."""

    name: ClassVar[str] = "only"

    space: Space = field(kw_only=False)
    chosen: Architecture = field(kw_only=False)

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """Those of the space, each with the chosen option alone."""
        pairs = zip(self.space.decisions, self.chosen.choices, strict=True)
        return tuple(Decision(d.name, (d.options[c],)) for d, c in pairs)

    def check(self, shape: TaskShape) -> None:
        """See `Space.check`."""
        self.space.check(shape)

    def supernet(self, shape: TaskShape, repeats: int = 1) -> Looped:
        """See `Space.supernet`."""
        return Looped(self, shape, repeats, lambda: self.space.build(self.chosen, shape))

    def build(self, architecture: Architecture, shape: TaskShape) -> nn.Module:
        """See `Space.build`."""
        return self.space.build(self.chosen, shape)

    def format(self, choices: Sequence[int]) -> str:
        """The text that the space gives it."""
        return self.chosen.text

    def parse(self, text: str) -> Architecture:
        """The one architecture there is."""
        if self.space.parse(text) != self.chosen:
            raise PolyarchError(f"this is about {self.chosen} alone, not about {text}")
        return self.architecture([0] * len(self.decisions))

    def canonical(self, architecture: Architecture) -> str:
        """See `Space.canonical`."""
        return self.space.canonical(self.chosen)

    def key(self, architecture: Architecture) -> str:
        """See `Space.key`."""
        return self.space.key(self.chosen)

    def graphs(self, probs: Mapping[str, Sequence[float]]) -> tuple[Graph, ...]:
        """The chosen architecture's."""
        return self.space.graphs(certain(self.space, self.chosen))


def certain(space: Space, architecture: Architecture) -> dict[str, list[float]]:
    """Probabilities that leave one architecture of a space."""
    pairs = zip(space.decisions, architecture.choices, strict=True)
    return {d.name: [float(option == chosen) for option in range(len(d))] for d, chosen in pairs}
