"""The figures of a report, one function a figure: arrays in, SVG out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from polyarch.report.drawing import (
    BLUE,
    GREEN,
    INK,
    MUTED,
    ORANGE,
    PALE,
    SHADES,
    WIDTH,
    Array,
    grid,
    label_ends,
    rgba,
    style,
    thinned,
    to_svg,
)
from polyarch.report.evidence import Course

# --------------------------------------------------------------------------------------------------
# Belief.


@dataclass(frozen=True)
class Fit:
    """How well each depth explains some data: the lower half of the posterior figure."""

    title: str
    depths: Sequence[int]
    values: Sequence[Sequence[float]]
    """Log-likelihoods of each of `depths`, one a run."""
    label: str
    colour: str
    mixture: Sequence[float]
    """Of the mixture, one a run: a horizontal line, and a band for the spread over several; may be empty."""
    selected: tuple[int, float] | None = None
    """Depth and log-likelihood of the selected network."""


def posterior(probs: Array, prior: Array, selected: Sequence[int], rules: Mapping[str, int], fit: Fit | None) -> Markup:
    """Bars of q(d) over the prior, what the rules select, and how well each depth fits (LDN Figs. 2 and 4).

    Args:
        probs: [runs, depths].
        prior: [depths].
        selected: the depth of each run.
        rules: what each selection rule would take; empty for several runs.
        fit: what is drawn below; nothing if None.
    """
    with style():
        figure = Figure(figsize=(WIDTH, 5.0 if fit else 3.1))
        if fit:
            top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=(1.35, 1))
            figure.subplots_adjust(0.065, 0.085, 0.83, 0.95, hspace=0.24)
        else:
            top, bottom = figure.subplots(), None
            figure.subplots_adjust(0.065, 0.13, 0.83, 0.92)
        _belief(top, probs, prior, selected, rules)
        if fit and bottom:
            _fit(bottom, fit)
        lowest = bottom or top
        last = max(probs.shape[1] - 1, *(fit.depths if fit else (0,)))
        top.set_xlim(-0.7, last + 0.7)
        lowest.xaxis.set_major_locator(MaxNLocator(11, integer=True, min_n_ticks=1))
        lowest.set_xlabel("depth (residual blocks)")
        _label_belief(top, probs, prior)
        if fit and bottom:
            _label_fit(bottom, fit)
        return to_svg(figure, "posterior")


def _belief(axes: Axes, probs: Array, prior: Array, selected: Sequence[int], rules: Mapping[str, int]) -> None:
    mean, depths = probs.mean(0), np.arange(probs.shape[1])
    cut = max(selected)
    grid(axes)
    axes.bar(depths, mean, 0.72, color=[BLUE if d <= cut else PALE for d in depths], linewidth=0)
    axes.plot(depths, prior, color=INK, linewidth=1.1, linestyle=(0, (1, 1.8)))
    top = float(max(mean.max(), prior.max()))
    if len(probs) > 1:
        deviation = probs.std(0, ddof=1)
        axes.vlines(depths, np.maximum(mean - deviation, 0), mean + deviation, color=INK, linewidth=0.9)
        top = max(top, float((mean + deviation).max()))
        for depth in sorted(set(selected)):
            count = list(selected).count(depth)
            heights = top * (1.1 + 0.075 * np.arange(count))
            axes.plot(np.full(count, depth), heights, "o", color=ORANGE, markersize=4.2, clip_on=False)
        top *= 1.1 + 0.075 * max(list(selected).count(d) for d in selected)
    else:
        top = _mark_rules(axes, mean, top, selected[0], rules)
    axes.set_ylim(0, top * 1.06)
    axes.set_yticks([t for t in MaxNLocator(5).tick_values(0, top) if t <= min(top, 1)])
    names = "mean and deviation over seeds; each dot is a seed's selected depth" if len(probs) > 1 else ""
    axes.set_title("q(d), probability of each depth" + (f": {names}" if names else ""))


def _mark_rules(axes: Axes, mean: Array, top: float, selected: int, rules: Mapping[str, int]) -> float:
    """Writes what the rules select above the bars, in as many rows as they need; returns the height used."""
    marks: dict[int, list[str]] = {}
    for rule, depth in rules.items():
        marks.setdefault(depth, []).append(rule)
    marks.setdefault(selected, [])
    wide, rows = 0.011 * len(mean), list[float]()
    step = top * 0.12
    for depth in sorted(marks):
        text = " · ".join(marks[depth])
        text = f"selected {depth}" + (f" ({text})" if text else "") if depth == selected else f"{text}: {depth}"
        reach = wide * len(text) / 2
        row = next((k for k, end in enumerate(rows) if end < depth - reach), len(rows))
        rows[row : row + 1] = [depth + reach + wide]
        y = top * 1.1 + step * row
        colour = ORANGE if depth == selected else MUTED
        axes.vlines(depth, mean[depth], y, color=colour, linewidth=0.9)
        inside = min(max(depth, reach - 0.7), len(mean) - 0.3 - reach)
        axes.text(
            inside,
            y + step * 0.14,
            text,
            color=colour,
            ha="center",
            va="bottom",
            weight="bold" if colour == ORANGE else "normal",
        )
    return top * 1.1 + step * (len(rows) - 0.1)


def _label_belief(axes: Axes, probs: Array, prior: Array) -> None:
    label_ends(axes, [(float(probs.mean(0)[-1]), "belief", BLUE), (float(prior[-1]), "prior", INK)])


def _fit(axes: Axes, fit: Fit) -> None:
    grid(axes)
    means = np.array([np.mean(v) for v in fit.values])
    low, high = _range(np.array([*means, *fit.mixture, *([fit.selected[1]] if fit.selected else [])]))
    axes.set_ylim(low, high)
    axes.plot(fit.depths, np.maximum(means, low), color=fit.colour, linewidth=1, alpha=0.45)
    for depth, values, mean in zip(fit.depths, fit.values, means, strict=True):
        _mark(axes, depth, mean, "o", fit.colour)
        if mean >= low and len(values) > 1:
            deviation = np.std(values, ddof=1)
            axes.vlines(depth, max(mean - deviation, low), mean + deviation, color=fit.colour, linewidth=1)
    if fit.mixture:
        axes.axhline(float(np.mean(fit.mixture)), color=BLUE, linewidth=1.3)
    if len(fit.mixture) > 1:
        middle, deviation = np.mean(fit.mixture), np.std(fit.mixture, ddof=1)
        axes.axhspan(float(middle - deviation), float(middle + deviation), color=BLUE, alpha=0.13, linewidth=0)
    if fit.selected:
        _mark(axes, *fit.selected, "D", ORANGE)
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.set_title(fit.title)


def _mark(axes: Axes, depth: int, value: float, marker: str, colour: str) -> None:
    """A point; one below the axes is an arrow at their lower edge, with its value."""
    low = axes.get_ylim()[0]
    if value >= low:
        axes.plot(depth, value, marker, color=colour, markersize=5, markeredgewidth=0)
        return
    axes.plot(depth, low, "v", color=colour, markersize=6, markeredgewidth=0, clip_on=False)
    text = f"{value:.2f}".replace("-", "\u2212")
    axes.annotate(text, (depth, low), (7, 3), textcoords="offset points", color=colour)


def _range(values: Array) -> tuple[float, float]:
    """Limits that keep what matters apart: far worse values are cut off at the lower end."""
    best = values.max()
    low = values[values >= best - 7 * (best - np.median(values))].min()
    room = max((best - low) * 0.12, 1e-3)
    return float(low - room), float(best + room)


def _label_fit(axes: Axes, fit: Fit) -> None:
    last = int(np.argmax(fit.depths))
    labels = [(float(np.mean(fit.values[last])), fit.label, fit.colour)]
    if fit.mixture:
        labels.append((float(np.mean(fit.mixture)), "mixture", BLUE))
    if fit.selected:
        labels.append((fit.selected[1], "◆ selected network", ORANGE))
    label_ends(axes, labels)


MOST_OPTIONS = 8
"""Bars of one decision; a slot of a DARTS cell has up to 35 options."""


def decisions(
    probs: Mapping[str, Array],
    prior: Mapping[str, Array],
    options: Mapping[str, Sequence[str]],
    selected: Mapping[str, Sequence[int]],
) -> Markup:
    """Bars of belief for every decision of any space, the prior as ticks; of many options, the likeliest.

    Args:
        probs: for each decision [runs, options].
        prior: for each decision [options].
        options: their names.
        selected: the option of each run.
    """
    columns = min(3, len(probs))
    rows = -(-len(probs) // columns)
    longest = max(min(len(o), MOST_OPTIONS) for o in options.values())
    with style():
        figure = Figure(figsize=(WIDTH, rows * (0.55 + 0.2 * longest)))
        grids = figure.subplots(rows, columns, squeeze=False)
        for axes in grids.flat[len(probs) :]:
            axes.set_axis_off()
        for axes, (name, values) in zip(grids.flat, probs.items(), strict=False):
            shown = _likeliest(values.mean(0), selected[name])
            places, mean = np.arange(len(shown)), values.mean(0)[shown]
            chosen = set(selected[name])
            axes.barh(places, mean, 0.66, color=[ORANGE if k in chosen else BLUE for k in shown])
            if len(values) > 1:
                deviation = values.std(0, ddof=1)[shown]
                axes.hlines(places, np.maximum(mean - deviation, 0), mean + deviation, color=INK, linewidth=0.9)
            axes.vlines(prior[name][shown], places - 0.4, places + 0.4, color=INK, linewidth=1.1, linestyle=(0, (1, 1)))
            axes.set_yticks(places, [_short(options[name][k]) for k in shown])
            axes.set_xlim(0, 1)
            axes.set_ylim(len(shown) - 0.4, -0.6)
            axes.xaxis.set_major_formatter(PercentFormatter(1, 0))
            axes.spines["left"].set_visible(False)
            axes.set_title(_short(name, 40))
        figure.tight_layout(pad=0.6, w_pad=2, h_pad=1.4)
        return to_svg(figure, "decisions")


def _likeliest(probs: Array, selected: Sequence[int]) -> list[int]:
    """The options to show, in their own order: all, or the selected ones and the likeliest others."""
    by_chance = sorted(range(len(probs)), key=lambda k: (k not in selected, -probs[k]))
    return sorted(by_chance[:MOST_OPTIONS])


def _short(text: str, most: int = 24) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


# --------------------------------------------------------------------------------------------------
# Over time.


def course(courses: Sequence[Course], decision: str | None) -> Markup:
    """Belief over time, as a map of one decision where it is ordered, and its entropy underneath."""
    with style():
        figure = Figure(figsize=(WIDTH, 4.6 if decision else 2.0))
        last = max(c.epochs[-1] for c in courses)
        first = min(c.epochs[0] for c in courses)
        if decision:
            top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=(2.7, 1))
            figure.subplots_adjust(0.065, 0.095, 0.83, 0.94, hspace=0.3)
            _heat(top, courses, decision, first, last)
        else:
            bottom = figure.subplots()
            figure.subplots_adjust(0.065, 0.2, 0.83, 0.88)
        grid(bottom)
        several = len(courses) > 1
        for c in courses:
            points = thinned(len(c.epochs))
            bottom.plot(c.epochs[points], c.entropy[points], color=BLUE, linewidth=1 if several else 1.6)
        most = sum(np.log(p.shape[1]) for p in courses[0].probs.values())
        bottom.axhline(most, color=MUTED, linewidth=1, linestyle=(0, (1, 1.8)))
        bottom.set_ylim(0, most * 1.08)
        bottom.set_xlim(first, max(last, first + 1))
        bottom.set_title("entropy of belief, nats")
        bottom.set_xlabel("epoch")
        bottom.xaxis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=1))
        bottom.yaxis.set_major_locator(MaxNLocator(4))
        label_ends(bottom, [(float(courses[0].entropy[-1]), "entropy", BLUE), (most, "uniform", MUTED)])
        return to_svg(figure, "course")


def _heat(axes: Axes, courses: Sequence[Course], decision: str, first: float, last: float) -> None:
    columns = min(max(len(c.epochs) for c in courses), 300)
    places = np.linspace(first, last, columns)
    options = courses[0].probs[decision].shape[1]
    total, count = np.zeros((columns, options)), np.zeros((columns, 1))
    for c in courses:
        nearest = np.abs(places[:, None] - c.epochs).argmin(1)
        alive = (places <= c.epochs[-1] + 1e-9)[:, None]
        total += np.where(alive, c.probs[decision][nearest], 0)
        count += alive
    mean = total / np.maximum(count, 1)
    half = (last - first) / max(columns - 1, 1) / 2 or 0.5
    peak = float(mean.max())
    axes.imshow(
        rgba(SHADES[0], (mean.T / peak) ** 0.8),
        interpolation="none",
        aspect="auto",
        origin="lower",
        extent=(first - half, last + half, -0.5, options - 0.5),
    )
    for c in courses:
        points = thinned(len(c.epochs))
        axes.plot(
            c.epochs[points],
            c.probs[decision][points].argmax(1),
            color=ORANGE,
            linewidth=1.3 if len(courses) == 1 else 0.9,
            drawstyle="steps-mid",
        )
        axes.plot(
            c.kept,
            _at(c, c.probs[decision]).argmax(),
            "o",
            color=ORANGE,
            markersize=4.5,
            clip_on=False,
            zorder=5,
        )
    axes.set_ylim(-0.5, options - 0.5)
    axes.yaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.set_title("q(d) at each epoch, by depth" + (", mean over seeds" if len(courses) > 1 else ""))
    key = axes.inset_axes((1.015, 0.52, 0.022, 0.44))
    key.imshow(
        rgba(SHADES[0], np.linspace(0, 1, 40)[:, None] ** 0.8),
        interpolation="none",
        aspect="auto",
        origin="lower",
        extent=(0, 1, 0, peak),
    )
    key.set_xticks([])
    key.yaxis.tick_right()
    key.set_yticks([0, peak], ["0", f"{peak:.2g}"])
    for side in key.spines.values():
        side.set_visible(False)
    axes.annotate(
        "most probable\n● kept epoch",
        (1, 0.3),
        (6, 0),
        "axes fraction",
        "offset points",
        color=ORANGE,
        va="top",
        linespacing=1.5,
    )


def _at(c: Course, values: Array) -> Array:
    return values[int(np.abs(c.epochs - c.kept).argmin())]


@dataclass(frozen=True)
class Line:
    """One measurement over the epochs."""

    split: str
    name: str
    label: str
    scale: float = 1
    """What values are divided by."""


@dataclass(frozen=True)
class CurvePanel:
    """Measurements that share an axis."""

    title: str
    lines: Sequence[Line]
    percent: bool = False


def curves(courses: Sequence[Course], panels: Sequence[CurvePanel], name: str = "curves") -> Markup:
    """What was measured over the epochs, one line a run; the kept epoch is marked. `name` is the figure's in a page."""
    with style():
        figure = Figure(figsize=(WIDTH, 2.9))
        row = figure.subplots(1, len(panels), squeeze=False)[0]
        figure.subplots_adjust(0.055, 0.16, 0.945, 0.88, wspace=0.4)
        for axes, panel in zip(row, panels, strict=True):
            _curve_panel(axes, courses, panel)
        return to_svg(figure, name)


def _curve_panel(axes: Axes, courses: Sequence[Course], panel: CurvePanel) -> None:
    colours = {"step": MUTED, "train": GREEN, "valid": BLUE, "watch": BLUE}
    grid(axes)
    ends, seen = [], list[Array]()
    for line in panel.lines:
        colour, thin = colours[line.split], len(courses) > 1 or line.split == "step"
        for c in courses:
            values = c.values[line.split][line.name] / line.scale
            points = thinned(len(values))
            axes.plot(c.epochs[points], values[points], color=colour, linewidth=1.0 if thin else 1.6)
            seen.append(values)
            if line.split != "step":
                axes.plot(c.kept, _at(c, values), "o", color=ORANGE, markersize=4.5, zorder=5, clip_on=False)
        last = np.mean([c.values[line.split][line.name][-1] for c in courses]) / line.scale
        ends.append((float(last), line.label, colour))
    _window(axes, seen, 1.0 if panel.percent else np.inf)
    axes.set_xlim(min(c.epochs[0] for c in courses), max(c.epochs[-1] for c in courses))
    axes.xaxis.set_major_locator(MaxNLocator(4, integer=True, min_n_ticks=1))
    axes.yaxis.set_major_locator(MaxNLocator(5))
    if panel.percent:
        axes.yaxis.set_major_formatter(lambda share, _: f"{round(100 * share, 4):g}\u202f%")
    axes.set_title(panel.title)
    axes.set_xlabel("epoch")
    label_ends(axes, ends)


def _window(axes: Axes, seen: Sequence[Array], most: float) -> None:
    """Vertical limits: all values but the outliers of the first epochs, which would flatten the rest."""
    late = np.concatenate([v[len(v) // 20 :] for v in seen])
    late = late[np.isfinite(late)]
    if late.size == 0:
        return
    low, high = float(np.quantile(late, 0.02)), float(late.max())
    low = min(low, *(float(v[-1]) for v in seen if np.isfinite(v[-1])), high - 0.02 * max(abs(high), 0.05))
    room = 0.06 * (high - low)
    axes.set_ylim(low - room, min(high + room, most + 0.02 * (high - low)))
