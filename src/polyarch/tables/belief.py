"""How good belief is, by the truth about every architecture: how much of it lies on those that are as good as the best.

Log mass is the log score of a bet on the event "within e of the best". The right e is what the truth can tell apart:
many architectures may be as good as the best one, and belief that is spread over these knows all there is to know.
Uniform belief scores the log of their share; none scores above 0.
"""

from __future__ import annotations

import torch
from torch import Tensor

from polyarch.architecture import Architecture
from polyarch.distributions.base import Distribution
from polyarch.errors import PolyarchError
from polyarch.settings import at_least
from polyarch.tables.truth import ENUMERATED, Truth


def log_mass_on_good(belief: Distribution, truth: Truth, within: float) -> float:
    """Log-probability that an architecture drawn from belief is within so much of the best one.

    Args:
        belief: over the architectures of the truth's space, of one repeat: `run.distribution`.
        truth: a column of a table: `find_truth(space, table, column)`.
        within: how much worse than the best still counts, in the column's unit; 0 is the best alone, and its equals.

    Returns:
        At most 0, and minus infinity for belief that rules all of them out.
    """
    if belief.decisions != truth.space.decisions:
        raise PolyarchError(f"this belief is about other decisions than those of the space {truth.space.name!r}")
    mass = belief.log_prob(good_architectures(truth, within)).double().logsumexp(-1)
    return mass.clamp_max(0).item()  # rounding may add up to more than everything


def good_architectures(truth: Truth, within: float) -> Tensor:
    """Choices [good, decisions] of the architectures within so much of the best; those the table lacks are not."""
    at_least("within", within, 0)
    choices, worth = _enumerated(truth)
    return choices[worth.max() - worth <= within]


def regret(truth: Truth, architecture: Architecture) -> float:
    """How much worse an architecture is than the best one, in the column's unit."""
    _, worth = _enumerated(truth)
    [number] = truth.values([architecture])
    return worth.max().item() - _sign(truth) * float(number)


def _enumerated(truth: Truth) -> tuple[Tensor, Tensor]:
    """Choices [n, decisions] of a small space and what they are worth [n], more is better; -inf where nobody knows."""
    drawn = truth.space.random()
    if drawn.architectures > ENUMERATED:
        raise PolyarchError(
            f"the space {truth.space.name!r} has {drawn.architectures:,} architectures, too many to look at each; "
            f"belief is scored in spaces of at most {ENUMERATED:,}: restrict it, or list some"
        )
    choices = drawn.support()
    numbers = truth.known(truth.space, choices)
    worth = torch.tensor([-torch.inf if n is None else _sign(truth) * n for n in numbers], dtype=torch.float64)
    if not worth.isfinite().any():
        raise PolyarchError(f"{truth.table.where}: no row is of the space {truth.space.name!r}; take another table")
    return choices, worth


def _sign(truth: Truth) -> int:
    return 1 if truth.better == "higher" else -1
