"""Spaces of cells: what a network repeats, and how it collapses when a search fills it with skips."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from polyarch.architecture import Architecture
from polyarch.spaces.base import Space
from polyarch.spaces.graph import Graph, Probabilities, certain, pictures
from polyarch.spaces.sub_spaces import SubSpace


@dataclass(frozen=True, kw_only=True)
class CellSpace(Space, ABC):
    """A space whose pictures are cells that a network repeats, so that their depth and their skips tell something."""

    most_skips: ClassVar[float] = 1.0
    """The share of skips among a cell's operations above which a search is said to have collapsed."""

    @abstractmethod
    def graphs(self, probs: Probabilities) -> tuple[Graph, ...]:
        """Pictures of belief: one per cell."""


def cells_of(space: Space) -> CellSpace | None:
    """The space of cells that a space is, or is part of; None where it has no cells."""
    while isinstance(space, SubSpace):
        space = space.space
    return space if isinstance(space, CellSpace) else None


def collapse(space: Space, architecture: Architecture) -> dict[str, float]:
    """How far an architecture has collapsed; nothing where there are no cells.

    Its first cell's `cell_depth`, the `skip_share` of its operations, and whether that is more than the space bears
    (`collapsed`, 1 or 0).
    """
    cells = cells_of(space)
    if cells is None:
        return {}
    cell = pictures(space, certain(space.decisions, architecture))[0]
    operations = [edge.label for edge in cell.edges if edge.label]
    found = {"cell_depth": float(cell.depth())}
    if operations:
        share = sum(label.startswith("skip") for label in operations) / len(operations)
        found |= {"skip_share": share, "collapsed": float(share > cells.most_skips)}
    return found
