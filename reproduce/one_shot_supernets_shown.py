"""What `reproduce.one_shot supernets` found, as tables in Markdown and as figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from polyarch.plotting import BLUE, GREEN, INK, MUTED, ORANGE, SHADES, WIDTH, label_ends
from reproduce.own_supernets import BATCHES, METHODS, RATES, rates_of
from reproduce.showing import NOTHING, Drawing, Part, Row, Section, as_table, band, canvas, mean_sd, over

DIGITS = {"spearman": 3, "kendall": 3, "top10": 2, "with_parameters": 3}
"""Measures, and how many digits of each are shown."""
HALVES = ("worse_half", "better_half")
TOLD_AT = 100
"""Minibatches after which the thesis's tables tell SoTL."""
ESTIMATORS: tuple[tuple[str, str, int], ...] = (
    ("SoTL, 100 steps", "sotl", TOLD_AT),
    ("TLMini, no fine-tuning", "train-loss", 1),
    ("TLMini, step 100", "train-loss", TOLD_AT),
    ("ValAcc, no fine-tuning", "valid-accuracy", 0),
    ("ValAcc, no fine-tuning, the supernet's statistics", "valid-accuracy-shared", 0),
    ("ValAcc, after 100 steps", "valid-accuracy", TOLD_AT),
    ("ValAccMini, no fine-tuning", "valid-accuracy-mini", 0),
    ("ValAccMini, after 100 steps", "valid-accuracy-mini", TOLD_AT),
    ("validation loss, no fine-tuning", "valid-loss", 0),
    ("validation loss, after 100 steps", "valid-loss", TOLD_AT),
    ("SoG, 100 steps", "sog", TOLD_AT),
    ("SoGN, 100 steps", "sogn", TOLD_AT),
)
"""Labels, estimators and steps. The first minibatch has its loss before any update: no fine-tuning."""
JUDGES = {"parameters": "parameter count", "random": "random order", "best": "the truth itself"}
THESIS: dict[str, dict[str, tuple[str, ...]]] = {
    "spearman": {
        "SoTL": ("0.78 ± 0.06", "0.89 ± 0.01", "0.91 ± 0.01", "0.87 ± 0.01", "0.88 ± 0.01"),
        "TLMini": ("0.81 ± 0.04", "0.83 ± 0.03", "0.86 ± 0.02", "0.81 ± 0.03", "0.82 ± 0.01"),
        "ValAcc": ("0.75 ± 0.03", "0.76 ± 0.12", "0.76 ± 0.06", "0.76 ± 0.16", "0.64 ± 0.02"),
        "ValAccMini": ("0.71 ± 0.05", "0.69 ± 0.11", "0.66 ± 0.19", "0.74 ± 0.21", "0.76 ± 0.08"),
        "SoG": ("0.86 ± 0.01",),
        "SoGN": ("0.81 ± 0.04",),
        "parameter count": ("0.79",) * 5,
    },
    "top10": {
        "SoTL": ("92.87 ± 0.25", "92.23 ± 0.15", "92.73 ± 0.12", "91.97 ± 0.15", "92.00 ± 0.17"),
        "TLMini": ("92.13 ± 0.47", "92.20 ± 0.27", "92.30 ± 0.70", "92.40 ± 0.20", "92.23 ± 0.31"),
        "ValAcc": ("92.33 ± 0.74", "92.57 ± 0.25", "93.03 ± 0.06", "92.63 ± 0.31", "92.07 ± 0.23"),
        "ValAccMini": ("91.83 ± 0.70", "92.93 ± 0.06", "91.69 ± 0.97", "92.37 ± 0.25", "91.60 ± 0.87"),
    },
    "with_parameters": {"SoTL": ("0.56 ± 0.07",), "SoG": ("0.78 ± 0.03",)},
}
"""Tables 4.1 and 4.5 on CIFAR-10, in the order of `METHODS`: SoTL, SoG and SoGN after 100 steps, others after none."""
THESIS_RATES = {
    0.01: ("0.78 ± 0.06", "92.87 ± 0.25", "0.70 ± 0.11", "91.53 ± 2.10"),
    0.001: ("0.84 ± 0.06", "92.23 ± 0.21", "0.81 ± 0.06", "92.30 ± 0.20"),
}
"""Table 4.4 on CIFAR-10: Spearman and top 10 of SoTL, then of ValAcc after as many steps."""
THESIS_SUMS = ("0.86 ± 0.01", "0.78 ± 0.01", "0.81 ± 0.04", "0.54 ± 0.02", "0.79", "0.56 ± 0.07", "0.78 ± 0.03")
"""Table 4.5 on CIFAR-10."""


def own_rate(method: str) -> float:
    """At which the thesis fine-tunes from a supernet."""
    return rates_of(method)[0]


def methods_of(part: Part) -> list[str]:
    """Supernets that there is something of."""
    there = {row["method"] for row in part.having(kind="estimator")}
    return [method for method in METHODS if method in there]


def at(part: Part, measure: str, estimator: str, step: int, digits: int, **labels: Any) -> str:
    """Mean ± standard deviation over seeds after some steps."""
    rows = part.having(kind="estimator", estimator=estimator, **labels)
    return mean_sd([row[measure][row["steps"].index(step)] for row in rows if step in row["steps"]], digits)


def _baseline(part: Part, judge: str, measure: str) -> list[float | None]:
    """A number and its interval."""
    [row] = part.having(kind="baseline", judge=judge)
    ends: list[float | None] = row[measure]
    return ends


def _plain(part: Part, judge: str, measure: str, digits: int) -> str:
    return mean_sd(_baseline(part, judge, measure)[:1], digits)


def ceiling_of(part: Part) -> float | None:
    """The Spearman correlation that a perfect judge would have with this truth; None of one seed."""
    [row] = part.having(kind="truth")
    ceiling: float | None = row["ceiling"]
    return ceiling


# ---------------------------------------------------------------------------------------------------------------------
# Tables.


def truth_table(part: Part) -> str:
    """The spread of the truth, and how far it is to be trusted."""
    [row] = part.having(kind="truth")
    lines = [
        ["cells, seeds of each", f"{row['cells']}, {row['seeds']}"],
        ["mean ± sd over cells, %", f"{row['mean']:.2f} ± {row['sd']:.2f}"],
        ["worst and best, %", "{:.2f}, {:.2f}".format(*row["range"])],
        ["sd over seeds of one cell, %", over([row], "noise", 2)],
        ["Spearman between two seeds", over([row], "agreement", 3)],
        ["of the mean of these seeds with that of as many others", over([row], "reliability", 3)],
        ["ceiling: of a perfect judge with the mean of these seeds", over([row], "ceiling", 3)],
    ]
    return as_table(["truth", "test accuracy"], lines)


def baseline_table(part: Part) -> str:
    """What costs nothing, with intervals."""
    lines = [
        [name, *(_with_interval(_baseline(part, judge, measure), digits) for measure, digits in DIGITS.items())]
        for judge, name in JUDGES.items()
    ]
    return as_table(["judge", "Spearman", "Kendall", "top 10, %", "Spearman with parameters"], lines)


def _with_interval(ends: Sequence[float | None], digits: int) -> str:
    value, low, high = (mean_sd([end], digits) for end in ends)
    return value if low in (NOTHING, high) else f"{value} ({low} to {high})"


def by_supernet(part: Part, measure: str) -> str:
    """Estimators against supernets, each fine-tuned at its own rate; then baselines, and the thesis."""
    methods, digits = methods_of(part), DIGITS[measure]

    def line(label: str, estimator: str, step: int, rate: Callable[[str], float] = own_rate) -> list[str]:
        labels = [{"method": method, "rate": rate(method), "batch": BATCHES[0]} for method in methods]
        return [label, *(at(part, measure, estimator, step, digits, **own) for own in labels)]

    lines = [line(*one) for one in ESTIMATORS]
    lines.insert(1, line(f"SoTL, 100 steps, {RATES[1]:g} for all", "sotl", TOLD_AT, lambda _: RATES[1]))
    for judge, name in JUDGES.items():
        lines.append([name, *[_plain(part, judge, measure, digits)] * len(methods)])
    if measure == "spearman":
        lines.append(["ceiling, see above", *[mean_sd([ceiling_of(part)], digits)] * len(methods)])
    for name, values in THESIS[measure].items():
        by_method = dict(zip(METHODS, values, strict=False))  # some are told of single-path alone
        lines.append([f"thesis, CIFAR-10: {name}", *(by_method.get(method, NOTHING) for method in methods)])
    return as_table(["estimator", *methods], lines)


def halves_table(part: Part) -> str:
    """Where the correlation comes from: the worse and the better half of the cells, each by itself."""
    estimators = (("sotl", TOLD_AT), ("valid-accuracy", 0))
    columns = [(*estimator, half) for estimator in estimators for half in HALVES]
    lines = []
    for method in methods_of(part):
        labels = {"method": method, "rate": own_rate(method), "batch": BATCHES[0]}
        lines.append([method, *(at(part, half, estimator, step, 3, **labels) for estimator, step, half in columns)])
    for label, name in (("parameter count", "parameters"), ("between two seeds of the truth", "agreement")):
        lines.append([label, *(over(part.having(kind="half", half=half), name, 3) for *_, half in columns)])
    head = [f"{name}: {half.replace('_', ' ')}" for name in ("SoTL, 100 steps", "ValAcc") for half in HALVES]
    return as_table(["supernet", *head], lines)


def sums_table(part: Part) -> str:
    """Table 4.5, one line per supernet."""
    columns = [("spearman", estimator, rate) for estimator in ("sog", "sogn") for rate in RATES]
    sizes = ("with_parameters", "sotl"), ("with_parameters", "sog")
    lines = []
    for method in methods_of(part):
        told = [
            at(part, measure, estimator, TOLD_AT, 3, method=method, rate=rate, batch=BATCHES[0])
            for measure, estimator, rate in (*columns, *((*size, own_rate(method)) for size in sizes))
        ]
        lines.append([method, *told[:4], _plain(part, "parameters", "spearman", 3), *told[4:]])
    for judge, name in JUDGES.items():
        values = [_plain(part, judge, measure, 3) for measure in ("spearman", "with_parameters")]
        lines.append([name, *[values[0]] * 4, NOTHING, *[values[1]] * 2])
    lines.append([f"thesis, CIFAR-10: {METHODS[0]}", *THESIS_SUMS])
    head = [f"{name} ({rate:g})" for name in ("SoG", "SoGN") for rate in RATES]
    return as_table(["supernet", *head, "parameters", "SoTL-P", "SoG-P"], lines)


def rates_table(part: Part) -> str:
    """Table 4.4 and all batches: fine-tuning from the single-path supernet."""
    columns = [(measure, estimator) for estimator in ("sotl", "valid-accuracy") for measure in ("spearman", "top10")]
    lines = []
    for rate in RATES:
        for batch in BATCHES:
            labels = {"method": METHODS[0], "rate": rate, "batch": batch}
            lines.append([f"{rate:g}, {batch}", *(at(part, m, e, TOLD_AT, DIGITS[m], **labels) for m, e in columns)])
    for judge, name in JUDGES.items():
        lines.append([name, *(_plain(part, judge, measure, DIGITS[measure]) for measure, _ in columns)])
    lines += [[f"thesis, CIFAR-10: {rate:g}, {BATCHES[0]}", *values] for rate, values in THESIS_RATES.items()]
    head = ["SoTL: Spearman", "SoTL: top 10, %", "ValAcc: Spearman", "ValAcc: top 10, %"]
    return as_table(["rate, batch", *head], lines)


def accuracy_table(part: Part) -> str:
    """Mean validation accuracy of all cells by step, and what it took."""
    steps = sorted({step for row in part.having(kind="accuracy") for step in row["steps"]})
    lines = []
    for method in methods_of(part):
        for rate in RATES:
            rows = part.having(kind="accuracy", method=method, rate=rate)
            looks = [dict(zip(row["steps"], row["accuracy"], strict=True)) for row in rows]
            times = [over(rows, name, 1, 1000) for name in ("seconds_100_steps", "seconds_look")]
            accuracies = [mean_sd([look.get(step) for look in looks], 2) for step in steps]
            lines.append([f"{method}, {rate:g}", over(rows, "shared", 2), *accuracies, *times])
    lines.append([f"thesis, CIFAR-10, P100: {METHODS[0]}", *[NOTHING] * (1 + len(steps)), "4500", "6500"])
    head = ["0, the supernet's statistics", *map(str, steps), "100 steps, ms per cell", "full look, ms per cell"]
    return as_table(["supernet, rate", *head], lines)


def gap_table(part: Part) -> str:
    """Loss at the beginning and at the end of fine-tuning, and how far the best are ahead."""
    lines = []
    for method in methods_of(part):
        for rate in RATES:
            rows = part.having(kind="gap", method=method, rate=rate, batch=BATCHES[0])
            losses = [[row["all"][place] for row in rows] for place in (0, -1)]
            gaps = [[row["middle"][place] - row["best"][place] for row in rows] for place in (0, -1)]
            wider = [last - first for first, last in zip(*gaps, strict=True)]
            lines.append([f"{method}, {rate:g}", *(mean_sd(values, 3) for values in (*losses, *gaps, wider))])
    head = ["loss of all, first steps", "last steps", "best ahead of middle, first steps", "last steps", "wider by"]
    return as_table(["supernet, rate", *head], lines)


# ---------------------------------------------------------------------------------------------------------------------
# Figures.

PLUM = SHADES[3]
LINES: tuple[tuple[str, str, Callable[[str], float] | float, str], ...] = (
    ("train-loss", "TLMini", own_rate, MUTED),
    ("valid-accuracy-mini", "ValAccMini", own_rate, BLUE),
    ("valid-accuracy", "ValAcc", own_rate, GREEN),
    ("sotl", f"SoTL at {RATES[1]:g}", RATES[1], PLUM),
    ("sotl", f"SoTL at {RATES[0]:g}", RATES[0], ORANGE),
)
"""Estimators, names, rates and colours; what is drawn last lies on top."""
GROUPS = (("all", "all cells", MUTED), ("middle", "middle tenth", BLUE), ("best", "best tenth", ORANGE))
Ends = dict[str, tuple[float, str]]
"""Where the line of a name ends, and its colour; of the rightmost panel that has it."""
TITLES = {"spearman": "Spearman with test accuracy", "top10": "mean test accuracy of the ten best, %"}


def _line(axes: Axes, rows: Sequence[Row], name: str, label: str, colour: str, ends: Ends) -> None:
    """Draws a mean over seeds with its band, and says where it ends; nothing where there are no rows."""
    # Steps that all seeds have.
    steps = [step for step in (rows[0]["steps"] if rows else []) if all(step in row["steps"] for row in rows)]
    if not steps:
        return
    values = np.array([[row[name][row["steps"].index(step)] for step in steps] for row in rows], float)
    mean, spread = values.mean(0), values.std(0, ddof=1) if len(rows) > 1 else 0
    marker = {"marker": "o" if steps[0] == 0 else "", "markersize": 2.5}
    band(axes, steps, mean, mean - spread, mean + spread, colour, linewidth=1.2, **marker)
    if np.isfinite(mean[-1]):  # a correlation may be undefined
        ends[label] = (float(mean[-1]), colour)


def _references(axes: Axes, part: Part, measure: str, ends: Ends) -> None:
    """Dashed: parameter count. Dotted: for a correlation the ceiling, for accuracies the best ten and chance."""
    others = {} if measure == "spearman" else {"the best ten": "best", "random": "random"}
    drawn = [("parameters", _baseline(part, "parameters", measure)[0], (4, 2))]
    drawn += [(name, _baseline(part, judge, measure)[0], (1, 2)) for name, judge in others.items()]
    if measure == "spearman":
        drawn.append(("ceiling", ceiling_of(part), (1, 2)))
    for name, value, dashes in drawn:
        if value is not None:
            axes.axhline(value, color=INK, linewidth=0.7, linestyle=(0, dashes))
            ends[name] = (value, INK)


def _finish(row: Sequence[Axes], title: str, ends: Ends) -> None:
    """Names a row of panels and, at its right, the lines."""
    row[0].annotate(title, (0, 1), (0, 24), "axes fraction", "offset points", annotation_clip=False)
    every = [line for axes in row[0].figure.axes for line in axes.lines]  # a row may be empty
    row[0].set_xlim(0, max(float(np.max(line.get_xdata())) for line in every))
    row[0].xaxis.set_major_locator(MaxNLocator(3, integer=True, prune="lower"))
    label_ends(row[-1], [(value, name, colour) for name, (value, colour) in ends.items()])


def _panels(width: float, height: float, rows: int, columns: int) -> tuple[Figure, Any]:
    """A figure with room for names above and at the right of its panels."""
    between, panel = 0.62, (height - 1 - 0.62 * (rows - 1)) / rows
    room = (0.42 / width, 0.5 / height, 1 - 1.15 / width, 1 - 0.5 / height, 0.1, between / panel)
    drawn, panels = canvas(width, height, rows, columns, room=room, sharex=True, sharey="row")
    words = "minibatches of fine-tuning; bands: one standard deviation over seeds"
    drawn.text(0.42 / width, 0.1 / height, words, color=MUTED)
    return drawn, panels


def steps_figure(part: Part) -> Figure:
    """Fig. 4.6: correlation and top 10 against the step, one column per supernet."""
    methods = methods_of(part)
    drawn, panels = _panels(WIDTH, 5.2, 2, len(methods))
    for row, (measure, title) in zip(panels, TITLES.items(), strict=True):
        ends: Ends = {}
        for axes, method in zip(row, methods, strict=True):
            _references(axes, part, measure, ends)
            for estimator, name, rate, colour in LINES:
                fixed = rate(method) if callable(rate) else rate
                labels = {"estimator": estimator, "method": method, "rate": fixed, "batch": BATCHES[0]}
                _line(axes, part.having(kind="estimator", **labels), measure, name, colour, ends)
            axes.set_title(method, color=MUTED)
        _finish(row, title, ends)
    return drawn


def batches_figure(part: Part) -> Figure:
    """Fig. 4.7: SoTL from the single-path supernet, by rate and batch."""
    drawn, panels = _panels(WIDTH * 0.8, 5.2, 2, len(RATES))
    for row, (measure, title) in zip(panels, TITLES.items(), strict=True):
        ends: Ends = {}
        for axes, rate in zip(row, RATES, strict=True):
            _references(axes, part, measure, ends)
            for batch, colour in zip(BATCHES, (ORANGE, PLUM, BLUE), strict=True):
                labels = {"estimator": "sotl", "method": METHODS[0], "rate": rate, "batch": batch}
                rows = part.having(kind="estimator", **labels)
                _line(axes, rows, measure, f"batch {batch}", colour, ends)
            axes.set_title(f"rate {rate:g}", color=MUTED)
        _finish(row, f"SoTL from {METHODS[0]}: {title}", ends)
    return drawn


def gap_figure(part: Part) -> Figure:
    """Fig. 4.8: loss of the best tenth and of the middle tenth at both rates, and what lies between."""
    methods = methods_of(part)
    drawn, panels = _panels(WIDTH, 7.0, 3, len(methods))
    titles = [*(f"training loss at rate {rate:g}" for rate in RATES), "loss of the middle tenth less that of the best"]
    ends: list[Ends] = [{}, {}, {}]
    for column, method in zip(panels.T, methods, strict=True):
        for place, rate in enumerate(RATES):
            rows = part.having(kind="gap", method=method, rate=rate, batch=BATCHES[0])
            for name, label, colour in GROUPS:
                _line(column[place], rows, name, label, colour, ends[place])
            ahead = [{**row, "ahead": np.subtract(row["middle"], row["best"]).tolist()} for row in rows]
            _line(column[-1], ahead, "ahead", f"rate {rate:g}", (ORANGE, PLUM)[place], ends[-1])
        column[-1].axhline(0, color=INK, linewidth=0.7)
        for axes in column:
            axes.set_title(method, color=MUTED)
    for row, title, own in zip(panels, titles, ends, strict=True):
        _finish(row, title, own)
    return drawn


FROM = ("supernets",)
SECTIONS = (
    Section(
        "Our own truth", FROM, truth_table,
        "Test accuracy of cells trained from scratch, mean of seeds. Training is a matter of luck as well, so that "
        "even a judge who knew what every cell is worth on average over all seeds would not reach 1: where two seeds "
        "correlate by r, the mean of k of them correlates by k r / (1 + (k − 1) r) with the mean of k others "
        "(Spearman-Brown), and by the root of this, the ceiling, with such a judge. The formula is Pearson's, and for "
        "ranks an approximation.",
    ),
    Section(
        "What costs nothing", FROM, baseline_table,
        "On the same cells as all that follows; in brackets, 95 % of bootstrap resamples of the cells for "
        "correlations, and of random orders for the random order. Top 10: mean test accuracy of a judge's ten best of "
        "these cells.",
    ),
    Section(
        "Table 4.1: Spearman with the truth, by supernet", FROM, partial(by_supernet, measure="spearman"),
        f"Mean ± standard deviation over supernets' seeds. Batch {BATCHES[0]}; fine-tuned at the thesis's rates, "
        f"{RATES[0]:g} for single-path and {RATES[1]:g} for the others, unless said. Batch norm has statistics of the "
        "cell's own before every look at validation data, unless said. The thesis's numbers are of 200 cells on "
        "CIFAR-10, its TLMini, ValAcc and ValAccMini without fine-tuning.",
    ),
    Section(
        "Table 4.1: top 10, by supernet", FROM, partial(by_supernet, measure="top10"),
        "The same; test accuracy in per cent.",
    ),
    Section(
        "Where the correlation comes from", FROM, halves_table,
        "Spearman with the truth among the truly worse and the truly better half of the cells, each by itself.",
    ),
    Section(
        "Table 4.5: Spearman with parameter count, by supernet", FROM, partial(by_supernet, measure="with_parameters"),
        "The same estimators, as judges of size.",
    ),
    Section(
        "Table 4.5: sums of gradients", FROM, sums_table,
        "Spearman with the truth after 100 steps at both rates; SoTL-P and SoG-P: with parameter count, at the "
        "supernet's own rate.",
    ),
    Section(
        "Table 4.4: rate and batch, single-path", FROM, rates_table,
        "After 100 steps. Validation data is looked at with the smallest batch alone.",
    ),
    Section(
        "Validation accuracy before and after fine-tuning", FROM, accuracy_table,
        "Mean of all cells, in per cent, after so many steps; first with the supernet's batch-norm statistics, then "
        "with the cell's own. Times are of the machine that fine-tuned, where many cells go at once: of the middle "
        "cell, steps with the measuring of gradients, a look with the recalibration.",
    ),
    Section(
        "Fig. 4.8: the best and the middle", FROM, gap_table,
        "Mean training loss of all cells; and by how much that of the truly best tenth lies below that of the tenth "
        "around the median. Means of the first ten and of the last ten steps.",
    ),
)  # fmt: skip
FIGURES = {"steps": steps_figure, "batches": batches_figure, "gap": gap_figure}
DRAWINGS = {name: Drawing(make, FROM) for name, make in FIGURES.items()}
