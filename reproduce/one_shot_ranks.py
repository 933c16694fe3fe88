"""Rank correlations of many judges at once, and how sure they are."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

Numbers = NDArray[np.float64]
RESAMPLES = 2000


def spearman(judged: Numbers, truth: Numbers) -> Numbers:
    """Spearman's correlation along the last axis: [..., n] and [..., n] -> [...]; ties share their mean rank."""
    one, other = _centred(rankdata(judged, axis=-1)), _centred(rankdata(truth, axis=-1))
    products: Numbers = (one * other).sum(-1)
    return products / np.sqrt((one**2).sum(-1) * (other**2).sum(-1))


def interval(judged: Numbers, truth: Numbers, seed: int = 0, level: float = 0.95) -> tuple[float, float]:
    """A bootstrap interval of Spearman's correlation [n], [n]: percentiles over cells drawn with replacement."""
    random = np.random.default_rng(seed)
    drawn = random.integers(len(truth), size=(RESAMPLES, len(truth)))
    low, high = np.quantile(spearman(judged[drawn], truth[drawn]), [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def _centred(ranks: Numbers) -> Numbers:
    return ranks - ranks.mean(-1, keepdims=True)
