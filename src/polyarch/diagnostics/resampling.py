"""What the bootstrap says of a number."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from polyarch.ranking.statistics import RESAMPLES, Estimate, Numbers, estimate_of
from polyarch.settings import at_least


def resampled(
    statistic: Callable[..., float | None], *samples: Numbers, resamples: int = RESAMPLES, seed: int = 0
) -> Estimate:
    """A number and its interval: the percentiles of bootstrap resamples that hold 95 % of them.

    Args:
        statistic: of as many samples; None where it is not defined.
        samples: [n, ...] each, resampled along the first axis, every one by itself.
        resamples: how many.
        seed: of the resampling.

    Returns:
        No interval where the number, or more than half of the resamples, are not defined.
    """
    at_least("resamples", resamples, 1)
    chance = np.random.default_rng(seed)

    def again() -> float:
        found = statistic(*(sample[chance.integers(len(sample), size=len(sample))] for sample in samples))
        return np.nan if found is None else found

    return estimate_of(statistic(*samples), np.array([again() for _ in range(resamples)]))
