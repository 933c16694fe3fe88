"""A picture of what is chosen, before it is drawn: named nodes, and edges with what runs on them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Node:
    """A value inside a network. `label` is what is written on it."""

    name: str
    label: str


@dataclass(frozen=True)
class Edge:
    """What leads from one node to another, and how likely it is there: 1 in a picture of one architecture.

    Several edges may join the same two nodes, one an option.
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
