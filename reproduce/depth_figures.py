"""Figures 2 to 11 of Antorán et al. (2020), from the rows of `reproduce.depth`; light SVG files beside them.

    python -m reproduce.depth --figures                        # all; 3, 7 and 8 train networks on spirals, minutes
    python -m reproduce.depth --figures fig2,fig3 --epochs 500

Bars and bands are one standard deviation over seeds, cut at 0 where a log-likelihood cannot be above; faint dots are
the seeds themselves.
"""

from __future__ import annotations

import functools
import math
import tempfile
from argparse import Namespace
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
from polyarch.plotting import BLUE, GREEN, INK, LINE, MUTED, ORANGE, PALE, SHADES, WIDTH, Array, label_ends
from polyarch.report.prediction_figures import class_image
from polyarch.runs.run import Run
from polyarch.spaces.views import All
from reproduce import depth, showing
from reproduce.depth_tables import (
    DATA,
    IMAGE_RULES,
    IMAGES,
    PAPER,
    Kind,
    depths,
    errors,
    fits,
    full,
    image_kinds,
    labels_of,
    mixture,
    network,
    read,
    savings,
)  # fmt: skip
from reproduce.showing import Drawing, Part, Row, canvas, mean_sd, note, save

FIT = "test log-likelihood"


# ---------------------------------------------------------------------------------------------------------------------
# Small things.


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))


def _spread(values: Sequence[float]) -> float:
    return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def _ends(values: Sequence[float], most: float = math.inf) -> tuple[float, float]:
    """One deviation below and above the mean."""
    return _mean(values) - _spread(values), min(_mean(values) + _spread(values), most)


def _series(axes: Axes, places: Sequence[float], values: Sequence[Sequence[float]], colour: str) -> float:
    """Mean and deviation over seeds at every place, and the seeds as faint dots; returns the last mean."""
    means = [_mean(v) for v in values]
    most = 0.0 if max(max(v) for v in values) <= 0 else math.inf
    axes.plot(places, means, color=colour, linewidth=1.3, zorder=3)
    for place, own, mean in zip(places, values, means, strict=True):
        axes.plot([place] * len(own), own, "o", color=colour, markersize=2.6, alpha=0.28, markeredgewidth=0)
        axes.vlines(place, *_ends(own, most), color=colour, linewidth=1.1)
        axes.plot(place, mean, "o", color=colour, markersize=5, markeredgewidth=0, zorder=4)
    return means[-1]


def _floor(axes: Axes, values: Sequence[Sequence[float]]) -> None:
    """Limits of a log-likelihood: 0 at the top, and below, what seeds and deviations need."""
    low = min(min(*v, _ends(v)[0]) for v in values)
    axes.set_ylim(low * 1.06, -low * 0.03)
    axes.yaxis.set_major_locator(_ticks(6))


def _ticks(most: int, *, integer: bool = False) -> MaxNLocator:
    return MaxNLocator(most, steps=[1, 2, 5, 10], integer=integer)


def _belief(axes: Axes, rows: Sequence[Row], cut: float) -> tuple[Array, float]:
    """Mean belief up to a cut and beyond, one deviation around it; returns it and the height that this reaches."""
    probs = np.array([row["probs"] for row in rows])
    mean, places = probs.mean(0), np.arange(probs.shape[1])
    axes.bar(places, mean, 0.74, color=[BLUE if d <= cut else PALE for d in places], linewidth=0)
    if len(probs) == 1:
        return mean, float(mean.max())
    spread = probs.std(0, ddof=1)
    low, high, edges = np.maximum(mean - spread, 0), mean + spread, np.arange(len(places) + 1) - 0.5
    axes.fill_between(places, low, high, step="mid", color=INK, alpha=0.08, linewidth=0)
    for values in (low, high):
        axes.stairs(values, edges, baseline=None, color=INK, linewidth=0.7, alpha=0.55)
    return mean, float(high.max())


def _belief_ticks(axes: Axes, height: float, most: float) -> None:
    axes.set_yticks([t for t in _ticks(4).tick_values(0, height) if 0 <= t <= most])


def _seeds(rows: Sequence[Row]) -> str:
    counts = Counter(str(labels_of(row)) for row in rows).values()
    few, most = min(counts), max(counts)
    return (f"{few} to {most}" if few < most else str(most)) + (" seeds" if most > 1 else " seed")


# ---------------------------------------------------------------------------------------------------------------------
# Spirals, from rows.


def fig2(part: Part) -> Figure:
    """Belief over depth and networks of fixed depth; depth and fit against D."""
    room = (0.055, 0.095, 0.91, 0.945, 0.33, 0.24)
    figure, panels = canvas(WIDTH, 4.7, 2, 2, room=room, sharex="col", width_ratios=(1.3, 1), height_ratios=(1.15, 1))
    for column, name in enumerate(("draws", "max_depths")):
        top, bottom = panels[:, column]
        rows = Part(tuple(part.having(part=name)))
        if not rows.rows:
            top.set_axis_off()
            bottom.set_axis_off()
        elif name == "draws":
            _belief_and_fits(top, bottom, rows)
        else:
            _sweep(top, bottom, rows, "D", "maximum depth D")
    return figure


def _belief_and_fits(top: Axes, bottom: Axes, part: Part) -> None:
    """Fig. 2 left."""
    [deepest] = part.values_of("D", who="LDN")
    rows = part.having(who="LDN", D=deepest)
    selected = depths(rows)
    middle = _mean(selected)
    _, height = _belief(top, rows, middle)
    for d, count in sorted(Counter(selected).items()):
        top.plot([d] * count, height * (1.08 + 0.075 * np.arange(count)), "o", color=ORANGE, markersize=4.2)
    tallest = height * (1.1 + 0.075 * max(Counter(selected).values()))
    for axes in (top, bottom):
        axes.axvline(middle, color=ORANGE, linewidth=1, zorder=2.5)
    at = (max(selected), tallest)
    note(top, f"selected: {mean_sd(selected, 1)}", at, (8, -1), ORANGE, weight="bold", va="top")
    note(top, "one dot per seed; the paper: 9", at, (8, -13), MUTED, va="top")
    top.set_ylim(0, tallest * 1.03)
    _belief_ticks(top, height, height * 1.05)
    top.set_title(f"q(d) of LDN, D={deepest}: mean of {_seeds(rows)}, each with data of its own")
    pruned = fits(rows, mixture())
    bottom.axhspan(*_ends(pruned, 0), color=BLUE, alpha=0.12, linewidth=0)
    bottom.axhline(_mean(pruned), color=BLUE, linewidth=1.4)
    labels = [(_mean(pruned), "LDN", BLUE)]
    places = part.values_of("D", who="DDN")
    values = [fits(part.having(who="DDN", D=d), network()) for d in places]
    if places:
        labels.append((_series(bottom, places, values, GREEN), "DDN", GREEN))
    _floor(bottom, [*values, pruned])
    bottom.set_title(f"{FIT}: networks of fixed depth (DDN) and LDN pruned")
    bottom.set(xlim=(-0.8, deepest + 0.8), xlabel="depth (residual blocks)")
    label_ends(bottom, labels)


def _sweep(top: Axes, bottom: Axes, part: Part, label: str, title: str, *, log: bool = False) -> None:
    """Selected depth above, fit of the pruned and the full mixture below, along one setting."""
    places = part.values_of(label, who="LDN")
    groups = [part.having(who="LDN", **{label: place}) for place in places]
    chosen = [depths(rows) for rows in groups]
    _series(top, places, chosen, ORANGE)
    top.set_ylim(0, max(max(c) for c in chosen) * 1.12)
    top.yaxis.set_major_locator(_ticks(5, integer=True))
    top.set_title(f"selected depth, {_seeds(part.having(who='LDN'))} on the same data")
    pruned, whole = ([fits(rows, of) for rows in groups] for of in (mixture(), full))
    means = [_mean(v) for v in whole]
    last = _series(bottom, places, pruned, BLUE)
    bottom.plot(places, means, color=INK, linewidth=1.3, linestyle=(0, (2.2, 1.6)), zorder=3)
    _floor(bottom, [*pruned, *whole])
    bottom.set(title=FIT, xlabel=title)
    if log:
        bottom.set_xscale("log")
        bottom.set_xticks(places, [str(p) for p in places])
        bottom.minorticks_off()
    room = 0.0 if log else 0.03 * (places[-1] - places[0] or 1)
    bottom.set_xlim(*((places[0] / 1.15, places[-1] * 1.15) if log else (places[0] - room, places[-1] + room)))
    label_ends(bottom, [(last, "pruned", BLUE), (means[-1], "full", INK)])


def fig5(part: Part) -> Figure:
    """Depth and fit against width."""
    figure, [[top], [bottom]] = canvas(WIDTH * 0.62, 4.2, 2, room=(0.085, 0.105, 0.9, 0.94, None, 0.25), sharex=True)
    _sweep(top, bottom, part, "width", "width w (logarithmic), D = 20", log=True)
    return figure


def fig6(part: Part) -> Figure:
    """Depth and fit against rotation, and against the number of training points."""
    titles = {"rotation": "rotation of the spirals, degrees (200 points)", "points": "training points (720 degrees)"}
    shown = [label for label in titles if part.values_of(label)]
    both = len(shown) > 1
    figure, panels = canvas(
        WIDTH if both else 0.55 * WIDTH, 4.2, 2, len(shown), sharex="col",
        room=(0.055 if both else 0.1, 0.105, 0.935 if both else 0.88, 0.94, 0.27, 0.25),
    )  # fmt: skip
    for (top, bottom), label in zip(panels.T, shown, strict=True):
        _sweep(top, bottom, Part(tuple(row for row in part.rows if label in row)), label, titles[label])
        if label == "rotation":
            bottom.set_xticks(part.values_of(label))
    return figure


# ---------------------------------------------------------------------------------------------------------------------
# Images, from rows.

KINDS = {"LDN-95": BLUE, "LDN-E": SHADES[3], "LDN-full": MUTED, "DDN": GREEN}
"""What is compared on images: LDN cut by the 95 % rule or at the expected depth, not cut, and the fixed depth."""


def _image_data(part: Part) -> list[str]:
    return [name for name in DATA if part.having(data=name, who="LDN")]


def fig4(part: Part) -> Figure:
    """Belief on images and what the 95 % rule takes of it; fits below."""
    names = _image_data(part)
    room = (0.06, 0.1, 0.925, 0.94, 0.38, 0.26)
    figure, panels = canvas(WIDTH, 4.5, 2, len(names), room=room, sharex="col", height_ratios=(1.15, 1))
    for (top, bottom), name in zip(panels.T, names, strict=True):
        deepest = max(part.values_of("D", data=name, who="LDN"))
        _image_belief(top, part.having(data=name, who="LDN", D=deepest), name, deepest)
        _image_fits(bottom, part, name, deepest)
    return figure


def _image_belief(axes: Axes, rows: Sequence[Row], name: str, deepest: int) -> None:
    cut = _mean(depths(rows, "95%"))
    mean, top = _belief(axes, rows, cut)
    axes.hlines(0.95 * mean.max(), -0.6, deepest + 0.6, color=MUTED, linewidth=0.9, linestyle=(0, (1, 1.8)))
    known = PAPER[name][0] if deepest == 50 else None
    marks = [(cut, f"95 % rule: {cut:g}", ORANGE)] + ([(known, f"the paper: {known}", MUTED)] if known else [])
    for at, text, colour in marks:
        left = known is not None and at == min(cut, known)
        axes.vlines(at, 0 if colour == ORANGE else top * 0.98, top * 1.1, color=colour, linewidth=1)
        weight, side = "bold" if colour == ORANGE else "normal", "right" if left else "left"
        note(axes, text, (at, top * 1.1), (2 if left else -2, 2), colour, weight=weight, ha=side)
    axes.set_ylim(0, top * 1.22)
    _belief_ticks(axes, top, top)
    axes.set_title(f"{DATA[name]}: q(d) of LDN, D={deepest}, {_seeds(rows)}")
    label_ends(axes, [(0.95 * mean.max(), "95 % of\nhighest", MUTED)])


def _image_fits(axes: Axes, part: Part, name: str, deepest: int) -> None:
    """Every kind at the depth that it computes; fixed depths of other D too."""
    points = [
        (kind.name, _mean(kind.depths), fits(kind.rows, kind.of))
        for other in part.values_of("D", data=name)
        for kind in image_kinds(part, name, other)
        if other == deepest or kind.name == "DDN"
    ]
    for kind, at, values in points:
        axes.vlines(at, *_ends(values), color=KINDS[kind], linewidth=1.1)
        marker = "D" if kind == "LDN-95" else "o"
        axes.plot(at, _mean(values), marker, color=KINDS[kind], markersize=6, markeredgewidth=0)
    for colour, fixed in ((BLUE, False), (GREEN, True)):
        line = sorted((at, _mean(values)) for kind, at, values in points if (kind == "DDN") == fixed)
        axes.plot(*zip(*line, strict=True), color=colour, linewidth=0.9, alpha=0.45, zorder=1)
    low, high = min(_ends(v)[0] for *_, v in points), max(_ends(v)[1] for *_, v in points)
    room = max(high - low, 1e-4)
    axes.set_ylim(low - 0.25 * room, high + 0.25 * room)
    axes.set_xlim(-0.8, deepest + 1.2)
    axes.yaxis.set_major_locator(_ticks(6))
    axes.set(title=FIT, xlabel="depth computed (residual blocks)")
    label_ends(axes, [(_mean(v), kind, KINDS[kind]) for kind, at, v in points if at == deepest])
    for kind, at, values in points:
        if at < deepest and kind != "DDN":
            shift, side = (7, "bottom") if kind == "LDN-E" else (-7, "top")
            note(axes, kind, (at, _mean(values)), (0, shift), KINDS[kind], ha="center", va=side)


def fig9(part: Part) -> Figure:
    """Learnt depth, fit and error by rule, for every D and data set that there is."""
    names = _image_data(part)
    several = any(len(part.values_of("D", data=name)) > 1 for name in names)
    low, right, across, up = (0.26, 0.925, 0.54, 0.66) if several else (0.17, 0.985, 0.1, 0.45)
    room = (0.075, low / len(names), right, 1 - 0.19 / len(names), across, up)
    figure, panels = canvas(WIDTH, 0.35 + 1.8 * len(names), len(names), 3, room=room, lines="y" if several else "x")
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


_MEASURES = {"depth": _depth_of, FIT: _fit_of, "test error, %": _error_of}


def _beside(axes: Axes, part: Part, name: str, of: Callable[[Kind], list[float]]) -> None:
    """One D: one row per kind, its value at the dot."""
    [deepest] = part.values_of("D", data=name)
    kinds = image_kinds(part, name, deepest)
    means = [_mean(of(kind)) for kind in kinds]
    low, high = min(means), max(means)
    room = (high - low) or abs(high) or 1
    axes.set_xlim((0, 1.15 * deepest) if of is _depth_of else (low - 0.25 * room, high + 0.45 * room))
    axes.set_ylim(len(kinds) - 0.5, -0.5)
    axes.spines["left"].set_visible(False)
    for place, (kind, mean) in enumerate(zip(kinds, means, strict=True)):
        values, colour = of(kind), KINDS[kind.name]
        if of is _depth_of:
            axes.hlines(place, 0, mean, color=colour, linewidth=1.1, alpha=0.5)
        else:  # no stems: the axis does not begin at 0
            axes.axhline(place, color=LINE, linewidth=0.6)
        axes.hlines(place, *_ends(values), color=colour, linewidth=1.6)
        axes.plot(mean, place, "o", color=colour, markersize=6, markeredgewidth=0)
        digits = 0 if of is _depth_of else 2 if of is _error_of else 4 if abs(mean) < 0.1 else 3
        note(axes, mean_sd([mean], digits), (mean, place), (7, 0), colour, va="center")
    axes.set_yticks(range(len(kinds)), [kind.name for kind in kinds])
    for tick, kind in zip(axes.get_yticklabels(), kinds, strict=True):
        tick.set_color(KINDS[kind.name])
    axes.xaxis.set_major_locator(_ticks(4))


def _along(axes: Axes, part: Part, name: str, of: Callable[[Kind], list[float]]) -> None:
    """Several D: one line per kind over D."""
    found: dict[str, dict[int, list[float]]] = {}
    for deepest in part.values_of("D", data=name):
        for kind in image_kinds(part, name, deepest):
            if of is not _depth_of or kind.name in IMAGE_RULES:
                found.setdefault(kind.name, {})[deepest] = of(kind)
    ends = []
    for label, values in found.items():
        colour, means = KINDS[label], [_mean(own) for own in values.values()]
        for place, own in values.items():
            axes.vlines(place, *_ends(own), color=colour, linewidth=1.1)
        axes.plot(list(values), means, "o-", color=colour, markersize=4.5, markeredgewidth=0, linewidth=1.2)
        ends.append((means[-1], label, colour))
    if of is _depth_of:
        axes.set_ylim(0)
    axes.yaxis.set_major_locator(_ticks(6))
    axes.set_xlabel("maximum depth D")
    axes.set_xlim(axes.get_xlim())
    label_ends(axes, ends)


def fig10(part: Part) -> Figure:
    """Expected calibration error, as usually defined and as in the released code."""
    names = _image_data(part)
    shown = {"LDN-95": "LDN pruned", "LDN-full": "LDN full", "DDN": "DDN"}
    measures = {"ece": "ECE of the top class", "ece_all_classes": "ECE over all classes, as in the released code"}
    room = (0.085, 0.13, 0.965, 1 - 0.21 / len(names), 0.3, 0.62)
    figure, panels = canvas(WIDTH, 0.3 + 1.3 * len(names), len(names), 2, room=room, lines="x")
    for line, name in zip(panels, names, strict=True):
        deepest = max(part.values_of("D", data=name))
        kinds = [kind for kind in image_kinds(part, name, deepest) if kind.name in shown]
        for axes, (measure, title) in zip(line, measures.items(), strict=True):
            values = [[100 * kind.of(row)[measure] for row in kind.rows] for kind in kinds]
            means, colours = [_mean(v) for v in values], [KINDS[kind.name] for kind in kinds]
            axes.spines["left"].set_visible(False)
            axes.barh(range(len(kinds)), means, 0.62, color=colours, alpha=0.88, linewidth=0)
            for place, (own, colour) in enumerate(zip(values, colours, strict=True)):
                axes.hlines(place, *_ends(own), color=INK, linewidth=1.1)
                note(axes, mean_sd(own, 2) + " %", (_ends(own)[1], place), (5, 0), colour, va="center")
            axes.set_yticks(range(len(kinds)), [shown[kind.name] for kind in kinds])
            axes.set_ylim(len(kinds) - 0.5, -0.5)
            axes.set_xlim(0, max(means) * 1.22)
            axes.xaxis.set_major_locator(_ticks(5))
            axes.xaxis.set_major_formatter(lambda value, _: f"{round(value, 6):g} %")
            where = f"{DATA[name]}, D={deepest}, {_seeds(kinds[0].rows)}: "
            axes.set_title(where + title if axes is line[0] else title)
    return figure


def fig11(part: Part) -> Figure:
    """The share of a forward pass that pruning saves: network alone, mixture, as the blocks would have it, the paper's.

    The paper's is of a mixture: its code evaluates the output block at every depth.
    """
    groups = part.groups("D", "depth")
    height = 0.45 + 0.95 * len(groups)
    figure, [[axes]] = canvas(WIDTH * 0.72, height, room=(0.19, 0.3 / height, 0.955, 1 - 0.3 / height), lines="x")
    axes.spines["left"].set_visible(False)
    for place, ((deepest, cut), rows) in enumerate(groups.items()):
        paper = [("the paper", share, MUTED) for found, share in PAPER.values() if found == cut]
        bars = [
            ("mixture", _mean(savings(rows, "ensemble")), BLUE),
            *paper,
            ("network alone", _mean(savings(rows, "selected")), ORANGE),
            ("blocks left out", 1 - cut / deepest, PALE),
        ]
        for k, (label, share, colour) in enumerate(bars):
            at = place + 0.21 * (k - (len(bars) - 1) / 2)
            axes.barh(at, share, 0.18, color=colour, linewidth=0, alpha=0.45 if colour == MUTED else 1)
            ink = {PALE: MUTED}.get(colour, colour)
            note(axes, f"{label} {100 * share:.0f} %", (max(share, 0), at), (5, 0), ink, va="center")
    axes.set_yticks(range(len(groups)), [f"{cut} of {deepest} blocks" for deepest, cut in groups])
    axes.tick_params(axis="y", labelcolor=INK)
    axes.set_ylim(len(groups) - 0.45, -0.55)
    axes.set_xlim(0, 1)
    axes.xaxis.set_major_formatter(PercentFormatter(1, 0, symbol=" %"))
    axes.set_title("forward pass saved by pruning, images of 28x28")
    return figure


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
        space, given = pa.spaces.ResidualDepth(max_depth=20), Namespace(device="cpu", work=work)
        [run] = depth.train(space, task, depth.method(name, epochs=epochs), given)
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
    selected, epochs, y = run.architecture.choices[0], run.history()[-1]["epoch"], task.train.y.numpy()
    return Learnt(alone, cut, *fits, q.numpy(), selected, epochs, x, y, extent=(left, right, bottom, top))


@torch.no_grad()
def _answers(run: Run, x: torch.Tensor, q: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probabilities [depths, n, classes] of each depth alone, and of the mixture cut at each depth."""
    alone = run.supernet()(run.preprocess()(x)[None], All())[0].double().log_softmax(-1)
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
    text = mean_sd([fit], 2 if abs(fit) >= 0.1 else 3) if abs(fit) >= 0.0005 else "≈ 0"
    note(axes, text, (0.5, 0), (0, -3), MUTED, xycoords="axes fraction", ha="center", va="top", size=7)


def _frame(axes: Axes, learnt: Learnt, title: str, *, strong: bool = False) -> None:
    axes.set(xlim=learnt.extent[:2], ylim=learnt.extent[2:], xticks=[], yticks=[])
    for edge in axes.spines.values():
        edge.set(visible=True, color=INK if strong else LINE, linewidth=1.5 if strong else 0.8)
    colour, weight = (INK, "bold") if strong else (MUTED, "normal")
    axes.set_title(title, pad=3, size=7.5, loc="center", color=colour, fontweight=weight)


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
    corner: Any = {"xycoords": "axes fraction", "annotation_clip": False}
    note(axes, text, (0, 1), (0, 17), INK, weight="bold", **corner)
    bold = FontProperties(family="DejaVu Sans", weight="bold", size=8.5)
    note(axes, more, (0, 1), (TextPath((0, 0), text, prop=bold).get_extents().width + 10, 17), MUTED, **corner)


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

DRAWINGS = {
    "fig2": Drawing(fig2, ("draws", "max_depths"), "Spirals: belief over depth, and maximum depth"),
    "fig4": Drawing(fig4, IMAGES, "Images: belief over depth"),
    "fig5": Drawing(fig5, ("widths",), "Spirals: depth and fit against width"),
    "fig6": Drawing(fig6, ("rotations", "points"), "Spirals: depth and fit against rotation and number of points"),
    "fig9": Drawing(fig9, IMAGES, "Images: depth, fit and error by rule"),
    "fig10": Drawing(fig10, IMAGES, "Images: calibration"),
    "fig11": Drawing(fig11, ("times",), "Images: time saved"),
}
TRAINED: dict[str, tuple[Callable[[int], Figure], str]] = {
    "fig3": (fig3, "Spirals: functions learnt at each depth"),
    "fig7": (fig7, "Spirals: functions learnt at three rotations"),
    "fig8": (fig8, "Spirals: functions learnt from 50, 200 and 500 points"),
}
"""Functions of the epochs to train for at most, and titles."""
NAMES = (*DRAWINGS, *TRAINED)


def draw(folder: Path, names: Sequence[str] = NAMES, epochs: int = 3000) -> list[Path]:
    """Writes the figures that there are rows for into the folder of the rows, and those that train; their files."""
    files = showing.draw(folder, {name: DRAWINGS[name] for name in names if name in DRAWINGS}, "svg", read)
    for name in [name for name in names if name in TRAINED]:
        print(f"{name}: trains on spirals", flush=True)
        make, title = TRAINED[name]
        files.append(save(folder / f"{name}.svg", functools.partial(make, epochs), title))
    return files
