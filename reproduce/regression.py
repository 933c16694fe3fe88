"""Noise that is fixed, learnt for the task or learnt for every input, on two small tables, beside ridge regression.

    python -m reproduce.regression --quick            # a minute: one seed
    python -m reproduce.regression --full             # five minutes on one CPU thread: six seeds
    python -m reproduce.regression --table            # what was found, as Markdown

Every seed has a split of its own, and targets are scaled by mean and deviation of its training part. Ridge regression
has the penalty of the least leave-one-out error on training data; the scale of its noise is that of residuals on
validation data, as a search has it. Test data is looked at once, at the end.

Writes docs/results/regression/rows.json (rows, the command, seeds, machine).
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_diabetes, load_wine
from sklearn.linear_model import RidgeCV
from torch import Tensor

import polyarch as pa
from polyarch.data import Task
from polyarch.data.likelihood import Gaussian
from polyarch.training.optimisers import Sgd
from polyarch.uncertainty import Gaussians, regression_summary
from polyarch.uncertainty.gaussians import fitted
from reproduce.showing import Columns, Row, keep, mean_table, read, sized_parser

NOISES = ("fixed", "task", "input")
SPACE = pa.spaces.ResidualDepth(max_depth=6, width=20)
METHOD = pa.methods.VariationalDepth(epochs=100, batch_size=32, weights=Sgd(lr=0.01, momentum=0.5))
COLUMNS: Columns = {
    "RMSE": ("rmse", 3), "log-likelihood": ("log_likelihood", 3), "CRPS": ("crps", 3),
    "within 50 %": ("coverage_50", 1, 100), "within 90 %": ("coverage_90", 1, 100), "width of 90 %": ("width_90", 2),
}  # fmt: skip


def tables() -> dict[str, tuple[Any, Any]]:
    """Progress of diabetes (442 patients), and the alcohol of a wine (178) from all else that was measured of it."""
    wine = load_wine().data
    return {"diabetes": load_diabetes(return_X_y=True), "wine": (wine[:, 1:], wine[:, 0])}


def scaled(data: tuple[Any, Any], seed: int, noise: str) -> Task:
    """A split by seed; targets have mean 0 and deviation 1 in its training part."""
    x, y = data
    splits = {"kind": "regression", "split_seed": seed, "select": 0.2}
    train = pa.data.load((x, y), **splits).train.y.double()
    return pa.data.load((x, (y - train.mean().item()) / train.std().item()), noise=noise, **splits)


def ridge(task: Task) -> dict[str, float]:
    """What ridge regression with one scale of noise is worth on test data."""
    assert task.select is not None
    assert task.test is not None
    model = RidgeCV(np.logspace(-3, 3, 25)).fit(task.preprocess(task.train.x).numpy(), task.train.y.numpy())

    def output(x: Tensor) -> Tensor:
        return torch.from_numpy(model.predict(task.preprocess(x).numpy())).reshape(1, -1, 1)

    one = torch.ones(1)
    likelihood = fitted(output(task.select.x), one, task.select.y, Gaussian(1.0, "task"))
    return regression_summary(Gaussians.of(output(task.test.x), one, likelihood), task.test.y)


def searched(task: Task, seed: int) -> dict[str, float]:
    """What the mixture over depths is worth on test data."""
    with tempfile.TemporaryDirectory() as folder:
        run = pa.search(SPACE, task, METHOD, out=Path(folder) / "run", seed=seed, compute=pa.Compute("cpu"))
        assert isinstance(run, pa.Run)
        found: dict[str, float] = run.result["metrics"]["test_ensemble"]
    return found


def measurements(seeds: int) -> Iterator[Row]:
    """One row per table, predictor and seed."""
    for name, data in tables().items():
        for seed in range(seeds):
            yield {"data": name, "predictor": "ridge", "seed": seed, **ridge(scaled(data, seed, "task"))}
            for noise in NOISES:
                found = searched(scaled(data, seed, noise), seed)
                yield {"data": name, "predictor": f"noise={noise}", "seed": seed, **found}


def said(row: Row) -> str:
    """A row in short."""
    return f"{row['data']}, {row['predictor']}, seed {row['seed']}: log-likelihood {row['log_likelihood']:.3f}"


def main() -> None:
    """Measures and prints row by row, or prints what there is."""
    given = sized_parser(__doc__, "regression", "table", seeds=(1, 6)).parse_args()
    if not given.table:
        keep(given.out / "rows.json", measurements(given.seeds), say=said)
    elif part := read(given.out, "rows"):
        print(mean_table(["data", "predictor"], part.groups("data", "predictor"), COLUMNS, left=2))
    else:
        print("(not run)")


if __name__ == "__main__":
    main()
