"""NAS-Bench-201: a cell of four nodes, one operation on each of its six edges, in a fixed skeleton.

Every node is the sum of what its incoming edges make of earlier nodes; the cell's output is the last node. The skeleton
is a stem, three stages of `cells` equal cells with C, 2C and 4C channels, a residual block of stride 2 between
stages, and a linear layer on the mean over pixels.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from torch import Tensor, nn
from typing_extensions import override

from polyarch.architecture import Architecture, Decision
from polyarch.data.task import TaskShape
from polyarch.errors import PolyarchError, unknown
from polyarch.settings import Size
from polyarch.spaces.cells import CellSpace
from polyarch.spaces.choice import Choice, total
from polyarch.spaces.cost import CostTable, choice_costs
from polyarch.spaces.graph import Edge, Graph, Node, Probabilities
from polyarch.spaces.layer_factories import BatchedLayers, LayerFactory, PlainLayers
from polyarch.spaces.layers import Statistics
from polyarch.spaces.relaxation import Relaxation, SimplexPerDecision
from polyarch.spaces.repeats import Batched
from polyarch.spaces.supernets import ChoiceSupernet, chosen_module, sparse_selections

OPERATIONS = ("none", "skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3")
NODES = 4
EDGES = tuple((target, source) for target in range(1, NODES) for source in range(target))
EXAMPLE = "|nor_conv_3x3~0|+|none~0|skip_connect~1|+|skip_connect~0|nor_conv_1x1~1|avg_pool_3x3~2|"


@dataclass(frozen=True, kw_only=True)
class NasBench201(CellSpace):
    """15,625 cells; texts are the benchmark's own strings."""

    name: ClassVar[str] = "nasbench201"
    most_skips: ClassVar[float] = 5 / 6

    channels: Size = 16
    """C, the channels of the first stage (the benchmark: 16)."""
    cells: Size = 5
    """N, the cells of a stage (the benchmark: 5)."""
    network: Literal["search", "evaluation"] = "search"
    """Cells of a `search` have batch norm without scale and shift, and a bias in convolutions, as the benchmark's
    searches do; those of `evaluation` are as its networks were trained."""
    statistics: Literal["batch", "running"] = "batch"
    """What batch norm of a supernet uses in evaluation mode, but for the stem's, which sees no cell: `running` ones are
    of many cells. NATS-Bench's searches: `batch` in cells and `running` between and after them."""

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """One operation per edge."""
        return tuple(Decision(edge_name(target, source), OPERATIONS) for target, source in EDGES)

    @property
    @override
    def relaxation(self) -> Relaxation:
        return SimplexPerDecision(self.decisions)

    def check(self, shape: TaskShape) -> None:
        """Raises for inputs that are no images."""
        super().check(shape)
        if len(shape.input) != 3:
            raise PolyarchError(
                f"the space 'nasbench201' needs images [channels, height, width], not inputs of shape {shape.input}"
            )

    def evaluated(self) -> NasBench201:
        """The same cells as the benchmark trained them."""
        return replace(self, network="evaluation")

    @override
    def supernet(self, shape: TaskShape, repeats: int = 1) -> ChoiceSupernet:
        from polyarch.spaces.nasbench201_merged import MergedNasBench201  # which is about the network below

        factory = BatchedLayers(repeats)
        network = Network(self, shape, factory, lambda edge, c: self._open(factory, edge, c))
        merged = MergedNasBench201(network, repeats) if self.network == "search" else None
        why_plain = "" if merged else "batch norm of network=evaluation has a scale and a shift"
        return ChoiceSupernet(self, shape, repeats, Batched(network, repeats), merged, why_plain)

    @override
    def build(self, architecture: Architecture, shape: TaskShape) -> nn.Module:
        selections = sparse_selections(self.relaxation, architecture.choices)

        def chosen(edge: str, channels: int) -> nn.Module:
            module = chosen_module(selections[edge], lambda option: self._operation(PlainLayers(), option, channels))
            assert module is not None
            return module

        return Network(self, shape, PlainLayers(), chosen)

    def _open(self, factory: LayerFactory, edge: str, channels: int) -> Choice:
        return Choice(edge, {name: self._operation(factory, k, channels) for k, name in enumerate(OPERATIONS)})

    def _operation(self, factory: LayerFactory, option: int, channels: int) -> nn.Module:
        name, affine = OPERATIONS[option], self.network == "evaluation"
        if name == "none":
            return Zero()
        if name == "skip_connect":
            return nn.Identity()
        if name == "avg_pool_3x3":
            return nn.AvgPool2d(3, stride=1, padding=1, count_include_pad=False)
        kernel = 3 if name == "nor_conv_3x3" else 1
        return relu_conv_norm(factory, channels, channels, kernel, affine=affine, statistics=self.statistics)

    def cost_table(self, shape: TaskShape) -> CostTable:
        """What every option adds to the cost."""
        space, factory = self.evaluated(), PlainLayers()
        return choice_costs(
            lambda: Network(space, shape, factory, lambda e, c: space._open(factory, e, c)), space.relaxation, shape
        )

    # -- texts ---------------------------------------------------------------------------------------------------------

    def format(self, choices: Sequence[int]) -> str:
        """The benchmark's string: |op~0|+|op~0|op~1|+|op~0|op~1|op~2|."""
        names = dict(zip(EDGES, (OPERATIONS[c] for c in choices), strict=True))
        nodes = (
            "|" + "".join(f"{names[target, source]}~{source}|" for source in range(target))
            for target in range(1, NODES)
        )
        return "+".join(nodes)

    def parse(self, text: str) -> Architecture:
        """Reads such a string; the edges into a node may stand in any order."""
        nodes = text.replace(" ", "").split("+")
        if len(nodes) != NODES - 1 or not all(re.fullmatch(r"\|(?:[^|~+]+~\d+\|)+", node) for node in nodes):
            raise PolyarchError(f"{text!r} is no cell of nasbench201; write one like {EXAMPLE}")
        found: dict[tuple[int, int], int] = {}
        for target, node in enumerate(nodes, start=1):
            for operation, source in re.findall(r"([^|~]+)~(\d+)", node):
                edge = (target, int(source))
                if edge[1] >= target:
                    raise PolyarchError(
                        f"{text!r}: node {target} takes node {source} as input, which comes after it, so the cell is "
                        f"cyclic; a node's inputs are the nodes before it: 0 to {target - 1}"
                    )
                if edge in found:
                    raise PolyarchError(f"{text!r}: the edge {edge_name(*edge)} stands there twice")
                if operation not in OPERATIONS:
                    raise unknown("operation of nasbench201", operation, OPERATIONS)
                found[edge] = OPERATIONS.index(operation)
        missing = [edge_name(*edge) for edge in EDGES if edge not in found]
        if missing:
            raise PolyarchError(
                f"{text!r} has {len(found)} edges, a cell of nasbench201 has {len(EDGES)}; add {', '.join(missing)}"
            )
        return self.architecture([found[edge] for edge in EDGES])

    def canonical(self, architecture: Architecture) -> str:
        """The benchmark's own simplification: skips are followed, operations on nothing are nothing, sums are in order.

        It tells 6,466 cells apart, the published number. Zeros in a sum stay there as `#`, and sums inside sums are
        not taken apart: doing so would tell fewer apart (4,930), but agree with no table.
        """
        operations = dict(zip(EDGES, (OPERATIONS[c] for c in architecture.choices), strict=True))
        values = ["0"]
        for target in range(1, NODES):
            parts = []
            for source in range(target):
                operation, value = operations[target, source], values[source]
                if operation == "none" or value == "#":
                    parts.append("#")
                else:
                    parts.append(value if operation == "skip_connect" else f"({value})@{operation}")
            values.append("+".join(sorted(parts)))
        return values[-1]

    @override
    def graphs(self, probs: Probabilities) -> tuple[Graph, ...]:
        """The cell."""
        labels = ["input", *(str(node) for node in range(1, NODES - 1)), "output"]
        edges = [
            Edge(str(source), str(target), operation, float(probability))
            for target, source in EDGES
            for operation, probability in zip(OPERATIONS, probs[edge_name(target, source)], strict=True)
            if probability > 0
        ]
        return (Graph("cell", tuple(Node(str(k), label) for k, label in enumerate(labels)), tuple(edges)),)


def edge_name(target: int, source: int) -> str:
    """The decision about an edge."""
    return f"{target}<-{source}"


# ---------------------------------------------------------------------------------------------------------------------
# The network, from a layer factory and a function that says what stands on an edge.


def relu_conv_norm(
    factory: LayerFactory,
    inputs: int,
    outputs: int,
    kernel: int,
    *,
    stride: int = 1,
    affine: bool = True,
    statistics: Statistics = "running",
) -> nn.Sequential:
    """ReLU, convolution, batch norm; without scale and shift the convolution has a bias, as in the benchmark."""
    conv = factory.conv(inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=not affine)
    norm = factory.norm(outputs, affine=affine, statistics=statistics)
    return nn.Sequential(OrderedDict(relu=nn.ReLU(), conv=conv, norm=norm))


class Zero(nn.Module):
    """Nothing: zeros, with a gradient of zeros."""

    def forward(self, x: Tensor) -> Tensor:
        """Zeros in the shape of x."""
        return x * 0


class Cell(nn.Module):
    """Four nodes, each the sum of its incoming edges."""

    def __init__(self, edges: Mapping[str, nn.Module]) -> None:
        """Takes over what stands on each edge."""
        super().__init__()
        self.edges = nn.ModuleDict(edges)

    def forward(self, x: Tensor) -> Tensor:
        """The last node's value."""
        values = [x]
        for target in range(1, NODES):
            node = total([self.edges[edge_name(target, s)](value) for s, value in enumerate(values)])
            assert node is not None
            values.append(node)
        return values[-1]


class Reduction(nn.Module):
    """A residual block that halves the image and widens it."""

    def __init__(self, factory: LayerFactory, inputs: int, outputs: int, statistics: Statistics) -> None:
        """Two convolutions beside a pooled shortcut."""
        super().__init__()
        self.first = relu_conv_norm(factory, inputs, outputs, 3, stride=2, statistics=statistics)
        self.second = relu_conv_norm(factory, outputs, outputs, 3, statistics=statistics)
        # Rounded up, as the convolution does where an image has an odd side; on even sides nothing changes.
        pool = nn.AvgPool2d(2, ceil_mode=True, count_include_pad=False)
        self.shortcut = nn.Sequential(OrderedDict(pool=pool, conv=factory.conv(inputs, outputs, 1)))

    def forward(self, x: Tensor) -> Tensor:
        """Half the height and width."""
        return self.shortcut(x) + self.second(self.first(x))


class Network(nn.Module):
    """The skeleton; `edge(name, channels)` makes what stands on an edge of a cell."""

    def __init__(
        self, space: NasBench201, shape: TaskShape, factory: LayerFactory, edge: Callable[[str, int], nn.Module]
    ) -> None:
        """Makes every layer."""
        super().__init__()
        names = [edge_name(*pair) for pair in EDGES]
        channels = space.channels
        stem = factory.conv(shape.input[0], channels, 3, padding=1)
        self.stem = nn.Sequential(OrderedDict(conv=stem, norm=factory.norm(channels)))
        self.blocks = nn.ModuleList()
        for stage in range(3):
            if stage:
                self.blocks.append(Reduction(factory, channels, 2 * channels, space.statistics))
                channels *= 2
            self.blocks.extend(Cell({name: edge(name, channels) for name in names}) for _ in range(space.cells))
        norm = factory.norm(channels, statistics=space.statistics)
        self.last = nn.Sequential(OrderedDict(norm=norm, relu=nn.ReLU()))
        self.head = factory.linear(channels, shape.outputs)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, channels, height, width] -> [batch, outputs]."""
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        answer: Tensor = self.head(self.last(x).mean((2, 3)))
        return answer
