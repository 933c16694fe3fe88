"""Intervals of the bootstrap."""

import numpy as np
import pytest

from polyarch.diagnostics.resampling import resampled
from polyarch.errors import PolyarchError


def test_the_interval_of_a_mean_is_that_of_the_normal_law():
    numbers = np.random.default_rng(0).normal(size=400)
    found = resampled(lambda sample: float(sample.mean()), numbers, resamples=4000)
    error = numbers.std() / 20
    assert found.value == numbers.mean()
    assert found.interval == pytest.approx((numbers.mean() - 1.96 * error, numbers.mean() + 1.96 * error), abs=0.01)


def test_samples_are_drawn_each_by_itself_and_rows_stay_whole():
    one, pairs = np.arange(5.0), np.stack([np.arange(9.0), 2 * np.arange(9.0)], 1)
    seen = []

    def measure(first, second):
        assert first.shape == (5,)
        assert (second[:, 1] == 2 * second[:, 0]).all()
        seen.append((tuple(first), tuple(second[:, 0])))
        return 0.0

    resampled(measure, one, pairs, resamples=40)
    assert seen[0] == (tuple(one), tuple(pairs[:, 0]))
    assert len({first for first, _ in seen}) > 30
    assert len({second for _, second in seen}) > 30


def test_what_is_not_defined_has_no_interval():
    numbers = np.arange(4.0)
    assert resampled(lambda _: None, numbers, resamples=10).value is None
    whole = resampled(lambda sample: 1.0 if len(set(sample)) == 4 else None, numbers, resamples=200)
    assert whole.value == 1
    assert whole.interval is None
    with pytest.raises(PolyarchError, match="resamples is 0"):
        resampled(lambda _: 1.0, numbers, resamples=0)
