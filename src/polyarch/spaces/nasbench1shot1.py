"""NAS-Bench-1Shot1: parts of NAS-Bench-101 that a one-shot network can search, in three sub-spaces.

A cell has an input (vertex 0), operation nodes (1, 2, ...) and an output (the last vertex). Every vertex takes a fixed
number of the vertices before it: a node adds them and applies its operation, the output puts them side by side. What
is open is which vertices those are, and a node's operation. Wherever a cell's input is taken, it passes a 1x1
convolution of the taker's own. Nodes that lead nowhere (loose ends) are allowed.
"""

from __future__ import annotations

import itertools
import re
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import ClassVar, Literal, final

import torch
from torch import Tensor, nn
from typing_extensions import override

from polyarch.architecture import Architecture, Decision
from polyarch.data.task import TaskShape
from polyarch.errors import PolyarchError
from polyarch.settings import Size
from polyarch.spaces.cells import CellSpace
from polyarch.spaces.choice import Choice, ChoicePoint
from polyarch.spaces.cost import CostTable, choice_costs
from polyarch.spaces.graph import Edge, Graph, Node, Probabilities
from polyarch.spaces.layer_factories import BatchedLayers, LayerFactory, PlainLayers
from polyarch.spaces.layers import Statistics
from polyarch.spaces.nasbench101 import INPUT, OPERATIONS, OUTPUT, Graph101
from polyarch.spaces.relaxation import Relaxation
from polyarch.spaces.repeats import Batched
from polyarch.spaces.supernets import ChoiceSupernet, chosen_module, sparse_selections
from polyarch.spaces.views import one_hot

PARENTS = {1: (1, 2, 2, 2, 2), 2: (1, 1, 2, 2, 3), 3: (1, 1, 1, 2, 2, 2)}
"""How many vertices each takes, by sub-space: those of vertices 1, 2, ..., the output last."""


@dataclass(frozen=True, kw_only=True)
class NasBench1Shot1(CellSpace):
    """14,580, 29,160 or 1,312,200 cells, one operation and one choice of parents per node.

    `build` gives the one-shot network's member. The benchmark's own network of a cell, to which its accuracies belong,
    is another: `nasbench101.network(space.graph101(architecture))`.
    """

    name: ClassVar[str] = "nasbench1shot1"

    sub_space: int = 1
    """1, 2 (four nodes) or 3 (five nodes)."""
    channels: Size = 16
    """C, the channels of a node in the first cells (the authors: 16)."""
    cells: Size = 9
    """How many cells follow each other; before those at one and two thirds images are halved and channels doubled."""
    statistics: Literal["batch", "running"] = "batch"
    """What batch norm of a supernet uses in evaluation mode, but for the stem's, which sees no cell: `running` ones are
    of many cells. The authors: `running`, by a momentum under which these are nearly the last batch's."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sub_space not in PARENTS:
            raise PolyarchError(f"sub_space is {self.sub_space}; it must be 1, 2 or 3")

    @property
    def parents(self) -> tuple[int, ...]:
        """How many vertices each takes: those of vertices 1, 2, ..., the output last."""
        return PARENTS[self.sub_space]

    @property
    def nodes(self) -> range:
        """The vertices that have an operation."""
        return range(1, len(self.parents))

    @cached_property
    def ways(self) -> dict[int, tuple[tuple[int, ...], ...]]:
        """Every way to take parents, for the vertices that have more than one; in the order of the options."""
        every = {v: tuple(itertools.combinations(range(v), k)) for v, k in enumerate(self.parents, start=1)}
        return {v: ways for v, ways in every.items() if len(ways) > 1}

    @cached_property
    def decisions(self) -> tuple[Decision, ...]:
        """One operation per node, then the parents of every vertex that has a choice."""
        return (
            *(Decision(f"op{v}", OPERATIONS) for v in self.nodes),
            *(
                Decision(f"parents{self._suffix(v)}", tuple("+".join(map(str, way)) for way in ways))
                for v, ways in self.ways.items()
            ),
        )

    @cached_property
    def relaxation(self) -> ParentRelaxation:
        """One operation per node, and possible parents of every vertex that has a choice."""
        inputs = tuple(Decision(self.inputs_name(v), tuple(map(str, range(v)))) for v in self.ways)
        return ParentRelaxation(self.decisions, inputs, tuple(self.ways.items()))

    def _suffix(self, vertex: int) -> str:
        return str(vertex) if vertex in self.nodes else "-out"

    def inputs_name(self, vertex: int) -> str:
        """The simplex of a vertex's possible parents."""
        return f"inputs{self._suffix(vertex)}"

    def check(self, shape: TaskShape) -> None:
        """Raises for inputs that are no images."""
        super().check(shape)
        if len(shape.input) != 3:
            raise PolyarchError(
                f"the space 'nasbench1shot1' needs images [channels, height, width], not inputs of shape {shape.input}"
            )

    @override
    def supernet(self, shape: TaskShape, repeats: int = 1) -> ChoiceSupernet:
        from polyarch.spaces.nasbench1shot1_merged import MergedNasBench1Shot1  # which is about the network below

        network = Network(self, shape, self._undecided(BatchedLayers(repeats)))
        merged = MergedNasBench1Shot1(self, network, repeats)
        return ChoiceSupernet(self, shape, repeats, Batched(network, repeats), merged)

    def build(self, architecture: Architecture, shape: TaskShape) -> nn.Module:
        """A member of the one-shot network, on its own; the benchmark's network is another (see the class)."""
        return Network(self, shape, Decided(PlainLayers(), sparse_selections(self.relaxation, architecture.choices)))

    def _undecided(self, factory: LayerFactory) -> Undecided:
        return Undecided(factory, {simplex.name: simplex.options for simplex in self.relaxation.simplices})

    def cost_table(self, shape: TaskShape) -> CostTable:
        """What every option adds to the cost."""
        return choice_costs(lambda: Network(self, shape, self._undecided(PlainLayers())), self.relaxation, shape)

    # -- texts and graphs ----------------------------------------------------------------------------------------------

    def parse(self, text: str) -> Architecture:
        """Reads NAME=OPTION,...; a vertex's parents may stand in any order."""
        parts = [part.split("=", 1) for part in text.replace(" ", "").split(",") if "=" in part]
        self._check_sub_space(text, {name for name, _ in parts})
        vertices = {f"parents{self._suffix(v)}": v for v in self.ways}
        ordered = [
            f"{name}={self._ordered(vertices[name], option) if name in vertices else option}" for name, option in parts
        ]
        return super().parse(",".join(ordered) or text)

    def _check_sub_space(self, text: str, names: set[str]) -> None:
        if names == {d.name for d in self.decisions}:
            return
        for other in PARENTS:
            if names == {d.name for d in NasBench1Shot1(sub_space=other).decisions}:
                raise PolyarchError(
                    f"{text!r} is a cell of sub-space {other}, not of {self.sub_space}; set sub_space={other}"
                )

    def _ordered(self, vertex: int, option: str) -> str:
        """The option that names the same parents in order; raises where they cannot be the vertex's."""
        if not re.fullmatch(r"[0-9]{1,2}(\+[0-9]{1,2})*", option):
            raise PolyarchError(f"parents of {self._vertex(vertex)} are {option!r}; write numbers like 0+1")
        parents = sorted(map(int, option.split("+")))
        if parents[-1] >= vertex:
            raise PolyarchError(
                f"{self._vertex(vertex)} takes vertex {parents[-1]}, which does not come before it, so the cell is "
                f"cyclic; its parents are among 0 to {vertex - 1}"
            )
        wanted = self.parents[vertex - 1]
        if len(set(parents)) != wanted or len(parents) != wanted:
            raise PolyarchError(
                f"parents of {self._vertex(vertex)} are {option!r}; it takes {wanted} of 0 to {vertex - 1}, each once"
            )
        return "+".join(map(str, parents))

    def _vertex(self, vertex: int) -> str:
        return f"node {vertex}" if vertex in self.nodes else "the output"

    def wiring(self, architecture: Architecture) -> tuple[tuple[int, ...], ...]:
        """The parents of vertices 1, 2, ..., the output last."""
        chosen = dict(zip(self.ways, architecture.choices[len(self.nodes) :], strict=True))
        return tuple(
            self.ways[v][chosen[v]] if v in chosen else tuple(range(v)) for v in range(1, len(self.parents) + 1)
        )

    def graph101(self, architecture: Architecture) -> Graph101:
        """The cell as one of NAS-Bench-101, loose ends and all; its module hash leaves them out.

        The authors add an idle vertex to cells of four nodes to fill up the benchmark's format. It changes no hash.
        """
        columns = [(), *self.wiring(architecture)]
        adjacency = tuple(tuple(int(source in column) for column in columns) for source in range(len(columns)))
        operations = (OPERATIONS[choice] for choice in architecture.choices[: len(self.nodes)])
        return Graph101(adjacency, (INPUT, *operations, OUTPUT))

    def key(self, architecture: Architecture) -> str:
        """The module hash, by which NAS-Bench-101 names cells."""
        return self.graph101(architecture).module_hash()

    def canonical(self, architecture: Architecture) -> str:
        """The module hash: cells that differ in loose ends or in the order of nodes are one."""
        return self.key(architecture)

    @override
    def graphs(self, probs: Probabilities) -> tuple[Graph, ...]:
        """The cell: nodes with their most probable operation, edges with the probability that they are there."""
        rows = {name: torch.tensor(list(row), dtype=torch.float64) for name, row in probs.items()}
        used = dict(zip((d.name for d in self.relaxation.simplices), self.relaxation.usage(rows), strict=True))
        labels = [INPUT, *(_most_probable(probs[f"op{v}"]) for v in self.nodes), OUTPUT]
        edges = [
            Edge(str(source), str(vertex), "", probability)
            for vertex in range(1, len(labels))
            for source, probability in enumerate(
                used[self.inputs_name(vertex)].tolist() if vertex in self.ways else [1.0] * vertex
            )
            if probability > 0
        ]
        return (Graph("cell", tuple(Node(str(v), label) for v, label in enumerate(labels)), tuple(edges)),)


@final
@dataclass(frozen=True)
class ParentRelaxation(Relaxation):
    """The authors' mixture: operations of a node, and possible parents of every vertex that has a choice."""

    inputs: tuple[Decision, ...]
    ways: tuple[tuple[int, tuple[tuple[int, ...], ...]], ...]
    """Of every vertex that has a choice, the ways to take parents."""

    @property
    @override
    def simplices(self) -> tuple[Decision, ...]:
        return (*self.decisions[: self._nodes], *self.inputs)

    @property
    def _nodes(self) -> int:
        """How many have an operation."""
        return len(self.decisions) - len(self.ways)

    @override
    def uses(self, decision: int, option: int) -> tuple[tuple[int, int], ...]:
        """A node's operation, or all the parents that it takes."""
        if decision < self._nodes:
            return ((decision, option),)
        _, ways = self.ways[decision - self._nodes]
        return tuple((decision, parent) for parent in ways[option])

    @override
    def mix(self, choices: Tensor) -> tuple[Tensor, ...]:
        """All of a vertex at once, since methods call it in every step."""
        operations, parents = choices.split([self._nodes, len(self.ways)], 1)
        inputs = [
            torch.stack([_has_parent(ways, parent, chosen) for parent in range(vertex)], -1)
            for (vertex, ways), chosen in zip(self.ways, parents.unbind(1), strict=True)
        ]
        return (*one_hot(operations, len(OPERATIONS)).to(choices.dtype).unbind(1), *inputs)

    @override
    def discretize(self, weights: Sequence[Tensor]) -> Tensor:
        """As the authors do: the best operation of a node, and of possible parents as many of the best as it takes.

        Among equals the earlier one wins.
        """
        operations, inputs = weights[: self._nodes], weights[self._nodes :]
        found = [w.argmax(-1) for w in operations]
        for (_, ways), w in zip(self.ways, inputs, strict=True):
            # A stable sort, since top-k promises no order among equals.
            best = w.sort(dim=-1, descending=True, stable=True).indices[:, : len(ways[0])]
            found.append(_numbered(ways, best))
        return torch.stack(found, -1)


def _has_parent(ways: Sequence[tuple[int, ...]], parent: int, chosen: Tensor) -> Tensor:
    """1 where the chosen way to take parents has this one: [n] -> [n]."""
    # The answers for all ways are the bits of one number: a table of them would have to be copied to the device, which
    # no captured step may.
    answers = sum((parent in way) << k for k, way in enumerate(ways))
    return torch.bitwise_right_shift(answers, chosen) & 1


def _numbered(ways: Sequence[tuple[int, ...]], parents: Tensor) -> Tensor:
    """Which way it is to take these parents, in any order: [n, parents] -> [n]."""
    code = torch.bitwise_left_shift(1, parents).sum(-1)
    return torch.stack([code == sum(1 << parent for parent in way) for way in ways], -1).byte().argmax(-1)


def _most_probable(probabilities: Sequence[float]) -> str:
    best = max(range(len(OPERATIONS)), key=lambda option: probabilities[option])
    return OPERATIONS[best] + (f" {100 * probabilities[best]:.0f} %" if probabilities[best] < 1 else "")


# ---------------------------------------------------------------------------------------------------------------------
# What stands at the points that decisions are about.

Make = Callable[[int], nn.Module]
"""Makes the module of an option."""


class Points(ABC):
    """Makes what stands at choice points."""

    factory: LayerFactory

    @abstractmethod
    def point(self, simplex: str, make: Make) -> nn.Module:
        """Where the options of a simplex are added by weight."""

    @abstractmethod
    def output(self, simplex: str, projection: Callable[[], nn.Module]) -> nn.Module:
        """A cell's output; `projection` makes what its input passes."""


@final
@dataclass(frozen=True)
class Undecided(Points):
    """Every option at every choice point, as a supernet has it."""

    factory: LayerFactory
    options: Mapping[str, tuple[str, ...]]

    @override
    def point(self, simplex: str, make: Make) -> nn.Module:
        return Choice(simplex, {name: make(option) for option, name in enumerate(self.options[simplex])})

    @override
    def output(self, simplex: str, projection: Callable[[], nn.Module]) -> nn.Module:
        return OpenOutput(simplex, self.factory, projection())


@final
@dataclass(frozen=True)
class Decided(Points):
    """At every choice point what one architecture has there."""

    factory: LayerFactory
    selections: Mapping[str, tuple[tuple[int, float], ...]]

    @override
    def point(self, simplex: str, make: Make) -> nn.Module:
        return _chosen(self.selections[simplex], make)

    @override
    def output(self, simplex: str, projection: Callable[[], nn.Module]) -> nn.Module:
        parents = [parent for parent, _ in self.selections[simplex]]
        return Output(self.factory, parents, projection() if 0 in parents else None)


def _chosen(selection: Sequence[tuple[int, float]], make: Make) -> nn.Module:
    module = chosen_module(selection, make)
    assert module is not None
    return module


class OpenOutput(ChoicePoint):
    """A cell's output while it is open which vertices it takes: every one times its weight."""

    def __init__(self, name: str, factory: LayerFactory, projection: nn.Module) -> None:
        """Takes over what brings the cell's input to the output's channels."""
        super().__init__(name)
        self.factory = factory
        # Named as the first option of a Choice, so that an architecture's network has it only where it is used.
        self.options = nn.ModuleList([projection])

    def forward(self, values: Sequence[Tensor]) -> Tensor:
        """Nodes side by side, zeros for those that are not taken, and the projected input on top."""
        calls = [partial(self.options[0], values), *(partial(_same, value) for value in values[1:])]
        projected, *nodes = self.weighted(calls)
        pairs = zip(nodes, values[1:], strict=True)
        joined = self.factory.cat([torch.zeros_like(value) if node is None else node for node, value in pairs])
        return joined if projected is None else joined + projected


def _same(value: Tensor) -> Tensor:
    return value


class Output(nn.Module):
    """A cell's output in one architecture."""

    def __init__(self, factory: LayerFactory, parents: Sequence[int], projection: nn.Module | None) -> None:
        """Takes over what brings the cell's input to the output's channels, where the output takes it."""
        super().__init__()
        self.factory = factory
        self.parents = tuple(parents)
        self.parts = nn.ModuleList([] if projection is None else [projection])

    def forward(self, values: Sequence[Tensor]) -> Tensor:
        """Nodes side by side, zeros for those that are not taken, and the projected input on top."""
        nodes = [v if k in self.parents else torch.zeros_like(v) for k, v in enumerate(values) if k > 0]
        return sum((projection(values) for projection in self.parts), self.factory.cat(nodes))


# ---------------------------------------------------------------------------------------------------------------------
# The network, from a layer factory and what stands at its choice points.


def conv_norm_relu(
    factory: LayerFactory, inputs: int, outputs: int, kernel: int, statistics: Statistics = "running"
) -> nn.Sequential:
    """Convolution, batch norm, ReLU.

    The authors give the norm TensorFlow's momentum 0.997, which to torch means to keep 0.3 % of what was; this one has
    torch's own 0.1, so that running statistics are averages.
    """
    conv = factory.conv(inputs, outputs, kernel, padding=kernel // 2)
    return nn.Sequential(OrderedDict(conv=conv, norm=factory.norm(outputs, statistics=statistics), relu=nn.ReLU()))


class Parent(nn.Module):
    """One of a cell's values, and what is made of it before it is used."""

    def __init__(self, vertex: int, layers: nn.Module) -> None:
        """Takes the layers over."""
        super().__init__()
        self.vertex = vertex
        self.layers = layers

    def forward(self, values: Sequence[Tensor]) -> Tensor:
        """Takes the value out of all there are so far."""
        value: Tensor = self.layers(values[self.vertex])
        return value


class Cell(nn.Module):
    """Nodes in order, each an operation on the sum of its parents, and the output."""

    def __init__(self, space: NasBench1Shot1, inputs: int, channels: int, points: Points) -> None:
        """Makes what every vertex has.

        Args:
            space: whose cell it is.
            inputs: channels of the cell's input.
            channels: of a node.
            points: makes what stands at choice points.
        """
        super().__init__()
        factory, nodes = points.factory, space.nodes

        def parent(vertex: int, width: int) -> nn.Module:
            if vertex == 0:
                return Parent(0, conv_norm_relu(factory, inputs, width, 1, space.statistics))
            return Parent(vertex, nn.Identity())

        def node_inputs(node: int) -> nn.Module:
            if node in space.ways:
                return points.point(space.inputs_name(node), lambda v: parent(v, channels))
            return _chosen([(v, 1.0) for v in range(node)], lambda v: parent(v, channels))

        self.inputs = nn.ModuleDict({str(node): node_inputs(node) for node in nodes})
        self.operations = nn.ModuleDict(
            {str(node): points.point(f"op{node}", lambda k: _operation(space, factory, k, channels)) for node in nodes}
        )
        width = len(nodes) * channels
        self.output = points.output(space.inputs_name(len(nodes) + 1), lambda: parent(0, width))

    def forward(self, x: Tensor) -> Tensor:
        """[batch, inputs, h, w] -> [batch, nodes * channels, h, w]; loose ends are run like any node."""
        values = [x]
        for name, operation in self.operations.items():
            values.append(operation(self.inputs[name](values)))
        answer: Tensor = self.output(values)
        return answer


def _operation(space: NasBench1Shot1, factory: LayerFactory, option: int, channels: int) -> nn.Module:
    name = OPERATIONS[option]
    if name == "maxpool3x3":
        return nn.MaxPool2d(3, stride=1, padding=1)
    return conv_norm_relu(factory, channels, channels, 3 if name == "conv3x3-bn-relu" else 1, space.statistics)


class Network(nn.Module):
    """Stem, cells, and a linear layer on the mean over pixels."""

    def __init__(self, space: NasBench1Shot1, shape: TaskShape, points: Points) -> None:
        """Makes every layer; `points` makes what stands at the choice points of cells."""
        super().__init__()
        factory, channels = points.factory, space.channels
        self.stem = conv_norm_relu(factory, shape.input[0], channels, 3)
        self.halved_before = {space.cells // 3, 2 * space.cells // 3}
        self.cells = nn.ModuleList()
        before = channels
        for k in range(space.cells):
            channels *= 1 + (k in self.halved_before)
            self.cells.append(Cell(space, before, channels, points))
            before = len(space.nodes) * channels
        conv = factory.conv(before, channels, 1)
        norm = factory.norm(channels, affine=False, statistics=space.statistics)
        self.last = nn.Sequential(OrderedDict(relu=nn.ReLU(), conv=conv, norm=norm))
        self.head = factory.linear(channels, shape.outputs)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, channels, height, width] -> [batch, outputs]."""
        x = self.stem(x)
        for k, cell in enumerate(self.cells):
            if k in self.halved_before:
                x = nn.functional.max_pool2d(x, 2, padding=1)  # padded as the authors do: 32 pixels become 17, then 9
            x = cell(x)
        answer: Tensor = self.head(self.last(x).mean((2, 3)))
        return answer
