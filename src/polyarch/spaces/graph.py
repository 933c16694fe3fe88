"""A picture of what is chosen, before it is drawn: named nodes, and edges with what runs on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from polyarch.architecture import Architecture, Decision


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


def certain(decisions: Sequence[Decision], architecture: Architecture) -> dict[str, list[float]]:
    """Probabilities that leave one architecture, as a picture of it takes them."""
    pairs = zip(decisions, architecture.choices, strict=True)
    return {d.name: [float(option == chosen) for option in range(len(d))] for d, chosen in pairs}
