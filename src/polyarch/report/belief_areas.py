"""Belief over time as stacked areas, one small panel per decision: as high as options are probable, 1 in all.

The page draws the panels itself, so that as many stand side by side as there is room for.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from polyarch.plotting import Array, thinned
from polyarch.report import formatting, operation_colours, time_figures
from polyarch.report.trajectory import Trajectory, mean_probs

MOST_PANELS = 32
"""Of more decisions, those are shown in which belief moved furthest; two DARTS cells have 28 edges."""
MOST_AREAS = 8
"""Options of a panel with an area of their own."""
FEW = 3
"""Of more options, those have one that were ever among so many likeliest."""
WIDE, NARROW, MANY = 230, 150, 9
"""Pixels of the narrowest panel; more panels than `MANY` are narrow. The page's style has the same numbers."""
COLOURS = {operation_colours.MUTED: "var(--muted)"}
"""Colours that follow the page's."""
REST = "others"
REST_COLOUR = "var(--line)"


@dataclass(frozen=True)
class Area:
    """One option, or the rest of them."""

    path: str
    """From the bottom of the panel up to the area's upper edge; what is below it is painted over it."""
    colour: str
    hint: str


@dataclass(frozen=True)
class Panel:
    """One decision."""

    name: str
    likeliest: str
    """The most probable option in the end."""
    share: str
    colour: str
    areas: Sequence[Area]
    """In the order of painting, the uppermost first."""


@dataclass(frozen=True)
class Picture:
    """All panels, and what they share."""

    panels: Sequence[Panel]
    are_many: bool
    groups: frozenset[str]
    """Names of the panels that begin a cell, and so a row."""
    decisions: int
    """How many there are, shown or not."""
    legend: Sequence[tuple[str, str]]
    """Operations and their colours."""
    stages: Sequence[tuple[float, str]]
    """Where stages begin, in % of the width, and their names; nothing of a single one."""
    first: int
    last: int
    """Epochs at both ends."""
    shares_colours: bool
    """Whether several options are the same operation, on different inputs."""
    has_rest: bool
    moved: float
    """How far any option ever was from where it started."""


def picture(
    trajectories: Sequence[Trajectory], options: Mapping[str, Sequence[str]], operations: Mapping[str, Sequence[str]]
) -> Picture:
    """Belief over the epochs, as the mean over runs.

    Args:
        trajectories: the runs.
        options: names of every decision's options.
        operations: what each of them stands for; the same has the same colour everywhere, also in pictures of cells.
    """
    epochs, probs = _belief(trajectories)
    shown = _shown(probs)
    found = operation_colours.colours(colour_order(trajectories, operations))
    colours = {operation: COLOURS.get(colour, colour) for operation, colour in found.items()}
    first, last = time_figures.ends(trajectories)
    across = 100 * (epochs - first) / (last - first)
    panels = [
        _panel(name, probs[name], options[name], [colours[operation] for operation in operations[name]], across)
        for name in shown
    ]
    drawn, every = _drawn(probs, operations), dict.fromkeys(itertools.chain.from_iterable(operations.values()))
    legend = [(operation, colours[operation]) for operation in every if operation in drawn]
    has_rest = any(panel.areas[0].colour == REST_COLOUR for panel in panels)
    marks = time_figures.stage_marks(trajectories, NARROW if len(panels) > MANY else WIDE)
    return Picture(
        panels=panels,
        are_many=len(panels) > MANY,
        groups=_groups(shown),
        decisions=len(probs),
        legend=[*legend, (REST, REST_COLOUR)] if has_rest else legend,
        stages=[(100 * (x - first) / (last - first), text) for x, text in marks],
        first=round(first),
        last=round(last),
        shares_colours=any(len(set(operations[name])) < len(options[name]) for name in shown),
        has_rest=has_rest,
        moved=max(map(_moved, probs.values())),
    )


def colour_order(trajectories: Sequence[Trajectory], operations: Mapping[str, Sequence[str]]) -> list[str]:
    """All operations, those first that have an area: these should differ in colour as long as there are enough."""
    _, probs = _belief(trajectories)
    return list(dict.fromkeys([*_drawn(probs, operations), *itertools.chain.from_iterable(operations.values())]))


def _drawn(probs: Mapping[str, Array], operations: Mapping[str, Sequence[str]]) -> dict[str, None]:
    """The operations that have an area, each once, in order."""
    return dict.fromkeys(operations[name][k] for name in _shown(probs) for k in _named(probs[name]))


def _belief(trajectories: Sequence[Trajectory]) -> tuple[Array, dict[str, Array]]:
    """Epochs, and for each decision the mean probabilities [epochs, options]."""
    longest = max(trajectories, key=lambda t: float(t.epochs[-1])).epochs
    epochs = longest[thinned(len(longest), 80)]
    return epochs, {name: mean_probs(trajectories, name, epochs) for name in trajectories[0].probs}


def _shown(probs: Mapping[str, Array]) -> list[str]:
    """The decisions that have a panel, in their order."""
    furthest = sorted(probs, key=lambda name: -_moved(probs[name]))[:MOST_PANELS]
    return [name for name in probs if name in furthest]


def _groups(names: Sequence[str]) -> frozenset[str]:
    """The first of the names that share what is before their first point, as the edges of a cell do; if not too few."""
    cells = [name.partition(".")[0] if "." in name else "" for name in names]
    first = dict(zip(reversed(cells), reversed(names), strict=True))
    return frozenset(first.values()) if len(first) <= len(names) / 5 else frozenset()


def _known(probs: Array) -> Array:
    """The rows that have numbers."""
    return probs[np.isfinite(probs).all(1)]


def _moved(probs: Array) -> float:
    """How far any option ever was from where it started."""
    known = _known(probs)
    return float(np.abs(known - known[0]).max())


def _named(probs: Array) -> list[int]:
    """Options with an area of their own, in their order: all that were ever possible, or the likeliest of many."""
    known = _known(probs)
    peak = known.max(0)
    found = np.flatnonzero(peak)
    if len(found) > MOST_AREAS:
        ever = np.unique((-known).argsort(1, kind="stable")[:, :FEW])
        found = ever[(-peak[ever]).argsort(kind="stable")][:MOST_AREAS]
    return sorted(found.tolist())


def _panel(name: str, probs: Array, options: Sequence[str], colours: Sequence[str], across: Array) -> Panel:
    named = _named(probs)
    tops = np.cumsum(probs[:, named], 1)
    areas = [
        Area(_path(across, tops[:, k]), colours[option], f"{options[option]}: {_span(probs[:, option])}")
        for k, option in enumerate(named)
    ]
    rest = np.delete(probs, named, 1)
    if (_known(rest) > 0).any():
        others = f"{rest.shape[1]} other options: {_span(rest.sum(1))}"
        areas.append(Area(_path(across, probs.sum(1)), REST_COLOUR, others))
    end = _known(probs)[-1]
    best = int(end.argmax())
    return Panel(name, options[best], formatting.about_percent(float(end[best])), colours[best], areas[::-1])


def _span(probs: Array) -> str:
    known = probs[np.isfinite(probs)]
    return f"{formatting.about_percent(float(known[0]))} → {formatting.about_percent(float(known[-1]))}"


def _path(across: Array, tops: Array) -> str:
    """A path in a square of 100, its origin in the left upper corner; one piece between two gaps."""
    known = np.flatnonzero(np.isfinite(tops))
    pieces = np.split(known, np.flatnonzero(np.diff(known) > 1) + 1)
    parts = []
    for piece in pieces:
        points = " ".join(f"{across[k]:.4g} {100 * (1 - tops[k]):.4g}" for k in piece)
        parts.append(f"M{across[piece[0]]:.4g} 100L{points}V100Z")
    return "".join(parts)
