"""The quantile by order statistics, sets by hand, and coverage as theory has it."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import beta, kstest, norm

from polyarch.errors import PolyarchError
from polyarch.uncertainty import (
    class_scores,
    class_sets,
    conformal_quantile,
    examples_for_coverage,
    intervals,
    number_scores,
)


@pytest.mark.parametrize("n", [19, 20, 99, 100, 137])
@pytest.mark.parametrize("coverage", [0.5, 0.7, 0.8, 0.9, 0.95])
def test_the_quantile_is_an_order_statistic(n, coverage):
    scores = np.random.default_rng(n).normal(size=n)
    rank = -(-(n + 1) * round(100 * coverage) // 100)  # in whole numbers
    found = conformal_quantile(torch.from_numpy(scores), coverage)
    assert found == np.sort(scores)[rank - 1] == np.partition(scores, rank - 1)[rank - 1]
    # numpy's own, at the level that is corrected for the new score: the smallest of those at least so large a share
    assert found == np.quantile(scores, rank / n, method="inverted_cdf")


@pytest.mark.parametrize(("coverage", "least"), [(0.5, 1), (0.8, 4), (0.9, 9), (0.95, 19), (0.99, 99), (0.999, 999)])
def test_how_many_examples_it_takes(coverage, least):
    assert examples_for_coverage(coverage) == least
    scores = torch.arange(float(least))
    assert conformal_quantile(scores, coverage) == least - 1  # the largest
    with pytest.raises(PolyarchError, match=f"n at least {least}"):
        conformal_quantile(scores[1:], coverage)


@pytest.mark.parametrize("coverage", [0.0, 1.0, -0.1, 90, math.nan])
def test_a_coverage_is_a_share(coverage):
    with pytest.raises(PolyarchError, match=r"coverage is .* between 0 and 1"):
        conformal_quantile(torch.rand(100), coverage)


def test_sets_of_classes_by_hand():
    probs = torch.tensor([[0.7, 0.2, 0.1], [0.5, 0.5, 0.0], [0.3, 0.3, 0.4], [0.98, 0.01, 0.01]], dtype=torch.float64)
    target = torch.tensor([0, 1, 2, 2])
    scores = class_scores(probs.log(), target)
    torch.testing.assert_close(scores, torch.tensor([0.3, 0.5, 0.6, 0.99], dtype=torch.float64))
    assert conformal_quantile(scores, 0.6) == pytest.approx(0.6)  # number 3 of 4
    sets = class_sets(probs.log(), 0.55)
    assert sets.tolist() == [[True, False, False], [True, True, False], [False, False, True], [True, False, False]]
    assert class_sets(probs.log(), 0.8 + 1e-9)[0].tolist() == [True, True, False]
    assert class_sets(probs.log(), 1.0).all()
    # Where no class is probable enough, the most probable one.
    assert class_sets(probs.log(), 0.01).sum(-1).tolist() == [1, 1, 1, 1]


def test_intervals_by_hand():
    mean, deviation = torch.tensor([0.0, 10.0]), torch.tensor([1.0, 2.0])
    assert number_scores(mean, deviation, torch.tensor([-3.0, 14.0])).tolist() == [3, 2]
    assert intervals(mean, deviation, 2.0).tolist() == [[-2, 2], [6, 14]]


@pytest.mark.parametrize(("n", "coverage"), [(19, 0.9), (50, 0.8)])
def test_coverage_given_the_calibration_examples_is_beta_distributed(n, coverage):
    """Continuous scores: Beta(k, n + 1 - k), and its mean is k / (n + 1)."""
    random = torch.Generator().manual_seed(0)
    held_out = torch.randn(4000, n, generator=random, dtype=torch.float64)
    found = [norm.cdf(conformal_quantile(scores, coverage)) for scores in held_out]
    k = math.ceil(round((n + 1) * coverage, 9))
    assert kstest(found, beta(k, n + 1 - k).cdf).pvalue > 0.01
    assert kstest(found, beta(k, n - k).cdf).pvalue < 1e-4  # a rank off would be seen
    assert np.mean(found) == pytest.approx(k / (n + 1), abs=4 * np.std(found) / len(found) ** 0.5)


def test_sets_of_a_bad_classifier_cover_too():
    """Whatever it predicts: its probabilities have nothing to do with the data but the order of three classes."""
    random = np.random.default_rng(1)
    covered = []
    for _ in range(600):
        log_probs = torch.from_numpy(random.normal((1.0, 0.5, 0.0), size=(79, 3))).log_softmax(-1)
        target = torch.from_numpy(random.integers(0, 3, 79))
        quantile = conformal_quantile(class_scores(log_probs[:39], target[:39]), 0.9)
        covered.append(class_sets(log_probs[39:], quantile).gather(1, target[39:, None]).double().mean().item())
    assert np.mean(covered) == pytest.approx(0.9, abs=4 * np.std(covered) / 600**0.5)


def test_scores_that_are_no_numbers_are_refused():
    for wrong in (torch.full((20,), math.nan), torch.rand(20, 1)):
        with pytest.raises(PolyarchError, match="needs scores"):
            conformal_quantile(wrong, 0.9)
