"""Cells, wirings and chains of decisions as SVG.

A graph passes through three modules, best read in this order: `graph_edges` says how its edges are drawn,
`graph_layout` where everything stands in a row, and here rows become a picture, which `graph.svg.j2` writes down.
"""

from __future__ import annotations

import itertools
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from polyarch.report.graph_edges import LABEL_HEIGHT, LABEL_TEXT, Connection, connections, legend, shortened, text_width
from polyarch.report.graph_layout import MARGIN, TURNING, Box, Layout, layout
from polyarch.report.operation_colours import MUTED, is_nothing
from polyarch.report.templates import render
from polyarch.spaces.graph import Graph, Node

WIDEST, NARROW = 1080, 330
"""A wider picture continues on a new row, where a single node connects what is before it with what is after it; on a
telephone, which has no room for labels either."""
HEADING, TITLE_TEXT, SWATCH = 34.0, 14.0, 18.0
"""Height of a heading, and of its letters; width of a line in a legend."""


def draw(graph: Graph, operations: Sequence[str] = (), is_narrow: bool = False) -> str:
    """A picture of one graph as an `<svg>` element to put in a page, whose colours it takes.

    Args:
        graph: what to draw.
        operations: those of all pictures that should have the same colours, where there are several.
        is_narrow: for a telephone: lines have no labels, and a legend names their colours.
    """
    placed = picture(graph, tuple(operations), is_narrow)
    return _svg(graph.title, placed.width, placed.height, [("", 0.0, placed)], is_file=False)


def draw_all(graphs: Sequence[Graph]) -> str:
    """Several graphs in one SVG file, one below the other under their titles."""
    operations = tuple(edge.label for graph in graphs for edge in graph.edges)
    pictures, bottom, width = [], 0.0, 0.0
    for graph in graphs:
        placed, heading = picture(graph, operations), shortened(graph.title)
        pictures.append((heading, bottom + HEADING, placed))
        bottom += HEADING + placed.height
        width = max(width, placed.width, text_width(heading, TITLE_TEXT) * 1.1 + 2 * MARGIN)
    return _svg("; ".join(graph.title for graph in graphs), width, bottom, pictures, is_file=True)


def _svg(title: str, width: float, height: float, pictures: Sequence[tuple[str, float, Layout]], is_file: bool) -> str:
    """The SVG of pictures, each with a heading and where it begins; only a file says what language that is."""
    context: dict[str, Any] = {"title": title, "width": round(width), "height": round(height), "is_file": is_file}
    context |= {"pictures": pictures, "muted": MUTED, "px": "{:.1f}".format}
    svg = render("graph.svg.j2", context | {"shortened": shortened, "is_nothing": is_nothing})
    # XML cannot hold control characters, halves of others, and what is no character.
    return "".join("\ufffd" if unicodedata.category(c) in ("Cc", "Cs", "Cn") and c != "\n" else c for c in svg)


# ---------------------------------------------------------------------------------------------------------------------
# Pictures: rows and legend.


def picture(graph: Graph, operations: tuple[str, ...] = (), is_narrow: bool = False) -> Layout:
    """Places nodes, lines and labels of a graph: in several rows if one is too wide, with a legend if it is crowded."""
    found = connections(graph, operations, is_narrow)
    widest, turning = (NARROW, TURNING / 3) if is_narrow else (WIDEST, TURNING)
    placed = layout(graph.nodes, found, turning=turning)
    if placed.width > widest:
        first, *others = _rows(placed, found, widest)
        placed = layout(*first, turning=turning)
        for row in others:
            below = layout(*row, placed.height, turning)
            width, nodes, lines = max(placed.width, below.width), placed.nodes + below.nodes, placed.lines + below.lines
            placed = Layout(width, below.height, nodes, lines)
    return _with_legend(placed, legend(graph, found), NARROW if is_narrow else 420.0)


def _rows(whole: Layout, found: Sequence[Connection], widest: float) -> Iterator[tuple[list[Node], list[Connection]]]:
    """What stands in each row: it ends at a node that everything passes through, and the next begins with that."""
    left = {node.name: box.x for node, box in whole.nodes}
    right = {box.x: box.x + box.width for _, box in whole.nodes}
    count = Counter(left.values())
    *columns, last = sorted(count)
    cuts = [x for x in columns if count[x] == 1 and not any(left[c.source] < x < left[c.target] for c in found)]
    starts = [MARGIN]
    for cut, following in itertools.pairwise([*cuts, last]):
        if cut > starts[-1] and right[following] - starts[-1] > widest - 2 * MARGIN:
            starts.append(cut)
    for start, end in itertools.pairwise([*starts, last]):
        nodes = [node for node, box in whole.nodes if start <= box.x <= end]
        yield nodes, [c for c in found if start <= left[c.source] and left[c.target] <= end]


def _with_legend(placed: Layout, operations: Sequence[tuple[str, str]], least: float) -> Layout:
    """Names the colours below the picture, which is so wide at least, in as many rows as they need."""
    if not operations:
        return placed
    entries = []
    width, x, y = max(placed.width, least), MARGIN, placed.height + 4
    for operation, colour in operations:
        needed = SWATCH + 6 + text_width(shortened(operation), LABEL_TEXT)
        if x > MARGIN and x + needed > width - MARGIN:
            x, y = MARGIN, y + LABEL_HEIGHT + 2
        entries.append((operation, colour, Box(x, y, needed, LABEL_HEIGHT)))
        x += needed + 16
    return replace(placed, width=width, height=y + LABEL_HEIGHT + MARGIN, legend=tuple(entries))
