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
    NARROW,
    ORANGE,
    PALE,
    SHADES,
    WIDTH,
    Array,
    grid,
    rgba,
    short,
    style,
    to_svg,
)
from polyarch.uncertainty.calibration import Reliability

HIGH = 4.1
"""Inches of a reliability diagram and what is below it."""
FEW = 10
"""Predictions below which the accuracy of a bin says little."""


def reliability(diagrams: Sequence[tuple[str, str, Reliability]], examples: str, width: float = WIDTH) -> Markup:
    """Confidence against accuracy, with the number of predictions underneath; side by side where there is room.

    As Fig. 10 of Antorán et al. 2020.

    Args:
        diagrams: name, a second line, and the bins.
        examples: what is counted underneath.
        width: inches.
    """
    with style():
        rows, columns = (len(diagrams), 1) if width <= NARROW else (1, 3)
        figure = Figure(figsize=(width, rows * HIGH))
        panels = [_two_panels(figure, rows, columns, place) for place in range(len(diagrams))]
        most = max(int(d.count.max()) for _, _, d in diagrams)
        for place, ((name, note, bins), (above, below)) in enumerate(zip(diagrams, panels, strict=True)):
            diagram(above, bins)
            above.set_title(name, weight="bold", pad=17)
            above.annotate(note, (0, 1), (0, 6), "axes fraction", "offset points", color=MUTED)
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
            below.get_xticklabels()[0].set_horizontalalignment("left")
            below.get_xticklabels()[-1].set_horizontalalignment("right")
            below.set_xlabel("confidence")
            if place % columns == 0:
                below.set_title(examples)
        return to_svg(figure, "reliability")


def _two_panels(figure: Figure, rows: int, columns: int, place: int) -> tuple[Axes, Axes]:
    """One above the other, in one of the fields of a figure."""
    width, height = figure.get_size_inches()
    left, top = place % columns * width / columns + 0.5, height - place // columns * HIGH - 0.42
    across = width / columns - 0.65

    def place_of(begin: float, high: float) -> tuple[float, float, float, float]:
        return left / width, (begin - high) / height, across / width, high / height

    above = figure.add_axes(place_of(top, 2.2))
    above.tick_params(labelbottom=False)
    return above, figure.add_axes(place_of(top - 2.52, 0.7), sharex=above)


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


def maps(
    panels: Sequence[Panel],
    extent: tuple[float, float, float, float],
    x: Array,
    shade: Array,
    width: float = WIDTH,
) -> Markup:
    """Small maps of functions on the plane, with the training points on top (Antorán et al. 2020, Figs. 3, 7 and 8).

    Args:
        panels: the maps.
        extent: left, right, bottom and top of each.
        x: [n, 2], points.
        shade: [n], numbers of their colours; NaN where a point has none.
        width: inches.
    """
    columns = 2 if width <= NARROW else 6
    rows = -(-len(panels) // columns)
    side = width / columns
    with style():
        figure = Figure(figsize=(width, rows * (side + 0.13) + 0.02))
        grids = figure.subplots(rows, columns, squeeze=False)
        figure.subplots_adjust(0.004, 0.01, 0.996, 1 - 0.24 / (rows * (side + 0.13)), hspace=0.2, wspace=0.07)
        for axes in grids.flat[len(panels) :]:
            axes.set_axis_off()
        for axes, panel in zip(grids.flat, panels, strict=False):
            axes.imshow(panel.image, interpolation="none", origin="lower", extent=extent, aspect="auto")
            _points(axes, x, shade)
            axes.set(xlim=extent[:2], ylim=extent[2:], xticks=[], yticks=[])
            for edge in axes.spines.values():
                edge.set(visible=True, color=ORANGE if panel.strong else LINE, linewidth=1.6 if panel.strong else 0.8)
            title = axes.set_title(short(panel.title, 21), pad=4)
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
