"""What is shown of a graph: which options have a line, how strong it is, in which colour, with what label.

A strand is one line, and a bundle is all strands from one node to another. Read from top to bottom: strands and
bundles with the room they need, `bundled`, which makes them, then crowds and their legend, colours, texts.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from polyarch.errors import PolyarchError
from polyarch.spaces.graph import Edge, Graph

UNLIKELY = 0.05
"""Options below this probability are hair-thin and have no label."""
MOST_OPTIONS = 6
"""Where more options join two nodes, the likeliest have a line each and all others share one."""
CROWDED = 24
"""With more lines than this, only the likeliest option between two nodes has a label; a legend names the colours."""
LONGEST_TEXT = 34
LABEL_TEXT, PILL = 11.0, 18.0
"""Height of the letters of a label, and of the label."""
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


@dataclass(frozen=True)
class Strand:
    """One option between two nodes, or several that share a line, as it is drawn."""

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

    def unlabelled(self) -> Strand:
        """The same without a label."""
        return replace(self, name="", share="")


@dataclass(frozen=True)
class Bundle:
    """All strands from one node to another."""

    source: str
    target: str
    strands: tuple[Strand, ...]

    @property
    def labels(self) -> int:
        """How many strands have a label."""
        return sum(bool(strand.text) for strand in self.strands)

    def offsets(self, with_labels: bool) -> tuple[list[float], float, float]:
        """Heights of strands side by side around a level, and the room that they need above and below it.

        The level is that of the only strand with a label, which is then drawn straight, or else the middle.
        """
        rooms = [PILL + 4 if with_labels and strand.text else strand.width + 2.5 for strand in self.strands]
        ends = list(itertools.accumulate(rooms))
        middles = [end - room / 2 for end, room in zip(ends, rooms, strict=True)]
        level = ends[-1] / 2
        if self.labels == 1:
            level = next(y for y, strand in zip(middles, self.strands, strict=True) if strand.text)
        return [y - level for y in middles], level, ends[-1] - level


def bundled(graph: Graph, operations: Sequence[str] = ()) -> list[Bundle]:
    """Edges by the nodes they join, in order of their first appearance; what cannot be is left out.

    Args:
        graph: the picture's.
        operations: those of all pictures that should have the same colours, where there are several.
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
    bundles = []
    for (source, target), options in joined.items():
        way = f"{names[source]} → {names[target]}"
        own, others = _parted(options)
        strands = []
        for edge in own:
            # Beside operations, a line without one is wiring that no one decides on, and should not stand out.
            is_plain = has_operations and not edge.label and edge.probability == 1
            width = _width(edge.probability) if is_belief and not is_plain else 1.8
            strands.append(_strand(edge, way, colour[edge.label], width))
        if others:
            strands.append(_rest(others, way))
        bundles.append(Bundle(source, target, tuple(strands)))
    return [_quieter(bundle) for bundle in bundles] if _is_crowded(bundles) else bundles


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


def _strand(edge: Edge, way: str, colour: str, width: float) -> Strand:
    share = _percent(edge.probability) if edge.probability < 1 else ""
    strand = Strand(
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
    return strand if edge.probability >= UNLIKELY else strand.unlabelled()


def _rest(edges: Sequence[Edge], way: str) -> Strand:
    """All the options of a pair that have no line of their own."""
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


def _width(probability: float) -> float:
    return 1 + 6 * probability if probability >= UNLIKELY else 0.75


def _opacity(probability: float) -> float:
    return 0.4 + 0.6 * probability**0.5 if probability >= UNLIKELY else 0.4


# ---------------------------------------------------------------------------------------------------------------------
# Crowds: fewer labels, and a legend instead.


def _is_crowded(bundles: Sequence[Bundle]) -> bool:
    return sum(len(bundle.strands) for bundle in bundles) > CROWDED


def _quieter(bundle: Bundle) -> Bundle:
    """With the label of the likeliest operation alone, and without shares that belong to none."""
    top = max((s for s in bundle.strands if s.operation != REST), key=lambda s: s.probability)
    is_bare = len(bundle.strands) == 1 and not top.operation
    strands = [s if s is top and not is_bare else s.unlabelled() for s in bundle.strands]
    return replace(bundle, strands=tuple(strands))


def needs_legend(bundles: Sequence[Bundle]) -> bool:
    """Whether lines went without their labels because there are too many."""
    return _is_crowded(bundles) and any(len(bundle.strands) > 1 for bundle in bundles)


def legend(graph: Graph, bundles: Sequence[Bundle]) -> list[tuple[str, str]]:
    """Operations that have a line and their colours, in the order of the graph."""
    colours = {strand.operation: strand.colour for bundle in bundles for strand in bundle.strands if strand.operation}
    labels = dict.fromkeys([*(edge.label for edge in graph.edges), REST])
    return [(operation, colours[operation]) for operation in labels if operation in colours]


# ---------------------------------------------------------------------------------------------------------------------
# Colours.


def colours(labels: Sequence[str]) -> dict[str, str]:
    """A colour an operation; two of no known family differ as long as colours last."""
    found: dict[str, str] = {}
    for label in dict.fromkeys(labels):
        colour = _family_colour(label)
        if colour is None:
            wanted = zlib.crc32(label.encode("utf-8", "replace")) % len(OTHERS)
            turned = OTHERS[wanted:] + OTHERS[:wanted]
            colour = next((other for other in turned if other not in found.values()), turned[0])
        found[label] = colour
    return found


def _family_colour(label: str) -> str | None:
    name = label.lower()
    if not name or is_nothing(name):
        return MUTED
    if "pool" in name:
        return MAX_POOL if "max" in name else POOL
    if "conv" in name:
        kind = next(kind for kind in CONVOLUTIONS if kind in name)
        kernel = re.search(r"(\d+)\s*[x×]\s*\d+", name)
        return CONVOLUTIONS[kind][min(int(kernel[1]) // 2, 3) if kernel else 1]
    return SKIP if re.search("skip|identity|shortcut", name) else None


def is_nothing(label: str) -> bool:
    """Whether an operation's name says that it lets nothing through."""
    return bool({"none", "zero", "zeroize"} & set(re.findall("[a-z]+", label.lower())))


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
