"""Supernets of our own benchmark: who ranks its cells best after a little fine-tuning (SoTL thesis, section 4.2).

Reads what `reproduce.own_supernets tune` left (one file per supernet, seed, rate and batch, all of the same cells) and
compares every estimator with the truth that the library comes with: accuracies of the same cells trained from scratch.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np
import torch

from polyarch.architecture import Architecture
from polyarch.data.task import TaskShape
from polyarch.ranking.statistics import Estimate, Numbers, kendall, mean_of_best, spearman, standing, standing_of_chance
from polyarch.scores import Score, Sog, Sogn, Sotl, TrainLoss, ValidAccuracy, ValidLoss
from polyarch.tables.truth import find_truth
from reproduce import one_shot_supernets_shown as shown
from reproduce.one_shot_table import parameters, rounded
from reproduce.own_supernets import LOOKED, METHODS, MINIBATCH
from reproduce.own_truth import SPACE
from reproduce.showing import Row

ABOUT = (
    "Tables 4.1, 4.4, 4.5, Figs. 4.6 to 4.8: estimators after fine-tuning from five supernets, against cells of "
    "NAS-Bench-201 (C = 8, N = 1) that were trained from scratch on Fashion-MNIST at 14 x 14."
)
SECTIONS, DRAWINGS = shown.SECTIONS, shown.DRAWINGS
Arrays = Mapping[str, Numbers]
STEPS = (1, 2, 3, 5, 10, 20, 30, 50, 75, 100, 125, 150, 175, 200, 250, 300)
"""Steps after which estimators that need no look at validation data are judged."""
SEEDS = "test_accuracy_seeds"
SMOOTHED = 10
"""Steps whose mean is a point of a loss over steps."""
LOOKS: dict[str, tuple[type[Score], int, str]] = {
    "valid-accuracy": (ValidAccuracy, 0, "recalibrated"),
    "valid-loss": (ValidLoss, 0, "recalibrated"),
    "valid-accuracy-mini": (ValidAccuracy, MINIBATCH, "recalibrated"),
    "valid-accuracy-shared": (ValidAccuracy, 0, "shared"),
}
"""Estimators that look at validation data: the score, on how many examples, and whose batch-norm statistics."""


@dataclass(frozen=True)
class Known:
    """What is known of the ranked cells."""

    truth: Numbers
    """Mean test accuracy over seeds [cells], in per cent."""
    seeds: Numbers
    """The same of every seed [cells, seeds]."""
    parameters: Numbers
    """[cells]."""


def options(parser: argparse.ArgumentParser) -> None:
    """Where the raw numbers are."""
    parser.add_argument("--raw", type=Path, default=Path("runs/own-supernets"), help="folder of own_supernets")


def rows(arguments: argparse.Namespace) -> Iterator[Row]:
    """The truth and what costs nothing; then all there is of every supernet."""
    passes = passes_in(arguments.raw)
    known = known_of(cells_of([path for _, path in passes]))
    yield {"kind": "truth", **about_truth(known)}
    yield from baselines(known)
    for labels, path in passes:
        with np.load(path) as file:
            arrays = {name: file[name].astype(np.float64) for name in file.files if name != "cells"}
        yield from judged(labels, arrays, known)
        yield {"kind": "gap", **labels, **losses_of_groups(arrays["losses"], known.truth)}
        if looked(arrays, "valid-accuracy"):
            yield {"kind": "accuracy", **labels, **accuracies(arrays)}


def passes_in(folder: Path) -> list[tuple[Row, Path]]:
    """What was fine-tuned, and its file; by supernet, seed, rate and batch."""
    found = []
    for method in METHODS:
        for path in folder.glob(f"{method}-[0-9]*-*-*.npz"):
            seed, rate, batch = path.stem.rsplit("-", 3)[1:]
            found.append(((method, int(seed), float(rate), int(batch)), path))
    if not found:
        raise SystemExit(f"{folder}: no METHOD-SEED-RATE-BATCH.npz; make some with `python -m reproduce.own_supernets`")
    found.sort(key=lambda one: (METHODS.index(one[0][0]), *one[0][1:]))
    return [(dict(zip(("method", "seed", "rate", "batch"), labels, strict=True)), path) for labels, path in found]


def cells_of(paths: list[Path]) -> list[Architecture]:
    """The cells of all files; refuses files of different cells, which no baseline would fit."""
    first: list[str] = []
    for path in paths:
        with np.load(path) as file:
            texts = file["cells"].tolist()
        first = first or texts
        if texts != first:
            raise SystemExit(f"{path} has other cells than {paths[0]}; fine-tune the same cells from all supernets")
    return [SPACE.parse(text) for text in first]


def known_of(cells: list[Architecture]) -> Known:
    """From the table that the library comes with."""
    truth = find_truth(SPACE)
    choices = torch.tensor([cell.choices for cell in cells])
    seeds = [column.name for column in truth.table.columns.values() if column.array == SEEDS]
    return Known(
        truth.values(cells),
        np.stack([truth.table.values(name, SPACE, choices).numpy() for name in seeds], 1),
        parameters(SPACE, SPACE.cost_table(TaskShape((1, 14, 14), 10)), choices),
    )


# ---------------------------------------------------------------------------------------------------------------------
# The truth, and what costs nothing.


def about_truth(known: Known) -> Row:
    """How the true accuracies are spread, and how far they are to be trusted."""
    return {
        "cells": len(known.truth), "seeds": known.seeds.shape[1],
        "mean": rounded(known.truth.mean()), "sd": rounded(known.truth.std(ddof=1)),
        "range": [rounded(known.truth.min()), rounded(known.truth.max())],
        **trust(known.seeds),
    }  # fmt: skip


def trust(seeds: Numbers) -> Row:
    """How well seeds [cells, k] agree on the order of cells, and what follows for their mean; None of one seed.

    Spearman-Brown: where two seeds correlate by r, the mean of k correlates by k r / (1 + (k - 1) r) with the mean of k
    others. What a cell is worth on average over all seeds correlates with the mean of k by the root of that: the
    ceiling, which a perfect judge reaches and only luck passes.
    """
    count = seeds.shape[1]
    if count == 1:
        return {"noise": None, "agreement": None, "reliability": None, "ceiling": None}
    agreement = float(np.mean([spearman(*pair) for pair in combinations(seeds.T, 2)]))
    reliability = count * agreement / (1 + (count - 1) * agreement)
    return {
        "noise": rounded(math.sqrt(float(seeds.var(1, ddof=1).mean()))),
        "agreement": rounded(agreement),
        "reliability": rounded(reliability),
        "ceiling": rounded(math.sqrt(max(reliability, 0.0))),
    }


def baselines(known: Known) -> Iterator[Row]:
    """Parameter count, chance and the truth itself, as judges of the same cells."""
    facts = (known.truth, known.parameters)
    for judge, found in (
        ("parameters", standing(known.parameters, *facts)),
        ("random", standing_of_chance(*facts)),
        ("best", standing(known.truth, *facts)),
    ):
        measures = {name: getattr(found, name) for name in shown.DIGITS}
        yield {"kind": "baseline", "judge": judge, **{name: _ends(figure) for name, figure in measures.items()}}
    for half, cells in halves(known.truth).items():
        size = spearman(known.parameters[cells], known.truth[cells])
        yield {"kind": "half", "half": half, "parameters": rounded(size), **trust(known.seeds[cells])}


def _ends(figure: Estimate) -> list[float | None]:
    return [rounded(value) for value in (figure.value, figure.low, figure.high)]


# ---------------------------------------------------------------------------------------------------------------------
# One supernet's cells, fine-tuned by one recipe.


def judged(labels: Row, arrays: Arrays, known: Known) -> Iterator[Row]:
    """How well every estimator ranks the cells, step by step."""
    parts = halves(known.truth)
    for estimator, steps, scores in estimates(arrays):
        # What went astray has no finite loss; it comes last.
        columns = np.where(np.isnan(scores), -np.inf, scores).T
        found = {
            "spearman": [spearman(column, known.truth) for column in columns],
            "kendall": [kendall(column, known.truth) for column in columns],
            "top10": [mean_of_best(column, known.truth) for column in columns],
            "with_parameters": [spearman(column, known.parameters) for column in columns],
            **{half: [spearman(column[own], known.truth[own]) for column in columns] for half, own in parts.items()},
        }
        numbers = {name: [rounded(value) for value in values] for name, values in found.items()}
        yield {"kind": "estimator", **labels, "estimator": estimator, "steps": steps, **numbers}


def halves(truth: Numbers) -> dict[str, Numbers]:
    """Places of the truly worse and of the truly better half of the cells."""
    order = truth.argsort()
    return {"worse_half": order[: len(order) // 2], "better_half": order[len(order) // 2 :]}


def estimates(arrays: Arrays) -> Iterator[tuple[str, list[int], Numbers]]:
    """Estimators, steps, and what they say [cells, steps]: more is better."""
    steps = [step for step in STEPS if step <= arrays["losses"].shape[1]]
    curves: tuple[tuple[type[Score], Numbers], ...] = (
        (Sotl, arrays["losses"].cumsum(1)),
        (TrainLoss, arrays["losses"]),
        (Sog, arrays["gradient_sums"]),
        (Sogn, arrays["gradient_norms"].cumsum(1)),
    )
    for score, values in curves:
        yield score.name, steps, _merit(score, values[:, [step - 1 for step in steps]])
    for estimator, (score, _, _) in LOOKS.items():
        if seen := looked(arrays, estimator):
            yield estimator, list(seen), _merit(score, np.stack(list(seen.values()), 1))


def _merit(score: type[Score], values: Numbers) -> Numbers:
    return values if score.larger_is_better else -values


def looked(arrays: Arrays, estimator: str, what: str = "") -> dict[int, Numbers]:
    """What an estimator's looks saw of the cells [cells], by step; or another array of the same looks."""
    score, examples, statistics = LOOKS[estimator]
    names = {step: f"{what or score.name}-{step}-{examples}-{statistics}" for step in LOOKED}
    return {step: arrays[name] for step, name in names.items() if name in arrays}


def losses_of_groups(losses: Numbers, truth: Numbers) -> Row:
    """Mean loss of the truly best tenth of the cells, of the tenth around the median, and of all: [cells, steps]."""
    order, tenth = truth.argsort(), max(1, round(len(truth) / 10))
    middle = (len(truth) - tenth) // 2
    groups = {"best": order[-tenth:], "middle": order[middle : middle + tenth], "all": order}
    finite = np.isfinite(losses.sum(1))
    parts = np.array_split(np.arange(losses.shape[1]), max(1, losses.shape[1] // SMOOTHED))
    means = {name: losses[cells[finite[cells]]].mean(0) for name, cells in groups.items()}
    return {
        "steps": [int(part[-1]) + 1 for part in parts],
        **{name: [rounded(mean[part].mean()) for part in parts] for name, mean in means.items()},
    }


def accuracies(arrays: Arrays) -> Row:
    """Mean validation accuracy of all cells, in per cent, by step; and what a cell took, the middle one of all."""
    seen, [shared] = looked(arrays, "valid-accuracy"), looked(arrays, "valid-accuracy-shared").values()
    own = list(looked(arrays, "valid-accuracy", "seconds").values())
    return {
        "steps": list(seen),
        "accuracy": [rounded(100 * values.mean()) for values in seen.values()],
        "shared": rounded(100 * shared.mean()),
        "seconds_100_steps": rounded(np.median(arrays["step_seconds"]) * 100 / arrays["losses"].shape[1], 6),
        "seconds_look": rounded(np.median(own), 6),
        "seconds_look_shared": rounded(np.median(looked(arrays, "valid-accuracy-shared", "seconds")[0]), 6),
    }
