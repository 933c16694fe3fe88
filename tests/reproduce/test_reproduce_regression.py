"""Learnt noise on small tables: targets scaled without a look at held-out data, and a page that shows what was kept."""

import numpy as np
import pytest
from reproduce.regression import COLUMNS, ridge, scaled, tables
from reproduce.showing import RESULTS, mean_table, read
from sklearn.linear_model import RidgeCV


def test_targets_are_scaled_by_their_training_part():
    task = scaled(tables()["wine"], seed=3, noise="task")
    y = task.train.y.double()
    assert (y.mean().item(), y.std().item()) == (pytest.approx(0, abs=1e-6), pytest.approx(1, abs=1e-6))
    assert len(task.select) == len(task.test) == 36


def test_ridge_has_the_scale_of_held_out_residuals():
    task = scaled(tables()["diabetes"], seed=0, noise="task")
    model = RidgeCV(np.logspace(-3, 3, 25)).fit(task.preprocess(task.train.x), task.train.y)
    held_out, errors = (s.y.numpy() - model.predict(task.preprocess(s.x)) for s in (task.select, task.test))
    scale = np.sqrt((held_out**2).mean())
    found = ridge(task)
    assert found["rmse"] == pytest.approx(np.sqrt((errors**2).mean()), rel=1e-5)
    assert found["coverage_90"] == (np.abs(errors) <= 1.6448536 * scale).mean()


def test_the_docs_show_what_was_kept():
    table = mean_table(
        ["data", "predictor"], read(RESULTS / "regression", "rows").groups("data", "predictor"), COLUMNS, 2
    )
    assert table in (RESULTS.parent / "uncertainty.md").read_text()
