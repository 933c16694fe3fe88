"""Statistics of rankings against scipy, enumeration and answers known by hand."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest
import scipy.stats

from polyarch import PolyarchError
from polyarch.ranking import kendall, mean_of_best, spearman, standing, standing_of_chance, to_tenths
from polyarch.ranking.statistics import _kendall_of_chance, _mean_of_best, _resampled_kendall, _spearman

CORRELATIONS = ("spearman", "kendall", "sparse_kendall", "with_parameters")
FIGURES = (*CORRELATIONS, "top10", "regret")


def some(n, seed=0, ties=True):
    """Scores, truth and parameters with ties, the truth in %."""
    random = np.random.default_rng(seed)
    truth = np.round(90 + 3 * random.normal(size=n), 2 if ties else 6)
    scores = truth + 3 * random.normal(size=n)
    return np.round(scores) if ties else scores, truth, random.integers(1, 6, n) * 1000.0


@pytest.mark.parametrize("ties", [True, False])
@pytest.mark.parametrize("n", [2, 3, 12, 150])
def test_correlations_are_scipys(n, ties):
    for seed in range(5):
        scores, truth, _ = some(n, seed, ties)
        if len(set(scores)) == 1:
            continue
        assert spearman(scores, truth) == pytest.approx(scipy.stats.spearmanr(scores, truth).statistic, abs=1e-12)
        assert kendall(scores, truth) == pytest.approx(scipy.stats.kendalltau(scores, truth).statistic, abs=1e-12)


def test_every_figure_of_a_standing_by_hand():
    scores, truth, parameters = some(40)
    found = standing(scores, truth, parameters)
    assert found.spearman.value == pytest.approx(scipy.stats.spearmanr(scores, truth).statistic)
    assert found.kendall.value == pytest.approx(scipy.stats.kendalltau(scores, truth).statistic)
    rounded = [round(10 * t) for t in truth]
    assert found.sparse_kendall.value == pytest.approx(scipy.stats.kendalltau(scores, rounded).statistic)
    assert found.with_parameters.value == pytest.approx(scipy.stats.spearmanr(scores, parameters).statistic)
    best = max(scores)
    assert found.regret.value == pytest.approx(max(truth) - np.mean(truth[scores == best]))
    assert found.top10.value == pytest.approx(mean_of_best(scores, truth))
    assert found.undefined == ""
    for name in CORRELATIONS:
        figure = getattr(found, name)
        assert figure.low <= figure.value <= figure.high, name


def test_a_truth_where_less_is_better():
    scores, truth, parameters = some(40)
    found, other = standing(scores, truth, parameters), standing(scores, -truth, parameters, better="lower")
    for name in ("spearman", "kendall", "regret", "with_parameters"):
        assert getattr(other, name) == getattr(found, name), name
    assert other.top10.value == -found.top10.value
    assert other.sparse_kendall.value is None  # 0.1 % of a loss means nothing
    assert standing_of_chance(-truth, parameters, better="lower").regret == standing_of_chance(truth, parameters).regret


def test_order_alone_matters():
    scores, truth, parameters = some(30, ties=False)
    assert standing(scores, truth, parameters) == standing(np.exp(scores * 5), truth, parameters)
    worst = scores.argmin()
    lost = scores.copy()
    lost[worst] = -np.inf
    assert standing(lost, truth, parameters) == standing(scores, truth, parameters)


def test_sparse_kendall_takes_what_is_within_a_tenth_of_a_per_cent_for_equal():
    truth, scores = [93.01, 93.04, 94.0], [2, 1, 3]  # the first two are in the wrong order, by 0.03 %
    assert kendall(scores, truth) == pytest.approx(1 / 3)
    sparse = standing(scores, truth, [1, 1, 1]).sparse_kendall.value
    assert sparse == pytest.approx(2 / math.sqrt(3 * 2))  # two pairs in order, one tied in the truth: tau-b
    assert to_tenths([0.9301, 0.9304, 0.94]).tolist() == to_tenths(truth).tolist() == [930, 930, 940]


def test_the_mean_of_the_best_is_an_expectation_over_ties():
    random = np.random.default_rng(0)
    scores, truth = np.array([3.0, 1.0, 2.0, 2.0, 2.0, 0.0]), random.normal(size=6)
    for count in range(1, 7):
        orders = [p for p in itertools.permutations(range(6)) if all(np.diff(scores[list(p)]) <= 0)]
        wanted = np.mean([truth[list(p[:count])].mean() for p in orders])
        assert mean_of_best(scores, truth, count) == pytest.approx(wanted)
    assert mean_of_best(scores, truth, 10) == pytest.approx(truth.mean())


def test_resamples_are_those_of_arrays_drawn_by_hand():
    scores, truth, _ = some(25)
    drawn = np.random.default_rng(1).integers(25, size=(50, 25))
    ours = _resampled_kendall(scipy.stats.rankdata(scores), truth, drawn)
    theirs = [scipy.stats.kendalltau(scores[row], truth[row]).statistic for row in drawn]
    np.testing.assert_allclose(ours, theirs, atol=1e-6)
    ours = _spearman(scores[drawn], truth[drawn])
    theirs = [scipy.stats.spearmanr(scores[row], truth[row]).statistic for row in drawn]
    np.testing.assert_allclose(ours, theirs, atol=1e-12)
    ours = _mean_of_best(scores[drawn], truth[drawn], 3)
    np.testing.assert_allclose(ours, [mean_of_best(scores[row], truth[row], 3) for row in drawn])


def test_many_architectures_in_parts(monkeypatch):
    scores, truth, parameters = some(60)
    whole = standing(scores, truth, parameters, resamples=40)
    monkeypatch.setattr("polyarch.ranking.statistics._BLOCK", 500)
    parts = standing(scores, truth, parameters, resamples=40)
    for name in FIGURES:
        one, other = getattr(whole, name), getattr(parts, name)
        assert (one.value, one.low, one.high) == pytest.approx((other.value, other.low, other.high), abs=1e-7), name


def test_intervals_are_percentiles_of_resamples():
    """Each resample drawn and measured by itself, the correlations by scipy."""
    scores, truth, parameters = some(30)
    found = standing(scores, truth, parameters, resamples=200, seed=7)
    drawn = np.random.default_rng(7).integers(30, size=(200, 30))
    measures = {
        "spearman": lambda s, t: scipy.stats.spearmanr(s, t).statistic,
        "kendall": lambda s, t: scipy.stats.kendalltau(s, t).statistic,
        "sparse_kendall": lambda s, t: scipy.stats.kendalltau(s, np.round(10 * t)).statistic,
    }
    for name, measure in measures.items():
        ends = np.percentile([measure(scores[row], truth[row]) for row in drawn], [2.5, 97.5])
        assert getattr(found, name).interval == pytest.approx(tuple(ends), abs=1e-6), name


def population(random, n=10_000):
    """Truth in %, skewed as in benchmarks (most are good, one in thirty is worth nothing), a score and parameters."""
    truth = np.where(random.random(n) < 1 / 30, 10.0, 94 - 2 * random.gamma(2, size=n))
    return truth + random.normal(0, 3, n), truth, np.round(truth + random.normal(0, 6, n))


def test_whatever_has_an_interval_has_one_that_covers():
    """Of samples of a known population, 95 % hold what is true of the population.

    That is the correlation over all of it; of the best of a sample, what samples of this size have on average.
    """
    random = np.random.default_rng(0)
    scores, truth, parameters = population(random)
    samples, size = 400, 60
    drawn = [random.permutation(len(truth))[:size] for _ in range(samples)]
    found = [standing(scores[r], truth[r], parameters[r], resamples=200, seed=k) for k, r in enumerate(drawn)]
    wanted = {
        "spearman": scipy.stats.spearmanr(scores, truth).statistic,
        "kendall": scipy.stats.kendalltau(scores, truth).statistic,
        "sparse_kendall": scipy.stats.kendalltau(scores, np.round(10 * truth)).statistic,
        "with_parameters": scipy.stats.spearmanr(scores, parameters).statistic,
        **{name: np.mean([getattr(one, name).value for one in found]) for name in ("top10", "regret")},
    }
    for name, number in wanted.items():
        ends = [getattr(one, name).interval for one in found]
        if ends[0] is None:
            assert name not in CORRELATIONS
            continue
        covered = np.mean([low <= number <= high for low, high in ends])
        assert covered == pytest.approx(0.95, abs=0.03), name  # two and a half standard errors of 400 samples


def test_the_best_of_a_score_have_no_interval():
    """Only of random orders of these very architectures is it known where they lie."""
    scores, truth, parameters = some(40)
    found, chance = standing(scores, truth, parameters), standing_of_chance(truth, parameters)
    for name in ("top10", "regret"):
        assert getattr(found, name).interval is None
        assert getattr(chance, name).interval


def test_a_seed_decides_resamples():
    arguments = some(30)
    one, again, other = (standing(*arguments, seed=seed) for seed in (1, 1, 2))
    assert one == again
    assert one.spearman.value == other.spearman.value
    assert one.spearman.low != other.spearman.low


def test_chance_by_enumeration():
    truth, parameters = np.array([1.0, 2.0, 4.0, 8.0, 9.0]), np.arange(5.0)
    found = standing_of_chance(truth, parameters, resamples=3000)
    orders = np.array(list(itertools.permutations(range(5))), float)
    for name, measure in (("spearman", spearman), ("kendall", kendall)):
        figure = getattr(found, name)
        null = [measure(order, truth) for order in orders]
        assert figure.value == 0
        assert (figure.low, figure.high) == pytest.approx(np.percentile(null, [2.5, 97.5]), abs=0.11)
    assert found.top10.value == truth.mean() == found.top10.low == found.top10.high  # fewer than ten
    assert found.regret.value == pytest.approx(9 - truth.mean())
    assert (found.regret.low, found.regret.high) == (0, 8)


def test_kendall_of_random_orders_by_enumeration():
    """How often every value occurs, with ties at both ends and between."""
    truth = np.array([3.0, 1.0, 2.0, 1.0, 2.0, 2.0])
    wanted = Counter(round(kendall(order, truth), 9) for order in itertools.permutations(range(6)))
    drawn = Counter(np.round(_kendall_of_chance(truth, 20_000, np.random.default_rng(0)), 9).tolist())
    assert drawn.keys() == wanted.keys()
    for value, count in wanted.items():
        assert drawn[value] / 20_000 == pytest.approx(count / 720, abs=0.012)


def test_chance_has_the_known_spread():
    n = 400
    found = standing_of_chance(np.random.default_rng(0).normal(size=n), np.arange(n), resamples=1500).spearman
    assert found.high == pytest.approx(1.96 / math.sqrt(n - 1), rel=0.1)
    assert found.low == pytest.approx(-1.96 / math.sqrt(n - 1), rel=0.1)


@pytest.mark.parametrize(
    ("scores", "truth", "why"),
    [
        ([1, 2, 3], [5, 5, 5], "the truth is the same for all"),
        ([1, 1, 1], [5, 6, 7], "the score is the same for all"),
        ([-np.inf] * 3, [5, 6, 7], "the score is the same for all"),
        ([1], [5], "there is one architecture"),
    ],
)
def test_undefined_is_said_and_never_nan(scores, truth, why):
    found = standing(scores, truth, range(len(truth)))
    assert found.undefined == why
    for name in ("spearman", "kendall", "sparse_kendall"):
        assert getattr(found, name).value is None
        assert getattr(found, name).interval is None
    assert found.top10.value == pytest.approx(np.mean(truth))
    assert found.regret.value == pytest.approx(max(truth) - np.mean(truth) if len(set(scores)) == 1 else 0)
    assert spearman(scores, truth) is kendall(scores, truth) is None


def test_a_truth_that_is_the_same_when_rounded():
    found = standing([1, 2, 3], [90.01, 90.02, 90.03], [1, 2, 3])
    assert found.spearman.value == 1
    assert found.sparse_kendall.value is None
    assert found.undefined == ""


def test_chance_without_a_truth_to_order():
    found = standing_of_chance([5, 5, 5], [1, 2, 3])
    assert found.spearman.value is found.kendall.value is None
    assert found.undefined == "the truth is the same for all"
    assert found.with_parameters.value == 0


def test_intervals_of_three_architectures():
    """A few resamples draw the same one three times and have no correlation; most have one."""
    found = standing([1, 2, 3], [1, 3, 2], [1, 2, 3])
    assert found.spearman.value == pytest.approx(0.5)
    assert -1 <= found.spearman.low <= found.spearman.high <= 1


@pytest.mark.parametrize(
    "arrays",
    [([1, 2], [1, 2, 3], [1, 2, 3]), ([], [], []), ([1, 2], [np.nan, 1], [1, 2]), ([np.nan, 1], [2, 1], [1, 2])],
)
def test_arrays_that_do_not_fit(arrays):
    with pytest.raises(PolyarchError, match=r"shapes|not a number"):
        standing(*arrays)
