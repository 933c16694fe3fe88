"""Cells, wirings and chains of decisions as SVG.

A graph passes through three modules, best read in this order: `graph_edges` says how its edges are drawn,
`graph_layout` where everything stands in a row, and here rows become a picture, and pictures SVG.
"""

from __future__ import annotations

import itertools
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from xml.etree.ElementTree import Element, SubElement, tostring

from polyarch.report.graph_edges import (
    LABEL_HEIGHT,
    LABEL_TEXT,
    Connection,
    Stroke,
    connections,
    legend,
    shortened,
    text_width,
)
from polyarch.report.graph_layout import ARROW, MARGIN, NODE_TEXT, Box, Layout, Line, layout
from polyarch.report.operation_colours import MUTED, is_nothing
from polyarch.spaces.graph import Graph, Node

WIDEST = 1080
"""A wider picture continues on a new row, where a single node connects what is before it with what is after it."""
HEADING, SWATCH = 14.0, 18.0


def draw(graph: Graph, operations: Sequence[str] = ()) -> str:
    """A picture of one graph as an `<svg>` element to put in a page, whose colours it takes.

    Args:
        graph: what to draw.
        operations: those of all pictures that should have the same colours, where there are several.
    """
    placed = picture(graph, tuple(operations))
    root = _root(graph.title, placed.width, placed.height)
    _draw(root, placed)
    return tostring(root, encoding="unicode")


def draw_all(graphs: Sequence[Graph]) -> str:
    """Several graphs in one SVG document, one below the other under their titles."""
    operations = tuple(edge.label for graph in graphs for edge in graph.edges)
    pictures = [picture(graph, operations) for graph in graphs]
    headings = [shortened(graph.title) for graph in graphs]
    width = max(
        *(placed.width for placed in pictures),
        *(text_width(heading, HEADING) * 1.1 + 2 * MARGIN for heading in headings),
    )
    root = _root("; ".join(graph.title for graph in graphs), width, sum(34 + placed.height for placed in pictures))
    root.set("xmlns", "http://www.w3.org/2000/svg")
    top = 0.0
    for heading, placed in zip(headings, pictures, strict=True):
        _text(root, heading, MARGIN, top + 26, HEADING).set("font-weight", "600")
        _draw(SubElement(root, "g", transform=f"translate(0 {top + 34:g})"), placed)
        top += 34 + placed.height
    return tostring(root, encoding="unicode") + "\n"


# ---------------------------------------------------------------------------------------------------------------------
# Pictures: rows and legend.


def picture(graph: Graph, operations: tuple[str, ...] = ()) -> Layout:
    """Places nodes, lines and labels of a graph: in several rows if one is too wide, with a legend if it is crowded."""
    found = connections(graph, operations)
    placed = layout(graph.nodes, found)
    if placed.width > WIDEST:
        placed = _stacked([layout(*row) for row in _rows(placed, found)])
    return _with_legend(placed, legend(graph, found))


def _rows(whole: Layout, found: Sequence[Connection]) -> Iterator[tuple[list[Node], list[Connection]]]:
    """What stands in each row: it ends at a node that everything passes through, and the next begins with that."""
    left = {node.name: box.x for node, box in whole.nodes}
    right = {box.x: box.x + box.width for _, box in whole.nodes}
    count = Counter(left.values())
    *columns, last = sorted(count)
    cuts = [x for x in columns if count[x] == 1 and not any(left[c.source] < x < left[c.target] for c in found)]
    starts = [MARGIN]
    for cut, following in itertools.pairwise([*cuts, last]):
        if cut > starts[-1] and right[following] - starts[-1] > WIDEST - 2 * MARGIN:
            starts.append(cut)
    for start, end in itertools.pairwise([*starts, last]):
        nodes = [node for node, box in whole.nodes if start <= box.x <= end]
        yield nodes, [c for c in found if start <= left[c.source] and left[c.target] <= end]


def _stacked(rows: Sequence[Layout]) -> Layout:
    nodes: list[tuple[Node, Box]] = []
    lines: list[Line] = []
    top = 0.0
    for row in rows:
        nodes += [(node, _lowered(box, top)) for node, box in row.nodes]
        for line in row.lines:
            points = tuple((x, y + top) for x, y in line.points)
            lines.append(replace(line, points=points, label=line.label and _lowered(line.label, top)))
        top += row.height
    return Layout(max(row.width for row in rows), top, tuple(nodes), tuple(lines))


def _lowered(box: Box, top: float) -> Box:
    return replace(box, y=box.y + top)


def _with_legend(placed: Layout, operations: Sequence[tuple[str, str]]) -> Layout:
    """Names the colours below the picture, in as many rows as they need."""
    if not operations:
        return placed
    entries = []
    width, x, y = max(placed.width, 420.0), MARGIN, placed.height + 4
    for operation, colour in operations:
        needed = SWATCH + 6 + text_width(shortened(operation), LABEL_TEXT)
        if x > MARGIN and x + needed > width - MARGIN:
            x, y = MARGIN, y + LABEL_HEIGHT + 2
        entries.append((operation, colour, Box(x, y, needed, LABEL_HEIGHT)))
        x += needed + 16
    return replace(placed, width=width, height=y + LABEL_HEIGHT + MARGIN, legend=tuple(entries))


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
    f".polyarch-graph {{ color-scheme: light dark }} {_rules(_LIGHT)} "
    f"@media (prefers-color-scheme: dark) {{ {_rules(_DARK)} }}"
)


def _root(title: str, width: float, height: float) -> Element:
    width, height = round(width), round(height)
    root = Element(
        "svg",
        {
            "class": "polyarch-graph",
            "viewBox": f"0 0 {width} {height}",
            "width": str(width),
            "height": str(height),
            "style": f"min-width: {min(width, 620)}px; max-width: {width}px",
            "role": "img",
            "aria-label": _plain(title),
            "font-family": _SANS,
        },
    )
    SubElement(root, "title").text = _plain(title)
    SubElement(root, "style").text = _STYLE
    _rect(root, Box(0, 0, width, height), "card", fill=_LIGHT["card"])
    return root


def _draw(parent: Element, placed: Layout) -> None:
    """Lines, the likeliest last; over them nodes and labels."""
    lines = sorted(placed.lines, key=lambda line: line.stroke.probability)
    for line in lines:
        _line(parent, line)
    seen: set[str] = set()
    for node, box in placed.nodes:
        _node(parent, node, box, again=node.name in seen)
        seen.add(node.name)
    for line in lines:
        if line.label:
            _label(parent, line.stroke, line.label)
    for operation, colour, box in placed.legend:
        _entry(parent, operation, colour, box)


def _line(parent: Element, line: Line) -> None:
    stroke = line.stroke
    (x, y), *rest = line.points
    path = f"M{x:.1f} {y:.1f}"
    for is_curve, (to_x, to_y) in zip(itertools.cycle((True, False)), rest, strict=False):
        if is_curve and abs(to_y - y) > 0.05:
            middle = (x + to_x) / 2
            path += f"C{middle:.1f} {y:.1f} {middle:.1f} {to_y:.1f} {to_x:.1f} {to_y:.1f}"
        else:
            path += f"H{to_x:.1f}"
        x, y = to_x, to_y
    group = SubElement(parent, "g")
    SubElement(group, "title").text = _plain(stroke.hint)
    drawn = SubElement(group, "path", {"d": path, "fill": "none"} | _coloured(stroke.colour, "line", "stroke"))
    drawn.attrib |= {"stroke-width": f"{stroke.width:.2f}", "stroke-opacity": f"{stroke.opacity:.2f}"}
    if stroke.dashed:
        drawn.set("stroke-dasharray", "5 4")
    if line.tip:
        half = max(3.6, stroke.width / 2 + 2)
        corners = f"{x:.1f},{y - half:.1f} {x + ARROW:.1f},{y:.1f} {x:.1f},{y + half:.1f}"
        SubElement(group, "polygon", {"points": corners} | _coloured(stroke.colour, "tip", "fill"))


def _coloured(colour: str, kind: str, attribute: str) -> dict[str, str]:
    """A colour as an attribute; that of the page is named as well."""
    return ({"class": kind} if colour == MUTED else {}) | {attribute: colour}


def _node(parent: Element, node: Node, box: Box, again: bool) -> None:
    drawn = _rect(parent, box, "node", rx="8", fill=_LIGHT["wash"], stroke=MUTED)
    drawn.set("stroke-opacity", "0.55")
    if again:
        drawn.set("stroke-dasharray", "4 3")
    _middle(parent, shortened(node.label), box, NODE_TEXT)


def _label(parent: Element, stroke: Stroke, box: Box) -> None:
    round_ends = f"{LABEL_HEIGHT / 2:g}"
    _rect(parent, box, "card", rx=round_ends, fill=_LIGHT["card"])
    frame = _rect(parent, box, "", rx=round_ends, fill=stroke.colour)
    frame.attrib |= {"fill-opacity": "0.12"} | _coloured(stroke.colour, "line", "stroke")
    text = _middle(parent, f"{stroke.name} " if stroke.name and stroke.share else stroke.name, box, LABEL_TEXT)
    if stroke.share:
        SubElement(text, "tspan", {"font-weight": "600"}).text = _plain(stroke.share)


def _entry(parent: Element, operation: str, colour: str, box: Box) -> None:
    y = box.y + box.height / 2
    swatch = SubElement(parent, "path", {"d": f"M{box.x:.1f} {y:.1f}h{SWATCH:g}"} | _coloured(colour, "line", "stroke"))
    swatch.set("stroke-width", "3")
    if is_nothing(operation):
        swatch.set("stroke-dasharray", "5 4")
    _text(parent, shortened(operation), box.x + SWATCH + 6, y + LABEL_TEXT * 0.35, LABEL_TEXT)


def _rect(parent: Element, box: Box, kind: str, **more: str) -> Element:
    place = {"x": box.x, "y": box.y, "width": box.width, "height": box.height}
    return SubElement(
        parent, "rect", ({"class": kind} if kind else {}) | {name: f"{v:.1f}" for name, v in place.items()}, **more
    )


def _middle(parent: Element, content: str, box: Box, size: float) -> Element:
    text = _text(parent, content, box.x + box.width / 2, box.y + box.height / 2 + 0.35 * size, size)
    text.set("text-anchor", "middle")
    return text


def _text(parent: Element, content: str, x: float, y: float, size: float) -> Element:
    text = SubElement(parent, "text", {"x": f"{x:.1f}", "y": f"{y:.1f}", "font-size": f"{size:g}"}, fill=_LIGHT["ink"])
    text.text = _plain(content)
    return text


def _plain(text: str) -> str:
    """Text without the characters that XML cannot hold: control characters, halves of others, and what is none."""
    return "".join("\ufffd" if unicodedata.category(letter) in ("Cc", "Cs", "Cn") else letter for letter in text)
