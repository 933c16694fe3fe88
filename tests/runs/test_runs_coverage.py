"""Whether prediction sets hold what they promise, through whole searches: early stopping, selection, temperature."""

from math import sqrt

import numpy as np
import pytest

import polyarch as pa
from polyarch.methods import VariationalDepth
from polyarch.runs.guarantees import predicted_classes
from polyarch.uncertainty.conformal import class_scores, class_sets, conformal_quantile

RUNS, EXAMPLES, TEST, COVERAGE = 300, 59, 200, 0.9  # (59 + 1) * 0.9 is whole, so that the promise is kept exactly
SPREAD = sqrt(COVERAGE * (1 - COVERAGE) * (1 / (EXAMPLES + 2) + 1 / TEST) / RUNS)
"""Of the mean: coverage given the calibration examples has a beta distribution (Vovk 2012); test data is a sample."""


def noisy(seed):
    """Two classes by the sign of one of five numbers, of which three labels in ten are wrong."""
    random, n = np.random.default_rng(seed), 60 + 2 * EXAMPLES + TEST
    x = random.normal(size=(n, 5)).astype(np.float32)
    y = ((x[:, 0] > 0) ^ (random.random(n) < 0.3)).astype(int)
    return pa.data.load((x, y), select=EXAMPLES, calibrate=EXAMPLES, test=TEST, split_seed=seed)


def held(sets, target):
    return sets.gather(1, target[:, None]).double().mean().item()


@pytest.mark.slow
def test_sets_hold_the_truth_as_often_as_they_promise(tmp_path):
    """Calibrated on examples of their own they do; on those that stopped the search and selected, they do not."""
    method = VariationalDepth(epochs=20, batch_size=20, weights={"lr": 0.3, "momentum": 0.9})
    kept, broken = [], []
    for seed in range(RUNS):
        task, space = noisy(seed), pa.spaces.ResidualDepth(max_depth=3, width=16)
        run = pa.search(space, task, method, out=tmp_path / str(seed), seed=seed, compute=pa.Compute("cpu"))
        run = pa.Run(run.folder, task)
        kept.append(held(run.prediction_sets(task.test.x, COVERAGE), task.test.y))

        ensemble = run.ensemble()
        scores = class_scores(predicted_classes(run, ensemble, task.select.x).log_probs, task.select.y)
        said = predicted_classes(run, ensemble, task.test.x).log_probs
        broken.append(held(class_sets(said, conformal_quantile(scores, COVERAGE)), task.test.y))
    assert np.mean(kept) == pytest.approx(COVERAGE, abs=3 * SPREAD)
    assert np.mean(broken) < COVERAGE - 3 * SPREAD
