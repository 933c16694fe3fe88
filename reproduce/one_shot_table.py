"""What needs a table alone: parameter count, SynFlow at initialisation, and black-box search on NAS-Bench-201."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from polyarch.blackbox import BlackBox, Budget, History, LocalSearch, RandomSearch, RegularisedEvolution, TableEvaluator
from polyarch.data.task import TaskShape
from polyarch.plotting import BLUE, GREEN, INK, MUTED, ORANGE, WIDTH, label_ends
from polyarch.ranking.statistics import Numbers, spearman, standing
from polyarch.scores import Candidate, SynFlow
from polyarch.spaces import NasBench201
from polyarch.spaces.base import Space
from polyarch.spaces.cost import CostTable
from polyarch.tables import Table, open_table
from polyarch.testing.toy import every_choice
from reproduce.showing import Drawing, Part, Row, Section, as_table, band, canvas, mean_sd

ABOUT = (
    "NAS-Bench-201's table: Spearman of parameter count and SynFlow with 200-epoch test accuracy; searches that pay "
    "simulated seconds for 12-epoch validation accuracies."
)
DATA = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}
SHAPE = TaskShape((3, 32, 32), 10)
REWARD, TIME, SHARE = "cifar10_valid_acc_12", "cifar10_train_time_200_s", 12 / 200
"""Twelve epochs are rewarded, and twelve of the 200 recorded epochs are paid."""
METHODS: dict[str, BlackBox] = {
    "random search": RandomSearch(),
    "regularised evolution": RegularisedEvolution(population=10, sample=3),
    "local search": LocalSearch(),
    "local search, steepest": LocalSearch(move="best"),
}
PLACES = 100
"""Points of a trajectory."""


def options(parser: argparse.ArgumentParser) -> None:
    """How much is run."""
    parser.add_argument("--seeds", type=int, default=100, help="of every search")
    parser.add_argument("--budget", type=float, default=20_000, help="of a search, in simulated seconds")
    parser.add_argument("--synflow", type=int, default=1000, metavar="N", help="random cells to score by SynFlow")


def rows(arguments: argparse.Namespace) -> Iterator[Row]:
    """Ranking by cheap scores, then searches."""
    space, table = NasBench201(), open_table(arguments.table)
    every = every_choice(space)
    counts = parameters(space, space.cost_table(SHAPE), every)
    yield from ranked("parameters", every, counts, space, table)
    if arguments.synflow:
        yield from by_synflow(arguments.synflow, every, counts, space, table)
    largest = every[int(counts.argmax())][None]
    yield {"kind": "chosen", "choice": "the cell with the most parameters", **truths(largest, space, table)}
    evaluator = TableEvaluator(table, space, REWARD, TIME, SHARE)
    best = every[int(table.values(REWARD, space, every).argmax())][None]
    yield {"kind": "chosen", "choice": "the cell with the largest reward", **truths(best, space, table)}
    for name, method in METHODS.items():
        start = time.perf_counter()
        histories = [
            method.search(space, evaluator, Budget(arguments.budget, "seconds"), torch.Generator().manual_seed(seed))
            for seed in range(arguments.seeds)
        ]
        took = round(time.perf_counter() - start, 2)
        about = {"kind": "search", "method": name, "budget": arguments.budget, "seconds": took}
        yield about | outcome(histories, arguments.budget, space, table)


def parameters(space: Space, costs: CostTable, choices: Tensor) -> Numbers:
    """Parameters of the networks to train, [n], of choices [n, decisions]: what all networks have, and every option."""
    own = [torch.tensor([cost.parameters for cost in costs.options[d.name]]) for d in space.decisions]
    added = [counts[chosen] for counts, chosen in zip(own, choices.T, strict=True)]
    return (costs.base.parameters + torch.stack(added).sum(0)).double().numpy()


def correlation(said: Numbers, truth: Numbers, *, whole: bool = False) -> Row:
    """Spearman's correlation of arrays [n] and a bootstrap interval over cells; none where they are all there are."""
    if whole:
        return {"spearman": rounded(spearman(said, truth)), "interval": None}
    found = standing(said, truth, said, resamples=2000).spearman
    return {"spearman": rounded(found.value), "interval": [rounded(found.low), rounded(found.high)]}


def rounded(value: float | np.floating | None, digits: int = 4) -> float | None:
    """A plain number, to be kept in a row."""
    return None if value is None else round(float(value), digits)


def ranked(score: str, choices: Tensor, said: Numbers, space: NasBench201, table: Table) -> Iterator[Row]:
    """How well a score [n] ranks cells by final test accuracy."""
    for data in DATA:
        truth = table.values(f"{data}_test_acc_200", space, choices).numpy()
        found = correlation(said, truth, whole=len(said) == space.count())
        yield {"kind": "ranking", "score": score, "data": data, "cells": len(said), **found}


def by_synflow(count: int, every: Tensor, counts: Numbers, space: NasBench201, table: Table) -> Iterator[Row]:
    """SynFlow at one initialisation, on random cells, and parameter count and chance on the same."""
    generator = torch.Generator().manual_seed(0)
    places = torch.randperm(len(every), generator=generator)[:count]
    choices = every[places]
    start = time.perf_counter()
    said = SynFlow()([Candidate(cell, space, SHAPE) for cell in space.decode(choices)], generator).numpy()
    took = (time.perf_counter() - start) / count
    for row in ranked("synflow", choices, said, space, table):
        yield {**row, "seconds_a_cell": round(took, 3)}
    yield from ranked("parameters", choices, counts[places.numpy()], space, table)
    yield from ranked("random", choices, np.random.default_rng(0).random(count), space, table)


def truths(choices: Tensor, space: NasBench201, table: Table) -> dict[str, list[float]]:
    """Final test accuracies of cells, by data set."""
    found = {data: table.values(f"{data}_test_acc_200", space, choices).tolist() for data in DATA}
    return {data: [round(value, 2) for value in values] for data, values in found.items()}


def outcome(histories: list[History], budget: float, space: NasBench201, table: Table) -> Row:
    """What the best cell by reward is truly worth, at the end and on the way; one search per seed."""
    last = torch.tensor([history.best.choices for history in histories])
    places = np.linspace(0, budget, PLACES + 1)[1:]
    paths = np.stack([along(history, places, space, table) for history in histories])
    started = np.isfinite(paths).all(0)  # before its first evaluation a search has no incumbent
    paths = paths[:, started]
    return {
        "evaluations": np.mean([len(history) for history in histories]).item(),
        "distinct": np.mean([len({each.choices for each in h.evaluations}) for h in histories]).item(),
        **truths(last, space, table),
        "path": {
            "seconds": places[started].round(1).tolist(),
            "mean": paths.mean(0).round(3).tolist(),
            "low": np.quantile(paths, 0.1, axis=0).round(3).tolist(),
            "high": np.quantile(paths, 0.9, axis=0).round(3).tolist(),
        },
    }


def along(history: History, seconds: Numbers, space: NasBench201, table: Table) -> Numbers:
    """Final CIFAR-10 test accuracy of the incumbent when so much was paid; nan where nothing is known yet."""
    truth = table.values("cifar10_test_acc_200", space, history.choices())[history.incumbents()].numpy()
    done = np.searchsorted(history.paid("seconds").numpy(), seconds, side="right")
    return np.where(done > 0, truth[done - 1], np.nan)


# ---------------------------------------------------------------------------------------------------------------------
# What was found.


def ranking_table(part: Part) -> str:
    """Scores, cells and correlations."""
    lines = []
    for row in part.having(kind="ranking"):
        bounds = " to ".join(mean_sd([end], 3) for end in row["interval"] or ()) or "all cells"
        lines.append([row["score"], DATA[row["data"]], f"{row['cells']:,}", mean_sd([row["spearman"]], 3), bounds])
    return as_table(["score", "data", "cells", "Spearman", "95 % interval"], lines)


def search_table(part: Part) -> str:
    """How good the chosen cells are."""
    lines = []
    for row in part.having(kind="search"):
        one = np.array(row["cifar10"])
        best = f"{100 * np.mean(one >= one_best(part) - 0.005):.0f} %"
        counts = (f"{row['evaluations']:.0f}", f"{row['distinct']:.0f}", f"{row['seconds']:.1f}")
        lines.append([row["method"], *(mean_sd(row[data], 2) for data in DATA), f"{np.median(one):.2f}", best, *counts])
    chosen = part.having(kind="chosen")
    lines += [[row["choice"], *(mean_sd(row[data], 2) for data in DATA), *[""] * 5] for row in chosen]
    head = ["CIFAR-10 test", "CIFAR-100 test of the same", "median", "finds the best", "evaluations", "distinct", "s"]
    return as_table(["chosen by", *head], lines)


def one_best(part: Part) -> float:
    """Test accuracy of the cell with the largest reward of all, which is also the best of the table."""
    [row] = part.having(kind="chosen", choice="the cell with the largest reward")
    value: float = row["cifar10"][0]
    return value


def figure(part: Part) -> Figure:
    """The incumbent's test accuracy against what was paid."""
    drawn, [[axes]] = canvas(WIDTH * 0.75, 3.1, room=(0.075, 0.15, 0.75, 0.91))
    ends = []
    for row, colour in zip(part.having(kind="search"), (MUTED, BLUE, ORANGE, GREEN), strict=True):
        seconds, mean, low, high = (row["path"][name] for name in ("seconds", "mean", "low", "high"))
        band(axes, seconds, mean, low, high, colour, 0.15 if colour in (MUTED, ORANGE) else 0)
        ends.append((mean[-1], row["method"], colour))
    axes.axhline(one_best(part), color=INK, linewidth=0.7, linestyle=(0, (1, 2)))
    axes.set(xlim=(0, row["budget"]), ylim=(91, 94.6), xlabel="simulated seconds; bands: 10 to 90 % of seeds")
    axes.set_title("CIFAR-10 test accuracy of the incumbent, %, mean over seeds; dotted: the best cell")
    label_ends(axes, ends)
    return drawn


SECTIONS = (
    Section(
        "Ranking without training", ("table",), ranking_table,
        "Truth: 200-epoch test accuracy, mean of seeds. SynFlow at one initialisation, C = 16, N = 5, an input of "
        "3 x 32 x 32, ten outputs, no batch norm; parameters and random numbers on the same cells beside it. "
        "Intervals are of the bootstrap over cells.",
    ),
    Section(
        "Black-box search", ("table",), search_table,
        "Reward: CIFAR-10 validation accuracy after 12 epochs; cost: recorded time of 200 epochs times 12/200; "
        "every evaluation is paid. Mean ± standard deviation over seeds of the final test accuracy of the cell "
        "with the largest reward; s: what all seeds together took here.",
    ),
)  # fmt: skip
DRAWINGS = {"searches": Drawing(figure, ("table",))}
