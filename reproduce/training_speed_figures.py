"""Figures 4.1a to 4.3 of seed 002, and one of the evidence, from the rows of `reproduce.training_speed`.

python -m reproduce.training_speed --figures
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FormatStrFormatter, MaxNLocator

from polyarch.plotting import BLUE, GREEN, INK, MUTED, ORANGE, PALE, SHADES, WIDTH, grid, label_ends, style
from reproduce.depth_figures import standalone
from reproduce.training_speed_tables import Part, Row, read

TITLES = {"thesis": "thesis's data", "code": "code's data"}


def _mean(curves: Sequence[Sequence[float]]) -> list[float]:
    return [fmean(values) for values in zip(*curves, strict=True)]


def evidence(part: Part) -> Figure:
    """Log evidence and its bounds, feature set by feature set."""
    figure = Figure(figsize=(WIDTH * 0.7, 3.2))
    axes = figure.subplots()
    figure.subplots_adjust(0.085, 0.14, 0.77, 0.92)
    grid(axes)
    degrees = part.values_of("degree")
    groups = [part.having(degree=degree) for degree in degrees]
    for rows, degree in zip(groups, degrees, strict=True):
        ones = [row["sotl"]["1"] for row in rows]
        axes.plot([degree] * len(ones), ones, "o", color=ORANGE, markersize=2.6, alpha=0.3, markeredgewidth=0)
    lines = (
        ("log evidence", INK, [fmean(row["evidence"] for row in rows) for rows in groups]),
        ("inside the log, k=50", GREEN, [fmean(row["inside"]["50"] for row in rows) for rows in groups]),
        ("inside the log, k=5", SHADES[2], [fmean(row["inside"]["5"] for row in rows) for rows in groups]),
        ("bound (Eq. 3.5)", BLUE, [fmean(row["bound"] for row in rows) for rows in groups]),
    )
    for _, colour, values in lines:
        axes.plot(degrees, values, color=colour, linewidth=1.3)
    axes.set_title("Log evidence of degrees and what training losses say of it, nats; true degree 3")
    axes.set_xlabel(f"degree; orange: SoTL with one sample, a dot a seed ({len(part.values_of('seed'))} data draws)")
    label_ends(axes, [(values[-1], name, colour) for name, colour, values in lines])
    return figure


def fixed_degrees(part: Part) -> Figure:
    """Training losses of some degrees, and SoTL of those that can fit."""
    names = part.values_of("data")
    figure = Figure(figsize=(WIDTH, 2.5 * len(names)))
    panels = figure.subplots(len(names), 2, squeeze=False)
    figure.subplots_adjust(0.05, 0.095, 0.91, 0.945, hspace=0.42, wspace=0.22)
    for (left, right), data in zip(panels, names, strict=True):
        rows = part.having(data=data, start="drawn", true=3)
        _curves(left, rows)
        left.set_title(f"training loss (logarithmic), {TITLES[data]}, true degree 3")
        _sums(right, part, data)
    return figure


def _curves(axes: Axes, rows: Sequence[Row]) -> None:
    grid(axes)
    colours = {1: MUTED, 2: PALE, 3: ORANGE, 5: BLUE, 21: GREEN}
    ends = []
    for degree, colour in colours.items():
        curve = _mean([row["curve"] for row in rows if row["degree"] == degree])
        axes.plot(np.linspace(0, rows[0]["steps"], len(curve)), curve, color=colour, linewidth=1.2)
        ends.append((curve[-1], str(degree), colour))
    axes.set_yscale("log")
    axes.minorticks_off()
    axes.yaxis.set_major_formatter(FormatStrFormatter("%g"))
    axes.set_xlim(0, rows[0]["steps"])
    axes.set_xlabel("step")
    label_ends(axes, ends)


def _sums(axes: Axes, part: Part, data: str) -> None:
    grid(axes)
    ends = []
    for true, colour in zip(part.values_of("true"), (ORANGE, BLUE), strict=True):
        for start, line in (("drawn", "solid"), ("zero", (0, (2.2, 1.6)))):
            degrees = [degree for degree in part.values_of("degree") if degree >= true]
            sums = [
                fmean(row["sotl"] for row in part.having(data=data, start=start, true=true, degree=degree))
                for degree in degrees
            ]
            above = [100 * (value / sums[0] - 1) for value in sums]
            axes.plot(degrees, above, marker="o", color=colour, markersize=3, linewidth=1.1, linestyle=line)
            ends.append((above[-1], f"true {true}", colour))
    axes.set_title(f"SoTL above that of the true degree, %, {TITLES[data]}")
    axes.set_xlabel("fixed degree, from the true one up; dashed: first weights zero")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    label_ends(axes, ends)


def learnt_degrees(part: Part) -> Figure:
    """MaxDeg on its way from every start; dashed: where it would be in the end."""
    strengths = sorted(part.values_of("degree_l2"))
    shown = [*((data, "SoTL, T=25") for data in part.values_of("data")), ("code", "validation, T=2")]
    figure = Figure(figsize=(WIDTH, 7.2))
    panels = figure.subplots(len(shown), len(strengths), sharex=True, sharey=True, squeeze=False)
    figure.subplots_adjust(0.04, 0.06, 0.93, 0.965, hspace=0.3, wspace=0.2)
    for line, (data, objective) in zip(panels, shown, strict=True):
        for axes, strength in zip(line, strengths, strict=True):
            _paths(axes, part.having(data=data, degree_l2=strength, objective=objective))
            axes.set_title(f"MaxDeg by {objective}, degree L2 {strength:g}, {TITLES[data]}")
    for axes in panels[-1]:
        axes.set_xlabel("step of the weights")
    return figure


def _paths(axes: Axes, rows: Sequence[Row]) -> None:
    grid(axes)
    ends = []
    for true, colour in ((3, ORANGE), (5, BLUE)):
        own = [row for row in rows if row["true"] == true]
        axes.axhspan(true - 0.5, true + 0.5, color=colour, alpha=0.1, linewidth=0)
        for best in {row["best"] for row in own}:
            axes.axhline(best, color=colour, linewidth=0.9, linestyle=(0, (2.2, 1.6)))
        for row in own:
            axes.plot(np.linspace(0, row["steps"], len(row["path"])), row["path"], color=colour, linewidth=1)
        ends.append((fmean(row["end"] for row in own), f"true {true}", colour))
    axes.set_xlim(0, rows[0]["steps"])
    label_ends(axes, ends)


def degree_speed(part: Part) -> Figure:
    """Fig. 4.3b: MaxDeg from -1, objective by objective, at first."""
    names, objectives = part.values_of("data"), part.values_of("objective")
    figure = Figure(figsize=(WIDTH, 2.9))
    panels = figure.subplots(1, len(names), sharey=True, squeeze=False)[0]
    figure.subplots_adjust(0.05, 0.15, 0.79, 0.91, wspace=0.12)
    strength = min(part.values_of("degree_l2"))
    for axes, data in zip(panels, names, strict=True):
        grid(axes)
        for objective, colour in zip(objectives, SHADES, strict=False):
            rows = part.having(data=data, objective=objective, start=-1.0, true=3, degree_l2=strength)
            path = _mean([row["path"] for row in rows])
            axes.plot(np.linspace(0, rows[0]["steps"], len(path)), path, color=colour, linewidth=1.2)
        axes.set_xlim(0, rows[0]["steps"] * 0.1)
        axes.set_title(f"MaxDeg from −1, {TITLES[data]}")
        axes.set_xlabel("step of the weights")
    low, high = panels[-1].get_ylim()
    places = np.linspace(high, low, len(objectives) + 2)[1:-1]
    label_ends(panels[-1], list(zip(places, objectives, SHADES, strict=False)))
    return figure


def learning_rate(part: Part) -> Figure:
    """Test accuracy by epoch, and the rate on its way."""
    figure = Figure(figsize=(WIDTH, 2.9))
    left, right = figure.subplots(1, 2)
    figure.subplots_adjust(0.05, 0.15, 0.93, 0.91, wspace=0.28)
    names, ends = {}, ([], [])  # type: ignore[var-annotated]
    for steps, colour in zip(part.values_of("T"), (MUTED, *SHADES), strict=False):
        rows = part.having(T=steps)
        accuracy = _mean([[100 * value for value in row["accuracy"]] for row in rows])
        rates = _mean([row["rates"] for row in rows])
        names[steps] = f"T={steps}" if steps else "fixed"
        left.plot(range(1, len(accuracy) + 1), accuracy, "o-", color=colour, markersize=3, linewidth=1.2)
        right.plot(np.linspace(0, len(accuracy), len(rates)), rates, color=colour, linewidth=1.2)
        ends[0].append((accuracy[-1], names[steps], colour))
        ends[1].append((rates[-1], names[steps], colour))
    for axes, title, labels in zip((left, right), ("MNIST test accuracy, %", "learning rate"), ends, strict=True):
        grid(axes)
        axes.set_title(title)
        axes.set_xlabel("epoch")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        label_ends(axes, labels)
    return figure


FIGURES: dict[str, tuple[Callable[[Part], Figure], str, str]] = {
    "evidence": (evidence, "evidence", "Bayesian linear regression: evidence and its bounds"),
    "fig4-2": (fixed_degrees, "fixed_degrees", "Fourier data: training of fixed degrees"),
    "fig4-3a": (learnt_degrees, "learnt_degrees", "Fourier data: the degree by gradient"),
    "fig4-3b": (degree_speed, "learnt_degrees", "Fourier data: how fast the degree is learnt"),
    "fig4-1a": (learning_rate, "learning_rate", "MNIST: the learning rate by gradient"),
}
"""Name: function, the part that it draws, and a title."""


def draw(folder: Path) -> list[Path]:
    """Writes the figures that there are rows for into the folder of the rows; returns their files."""
    files = []
    for name, (make, wanted, title) in FIGURES.items():
        part = read(folder, wanted)
        if part is None:
            print(f"{name}: no rows of {wanted}, skipped", flush=True)
            continue
        with style():
            file = folder / f"{name}.svg"
            file.write_text(standalone(make(part), name, title), encoding="utf-8")
        print(f"{name}: {file}, {file.stat().st_size / 1000:.0f} kB", flush=True)
        files.append(file)
    return files
