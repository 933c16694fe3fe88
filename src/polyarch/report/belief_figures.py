"""The figures of belief, one function per figure: arrays in, SVG out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from polyarch.architecture import Decision
from polyarch.plotting import (
    BLUE,
    CARD,
    INK,
    MUTED,
    NARROW,
    ORANGE,
    PALE,
    WIDTH,
    Array,
    grid,
    label_ends,
    margins,
    short,
    style,
    to_svg,
)


@dataclass(frozen=True)
class Fit:
    """How well each option explains some data: the lower half of the posterior figure."""

    title: str
    options: Sequence[int]
    values: Sequence[Sequence[float]]
    """Log-likelihoods of each of `options`, one per run."""
    label: str
    colour: str
    mixture: Sequence[float]
    """Of the mixture, one per run: a horizontal line, and a band for the spread over several; may be empty."""
    selected: tuple[int, float] | None = None
    """Option and log-likelihood of the selected network."""
    errors: Sequence[float] = ()
    """Of one run: the standard error of each value's distance from the best one."""
    mixture_label: str = "mixture"


def posterior(
    decision: Decision,
    probs: Array,
    prior: Array,
    selected: Sequence[int],
    rules: Mapping[str, int],
    fit: Fit | None,
    width: float = WIDTH,
) -> Markup:
    """Bars of belief over the prior, what the rules select, and how well each option fits.

    As Figs. 2 and 4 of Antorán et al. 2020.

    Args:
        decision: whose options have an order.
        probs: [runs, options].
        prior: [options].
        selected: the option of each run.
        rules: what each selection rule would take; empty for several runs, and not written where there is no room.
        fit: what is drawn below; nothing if None.
        width: inches.
    """
    is_narrow = width <= NARROW
    with style():
        figure = Figure(figsize=(width, 5.0 if fit else 3.1))
        if fit:
            top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=(1.35, 1))
        else:
            top, bottom = figure.subplots(), None
        margins(figure, 0.62, 1.25 if is_narrow else 1.56, 0.43, 0.25, hspace=0.24)
        _belief(top, decision, probs, prior, selected, {} if is_narrow else rules)
        if fit and bottom:
            _fit(bottom, fit)
        lowest = bottom or top
        last = max(probs.shape[1] - 1, *(fit.options if fit else (0,)))
        top.set_xlim(-0.7, last + 0.7)
        lowest.xaxis.set_major_locator(MaxNLocator(6 if is_narrow else 11, integer=True, min_n_ticks=1))
        lowest.xaxis.set_major_formatter(option_names(decision))
        lowest.set_xlabel(decision.name)
        _label_belief(top, probs, prior)
        if fit and bottom:
            _label_fit(bottom, fit)
        return to_svg(figure, "posterior")


def option_names(decision: Decision) -> FuncFormatter:
    """Names at an axis on which options stand at their numbers; beyond the last of them, numbers."""
    return FuncFormatter(lambda x, _: decision.options[round(x)] if 0 <= round(x) < len(decision) else f"{x:.0f}")


def _belief(
    axes: Axes, decision: Decision, probs: Array, prior: Array, selected: Sequence[int], rules: Mapping[str, int]
) -> None:
    mean, options = probs.mean(0), np.arange(probs.shape[1])
    last = max(selected)
    grid(axes)
    axes.bar(options, mean, 0.72, color=[BLUE if k <= last else PALE for k in options], linewidth=0)
    axes.plot(options, prior, color=INK, linewidth=1.1, linestyle=(0, (1, 1.8)))
    top = float(max(mean.max(), prior.max()))
    if len(probs) > 1:
        deviation = probs.std(0, ddof=1)
        axes.vlines(options, np.maximum(mean - deviation, 0), mean + deviation, color=INK, linewidth=0.9)
        top = max(top, float((mean + deviation).max()))
        counts = Counter(selected)
        for option, count in sorted(counts.items()):
            heights = top * (1.1 + 0.075 * np.arange(count))
            axes.plot(np.full(count, option), heights, "o", color=ORANGE, markersize=4.2, clip_on=False)
        top *= 1.1 + 0.075 * max(counts.values())
    else:
        top = _mark_rules(axes, decision, mean, top, selected[0], rules)
    axes.set_ylim(0, top * 1.06)
    axes.set_yticks([t for t in MaxNLocator(5).tick_values(0, top) if t <= min(top, 1)])
    axes.set_title(f"belief, by {decision.name}")


LETTER = 5.6
"""Points that a letter takes at most, on average."""


def _mark_rules(
    axes: Axes, decision: Decision, mean: Array, top: float, selected: int, rules: Mapping[str, int]
) -> float:
    """Writes what the rules select above the bars, in as many rows as they need; returns the height used."""
    marks: dict[int, list[str]] = {selected: []}
    for rule, option in rules.items():
        marks.setdefault(option, []).append(rule)
    points = axes.get_window_extent().width * 72 / axes.figure.dpi
    wide, rows = LETTER * (len(mean) + 0.4) / points, list[float]()
    step = top * 0.12
    for option, names in sorted(marks.items()):
        text, name = " · ".join(names), decision.options[option]
        text = f"selected {name}" + (f" ({text})" if text else "") if option == selected else f"{text}: {name}"
        reach = wide * len(text) / 2
        row = next((k for k, end in enumerate(rows) if end < option - reach), len(rows))
        rows[row : row + 1] = [option + reach + wide]
        y = top * 1.1 + step * row
        colour, weight = (ORANGE, "bold") if option == selected else (MUTED, "normal")
        axes.vlines(option, mean[option], y, color=colour, linewidth=0.9)
        inside = min(max(option, reach - 0.7), len(mean) - 0.3 - reach)
        behind = {"facecolor": CARD, "edgecolor": "none", "pad": 0.5}  # lines of other marks pass behind it
        own: dict[str, Any] = {"color": colour, "weight": weight, "bbox": behind, "zorder": 4}
        axes.text(inside, y + step * 0.14, text, ha="center", va="bottom", **own)
    return top * 1.1 + step * (len(rows) - 0.1)


def _label_belief(axes: Axes, probs: Array, prior: Array) -> None:
    label_ends(axes, [(float(probs.mean(0)[-1]), "belief", BLUE), (float(prior[-1]), "prior", INK)])


def _fit(axes: Axes, fit: Fit) -> None:
    grid(axes)
    means = np.array([np.mean(v) for v in fit.values])
    spreads = np.array(fit.errors or [_deviation(v) for v in fit.values])
    low, high = _limits(fit, means, spreads)
    axes.set_ylim(low, high)
    axes.plot(fit.options, np.maximum(means, low), color=fit.colour, linewidth=1, alpha=0.45)
    row = 0
    for option, mean, spread in zip(fit.options, means, spreads, strict=True):
        _mark(axes, option, mean, "o", fit.colour, row)
        row = 1 - row if mean < low else 0  # values of neighbours would lie on each other
        if mean >= low and spread > 0:
            axes.vlines(option, mean - spread, mean + spread, color=fit.colour, linewidth=1)
    if fit.mixture:
        middle, deviation = float(np.mean(fit.mixture)), _deviation(fit.mixture)
        axes.axhline(middle, color=BLUE, linewidth=1.3)
        axes.axhspan(middle - deviation, middle + deviation, color=BLUE, alpha=0.13, linewidth=0)
    if fit.selected:
        _mark(axes, *fit.selected, "D", ORANGE)
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.set_title(fit.title)


def _deviation(values: Sequence[float]) -> float:
    return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def _limits(fit: Fit, means: Array, spreads: Array) -> tuple[float, float]:
    """Limits that hold what matters, each value with all of its spread."""
    low, high = _range(np.array([*means, *fit.mixture, *([fit.selected[1]] if fit.selected else [])]))
    middles = np.array([*means, *fit.mixture])
    around = np.array([*spreads, *(_deviation(fit.mixture) for _ in fit.mixture)])
    for _ in means:  # what is spread far may bring the next value into the picture
        seen = middles >= low
        low, high = min(low, *(middles - around)[seen]), max(high, *(middles + around)[seen])
    return low, high


def _mark(axes: Axes, option: int, value: float, marker: str, colour: str, row: int = 0) -> None:
    """A point; one below the axes is an arrow at their lower edge, with its value in a row above it."""
    low = axes.get_ylim()[0]
    if value >= low:
        axes.plot(option, value, marker, color=colour, markersize=5, markeredgewidth=0)
        return
    axes.plot(option, low, "v", color=colour, markersize=6, markeredgewidth=0, clip_on=False)
    text = f"{value:.2f}".replace("-", "\u2212")
    side = -1 if option > np.mean(axes.get_xlim()) else 1  # away from the names at the right edge
    ha = "right" if side < 0 else "left"
    axes.annotate(text, (option, low), (7 * side, 3 + 10 * row), textcoords="offset points", color=colour, ha=ha)


def _range(values: Array) -> tuple[float, float]:
    """Limits that keep what matters apart: far worse values are cut off at the lower end."""
    best = values.max()
    low = values[values >= best - 7 * (best - np.median(values))].min()
    room = max((best - low) * 0.12, 1e-3)
    return float(low - room), float(best + room)


def _label_fit(axes: Axes, fit: Fit) -> None:
    last = int(np.argmax(fit.options))
    labels = [(float(np.mean(fit.values[last])), fit.label, fit.colour)]
    if fit.mixture:
        labels.append((float(np.mean(fit.mixture)), fit.mixture_label, BLUE))
    if fit.selected:
        labels.append((fit.selected[1], "◆ selected network", ORANGE))
    label_ends(axes, labels)


LONGEST_OPTION = 24
"""Letters of the name of an option."""
MOST_OPTIONS = 8
"""Bars of one decision; a slot of a DARTS cell has up to 35 options."""


def decisions(
    probs: Mapping[str, Array],
    prior: Mapping[str, Array],
    options: Mapping[str, Sequence[str]],
    selected: Mapping[str, Sequence[int]],
    width: float = WIDTH,
) -> Markup:
    """Bars of belief for every decision of any space, the prior as ticks; of many options, the likeliest.

    Args:
        probs: for each decision [runs, options].
        prior: for each decision [options].
        options: their names.
        selected: the option of each run.
        width: inches.
    """
    columns = 1 if width <= NARROW else 3
    rows = -(-len(probs) // columns)
    most = max(min(len(o), MOST_OPTIONS) for o in options.values())
    room = LETTER / 72 * (min(LONGEST_OPTION, max(len(name) for own in options.values() for name in own)) + 1)
    across, high = width / columns, 0.2 * most
    step = high + 0.62
    with style():
        figure = Figure(figsize=(width, rows * step))
        for place, (name, values) in enumerate(probs.items()):
            left, bottom = place % columns * across, (rows - place // columns) * step - high - 0.3
            box = (left + room) / width, bottom / (rows * step), (across - room - 0.15) / width, high / (rows * step)
            axes = figure.add_axes(box)
            shown = _likeliest(values.mean(0), selected[name])
            places, mean = np.arange(len(shown)), values.mean(0)[shown]
            chosen = set(selected[name])
            axes.barh(places, mean, 0.66, color=[ORANGE if k in chosen else BLUE for k in shown])
            if len(values) > 1:
                deviation = values.std(0, ddof=1)[shown]
                axes.hlines(places, np.maximum(mean - deviation, 0), mean + deviation, color=INK, linewidth=0.9)
            axes.vlines(prior[name][shown], places - 0.4, places + 0.4, color=INK, linewidth=1.1, linestyle=(0, (1, 1)))
            axes.set_yticks(places, [short(options[name][k], LONGEST_OPTION) for k in shown])
            axes.set_xlim(0, 1)
            axes.set_ylim(len(shown) - 0.4, -0.6)
            axes.set_xticks([0, 0.5, 1], ["0", "50 %", "100 %"])
            axes.get_xticklabels()[-1].set_horizontalalignment("right")
            axes.spines["left"].set_visible(False)
            title = short(name, int((across - 0.15) * 72 / LETTER))
            axes.annotate(title, (0, 1), (-72 * room + LETTER, 5), "axes fraction", "offset points")
        return to_svg(figure, "decisions")


def _likeliest(probs: Array, selected: Sequence[int]) -> list[int]:
    """The options to show, in their own order: all, or the selected ones and the likeliest others."""
    by_chance = sorted(range(len(probs)), key=lambda k: (k not in selected, -probs[k]))
    return sorted(by_chance[:MOST_OPTIONS])
