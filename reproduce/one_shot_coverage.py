"""How often 95 % intervals hold what they are for: samples of NAS-Bench-201, of which all cells are known.

A sample of different cells is drawn at random, scored, and given intervals as `polyarch rank` gives them; and again and
again. An interval of a correlation is for the correlation over all cells. The mean truth of a score's ten best, and
its regret, have no interval in the library. The bootstrap's is measured here, against what it could best be for: their
mean over samples of that size.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np

from polyarch.diagnostics.resampling import resampled
from polyarch.ranking.statistics import Estimate, Numbers, kendall, mean_of_best, spearman, standing, to_tenths
from polyarch.tables import Table, open_table
from reproduce.one_shot_table import rounded
from reproduce.showing import Drawing, Part, Row, Section, as_table

ABOUT = "NAS-Bench-201's table: how often 95 % intervals of a sample of cells hold what is true of all cells."
TRUTH, VALID, PARAMETERS = "cifar10_test_acc_200", "cifar10_valid_acc_12", "cifar10_params_analytic_M"
CORRELATIONS = {
    "spearman": "Spearman",
    "kendall": "Kendall",
    "sparse_kendall": "sparse Kendall",
    "with_parameters": "with parameters",
}
BEST = {"top10": "top 10, were there one", "regret": "regret, were there one"}


def options(parser: argparse.ArgumentParser) -> None:
    """How much is drawn."""
    parser.add_argument("--sizes", type=int, nargs="+", default=[20, 100, 200], help="cells of a sample")
    parser.add_argument("--samples", type=int, default=1000, help="of every size")
    parser.add_argument("--resamples", type=int, default=500, help="of the bootstrap")


def rows(arguments: argparse.Namespace) -> Iterator[Row]:
    """Every score at every size."""
    table, random = open_table(arguments.table), np.random.default_rng(0)
    truth, parameters = table.whole(TRUTH), table.whole(PARAMETERS)
    for score, said in scores(table, random).items():
        known = {
            "spearman": spearman(said, truth),
            "kendall": kendall(said, truth),
            "sparse_kendall": kendall(said, to_tenths(truth)),
            "with_parameters": spearman(said, parameters),
        }
        for cells in arguments.sizes:
            drawn = [random.permutation(len(truth))[:cells] for _ in range(arguments.samples)]
            found = [given(said[own], truth[own], parameters[own], arguments.resamples) for own in drawn]
            wanted = known | {name: float(np.mean([one[name].value for one in found])) for name in BEST}
            held = {name: rounded(np.mean([holds(one[name], wanted[name]) for one in found])) for name in wanted}
            labels = {"kind": "coverage", "score": score, "cells": cells, "samples": arguments.samples}
            yield {**labels, **held, "wanted": {name: rounded(number) for name, number in wanted.items()}}


def given(said: Numbers, truth: Numbers, parameters: Numbers, resamples: int) -> dict[str, Estimate]:
    """Numbers of one sample with intervals: the library's, and the bootstrap's for what has none there."""
    found = standing(said, truth, parameters, resamples=resamples)
    pairs = np.stack([said, truth], 1)
    return {
        **{name: getattr(found, name) for name in CORRELATIONS},
        "top10": resampled(top10, pairs, resamples=resamples),
        "regret": resampled(regret, pairs, resamples=resamples),
    }


def holds(found: Estimate, wanted: float) -> bool:
    """Whether an interval has a number inside."""
    low, high = found.interval or (np.nan, np.nan)
    return bool(low <= wanted <= high)


def scores(table: Table, random: np.random.Generator) -> dict[str, Numbers]:
    """What cells are ordered by, [cells] each: from the truth and a little luck to luck alone."""
    truth = table.whole(TRUTH)
    noise = random.normal(size=(3, len(truth)))
    return {
        "the truth ± 0.3 points": truth + 0.3 * noise[0],
        "validation accuracy, 12 epochs": table.whole(VALID),
        "parameters": table.whole(PARAMETERS),
        "the truth ± 5 points": truth + 5 * noise[1],
        "random": noise[2],
    }


def top10(pairs: Numbers) -> float:
    """Mean truth of the ten best, of scores and truths [cells, 2]."""
    return mean_of_best(pairs[:, 0], pairs[:, 1])


def regret(pairs: Numbers) -> float:
    """By how much the best by score falls short of the best."""
    return float(pairs[:, 1].max()) - mean_of_best(pairs[:, 0], pairs[:, 1], 1)


# ---------------------------------------------------------------------------------------------------------------------
# What was found.


def coverage_table(part: Part) -> str:
    """Shares of samples, by score and size."""
    shown = {**CORRELATIONS, **BEST}
    lines = [
        [row["score"], str(row["cells"]), str(row["samples"]), *(f"{row[name]:.3f}" for name in shown)]
        for row in part.having(kind="coverage")
    ]
    return as_table(["score", "cells", "samples", *shown.values()], lines)


SECTIONS = (
    Section(
        "What 95 % intervals cover", ("coverage",), coverage_table,
        "Share of random samples of so many cells whose interval holds what it is for: for a correlation, that over "
        "all 15,625 cells; for top 10 and regret, the mean over samples of this size. Truth: 200-epoch test accuracy "
        "on CIFAR-10. Two standard errors of 1,000 samples are 0.014. `rank` gives top 10 and regret no interval; "
        "these are of the bootstrap that it gives correlations.",
    ),
)  # fmt: skip
DRAWINGS: dict[str, Drawing] = {}
