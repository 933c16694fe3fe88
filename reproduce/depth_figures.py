"""Figures 2 to 11 of seed 000, from the rows of `reproduce.depth`; light SVG files beside them.

    python -m reproduce.depth --figures                        # all; 3, 7 and 8 train networks on spirals, minutes
    python -m reproduce.depth --figures fig2,fig3 --epochs 500

Bars and bands are one standard deviation over seeds, cut at 0 where a log-likelihood cannot be above; faint dots are
the seeds themselves.
"""

from __future__ import annotations

import functools
import math
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath
from matplotlib.ticker import MaxNLocator, PercentFormatter

import polyarch as pa
from polyarch.data.task import Task
from polyarch.plotting import (
    BLUE,
    CARD,
    GREEN,
    INK,
    LINE,
    MUTED,
    ORANGE,
    PALE,
    SHADES,
    VARIABLES,
    WIDTH,
    Array,
    grid,
    label_ends,
    style,
    to_svg,
)
from polyarch.report.prediction_figures import class_image
from polyarch.runs.run import Run
from polyarch.spaces.views import All
from reproduce import depth, depth_tables
from reproduce.depth_tables import DATA, IMAGES, PAPER, Kind, Part, Row, errors, fits, full, mixture, network

FONT = "'DejaVu Sans', Verdana, 'Helvetica Neue', Arial, sans-serif"
FIT = "test log-likelihood"


def standalone(figure: Figure, name: str, title: str) -> str:
    """A figure as an SVG file of its own: light, with its size, a title, and fonts by name."""
    svg = str(to_svg(figure, name, smooth=True))
    for variable, colour in VARIABLES.items():
        svg = svg.replace(f"var(--{variable})", colour)
    width, height = re.findall(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)[0]
    opening = (
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" role="img" '
        f'viewBox="0 0 {width} {height}" width="{width}pt" height="{height}pt" font-family="{FONT}">\n'
        f'<title>{title}</title>\n<rect width="100%" height="100%" fill="{CARD}"/>'
    )
    return opening + svg[svg.index(">") + 1 :] + "\n"


# ---------------------------------------------------------------------------------------------------------------------
# Small things.


def _minus(text: str) -> str:
    return text.replace("-", "−")


def _spread(values: Sequence[float]) -> float:
    return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def _series(
    axes: Axes, places: Sequence[float], values: Sequence[Sequence[float]], colour: str, *, dashed: bool = False
) -> float:
    """Mean and deviation over seeds at every place, and the seeds as faint dots; returns the last mean."""
    means = [float(np.mean(v)) for v in values]
    most = 0.0 if max(max(v) for v in values) <= 0 else math.inf
    line = (0, (2.2, 1.6)) if dashed else "solid"
    axes.plot(places, means, color=colour, linewidth=1.3, linestyle=line, zorder=3)
    if dashed:
        return means[-1]
    for place, own, mean in zip(places, values, means, strict=True):
        axes.plot([place] * len(own), own, "o", color=colour, markersize=2.6, alpha=0.28, markeredgewidth=0)
        axes.vlines(place, mean - _spread(own), min(mean + _spread(own), most), color=colour, linewidth=1.1)
        axes.plot(place, mean, "o", color=colour, markersize=5, markeredgewidth=0, zorder=4)
    return means[-1]


def _floor(axes: Axes, values: Sequence[Sequence[float]]) -> None:
    """Limits of a log-likelihood: 0 at the top, and below, what seeds and deviations need."""
    low = min(min(*v, float(np.mean(v)) - _spread(v)) if len(v) > 1 else v[0] for v in values)
    axes.set_ylim(low * 1.06, -low * 0.03)
    axes.yaxis.set_major_locator(_ticks(6))


def _ticks(most: int, *, integer: bool = False) -> MaxNLocator:
    return MaxNLocator(most, steps=[1, 2, 5, 10], integer=integer)


def _envelope(axes: Axes, probs: Array) -> float:
    """One deviation around mean belief; returns the height it reaches."""
    mean, places = probs.mean(0), np.arange(probs.shape[1])
    if len(probs) == 1:
        return float(mean.max())
    spread = probs.std(0, ddof=1)
    low, high, edges = np.maximum(mean - spread, 0), mean + spread, np.arange(len(places) + 1) - 0.5
    axes.fill_between(places, low, high, step="mid", color=INK, alpha=0.08, linewidth=0)
    for values in (low, high):
        axes.stairs(values, edges, baseline=None, color=INK, linewidth=0.7, alpha=0.55)
    return float(high.max())


def _seeds(rows: Sequence[Row]) -> str:
    counts = Counter(str(depth_tables.labels_of(row)) for row in rows).values()
    few, most = min(counts), max(counts)
    return (f"{few} to {most}" if few < most else str(most)) + (" seeds" if most > 1 else " seed")


# ---------------------------------------------------------------------------------------------------------------------
# Spirals, from rows.


def fig2(parts: dict[str, Part]) -> Figure:
    """Belief over depth and networks of fixed depth; depth and fit against D."""
    left, right = parts.get("draws"), parts.get("max_depths")
    figure = Figure(figsize=(WIDTH, 4.7))
    panels = figure.subplots(2, 2, sharex="col", width_ratios=(1.3, 1), height_ratios=(1.15, 1))
    figure.subplots_adjust(0.055, 0.095, 0.91, 0.945, hspace=0.24, wspace=0.33)
    if left:
        _belief_and_fits(panels[0, 0], panels[1, 0], left)
    if right:
        _sweep(panels[0, 1], panels[1, 1], right, "D", "maximum depth D")
    for column, part in enumerate((left, right)):
        if part is None:
            for axes in panels[:, column]:
                axes.set_axis_off()
    return figure


def _belief_and_fits(top: Axes, bottom: Axes, part: Part) -> None:
    """Fig. 2 left."""
    [deepest] = part.values_of("D", who="LDN")
    rows = part.having(who="LDN", D=deepest)
    probs = np.array([row["probs"] for row in rows])
    places, mean = np.arange(deepest + 1), probs.mean(0)
    selected = depth_tables.depths(rows)
    middle = float(np.mean(selected))
    grid(top)
    top.bar(places, mean, 0.74, color=[BLUE if d <= middle else PALE for d in places], linewidth=0)
    height = _envelope(top, probs)
    for d in sorted(set(selected)):
        count = selected.count(d)
        top.plot([d] * count, height * (1.08 + 0.075 * np.arange(count)), "o", color=ORANGE, markersize=4.2)
    tallest = height * (1.1 + 0.075 * max(selected.count(d) for d in selected))
    for axes in (top, bottom):
        axes.axvline(middle, color=ORANGE, linewidth=1, zorder=2.5)
    text = f"selected: {middle:.1f}" + (f" ± {_spread(selected):.1f}" if len(rows) > 1 else "")
    top.annotate(
        text, (max(selected), tallest), (8, -1), textcoords="offset points", color=ORANGE, weight="bold", va="top"
    )
    top.annotate(
        "a dot a seed; the paper: 9",
        (max(selected), tallest),
        (8, -13),
        textcoords="offset points",
        color=MUTED,
        va="top",
    )
    top.set_ylim(0, tallest * 1.03)
    top.set_yticks([t for t in _ticks(4).tick_values(0, height) if 0 <= t <= height * 1.05])
    top.set_title(f"q(d) of LDN, D={deepest}: mean of {_seeds(rows)}, each with data of its own")
    _fixed_depths(bottom, part, rows)
    bottom.set_xlim(-0.8, deepest + 0.8)
    bottom.set_xlabel("depth (residual blocks)")
    _label_fixed(bottom, part, rows)


def _fixed_depths(axes: Axes, part: Part, learnt: Sequence[Row]) -> None:
    grid(axes)
    pruned = fits(learnt, mixture())
    level, spread = float(np.mean(pruned)), _spread(pruned)
    axes.axhspan(level - spread, min(level + spread, 0), color=BLUE, alpha=0.12, linewidth=0)
    axes.axhline(level, color=BLUE, linewidth=1.4)
    places = part.values_of("D", who="DDN")
    values = [fits(part.having(who="DDN", D=d), network()) for d in places]
    if places:
        _series(axes, places, values, GREEN)
    _floor(axes, [*values, pruned])
    axes.set_title(f"{FIT}: networks of fixed depth (DDN) and LDN pruned")


def _label_fixed(axes: Axes, part: Part, learnt: Sequence[Row]) -> None:
    labels = [(float(np.mean(fits(learnt, mixture()))), "LDN", BLUE)]
    if places := part.values_of("D", who="DDN"):
        labels.append((float(np.mean(fits(part.having(who="DDN", D=places[-1]), network()))), "DDN", GREEN))
    label_ends(axes, labels)


def _sweep(top: Axes, bottom: Axes, part: Part, label: str, title: str, *, log: bool = False) -> None:
    """Selected depth above, fit of the pruned and the full mixture below, along one setting."""
    places = part.values_of(label, who="LDN")
    groups = [part.having(who="LDN", **{label: place}) for place in places]
    grid(top)
    grid(bottom)
    chosen = [depth_tables.depths(rows) for rows in groups]
    _series(top, places, chosen, ORANGE)
    top.set_ylim(0, max(max(c) for c in chosen) * 1.12)
    top.yaxis.set_major_locator(_ticks(5, integer=True))
    top.set_title(f"selected depth, {_seeds([row for rows in groups for row in rows])} on the same data")
    pruned = [fits(rows, mixture()) for rows in groups]
    whole = [fits(rows, full) for rows in groups]
    ends = [_series(bottom, places, pruned, BLUE), _series(bottom, places, whole, INK, dashed=True)]
    _floor(bottom, [*pruned, *whole])
    bottom.set_title(FIT)
    bottom.set_xlabel(title)
    if log:
        bottom.set_xscale("log")
        bottom.set_xticks(places, [str(p) for p in places])
        bottom.minorticks_off()
    room = 0.0 if log else 0.03 * (places[-1] - places[0] or 1)
    bottom.set_xlim(*((places[0] / 1.15, places[-1] * 1.15) if log else (places[0] - room, places[-1] + room)))
    label_ends(bottom, [(ends[0], "pruned", BLUE), (ends[1], "full", INK)])


def fig5(parts: dict[str, Part]) -> Figure:
    """Depth and fit against width."""
    figure = Figure(figsize=(WIDTH * 0.62, 4.2))
    top, bottom = figure.subplots(2, 1, sharex=True)
    figure.subplots_adjust(0.085, 0.105, 0.9, 0.94, hspace=0.25)
    _sweep(top, bottom, parts["widths"], "width", "width w (logarithmic), D = 20", log=True)
    return figure


def fig6(parts: dict[str, Part]) -> Figure:
    """Depth and fit against rotation, and against the number of training points."""
    shown = [
        (parts[name], label, title)
        for name, label, title in (
            ("rotations", "rotation", "rotation of the spirals, degrees (200 points)"),
            ("points", "points", "training points (720 degrees)"),
        )
        if name in parts
    ]
    figure = Figure(figsize=(WIDTH if len(shown) > 1 else 0.55 * WIDTH, 4.2))
    panels = figure.subplots(2, len(shown), sharex="col", squeeze=False)
    figure.subplots_adjust(0.055 if len(shown) > 1 else 0.1, 0.105, 0.935 if len(shown) > 1 else 0.88, 0.94, 0.27, 0.25)
    for (top, bottom), (part, label, title) in zip(panels.T, shown, strict=True):
        _sweep(top, bottom, part, label, title)
        if label == "rotation":
            bottom.set_xticks(part.values_of(label))
    return figure


# ---------------------------------------------------------------------------------------------------------------------
# Images, from rows.

KINDS = {"LDN-95": BLUE, "LDN-E": SHADES[3], "LDN-full": MUTED, "DDN": GREEN}
"""What is compared on images: LDN cut by the 95 % rule or at the expected depth, not cut, and the fixed depth."""


def _image_data(part: Part) -> list[str]:
    return [name for name in DATA if part.having(data=name, who="LDN")]


def fig4(parts: dict[str, Part]) -> Figure:
    """Belief on images and what the 95 % rule takes of it; fits below."""
    part = parts["images"]
    names = _image_data(part)
    figure = Figure(figsize=(WIDTH, 4.5))
    panels = figure.subplots(2, len(names), sharex="col", squeeze=False, height_ratios=(1.15, 1))
    figure.subplots_adjust(0.06, 0.1, 0.925, 0.94, hspace=0.26, wspace=0.38)
    for (top, bottom), name in zip(panels.T, names, strict=True):
        deepest = max(part.values_of("D", data=name, who="LDN"))
        rows = part.having(data=name, who="LDN", D=deepest)
        _image_belief(top, rows, name, deepest)
        _image_fits(bottom, part, name, deepest)
    return figure


def _image_belief(axes: Axes, rows: Sequence[Row], name: str, deepest: int) -> None:
    probs = np.array([row["probs"] for row in rows])
    mean, places = probs.mean(0), np.arange(deepest + 1)
    cut = float(np.mean(depth_tables.depths(rows, "95%")))
    grid(axes)
    axes.bar(places, mean, 0.74, color=[BLUE if d <= cut else PALE for d in places], linewidth=0)
    top = _envelope(axes, probs)
    axes.hlines(0.95 * mean.max(), -0.6, deepest + 0.6, color=MUTED, linewidth=0.9, linestyle=(0, (1, 1.8)))
    known = PAPER[name][0] if deepest == 50 else None
    marks = [(cut, f"95 % rule: {cut:g}", ORANGE)] + ([(known, f"the paper: {known}", MUTED)] if known else [])
    for at, text, colour in marks:
        left = known is not None and at == min(cut, known)
        axes.vlines(at, 0 if colour == ORANGE else top * 0.98, top * 1.1, color=colour, linewidth=1)
        axes.annotate(
            text,
            (at, top * 1.1),
            (2 if left else -2, 2),
            textcoords="offset points",
            color=colour,
            weight="bold" if colour == ORANGE else "normal",
            ha="right" if left else "left",
        )
    axes.set_ylim(0, top * 1.22)
    axes.set_yticks([t for t in _ticks(4).tick_values(0, top) if 0 <= t <= top])
    axes.set_title(f"{DATA[name]}: q(d) of LDN, D={deepest}, {_seeds(rows)}")
    label_ends(axes, [(0.95 * mean.max(), "95 % of\nhighest", MUTED)])


def _image_fits(axes: Axes, part: Part, name: str, deepest: int) -> None:
    """Every kind at the depth that it computes; fixed depths of other D too."""
    grid(axes)
    points = []
    for other in part.values_of("D", data=name):
        for kind, rows, chosen, of, _ in depth_tables.image_kinds(part, name, other):
            if other == deepest or kind == "DDN":
                points.append((kind, float(np.mean(chosen)), fits(rows, of)))
    for kind, at, values in points:
        middle = float(np.mean(values))
        axes.vlines(at, middle - _spread(values), middle + _spread(values), color=KINDS[kind], linewidth=1.1)
        axes.plot(at, middle, "D" if kind == "LDN-95" else "o", color=KINDS[kind], markersize=6, markeredgewidth=0)
    ldn = sorted((at, float(np.mean(values))) for kind, at, values in points if kind != "DDN")
    axes.plot(*zip(*ldn, strict=True), color=BLUE, linewidth=0.9, alpha=0.45, zorder=1)
    fixed = sorted((at, float(np.mean(values))) for kind, at, values in points if kind == "DDN")
    axes.plot(*zip(*fixed, strict=True), color=GREEN, linewidth=0.9, alpha=0.45, zorder=1)
    low = min(float(np.mean(v)) - _spread(v) for _, _, v in points)
    high = max(float(np.mean(v)) + _spread(v) for _, _, v in points)
    room = max(high - low, 1e-4)
    axes.set_ylim(low - 0.25 * room, high + 0.25 * room)
    axes.set_xlim(-0.8, deepest + 1.2)
    axes.yaxis.set_major_locator(_ticks(6))
    axes.set_title(FIT)
    axes.set_xlabel("depth computed (residual blocks)")
    label_ends(
        axes, [(float(np.mean(v)), kind, KINDS[kind]) for kind, at, v in points if at == deepest and kind in KINDS]
    )
    for kind, at, values in points:
        if at < deepest and kind != "DDN":
            above = kind == "LDN-E"
            axes.annotate(
                kind,
                (at, float(np.mean(values))),
                (0, 7 if above else -7),
                textcoords="offset points",
                color=KINDS[kind],
                ha="center",
                va="bottom" if above else "top",
            )


def fig9(parts: dict[str, Part]) -> Figure:
    """Learnt depth, fit and error by rule, for every D and data set that there is."""
    part = parts["images"]
    names = _image_data(part)
    figure = Figure(figsize=(WIDTH, 0.35 + 1.8 * len(names)))
    panels = figure.subplots(len(names), 3, squeeze=False)
    several = any(len(part.values_of("D", data=name)) > 1 for name in names)
    figure.subplots_adjust(
        0.075, (0.26 if several else 0.17) / len(names), 0.925 if several else 0.985, 1 - 0.19 / len(names)
    )
    figure.subplots_adjust(hspace=0.66 if several else 0.45, wspace=0.54 if several else 0.1)
    for line, name in zip(panels, names, strict=True):
        deepest = part.values_of("D", data=name)
        where = f"{DATA[name]}, {'' if several else f'D={deepest[0]}, '}{_seeds(part.having(data=name))}"
        for axes, (title, of) in zip(line, _MEASURES.items(), strict=True):
            (_along if several else _beside)(axes, part, name, of)
            axes.set_title(f"{where}: {title}" if axes is line[0] else title)
            if axes is not line[0] and not several:
                axes.tick_params(labelleft=False)
    return figure


def _depth_of(kind: Kind) -> list[float]:
    return [float(d) for d in kind.depths]


def _fit_of(kind: Kind) -> list[float]:
    return fits(kind.rows, kind.of)


def _error_of(kind: Kind) -> list[float]:
    return errors(kind.rows, kind.of)


_MEASURES: dict[str, Callable[[Kind], list[float]]] = {
    "depth": _depth_of,
    FIT: _fit_of,
    "test error, %": _error_of,
}


def _beside(axes: Axes, part: Part, name: str, of: Callable[[Kind], list[float]]) -> None:
    """One D: a row a kind, its value at the dot."""
    [deepest] = part.values_of("D", data=name)
    kinds = depth_tables.image_kinds(part, name, deepest)
    means = [float(np.mean(of(kind))) for kind in kinds]
    low, high = min(means), max(means)
    room = (high - low) or abs(high) or 1
    axes.set_xlim((0, 1.15 * deepest) if of is _depth_of else (low - 0.25 * room, high + 0.45 * room))
    axes.set_ylim(len(kinds) - 0.5, -0.5)
    grid(axes, "x")
    axes.spines["left"].set_visible(False)
    for place, (kind, mean) in enumerate(zip(kinds, means, strict=True)):
        values, colour = of(kind), KINDS[kind.name]
        if of is _depth_of:
            axes.hlines(place, 0, mean, color=colour, linewidth=1.1, alpha=0.5)
        else:  # no stems: the axis does not begin at 0
            axes.axhline(place, color=LINE, linewidth=0.6)
        axes.hlines(place, mean - _spread(values), mean + _spread(values), color=colour, linewidth=1.6)
        axes.plot(mean, place, "o", color=colour, markersize=6, markeredgewidth=0)
        digits = 0 if of is _depth_of else 2 if of is _error_of else 4 if abs(mean) < 0.1 else 3
        text = _minus(f"{mean:.{digits}f}")
        axes.annotate(text, (mean, place), (7, 0), textcoords="offset points", color=colour, va="center")
    axes.set_yticks(range(len(kinds)), [kind.name for kind in kinds])
    for tick, kind in zip(axes.get_yticklabels(), kinds, strict=True):
        tick.set_color(KINDS[kind.name])
    axes.xaxis.set_major_locator(_ticks(4))


def _along(axes: Axes, part: Part, name: str, of: Callable[[Kind], list[float]]) -> None:
    """Several D: a line a kind over D."""
    grid(axes)
    found: dict[str, dict[int, list[float]]] = {}
    for deepest in part.values_of("D", data=name):
        for kind in depth_tables.image_kinds(part, name, deepest):
            if of is not _depth_of or kind.name in depth_tables.IMAGE_RULES:
                found.setdefault(kind.name, {})[deepest] = of(kind)
    ends = []
    for label, values in found.items():
        places = list(values)
        for place, own in values.items():
            mean, spread = float(np.mean(own)), _spread(own)
            axes.vlines(place, mean - spread, mean + spread, color=KINDS[label], linewidth=1.1)
        means = [float(np.mean(own)) for own in values.values()]
        axes.plot(places, means, "o-", color=KINDS[label], markersize=4.5, markeredgewidth=0, linewidth=1.2)
        ends.append((means[-1], label, KINDS[label]))
    if of is _depth_of:
        axes.set_ylim(0)
    axes.yaxis.set_major_locator(_ticks(6))
    axes.set_xlabel("maximum depth D")
    axes.set_xlim(axes.get_xlim())
    label_ends(axes, ends)


def fig10(parts: dict[str, Part]) -> Figure:
    """Expected calibration error, as usually defined and as in the released code."""
    part = parts["images"]
    names = _image_data(part)
    shown = {"LDN-95": "LDN pruned", "LDN-full": "LDN full", "DDN": "DDN"}
    measures = {"ece": "ECE of the top class", "ece_all_classes": "ECE over all classes, as in the released code"}
    figure = Figure(figsize=(WIDTH, 0.3 + 1.3 * len(names)))
    panels = figure.subplots(len(names), 2, squeeze=False)
    figure.subplots_adjust(0.085, 0.13, 0.965, 1 - 0.21 / len(names), hspace=0.62, wspace=0.3)
    for line, name in zip(panels, names, strict=True):
        deepest = max(part.values_of("D", data=name))
        kinds = [kind for kind in depth_tables.image_kinds(part, name, deepest) if kind.name in shown]
        for axes, (measure, title) in zip(line, measures.items(), strict=True):
            values = [[100 * kind.of(row)[measure] for row in kind.rows] for kind in kinds]
            means = [float(np.mean(v)) for v in values]
            colours = [KINDS[kind.name] for kind in kinds]
            grid(axes, "x")
            axes.spines["left"].set_visible(False)
            axes.barh(range(len(kinds)), means, 0.62, color=colours, alpha=0.88, linewidth=0)
            for place, (own, mean, colour) in enumerate(zip(values, means, colours, strict=True)):
                axes.hlines(place, mean - _spread(own), mean + _spread(own), color=INK, linewidth=1.1)
                text = depth_tables.told(own, 2) + " %"
                axes.annotate(
                    text,
                    (mean + _spread(own), place),
                    (5, 0),
                    textcoords="offset points",
                    color=colour,
                    va="center",
                )
            axes.set_yticks(range(len(kinds)), [shown[kind.name] for kind in kinds])
            axes.set_ylim(len(kinds) - 0.5, -0.5)
            axes.set_xlim(0, max(means) * 1.22)
            axes.xaxis.set_major_locator(_ticks(5))
            axes.xaxis.set_major_formatter(lambda value, _: f"{round(value, 6):g} %")
            where = f"{DATA[name]}, D={deepest}, {_seeds(kinds[0].rows)}: "
            axes.set_title(where + title if axes is line[0] else title)
    return figure


def fig11(parts: dict[str, Part]) -> Figure:
    """The share of a forward pass that pruning saves: measured, as the blocks would have it, and the paper's."""
    part = parts["images"]
    names = _image_data(part)
    groups = [(name, deepest) for name in names for deepest in part.values_of("D", data=name, who="LDN")]
    figure = Figure(figsize=(WIDTH * 0.72, 0.45 + 0.78 * len(groups)))
    axes = figure.subplots()
    figure.subplots_adjust(0.19, 0.3 / (0.45 + 0.78 * len(groups)), 0.955, 1 - 0.3 / (0.45 + 0.78 * len(groups)))
    grid(axes, "x")
    axes.spines["left"].set_visible(False)
    for place, (name, deepest) in enumerate(groups):
        rows = part.having(data=name, who="LDN", D=deepest)
        saved = [row["forward_seconds"]["saving"] for row in rows]
        blocks = [1 - d / deepest for d in depth_tables.depths(rows, "95%")]
        bars = [("measured", float(np.mean(saved)), BLUE), ("blocks left out", float(np.mean(blocks)), PALE)]
        if deepest == 50:
            bars.append(("the paper", PAPER[name][1], MUTED))
        for k, (label, share, colour) in enumerate(bars):
            at = place + 0.27 * (k - (len(bars) - 1) / 2)
            axes.barh(at, share, 0.23, color=colour, linewidth=0, alpha=0.45 if colour == MUTED else 1)
            text = f"{label} {100 * share:.0f} %"
            axes.annotate(
                text,
                (max(share, 0), at),
                (5, 0),
                textcoords="offset points",
                va="center",
                color=BLUE if colour == BLUE else MUTED,
                weight="bold" if colour == BLUE else "normal",
            )
    axes.set_yticks(
        range(len(groups)),
        [
            f"{DATA[name]}\n{_said_depth(part.having(data=name, who='LDN', D=deepest))} of {deepest} blocks"
            for name, deepest in groups
        ],
    )
    axes.tick_params(axis="y", labelcolor=INK)
    axes.set_ylim(len(groups) - 0.45, -0.55)
    axes.set_xlim(0, 1)
    axes.xaxis.set_major_formatter(PercentFormatter(1, 0, symbol=" %"))
    axes.set_title(f"forward pass saved by the 95 % rule, {_seeds(part.having(who='LDN'))}")
    return figure


def _said_depth(rows: Sequence[Row]) -> str:
    return f"{float(np.mean(depth_tables.depths(rows, '95%'))):g}"


# ---------------------------------------------------------------------------------------------------------------------
# Functions learnt on spirals: these train networks.

SIDE = 72
"""Cells along each side of a map."""
MAP_NOTE = "below each map: test log-likelihood; framed: the depth of largest q(d)"
SHOWN = (0, 1, 2, 3, 5, 7, 10, 15, 20)


@dataclass(frozen=True)
class Learnt:
    """What one network says of the plane at every depth, and how well it fits test data there."""

    alone: Array
    """[depths, SIDE, SIDE]: the probability of the second arm from each depth alone."""
    cut: Array
    """The same from the mixture cut at each depth (Eq. 3)."""
    fits_alone: Array
    """[depths] test log-likelihoods of `alone`."""
    fits_cut: Array
    probs: Array
    selected: int
    epochs: int
    """How long it trained: at most as long as asked for."""
    x: Array
    y: Array
    extent: tuple[float, float, float, float]


@functools.cache
def learn(who: str, epochs: int, rotation: float, points: int) -> Learnt:
    """Trains LDN or DDN with D=20 on spirals as the paper does, seed 0, and asks it about the plane."""
    name = {"LDN": "variational-depth-spirals", "DDN": "fixed-depth-spirals"}[who]
    task = pa.data.load("spirals", rotation=rotation, points=points)
    with tempfile.TemporaryDirectory() as work:
        effort = depth.Effort(1, epochs, 0, "cpu", "", Path(work), quick=False)
        space = pa.spaces.ResidualDepth(max_depth=20)
        [run] = depth.train(space, task, depth.method(name, epochs=epochs), effort)
        print(f"  {who}, {rotation:g} degrees, {points} points: depth {run.architecture.choices[0]}", flush=True)
        return asked(run, task)


def asked(run: Run, task: Task) -> Learnt:
    """What a run says of the plane around its data."""
    assert task.test is not None
    x = task.train.x.double().numpy()
    low, high = x.min(0), x.max(0)
    room = 0.08 * (high - low)
    (left, bottom), (right, top) = low - room, high + room
    across, up = np.meshgrid(np.linspace(left, right, SIDE), np.linspace(bottom, top, SIDE))
    plane = torch.from_numpy(np.stack([across.ravel(), up.ravel()], -1)).to(task.train.x.dtype)
    q = run.distribution.probs()["depth"].detach().double()
    alone, cut = (said[..., 1].exp().unflatten(-1, (SIDE, SIDE)).numpy() for said in _answers(run, plane, q))
    fits = [
        said.gather(-1, task.test.y.expand(len(said), -1)[..., None]).mean((-1, -2)).numpy()
        for said in _answers(run, task.test.x, q)
    ]
    return Learnt(
        alone=alone,
        cut=cut,
        fits_alone=fits[0],
        fits_cut=fits[1],
        probs=q.numpy(),
        selected=run.architecture.choices[0],
        epochs=run.history()[-1]["epoch"],
        x=x,
        y=task.train.y.numpy(),
        extent=(left, right, bottom, top),
    )


@torch.no_grad()
def _answers(run: Run, x: torch.Tensor, q: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probabilities [depths, n, classes] of each depth alone, and of the mixture cut at each depth."""
    alone = run.supernet()(run.standardise()(x)[None], All())[0].double().log_softmax(-1)
    cut = []
    for last in range(len(alone)):
        weights = torch.cat([q[:last], q[last:].sum()[None]])
        cut.append((alone[: last + 1] + weights.log()[:, None, None]).logsumexp(0))
    return alone, torch.stack(cut)


def _columns(selected: int, deepest: int) -> list[int]:
    """The depths shown: always as many, the selected one among them."""
    shown = [d for d in SHOWN if d < deepest] + [deepest]
    if selected not in shown:
        nearest = min((d for d in shown if 0 < d < deepest), key=lambda d: (abs(d - selected), d))
        shown[shown.index(nearest)] = selected
    return sorted(shown)


def _draw_map(axes: Axes, learnt: Learnt, values: Array, title: str, fit: float, *, strong: bool = False) -> None:
    image = class_image(np.stack([1 - values, values], -1))
    axes.imshow(image, interpolation="none", origin="lower", extent=learnt.extent, aspect="auto")
    _frame(axes, learnt, title, strong=strong)
    note = _minus(f"{fit:.2f}" if abs(fit) >= 0.1 else f"{fit:.3f}" if abs(fit) >= 0.0005 else "≈ 0")
    axes.annotate(note, (0.5, 0), (0, -3), "axes fraction", "offset points", ha="center", va="top", color=MUTED, size=7)


def _frame(axes: Axes, learnt: Learnt, title: str, *, strong: bool = False) -> None:
    axes.set(xlim=learnt.extent[:2], ylim=learnt.extent[2:], xticks=[], yticks=[])
    for edge in axes.spines.values():
        edge.set(visible=True, color=INK if strong else LINE, linewidth=1.5 if strong else 0.8)
    text = axes.set_title(title, pad=3, size=7.5, loc="center", color=INK if strong else MUTED)
    if strong:
        text.set_fontweight("bold")


def _draw_points(axes: Axes, learnt: Learnt, title: str) -> None:
    size = 1.9 if len(learnt.x) <= 200 else 1.4
    for arm, colour in ((0, BLUE), (1, ORANGE)):
        own = learnt.x[learnt.y == arm]
        ends = np.stack([own, own, np.full_like(own, np.nan)], 1).reshape(-1, 2)
        [line] = axes.plot(*ends.T, color=colour, linewidth=size, solid_capstyle="round")
        line.get_path().should_simplify = False
    _frame(axes, learnt, title)


def _draw_belief(axes: Axes, learnt: Learnt) -> None:
    places = np.arange(len(learnt.probs))
    axes.bar(places, learnt.probs, 0.8, color=[BLUE if d <= learnt.selected else PALE for d in places], linewidth=0)
    axes.set(xlim=(-0.8, len(places) - 0.2), yticks=[], xticks=[0, learnt.selected, len(places) - 1])
    axes.tick_params(labelsize=7, length=2)
    axes.spines["left"].set_visible(False)
    axes.set_title("q(d)", pad=3, size=7.5, loc="center", color=MUTED)


def _map_grid(rows: int, columns: int) -> tuple[Figure, npt.NDArray[Any]]:
    """Square panels with room for a heading above every row and a number below every panel."""
    left, right, gap = 0.04, 0.04, 0.09
    side = (WIDTH - left - right - gap * (columns - 1)) / columns
    above, below = 0.42, 0.17
    height = rows * (side + above + below)
    figure = Figure(figsize=(WIDTH, height))
    panels = np.empty((rows, columns), object)
    for r in range(rows):
        for c in range(columns):
            bottom = height - (r + 1) * (side + above + below) + below
            box = ((left + c * (side + gap)) / WIDTH, bottom / height, side / WIDTH, side / height)
            panels[r, c] = figure.add_axes(box)
    return figure, panels


def _heading(axes: Axes, text: str, more: str) -> None:
    axes.annotate(text, (0, 1), (0, 17), "axes fraction", "offset points", weight="bold", annotation_clip=False)
    bold = FontProperties(family="DejaVu Sans", weight="bold", size=8.5)
    shift = TextPath((0, 0), text, prop=bold).get_extents().width + 10
    axes.annotate(more, (0, 1), (shift, 17), "axes fraction", "offset points", color=MUTED, annotation_clip=False)


def fig3(epochs: int) -> Figure:
    """LDN above, each depth alone and the mixture cut there; DDN below."""
    ldn, ddn = (learn(who, epochs, 720.0, 200) for who in ("LDN", "DDN"))
    deepest = len(ldn.probs) - 1
    shown = _columns(ldn.selected, deepest)
    figure, panels = _map_grid(3, len(shown) + 1)
    _draw_points(panels[0, 0], ldn, "training data")
    _draw_belief(panels[1, 0], ldn)
    panels[2, 0].set_axis_off()
    read_out = f"read out at depth d; trained at the last only, {ddn.epochs} epochs"
    for row, one, maps, values, title, more in (
        (0, ldn, ldn.alone, ldn.fits_alone, "LDN, one depth alone", f"{ldn.epochs} epochs; {MAP_NOTE}"),
        (1, ldn, ldn.cut, ldn.fits_cut, "LDN, mixture of depths 0 … d", "cut at d (Eq. 3)"),
        (2, ddn, ddn.alone, ddn.fits_alone, f"DDN of depth {deepest}", read_out),
    ):
        _heading(panels[row, 0], title, more)
        for axes, d in zip(panels[row, 1:], shown, strict=True):
            label = f"0 … {d}" if row == 1 else f"depth {d}"
            _draw_map(axes, one, maps[d], label, values[d], strong=d == one.selected)
    return figure


def fig7(epochs: int) -> Figure:
    """Three rotations."""
    return _sweep_maps({f"LDN, {turn:g}° spirals": learn("LDN", epochs, turn, 200) for turn in (360.0, 720.0, 1080.0)})


def fig8(epochs: int) -> Figure:
    """Three numbers of training points."""
    return _sweep_maps(
        {f"LDN, {count} training points": learn("LDN", epochs, 720.0, count) for count in (50, 200, 500)}
    )


def _sweep_maps(learnt: dict[str, Learnt]) -> Figure:
    """A row for every data set: its points, depths one by one, and the pruned mixture."""
    figure, panels = _map_grid(len(learnt), len(SHOWN) + 2)
    for place, (line, (title, one)) in enumerate(zip(panels, learnt.items(), strict=True)):
        _heading(line[0], title, f"{one.epochs} epochs" + (f"; {MAP_NOTE}" if place == 0 else ""))
        _draw_points(line[0], one, "training data")
        for axes, d in zip(line[1:-1], _columns(one.selected, len(one.probs) - 1), strict=True):
            _draw_map(axes, one, one.alone[d], f"depth {d}", one.fits_alone[d], strong=d == one.selected)
        _draw_map(line[-1], one, one.cut[one.selected], "pruned", one.fits_cut[one.selected])
    return figure


# ---------------------------------------------------------------------------------------------------------------------
# All of them.

FROM_ROWS: dict[str, tuple[Callable[[dict[str, Part]], Figure], tuple[str, ...], str]] = {
    "fig2": (fig2, ("draws", "max_depths"), "Spirals: belief over depth, and maximum depth"),
    "fig4": (fig4, ("images",), "Images: belief over depth"),
    "fig5": (fig5, ("widths",), "Spirals: depth and fit against width"),
    "fig6": (fig6, ("rotations", "points"), "Spirals: depth and fit against rotation and number of points"),
    "fig9": (fig9, ("images",), "Images: depth, fit and error by rule"),
    "fig10": (fig10, ("images",), "Images: calibration"),
    "fig11": (fig11, ("images",), "Images: time saved"),
}
"""Name: function, the parts that it draws (one is enough), and a title."""

TRAINED: dict[str, tuple[Callable[[int], Figure], str]] = {
    "fig3": (fig3, "Spirals: functions learnt at each depth"),
    "fig7": (fig7, "Spirals: functions learnt at three rotations"),
    "fig8": (fig8, "Spirals: functions learnt from 50, 200 and 500 points"),
}
"""Name: function of the epochs to train for at most, and a title."""

NAMES = (*FROM_ROWS, *TRAINED)


def draw(folder: Path, names: Sequence[str] = NAMES, epochs: int = 3000) -> list[Path]:
    """Writes the figures that there are rows for into the folder of the rows; returns their files."""
    found = {name: depth_tables.read(folder, name) for name in ("draws", "max_depths", "widths", "rotations", "points")}
    found["images"] = depth_tables.joined(depth_tables.read(folder, name) for name in IMAGES)
    parts = {name: part for name, part in found.items() if part}
    files = []
    for name in names:
        with style():
            if name in FROM_ROWS:
                make, wanted, title = FROM_ROWS[name]
                if not any(part in parts for part in wanted):
                    print(f"{name}: no rows of {' or '.join(wanted)}, skipped", flush=True)
                    continue
                figure = make(parts)
            else:
                print(f"{name}: trains on spirals", flush=True)
                train, title = TRAINED[name]
                figure = train(epochs)
            file = folder / f"{name}.svg"
            file.write_text(standalone(figure, name, title), encoding="utf-8")
        print(f"{name}: {file}, {file.stat().st_size / 1000:.0f} kB", flush=True)
        files.append(file)
    return files
