"""Does a raised rate of belief make seeds agree, or find better cells? Asked of finished searches in nasbench201.

    python -m reproduce.belief_rates runs/published runs/scaled    # docs/methods.md has the searches

Few cells that a search selects are among the 768 of the table that the library comes with, so that their worth is
estimated from it: a ridge regression on the operations of edges and of pairs of edges, beside what the regression is
worth on cells that it has not seen.
"""

from __future__ import annotations

import itertools
import json
from argparse import ArgumentParser, Namespace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import cross_val_predict

from polyarch.runs.agreement import agreement_of
from polyarch.runs.run import open_repeats
from polyarch.spaces import NasBench201
from polyarch.tables.finding import open_table

COLUMN = "valid_accuracy"
SPACE = NasBench201(channels=8, cells=1)


def features(choices: NDArray[np.int64]) -> NDArray[np.float64]:
    """Which operation every edge has, and every pair of edges: [cells, features]."""
    single = np.eye(5)[choices]
    pairs = [
        np.einsum("na,nb->nab", single[:, i], single[:, j]).reshape(len(choices), -1)
        for i, j in itertools.combinations(range(choices.shape[1]), 2)
    ]
    return np.concatenate([single.reshape(len(choices), -1), *pairs], 1)


def fitted() -> tuple[RidgeCV, dict[str, float]]:
    """The regression on the whole table, and what it is worth on held-out tenths of it."""
    table = open_table("nasbench201-fashion14")
    cells = [SPACE.parse(text) for text in table.architectures]
    known = features(np.array([cell.choices for cell in cells]))
    true = np.array([table.value(COLUMN, SPACE, cell) for cell in cells])
    model = RidgeCV(np.logspace(-2, 4, 13))
    held_out = cross_val_predict(model, known, true, cv=10)
    worth = {
        "correlation": float(np.corrcoef(held_out, true)[0, 1]),
        "error": float(np.sqrt(np.mean((held_out - true) ** 2))),
        "mean": float(true.mean()),
        "std": float(true.std(ddof=1)),
    }
    return model.fit(known, true), worth


def row(folder: Path, model: RidgeCV) -> dict[str, Any]:
    """What one search of several seeds came to."""
    runs = open_repeats(folder)
    agreement = agreement_of(runs)
    assert agreement is not None, "give searches of several seeds"
    results = [run.result for run in runs]
    worth = model.predict(features(np.array([run.architecture.choices for run in runs]))).tolist()
    accuracy = [result["metrics"]["test"]["accuracy"] for result in results]
    return {
        "run": folder.name,
        "kl": fmean(result["distribution"]["kl"] for result in results),
        "largest": max(max(p) for result in results for p in result["distribution"]["probs"].values()),
        "distinct": agreement.distinct,
        "same": agreement.same,
        "chance": agreement.chance,
        "in_common": None if agreement.apart is None else 1 - agreement.apart,
        "accuracy": [fmean(accuracy), stdev(accuracy)],
        "worth": [fmean(worth), stdev(worth)],
    }


def main(given: Namespace) -> None:
    """One line of JSON for the regression, and one for every search."""
    model, worth = fitted()
    print(json.dumps({"table": worth}))
    for folder in given.runs:
        print(json.dumps(row(folder, model)))


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path)
    main(parser.parse_args())
