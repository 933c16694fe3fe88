"""Cells, wirings and chains of decisions as SVG, written without any drawing program.

A graph passes through three modules, best read in this order: `strands` says what is shown of it, `layout` where that
stands in a row, and here rows become a picture, and pictures SVG. Read from top to bottom: `draw` and `draw_all`,
`picture`, the SVG.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from html import escape

from polyarch.report.layout import ARROW, MARGIN, NODE_TEXT, Box, Layout, Line, layout
from polyarch.report.strands import (
    LABEL_TEXT,
    MUTED,
    PILL,
    Bundle,
    Strand,
    bundled,
    is_nothing,
    legend,
    needs_legend,
    shortened,
    text_width,
)
from polyarch.spaces.graph import Graph, Node

WIDEST = 1080
"""A wider picture continues on a new row, where a single node connects what is before it with what is after it."""
HEADING, SWATCH = 14.0, 18.0


def draw(graph: Graph, operations: Sequence[str] = ()) -> str:
    """A picture of one graph as an SVG document; it may also stand inside a page, whose colours it then takes.

    Args:
        graph: what to draw.
        operations: those of all pictures that should have the same colours, where there are several.
    """
    placed = picture(graph, tuple(operations))
    return _document([graph.title], placed.width, placed.height, _drawn(placed))


def draw_all(graphs: Sequence[Graph]) -> str:
    """Several graphs in one SVG document, one below the other under their titles."""
    operations = tuple(edge.label for graph in graphs for edge in graph.edges)
    parts, top, width = [], 0.0, 0.0
    for graph in graphs:
        placed = picture(graph, operations)
        heading = shortened(graph.title)
        parts.append(_text(_plain(heading), MARGIN, top + 26, HEADING, ' font-weight="600"'))
        parts.append(f'<g transform="translate(0 {top + 34:g})">\n{_drawn(placed)}\n</g>')
        width = max(width, placed.width, text_width(heading, HEADING) * 1.1 + 2 * MARGIN)
        top += 34 + placed.height
    return _document([graph.title for graph in graphs], width, top, "\n".join(parts))


# ---------------------------------------------------------------------------------------------------------------------
# Pictures: rows and legend.


def picture(graph: Graph, operations: tuple[str, ...] = ()) -> Layout:
    """Places nodes, lines and labels of a graph: in several rows if one is too wide, with a legend if it is crowded."""
    bundles = bundled(graph, operations)
    placed = layout(graph.nodes, bundles)
    if placed.width > WIDEST:
        placed = _stacked([layout(*row) for row in _rows(placed, bundles)])
    return _with_legend(placed, legend(graph, bundles)) if needs_legend(bundles) else placed


def _rows(whole: Layout, bundles: Sequence[Bundle]) -> Iterator[tuple[list[Node], list[Bundle]]]:
    """What stands in each row: it ends at a node that everything passes through, and the next begins with that."""
    left = {node.name: box.x for node, box in whole.nodes}
    right = {box.x: box.x + box.width for _, box in whole.nodes}
    count = Counter(left.values())
    *columns, last = sorted(count)
    cuts = [x for x in columns if count[x] == 1 and not any(left[b.source] < x < left[b.target] for b in bundles)]
    starts = [MARGIN]
    for cut, following in itertools.pairwise([*cuts, last]):
        if cut > starts[-1] and right[following] - starts[-1] > WIDEST - 2 * MARGIN:
            starts.append(cut)
    for start, end in itertools.pairwise([*starts, last]):
        nodes = [node for node, box in whole.nodes if start <= box.x <= end]
        yield nodes, [bundle for bundle in bundles if start <= left[bundle.source] and left[bundle.target] <= end]


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
    entries = []
    width, x, y = max(placed.width, 420.0), MARGIN, placed.height + 4
    for operation, colour in operations:
        needed = SWATCH + 6 + text_width(shortened(operation), LABEL_TEXT)
        if x > MARGIN and x + needed > width - MARGIN:
            x, y = MARGIN, y + PILL + 2
        entries.append((operation, colour, Box(x, y, needed, PILL)))
        x += needed + 16
    return replace(placed, width=width, height=y + PILL + MARGIN, legend=tuple(entries))


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


def _drawn(placed: Layout) -> str:
    """Lines, the likeliest last; over them nodes and labels."""
    lines = sorted(placed.lines, key=lambda line: line.strand.probability)
    parts = [_line(line) for line in lines]
    seen: set[str] = set()
    for node, box in placed.nodes:
        parts.append(_node(node, box, again=node.name in seen))
        seen.add(node.name)
    parts += [_pill(line.strand, line.label) for line in lines if line.label]
    parts += [_entry(*entry) for entry in placed.legend]
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
        f"{dashes}/>" + _middle(_plain(shortened(node.label)), box, NODE_TEXT)
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
    dashes = ' stroke-dasharray="5 4"' if is_nothing(operation) else ""
    return (
        f'<path d="M{box.x:.1f} {y:.1f}h{SWATCH:g}" {_colour(colour, "line", "stroke")} stroke-width="3"{dashes}/>'
        + _text(_plain(shortened(operation)), box.x + SWATCH + 6, y + LABEL_TEXT * 0.35, LABEL_TEXT)
    )


def _place(box: Box) -> str:
    return f'x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}"'


def _middle(content: str, box: Box, size: float) -> str:
    return _text(content, box.x + box.width / 2, box.y + box.height / 2 + 0.35 * size, size, ' text-anchor="middle"')


def _text(content: str, x: float, y: float, size: float, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size:g}" fill="{_LIGHT["ink"]}"{more}>{content}</text>'


def _plain(text: str) -> str:
    """Text for XML: escaped, and without the characters that XML cannot hold at all."""
    return escape(re.sub("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]", "\ufffd", text))
