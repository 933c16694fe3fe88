"""The rows of `reproduce.training_speed` as tables, mean ± standard deviation over seeds, and as figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FormatStrFormatter, MaxNLocator

from polyarch.plotting import BLUE, GREEN, INK, MUTED, ORANGE, PALE, SHADES, WIDTH, label_ends
from reproduce.showing import Columns, Drawing, Part, Row, Section, as_table, canvas, mean_sd, mean_table, over

WINDOWS = {"sotl": "all steps", "first_epoch": "first epoch", "last_epoch": "last epoch"}
DASHED = (0, (2.2, 1.6))


def sampled(sums: str, k: str) -> Callable[[Row], float]:
    """A sum over training losses with k samples."""
    return lambda row: row[sums][k]


JUDGES: Columns = {
    "log evidence": ("evidence", 1),
    "bound (3.5)": ("bound", 1),
    **{f"SoTL (3.6), k={k}": (sampled("sotl", k), 1) for k in ("1", "5", "50")},
    **{f"inside the log, k={k}": (sampled("inside", k), 1) for k in ("5", "50")},
}
"""Everything that estimates or bounds the log evidence."""


def evidence(part: Part) -> str:
    """Every feature set under every judge."""
    return mean_table(["degree"], part.groups("degree"), JUDGES)


def bayes_factors(part: Part) -> str:
    """How much better the true degree is than its neighbours, and how often it is the best of all."""
    degrees = part.values_of("degree")
    below, above = max(d for d in degrees if d < 3), min(d for d in degrees if d > 3)
    lines = []
    for name, (value, *_) in JUDGES.items():
        seeds = [
            {row["degree"]: row[value] if isinstance(value, str) else value(row) for row in rows}
            for rows in part.groups("seed").values()
        ]
        factors = [mean_sd([own[3] - own[other] for own in seeds], 1) for other in (below, above)]
        right = sum(max(own, key=own.__getitem__) == 3 for own in seeds)
        lines.append([name, *factors, f"{right} of {len(seeds)}"])
    return as_table(["judge", f"log Bayes factor 3 : {below}", f"log Bayes factor 3 : {above}", "3 is best"], lines)


# ---------------------------------------------------------------------------------------------------------------------
# The Fourier degree.


def fixed(part: Part) -> str:
    """Which fixed degree has the lowest SoTL, by window, and by how much it wins."""
    lines = []
    for (data, start, true), rows in part.groups("data", "start", "true").items():
        seeds = Part(tuple(rows)).groups("seed").values()
        leads = {window: [_lead(own, window, true) for own in seeds] for window in WINDOWS}
        right = [f"{sum(lead > 0 for lead in leads[window])} of {len(seeds)}" for window in WINDOWS]
        lines.append([data, start, str(true), *right, *(mean_sd(leads[w], 3) for w in ("sotl", "last_epoch"))])
    head = [f"true is lowest, {name}" for name in WINDOWS.values()]
    return as_table(["data", "first weights", "true degree", *head, "lead, all steps", "lead, last epoch"], lines)


def _lead(rows: Sequence[Row], window: str, true: int) -> float:
    """How far the next best's SoTL lies above the true degree's, in per cent; negative where that is not best."""
    [own] = [row[window] for row in rows if row["degree"] == true]
    other: float = min(row[window] for row in rows if row["degree"] != true)
    return 100 * (other - own) / own


def fixed_sums(part: Part) -> str:
    """SoTL of every fixed degree, all steps, weights drawn."""
    columns = part.groups("data", "true", start="drawn")
    lines = [
        [str(degree), *(over([row for row in rows if row["degree"] == degree], "sotl", 2) for rows in columns.values())]
        for degree in part.values_of("degree")
    ]
    return as_table(["degree", *(f"{data}, true {true}" for data, true in columns)], lines)


def learnt(part: Part) -> str:
    """Where MaxDeg ends, from every start."""
    starts = part.values_of("start")
    lines = []
    groups = part.groups("degree_l2", "data", "objective", "true")
    for labels in sorted(groups, key=lambda labels: (labels[0], labels[1] != "thesis")):
        strength, data, name, true = labels
        own = [[row for row in groups[labels] if row["start"] == start] for start in starts]
        worst = max(abs(row["end"] - true) for row in groups[labels])
        lines.append([
            f"{strength:g}", data, name, str(true), *(over(rows, "end", 2) for rows in own),
            f"{worst:.2f}{' (> 0.5)' if worst > 0.5 else ''}", over(own[0], "best", 2),
            *(_arrivals(own[place]) for place in (0, -1)),
        ])  # fmt: skip
    ends = [f"end from {start:g}".replace("-", "−") for start in starts]
    steps = [f"steps to within 0.5 from {start:g}".replace("-", "−") for start in (starts[0], starts[-1])]
    return as_table(["degree L2", "data", "objective", "true", *ends, "furthest off", "for ever", *steps], lines)


def _arrivals(rows: Sequence[Row]) -> str:
    return "never" if None in [row["arrived"] for row in rows] else over(rows, "arrived", 0)


def rates(part: Part) -> str:
    """Test accuracy epoch by epoch, and where the learning rate ends."""
    epochs = range(len(part.rows[0]["accuracy"]))
    accuracies: Columns = {f"% after epoch {k + 1}": (lambda row, k=k: row["accuracy"][k], 2, 100) for k in epochs}
    groups = {f"T={steps}" if steps else "fixed rate": rows for (steps,), rows in part.groups("T").items()}
    return mean_table(["rate learnt by"], groups, {**accuracies, "rate at the end": ("end", 4)})


SECTIONS = (
    Section(
        "Evidence and its bounds (Eq. 3.3 to 3.6)", ("evidence",), evidence,
        "Nats; 100 points, true degree 3, one data draw per seed. `inside the log`: k samples averaged before the log.",
    ),
    Section("Bayes factors (Eq. 3.3)", ("evidence",), bayes_factors, "Differences in nats, equal priors."),
    Section(
        "Fig. 4.2: fixed degrees", ("fixed_degrees",), fixed,
        "Lead: the next best's SoTL above that of the true degree, in per cent of it; negative where that is not best.",
    ),
    Section("Fig. 4.2: SoTL by degree, all steps, weights drawn", ("fixed_degrees",), fixed_sums),
    Section(
        "Fig. 4.3: the degree by gradient", ("learnt_degrees",), learnt,
        "`for ever`: where the penalised loss has its minimum, worked out without training (for validation, from each "
        "seed's data). `furthest off`: of all starts and seeds.",
    ),
    Section("Fig. 4.1a: the learning rate by gradient, MNIST", ("learning_rate",), rates),
)  # fmt: skip


# ---------------------------------------------------------------------------------------------------------------------
# Figures.

TITLES = {"thesis": "thesis's data", "code": "code's data"}


def _mean(rows: Sequence[Row], name: str) -> list[float]:
    return [fmean(values) for values in zip(*(row[name] for row in rows), strict=True)]


def evidence_figure(part: Part) -> Figure:
    """Log evidence and its bounds, feature set by feature set."""
    figure, [[axes]] = canvas(WIDTH * 0.7, 3.2, room=(0.085, 0.14, 0.77, 0.92))
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
    draws = len(part.values_of("seed"))
    axes.set_xlabel(f"degree; orange: SoTL with one sample, one dot per seed ({draws} data draws)")
    label_ends(axes, [(values[-1], name, colour) for name, colour, values in lines])
    return figure


def fixed_degrees(part: Part) -> Figure:
    """Training losses of some degrees, and SoTL of those that can fit."""
    names = part.values_of("data")
    figure, panels = canvas(WIDTH, 2.5 * len(names), len(names), 2, room=(0.05, 0.095, 0.91, 0.945, 0.22, 0.42))
    for (left, right), data in zip(panels, names, strict=True):
        _curves(left, part.having(data=data, start="drawn", true=3))
        left.set_title(f"training loss (logarithmic), {TITLES[data]}, true degree 3")
        _sums(right, part, data)
    return figure


def _curves(axes: Axes, rows: Sequence[Row]) -> None:
    ends = []
    for degree, colour in {1: MUTED, 2: PALE, 3: ORANGE, 5: BLUE, 21: GREEN}.items():
        curve = _mean([row for row in rows if row["degree"] == degree], "curve")
        axes.plot(np.linspace(0, rows[0]["steps"], len(curve)), curve, color=colour, linewidth=1.2)
        ends.append((curve[-1], str(degree), colour))
    axes.set_yscale("log")
    axes.minorticks_off()
    axes.yaxis.set_major_formatter(FormatStrFormatter("%g"))
    axes.set(xlim=(0, rows[0]["steps"]), xlabel="step")
    label_ends(axes, ends)


def _sums(axes: Axes, part: Part, data: str) -> None:
    ends = []
    for true, colour in zip(part.values_of("true"), (ORANGE, BLUE), strict=True):
        degrees = [degree for degree in part.values_of("degree") if degree >= true]
        for start, line in (("drawn", "solid"), ("zero", DASHED)):
            labels = {"data": data, "start": start, "true": true}
            sums = [fmean(row["sotl"] for row in part.having(**labels, degree=degree)) for degree in degrees]
            above = [100 * (value / sums[0] - 1) for value in sums]
            axes.plot(degrees, above, marker="o", color=colour, markersize=3, linewidth=1.1, linestyle=line)
            ends.append((above[-1], f"true {true}", colour))
    axes.set_title(f"SoTL above that of the true degree, %, {TITLES[data]}")
    axes.set_xlabel("fixed degree, from the true one up; dashed: first weights zero")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    label_ends(axes, ends)


def learnt_degrees(part: Part) -> Figure:
    """MaxDeg on its way from every start; dashed: where it would be in the end."""
    strengths = part.values_of("degree_l2")
    shown = [*((data, "SoTL, T=25") for data in part.values_of("data")), ("code", "validation, T=2")]
    room = (0.04, 0.06, 0.93, 0.965, 0.2, 0.3)
    figure, panels = canvas(WIDTH, 7.2, len(shown), len(strengths), room=room, sharex=True, sharey=True)
    for line, (data, objective) in zip(panels, shown, strict=True):
        for axes, strength in zip(line, strengths, strict=True):
            _paths(axes, part.having(data=data, degree_l2=strength, objective=objective))
            axes.set_title(f"MaxDeg by {objective}, degree L2 {strength:g}, {TITLES[data]}")
    for axes in panels[-1]:
        axes.set_xlabel("step of the weights")
    return figure


def _paths(axes: Axes, rows: Sequence[Row]) -> None:
    ends = []
    for true, colour in ((3, ORANGE), (5, BLUE)):
        own = [row for row in rows if row["true"] == true]
        axes.axhspan(true - 0.5, true + 0.5, color=colour, alpha=0.1, linewidth=0)
        for best in {row["best"] for row in own}:
            axes.axhline(best, color=colour, linewidth=0.9, linestyle=DASHED)
        for row in own:
            axes.plot(np.linspace(0, row["steps"], len(row["path"])), row["path"], color=colour, linewidth=1)
        ends.append((fmean(row["end"] for row in own), f"true {true}", colour))
    axes.set_xlim(0, rows[0]["steps"])
    label_ends(axes, ends)


def degree_speed(part: Part) -> Figure:
    """Fig. 4.3b: MaxDeg from -1, objective by objective, at first."""
    names, objectives = part.values_of("data"), part.values_of("objective")
    figure, [panels] = canvas(WIDTH, 2.9, 1, len(names), room=(0.05, 0.15, 0.79, 0.91, 0.12), sharey=True)
    strength = min(part.values_of("degree_l2"))
    for axes, data in zip(panels, names, strict=True):
        for objective, colour in zip(objectives, SHADES, strict=False):
            rows = part.having(data=data, objective=objective, start=-1.0, true=3, degree_l2=strength)
            path = _mean(rows, "path")
            axes.plot(np.linspace(0, rows[0]["steps"], len(path)), path, color=colour, linewidth=1.2)
        axes.set(xlim=(0, rows[0]["steps"] * 0.1), xlabel="step of the weights")
        axes.set_title(f"MaxDeg from −1, {TITLES[data]}")
    low, high = panels[-1].get_ylim()
    places = np.linspace(high, low, len(objectives) + 2)[1:-1]
    label_ends(panels[-1], list(zip(places, objectives, SHADES, strict=False)))
    return figure


def learning_rate(part: Part) -> Figure:
    """Test accuracy by epoch, and the rate on its way."""
    figure, [panels] = canvas(WIDTH, 2.9, 1, 2, room=(0.05, 0.15, 0.93, 0.91, 0.28))
    ends: tuple[list[tuple[float, str, str]], ...] = ([], [])
    for steps, colour in zip(part.values_of("T"), (MUTED, *SHADES), strict=False):
        rows = part.having(T=steps)
        accuracy, rates = [100 * value for value in _mean(rows, "accuracy")], _mean(rows, "rates")
        panels[0].plot(range(1, len(accuracy) + 1), accuracy, "o-", color=colour, markersize=3, linewidth=1.2)
        panels[1].plot(np.linspace(0, len(accuracy), len(rates)), rates, color=colour, linewidth=1.2)
        for own, last in zip(ends, (accuracy[-1], rates[-1]), strict=True):
            own.append((last, f"T={steps}" if steps else "fixed", colour))
    for axes, title, labels in zip(panels, ("MNIST test accuracy, %", "learning rate"), ends, strict=True):
        axes.set(title=title, xlabel="epoch")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        label_ends(axes, labels)
    return figure


DRAWINGS = {
    "evidence": Drawing(evidence_figure, ("evidence",), "Bayesian linear regression: evidence and its bounds"),
    "fig4-2": Drawing(fixed_degrees, ("fixed_degrees",), "Fourier data: training of fixed degrees"),
    "fig4-3a": Drawing(learnt_degrees, ("learnt_degrees",), "Fourier data: the degree by gradient"),
    "fig4-3b": Drawing(degree_speed, ("learnt_degrees",), "Fourier data: how fast the degree is learnt"),
    "fig4-1a": Drawing(learning_rate, ("learning_rate",), "MNIST: the learning rate by gradient"),
}
