"""Orders, groups, and one against many: by enumeration, against scipy, and how often intervals hold the truth."""

import itertools

import numpy as np
import pytest
from scipy.stats import binomtest, kendalltau, mannwhitneyu, quantile_test

from polyarch.ranking.comparisons import (
    _jackknifed,
    _variance_of_no_order,
    _variance_of_shift,
    _within,
    above_median,
    group_against_group,
    one_against_group,
    order,
)
from polyarch.ranking.statistics import kendall

ONE, OTHER = np.array([1, 2, 2, 3, 3.0]), np.array([1, 1, 2, 4, 5.0])


def test_variance_of_no_order_is_that_over_all_permutations():
    every = [kendall(ONE, np.array(shuffled)) for shuffled in itertools.permutations(OTHER)]
    assert np.mean(every) == pytest.approx(0, abs=1e-12)
    assert _variance_of_no_order(ONE, OTHER) == pytest.approx(np.var(every))


def test_variance_of_no_shift_is_that_over_all_ways_to_divide():
    every, found = np.array([1, 2, 2, 5, 2, 3, 7.0]), []
    for own in itertools.combinations(range(7), 4):
        one, other = every[list(own)], np.delete(every, own)
        found.append(np.sign(one[:, None] - other[None]).mean())
    assert _variance_of_shift(every[:4], every[4:]) == pytest.approx(np.var(found))


def test_the_jackknife_leaves_out_one_after_another():
    random = np.random.default_rng(0)
    one, other = random.integers(0, 5, (2, 9)).astype(float)
    without = [kendalltau(np.delete(one, k), np.delete(other, k)).statistic for k in range(9)]
    assert _jackknifed(one, other) == pytest.approx(8 * np.var(without))


def test_values_are_those_of_scipy():
    random = np.random.default_rng(1)
    one, other = random.normal(size=(2, 11)).round(1)
    assert order(one, other).estimate.value == pytest.approx(kendalltau(one, other).statistic)
    wins = group_against_group(one, other[:6]).estimate.value
    assert wins == pytest.approx(mannwhitneyu(one, other[:6]).statistic / 66)
    exact = binomtest(7, 9).proportion_ci()
    assert one_against_group(7.5, range(1, 10)).estimate.interval == pytest.approx((exact.low, exact.high))


def test_ends_are_as_many_standard_errors_off():
    for value in (-0.9, 0.0, 0.4, 1.0):
        low, high = _within(value, 0.05)
        assert -1 <= low < value or value == -1
        for end in (low, high):
            if abs(end) < 1:
                assert (value - end) ** 2 == pytest.approx(1.959964**2 * 0.05 * (1 - end**2) ** 1.5)


def test_it_is_symmetric_and_knows_order_alone():
    one, other = np.array([3.0, 1, 4, 1.5, 9, 2.6]), np.array([2.0, 7, 1, 8, 2.8, 1.8])
    found, turned = order(one, other), order(one, -other)
    assert order(np.exp(one), other**3) == found
    assert turned.estimate.interval == pytest.approx([-end for end in reversed(found.estimate.interval)])
    ours, theirs = group_against_group(one, other).estimate, group_against_group(other, one).estimate
    assert theirs.interval == pytest.approx([1 - end for end in reversed(ours.interval)])
    ruled_out = order([-np.inf, -np.inf, 0, 1], [0, 1, 2, 3]).estimate.value
    assert ruled_out == pytest.approx(kendalltau([0, 0, 1, 2], [0, 1, 2, 3]).statistic)


def test_four_of_four_settle_nothing_and_six_of_six_do():
    """By chance (1/2)^4 on either side is more than 5 %, and (1/2)^6 is less."""
    open_still, settled = one_against_group(9, range(4), cost=2), one_against_group(9, range(6), cost=2)
    assert (open_still.verdict, open_still.more) == ("open", 4)
    assert (settled.verdict, settled.more) == ("yes", None)
    assert one_against_group(-1, range(6)).verdict == "no"
    assert one_against_group(1, [1, 1, 0, 2]).estimate.value == 0.5


def test_more_is_what_settles_it_four_times_in_five():
    """Where the estimate is the truth: counted by drawing so many anew."""
    found = one_against_group(7.5, range(1, 11))
    n, random = 10 + found.more, np.random.default_rng(0)
    settled = [one_against_group(0.5, random.random(n) > 0.7).settled for _ in range(400)]
    assert 0.75 < np.mean(settled) < 0.9
    tau, random = 0.5, np.random.default_rng(1)
    r, n = np.sin(np.pi / 2 * tau), 16

    def drawn(size):
        x, noise = random.normal(size=(2, size))
        return order(x, r * x + np.sqrt(1 - r * r) * noise)

    assert 0.6 < np.mean([drawn(n).settled for _ in range(300)]) < 0.9
    unsettled = order([1, 2, 3, 4, 5, 6, 7, 8], [1, 7, 2, 4, 8, 5, 3, 6])
    assert unsettled.more > 30
    assert order([1, 2, 3, 4], [2, 1, 4, 3]).more > order([1, 2, 3, 4], [1, 2, 4, 3]).more
    assert order([1, 2, 3, 4], [2, 4, 1, 3]).estimate.value == 0
    assert order([1, 2, 3, 4], [2, 4, 1, 3]).more is None


def test_above_the_median():
    """The extremes of 6 hold 96.9 %, the second ones of 9 hold 96.1 %; the ends of 95 % are a little further in."""
    found = above_median(5, range(6))
    assert found.value == 2.5
    assert 0 < found.low < 0.5
    assert 4.5 < found.high < 5
    nine = above_median(0, range(9))
    wide = quantile_test(range(9), p=0.5).confidence_interval(0.95)
    assert -wide.high <= nine.low < nine.value == -4 < nine.high <= -wide.low
    assert above_median(5, range(5)).interval is None
    assert above_median(5, []).value is None


def test_what_is_not_defined():
    assert order([1, 1, 1], [1, 2, 3]).verdict == "undefined"
    assert group_against_group([], [1.0]).undefined
    assert one_against_group(1.0, []).undefined
    assert not order([1, 1, 1], [1, 2, 3]).settled
    assert order([1, 2], [1, 2]).estimate.value == 1


@pytest.mark.parametrize("n", [8, 16, 64])
@pytest.mark.parametrize("tau", [0.0, 0.5])
def test_intervals_of_gaussian_variables_hold_tau(n, tau):
    """Kendall's tau of these is 2/pi arcsin r."""
    random, r, held = np.random.default_rng(n), np.sin(np.pi / 2 * tau), []
    for _ in range(300):
        x, noise = random.normal(size=(2, n))
        low, high = order(x, r * x + np.sqrt(1 - r * r) * noise).estimate.interval
        held.append(low <= tau <= high)
    assert 0.92 <= np.mean(held) <= 0.99


def test_a_failed_training_moves_no_interval_by_more_than_its_rank():
    worth = [0.1, 0.4, 0.2, 0.3, 0.8, 0.7, 0.6, 0.05]
    failed = [*worth[:-1], -1e6]
    assert above_median(0.5, failed).value == above_median(0.5, worth).value
    assert group_against_group([0.5, 0.9], failed) == group_against_group([0.5, 0.9], worth)
