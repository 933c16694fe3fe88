"""Where everything in one row of a picture of a graph stands.

Nodes stand in columns by their longest path from an input. What leads to the next column runs straight there; what
leads further is an arc above or below all that it passes, longer arcs outside shorter ones. Labels stand in columns
of their own between those of nodes, and lines turn only between columns: so no line runs through a box, and no label
lies on another.
"""

from __future__ import annotations

import itertools
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from polyarch.report.graph_edges import LABEL_HEIGHT, Connection, Stroke, shortened, text_width
from polyarch.spaces.graph import Node

NODE_TEXT = 12.5
NODE, ARROW, GAP, MARGIN = 30.0, 8.0, 9.0, 14.0
TURNING = 54.0


@dataclass(frozen=True)
class Box:
    """A rectangle; `x` and `y` are its left upper corner."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True)
class Line:
    """A stroke with its way: a curve from the first point to the second, level to the third, a curve to the last."""

    stroke: Stroke
    points: tuple[tuple[float, float], ...]
    label: Box | None
    has_tip: bool
    """Whether the arrowhead of its connection is on this line."""

    @property
    def path(self) -> str:
        """As SVG writes it."""
        (x, y), *rest = self.points
        path = f"M{x:.1f} {y:.1f}"
        for is_curve, (to_x, to_y) in zip(itertools.cycle((True, False)), rest, strict=False):
            if is_curve and abs(to_y - y) > 0.05:
                middle = (x + to_x) / 2
                path += f"C{middle:.1f} {y:.1f} {middle:.1f} {to_y:.1f} {to_x:.1f} {to_y:.1f}"
            else:
                path += f"H{to_x:.1f}"
            x, y = to_x, to_y
        return path

    @property
    def tip(self) -> str:
        """The corners of its arrowhead, if it has one."""
        x, y = self.points[-1]
        half = max(3.6, self.stroke.width / 2 + 2)
        return f"{x:.1f},{y - half:.1f} {x + ARROW:.1f},{y:.1f} {x:.1f},{y + half:.1f}" if self.has_tip else ""


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


@dataclass(eq=False)
class _Place:
    """Of a node: its column, how far it stands from the middle of it, and the room around the level of its lines."""

    node: Node
    column: int
    rank: float
    above: float = NODE / 2
    below: float = NODE / 2
    level: float = 0.0

    @property
    def width(self) -> float:
        return max(34.0, text_width(shortened(self.node.label), NODE_TEXT) + 20)


@dataclass(eq=False)
class _Route:
    """Of a connection: where it begins and ends, the columns between, and the level at which it passes them."""

    connection: Connection
    ends: tuple[_Place, _Place]
    generations: int
    """How many generations of nodes it leads on."""
    label_column: int | None
    side: int = 0
    """-1 for an arc above, 1 for one below, 0 for what leads to the next generation."""
    ports: list[float] = field(default_factory=lambda: [0.0, 0.0])
    """How far below the level of its source and of its target it touches them."""
    level: float = 0.0

    def __post_init__(self) -> None:
        self.offsets, self.above, self.below = self.connection.offsets()

    @property
    def way(self) -> range:
        return range(self.ends[0].column + 1, self.ends[1].column)

    @property
    def heights(self) -> list[float]:
        """Where it begins, passes columns if there are any, and ends."""
        start, end = (place.level + port for place, port in zip(self.ends, self.ports, strict=True))
        return [start, self.level, end] if self.way else [start, end]


def layout(
    nodes: Sequence[Node], connections: Sequence[Connection], top: float = 0.0, turning: float = TURNING
) -> Layout:
    """Places nodes, given in topological order, and what joins them: all in one row, which begins at a height.

    Lines have so much room at most to turn between two columns.
    """
    places, routes, count = _planned(nodes, connections)
    arcs = sorted((route for route in routes if route.generations > 1), key=lambda route: route.generations)
    _choose_sides(arcs)
    _set_ports(places, routes)
    tops, bottoms = _stack(count, places, routes)
    for arc in arcs:
        passed = slice(arc.way.start, arc.way.stop)
        if arc.side < 0:
            arc.level = min(tops[passed]) - GAP - arc.below
            tops[passed] = [arc.level - arc.above] * len(arc.way)
        else:
            arc.level = max(bottoms[passed]) + GAP + arc.above
            bottoms[passed] = [arc.level + arc.below] * len(arc.way)
    shift = top + MARGIN - min(tops, default=0.0)
    for place in places:
        place.level += shift
    for route in routes:
        route.level += shift
    columns = _columns(count, places, routes, turning)
    return Layout(
        width=columns[-1][1] + MARGIN if columns else MARGIN,
        height=max(bottoms, default=0.0) + shift + MARGIN,
        nodes=tuple((place.node, _box(columns[place.column], place)) for place in places),
        lines=tuple(itertools.chain.from_iterable(_lines(route, columns) for route in routes)),
    )


def _planned(nodes: Sequence[Node], connections: Sequence[Connection]) -> tuple[list[_Place], list[_Route], int]:
    """Nodes and connections with their columns, and how many columns there are."""
    generation: dict[str, int] = {}
    for node in nodes:
        sources = [c.source for c in connections if c.target == node.name]
        generation[node.name] = max((generation[source] + 1 for source in sources), default=0)
    label_gaps: dict[Connection, int] = {}
    for connection in connections:
        first, last = generation[connection.source], generation[connection.target]
        # Also strokes without labels need a column to part in, where they do not pass any.
        if connection.labels or (len(connection.strokes) > 1 and last == first + 1):
            label_gaps[connection] = (first + last - 1) // 2
    keys = {(g, False) for g in generation.values()} | {(gap, True) for gap in label_gaps.values()}
    column = {key: k for k, key in enumerate(sorted(keys))}
    places: dict[str, _Place] = {}
    for own in sorted(set(generation.values())):
        # Below each other in the order of what leads to them, which keeps crossings few.
        wanted = {}
        for node in nodes:
            if generation[node.name] == own:
                before = [places[c.source].rank for c in connections if c.target == node.name]
                wanted[node] = statistics.fmean(before) if before else 0.0
        for k, node in enumerate(sorted(wanted, key=lambda node: wanted[node])):
            places[node.name] = _Place(node, column[own, False], k - (len(wanted) - 1) / 2)
    routes = [
        _Route(
            connection,
            (places[connection.source], places[connection.target]),
            generation[connection.target] - generation[connection.source],
            column[label_gaps[connection], True] if connection in label_gaps else None,
        )
        for connection in connections
    ]
    return [places[node.name] for node in nodes], routes, len(column)


def _choose_sides(arcs: Sequence[_Route]) -> None:
    """An arc passes on the side on which its ends stand; from middle to middle, where fewer arcs are."""
    passing: dict[int, Counter[int]] = {-1: Counter(), 1: Counter()}
    for arc in arcs:
        gaps = range(arc.ends[0].column, arc.ends[1].column)
        lean = arc.ends[0].rank + arc.ends[1].rank
        fewer = min(passing, key=lambda side: max(passing[side][gap] for gap in gaps))
        arc.side = fewer if lean == 0 else -1 if lean < 0 else 1
        passing[arc.side].update(gaps)


def _set_ports(places: Sequence[_Place], routes: Sequence[_Route]) -> None:
    """Lines touch a node in the order of their levels, those to the next column in its middle; its box fits them."""
    gap = max((stroke.width for route in routes for stroke in route.connection.strokes), default=0) + 6
    for place in places:
        for end in (0, 1):
            touching = [route for route in routes if route.ends[end] is place]
            touching.sort(key=lambda route: (route.side * route.generations, route.ends[1 - end].rank))
            middle = [k for k, route in enumerate(touching) if route.side == 0] or range(len(touching))
            for k, route in enumerate(touching):
                route.ports[end] = port = gap * (k - (middle[0] + middle[-1]) / 2)
                place.above, place.below = max(place.above, 8 - port), max(place.below, 8 + port)


def _stack(count: int, places: Sequence[_Place], routes: Sequence[_Route]) -> tuple[list[float], list[float]]:
    """Puts what stands in a column below each other, around the middle; returns where every column begins and ends.

    It has as much room as its neighbours need, so that lines between them are not steep.
    """
    stacks: list[list[_Place | _Route]] = [[] for _ in range(count)]
    for place in sorted(places, key=lambda place: place.rank):
        stacks[place.column].append(place)
    for route in sorted(routes, key=lambda route: (route.ends[0].rank, route.ends[1].rank)):
        if route.side == 0 and route.way:
            stacks[route.way[0]].append(route)
    needed = [sum(item.above + GAP + item.below for item in stack) for stack in stacks]
    tops, bottoms = [0.0] * count, [0.0] * count
    for k, stack in enumerate(stacks):
        room = max(needed[max(k - 1, 0) : k + 2])
        for upper, lower in itertools.pairwise(stack):
            lower.level = upper.level + upper.below + GAP + (room - needed[k]) / len(stack) + lower.above
        middle = stack[-1].level / 2 if stack else 0.0
        for item in stack:
            item.level -= middle
            tops[k], bottoms[k] = min(tops[k], item.level - item.above), max(bottoms[k], item.level + item.below)
    return tops, bottoms


def _columns(
    count: int, places: Sequence[_Place], routes: Sequence[_Route], turning: float
) -> list[tuple[float, float]]:
    """Left and right side of every column; the steeper the lines between two of them, the more room they get."""
    widths, rises = [0.0] * count, [0.0] * count
    for place in places:
        widths[place.column] = max(widths[place.column], place.width)
    for route in routes:
        if route.label_column is not None:
            widths[route.label_column] = max(widths[route.label_column], route.connection.label_width)
        turns = route.ends[0].column, route.ends[1].column - 1
        for before, (start, end) in zip(turns, itertools.pairwise(route.heights), strict=False):
            rises[before] = max(rises[before], abs(end - start))
    found, left = [], MARGIN
    for width, rise in zip(widths, rises, strict=True):
        found.append((left, left + width))
        left += width + min(24 + 0.15 * rise, turning)
    return found


def _box(column: tuple[float, float], place: _Place) -> Box:
    left, right = column
    return Box(left, place.level - place.above, right - left, place.above + place.below)


def _lines(route: _Route, columns: Sequence[tuple[float, float]]) -> Iterator[Line]:
    """The strokes of a connection: together at both ends, side by side on the way."""
    source, target = route.ends
    heights = route.heights
    start, end = (columns[source.column][1], heights[0]), (columns[target.column][0] - ARROW, heights[-1])
    likeliest = max(route.connection.strokes, key=lambda stroke: stroke.probability)
    for offset, stroke in zip(route.offsets, route.connection.strokes, strict=True):
        y, way, label = route.level + offset, [], None
        if route.way:
            way = [(columns[route.way[0]][0], y), (columns[route.way[-1]][1], y)]
        if stroke.text and route.label_column is not None:
            middle = sum(columns[route.label_column]) / 2
            label = Box(middle - stroke.label_width / 2, y - LABEL_HEIGHT / 2, stroke.label_width, LABEL_HEIGHT)
        yield Line(stroke, (start, *way, end), label, has_tip=stroke is likeliest)
