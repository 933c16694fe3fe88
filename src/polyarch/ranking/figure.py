"""A picture of a ranking: for every score, where it puts an architecture and where the truth does."""

from __future__ import annotations

import math

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from scipy.stats import rankdata

from polyarch.plotting import BLUE, CARD, INK, LINE, MUTED, ORANGE, PALE, style, to_file
from polyarch.ranking.ranking import Ranking, Scored
from polyarch.ranking.statistics import TOP

ACROSS = 4
"""Panels side by side, at most."""
_SIDE = 2.35
"""Inches of a panel."""
_SIZES = LinearSegmentedColormap.from_list("sizes", [PALE, BLUE, INK])


def draw_ranking(ranking: Ranking, truth: str) -> dict[str, bytes]:
    """The picture as `png` and `svg`.

    Args:
        ranking: what to draw.
        truth: what the truth is, in words.
    """
    with style():
        figure = _figure(ranking, truth)
        return {kind: to_file(figure, kind, "ranking") for kind in ("png", "svg")}


def _figure(ranking: Ranking, truth: str) -> Figure:
    across = min(ACROSS, len(ranking.scores))
    down = math.ceil(len(ranking.scores) / across)
    width, height = max(across * _SIDE, 2 * _SIDE), down * _SIDE + 0.95
    figure = Figure(figsize=(width, height), facecolor=CARD)
    panels = figure.subplots(down, across, squeeze=False).ravel()
    figure.subplots_adjust(0.42 / width, 0.78 / height, 1 - 0.12 / width, 1 - 0.72 / height, 0.06, 0.42)
    sizes = rankdata(ranking.parameters) / len(ranking.parameters)
    places = rankdata(ranking.truth if ranking.better == "higher" else -ranking.truth)
    for axes, (name, scored) in zip(panels, ranking.scores.items(), strict=False):
        points = _panel(axes, name, scored, places, sizes)
    for axes in panels[len(ranking.scores) :]:
        axes.set_visible(False)
    for place, axes in enumerate(panels):
        axes.tick_params(labelleft=place % across == 0)
    for axes in panels[::across]:
        axes.set_ylabel("rank of the truth")
    for axes in panels[max(len(ranking.scores) - across, 0) : len(ranking.scores)]:
        axes.set_xlabel("rank of the score")
    figure.suptitle(
        f"{len(places)} architectures: where scores put them, and where {truth} does (best at the top right)",
        x=0.1 / width,
        y=1 - 0.08 / height,
        ha="left",
        va="top",
        fontsize=9,
    )
    _key(figure, points, width, height)
    return figure


def _panel(axes: Axes, name: str, scored: Scored, places: np.ndarray, sizes: np.ndarray) -> PathCollection:
    count = len(places)
    ranks = rankdata(scored.merit)
    dot = float(np.clip(1500 / count, 4, 30))
    axes.plot([1, count], [1, count], color=LINE, linewidth=1, zorder=0)
    points = axes.scatter(ranks, places, s=dot, c=sizes, cmap=_SIZES, vmin=0, vmax=1, linewidths=0, alpha=0.9)
    best = np.argsort(-ranks, kind="stable")[: min(TOP, count)]
    axes.scatter(ranks[best], places[best], s=2.2 * dot, facecolors="none", edgecolors=ORANGE, linewidths=0.9)
    margin = 0.04 * count + 0.5
    for limits, axis in ((axes.set_xlim, axes.xaxis), (axes.set_ylim, axes.yaxis)):
        limits(1 - margin, count + margin)
        axis.set_major_locator(MaxNLocator(4, integer=True))
    axes.set_aspect("equal")
    axes.set_title(f"{name}\n{_correlation(scored)}", linespacing=1.3)
    return points


def _correlation(scored: Scored) -> str:
    estimate = scored.standing.spearman
    if estimate.value is None:
        return "undefined"
    spread = "" if estimate.interval is None else f" [{estimate.low:.2f}, {estimate.high:.2f}]"
    return f"{estimate.value:.2f}{spread}".replace("-", "−")


def _key(figure: Figure, points: PathCollection, width: float, height: float) -> None:
    """What colours mean, in one line at the bottom."""
    bar = figure.add_axes((0.42 / width, 0.17 / height, 0.9 / width, 0.09 / height))
    figure.colorbar(points, cax=bar, orientation="horizontal", ticks=[])
    bar.set_frame_on(False)
    bar.annotate(
        "fewest to most parameters", (1, 0.5), (6, 0), "axes fraction", "offset points", color=MUTED, va="center"
    )
    place = (0.42 + 0.9 + 1.85) / width
    figure.text(place, 0.215 / height, "○", color=ORANGE, va="center", fontsize=10)
    figure.text(
        place + 0.14 / width,
        0.215 / height,
        f"the score's {TOP} best; titles: Spearman [95 %]",
        color=MUTED,
        va="center",
    )
