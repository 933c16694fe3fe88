"""How the edges of a graph are drawn: which have a line, how strong it is, in which colour, with what label.

A stroke is one line, and a connection is all strokes from one node to another.
"""

from __future__ import annotations

import itertools
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace

from polyarch.errors import PolyarchError
from polyarch.report.operation_colours import MUTED, colours, is_nothing
from polyarch.spaces.graph import Edge, Graph

UNLIKELY = 0.05
"""Options below this probability are hair-thin and have no label."""
MOST_OPTIONS = 6
"""Where more options join two nodes, the likeliest have one line each and all others share one."""
CROWDED = 24
"""With more lines than this, only the likeliest option between two nodes has a label; a legend names the colours."""
LONGEST_TEXT = 34
LABEL_TEXT, LABEL_HEIGHT = 11.0, 18.0
"""Height of the letters of a label, and of the label."""
REST = "other options"


@dataclass(frozen=True)
class Stroke:
    """How one option between two nodes is drawn, or several that share a line."""

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

    @property
    def label_width(self) -> float:
        """Of the label with its frame; 0 without one."""
        return text_width(self.text, LABEL_TEXT) + 16 if self.text else 0.0

    def unlabelled(self) -> Stroke:
        """The same without a label."""
        return replace(self, name="", share="")


@dataclass(frozen=True)
class Connection:
    """All strokes from one node to another, side by side."""

    source: str
    target: str
    strokes: tuple[Stroke, ...]

    @property
    def labels(self) -> int:
        """How many strokes have a label."""
        return sum(bool(stroke.text) for stroke in self.strokes)

    @property
    def label_width(self) -> float:
        """Of the widest label."""
        return max(stroke.label_width for stroke in self.strokes)

    def offsets(self) -> tuple[list[float], float, float]:
        """How much lower than a level each stroke runs, and the room that all of them need above and below it.

        The level is that of the only stroke with a label, which is then drawn straight, or else the middle.
        """
        rooms = [LABEL_HEIGHT + 4 if stroke.text else stroke.width + 2.5 for stroke in self.strokes]
        ends = list(itertools.accumulate(rooms))
        middles = [end - room / 2 for end, room in zip(ends, rooms, strict=True)]
        level = ends[-1] / 2
        if self.labels == 1:
            level = next(y for y, stroke in zip(middles, self.strokes, strict=True) if stroke.text)
        return [y - level for y in middles], level, ends[-1] - level


def connections(graph: Graph, operations: Sequence[str] = (), is_bare: bool = False) -> list[Connection]:
    """Edges by the nodes they join, in order of their first appearance; what cannot be is left out.

    Args:
        graph: the picture's.
        operations: those of all pictures that should have the same colours, where there are several.
        is_bare: no line has a label.
    """
    _check(graph)
    edges = [edge for edge in graph.edges if edge.probability > 0]
    joined: dict[tuple[str, str], list[Edge]] = {}
    for edge in edges:
        joined.setdefault((edge.source, edge.target), []).append(edge)
    colour = colours([*operations, *(edge.label for edge in edges)])
    is_belief = any(edge.probability < 1 for edge in edges)
    has_operations = any(edge.label for edge in edges)
    names = {node.name: node.label or node.name for node in graph.nodes}
    found = []
    for (source, target), options in joined.items():
        way = f"{names[source]} → {names[target]}"
        own, others = _parted(options)
        strokes = []
        for edge in own:
            # Beside operations, a line without one is wiring that no one decides on, and should not stand out.
            is_plain = has_operations and not edge.label and edge.probability == 1
            width = _width(edge.probability) if is_belief and not is_plain else 1.8
            strokes.append(_stroke(edge, way, colour[edge.label], width))
        if others:
            strokes.append(_rest(others, way))
        found.append(Connection(source, target, tuple(strokes)))
    if is_bare:
        return [replace(c, strokes=tuple(stroke.unlabelled() for stroke in c.strokes)) for c in found]
    return [_quieter(connection) for connection in found] if _is_crowded(found) else found


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


def _parted(options: Sequence[Edge]) -> tuple[list[Edge], list[Edge]]:
    """Options with a line of their own, in the order given, and those that share one."""
    count = len(options) if len(options) <= MOST_OPTIONS else MOST_OPTIONS - 1
    best = sorted(range(len(options)), key=lambda k: -options[k].probability)[:count]
    return [options[k] for k in sorted(best)], [edge for k, edge in enumerate(options) if k not in best]


def _stroke(edge: Edge, way: str, colour: str, width: float) -> Stroke:
    share = _percent(edge.probability) if edge.probability < 1 else ""
    stroke = Stroke(
        operation=edge.label,
        probability=edge.probability,
        name=shortened(edge.label),
        share=share,
        hint=f"{way}: {edge.label} {share}".rstrip(": "),
        colour=colour,
        width=width,
        opacity=_opacity(edge.probability) * (0.75 if colour == MUTED else 1),
        dashed=is_nothing(edge.label),
    )
    return stroke if edge.probability >= UNLIKELY else stroke.unlabelled()


def _rest(edges: Sequence[Edge], way: str) -> Stroke:
    """All the options of a pair that have no line of their own."""
    total = sum(edge.probability for edge in edges)
    return Stroke(
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


def _width(probability: float) -> float:
    return 1 + 6 * probability if probability >= UNLIKELY else 0.75


def _opacity(probability: float) -> float:
    return 0.4 + 0.6 * probability**0.5 if probability >= UNLIKELY else 0.4


# ---------------------------------------------------------------------------------------------------------------------
# Crowds: fewer labels, and a legend instead.


def _is_crowded(found: Sequence[Connection]) -> bool:
    return sum(len(connection.strokes) for connection in found) > CROWDED


def _quieter(connection: Connection) -> Connection:
    """With the label of the likeliest operation alone, and without shares that belong to none."""
    top = max((s for s in connection.strokes if s.operation != REST), key=lambda s: s.probability)
    is_bare = len(connection.strokes) == 1 and not top.operation
    strokes = [s if s is top and not is_bare else s.unlabelled() for s in connection.strokes]
    return replace(connection, strokes=tuple(strokes))


def legend(graph: Graph, found: Sequence[Connection]) -> list[tuple[str, str]]:
    """Operations and their colours, in the order of the graph, where lines do not have a label each."""
    is_bare = not any(connection.labels for connection in found)
    if not is_bare and (not _is_crowded(found) or all(len(connection.strokes) == 1 for connection in found)):
        return []
    colour = {stroke.operation: stroke.colour for connection in found for stroke in connection.strokes}
    labels = dict.fromkeys([*(edge.label for edge in graph.edges), REST])
    return [(operation, colour[operation]) for operation in labels if operation and operation in colour]


# ---------------------------------------------------------------------------------------------------------------------
# Texts.


def shortened(text: str) -> str:
    """A text as it is written in a picture: the beginning of a long one."""
    return text if len(text) <= LONGEST_TEXT else text[: LONGEST_TEXT - 1].rstrip() + "…"


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
