"""The DARTS space: a normal and a reduction cell of four nodes, each the sum of two operations on earlier values.

A cell takes the outputs of the two cells before it (inputs 0 and 1) and gives its four nodes side by side (as inputs to
later nodes they are 2 to 5). Cells at one and two thirds of the depth are reduction cells: they halve the image and
double the channels. All normal cells are alike, and all reduction cells.

An architecture is what PARSEC draws: for each of a node's two slots a pair of input and operation. What DARTS learns
is one operation per edge, and an architecture is read out of that.
"""

from __future__ import annotations

import ast
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Literal, final

import torch
from torch import Tensor, nn
from typing_extensions import override

from polyarch.architecture import Architecture, Decision
from polyarch.data.task import TaskShape
from polyarch.errors import PolyarchError, unknown
from polyarch.settings import Size, at_least
from polyarch.spaces.cells import CellSpace
from polyarch.spaces.choice import Choice, Dropout, DropPath, total
from polyarch.spaces.cost import CostTable, choice_costs
from polyarch.spaces.darts_operations import (
    OPERATIONS,
    Auxiliary,
    Beginnings,
    FactorizedReduce,
    Style,
    operation,
    relu_conv_norm,
)
from polyarch.spaces.graph import Edge, Graph, Node, Probabilities
from polyarch.spaces.layer_factories import BatchedLayers, LayerFactory, PlainLayers
from polyarch.spaces.layers import made_once
from polyarch.spaces.relaxation import Relaxation
from polyarch.spaces.repeats import Batched
from polyarch.spaces.supernets import ChoiceSupernet, chosen_module, sparse_selections
from polyarch.spaces.views import one_hot

PARSEC_OPERATIONS = tuple(name for name in OPERATIONS if name != "none")
S2_OPERATIONS = ("skip_connect", "sep_conv_3x3")
CELLS = ("normal", "reduce")
NODES = 4
SLOTS = 2
INPUTS = 2
EDGES = tuple((node, source) for node in range(NODES) for source in range(node + INPUTS))
CONCAT = [node + INPUTS for node in range(NODES)]
SKIP_DROPOUT = "skip-dropout"
"""Names the choice points where a supernet's skips may pass through dropout (`Supernet.outputs`)."""
EXAMPLE = (
    "Genotype(normal=[('sep_conv_3x3', 1), ('skip_connect', 0), ...], normal_concat=[2, 3, 4, 5], reduce=[...], "
    "reduce_concat=[2, 3, 4, 5]), with 8 pairs per cell"
)


@dataclass(frozen=True, kw_only=True)
class Darts(CellSpace):
    """Pairs of input and operation in two cells; texts are the community's `Genotype(...)`."""

    name: ClassVar[str] = "darts"
    most_skips: ClassVar[float] = 3 / 8

    channels: Size = 16
    """C, the channels of a node in the first cells (DARTS: 16 in search, 36 in evaluation)."""
    layers: Size = 8
    """The number of cells (DARTS: 8 in search, 20 in evaluation)."""
    operations: tuple[str, ...] = OPERATIONS
    """What may stand on an edge. PARSEC leaves out `none`, S2 is `skip_connect,sep_conv_3x3`."""
    network: Literal["search", "evaluation"] = "search"
    """Cells of a `search` have batch norm without scale and shift, and one after every pooling; those of `evaluation`
    have an ordinary one, drop path, and beside them an auxiliary tower."""
    statistics: Literal["batch", "running"] = "batch"
    """What batch norm in the cells of a supernet uses in evaluation mode; DARTS's own search: `running`."""
    skip_limit: int = NODES * SLOTS
    """At most so many skips are read out for the normal cell; the least likely are taken back first (P-DARTS: 2)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least("skip_limit", self.skip_limit, 0)
        for name in self.operations:
            if name not in OPERATIONS:
                raise unknown("operation of darts", name, OPERATIONS)
            if self.operations.count(name) > 1:
                raise PolyarchError(f"operations name {name!r} twice; name every operation once")
        if not self._kept:
            raise PolyarchError("operations have nothing but 'none'; add one that does something, such as skip_connect")

    @cached_property
    def _kept(self) -> tuple[str, ...]:
        return _without_none(self.operations)

    @cached_property
    def decisions(self) -> tuple[Decision, ...]:
        """One pair of input and operation per slot, inputs in the outer order (Casale et al. 2019, Eq. 4 and 5)."""
        return tuple(
            Decision(f"{cell}.{node}.{slot}", tuple(f"{name}~{source}" for source in sources for name in self._kept))
            for cell in CELLS
            for node, sources in _nodes()
            for slot in range(SLOTS)
        )

    @cached_property
    def relaxation(self) -> EdgeRelaxation:
        """One operation per edge."""
        return EdgeRelaxation(self.decisions, self.operations, self.skip_limit)

    @property
    def reductions(self) -> tuple[int, int]:
        """The layers whose cells halve the image."""
        return self.layers // 3, 2 * self.layers // 3

    def fair_paths(self, uniform: Tensor) -> Tensor:
        """Every operation but `none` once on each edge of one drawn topology: each node's two inputs differ.

        See `methods.one_shot.fair_paths`; choices [n, operations, decisions].
        """
        found: list[Tensor] = []
        for _ in CELLS:
            for _, sources in _nodes():
                first = len(found)
                inputs = uniform[:, first, : len(sources)].argsort(-1)[:, :SLOTS]
                for slot in range(SLOTS):
                    # The last numbers of a row; inputs are drawn by the first.
                    order = uniform[:, first + slot, -len(self._kept) :].argsort(-1)
                    found.append(inputs[:, slot : slot + 1] * len(self._kept) + order)
        return torch.stack(found, -1)

    def check(self, shape: TaskShape) -> None:
        """Raises for inputs that are no images."""
        super().check(shape)
        if len(shape.input) != 3:
            raise PolyarchError(
                f"the space 'darts' needs images [channels, height, width], not inputs of shape {shape.input}"
            )

    def evaluated(self) -> Darts:
        """The same cells as DARTS trains them from scratch, in as many layers and channels as set."""
        return replace(self, network="evaluation")

    @override
    def supernet(self, shape: TaskShape, repeats: int = 1) -> ChoiceSupernet:
        from polyarch.spaces.darts_merged import MergedDarts  # which is about the network below

        style = self._style(BatchedLayers(repeats))
        network = Network(self, shape, style, lambda spot: self._open(style, spot))
        why_plain = ""
        if self.network != "search":
            why_plain = "batch norm of network=evaluation has a scale and a shift"
        elif not any("conv" in name for name in self.operations):
            why_plain = "there are no convolutions among the operations"
        merged = None if why_plain else MergedDarts(self, network, repeats)
        return ChoiceSupernet(self, shape, repeats, Batched(network, repeats), merged, why_plain)

    @override
    def build(self, architecture: Architecture, shape: TaskShape) -> nn.Module:
        style, selections = self._style(PlainLayers()), sparse_selections(self.relaxation, architecture.choices)

        def chosen(spot: Spot) -> nn.Module | None:
            return chosen_module(selections[spot.simplex], lambda option: self._operation(style, spot, option))

        return Network(self, shape, style, chosen)

    def _style(self, factory: LayerFactory) -> Style:
        return Style(factory, self.network == "search", self.statistics)

    def _open(self, style: Style, spot: Spot) -> Choice:
        return Choice(spot.simplex, {name: self._operation(style, spot, k) for k, name in enumerate(self.operations)})

    def _operation(self, style: Style, spot: Spot, option: int) -> nn.Module:
        module = operation(style, self.operations[option], spot.channels, spot.begin)
        if isinstance(style.factory, BatchedLayers) and style.search and isinstance(module, nn.Identity):
            return Dropout(SKIP_DROPOUT, salt=spot.number)
        if style.search or isinstance(module, nn.Identity):  # DARTS never drops an identity
            return module
        return nn.Sequential(OrderedDict(operation=module, drop=DropPath(spot.drop_path)))

    def cost_table(self, shape: TaskShape) -> CostTable:
        """What every option adds to the cost."""
        space = self.evaluated()
        style = space._style(PlainLayers())
        return choice_costs(
            lambda: Network(space, shape, style, lambda s: space._open(style, s)), space.relaxation, shape
        )

    # -- texts ---------------------------------------------------------------------------------------------------------

    def format(self, choices: Sequence[int]) -> str:
        """The community's text: Genotype(normal=[('sep_conv_3x3', 1), ...], normal_concat=[2, 3, 4, 5], ...)."""
        half = len(choices) // len(CELLS)
        rows = (choices[:half], choices[half:])
        fields = (
            f"{cell}={[self._pair(choice) for choice in row]}, {cell}_concat={CONCAT}"
            for cell, row in zip(CELLS, rows, strict=True)
        )
        return f"Genotype({', '.join(fields)})"

    def _pair(self, choice: int) -> tuple[str, int]:
        """Operation and input of a slot's option."""
        source, kept = divmod(int(choice), len(self._kept))
        return self._kept[kept], source

    def parse(self, text: str) -> Architecture:
        """Reads such a text; what it concatenates may also be written range(2, 6)."""
        choices = []
        for cell, pairs in _cells(text).items():
            if len(pairs) != NODES * SLOTS:
                raise PolyarchError(
                    f"the {cell} cell has {len(pairs)} pairs, a cell of darts has {NODES * SLOTS}: two per node"
                )
            choices += [self._option(cell, k // SLOTS, *pair) for k, pair in enumerate(pairs)]
        return self.architecture(choices)

    def _option(self, cell: str, node: int, name: str, source: int) -> int:
        """The option that a pair is for a node's slots."""
        if name == "none":
            raise PolyarchError(f"the {cell} cell has 'none', which no genotype has; use {', '.join(self._kept)}")
        if name not in OPERATIONS:
            raise unknown("operation of darts", name, OPERATIONS)
        if name not in self._kept:
            raise PolyarchError(
                f"the {cell} cell has {name!r}, which is not among this space's operations: "
                f"{', '.join(self.operations)}; use one of them, or set operations"
            )
        if source >= node + INPUTS:
            raise PolyarchError(
                f"the {cell} cell's node {node} takes input {source}, which does not come before it, so the cell is "
                f"cyclic; its inputs are 0 to {node + INPUTS - 1}"
            )
        return source * len(self._kept) + self._kept.index(name)

    def canonical(self, architecture: Architecture) -> str:
        """The text with a node's two slots in order: they are added."""
        choices = architecture.choices
        return self.format([c for k in range(0, len(choices), SLOTS) for c in sorted(choices[k : k + SLOTS])])

    @override
    def graphs(self, probs: Probabilities) -> tuple[Graph, ...]:
        """The two cells; an operation is as probable as it is that one slot at least takes it."""
        rows = {name: torch.tensor(list(row), dtype=torch.float64) for name, row in probs.items()}
        used = dict(zip((d.name for d in self.relaxation.simplices), self.relaxation.usage(rows), strict=True))
        labels = ["c_{k-2}", "c_{k-1}", *(str(node) for node in range(NODES)), "c_k"]

        def edges(cell: str) -> Iterable[Edge]:
            for node, source in EDGES:
                probabilities = used[f"{cell}.{edge_name(node, source)}"].tolist()
                for name, probability in zip(self.operations, probabilities, strict=True):
                    if probability > 0:
                        yield Edge(labels[source], str(node), name, probability)
            yield from (Edge(str(node), "c_k", "") for node in range(NODES))

        nodes = tuple(Node(label, label) for label in labels)
        return tuple(Graph(cell, nodes, tuple(edges(cell))) for cell in CELLS)


@final
@dataclass(frozen=True)
class EdgeRelaxation(Relaxation):
    """What DARTS learns: one operation per edge, among them `none` where it is listed."""

    operations: tuple[str, ...]
    skip_limit: int

    @cached_property
    def _kept(self) -> tuple[str, ...]:
        return _without_none(self.operations)

    @cached_property
    def _none(self) -> int:
        """Where `none` stands among the operations; behind all of them where it does not."""
        return [*self.operations, "none"].index("none")

    @cached_property
    def simplices(self) -> tuple[Decision, ...]:
        """The operations of every edge."""
        return tuple(Decision(f"{cell}.{edge_name(*edge)}", self.operations) for cell in CELLS for edge in EDGES)

    @override
    def uses(self, decision: int, option: int) -> tuple[tuple[int, int], ...]:
        """The edge from a pair's input, and on it the pair's operation."""
        cell, node = divmod(decision // SLOTS, NODES)
        source, kept = divmod(option, len(self._kept))
        return ((cell * len(EDGES) + EDGES.index((node, source)), self.operations.index(self._kept[kept])),)

    @override
    def mix(self, choices: Tensor) -> tuple[Tensor, ...]:
        """All options of a node's edges at once, since methods call it in every step."""
        source, kept = choices // len(self._kept), choices % len(self._kept)
        option = kept + (kept >= self._none)
        numbers = (source * len(self.operations) + option).unflatten(1, (len(CELLS), NODES, SLOTS))
        found: list[Tensor] = []
        for cell in range(len(CELLS)):
            for node, sources in _nodes():
                used = one_hot(numbers[:, cell, node], len(sources) * len(self.operations)).sum(1)
                found += used.unflatten(1, (len(sources), -1)).unbind(1)
        return tuple(found)

    @override
    def discretize(self, weights: Sequence[Tensor]) -> Tensor:
        """As DARTS does: of every edge the best operation but `none`, and of a node's edges the best two.

        Slot 0 takes the edge of the larger weight; among equals the earlier edge or operation wins. While the normal
        cell has more skips than `skip_limit`, the least likely of them is taken back and the cell read out again.
        """
        found = self._discretize(weights)
        if self.skip_limit >= NODES * SLOTS or "skip_connect" not in self._kept or len(self._kept) == 1:
            return found
        for _ in range(len(EDGES)):  # no edge loses its skip twice; nothing is read back to see who is done
            skips, least = self._least_skip(weights, found)
            surplus = skips > self.skip_limit
            weights = [self._without_skip(w, surplus & (least == k)) for k, w in enumerate(weights)]
            found = self._discretize(weights)
        return found

    def _least_skip(self, weights: Sequence[Tensor], choices: Tensor) -> tuple[Tensor, Tensor]:
        """How many skips the normal cell has, and on which edge the least likely of them is: [n] each."""
        skip = self.operations.index("skip_connect")
        used = torch.stack([w[:, skip] for w in self.mix(choices)[: len(EDGES)]], 1) > 0
        likely = torch.stack([w[:, skip] for w in weights[: len(EDGES)]], 1)
        return used.sum(1), likely.masked_fill(~used, torch.inf).argmin(1)

    def _without_skip(self, weights: Tensor, where: Tensor) -> Tensor:
        """One edge's weights [n, options], its skip behind everything else in the rows `where`."""
        skip = one_hot(torch.tensor(self.operations.index("skip_connect"), device=weights.device), len(self.operations))
        return weights.masked_fill(where.unsqueeze(1) & skip, -torch.inf)

    def _discretize(self, weights: Sequence[Tensor]) -> Tensor:
        """Without a limit on skips."""
        edges = iter(weights)
        found = []
        for _ in CELLS:
            for _, sources in _nodes():
                rows = torch.stack([next(edges) for _ in sources], 1)
                best, kept = torch.cat([rows[..., : self._none], rows[..., self._none + 1 :]], -1).max(-1)
                # A stable sort, since top-k promises no order among equals.
                source = best.sort(dim=-1, descending=True, stable=True).indices[:, :SLOTS]
                found.append(source * len(self._kept) + kept.gather(1, source))
        return torch.cat(found, 1)


def _without_none(operations: Sequence[str]) -> tuple[str, ...]:
    """Those that an architecture may have: all but `none`."""
    return tuple(name for name in operations if name != "none")


def edge_name(node: int, source: int) -> str:
    """An edge, from an input to a node."""
    return f"{node}<-{source}"


def _nodes() -> Iterable[tuple[int, range]]:
    """Every node, with its inputs."""
    return ((node, range(node + INPUTS)) for node in range(NODES))


def _cells(text: str) -> dict[str, list[tuple[str, int]]]:
    """The pairs of each cell, as they stand in a genotype's text; nothing in it is run."""
    try:
        fields = _fields(ast.parse(text.strip(), mode="eval").body)
        for cell in CELLS:
            concat = ast.unparse(fields[f"{cell}_concat"])
            if concat not in (str(CONCAT), str(tuple(CONCAT)), "range(2, 6)"):
                raise PolyarchError(f"{cell}_concat is {concat}; cells of darts put all nodes side by side: {CONCAT}")
        return {cell: _pairs(cell, fields[cell]) for cell in CELLS}
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # the latter two where brackets nest too deeply
        raise PolyarchError(f"{text!r} is no genotype of darts; write one like {EXAMPLE}") from None


def _fields(tree: ast.expr) -> dict[str, ast.expr]:
    """What Genotype(...) is given, by name."""
    match tree:
        case ast.Call(func=ast.Name(id="Genotype"), args=[], keywords=keywords):
            fields = {keyword.arg or "**": keyword.value for keyword in keywords}
            if len(fields) == len(keywords) and fields.keys() == {*CELLS, *(f"{cell}_concat" for cell in CELLS)}:
                return fields
    raise ValueError("no genotype")


def _pairs(cell: str, value: ast.expr) -> list[tuple[str, int]]:
    if not isinstance(value, ast.List | ast.Tuple):
        raise PolyarchError(f"the {cell} cell is {ast.unparse(value)}; write a list of ('operation', input) pairs")
    pairs = []
    for item in value.elts:
        match item:
            case ast.Tuple(elts=[ast.Constant(value=str(name)), ast.Constant(value=int(source))]):
                pairs.append((name, source))
            case _:
                raise PolyarchError(f"the {cell} cell has {ast.unparse(item)}; write a pair ('operation', input)")
    return pairs


# ---------------------------------------------------------------------------------------------------------------------
# The network, from a layer factory and a function that says what stands on an edge.


@dataclass(frozen=True)
class Spot:
    """An edge of one cell of the network, and what an operation on it must know."""

    layer: int
    cell: str
    edge: str
    channels: int
    begin: Beginnings
    """What operations of all edges that leave the same node have."""

    @property
    def number(self) -> int:
        """Its own among all edges of the network."""
        return self.layer * len(EDGES) + [edge_name(*edge) for edge in EDGES].index(self.edge)

    @property
    def simplex(self) -> str:
        """The simplex of `EdgeRelaxation` that decides on it."""
        return f"{self.cell}.{self.edge}"

    @property
    def drop_path(self) -> str:
        """The choice point that training may leave out."""
        return f"drop.{self.layer}.{self.edge}"


EdgeMaker = Callable[[Spot], nn.Module | None]
"""Makes what stands on an edge; None where nothing does."""


class Cell(nn.Module):
    """Four nodes, each the sum of its incoming edges; inputs are first brought to the cell's channels and size."""

    def __init__(self, style: Style, before: nn.Module, last: nn.Module, edges: Mapping[str, nn.Module]) -> None:
        """Takes over what prepares the two inputs, and what stands on each edge."""
        super().__init__()
        self.factory = style.factory
        self.prepare = nn.ModuleList([before, last])
        self.edges = nn.ModuleDict(edges)

    def forward(self, before: Tensor, last: Tensor) -> Tensor:
        """The nodes' values, side by side."""
        values = [prepare(x) for prepare, x in zip(self.prepare, (before, last), strict=True)]
        with made_once(self):
            for node, sources in _nodes():
                names = {edge_name(node, source): values[source] for source in sources}
                value = total([self.edges[name](x) for name, x in names.items() if name in self.edges])
                assert value is not None
                values.append(value)
        return self.factory.cat(values[INPUTS:])


class Network(nn.Module):
    """Stem, cells, and a linear layer on the mean over pixels; `edge` makes what stands on an edge of a cell."""

    def __init__(self, space: Darts, shape: TaskShape, style: Style, edge: EdgeMaker) -> None:
        """Makes every layer."""
        super().__init__()
        factory, channels = style.factory, space.channels
        reductions = space.reductions
        before = last = 3 * channels
        halved = False  # whether the cell before was a reduction, so that its inputs differ in size
        stem = factory.conv(shape.input[0], last, 3, padding=1)
        self.stem = nn.Sequential(OrderedDict(conv=stem, norm=factory.norm(last)))
        self.cells = nn.ModuleList()
        self.auxiliary: Auxiliary | None = None
        self.auxiliary_after = reductions[-1]
        for layer in range(space.layers):
            reduces = layer in reductions
            channels *= 1 + reduces
            prepare = FactorizedReduce if halved else relu_conv_norm
            edges = _edges(layer, reduces, channels, edge, isinstance(factory, BatchedLayers))
            self.cells.append(
                Cell(style, prepare(style, before, channels), relu_conv_norm(style, last, channels), edges)
            )
            before, last, halved = last, NODES * channels, reduces
            if layer == self.auxiliary_after and not style.search:
                self.auxiliary = Auxiliary(factory, last, shape.outputs)
        self.head = factory.linear(last, shape.outputs)

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        """[batch, channels, height, width] -> [batch, outputs]; in training with what the auxiliary tower says."""
        before = last = self.stem(x)
        auxiliary = None
        for layer, cell in enumerate(self.cells):
            before, last = last, cell(before, last)
            if layer == self.auxiliary_after and self.auxiliary is not None and self.training:
                auxiliary = self.auxiliary(last)
        answer: Tensor = self.head(last.mean((2, 3)))
        return answer if auxiliary is None else (answer, auxiliary)


def _edges(layer: int, reduces: bool, channels: int, edge: EdgeMaker, shared: bool) -> dict[str, nn.Module]:
    """What stands on the edges of a cell; a reduction cell halves the image on those from its inputs."""
    found = {}
    begins = [Beginnings(2 if reduces and source < INPUTS else 1, shared) for source in range(INPUTS + NODES)]
    for node, source in EDGES:
        spot = Spot(layer, CELLS[reduces], edge_name(node, source), channels, begins[source])
        module = edge(spot)
        if module is not None:
            found[spot.edge] = module
    return found
