"""How sure a few numbers make us: of an order, of one group against another, of one network against many.

Everything goes by which of two is better, never by how much alone, so that one training that failed moves no interval
by more than its rank. What is estimated, and what its 95 % interval is:

- Order: Kendall's tau-b of two arrays. The interval holds every tau that the found one is within 1.96 standard errors
  of. The variance is that of no order (with its terms for ties) times (1 - tau²)^1.5; the power is 2 in that of
  Fieller, Hartley and Pearson (1957), which is for Gaussian variables, and 1 in the bound of Daniels and Kendall
  (1947), which is for any. Where architectures differ in how well belief places them, tau varies more than that: of
  what the jackknife finds above it, a share is added that grows with how many there are, since of few it knows little.
  What each rule covers is in docs/results/trust.md.
- Of two groups: how often a draw of one is better than a draw of the other (Mann and Whitney, 1947), its interval by
  the same rule, since 2 p - 1 is a tau, too.
- Of one against many: how often it is better than a draw. That is a share, and its interval exact (Clopper and Pearson,
  1934): it holds the truth at least as often as it says.
- Above the median of many, with the interval between order statistics (Hettmansperger and Sheather, 1986).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import beta, binom, norm, rankdata

from polyarch.ranking.statistics import Estimate, Numbers, kendall

CONFIDENCE = 0.95
WIDE = float(norm.ppf((1 + CONFIDENCE) / 2))
"""Standard errors on either side."""
POWER = 0.8
"""How probable it has to be that so many trainings settle a question."""
LIMIT = 1000
"""Trainings beyond which nobody would go."""
SHAPE = 1.5
"""The power of 1 - tau² in the variance of tau."""
HALF = 32
"""Of so many architectures half of what the jackknife finds is believed."""


@dataclass(frozen=True)
class Comparison:
    """An estimate, and whether it is settled on which side of no difference the truth lies."""

    estimate: Estimate
    even: float
    """What it is where there is no difference: 0 for a tau, 0.5 for a probability."""
    more: int | None = None
    """How many more would settle it with probability 0.8, were the estimate the truth; None where it is settled, or
    where a thousand in all would not do."""
    undefined: str = ""
    """Why there is no estimate."""

    @property
    def settled(self) -> bool:
        """Whether the interval leaves out what no difference is."""
        low, high = self.estimate.interval or (self.even, self.even)
        return not low <= self.even <= high

    @property
    def verdict(self) -> str:
        """`yes` or `no` where it is settled, else `open`; or `undefined`."""
        if self.estimate.value is None:
            return "undefined"
        return "open" if not self.settled else "yes" if self.estimate.value > self.even else "no"


def order(one: ArrayLike, other: ArrayLike) -> Comparison:
    """Kendall's tau-b of two arrays [n], minus infinity among the numbers or not."""
    a, b = rankdata(one), rankdata(other)
    value = kendall(a, b)
    if value is None:
        return Comparison(Estimate(None), 0.0, undefined="one of both is the same for all")
    variance = _variance_of_tau(a, b, value)
    found = Comparison(Estimate(value, *_within(value, variance)), 0.0)
    return found if found.settled else _lacking(found, value, variance, len(a))


def group_against_group(one: ArrayLike, other: ArrayLike) -> Comparison:
    """How probable it is that a draw of `one` is larger than a draw of `other`, equals counting half; [n] and [m]."""
    a, b = np.asarray(one, float), np.asarray(other, float)
    if not len(a) or not len(b):
        return Comparison(Estimate(None), 0.5, undefined="there is nothing to compare with")
    value = float(np.sign(a[:, None] - b[None]).mean())
    variance = _variance_of_shift(a, b)
    found = Comparison(Estimate(*((1 + end) / 2 for end in (value, *_within(value, variance)))), 0.5)
    return found if found.settled else _lacking(found, value, variance, len(a) + len(b))


def one_against_group(one: float, group: ArrayLike, cost: int = 1) -> Comparison:
    """How probable it is that `one` is larger than a draw of a group [n], equals counting half.

    Args:
        one: a number that is known.
        group: draws.
        cost: how many trainings a draw of the group costs.
    """
    drawn = np.asarray(group, float)
    n, wins = len(drawn), float(((one > drawn) + (one == drawn) / 2).sum())
    if not n:
        return Comparison(Estimate(None), 0.5, undefined="there is nothing to compare with")
    tail = (1 - CONFIDENCE) / 2
    low = float(beta.ppf(tail, wins, n - wins + 1)) if wins > 0 else 0.0
    high = float(beta.ppf(1 - tail, wins + 1, n - wins)) if wins < n else 1.0
    found = Comparison(Estimate(wins / n, low, high), 0.5)
    if found.settled:
        return found
    sizes = np.arange(n + 1, LIMIT // cost + 1)
    least = binom.isf(tail, sizes, 0.5) + 1  # wins that settle it
    return _first(found, binom.sf(least - 1, sizes, max(wins, n - wins) / n) >= POWER, cost)


def above_median(one: float, group: ArrayLike) -> Estimate:
    """By how much `one` is above the median of what a group [n] is drawn from; no interval where n is below 6."""
    drawn = np.sort(np.asarray(group, float))
    n = len(drawn)
    if not n:
        return Estimate(None)
    value = one - float(np.median(drawn))
    held = 1 - 2 * binom.cdf(np.arange(n // 2), n, 0.5)  # between the k-th from below and from above, k from 1
    k = int((held >= CONFIDENCE).sum())
    if not k:
        return Estimate(value)
    share = (held[k - 1] - CONFIDENCE) / (held[k - 1] - held[k]) if k < len(held) else 0.0
    inward = (n - k) * share / (k + (n - 2 * k) * share)
    low, high = (float((1 - inward) * x[k - 1] + inward * x[k]) for x in (drawn, drawn[::-1]))
    return Estimate(value, one - high, one - low)


# ---------------------------------------------------------------------------------------------------------------------
# A tau and its variance.


def _within(value: float, variance: float) -> tuple[float, float]:
    """The least and the greatest tau that are within so many standard errors of a value, which lies between them."""

    def reach(end: float) -> float:
        outside, inside = end, value
        for _ in range(60):
            middle = (outside + inside) / 2
            if (value - middle) ** 2 <= WIDE**2 * variance * (1 - middle**2) ** SHAPE:
                inside = middle
            else:
                outside = middle
        return inside

    return reach(-1.0), reach(1.0)


def _variance_of_tau(one: Numbers, other: Numbers, value: float) -> float:
    """Of tau-b, as it would be at a tau of 0."""
    none, n = _variance_of_no_order(one, other), len(one)
    found = _jackknifed(one, other) / max(1 - value**2, 1e-9) ** SHAPE
    return none + n / (n + HALF) * max(found - none, 0)


def _jackknifed(one: Numbers, other: Numbers) -> float:
    """Variance of tau-b by leaving out one of both arrays after another."""
    a, b = (np.sign(numbers[:, None] - numbers[None]) for numbers in (one, other))
    agree, own, others = (signs.sum() - 2 * signs.sum(1) for signs in (a * b, abs(a), abs(b)))
    spread = np.sqrt(own * others)
    return float((len(one) - 1) * np.divide(agree, spread, out=np.zeros(len(one)), where=spread > 0).var())


def _variance_of_no_order(one: Numbers, other: Numbers) -> float:
    """Of tau-b where every order is as likely, neither array being the same everywhere (Kendall, 1970)."""
    n = len(one)
    (a, a3, a5), (b, b3, b5) = _ties(one), _ties(other)
    pairs = n * (n - 1)
    found = (pairs * (2 * n + 5) - a5 - b5) / 18 + a * b / (2 * pairs)
    found += a3 * b3 / (9 * pairs * (n - 2)) if n > 2 else 0
    return float(found / ((pairs - a) * (pairs - b) / 4))


def _variance_of_shift(one: Numbers, other: Numbers) -> float:
    """Of 2 p - 1 where both groups are drawn from the same."""
    n, m = len(one), len(other)
    counts = np.unique(np.concatenate([one, other]), return_counts=True)[1]
    tied = float((counts**3 - counts).sum()) / ((n + m) * (n + m - 1))
    return (n + m + 1 - tied) / (3 * n * m)


def _ties(numbers: Numbers) -> tuple[float, float, float]:
    t = np.unique(numbers, return_counts=True)[1].astype(float)
    return (t * (t - 1)).sum(), (t * (t - 1) * (t - 2)).sum(), (t * (t - 1) * (2 * t + 5)).sum()


def _lacking(found: Comparison, value: float, variance: float, done: int) -> Comparison:
    """With how many more would settle it, where `variance` is that of no difference among those there are."""
    at = variance * done / np.arange(done + 1.0, LIMIT + 1)
    beyond, spread = abs(value) - WIDE * np.sqrt(at), np.sqrt(at * (1 - value**2) ** SHAPE)
    return _first(found, beyond >= norm.ppf(POWER) * spread, 1)


def _first(found: Comparison, enough: NDArray[np.bool_], cost: int) -> Comparison:
    if not enough.any():
        return found
    return Comparison(found.estimate, found.even, cost * (int(enough.argmax()) + 1))
