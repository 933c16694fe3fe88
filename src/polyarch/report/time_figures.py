"""Figures over the epochs of a search, counted through all its stages: arrays in, SVG out."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from polyarch.architecture import Decision
from polyarch.plotting import (
    BLUE,
    CARD,
    GREEN,
    INK,
    MUTED,
    NARROW,
    ORANGE,
    SHADES,
    WIDTH,
    Array,
    grid,
    label_ends,
    margins,
    rgba,
    style,
    thinned,
    to_svg,
)
from polyarch.report.belief_figures import option_names
from polyarch.report.formatting import MINUS, THIN
from polyarch.report.trajectory import Trajectory, mean_probs

DOTTED = (0, (1, 1.8))
NAMES = 11.0
"""Points that the names of stages need above a panel."""


# --------------------------------------------------------------------------------------------------
# Epochs and stages: what all figures here share.


def ends(trajectories: Sequence[Trajectory]) -> tuple[float, float]:
    """The first epoch that any run has an evaluation of, and the last."""
    first = min(float(t.epochs[0]) for t in trajectories)
    return first, max(first + 1, *(float(t.epochs[-1]) for t in trajectories))


def stage_marks(trajectories: Sequence[Trajectory], wide: float) -> list[tuple[float, str]]:
    """Where stages begin, between two epochs, and their names, or numbers where there is no room for names.

    Nothing where there is a single stage.

    Args:
        trajectories: the runs, whose stages are alike.
        wide: how wide the figure is, in points or pixels.
    """
    (first, last), stages = ends(trajectories), trajectories[0].stages
    if len(stages) == 1:
        return []
    borders = [first, *(after + 0.5 for after in stages[1:]), last]
    rooms = [wide * (end - start) / (last - first) for start, end in itertools.pairwise(borders)]
    name = "stage {}" if min(rooms) > 38 else "{}"
    return [
        (start, name.format(number) if room > 9 else "")
        for number, (start, room) in enumerate(zip(borders, rooms, strict=False), start=1)
    ]


def _over_epochs(
    axes: Axes, trajectories: Sequence[Trajectory], title: str, *, ticks: int, names_stages: bool = True
) -> None:
    """Sets the title, the limits and ticks in epochs, and marks where stages begin."""
    axes.set_xlim(*ends(trajectories))
    axes.xaxis.set_major_locator(MaxNLocator(ticks, integer=True, min_n_ticks=1))
    marks = stage_marks(trajectories, axes.get_window_extent().width * 72 / axes.figure.dpi)
    for x, _ in marks[1:]:
        axes.axvline(x, color=MUTED, linewidth=0.7, zorder=1.5)
    for x, text in marks if names_stages else ():
        place = (x, 1), (1, 2), axes.get_xaxis_transform(), "offset points"
        axes.annotate(text, *place, color=MUTED, fontsize=7.5, va="bottom", annotation_clip=False)
    axes.set_title(title, pad=7 + (NAMES if marks and names_stages else 0))


def _line(axes: Axes, t: Trajectory, values: Array, colour: str, width: float) -> None:
    """A line with gaps where there is no number; a number alone between two gaps is a dot."""
    points = thinned(len(values))
    x, y = t.epochs[points], values[points]
    axes.plot(x, y, color=colour, linewidth=width)
    known = np.pad(np.isfinite(y), 1)
    alone = known[1:-1] & ~known[:-2] & ~known[2:]
    axes.plot(x[alone], y[alone], "o", color=colour, markersize=2 * width, markeredgewidth=0)


# --------------------------------------------------------------------------------------------------
# Belief over the options of a nested decision.


def belief_map(trajectories: Sequence[Trajectory], decision: Decision, width: float = WIDTH) -> Markup:
    """Belief over time as a map of one decision whose options have an order; below, how far it is from its prior."""
    with style():
        figure = Figure(figsize=(width, 4.6))
        top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=(2.7, 1))
        margins(figure, *_sides(width), 0.44, 0.32, hspace=0.3)
        _heat(top, trajectories, decision)
        _over_epochs(bottom, trajectories, MOVED.title, ticks=8, names_stages=False)
        _draw(bottom, trajectories, MOVED)
        bottom.set_xlabel("epoch")
        return to_svg(figure, "belief-map")


def _sides(width: float) -> tuple[float, float]:
    """Inches to the left of panels, for numbers, and to the right, for names of lines."""
    return (0.6, 1.25) if width <= NARROW else (0.6, 1.56)


def _heat(axes: Axes, trajectories: Sequence[Trajectory], decision: Decision) -> None:
    first, last = ends(trajectories)
    columns = min(max(len(t.epochs) for t in trajectories), 300)
    mean = np.nan_to_num(mean_probs(trajectories, decision.name, np.linspace(first, last, columns)))
    options = mean.shape[1]
    half = (last - first) / max(columns - 1, 1) / 2 or 0.5
    peak = float(mean.max())
    cells: dict[str, Any] = {"interpolation": "none", "aspect": "auto", "origin": "lower"}
    extent = (first - half, last + half, -0.5, options - 0.5)
    axes.imshow(rgba(SHADES[0], (mean.T / peak) ** 0.8), extent=extent, **cells)
    wide = 1.3 if len(trajectories) == 1 else 0.9
    for t in trajectories:
        points, probs = thinned(len(t.epochs)), t.probs[decision.name]
        axes.plot(t.epochs[points], probs[points].argmax(1), color=ORANGE, linewidth=wide, drawstyle="steps-mid")
        axes.plot(t.kept, t.at_kept(probs).argmax(), "o", color=ORANGE, markersize=4.5, clip_on=False, zorder=5)
    axes.set_ylim(-0.5, options - 0.5)
    axes.yaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.yaxis.set_major_formatter(option_names(decision))
    title = f"belief at each epoch, by {decision.name}"
    title += ", mean over seeds" if len(trajectories) > 1 else ""
    _over_epochs(axes, trajectories, title, ticks=8)
    inch = axes.figure.dpi / axes.get_window_extent().width
    key = axes.inset_axes((1 + 0.1 * inch, 0.52, 0.15 * inch, 0.44))
    key.imshow(rgba(SHADES[0], np.linspace(0, 1, 40)[:, None] ** 0.8), extent=(0, 1, 0, peak), **cells)
    key.set_xticks([])
    key.yaxis.tick_right()
    key.set_yticks([0, peak], ["0", f"{peak:.2g}"])
    key.spines[:].set_visible(False)
    place = (1, 0.3), (6, 0), "axes fraction", "offset points"
    axes.annotate("largest share\n● kept epoch", *place, color=ORANGE, va="top", linespacing=1.5)


# --------------------------------------------------------------------------------------------------
# What was measured.


@dataclass(frozen=True)
class Line:
    """One measurement over the epochs, by its names in `Trajectory.values`."""

    split: str
    name: str
    label: str = ""
    """What stands at its end; else its last value does."""
    scale: float = 1
    """What values are divided by."""
    colour: str = ""
    """Its own; else that of its split."""


@dataclass(frozen=True)
class Panel:
    """Measurements that share an axis."""

    title: str
    lines: Sequence[Line]
    percent: bool = False
    whole: bool = False
    """Whether all values are whole numbers."""
    from_zero: bool = False
    levels: Sequence[tuple[float, str]] = ()
    """Values to compare with, and their names: dotted lines."""


MOVED = Panel("KL(belief || prior), nats", [Line("belief", "kl")], from_zero=True)
"""How far belief moved from its prior."""


def curves(trajectories: Sequence[Trajectory], panels: Sequence[Panel], width: float = WIDTH) -> Markup:
    """Panels side by side, on a telephone below each other, one line per run; the kept epoch is marked."""
    with style():
        named = NAMES / 72 if stage_marks(trajectories, width) else 0.0
        rows = len(panels) if width <= NARROW else 1
        figure = Figure(figsize=(width, rows * (2.9 + named)))
        grid_of = figure.subplots(rows, len(panels) // rows, squeeze=False)
        margins(figure, 0.6, 0.5, 0.46, 0.35 + named, wspace=0.4, hspace=(0.81 + named) / 2.09)
        for axes, panel in zip(grid_of.flat, panels, strict=True):
            _over_epochs(axes, trajectories, panel.title, ticks=4)
            _draw(axes, trajectories, panel)
            axes.set_xlabel("epoch")
        return to_svg(figure, "curves")


TALL, LOW, BETWEEN = 2.3, 0.62, 0.4
"""Inches of the first panel of `search_progress`, of the others, and from one to the next."""


def search_progress(
    trajectories: Sequence[Trajectory],
    main: Panel,
    others: Sequence[Panel],
    collapses: Sequence[float],
    width: float = WIDTH,
) -> Markup:
    """What a search was worth as it went, and below it, aligned, what else was watched.

    Args:
        trajectories: the runs.
        main: what it was worth; on its axis ticks mark where the mode changed.
        others: low panels below it.
        collapses: epochs to mark, at which runs collapsed.
        width: inches.
    """
    left, right = _sides(width)
    with style():
        heights = [TALL, *[LOW] * len(others)]
        top = 0.36 + (NAMES / 72 if stage_marks(trajectories, width) else 0)
        height = top + sum(heights) + BETWEEN * len(others) + 0.5
        figure = Figure(figsize=(width, height))
        column: list[Axes] = []
        for k, (panel, own) in enumerate(zip((main, *others), heights, strict=True)):
            bottom = height - top - sum(heights[: k + 1]) - BETWEEN * k
            column.append(figure.add_axes((left / width, bottom / height, 1 - (left + right) / width, own / height)))
            _over_epochs(column[k], trajectories, panel.title, ticks=4 if width <= NARROW else 8, names_stages=k == 0)
            has_changes = k == 0 and any(t.changes.size for t in trajectories)
            _draw(column[k], trajectories, panel, "❘ mode changed" if has_changes else "")
            column[k].tick_params(labelbottom=k == len(others))
            for x in collapses:
                column[k].axvline(x, color=ORANGE, linewidth=0.9, linestyle=(0, (4, 2.5)), zorder=1.6)
        on_axis: dict[str, Any] = {"transform": column[0].get_xaxis_transform(), "clip_on": False, "zorder": 4}
        for t in trajectories:
            column[0].plot(t.changes, np.zeros(len(t.changes)), "|", color=INK, markersize=7, **on_axis)
        if collapses:
            _name_collapse(column[0], min(collapses))
        column[-1].set_xlabel("epoch")
        return to_svg(figure, "search-progress")


def _name_collapse(axes: Axes, x: float) -> None:
    first, last = axes.get_xlim()
    side = -1 if x > first + 0.85 * (last - first) else 1
    place = (x, 1), (4 * side, -2), axes.get_xaxis_transform(), "offset points"
    behind = {"facecolor": CARD, "edgecolor": "none", "pad": 1}
    axes.annotate(
        "collapsed", *place, color=ORANGE, ha="left" if side == 1 else "right", va="top", bbox=behind, zorder=6
    )


COLOURS = {"step": MUTED, "train": GREEN, "table": INK}
"""Of splits; all others are blue."""


def _draw(axes: Axes, trajectories: Sequence[Trajectory], panel: Panel, on_axis: str = "") -> None:
    """Lines and levels with what stands at their ends; `on_axis` names what is marked on the axis itself."""
    grid(axes)
    labels = [_measurement(axes, trajectories, panel, line) for line in panel.lines]
    for value, name in panel.levels:
        axes.axhline(value, color=MUTED, linewidth=1, linestyle=DOTTED)
        labels.append((value, name, MUTED))
    _window(axes, trajectories, panel)
    is_tall = axes.get_window_extent().height > axes.figure.dpi
    axes.yaxis.set_major_locator(MaxNLocator(5 if is_tall else 3, integer=panel.whole))
    axes.yaxis.set_major_formatter(lambda value, _: _shown(value, panel))
    if on_axis:
        labels.append((axes.get_ylim()[0], on_axis, INK))
    label_ends(axes, [label for label in labels if np.isfinite(label[0])])


def _measurement(axes: Axes, trajectories: Sequence[Trajectory], panel: Panel, line: Line) -> tuple[float, str, str]:
    """Draws one line per run, and says where they end, on average, with the label and its colour."""
    colour, is_thin = line.colour or COLOURS.get(line.split, BLUE), len(trajectories) > 1 or line.split == "step"
    last = []
    for t in trajectories:
        values = _values(t, line)
        _line(axes, t, values, colour, 1.0 if is_thin else 1.6)
        last += values[np.isfinite(values)][-1:].tolist()
        if line.split != "step":
            axes.plot(t.kept, t.at_kept(values), "o", color=ORANGE, markersize=4.5, zorder=5, clip_on=False)
    end = float(np.mean(last)) if last else np.nan
    return end, line.label or _shown(end, panel, 3), colour


def _values(t: Trajectory, line: Line) -> Array:
    return t.values[line.split][line.name] / line.scale


def _shown(value: float, panel: Panel, digits: int = 4) -> str:
    text = f"{100 * value:.{digits}g}{THIN}%" if panel.percent else f"{value:.{digits}g}"
    return text.replace("-", MINUS)


def _window(axes: Axes, trajectories: Sequence[Trajectory], panel: Panel) -> None:
    """Vertical limits: all values but the outliers of the first epochs, which would flatten the rest."""
    seen = [_values(t, line) for t in trajectories for line in panel.lines]
    late = np.concatenate([v[len(v) // 20 :] for v in seen])
    late = late[np.isfinite(late)]
    if late.size == 0:
        return
    levels = [value for value, _ in panel.levels]
    last = [float(v[-1]) for v in seen if np.isfinite(v[-1])]
    high = max([float(late.max()), *levels])
    least = [0.0] if panel.from_zero else [high - 0.02 * max(abs(high), 0.05)]
    low = min([float(np.quantile(late, 0.02, method="lower")), *last, *levels, *least])
    room = 0.06 * (high - low)
    axes.set_ylim(low - room, min(high + room, 1 + 0.02 * (high - low)) if panel.percent else high + room)
