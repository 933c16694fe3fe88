"""Whether belief prefers anything: a selection out of flat belief is little better than a draw."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean

FLAT = 0.98
"""Flat belief has so much of the largest entropy, mean over what it is about: 0.58 and 0.42 of two options are flat."""

Shares = Mapping[str, Sequence[float]]
"""What belief gives to the options of everything that it is about."""


def flat_in_words(beliefs: Sequence[Shares]) -> str:
    """How flat beliefs of one search are, one per seed; nothing where they prefer some options, or have no choice."""
    open_ones = [shares for belief in beliefs for shares in belief.values() if len(shares) > 1]
    if not open_ones or fmean(map(evenness, open_ones)) < FLAT:
        return ""
    largest, even = fmean(map(max, open_ones)), fmean(1 / len(shares) for shares in open_ones)
    of = " of a decision is, on average," if len(open_ones) > 1 else " is"
    return f"flat: the largest share{of} {largest:.3f}, and {even:.3f} would be no preference at all"


def evenness(shares: Sequence[float]) -> float:
    """The entropy of shares as a part of the largest that so many could have: 1 where all are equal."""
    return -sum(p * math.log(p) for p in shares if p > 0) / math.log(len(shares))
