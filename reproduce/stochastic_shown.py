"""What `reproduce.stochastic_architectures` found, as tables in Markdown and as figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from polyarch.plotting import BLUE, GREEN, MUTED, ORANGE, WIDTH, grid, label_ends
from reproduce.showing import (
    NOTHING,
    Columns,
    Drawing,
    Part,
    Row,
    as_table,
    band,
    mean_sd,
    mean_table,
    over,
    read,
)  # fmt: skip
from reproduce.stochastic_networks import LISTED, MANY, SETUPS

CLASSIFIERS = {
    "residual": "residual wiring alone",
    "dropout": "MC dropout, 100 passes",
    "individuals": "five wirings trained alone, mean",
    "deep ensemble": "their deep ensemble",
    "nsa-id": "NSA-id, its five together",
    "nsa-id, one by one": "NSA-id, one by one, mean",
    f"nsa-i-{LISTED}": "NSA-i, five together",
    f"nsa-i-{LISTED}, one by one": "NSA-i, one by one, mean",
}
PAPER_TABLE = {
    "residual": ("2.93", "0.0140"),
    "dropout": ("3.23", "0.0107"),
    "individuals": ("2.97", "0.0153"),
    "deep ensemble": ("2.36", NOTHING),
    "nsa-id": ("2.75", "0.0032"),
}
"""Error in % and ECE on CIFAR-10 (Table 2; footnote 6)."""
PAPER_ATTACKS = {
    ("dropout", "1-2-1"): ("0.622", "0.735"),
    ("dropout", "2-3-1"): ("0.345", "0.694"),
    ("dropout", "3-4-1"): ("0.183", "0.564"),
    ("nsa-id", "1-2-1"): ("0.630", "0.737"),
    ("nsa-id", "2-3-1"): ("0.401", "0.705"),
    ("nsa-id", "3-4-1"): ("0.263", "0.618"),
}
"""Accuracy and AUC (Table 3)."""
PAPER_SEEN = {
    f"nsa-i-{LISTED}": ("1.00", "96.57", "91.81"),
    f"nsa-i-{10 * LISTED}": ("0.77", "96.47", "96.23"),
    f"nsa-i-{MANY}": ("0.57", "96.16", "96.12"),
}
"""AUC, accuracy of seen and of unseen in % (Table 1)."""
LABELS = {
    "labels-nsa-id": ("NSA-id, its five together", "86.96"),
    "labels-pi": ("Pi-model: residual wiring with dropout, 100 passes", "85.22"),
    "labels-only": ("residual wiring, from labels alone", "83.87"),
}
"""What is shown, and the paper's accuracy in % on CIFAR-10 (section 5.3)."""
PAPER_SPEARMAN = {f"nsa-{MANY}": "0.33", f"nsa-i-{MANY}": "0.588"}
TRAINED = {f"nsa-{MANY}": "NSA", f"nsa-i-{MANY}": "NSA-i"}
MIXED = {f"nsa-i-{MANY}": "NSA-i", f"nsa-id-aggregation-{MANY}": "NSA-id, weights of links alone"}
DRAWN = {"batch": "for every batch", "instance": "for every example"}


def of_kind(part: Part, kind: str) -> dict[str, list[Row]]:
    """Rows of a kind, by what they are about."""
    return {name: rows for (name,), rows in part.groups("row", kind=kind).items()}


# ---------------------------------------------------------------------------------------------------------------------
# Tables.


def classifiers(part: Part) -> str:
    """Table 2, and other data where there is some; the paper's beside it for CIFAR-10."""
    rows = of_kind(part, "table")
    there = [name for name in CLASSIFIERS if name in rows]
    outside = any("outside" in rows[name][0] for name in there)
    head = ["", "error, %", "ECE", "log-likelihood"]
    head += ["AUROC by mutual information", "by entropy"] if outside else ["error, paper", "ECE, paper"]
    lines = []
    most = max(len(rows[name]) for name in there)
    for name in there:
        own, paper = rows[name], PAPER_TABLE.get(name, (NOTHING, NOTHING))
        fewer = "" if len(own) == most else f" ({len(own)} of {most} seeds)"
        numbers = [
            over(own, lambda row: 1 - row["accuracy"], 2, 100),
            over(own, "ece", 4),
            over(own, "log_likelihood", 3),
        ]
        aurocs = [_auroc(own, by) for by in ("mutual_information", "entropy")] if outside else paper
        lines.append([CLASSIFIERS[name] + fewer, *numbers, *aurocs])
    return as_table(head, lines)


def _auroc(rows: Sequence[Row], by: str) -> str:
    """A network alone has no mutual information: its members never differ."""
    if by not in rows[0]["outside"] or (by == "mutual_information" and rows[0]["members"] == 1):
        return NOTHING
    return over(rows, lambda row: row["outside"][by]["auroc"], 3)


def pairs(part: Part) -> str:
    """How much members differ from each other."""
    rows = of_kind(part, "table").items()
    members = {CLASSIFIERS[name.removesuffix(", pairs")]: own for name, own in rows if name.endswith(", pairs")}
    return mean_table(["members of"], members, {"disagreement": ("disagreement", 4), "KL, nats": ("kl", 4)})


def batch_means(part: Part) -> str:
    """Section 3: var(batch mean) / var(feature)."""
    lines = []
    for name, rows in of_kind(part, "batch means").items():
        own = {per: [row for row in rows if row["per"] == per] for per in DRAWN}
        for per, label in DRAWN.items():
            lines.append([TRAINED[name], label, *(over(own[per], key, 4) for key in ("total", "architectures", "own"))])
        each = {per: {row["seed"]: row["total"] for row in own[per]} for per in DRAWN}
        ratios = [each["batch"][seed] / each["instance"][seed] for seed in each["batch"]]
        lines.append([TRAINED[name], "ratio of the two", mean_sd(ratios, 1), "", ""])
    shares = ["var(mean) / var(feature)", "due to architectures", "of single examples"]
    return as_table(["weights of", "architectures drawn", *shares], lines)


def statistics(part: Part) -> str:
    """Section 3: architectures by both kinds of statistics."""
    lines = []
    for name, rows in of_kind(part, "statistics").items():
        intervals = [_figure(row["spearman"]) for row in rows]
        accuracies = [over(rows, lambda row, by=by: float(np.mean(row[by])), 2, 100) for by in ("batch", "running")]
        correlation = over(rows, lambda row: row["spearman"]["value"], 3)
        lines.append([TRAINED[name], correlation, ", ".join(intervals), PAPER_SPEARMAN[name], *accuracies])
    head = ["weights of", "Spearman", "each seed, 95 % interval", "paper", "accuracy, batch statistics", "running ones"]
    return as_table(head, lines)


def _figure(found: dict[str, Any]) -> str:
    value, low, high = (mean_sd([found[key]], 2) for key in ("value", "low", "high"))
    return NOTHING if low == NOTHING else f"{value} ({low} to {high})"


def seen(part: Part) -> str:
    """Table 1."""
    lines = []
    for name, rows in of_kind(part, "seen").items():
        auc = over(rows, lambda row: row["auc"]["value"], 2)
        accuracies = [over(rows, key, 2, 100) for key in ("seen", "unseen")]
        lines.append([f"NSA-i, S = {name.rsplit('-', 1)[1]}", auc, *accuracies, *PAPER_SEEN[name]])
    return as_table(["", "AUC", "seen, %", "unseen, %", "AUC, paper (CIFAR-10)", "seen, paper", "unseen, paper"], lines)


def attacks(part: Part) -> str:
    """Table 3."""
    lines = []
    for (name, attack), rows in part.groups("row", "attack", kind="attacks").items():
        found = [over(rows, key, 3) for key in ("accuracy", "auroc")]
        lines.append([CLASSIFIERS[name], f"PGD {attack}", *found, *PAPER_ATTACKS[name, attack]])
    return as_table(["", "attack", "accuracy", "AUROC", "accuracy, paper", "AUROC, paper"], lines)


def few_labels(part: Part) -> str:
    """Section 5.3."""
    lines = []
    for name, rows in of_kind(part, "few labels").items():
        label, paper = LABELS[name]
        numbers = [over(rows, "accuracy", 2, 100), over(rows, "log_likelihood", 3), over(rows, "ece", 4)]
        lines.append([label, *numbers, paper])
    return as_table(["", "accuracy, %", "log-likelihood", "ECE", "accuracy, paper (CIFAR-10)"], lines)


def ensembles(part: Part) -> str:
    """Fig. 4."""
    gains = {"T = 5 gains": 2, "T = 20": 4, f"T = {MANY}": -1}
    columns: Columns = {
        "one, mean": ("one", 4),
        **{title: (lambda row, k=k: row["accuracy"][k] - row["one"], 4) for title, k in gains.items()},
        "disagreement": ("disagreement", 4),
    }
    return mean_table([""], {MIXED[name]: rows for name, rows in of_kind(part, "ensembles").items()}, columns)


TABLES = {
    "Errors and calibration (Table 2)": classifiers,
    "How much members differ": pairs,
    "Batch means (section 3)": batch_means,
    "Both kinds of statistics (section 3)": statistics,
    "Seen and unseen architectures (Table 1)": seen,
    "More and more members (Fig. 4)": ensembles,
    "Under attack (Table 3)": attacks,
    "Few labels (section 5.3)": few_labels,
}
TITLES = {
    "fashion": "Fashion-MNIST, small",
    "cifar": "CIFAR-10, width 4",
    "fashion-long": "Fashion-MNIST, small, 40 epochs",
}


def markdown(folder: Path) -> str:
    """All tables that there are rows for."""
    texts = []
    for name in SETUPS:
        if (part := read(folder, name)) is not None:
            tables = {title: make(part) for title, make in TABLES.items()}
            shown = [f"**{title}**\n\n{table}" for title, table in tables.items() if table]
            texts += [f"### {TITLES[name]}", *shown, part.source]
    return "".join(f"{text}\n\n" for text in texts)


# ---------------------------------------------------------------------------------------------------------------------
# Figures.


def curves(part: Part) -> Figure:
    """Figs. 2 and 3: test accuracy over training; and architectures by both kinds of statistics, the first seed."""
    figure = Figure(figsize=(WIDTH, 3.4), layout="constrained")
    left, *right = figure.subplots(1, 3, width_ratios=(1.5, 1, 1))
    rows = of_kind(part, "curves")
    ends = []
    for name, label, colour in (
        ("residual", "residual", MUTED), (f"nsa-i-{MANY}", "NSA-i", BLUE), (f"nsa-{MANY}", "NSA", ORANGE)
    ):  # fmt: skip
        own = np.array([[100 * point["accuracy"] for point in row["curve"]] for row in rows[name]])
        epochs = [point["epoch"] for point in rows[name][0]["curve"]]
        band(left, epochs, own.mean(0), own.min(0), own.max(0), colour, 0.18, linewidth=1.6)
        ends.append((float(own.mean(0)[-1]), label, colour))
    grid(left)
    label_ends(left, ends)
    left.set(title="test accuracy, %; bands: all seeds", xlabel="epochs")
    for axes, (name, label), colour in zip(right, TRAINED.items(), (ORANGE, BLUE), strict=True):
        _scatter(axes, of_kind(part, "statistics")[name][0], label, colour)
    return figure


def _scatter(axes: Axes, row: Row, label: str, colour: str) -> None:
    batch, running = (100 * np.array(row[key]) for key in ("batch", "running"))
    axes.scatter(batch, running, s=9, color=colour, alpha=0.7, linewidth=0)
    low, high = min(batch.min(), running.min()), max(batch.max(), running.max())
    axes.plot([low, high], [low, high], color=GREEN, linewidth=0.8, zorder=0)
    axes.set(title=f"{label}: 100 wirings", xlabel="accuracy, batch statistics", ylabel="running statistics")
    grid(axes, "both")


DRAWINGS = {"curves": Drawing(curves, ("fashion",))}
