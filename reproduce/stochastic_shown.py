"""What `reproduce.stochastic_architectures` found, as tables in Markdown and as figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from polyarch.plotting import BLUE, CARD, GREEN, MUTED, ORANGE, WIDTH, grid, label_ends, style
from reproduce.depth_tables import told
from reproduce.stochastic_networks import LISTED, MANY, SETUPS
from reproduce.training_speed_tables import Part, Row, read, table

DOTS = 110
"""Of a figure, an inch."""
NOTHING = "–"
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
    found: dict[str, list[Row]] = {}
    for row in part.rows:
        if row["kind"] == kind:
            found.setdefault(row["row"], []).append(row)
    return found


def over_seeds(rows: Sequence[Row], value: str | Callable[[Row], float], digits: int, times: float = 1) -> str:
    """Mean ± standard deviation of what stands under a name, or follows from a row."""
    found = [row[value] if isinstance(value, str) else value(row) for row in rows]
    return told([times * number for number in found], digits)


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
        own = rows[name]
        fewer = "" if len(own) == most else f" ({len(own)} of {most} seeds)"
        line = [CLASSIFIERS[name] + fewer, over_seeds(own, lambda row: 1 - row["accuracy"], 2, 100)]
        line += [over_seeds(own, "ece", 4), over_seeds(own, "log_likelihood", 3)]
        line += (
            [_auroc(own, by) for by in ("mutual_information", "entropy")]
            if outside
            else PAPER_TABLE.get(name, (NOTHING, NOTHING))
        )
        lines.append(line)
    return table(head, lines)


def _auroc(rows: Sequence[Row], by: str) -> str:
    """A network alone has no mutual information: its members never differ."""
    if by not in rows[0]["outside"] or (by == "mutual_information" and rows[0]["members"] == 1):
        return NOTHING
    return over_seeds(rows, lambda row: row["outside"][by]["auroc"], 3)


def pairs(part: Part) -> str:
    """How much members differ from each other."""
    lines = []
    for name, rows in of_kind(part, "table").items():
        if name.endswith(", pairs"):
            label = CLASSIFIERS[name.removesuffix(", pairs")]
            disagreement = over_seeds(rows, "disagreement", 4)
            lines.append([label, disagreement, over_seeds(rows, "kl", 4)])
    return table(["members of", "disagreement", "KL, nats"], lines) if lines else ""


def batch_means(part: Part) -> str:
    """Section 3: var(batch mean) / var(feature)."""
    lines = []
    for name, rows in of_kind(part, "batch means").items():
        for per, label in DRAWN.items():
            own = [row for row in rows if row["per"] == per]
            shares = [over_seeds(own, key, 4) for key in ("total", "architectures", "own")]
            lines.append([TRAINED[name], label, *shares])
        each = {per: {row["seed"]: row["total"] for row in rows if row["per"] == per} for per in DRAWN}
        ratios = [each["batch"][seed] / each["instance"][seed] for seed in each["batch"]]
        lines.append([TRAINED[name], "ratio of the two", told(ratios, 1), "", ""])
    head = [
        "weights of",
        "architectures drawn",
        "var(mean) / var(feature)",
        "due to architectures",
        "of single examples",
    ]
    return table(head, lines) if lines else ""


def statistics(part: Part) -> str:
    """Section 3: architectures by both kinds of statistics."""
    lines = []
    for name, rows in of_kind(part, "statistics").items():
        intervals = [_figure(row["spearman"]) for row in rows]
        batch = over_seeds(rows, lambda row: float(np.mean(row["batch"])), 2, 100)
        running = over_seeds(rows, lambda row: float(np.mean(row["running"])), 2, 100)
        known = [row for row in rows if row["spearman"]["value"] is not None]
        spearman = over_seeds(known, lambda row: row["spearman"]["value"], 3) if known else NOTHING
        lines.append([TRAINED[name], spearman, ", ".join(intervals), PAPER_SPEARMAN[name], batch, running])
    head = ["weights of", "Spearman", "each seed, 95 % interval", "paper", "accuracy, batch statistics", "running ones"]
    return table(head, lines) if lines else ""


def _figure(found: dict[str, Any]) -> str:
    if found["low"] is None:
        return NOTHING
    value, low, high = (told([found[key]], 2) for key in ("value", "low", "high"))
    return f"{value} ({low} to {high})"


def seen(part: Part) -> str:
    """Table 1."""
    lines = []
    for name, rows in of_kind(part, "seen").items():
        accuracies = [over_seeds(rows, key, 2, 100) for key in ("seen", "unseen")]
        auc = over_seeds(rows, lambda row: row["auc"]["value"], 2)
        lines.append([f"NSA-i, S = {name.rsplit('-', 1)[1]}", auc, *accuracies, *PAPER_SEEN[name]])
    head = ["", "AUC", "seen, %", "unseen, %", "AUC, paper (CIFAR-10)", "seen, paper", "unseen, paper"]
    return table(head, lines) if lines else ""


def attacks(part: Part) -> str:
    """Table 3."""
    lines = []
    for name, rows in of_kind(part, "attacks").items():
        for attack in dict.fromkeys(row["attack"] for row in rows):
            own = [row for row in rows if row["attack"] == attack]
            found = [over_seeds(own, key, 3) for key in ("accuracy", "auroc")]
            lines.append([CLASSIFIERS[name], f"PGD {attack}", *found, *PAPER_ATTACKS[name, attack]])
    head = ["", "attack", "accuracy", "AUROC", "accuracy, paper", "AUROC, paper"]
    return table(head, lines) if lines else ""


def few_labels(part: Part) -> str:
    """Section 5.3."""
    lines = []
    for name, rows in of_kind(part, "few labels").items():
        label, paper = LABELS[name]
        accuracy, others = over_seeds(rows, "accuracy", 2, 100), [("log_likelihood", 3), ("ece", 4)]
        lines.append([label, accuracy, *(over_seeds(rows, *other) for other in others), paper])
    head = ["", "accuracy, %", "log-likelihood", "ECE", "accuracy, paper (CIFAR-10)"]
    return table(head, lines) if lines else ""


def ensembles(part: Part) -> str:
    """Fig. 4."""
    lines = []
    for name, rows in of_kind(part, "ensembles").items():
        gains = [told([row["accuracy"][k] - row["one"] for row in rows], 4) for k in (2, 4, -1)]
        one = over_seeds(rows, "one", 4)
        lines.append([MIXED[name], one, *gains, over_seeds(rows, "disagreement", 4)])
    head = ["", "one, mean", "T = 5 gains", "T = 20", f"T = {MANY}", "disagreement"]
    return table(head, lines) if lines else ""


SECTIONS: tuple[tuple[str, Callable[[Part], str]], ...] = (
    ("Errors and calibration (Table 2)", classifiers),
    ("How much members differ", pairs),
    ("Batch means (section 3)", batch_means),
    ("Both kinds of statistics (section 3)", statistics),
    ("Seen and unseen architectures (Table 1)", seen),
    ("More and more members (Fig. 4)", ensembles),
    ("Under attack (Table 3)", attacks),
    ("Few labels (section 5.3)", few_labels),
)
TITLES = {
    "fashion": "Fashion-MNIST, small",
    "cifar": "CIFAR-10, width 4",
    "fashion-long": "Fashion-MNIST, small, 40 epochs",
}


def show(folder: Path) -> None:
    """Prints all tables that there are rows for."""
    for name in SETUPS:
        part = read(folder, name)
        if part is None:
            continue
        print(f"### {TITLES[name]}\n")
        for title, make in SECTIONS:
            found = make(part)
            if found:
                print(f"**{title}**\n\n{found}\n")
        print(f"{part.source}\n")


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
        left.plot(epochs, own.mean(0), color=colour)
        left.fill_between(epochs, own.min(0), own.max(0), color=colour, alpha=0.18, linewidth=0)
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


def draw(folder: Path) -> None:
    """All figures that there are rows for."""
    part = read(folder, "fashion")
    if part is None:
        return
    with style():
        curves(part).savefig(folder / "curves.png", dpi=DOTS, facecolor=CARD, metadata={"Software": None})
    print(folder / "curves.png")
