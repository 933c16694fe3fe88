"""How well numbers order architectures: plain statistics on arrays, with what resampling says of them.

Scores here are such that more is better. Everything depends on their order alone, so that values of any scale, and
minus infinity for what could not be evaluated, are welcome.

- Spearman: Pearson's correlation of average ranks. Kendall: tau-b, which takes ties into account.
- Sparse Kendall: Kendall's tau-b after the truth was rounded to 0.1 % of accuracy, so that architectures which a second
  training could put in another order count as equal (Yu, Ranftl and Salzmann, 2020; also NAS-Bench-301).
- Where the score has ties, the mean truth of its best and their regret are expectations over a random order of them.
- Intervals of correlations are percentiles of bootstrap resamples of the architectures, 95 % of them inside. They are
  for the correlation over all that the architectures were drawn from (docs/ranking.md has how often they hold it).
- The mean truth of a score's best, and their regret, have no interval: they are facts about these architectures. What
  others would give hangs on the best and on the worst of those that were not drawn, of which no resample knows; the
  bootstrap of a maximum is not even consistent.

A correlation with what is the same for all is not defined: it is None, never nan.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import kendalltau, rankdata

from polyarch.errors import PolyarchError
from polyarch.settings import at_least
from polyarch.tables.columns import Better

Numbers = NDArray[np.float64]

TOP = 10
"""How many of a score's best are looked at together."""
RESAMPLES = 1000
INSIDE = (2.5, 97.5)
"""Percentiles that bound an interval."""
_BLOCK = 2**21
"""Numbers that are held at once while resampling."""


@dataclass(frozen=True)
class Estimate:
    """A number and its interval; None where it is not defined, or has none."""

    value: float | None
    low: float | None = None
    high: float | None = None

    @property
    def interval(self) -> tuple[float, float] | None:
        """Both ends, if there are any."""
        return None if self.low is None or self.high is None else (self.low, self.high)


@dataclass(frozen=True)
class Standing:
    """How well a score orders architectures."""

    spearman: Estimate
    kendall: Estimate
    sparse_kendall: Estimate
    """Not defined for a truth that is no accuracy."""
    top10: Estimate
    """Mean truth of its ten best, or of all where there are fewer."""
    regret: Estimate
    """By how much the truth of its best falls short of the best there is."""
    with_parameters: Estimate
    """Spearman's correlation of the score with the number of parameters."""
    undefined: str = ""
    """Why correlations with the truth are not defined, where they are not."""


def spearman(one: ArrayLike, other: ArrayLike) -> float | None:
    """Spearman's correlation of two arrays [n]; None where one of them is the same everywhere."""
    return _defined(_spearman(np.asarray(one, float)[None], np.asarray(other, float)[None])[0])


def kendall(one: ArrayLike, other: ArrayLike) -> float | None:
    """Kendall's tau-b of two arrays [n]; None where one of them is the same everywhere."""
    a, b = rankdata(one), rankdata(other)
    return None if _constant(a) or _constant(b) else float(kendalltau(a, b).statistic)


def to_tenths(truth: ArrayLike) -> Numbers:
    """Accuracies [n] rounded to 0.1 %; they are fractions where none is above 1, else percentages."""
    truth = np.asarray(truth, float)
    return np.round(truth * (1000 if truth.max() <= 1 else 10))


def mean_of_best(scores: ArrayLike, truth: ArrayLike, count: int = TOP) -> float:
    """Mean truth of the `count` best by score; of equals, each is as likely to be among them."""
    return float(_mean_of_best(np.asarray(scores, float)[None], np.asarray(truth, float)[None], count)[0])


def standing(
    scores: ArrayLike,
    truth: ArrayLike,
    parameters: ArrayLike,
    *,
    better: Better = "higher",
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Standing:
    """Everything about a score; its correlations with intervals.

    Args:
        scores: [n], more is better.
        truth: [n], finite.
        parameters: [n], how many every architecture has.
        better: of the truth.
        resamples: of the intervals; the same architectures are drawn for every score with the same seed.
        seed: of the resampling.
    """
    ranks, facts, sizes = _checked(scores, truth, parameters)
    at_least("resamples", resamples, 1)
    sign = 1.0 if better == "higher" else -1.0
    merit = sign * facts
    tenths = to_tenths(facts) if better == "higher" else None
    drawn = np.random.default_rng(seed).integers(len(ranks), size=(resamples, len(ranks)))

    def correlation(one: Numbers, other: Numbers) -> Estimate:
        return estimate_of(spearman(one, other), _by_rows(drawn, lambda rows: _spearman(one[rows], other[rows])))

    def order(other: Numbers) -> Estimate:
        return estimate_of(kendall(ranks, other), _resampled_kendall(ranks, other, drawn))

    return Standing(
        spearman=correlation(ranks, merit),
        kendall=order(merit),
        sparse_kendall=Estimate(None) if tenths is None else order(tenths),
        top10=Estimate(mean_of_best(ranks, facts)),
        regret=Estimate(float(_regret(ranks[None], merit[None])[0])),
        with_parameters=correlation(ranks, sizes),
        undefined=_why_undefined(ranks, facts),
    )


def standing_of_chance(
    truth: ArrayLike,
    parameters: ArrayLike,
    *,
    better: Better = "higher",
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Standing:
    """What a random order is worth: expectations, and where 95 % of random orders lie.

    Args:
        truth: [n], finite.
        parameters: [n].
        better: of the truth.
        resamples: random orders.
        seed: of the orders.
    """
    orders, facts, sizes = _checked(np.arange(len(np.asarray(truth))), truth, parameters)
    at_least("resamples", resamples, 1)
    merit = facts if better == "higher" else -facts
    chance = np.random.default_rng(seed)
    drawn = np.stack([chance.permutation(orders) for _ in range(resamples)])

    def by_kendall(other: Numbers) -> Estimate:
        return Estimate(None) if _constant(other) else estimate_of(0.0, _kendall_of_chance(other, resamples, chance))

    def by_spearman(other: Numbers) -> Estimate:
        if _constant(other):
            return Estimate(None)
        return estimate_of(0.0, _spearman(drawn, np.broadcast_to(other, drawn.shape)))

    spread = np.broadcast_to(facts, drawn.shape)
    return Standing(
        spearman=by_spearman(merit),
        kendall=by_kendall(merit),
        sparse_kendall=by_kendall(to_tenths(facts)) if better == "higher" else Estimate(None),
        top10=estimate_of(float(facts.mean()), _mean_of_best(drawn, spread, TOP)),
        regret=estimate_of(float(merit.max() - merit.mean()), _regret(drawn, np.broadcast_to(merit, drawn.shape))),
        with_parameters=by_spearman(sizes),
        undefined=_why_undefined(orders, facts),
    )


# ---------------------------------------------------------------------------------------------------------------------
# Many resamples at once: a row [n] each.


def _spearman(one: Numbers, other: Numbers) -> Numbers:
    """Row by row; nan where a row of either is the same everywhere."""
    a, b = (rankdata(rows, axis=1) - (rows.shape[1] + 1) / 2 for rows in (one, other))
    spread = np.sqrt((a * a).sum(1) * (b * b).sum(1))
    return np.divide((a * b).sum(1), spread, out=np.full(len(a), np.nan), where=spread > 0)


def _resampled_kendall(one: Numbers, other: Numbers, drawn: NDArray[np.int64]) -> Numbers:
    """Tau-b of resamples [rows, n]; nan where one is the same everywhere.

    Not scipy's, called for every resample: how often each architecture was drawn, times the signs of all pairs, gives
    the sums of all resamples as a few products of matrices, tens of times as fast for a few hundred architectures.
    """
    count = len(one)
    often = np.stack([np.bincount(row, minlength=count) for row in drawn]).astype(np.float32)
    agree, own, others = (np.zeros(len(drawn)) for _ in range(3))
    for part in _parts(count, count):
        a, b = (np.sign(values[part, None] - values[None]).astype(np.float32) for values in (one, other))
        for total, signs in ((agree, a * b), (own, abs(a)), (others, abs(b))):
            total += np.einsum("rp,rp->r", often[:, part], often @ signs.T, dtype=np.float64)
    spread = np.sqrt(own * others)
    return np.divide(agree, spread, out=np.full(len(drawn), np.nan), where=spread > 0)


def _kendall_of_chance(truth: Numbers, orders: int, chance: np.random.Generator) -> Numbers:
    """Tau-b of so many random orders without ties and a truth [n] that is not the same everywhere.

    An order is made by inserting architectures one after another, from the worst up, each at a random place: it then
    agrees with the worse ones that it comes after. Only these counts are drawn, which takes as long as n numbers.
    Equals come together: a place among the worse ones is as likely as one right beside an equal that has its own.
    """
    agree, worse, rows = np.zeros(orders), 0, np.arange(orders)
    groups = np.unique(truth, return_counts=True)[1].tolist()
    for size in groups:
        after = np.zeros((size, orders), np.int64)
        for member in range(size):
            place = chance.integers(worse + 1 + member, size=orders)
            beside = after[np.maximum(place - worse - 1, 0), rows]
            after[member] = np.where(place <= worse, place, beside)
        agree += (2 * after - worse).sum(0)
        worse += size
    pairs = worse * (worse - 1) / 2
    tied = sum(size * (size - 1) / 2 for size in groups)
    return agree / math.sqrt(pairs * (pairs - tied))


def _mean_of_best(scores: Numbers, truth: Numbers, count: int) -> Numbers:
    count = min(count, scores.shape[1])
    last = -np.partition(-scores, count - 1, axis=1)[:, count - 1 : count]
    above, equal = scores > last, scores == last
    share = (count - above.sum(1)) / equal.sum(1)
    means: Numbers = ((truth * above).sum(1) + share * (truth * equal).sum(1)) / count
    return means


def _regret(scores: Numbers, merit: Numbers) -> Numbers:
    # A rounding error must not make a regret of the best negative.
    return np.maximum(merit.max(1) - _mean_of_best(scores, merit, 1), 0.0)


def _by_rows(drawn: NDArray[np.int64], statistic: Callable[[NDArray[np.int64]], Numbers]) -> Numbers:
    """A statistic of every resample, a few at a time."""
    return np.concatenate([statistic(drawn[part]) for part in _parts(*drawn.shape)])


def _parts(rows: int, width: int) -> Iterator[slice]:
    step = max(1, _BLOCK // width)
    return (slice(start, start + step) for start in range(0, rows, step))


# ---------------------------------------------------------------------------------------------------------------------
# Small things.


def _checked(*arrays: ArrayLike) -> Sequence[Numbers]:
    """Ranks of the scores, the truth and the parameters as numbers; raises where they do not fit together."""
    scores, truth, parameters = (np.asarray(array, float) for array in arrays)
    if not scores.shape == truth.shape == parameters.shape or truth.ndim != 1 or not len(truth):
        raise PolyarchError(
            f"scores, truth and parameters have the shapes {list(scores.shape)}, {list(truth.shape)} and "
            f"{list(parameters.shape)}; give one number per architecture, for one at least"
        )
    if not np.isfinite(truth).all() or np.isnan(scores).any():
        raise PolyarchError("the truth or a score is not a number; leave such architectures out, or score them -inf")
    return rankdata(scores), truth, parameters


def _constant(numbers: Numbers) -> bool:
    return bool((numbers == numbers[0]).all())


def _why_undefined(ranks: Numbers, truth: Numbers) -> str:
    if len(ranks) == 1:
        return "there is one architecture"
    if _constant(truth):
        return "the truth is the same for all"
    return "the score is the same for all" if _constant(ranks) else ""


def _defined(number: float) -> float | None:
    return None if np.isnan(number) else float(number)


def estimate_of(value: float | None, resampled: Numbers) -> Estimate:
    """A number with the percentiles of its resamples, where it and most of them are defined."""
    known = resampled[~np.isnan(resampled)]
    if value is None or 2 * len(known) < len(resampled):
        return Estimate(value)
    low, high = np.percentile(known, INSIDE)
    return Estimate(value, float(low), float(high))
