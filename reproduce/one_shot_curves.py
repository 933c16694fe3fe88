"""Training speed in recorded curves: which figure of a training run ranks cells best, and how early (Figs. 4.4, 4.5).

The file holds the mean training loss of every epoch, so SoTL over the last epoch (Eq. 3.1, its usual window) is that
mean times the number of steps. Not recorded are the loss of the last minibatch, and validation accuracy by epoch.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from polyarch.plotting import BLUE, GREEN, INK, MUTED, ORANGE, WIDTH, label_ends
from polyarch.ranking.statistics import Numbers, spearman
from polyarch.tables import Table, open_table
from reproduce.one_shot_table import DATA, correlation
from reproduce.showing import Drawing, Part, Row, Section, as_table, band, canvas

ABOUT = (
    "Figs. 4.4, 4.5: Spearman with 200-epoch test accuracy (mean of seeds) by epoch, from recorded losses of 600 "
    "cells of NAS-Bench-201, one seed."
)

MARK = 0.9
"""The correlation that the thesis asks about."""
NEWEST = 0.9
"""The weight of the newest epoch in the moving average of the public TSE script."""
SHOWN = (1, 5, 10, 12, 20, 30, 50, 100, 150, 200)
LAST, ALL, AVERAGE, VALID = "SoTL, last epoch", "SoTL, all epochs", "SoTL, moving average", "validation loss"
PARAMETERS, ACCURACY = "parameters", "validation accuracy, epoch 200"


def options(parser: argparse.ArgumentParser) -> None:
    """Where the curves are, and how much is drawn."""
    parser.add_argument("--curves", default="nasbench201_curves", help="name or path of the recorded curves")
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--cells", type=int, default=200, help="of a draw")


def judges(train: Numbers, valid: Numbers) -> dict[str, Numbers]:
    """What each judge says after every epoch; larger is better. Losses and answers are [cells, epochs]."""
    average = np.empty_like(train)
    average[:, 0] = train[:, 0]
    for epoch in range(1, train.shape[1]):
        average[:, epoch] = NEWEST * train[:, epoch] + (1 - NEWEST) * average[:, epoch - 1]
    return {LAST: -train, ALL: -train.cumsum(1), AVERAGE: -average, VALID: -valid}


def rows(arguments: argparse.Namespace) -> Iterator[Row]:
    """Every judge on every data set, on the same draws of cells; then what a whole training or none says."""
    curves, table = open_table(arguments.curves), open_table(arguments.table)
    random = np.random.default_rng(0)
    draws = np.stack([random.permutation(len(curves))[: arguments.cells] for _ in range(arguments.draws)])
    for data in DATA:
        truth = table.look_up(f"{data}_test_acc_200", curves.architectures)
        train, valid = (by_epoch(curves, f"{data}_{split}_loss") for split in ("train", "valid"))
        for judge, said in judges(train, valid).items():
            yield {"kind": "curve", "data": data, "judge": judge, **correlations(said.T, truth, draws)}
        for judge, column in ((PARAMETERS, "cifar10_params_analytic_M"), (ACCURACY, f"{data}_valid_acc_200_naslib")):
            said = table.look_up(column, curves.architectures)[None]
            yield {"kind": "reference", "data": data, "judge": judge, **correlations(said, truth, draws)}
        yield from short_schedule(table, data)


def by_epoch(curves: Table, name: str) -> Numbers:
    """A loss [cells, epochs]."""
    return np.stack([curves.whole(f"{name}[{epoch}]") for epoch in curves.others["epochs"].tolist()], 1)


def correlations(said: Numbers, truth: Numbers, draws: NDArray[np.int64]) -> Row:
    """Spearman by epoch over draws of cells; said [epochs, n], truth [n], draws [draws, cells]."""
    found = np.array([[spearman(one[cells], truth[cells]) for cells in draws] for one in said], float)
    first = [int(np.argmax(one >= MARK)) + 1 if (one >= MARK).any() else None for one in found.T]
    spread = found.std(1, ddof=1) if len(draws) > 1 else np.zeros(len(found))
    return {
        "draws": draws.shape[0], "cells": draws.shape[1],
        "mean": found.mean(1).round(4).tolist(), "sd": spread.round(4).tolist(), "reaches": first,
    }  # fmt: skip


def short_schedule(table: Table, data: str) -> Iterator[Row]:
    """The 12-epoch runs at their end, on the 1,000 cells of which the table has training losses."""
    cells = table.others["trainloss_idx"]
    truth = table.whole(f"{data}_test_acc_200")[cells]
    said = {
        "training loss": -table.others[f"{data}_train_loss_12_sub"].astype(np.float64),
        "validation accuracy": table.whole(f"{data}_valid_acc_12")[cells],
        "parameters": table.whole("cifar10_params_analytic_M")[cells],
    }
    for judge, numbers in said.items():
        yield {"kind": "short", "data": data, "judge": judge, "cells": len(cells), **correlation(numbers, truth)}


# ---------------------------------------------------------------------------------------------------------------------
# What was found.


def by_epoch_table(part: Part) -> str:
    """Mean ± standard deviation over draws at some epochs."""
    lines = []
    for data, name in DATA.items():
        for row in (*part.having(kind="curve", data=data), *part.having(kind="reference", data=data)):
            told = [f"{mean:.3f} ± {sd:.3f}" for mean, sd in zip(row["mean"], row["sd"], strict=True)]
            if row["kind"] == "reference":  # one number, of every epoch or of the last
                told = [told[0] if row["judge"] == PARAMETERS else ""] * (SHOWN[-1] - 1) + told
            lines.append([name, row["judge"], *(told[epoch - 1] for epoch in SHOWN)])
    return as_table(["data", "judge", *(f"epoch {epoch}" for epoch in SHOWN)], lines)


def reaching_table(part: Part) -> str:
    """The first epoch at 0.90: of the mean over draws, and over all draws; and the best epoch."""
    lines = []
    for row in part.having(kind="curve"):
        mean = np.array(row["mean"])
        reached = [epoch for epoch in row["reaches"] if epoch is not None]
        of_mean = str(int(np.argmax(mean >= MARK)) + 1) if (mean >= MARK).any() else "never"
        each = f"{min(reached)} to {max(reached)}" if reached else "never"
        if reached and len(reached) < len(row["reaches"]):
            each += f" ({len(row['reaches']) - len(reached)} never)"
        best = int(mean.argmax())
        lines.append([DATA[row["data"]], row["judge"], of_mean, each, f"{mean[best]:.3f}", str(best + 1)])
    return as_table(["data", "judge", "mean reaches 0.90 at", "draws reach it at", "highest mean", "at"], lines)


def short_table(part: Part) -> str:
    """The ends of the short schedule."""
    lines = [
        [DATA[row["data"]], row["judge"], f"{row['spearman']:.3f}", "{:.3f} to {:.3f}".format(*row["interval"])]
        for row in part.having(kind="short")
    ]
    return as_table(["data", "judge", "Spearman", "95 % interval"], lines)


COLOURS = {LAST: ORANGE, ALL: BLUE, VALID: GREEN}


def figure(part: Part) -> Figure:
    """Correlation against epoch, one panel per data set."""
    drawn, [panels] = canvas(WIDTH, 3.1, 1, len(DATA), room=(0.05, 0.15, 0.86, 0.91, 0.08), sharey=True)
    for axes, (data, title) in zip(panels, DATA.items(), strict=True):
        ends = _panel(axes, part, data)
        axes.set_title(f"Spearman with final test accuracy, {title}")
    label_ends(panels[-1], ends)
    return drawn


def _panel(axes: Axes, part: Part, data: str) -> list[tuple[float, str, str]]:
    """Draws one data set; returns where lines end."""
    axes.axhline(MARK, color=MUTED, linewidth=0.7, linestyle=(0, (1, 2)))
    ends = []
    for row in part.having(kind="curve", data=data):
        if row["judge"] in COLOURS:
            mean, spread, colour = np.array(row["mean"]), np.array(row["sd"]), COLOURS[row["judge"]]
            band(axes, np.arange(1, len(mean) + 1), mean, mean - spread, mean + spread, colour, 0.18)
            ends.append((row["mean"][-1], row["judge"], colour))
    [parameters], [accuracy] = (part.having(kind="reference", data=data, judge=j) for j in (PARAMETERS, ACCURACY))
    axes.axhline(parameters["mean"][0], color=MUTED, linewidth=1, linestyle=(0, (4, 2)))
    axes.plot([200], accuracy["mean"], "o", color=INK, markersize=4, clip_on=False, zorder=3)
    axes.set(xlim=(0, 200), ylim=(0, 1), xlabel="epoch; bands: one standard deviation")
    return [*ends, (parameters["mean"][0], PARAMETERS, MUTED), (accuracy["mean"][0], "validation accuracy", INK)]


SECTIONS = (
    Section(
        "Figs. 4.4, 4.5: rank correlation by epoch", ("curves",), by_epoch_table,
        "Mean ± standard deviation over draws of cells, the same draws for all judges. The draws overlap, being "
        "subsets of 600 cells. The moving average is TSE-EMA with 0.9 on the newest epoch.",
    ),
    Section("When 0.90 is reached", ("curves",), reaching_table),
    Section(
        "The 12-epoch schedule, at its end", ("curves",), short_table,
        "1,000 cells; the truth is still the 200-epoch test accuracy. Intervals are of the bootstrap over cells.",
    ),
)  # fmt: skip
DRAWINGS = {"curves": Drawing(figure, ("curves",))}
