"""One architecture of a space, alone: what is left to search once it is chosen, which is nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from torch import nn
from typing_extensions import override

from polyarch.architecture import Architecture, Decision
from polyarch.data.task import TaskShape
from polyarch.errors import PolyarchError
from polyarch.spaces.base import Space
from polyarch.spaces.graph import Graph
from polyarch.spaces.relaxation import Relaxation, SimplexPerDecision
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

    @property
    @override
    def relaxation(self) -> Relaxation:
        return SimplexPerDecision(self.decisions)

    @override
    def check(self, shape: TaskShape) -> None:
        self.space.check(shape)

    @override
    def supernet(self, shape: TaskShape, repeats: int = 1) -> Looped:
        return Looped(self, shape, repeats, lambda: self.space.build(self.chosen, shape))

    @override
    def build(self, architecture: Architecture, shape: TaskShape) -> nn.Module:
        return self.space.build(self.chosen, shape)

    def format(self, choices: Sequence[int]) -> str:
        """The text that the space gives it."""
        return self.chosen.text

    def parse(self, text: str) -> Architecture:
        """The one architecture there is."""
        if self.space.parse(text) != self.chosen:
            raise PolyarchError(f"this is about {self.chosen} alone, not about {text}")
        return self.architecture([0] * len(self.decisions))

    @override
    def canonical(self, architecture: Architecture) -> str:
        return self.space.canonical(self.chosen)

    @override
    def key(self, architecture: Architecture) -> str:
        return self.space.key(self.chosen)

    def graphs(self, probs: Mapping[str, Sequence[float]]) -> tuple[Graph, ...]:
        """The chosen architecture's."""
        return self.space.graphs(certain(self.space, self.chosen))


def certain(space: Space, architecture: Architecture) -> dict[str, list[float]]:
    """Probabilities that leave one architecture of a space."""
    pairs = zip(space.decisions, architecture.choices, strict=True)
    return {d.name: [float(option == chosen) for option in range(len(d))] for d, chosen in pairs}
