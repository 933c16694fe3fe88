"""Where everything in one row of a picture stands.

Nodes stand in columns by their longest path from an input, and columns for labels stand between them. What leads
from one node to another holds a slot in every column on its way, level with its label there. Slots of a column never
overlap, and lines turn only between columns, so no line runs through a box and no label lies on another.

Read from top to bottom: the answer (`Layout`), `layout`, which gives it, and then its steps, in turn: slots, their
order within columns, their levels, the sides of columns, lines.
"""

from __future__ import annotations

import bisect
import itertools
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from scipy.optimize import linprog
from scipy.sparse import csr_array

from polyarch.report.strands import PILL, Bundle, Strand, shortened, text_width
from polyarch.spaces.graph import Node

NODE_TEXT = 12.5
NODE, ARROW, GAP, MARGIN = 30.0, 8.0, 9.0, 14.0
STARTS, SWEEPS = 30, 6
"""How long an order with few crossings is looked for; of very large graphs, less."""


@dataclass(frozen=True)
class Box:
    """A rectangle; `x` and `y` are its left upper corner."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True)
class Line:
    """A strand with its way: a curve from the first point to the second, level to the third, a curve again, ..."""

    strand: Strand
    points: tuple[tuple[float, float], ...]
    label: Box | None
    tip: bool
    """Whether the arrowhead of its bundle is on this line."""


@dataclass(frozen=True)
class Layout:
    """Where everything stands."""

    width: float
    height: float
    nodes: tuple[tuple[Node, Box], ...]
    """A node that ends one row and begins the next is there twice."""
    lines: tuple[Line, ...]
    legend: tuple[tuple[str, str, Box], ...] = ()
    """Operation, colour and place, where not every line has its label."""


def layout(nodes: Sequence[Node], bundles: Sequence[Bundle]) -> Layout:
    """Places nodes, given in topological order, and what joins them: all in one row, without a legend."""
    port_gap = max((strand.width for bundle in bundles for strand in bundle.strands), default=0) + 6
    slots, routes = _planned(nodes, bundles, port_gap)
    columns = min(_orders(slots), key=_disorder)
    _set_ports(routes, columns, port_gap)
    links = list(_links(routes))
    _set_levels(slots, columns, links)
    _set_sides(columns, links)
    return Layout(
        width=max((slot.right for slot in slots), default=0.0) + MARGIN,
        height=max((slot.level + slot.below for slot in slots), default=0.0) + MARGIN,
        nodes=tuple((slot.node, slot.box) for slot in slots if slot.node),
        lines=tuple(itertools.chain.from_iterable(map(_lines, routes))),
    )


# ---------------------------------------------------------------------------------------------------------------------
# Slots.


@dataclass(eq=False)
class _Slot:
    """The place that a node, or a bundle on its way, holds in a column. Later steps set its level and sides."""

    column: int
    above: float
    """Room that it needs above its level, and below."""
    below: float
    width: float
    """Its own; in the end that of its column."""
    node: Node | None = None
    offsets: Sequence[float] = ()
    """How much lower than the level each strand of the bundle is."""
    with_labels: bool = False
    number: int = 0
    befores: list[_Slot] = field(default_factory=list, repr=False)
    """Slots that lines join it with: in the column before, and in the column after."""
    afters: list[_Slot] = field(default_factory=list, repr=False)
    level: float = 0.0
    left: float = 0.0

    @property
    def right(self) -> float:
        return self.left + self.width

    @property
    def box(self) -> Box:
        return Box(self.left, self.level - self.above, self.width, self.above + self.below)


@dataclass
class _Route:
    """A bundle with its source, the slots on its way and its target."""

    bundle: Bundle
    slots: list[_Slot]
    ports: list[float] = field(default_factory=lambda: [0.0, 0.0])
    """How far below the middle of its source and of its target the bundle touches them."""


def _planned(nodes: Sequence[Node], bundles: Sequence[Bundle], port_gap: float) -> tuple[list[_Slot], list[_Route]]:
    """Slots of all nodes and then of all bundles on their way, in no order yet, and the routes through them."""
    layers = _layers(nodes, bundles)
    gaps = _label_gaps(bundles, layers)
    stops = sorted({(layer, False) for layer in layers.values()} | {(gap, True) for gap in gaps.values()})
    column = {stop: k for k, stop in enumerate(stops)}
    outs, ins = Counter(bundle.source for bundle in bundles), Counter(bundle.target for bundle in bundles)
    places = {}
    for node in nodes:
        half = max(NODE, port_gap * max(outs[node.name], ins[node.name]) + 8) / 2
        width = max(34.0, text_width(shortened(node.label), NODE_TEXT) + 20)
        places[node.name] = _Slot(column[layers[node.name], False], half, half, width, node)
    slots, routes = list(places.values()), []
    for bundle in bundles:
        source, target = places[bundle.source], places[bundle.target]
        labels = (gaps.get((bundle.source, bundle.target)), True)
        way = [_way_slot(bundle, k, stops[k] == labels) for k in range(source.column + 1, target.column)]
        slots += way
        routes.append(_Route(bundle, [source, *way, target]))
        for left, right in itertools.pairwise(routes[-1].slots):
            left.afters.append(right)
            right.befores.append(left)
    for number, slot in enumerate(slots):
        slot.number = number
    return slots, routes


def _layers(nodes: Sequence[Node], bundles: Sequence[Bundle]) -> dict[str, int]:
    """The longest way to each node."""
    layers: dict[str, int] = {}
    for node in nodes:
        layers[node.name] = max((layers[b.source] + 1 for b in bundles if b.target == node.name), default=0)
    return layers


def _label_gaps(bundles: Sequence[Bundle], layers: Mapping[str, int]) -> dict[tuple[str, str], int]:
    """After which layer a bundle with labels has them: where least else is written, near the middle of its way."""
    load: Counter[int] = Counter()
    gaps = {}
    for bundle in sorted(bundles, key=lambda b: layers[b.target] - layers[b.source]):
        if bundle.labels:
            first, end = layers[bundle.source], layers[bundle.target]
            gap = min(range(first, end), key=lambda g: (load[g], abs(g - (first + end - 1) / 2)))
            load[gap] += bundle.labels
            gaps[bundle.source, bundle.target] = gap
    return gaps


def _way_slot(bundle: Bundle, column: int, with_labels: bool) -> _Slot:
    offsets, above, below = bundle.offsets(with_labels)
    width = max(strand.label_width for strand in bundle.strands) if with_labels else 0.0
    return _Slot(column, above, below, width, offsets=offsets, with_labels=with_labels)


# ---------------------------------------------------------------------------------------------------------------------
# The order within columns: few crossings.

_Columns = Sequence[list[_Slot]]
"""From left to right, the slots of each from top to bottom."""


def _orders(slots: Sequence[_Slot]) -> Iterator[_Columns]:
    """The order given, then what several starts become, each improved sweep by sweep."""
    given = [[slot for slot in slots if slot.column == k] for k in sorted({slot.column for slot in slots})]
    yield given
    draws = random.Random(0)
    for start in range(min(STARTS, 1 + 6000 // max(len(slots), 1))):
        columns = [list(column) for column in given]
        if start:
            for column in columns:
                draws.shuffle(column)
        for _ in range(SWEEPS):
            before = [list(column) for column in columns]
            for rightwards in (True, False):
                _sort(columns, rightwards)
                _swap(columns)
                # Upside down there are as many crossings, and perhaps nodes are in a better order.
                yield min([list(column) for column in columns], [c[::-1] for c in columns], key=_inversions)
            if columns == before:
                break


def _sort(columns: _Columns, rightwards: bool) -> None:
    """Sorts one column after another by where the neighbours of its slots stand in the column before."""
    place = _places(columns)
    for column in columns if rightwards else reversed(columns):
        wanted = {}
        for slot in column:
            beside = [place[n] for n in (slot.befores if rightwards else slot.afters)] or [place[slot]]
            wanted[slot] = sum(beside) / len(beside)
        column.sort(key=lambda slot: wanted[slot])
        place.update(_places([column]))


def _swap(columns: _Columns) -> None:
    """Exchanges neighbours as long as that leaves fewer crossings."""
    place = _places(columns)
    for column in columns:
        sides = {slot: [[place[n] for n in side] for side in (slot.befores, slot.afters)] for slot in column}
        is_improved = True
        while is_improved:
            is_improved = False
            for k in range(len(column) - 1):
                upper, lower = column[k : k + 2]
                ends = itertools.chain.from_iterable(map(itertools.product, sides[upper], sides[lower]))
                if sum((a > b) - (a < b) for a, b in ends) > 0:
                    column[k : k + 2] = [lower, upper]
                    is_improved = True
        place.update(_places([column]))


def _disorder(columns: _Columns) -> tuple[int, int, int]:
    """What an order should have little of: crossings; ups and downs; nodes against the order they came in."""
    place = _places(columns)
    crossings = travel = 0
    for column, following in itertools.pairwise(columns):
        surplus = len(following) - len(column)
        ends: list[int] = []
        for start, slot in enumerate(column):
            for end in sorted(place[after] for after in slot.afters):
                crossings += len(ends) - bisect.bisect_right(ends, end)
                bisect.insort(ends, end)
                travel += abs(2 * (end - start) - surplus)
    return crossings, travel, _inversions(columns)


def _inversions(columns: _Columns) -> int:
    nodes = [[slot.number for slot in column if slot.node] for column in columns]
    return sum(a > b for column in nodes for a, b in itertools.combinations(column, 2))


def _places(columns: _Columns) -> dict[_Slot, int]:
    return {slot: place for column in columns for place, slot in enumerate(column)}


# ---------------------------------------------------------------------------------------------------------------------
# Levels: lines as straight as can be. Then the sides of columns, and lines.

_Link = tuple[_Slot, _Slot, float, float]
"""A step of a bundle from a slot to one in the next column; how much lower that is when the line is straight, as ports
are not in the middle of a node; how much straightness matters here."""


def _set_ports(routes: Sequence[_Route], columns: _Columns, port_gap: float) -> None:
    """Bundles touch a node in the order of their slots beside it."""
    place = _places(columns)
    for end, beside in ((0, 1), (-1, -2)):
        at_node: dict[_Slot, list[_Route]] = {}
        for route in sorted(routes, key=lambda route: place[route.slots[beside]]):
            at_node.setdefault(route.slots[end], []).append(route)
        for touching in at_node.values():
            for rank, route in enumerate(touching):
                route.ports[end] = (rank - (len(touching) - 1) / 2) * port_gap


def _links(routes: Sequence[_Route]) -> Iterator[_Link]:
    for route in routes:
        steps = list(itertools.pairwise(route.slots))
        for k, (left, right) in enumerate(steps):
            is_first, is_last = k == 0, k == len(steps) - 1
            # A bend within a long way is uglier than one at its ends; short ways make the spine of a picture.
            weight = 3.0 if len(steps) <= 2 else 1.0 if is_first or is_last else 12.0
            yield left, right, is_first * route.ports[0] - is_last * route.ports[-1], weight


def _set_levels(slots: Sequence[_Slot], columns: _Columns, links: Sequence[_Link]) -> None:
    """Lines become as straight as the room within columns allows, and all stands as high up as can be.

    A linear program: with absolute differences as costs most lines become exactly straight, and few bend.
    """
    if not slots:
        return
    rules: list[tuple[dict[int, float], float]] = []
    for bend, (left, right, shift, _) in enumerate(links, start=len(slots)):
        rules.append(({left.number: 1, right.number: -1, bend: -1}, -shift))
        rules.append(({left.number: -1, right.number: 1, bend: -1}, shift))
    for upper, lower in itertools.chain.from_iterable(map(itertools.pairwise, columns)):
        rules.append(({upper.number: 1, lower.number: -1}, -upper.below - lower.above - GAP))
    factors = [factor for row, _ in rules for factor in row.values()]
    places = [place for row, _ in rules for place in row]
    row_ends = [0, *itertools.accumulate(len(row) for row, _ in rules)]
    solution = linprog(
        [1e-3] * len(slots) + [weight for *_, weight in links],
        csr_array((factors, places, row_ends), shape=(len(rules), len(slots) + len(links))),
        [limit for _, limit in rules],
        bounds=[(MARGIN + slot.above, None) for slot in slots] + [(0, None)] * len(links),
    )
    for slot, level in zip(slots, solution.x, strict=False):
        slot.level = float(level)


def _set_sides(columns: _Columns, links: Sequence[_Link]) -> None:
    """Columns stand from left to right; the steeper the lines between two of them, the more room they get."""
    steepest = [0.0] * len(columns)
    for start, end, shift, _ in links:
        steepest[start.column] = max(steepest[start.column], abs(end.level - start.level - shift))
    left = MARGIN
    for column, rise in zip(columns, steepest, strict=True):
        width = max(slot.width for slot in column)
        for slot in column:
            slot.left, slot.width = left, width
        left += width
        left += min(24 + 0.15 * rise, 54)


def _lines(route: _Route) -> Iterator[Line]:
    """The strands of a bundle: together at both ends, side by side in slots."""
    source, *way, target = route.slots
    start = (source.right, source.level + route.ports[0])
    end = (target.left - ARROW, target.level + route.ports[-1])
    likeliest = max(route.bundle.strands, key=lambda strand: strand.probability)
    for k, strand in enumerate(route.bundle.strands):
        points, label = [start], None
        for slot in way:
            y = slot.level + slot.offsets[k]
            points += [(slot.left, y), (slot.right, y)]
            if slot.with_labels and strand.text:
                left = slot.left + (slot.width - strand.label_width) / 2
                label = Box(left, y - PILL / 2, strand.label_width, PILL)
        yield Line(strand, (*points, end), label, tip=strand is likeliest)
