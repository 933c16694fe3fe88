"""Figures of what networks predict: reliability diagrams, and maps of functions on the plane."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from polyarch.plotting import (
    BLUE,
    CARD,
    INK,
    LINE,
    MUTED,
    ORANGE,
    PALE,
    SHADES,
    WIDTH,
    Array,
    grid,
    rgba,
    style,
    to_svg,
)
from polyarch.uncertainty.calibration import Reliability

FEW = 10
"""Predictions below which the accuracy of a bin says little."""


def reliability(diagrams: Sequence[tuple[str, str, Reliability]], examples: str) -> Markup:
    """Confidence against accuracy, side by side, with the number of predictions underneath.

    As Fig. 10 of Antorán et al. 2020.

    Args:
        diagrams: name, a second line, and the bins.
        examples: what is counted underneath.
    """
    with style():
        figure = Figure(figsize=(WIDTH, 4.1))
        grids = figure.subplots(2, 3, sharex=True, squeeze=False, height_ratios=(3, 1))
        figure.subplots_adjust(0.06, 0.1, 0.985, 0.9, hspace=0.26, wspace=0.26)
        for axes in grids[:, len(diagrams) :].flat:
            axes.set_axis_off()
        most = max(int(d.count.max()) for _, _, d in diagrams)
        for column, (name, note, bins) in enumerate(diagrams):
            diagram(grids[0, column], bins)
            grids[0, column].set_title(name, weight="bold", pad=17)
            grids[0, column].annotate(note, (0, 1), (0, 6), "axes fraction", "offset points", color=MUTED)
            below = grids[1, column]
            grid(below)
            edges, count = bins.edges.numpy(), bins.count.numpy()
            below.bar(edges[:-1], count, np.diff(edges) * 0.88, align="edge", color=PALE)
            below.set_yscale("symlog", linthresh=1)
            below.set_ylim(0, most * 1.6)
            below.set_yticks([t for t in (1, 10, 100, 1000, 10_000, 100_000) if t <= most * 1.6])
            below.yaxis.set_major_formatter("{x:,.0f}")
            below.minorticks_off()
            below.set_xlim(0, 1)
            below.set_xticks([0, 0.5, 1], ["0", "50 %", "100 %"])
            for label, side in zip(below.get_xticklabels(), ("left", "center", "right"), strict=True):
                label.set_horizontalalignment(side)
            below.set_xlabel("confidence")
            if column == 0:
                below.set_title(examples)
        return to_svg(figure, "reliability")


def diagram(axes: Axes, bins: Reliability) -> None:
    """One dot per bin, at its confidence and accuracy, and how far it is from the diagonal."""
    count = bins.count.numpy()
    axes.plot([0, 1], [0, 1], color=MUTED, linewidth=1, linestyle=(0, (1, 1.8)))
    for k in count.nonzero()[0]:
        sure, right = float(bins.confidence[k]), float(bins.accuracy[k])
        colour, firm = ORANGE if right < sure else BLUE, count[k] >= FEW
        axes.vlines(sure, sure, right, color=colour, linewidth=1.8 if firm else 0.8, alpha=0.6)
        size = 4 + 8 * np.sqrt(count[k] / count.sum())
        inside, edge = (colour, CARD) if firm else (CARD, colour)
        axes.plot(
            sure, right, "o", markersize=size, clip_on=False, color=inside, markeredgecolor=edge, markeredgewidth=0.8
        )
    axes.set_ylim(0, 1)
    axes.set_yticks([0, 0.5, 1], ["0", "50 %", "100 %"])
    axes.spines["left"].set_visible(True)
    axes.tick_params(axis="x", length=0)


STRENGTH = 0.6
"""Opacity of a map where a network is sure: points of the same hue still stand out."""


@dataclass(frozen=True)
class Panel:
    """One small map: its title, what it shows as an RGBA image, and whether it is the one to look at."""

    title: str
    image: npt.NDArray[np.uint8]
    strong: bool = False


def maps(panels: Sequence[Panel], extent: tuple[float, float, float, float], x: Array, shade: Array) -> Markup:
    """Small maps of functions on the plane, with the training points on top (Antorán et al. 2020, Figs. 3, 7 and 8).

    Args:
        panels: the maps.
        extent: left, right, bottom and top of each.
        x: [n, 2], points.
        shade: [n], numbers of their colours; NaN where a point has none.
    """
    columns = min(6, len(panels))
    rows = -(-len(panels) // columns)
    side = WIDTH / 6
    with style():
        figure = Figure(figsize=(WIDTH, rows * (side + 0.13) + 0.02))
        grids = figure.subplots(rows, 6, squeeze=False)
        figure.subplots_adjust(0.004, 0.01, 0.996, 1 - 0.24 / (rows * (side + 0.13)), hspace=0.2, wspace=0.07)
        for axes in grids.flat[len(panels) :]:
            axes.set_axis_off()
        flat = [axes for row in grids for axes in row[:columns]]
        for axes, panel in zip(flat, panels, strict=False):
            axes.imshow(panel.image, interpolation="none", origin="lower", extent=extent, aspect="auto")
            _points(axes, x, shade)
            axes.set(xlim=extent[:2], ylim=extent[2:], xticks=[], yticks=[])
            for edge in axes.spines.values():
                edge.set(visible=True, color=ORANGE if panel.strong else LINE, linewidth=1.6 if panel.strong else 0.8)
            title = axes.set_title(panel.title, pad=4)
            if panel.strong:
                title.set(color=ORANGE, weight="bold")
        return to_svg(figure, "maps", smooth=True)


def _points(axes: Axes, x: Array, shade: Array) -> None:
    """Dots, all of a colour in one path of lines of no length with round ends: far smaller than markers."""
    for value in np.unique(shade):
        own = x[np.isnan(shade) if np.isnan(value) else shade == value]
        colour = INK if np.isnan(value) else (BLUE, ORANGE, *SHADES[2:])[int(value) % len(SHADES)]
        ends = np.stack([own, own, np.full_like(own, np.nan)], 1).reshape(-1, 2)
        for wide, tone in ((2.6, CARD), (1.9, colour)):
            [line] = axes.plot(*ends.T, color=tone, linewidth=wide, solid_capstyle="round")
            line.get_path().should_simplify = False


def class_image(probs: Array) -> npt.NDArray[np.uint8]:
    """Class probabilities [h, w, classes] as an image: the colour of the likeliest, as strong as it is."""
    classes = probs.shape[-1]
    winner, sure = probs.argmax(-1), (probs.max(-1) - 1 / classes) / (1 - 1 / classes)
    image = np.zeros((*winner.shape, 4), np.uint8)
    for k in range(classes):
        shade = rgba(SHADES[k % len(SHADES)], STRENGTH * sure)
        image[winner == k] = shade[winner == k]
    return image


def signed_image(values: Array) -> npt.NDArray[np.uint8]:
    """Numbers [h, w] in -1 ... 1 as an image: one colour below 0, another above."""
    values = np.clip(values, -1, 1)
    low, high = rgba(SHADES[0], -STRENGTH * values), rgba(SHADES[1], STRENGTH * values)
    return np.where((values < 0)[..., None], low, high)


def strength_image(values: Array, colour: str = SHADES[3]) -> npt.NDArray[np.uint8]:
    """Numbers [h, w] from 0 up as an image of one colour."""
    return rgba(colour, 0.9 * values / max(float(np.quantile(values, 0.99)), 1e-9))
