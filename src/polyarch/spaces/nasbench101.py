"""Cells of NAS-Bench-101 as values: their module hash, which is the benchmark's key, and the networks they stand for.

A cell is a directed acyclic graph of at most 7 vertices and 9 edges with an operation on every inner vertex. Two cells
that differ only in the order of their inner vertices are the same network and have the same module hash.
"""

from __future__ import annotations

import hashlib
import itertools
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from polyarch.errors import PolyarchError, unknown
from polyarch.settings import at_least

INPUT, OUTPUT = "input", "output"
OPERATIONS = ("conv3x3-bn-relu", "conv1x1-bn-relu", "maxpool3x3")
"""What an inner vertex may do, in the benchmark's order: the module hash counts them so."""
MAX_VERTICES, MAX_EDGES = 7, 9

_LABELS = {INPUT: -1, OUTPUT: -2} | {name: index for index, name in enumerate(OPERATIONS)}


@dataclass(frozen=True)
class Graph101:
    """One cell: which vertex feeds which, and what each does.

    Vertices stand in topological order, the input first and the output last. Some may be idle, that is, on no path from
    input to output; the benchmark takes them away before it counts vertices and edges, and so does this class.
    """

    adjacency: tuple[tuple[int, ...], ...]
    """[vertices, vertices], upper triangular: 1 where the row's vertex feeds the column's."""
    ops: tuple[str, ...]
    """'input', the operations of the inner vertices (of `OPERATIONS`), 'output'."""

    def __post_init__(self) -> None:
        _check_shape(self.adjacency, self.ops)
        _check_entries(self.adjacency)
        _check_operations(self.ops)
        # The hash is taken of the digits as Python writes them, so entries from an array become plain integers.
        object.__setattr__(self, "adjacency", tuple(tuple(int(entry) for entry in row) for row in self.adjacency))
        object.__setattr__(self, "ops", tuple(str(op) for op in self.ops))
        self._check_used()

    def _check_used(self) -> None:
        used = self.used()
        if not used:
            raise PolyarchError("a NAS-Bench-101 cell has no path from its input to its output; add the edges it lacks")
        edges = sum(self.adjacency[source][target] for source in used for target in used)
        for kind, count, most in (("vertices", len(used), MAX_VERTICES), ("edges", edges, MAX_EDGES)):
            if count > most:
                raise PolyarchError(
                    f"a NAS-Bench-101 cell has {count} {kind} between input and output; it may have at most {most}"
                )

    def parents(self, vertex: int) -> list[int]:
        """The vertices that feed one, in order."""
        return [source for source in range(vertex) if self.adjacency[source][vertex]]

    def children(self, vertex: int) -> list[int]:
        """The vertices that one feeds, in order."""
        return [target for target, edge in enumerate(self.adjacency[vertex]) if edge]

    def used(self) -> list[int]:
        """The vertices on a path from input to output, in order; none where there is no path."""
        last = len(self.ops) - 1
        fed, feeding = {0}, {last}
        for vertex in range(1, last + 1):
            if fed.intersection(self.parents(vertex)):
                fed.add(vertex)
        for vertex in reversed(range(last)):
            if feeding.intersection(self.children(vertex)):
                feeding.add(vertex)
        return sorted(fed & feeding)

    def pruned(self) -> Graph101:
        """The same network without its idle vertices."""
        return self._with_vertices(self.used())

    def canonical(self) -> Graph101:
        """The pruned cell with its vertices in the order in which the benchmark trained it; isomorphic cells agree.

        The benchmark enumerates cells by their edges, read as the digits of a number of which the last edge into the
        output is the first digit, then by their operations. Of the orders of a cell it trained the one met first, as
        the parameter counts on record show; the cells on record may be written in another order.
        """
        cell = self.pruned()
        last = len(cell.ops) - 1
        orders = ((0, *inner, last) for inner in itertools.permutations(range(1, last)))
        return min((cell._with_vertices(order) for order in orders if cell._leads_on(order)), key=_enumerated)

    def _leads_on(self, order: Sequence[int]) -> bool:
        """Whether every edge leads from an earlier vertex of `order` to a later one."""
        return not any(self.adjacency[later][earlier] for earlier, later in itertools.combinations(order, 2))

    def _with_vertices(self, order: Sequence[int]) -> Graph101:
        adjacency = tuple(tuple(self.adjacency[source][target] for target in order) for source in order)
        return Graph101(adjacency, tuple(self.ops[vertex] for vertex in order))

    def module_hash(self) -> str:
        """The benchmark's key of the pruned cell: 32 hexadecimal digits, the same for isomorphic cells.

        Every vertex starts from its degrees and its label; in each round it takes in the hashes of its neighbours, so
        that after as many rounds as there are vertices each hash has seen the whole cell.
        """
        cell = self.pruned()
        vertices = range(len(cell.ops))
        before, after = [cell.parents(v) for v in vertices], [cell.children(v) for v in vertices]
        hashes = [_md5(str((len(after[v]), len(before[v]), _LABELS[cell.ops[v]]))) for v in vertices]
        for _ in vertices:
            hashes = [_md5(f"{_joined(hashes, before[v])}|{_joined(hashes, after[v])}|{hashes[v]}") for v in vertices]
        return _md5(str(sorted(hashes)))


def _check_shape(adjacency: tuple[tuple[int, ...], ...], ops: tuple[str, ...]) -> None:
    if len(ops) < 2:
        raise PolyarchError(f"a NAS-Bench-101 cell has {len(ops)} operations; it needs 'input' and 'output' at least")
    widths = {len(row) for row in adjacency}
    if len(adjacency) != len(ops) or widths != {len(ops)}:
        raise PolyarchError(
            f"the adjacency of a NAS-Bench-101 cell has rows of lengths {[len(row) for row in adjacency]}; "
            f"with {len(ops)} operations it must be {len(ops)}x{len(ops)}"
        )


def _check_entries(adjacency: tuple[tuple[int, ...], ...]) -> None:
    for source, row in enumerate(adjacency):
        for target, entry in enumerate(row):
            if entry not in (0, 1):
                raise PolyarchError(
                    f"entry {source},{target} of a NAS-Bench-101 adjacency is {entry}; it must be 0 or 1"
                )
            if entry and target <= source:
                raise PolyarchError(
                    f"edge {source}->{target} of a NAS-Bench-101 cell leads back: the cell is cyclic, or out of order; "
                    "number its vertices so that every edge leads to a higher one"
                )


def _check_operations(ops: tuple[str, ...]) -> None:
    if ops[0] != INPUT or ops[-1] != OUTPUT:
        raise PolyarchError(
            f"the operations of a NAS-Bench-101 cell run from {ops[0]!r} to {ops[-1]!r}; they must run from {INPUT!r} "
            f"to {OUTPUT!r}"
        )
    for op in ops[1:-1]:
        if op not in OPERATIONS:
            raise unknown("NAS-Bench-101 operation", str(op), OPERATIONS)


def _enumerated(cell: Graph101) -> tuple[list[int], list[int]]:
    """What the benchmark's enumeration is sorted by, among cells of equally many vertices."""
    targets = reversed(range(len(cell.ops)))
    edges = [cell.adjacency[source][target] for target in targets for source in reversed(range(target))]
    return edges, [_LABELS[op] for op in cell.ops]


def _md5(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def _joined(hashes: list[str], vertices: list[int]) -> str:
    return "".join(sorted(hashes[v] for v in vertices))


# ---------------------------------------------------------------------------------------------------------------------
# The network of a cell, as the benchmark trained it.


def network(
    graph: Graph101, *, inputs: int = 3, channels: int = 128, stacks: int = 3, cells: int = 3, classes: int = 10
) -> nn.Sequential:
    """The benchmark's network of a cell: [batch, inputs, h, w] -> [batch, classes].

    It is the network of the canonical cell: where channels cannot be shared out evenly, the order of the vertices
    decides. First weights and the pace of the batch norms' running averages are torch's, not the benchmark's.

    Args:
        graph: the cell; idle vertices are left out.
        inputs: channels of an image.
        channels: channels of the first stack's cells.
        stacks: how many there are; from one to the next images are halved and channels doubled.
        cells: how many follow each other in a stack.
        classes: how many outputs.
    """
    for name, value in (("inputs", inputs), ("stacks", stacks), ("cells", cells), ("classes", classes)):
        at_least(name, value, 1)
    cell = graph.canonical()
    layers: list[nn.Module] = []
    before = channels
    for stack in range(stacks):
        width = channels * 2**stack
        if stack > 0:
            layers.append(nn.MaxPool2d(2, ceil_mode=True))
        for _ in range(cells):
            layers.append(Cell101(cell, before, width))
            before = width
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, classes))
    return nn.Sequential(OrderedDict(stem=_convolution(inputs, channels, 3), cells=nn.Sequential(*layers), head=head))


class Cell101(nn.Module):
    """A pruned cell at work: [batch, inputs, h, w] -> [batch, outputs, h, w]."""

    def __init__(self, graph: Graph101, inputs: int, outputs: int) -> None:
        """A projection for every vertex that the cell's input feeds, and an operation for every inner vertex."""
        super().__init__()
        self.graph = graph
        self.widths = vertex_channels(self.graph, inputs, outputs)
        self.last = len(self.graph.ops) - 1
        self.projections = nn.ModuleDict(
            {str(v): _convolution(inputs, self.widths[v], 1) for v in self.graph.children(0)}
        )
        self.operations = nn.ModuleDict(
            {str(v): _operation(self.graph.ops[v], self.widths[v]) for v in range(1, self.last)}
        )

    def forward(self, x: Tensor) -> Tensor:
        """Vertices add what feeds them, cut to their own channels; the output joins what feeds it."""
        values: dict[int, Tensor] = {}
        for vertex in range(1, self.last):
            fed_by = [values[v][:, : self.widths[vertex]] for v in self.graph.parents(vertex) if v > 0]
            values[vertex] = self.operations[str(vertex)](self._with_input(x, vertex, fed_by))
        joined = [values[v] for v in self.graph.parents(self.last) if v > 0]
        return self._with_input(x, self.last, [torch.cat(joined, 1)] if joined else [])

    def _with_input(self, x: Tensor, vertex: int, terms: list[Tensor]) -> Tensor:
        """Sums the terms, and the projected input of the cell where it feeds the vertex."""
        if str(vertex) in self.projections:
            terms = [*terms, self.projections[str(vertex)](x)]
        return sum(terms[1:], terms[0])


def vertex_channels(graph: Graph101, inputs: int, outputs: int) -> tuple[int, ...]:
    """Channels of every vertex of a pruned cell.

    The output's are shared out among the inner vertices that feed it, the first ones taking what is left over; any
    other vertex is as wide as the widest that it feeds.
    """
    last = len(graph.ops) - 1
    joined = [v for v in graph.parents(last) if v > 0]
    at_least("channels", outputs, max(1, len(joined)))
    widths = [inputs, *(0 for _ in range(1, last)), outputs]
    for place, vertex in enumerate(joined):
        widths[vertex] = outputs // len(joined) + (place < outputs % len(joined))
    for vertex in reversed(range(1, last)):
        if vertex not in joined:
            widths[vertex] = max(widths[v] for v in graph.children(vertex))
    return tuple(widths)


def _convolution(inputs: int, outputs: int, kernel: int) -> nn.Sequential:
    convolution = nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, bias=False)
    return nn.Sequential(OrderedDict(conv=convolution, norm=nn.BatchNorm2d(outputs), relu=nn.ReLU()))


def _operation(name: str, channels: int) -> nn.Module:
    if name == "maxpool3x3":
        return nn.MaxPool2d(3, stride=1, padding=1)
    return _convolution(channels, channels, 3 if name == "conv3x3-bn-relu" else 1)
