"""A picture of what is chosen, before it is drawn: named nodes, and edges with what runs on them.

A space that has pictures of its own has a method `graphs` (`Pictured`); others are shown as a chain of decisions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from polyarch.architecture import Architecture, Decision
from polyarch.catalogue import short

if TYPE_CHECKING:
    from polyarch.spaces.base import Space


@dataclass(frozen=True)
class Node:
    """A value inside a network. `label` is what is written on it."""

    name: str
    label: str


@dataclass(frozen=True)
class Edge:
    """What leads from one node to another, and how likely it is there: 1 in a picture of one architecture.

    Several edges may join the same two nodes, one per option.
    """

    source: str
    target: str
    label: str
    probability: float = 1.0


@dataclass(frozen=True)
class Graph:
    """One picture: a cell, or a chain of decisions. Nodes stand in topological order, the input first."""

    title: str
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]

    def depth(self) -> int:
        """Edges on the longest path to the last node that does something all the way: none leads nowhere."""
        longest = {node.name: 0 for node in self.nodes}
        reached = {e.target for e in self.edges}
        alive = {node.name for node in self.nodes if node.name not in reached}
        for node in self.nodes:
            for edge in self.edges:
                if edge.target == node.name and edge.source in alive and edge.label != "none":
                    alive.add(node.name)
                    longest[node.name] = max(longest[node.name], longest[edge.source] + 1)
        return longest[self.nodes[-1].name]


Probabilities = Mapping[str, Sequence[float]]
"""Of every decision's options, by the decision's name; one-hot for one architecture."""


@runtime_checkable
class Pictured(Protocol):
    """A space that has pictures of its own."""

    def graphs(self, probs: Probabilities) -> tuple[Graph, ...]:
        """Pictures of belief."""


def pictures(space: Space, probs: Probabilities) -> tuple[Graph, ...]:
    """Pictures of belief about a space: its own, or a chain of the decisions, with one edge per option."""
    if isinstance(space, Pictured):
        return space.graphs(probs)
    labels = ["input", *(d.name for d in space.decisions)]
    edges = [
        Edge(str(k), str(k + 1), option, float(probability))
        for k, decision in enumerate(space.decisions)
        for option, probability in zip(decision.options, probs[decision.name], strict=True)
        if probability > 0
    ]
    return (Graph(short(space.name), tuple(Node(str(k), label) for k, label in enumerate(labels)), tuple(edges)),)


def certain(decisions: Sequence[Decision], architecture: Architecture) -> dict[str, list[float]]:
    """Probabilities that leave one architecture, as a picture of it takes them."""
    pairs = zip(decisions, architecture.choices, strict=True)
    return {d.name: [float(option == chosen) for option in range(len(d))] for d, chosen in pairs}
