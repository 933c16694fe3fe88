"""Cells, wirings and chains of decisions as SVG, written without any drawing program.

Nodes stand in columns by their longest path from an input, and columns for labels stand between them. What leads
from one node to another holds a slot in every column on its way, level with its label there. Slots of a column never
overlap, and lines turn only between columns, so no line runs through a box and no label lies on another.
"""

from __future__ import annotations

import bisect
import itertools
import random
import re
import unicodedata
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape

from scipy.optimize import linprog
from scipy.sparse import coo_array

from polyarch.errors import PolyarchError
from polyarch.spaces.graph import Edge, Graph, Node

UNLIKELY = 0.05
"""Options below this probability are hair-thin and have no label."""
MOST_OPTIONS = 6
"""Where more options join two nodes, the likeliest have an edge each and all others share one."""
CROWDED = 24
"""With more edges than this, only the likeliest option between two nodes has a label; a legend names the colours."""
WIDEST = 1080
"""A wider picture continues on a new row, where a single node connects what is before it with what is after it."""

NODE_TEXT, LABEL_TEXT, HEADING = 12.5, 11.0, 14.0
PILL, NODE, ARROW, SWATCH = 18.0, 30.0, 8.0, 18.0
GAP, MARGIN = 9.0, 14.0
LONGEST_TEXT = 34
STARTS, SWEEPS = 30, 6
"""How long an order with few crossings is looked for; of very large graphs, less."""
REST = "other options"

MUTED = "#667080"
SKIP, POOL, MAX_POOL = "#e5761f", "#8db943", "#2fa36b"
CONVOLUTIONS = {
    "dil": ("#b0a8f0", "#8a80de", "#6d5fd0", "#8b4fc0"),
    "sep": ("#86b6ee", "#3d8be0", "#2a66bd", "#4a56b8"),
    "": ("#7cc4e4", "#2b9ccc", "#1c7fae", "#3b6f9e"),
}
"""Dilated, separable and other convolutions; one tone a kernel size: 1, 3, 5, more."""
OTHERS = ("#c9a227", "#b8589c", "#1fa184", "#a9674b", "#6a77c9", "#d9628f", "#58b4d8", "#7d8f2e")
"""For operations of no known family. Like all colours here they read on light and dark cards alike."""


# ---------------------------------------------------------------------------------------------------------------------
# What stands where in a picture.


@dataclass(frozen=True)
class Box:
    """A rectangle; `x` and `y` are its left upper corner."""

    x: float
    y: float
    width: float
    height: float

    def lowered(self, y: float) -> Box:
        """The same box further down."""
        return replace(self, y=self.y + y)


@dataclass(frozen=True)
class Strand:
    """One option between two nodes, or several that share an edge, as it is drawn."""

    operation: str
    probability: float
    name: str
    """What is written on the line, and after it the share; both may be empty."""
    share: str
    hint: str
    """All there is to say; a browser shows it where the pointer rests."""
    colour: str
    width: float
    opacity: float
    dashed: bool

    @property
    def text(self) -> str:
        """The whole label."""
        return " ".join(filter(None, (self.name, self.share)))

    def unlabelled(self) -> Strand:
        """The same without a label."""
        return replace(self, name="", share="")


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
    """Where everything stands in a picture."""

    width: float
    height: float
    nodes: tuple[tuple[Node, Box], ...]
    """A node that ends one row and begins the next is there twice."""
    lines: tuple[Line, ...]
    legend: tuple[tuple[str, str, Box], ...]
    """Operation, colour and place, where not every line has its label."""


def draw(graph: Graph) -> str:
    """A picture of one graph as an SVG document; it may also stand inside a page, whose colours it then takes."""
    picture = layout(graph)
    return _document([graph.title], picture.width, picture.height, _drawn(picture))


def draw_all(graphs: Sequence[Graph]) -> str:
    """Several graphs in one SVG document, one below the other under their titles."""
    parts, top, width = [], 0.0, 0.0
    for graph in graphs:
        picture = layout(graph)
        heading = _shortened(graph.title)
        parts.append(_text(_plain(heading), MARGIN, top + 26, HEADING, ' font-weight="600"'))
        parts.append(f'<g transform="translate(0 {top + 34:g})">\n{_drawn(picture)}\n</g>')
        width = max(width, picture.width, text_width(heading, HEADING) * 1.1 + 2 * MARGIN)
        top += 34 + picture.height
    return _document([graph.title for graph in graphs], width, top, "\n".join(parts))


# ---------------------------------------------------------------------------------------------------------------------
# SVG. Colours stand in attributes for programs that know no style sheets; the style sheet then takes the page's, or
# those of a light or dark screen.

_SANS = "-apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, 'Liberation Sans', sans-serif"
_LIGHT = {"ink": "#1c2025", "muted": MUTED, "card": "#ffffff", "wash": "#f1f4f7"}
_DARK = {"ink": "#e6e9ec", "muted": "#98a2ae", "card": "#1b1f24", "wash": "#23282e"}


def _rules(colours: Mapping[str, str]) -> str:
    value = {name: f"var(--{name}, {colour})" for name, colour in colours.items()}
    return " ".join(
        f".polyarch-graph {selector} {{ {rule} }}"
        for selector, rule in (
            ("text", f"fill: {value['ink']}"),
            (".card", f"fill: {value['card']}"),
            (".node", f"fill: {value['wash']}; stroke: {value['muted']}"),
            (".line", f"stroke: {value['muted']}"),
            (".tip", f"fill: {value['muted']}"),
        )
    )


_STYLE = (
    "<style>.polyarch-graph { color-scheme: light dark } "
    f"{_rules(_LIGHT)} @media (prefers-color-scheme: dark) {{ {_rules(_DARK)} }}</style>"
)


def _document(titles: Sequence[str], width: float, height: float, content: str) -> str:
    title = _plain("; ".join(titles))
    width, height = round(width), round(height)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="polyarch-graph" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" style="min-width: {min(width, 620)}px; max-width: {width}px" '
        f'role="img" aria-label="{title}" font-family="{_SANS}">\n'
        f"<title>{title}</title>\n{_STYLE}\n"
        f'<rect class="card" width="{width}" height="{height}" fill="{_LIGHT["card"]}"/>\n'
        f"{content}\n</svg>\n"
    )


def _drawn(picture: Layout) -> str:
    """Lines, the likeliest last; over them nodes and labels."""
    lines = sorted(picture.lines, key=lambda line: line.strand.probability)
    parts = [_line(line) for line in lines]
    seen: set[str] = set()
    for node, box in picture.nodes:
        parts.append(_node(node, box, again=node.name in seen))
        seen.add(node.name)
    parts += [_pill(line.strand, line.label) for line in lines if line.label]
    parts += [_entry(*entry) for entry in picture.legend]
    return "\n".join(parts)


def _line(line: Line) -> str:
    strand = line.strand
    (x, y), *rest = line.points
    path = f"M{x:.1f} {y:.1f}"
    for curved, (to_x, to_y) in zip(itertools.cycle((True, False)), rest, strict=False):
        if curved and abs(to_y - y) > 0.05:
            middle = (x + to_x) / 2
            path += f"C{middle:.1f} {y:.1f} {middle:.1f} {to_y:.1f} {to_x:.1f} {to_y:.1f}"
        else:
            path += f"H{to_x:.1f}"
        x, y = to_x, to_y
    stroke = (
        f'<path d="{path}" fill="none" {_colour(strand.colour, "line", "stroke")} stroke-width="{strand.width:.2f}" '
        f'stroke-opacity="{strand.opacity:.2f}"' + (' stroke-dasharray="5 4"' if strand.dashed else "") + "/>"
    )
    tip = ""
    if line.tip:
        half = max(3.6, strand.width / 2 + 2)
        corners = f"{x:.1f},{y - half:.1f} {x + ARROW:.1f},{y:.1f} {x:.1f},{y + half:.1f}"
        tip = f'<polygon points="{corners}" {_colour(strand.colour, "tip", "fill")}/>'
    return f"<g><title>{_plain(strand.hint)}</title>{stroke}{tip}</g>"


def _colour(colour: str, kind: str, attribute: str) -> str:
    return (f'class="{kind}" ' if colour == MUTED else "") + f'{attribute}="{colour}"'


def _node(node: Node, box: Box, again: bool) -> str:
    dashes = ' stroke-dasharray="4 3"' if again else ""
    return (
        f'<rect class="node" {_place(box)} rx="8" fill="{_LIGHT["wash"]}" stroke="{MUTED}" stroke-opacity="0.55"'
        f"{dashes}/>" + _middle(_plain(_shortened(node.label)), box, NODE_TEXT)
    )


def _pill(strand: Strand, box: Box) -> str:
    share = f'<tspan font-weight="600">{_plain(strand.share)}</tspan>' if strand.share else ""
    return (
        f'<rect class="card" {_place(box)} rx="{PILL / 2:g}" fill="{_LIGHT["card"]}"/>'
        f'<rect {_place(box)} rx="{PILL / 2:g}" fill="{strand.colour}" fill-opacity="0.12" '
        f"{_colour(strand.colour, 'line', 'stroke')}/>"
        + _middle(" ".join(filter(None, (_plain(strand.name), share))), box, LABEL_TEXT)
    )


def _entry(operation: str, colour: str, box: Box) -> str:
    y = box.y + box.height / 2
    dashes = ' stroke-dasharray="5 4"' if _is_nothing(operation) else ""
    return (
        f'<path d="M{box.x:.1f} {y:.1f}h{SWATCH:g}" {_colour(colour, "line", "stroke")} stroke-width="3"{dashes}/>'
        + _text(_plain(_shortened(operation)), box.x + SWATCH + 6, y + LABEL_TEXT * 0.35, LABEL_TEXT)
    )


def _place(box: Box) -> str:
    return f'x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}"'


def _middle(content: str, box: Box, size: float) -> str:
    return _text(content, box.x + box.width / 2, box.y + box.height / 2 + 0.35 * size, size, ' text-anchor="middle"')


def _text(content: str, x: float, y: float, size: float, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size:g}" fill="{_LIGHT["ink"]}"{more}>{content}</text>'


def text_width(text: str, size: float) -> float:
    """About how wide a text is in the page's fonts; rather too much than too little."""
    return size * sum(_letter_width(letter) for letter in text)


def _letter_width(letter: str) -> float:
    if unicodedata.combining(letter):
        return 0.0
    if unicodedata.east_asian_width(letter) in "WF":
        return 1.0
    if letter in "ijlI|.,:;'!()[] -/":
        return 0.36
    if letter in "mwMW%@+<>=…→":
        return 0.9
    return 0.7 if letter.isupper() else 0.6


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else text[: LONGEST_TEXT - 1].rstrip() + "…"


def _plain(text: str) -> str:
    """Text for XML: escaped, and without the characters that XML cannot hold at all."""
    return escape(re.sub("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]", "\ufffd", text))


# ---------------------------------------------------------------------------------------------------------------------
# From edges to strands: which are drawn, how strong, in which colour, with what label.


@dataclass(frozen=True)
class _Bundle:
    """All strands from one node to another."""

    source: str
    target: str
    strands: tuple[Strand, ...]

    @property
    def labels(self) -> int:
        return sum(bool(strand.text) for strand in self.strands)

    def offsets(self, with_labels: bool) -> tuple[list[float], float, float]:
        """Heights of the strands in a slot, and the room that they need above and below its level.

        The level is that of the only strand with a label, which is then drawn straight, or else the middle.
        """
        rooms = [PILL + 4 if with_labels and s.text else s.width + 2.5 for s in self.strands]
        ends = list(itertools.accumulate(rooms))
        middles = [end - room / 2 for end, room in zip(ends, rooms, strict=True)]
        level = ends[-1] / 2
        if self.labels == 1:
            level = next(y for y, strand in zip(middles, self.strands, strict=True) if strand.text)
        return [y - level for y in middles], level, ends[-1] - level


def _bundles(graph: Graph) -> list[_Bundle]:
    """Edges by the nodes they join, in order of their first appearance; what cannot be is left out."""
    joined: dict[tuple[str, str], list[Edge]] = {}
    edges = [edge for edge in graph.edges if edge.probability > 0]
    for edge in edges:
        joined.setdefault((edge.source, edge.target), []).append(edge)
    colours = _colours([edge.label for edge in edges])
    is_belief = any(edge.probability < 1 for edge in edges)
    has_operations = any(edge.label for edge in edges)
    names = {node.name: node.label or node.name for node in graph.nodes}
    bundles = []
    for (source, target), options in joined.items():
        way = f"{names[source]} → {names[target]}"
        kept, others = _parted(options)
        strands = []
        for edge in kept:
            # Beside operations, a line without one is wiring that no one decides on, and should not stand out.
            is_plain = has_operations and not edge.label and edge.probability == 1
            width = _width(edge.probability) if is_belief and not is_plain else 1.8
            strands.append(_strand(edge, way, colours[edge.label], width))
        if others:
            strands.append(_rest(others, way))
        bundles.append(_Bundle(source, target, tuple(strands)))
    return [_quieter(bundle) for bundle in bundles] if _is_crowded(bundles) else bundles


def _parted(options: Sequence[Edge]) -> tuple[list[Edge], list[Edge]]:
    """Options with an edge of their own, in the order given, and those that share one."""
    if len(options) <= MOST_OPTIONS:
        return list(options), []
    best = sorted(range(len(options)), key=lambda k: -options[k].probability)[: MOST_OPTIONS - 1]
    return [options[k] for k in sorted(best)], [options[k] for k in range(len(options)) if k not in best]


def _strand(edge: Edge, way: str, colour: str, width: float) -> Strand:
    share = _percent(edge.probability) if edge.probability < 1 else ""
    strand = Strand(
        operation=edge.label,
        probability=edge.probability,
        name=_shortened(edge.label),
        share=share,
        hint=f"{way}: {edge.label} {share}".rstrip(": "),
        colour=colour,
        width=width,
        opacity=_opacity(edge.probability) * (0.75 if colour == MUTED else 1),
        dashed=_is_nothing(edge.label),
    )
    return strand if edge.probability >= UNLIKELY else strand.unlabelled()


def _rest(edges: Sequence[Edge], way: str) -> Strand:
    """All the options of a pair that have no edge of their own."""
    total = sum(edge.probability for edge in edges)
    return Strand(
        operation=REST,
        probability=total,
        name=f"+{len(edges)} more",
        share=f"({_percent(total)})",
        hint=f"{way}: " + ", ".join(f"{edge.label} {_percent(edge.probability)}" for edge in edges),
        colour=MUTED,
        width=_width(total),
        opacity=0.75 * _opacity(total),
        dashed=False,
    )


def _percent(probability: float) -> str:
    return f"{100 * probability:.0f} %" if probability >= 0.01 else f"{100 * probability:.1f} %"


def _quieter(bundle: _Bundle) -> _Bundle:
    """With the label of the likeliest operation alone, and without shares that belong to none."""
    top = max((s for s in bundle.strands if s.operation != REST), key=lambda s: s.probability)
    is_bare = len(bundle.strands) == 1 and not top.operation
    strands = [s if s is top and not is_bare else s.unlabelled() for s in bundle.strands]
    return replace(bundle, strands=tuple(strands))


def _is_crowded(bundles: Sequence[_Bundle]) -> bool:
    return sum(len(bundle.strands) for bundle in bundles) > CROWDED


def _width(probability: float) -> float:
    return 1 + 6 * probability if probability >= UNLIKELY else 0.75


def _opacity(probability: float) -> float:
    return 0.4 + 0.6 * probability**0.5 if probability >= UNLIKELY else 0.4


def _colours(labels: Sequence[str]) -> dict[str, str]:
    """A colour an operation, the same in every picture; two of no known family differ as long as colours last."""
    colours: dict[str, str] = {}
    free = list(OTHERS)
    for label in dict.fromkeys(labels):
        known = _family_colour(label)
        if known is None:
            wanted = zlib.crc32(label.encode("utf-8", "replace")) % len(OTHERS)
            turned = OTHERS[wanted:] + OTHERS[:wanted]
            known = next((colour for colour in turned if colour in free), turned[0])
            free = [colour for colour in free if colour != known]
        colours[label] = known
    return colours


def _family_colour(label: str) -> str | None:
    name = label.lower()
    if not name or _is_nothing(name):
        return MUTED
    if "pool" in name:
        return MAX_POOL if "max" in name else POOL
    if "conv" in name:
        kind = next(kind for kind in CONVOLUTIONS if kind in name)
        kernel = re.search(r"(\d+)\s*[x×]\s*\d+", name)
        return CONVOLUTIONS[kind][min(int(kernel[1]) // 2, 3) if kernel else 1]
    return SKIP if re.search("skip|identity|shortcut", name) else None


def _is_nothing(label: str) -> bool:
    return bool({"none", "zero", "zeroize"} & set(re.findall("[a-z]+", label.lower())))


# ---------------------------------------------------------------------------------------------------------------------
# From strands to columns and slots.


@dataclass
class _Slot:
    """The place that a node, or a bundle on its way, holds in a column."""

    column: int
    above: float
    """Room that it needs above its level, and below."""
    below: float
    node: Node | None = None
    with_labels: bool = False
    level: float = 0.0


@dataclass(frozen=True)
class _Link:
    """A step of a bundle from one column to the next."""

    left: int
    right: int
    shift: float
    """How much lower the level on the right is when the line is straight: ports are not in the middle of a node."""
    weight: float
    """How much straightness matters here."""


class _Plan:
    """Slots of one row of a picture, by number."""

    def __init__(self, bundles: Sequence[_Bundle], columns: int) -> None:
        self.bundles = bundles
        self.slots: list[_Slot] = []
        self.columns: list[list[int]] = [[] for _ in range(columns)]
        """From top to bottom."""
        self.routes: list[list[int]] = []
        """Of each bundle: its source, the slots on its way, its target."""

    def add(self, slot: _Slot) -> int:
        """Puts a slot at the bottom of its column."""
        self.slots.append(slot)
        self.columns[slot.column].append(len(self.slots) - 1)
        return len(self.slots) - 1

    def steps(self) -> Iterator[tuple[int, int]]:
        """Pairs of slots in neighbouring columns that a bundle joins."""
        return itertools.chain.from_iterable(map(itertools.pairwise, self.routes))


def layout(graph: Graph) -> Layout:
    """Places nodes, lines and labels of a graph."""
    _check(graph)
    bundles = _bundles(graph)
    layers = _layers(graph, bundles)
    picture = _row(graph.nodes, bundles, layers)
    if picture.width > WIDEST:
        rows = [
            _row(
                [node for node in graph.nodes if first <= layers[node.name] <= last],
                [b for b in bundles if first <= layers[b.source] and layers[b.target] <= last],
                layers,
            )
            for first, last in _row_ends(picture, bundles, layers)
        ]
        picture = _stacked(rows)
    if _is_crowded(bundles) and any(len(bundle.strands) > 1 for bundle in bundles):
        picture = _with_legend(picture, [edge.label for edge in graph.edges])
    return picture


def _check(graph: Graph) -> None:
    places = {node.name: place for place, node in enumerate(graph.nodes)}
    if len(places) < len(graph.nodes):
        raise PolyarchError(f"two nodes of the graph {graph.title!r} have the same name; give each its own")
    for edge in graph.edges:
        if edge.source not in places or edge.target not in places or places[edge.source] >= places[edge.target]:
            raise PolyarchError(
                f"the edge from {edge.source!r} to {edge.target!r} of the graph {graph.title!r} does not lead from "
                "a node to a later one; list its nodes in topological order"
            )


def _layers(graph: Graph, bundles: Sequence[_Bundle]) -> dict[str, int]:
    """The longest way to each node."""
    layers = {node.name: 0 for node in graph.nodes}
    place = {name: k for k, name in enumerate(layers)}
    for bundle in sorted(bundles, key=lambda b: place[b.source]):
        layers[bundle.target] = max(layers[bundle.target], layers[bundle.source] + 1)
    return layers


def _row(nodes: Sequence[Node], bundles: Sequence[_Bundle], layers: Mapping[str, int]) -> Layout:
    """One row of a picture; most have no other."""
    plan = _planned(nodes, bundles, layers)
    plan.columns = _ordered(plan)
    out_ports, in_ports = _ports(plan, end=0, beside=1), _ports(plan, end=-1, beside=-2)
    links = _links(plan, out_ports, in_ports)
    _level(plan, links)
    widths = _column_widths(plan)
    lefts = _column_lefts(plan, links, widths)
    boxes = [
        (slot.node, Box(lefts[slot.column], slot.level - slot.above, widths[slot.column], slot.above + slot.below))
        for slot in plan.slots
        if slot.node
    ]
    lines: list[Line] = []
    for bundle, route, out_port, in_port in zip(bundles, plan.routes, out_ports, in_ports, strict=True):
        source, *way, target = (plan.slots[slot] for slot in route)
        start = (lefts[source.column] + widths[source.column], source.level + out_port)
        end = (lefts[target.column] - ARROW, target.level + in_port)
        lines += _bundle_lines(bundle, start, [(s, lefts[s.column], widths[s.column]) for s in way], end)
    return Layout(
        width=max((left + width for left, width in zip(lefts, widths, strict=True)), default=0.0) + MARGIN,
        height=max((slot.level + slot.below for slot in plan.slots), default=0.0) + MARGIN,
        nodes=tuple(boxes),
        lines=tuple(lines),
        legend=(),
    )


def _bundle_lines(
    bundle: _Bundle,
    start: tuple[float, float],
    way: Sequence[tuple[_Slot, float, float]],
    end: tuple[float, float],
) -> Iterator[Line]:
    """The strands of a bundle: together at both ends, side by side in slots, whose left sides and widths are given."""
    likeliest = max(bundle.strands, key=lambda s: s.probability)
    for k, strand in enumerate(bundle.strands):
        points, label = [start], None
        for slot, left, width in way:
            y = slot.level + bundle.offsets(slot.with_labels)[0][k]
            points += [(left, y), (left + width, y)]
            if slot.with_labels and strand.text:
                pill = _pill_width(strand)
                label = Box(left + (width - pill) / 2, y - PILL / 2, pill, PILL)
        yield Line(strand, (*points, end), label, strand is likeliest)


def _planned(nodes: Sequence[Node], bundles: Sequence[_Bundle], layers: Mapping[str, int]) -> _Plan:
    """Slots for all nodes and for all bundles on their way, in no order yet."""
    gaps = _label_gaps(bundles, layers)
    stops = sorted({(layers[node.name], False) for node in nodes} | {(gap, True) for gap in gaps if gap is not None})
    column = {stop: k for k, stop in enumerate(stops)}
    plan = _Plan(bundles, len(stops))
    ends = Counter((b.source, "out") for b in bundles) + Counter((b.target, "in") for b in bundles)
    places = {}
    for node in nodes:
        ports = max(ends[node.name, "out"], ends[node.name, "in"])
        half = max(NODE, _port_room(bundles) * ports + 8) / 2
        places[node.name] = plan.add(_Slot(column[layers[node.name], False], half, half, node))
    for bundle, gap in zip(bundles, gaps, strict=True):
        route = [places[bundle.source]]
        for k in range(column[layers[bundle.source], False] + 1, column[layers[bundle.target], False]):
            with_labels = stops[k] == (gap, True)
            _, above, below = bundle.offsets(with_labels)
            route.append(plan.add(_Slot(k, above, below, with_labels=with_labels)))
        plan.routes.append([*route, places[bundle.target]])
    return plan


def _port_room(bundles: Sequence[_Bundle]) -> float:
    return max((strand.width for bundle in bundles for strand in bundle.strands), default=0) + 6


def _label_gaps(bundles: Sequence[_Bundle], layers: Mapping[str, int]) -> list[int | None]:
    """After which layer each bundle has its labels: where least else is written, near the middle of its way."""
    load: Counter[int] = Counter()
    gaps: list[int | None] = [None] * len(bundles)
    span = [layers[b.target] - layers[b.source] for b in bundles]
    for k in sorted(range(len(bundles)), key=lambda k: span[k]):
        bundle = bundles[k]
        if bundle.labels:
            first, last = layers[bundle.source], layers[bundle.target] - 1
            gap = min(range(first, last + 1), key=lambda g: (load[g], abs(g - (first + last) / 2)))
            load[gap] += bundle.labels
            gaps[k] = gap
    return gaps


# ---------------------------------------------------------------------------------------------------------------------
# The order within columns: few crossings.


def _ordered(plan: _Plan) -> list[list[int]]:
    """Columns with their slots from top to bottom: the best of several starts, each improved sweep by sweep."""
    lefts: list[list[int]] = [[] for _ in plan.slots]
    rights: list[list[int]] = [[] for _ in plan.slots]
    for left, right in plan.steps():
        rights[left].append(right)
        lefts[right].append(left)
    draws = random.Random(0)
    best, least = plan.columns, _disorder(plan, plan.columns)
    for start in range(min(STARTS, 1 + 6000 // max(len(plan.slots), 1))):
        columns = [list(column) for column in plan.columns]
        if start:
            for column in columns:
                draws.shuffle(column)
        for _ in range(SWEEPS):
            for ordered, neighbours in ((columns, lefts), (columns[::-1], rights)):
                _sort(ordered, neighbours)
                _swap(columns, lefts, rights)
                for seen in (columns, [column[::-1] for column in columns]):
                    disorder = _disorder(plan, seen)
                    if disorder < least:
                        best, least = [list(column) for column in seen], disorder
    return best


def _positions(columns: Sequence[Sequence[int]]) -> dict[int, int]:
    return {slot: place for column in columns for place, slot in enumerate(column)}


def _sort(columns: Sequence[list[int]], neighbours: Sequence[Sequence[int]]) -> None:
    """Sorts one column after another by where the neighbours of its slots stand in the column before."""
    place = _positions(columns)
    for column in columns:
        wanted = {
            slot: sum(place[n] for n in neighbours[slot]) / len(neighbours[slot]) if neighbours[slot] else place[slot]
            for slot in column
        }
        column.sort(key=lambda slot: wanted[slot])
        place.update({slot: k for k, slot in enumerate(column)})


def _swap(columns: list[list[int]], lefts: Sequence[Sequence[int]], rights: Sequence[Sequence[int]]) -> None:
    """Exchanges neighbours as long as that leaves fewer crossings."""
    place = _positions(columns)

    def crossings(upper: int, lower: int) -> int:
        return sum(
            place[u] > place[v] for side in (lefts, rights) for u, v in itertools.product(side[upper], side[lower])
        )

    for column in columns:
        improved = True
        while improved:
            improved = False
            for k in range(len(column) - 1):
                upper, lower = column[k : k + 2]
                if crossings(upper, lower) > crossings(lower, upper):
                    column[k : k + 2] = [lower, upper]
                    place[upper], place[lower] = k + 1, k
                    improved = True


def _disorder(plan: _Plan, columns: Sequence[Sequence[int]]) -> tuple[int, int, int]:
    """What an order should have little of: crossings; ups and downs; nodes against the order they came in."""
    place = _positions(columns)
    by_gap: dict[int, list[tuple[int, int]]] = {}
    for left, right in plan.steps():
        by_gap.setdefault(plan.slots[left].column, []).append((place[left], place[right]))
    crossings = travel = 0
    for gap, pairs in by_gap.items():
        surplus = len(columns[gap + 1]) - len(columns[gap])
        travel += sum(abs(2 * (right - left) - surplus) for left, right in pairs)
        ends: list[int] = []
        for _, end in sorted(pairs):
            crossings += len(ends) - bisect.bisect_right(ends, end)
            bisect.insort(ends, end)
    nodes = [[slot for slot in column if plan.slots[slot].node] for column in columns]
    inversions = sum(a > b for column in nodes for a, b in itertools.combinations(column, 2))
    return crossings, travel, inversions


# ---------------------------------------------------------------------------------------------------------------------
# Heights and widths.


def _ports(plan: _Plan, end: int, beside: int) -> list[float]:
    """How far from the middle of the node at one end of its route each bundle touches it: in the order of slots."""
    place = _positions(plan.columns)
    at_node: dict[int, list[int]] = {}
    for k, route in enumerate(plan.routes):
        at_node.setdefault(route[end], []).append(k)
    ports = [0.0] * len(plan.routes)
    for touching in at_node.values():
        touching.sort(key=lambda k: place[plan.routes[k][beside]])
        for rank, k in enumerate(touching):
            ports[k] = (rank - (len(touching) - 1) / 2) * _port_room(plan.bundles)
    return ports


def _links(plan: _Plan, out_ports: Sequence[float], in_ports: Sequence[float]) -> list[_Link]:
    links = []
    for route, out_port, in_port in zip(plan.routes, out_ports, in_ports, strict=True):
        steps = list(itertools.pairwise(route))
        for k, (left, right) in enumerate(steps):
            is_first, is_last = k == 0, k == len(steps) - 1
            # A bend within a long way is uglier than one at its ends; short ways make the spine of a picture.
            weight = 3.0 if len(steps) <= 2 else 1.0 if is_first or is_last else 12.0
            links.append(_Link(left, right, is_first * out_port - is_last * in_port, weight))
    return links


def _level(plan: _Plan, links: Sequence[_Link]) -> None:
    """Gives every slot its level: lines as straight as the room within columns allows, all as high up as can be.

    A linear program: with absolute differences as costs most lines become exactly straight, and few bend.
    """
    slots, count = plan.slots, len(plan.slots)
    if not slots:
        return
    rows: list[tuple[dict[int, float], float]] = []
    for bend, link in enumerate(links, start=count):
        rows.append(({link.left: 1, link.right: -1, bend: -1}, -link.shift))
        rows.append(({link.left: -1, link.right: 1, bend: -1}, link.shift))
    for column in plan.columns:
        for upper, lower in itertools.pairwise(column):
            rows.append(({upper: 1, lower: -1}, -slots[upper].below - slots[lower].above - GAP))
    entries = [(row, place, factor) for row, (factors, _) in enumerate(rows) for place, factor in factors.items()]
    at_row, at_place, values = zip(*entries, strict=True) if entries else ((), (), ())
    solution = linprog(
        [1e-3] * count + [link.weight for link in links],
        coo_array((values, (at_row, at_place)), shape=(len(rows), count + len(links))) if rows else None,
        [limit for _, limit in rows] or None,
        bounds=[(MARGIN + slot.above, None) for slot in slots] + [(0, None)] * len(links),
    )
    for slot, level in zip(slots, solution.x, strict=False):
        slot.level = float(level)


def _column_widths(plan: _Plan) -> list[float]:
    widths = [0.0] * len(plan.columns)
    for slot in plan.slots:
        if slot.node:
            widths[slot.column] = max(
                widths[slot.column], 34.0, text_width(_shortened(slot.node.label), NODE_TEXT) + 20
            )
    for bundle, route in zip(plan.bundles, plan.routes, strict=True):
        for slot in (plan.slots[k] for k in route if plan.slots[k].with_labels):
            widths[slot.column] = max(widths[slot.column], *(_pill_width(strand) for strand in bundle.strands))
    return widths


def _column_lefts(plan: _Plan, links: Sequence[_Link], widths: Sequence[float]) -> list[float]:
    """Columns from left to right; the steeper the lines between two of them, the more room they get."""
    steepest = [0.0] * len(widths)
    for link in links:
        left, right = plan.slots[link.left], plan.slots[link.right]
        steepest[left.column] = max(steepest[left.column], abs(right.level - left.level - link.shift))
    lefts = [MARGIN]
    for width, rise in zip(widths, steepest, strict=True):
        lefts.append(lefts[-1] + width + min(24 + 0.15 * rise, 54))
    return lefts[: len(widths)]


def _pill_width(strand: Strand) -> float:
    return text_width(strand.text, LABEL_TEXT) + 16 if strand.text else 0.0


# ---------------------------------------------------------------------------------------------------------------------
# Rows and legend.


def _row_ends(whole: Layout, bundles: Sequence[_Bundle], layers: Mapping[str, int]) -> Iterator[tuple[int, int]]:
    """First and last layer of each row; a row ends at a node that everything passes through."""
    spans = {}
    for node, box in whole.nodes:
        spans[layers[node.name]] = (box.x, box.x + box.width)
    single = [layer for layer, count in sorted(Counter(layers.values()).items()) if count == 1]
    cuts = [c for c in single if not any(layers[b.source] < c < layers[b.target] for b in bundles)]
    first, last = 0, max(layers.values(), default=0)
    for cut, following in itertools.pairwise([cut for cut in cuts if cut < last] + [last]):
        if cut > first and spans[following][1] - spans[first][0] > WIDEST - 2 * MARGIN:
            yield first, cut
            first = cut
    yield first, last


def _stacked(rows: Sequence[Layout]) -> Layout:
    nodes: list[tuple[Node, Box]] = []
    lines: list[Line] = []
    top = 0.0
    for row in rows:
        nodes += [(node, box.lowered(top)) for node, box in row.nodes]
        lines += [
            replace(
                line,
                points=tuple((x, y + top) for x, y in line.points),
                label=line.label and line.label.lowered(top),
            )
            for line in row.lines
        ]
        top += row.height
    return Layout(max(row.width for row in rows), top, tuple(nodes), tuple(lines), ())


def _with_legend(picture: Layout, operations: Sequence[str]) -> Layout:
    """Names the colours below the picture, in as many rows as they need."""
    colours = {line.strand.operation: line.strand.colour for line in picture.lines if line.strand.operation}
    entries = []
    width, x, y = max(picture.width, 420.0), MARGIN, picture.height + 4
    for operation in dict.fromkeys([*operations, REST]):
        if operation in colours:
            needed = SWATCH + 6 + text_width(_shortened(operation), LABEL_TEXT)
            if x > MARGIN and x + needed > width - MARGIN:
                x, y = MARGIN, y + PILL + 2
            entries.append((operation, colours[operation], Box(x, y, needed, PILL)))
            x += needed + 16
    return replace(picture, width=width, height=y + PILL + MARGIN, legend=tuple(entries))
