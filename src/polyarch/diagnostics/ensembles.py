"""What more members bring, and how far members differ (Deng et al. 2020, section 4.1 and Fig. 4).

Members that say the same gain nothing by being many: *mode collapse*. The gain of the mixture over its members shows
it, and so do the share of inputs on which two members name different classes, and the mean of KL(p_i || p_j).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile
from typing import final

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from polyarch.diagnostics.running import check_single, evaluating, log_probs, views_of
from polyarch.errors import PolyarchError
from polyarch.settings import at_least
from polyarch.spaces.base import Supernet
from polyarch.uncertainty.calibration import accuracy, ece, log_likelihood


@final
@dataclass(frozen=True)
class Curve:
    """What mixtures are worth, a number for every count of members."""

    counts: list[int]
    accuracy: list[float]
    log_likelihood: list[float]
    """Of the mixture, log of the mean probability, in nats."""
    ece: list[float]
    """Of the predicted class, in 15 bins."""


@final
@dataclass(frozen=True)
class Ensembles:
    """Members of equal weight, few and many."""

    listed: Curve
    """Of the first ones, in the order in which they were given."""
    averaged: Curve
    """The mean over random orders."""
    members: list[float]
    """Accuracy of every member alone."""
    disagreement: float | None
    """Share of inputs on which the classes of two members differ, in the mean over pairs; None of one member."""
    kl: float | None
    """Mean of KL(p_i || p_j) over inputs and ordered pairs i != j, in nats."""


def counts_up_to(most: int) -> list[int]:
    """1, 2, 5, 10, 20, 50, ... and `most`."""
    at_least("most", most, 1)
    steps = (factor * 10**power for power in range(len(str(most))) for factor in (1, 2, 5))
    return [*takewhile(lambda count: count < most, steps), most]


@torch.no_grad()
def combine_within(
    supernet: Supernet,
    x: Tensor,
    y: Tensor,
    choices: Tensor,
    *,
    counts: Sequence[int] | None = None,
    orders: int = 5,
    batch_size: int = 1024,
    seed: int = 0,
) -> Ensembles:
    """`combine` for members that run inside a supernet, in evaluation mode, without dropout.

    Args:
        supernet: of one repeat; nothing of it is different afterwards.
        x: [n, ...], standardised inputs on its device.
        y: [n] int64, true classes.
        choices: [members, decisions].
        counts: as for `combine`; by default `counts_up_to` all of them.
        orders: as for `combine`.
        batch_size: examples a pass.
        seed: of the orders.
    """
    check_single(supernet)
    at_least("batch_size", batch_size, 1)
    views = views_of(supernet, choices)
    batches = x.split(batch_size)
    with evaluating(supernet):
        members = (log_probs(supernet, view, batches) for view in views)
        return combine(members, y, counts or counts_up_to(len(views)), orders=orders, seed=seed)


def combine(
    members: Iterable[Tensor], y: Tensor, counts: Sequence[int], *, orders: int = 5, seed: int = 0
) -> Ensembles:
    """Mixes more and more members; each is asked for once, and let go.

    What is held is a mixture for every order and count: (orders + 1) * len(counts) * n * classes numbers of 8 bytes.

    Args:
        members: finite log-probabilities, [n, classes] each, of any classifiers.
        y: [n] int64, true classes.
        counts: of members that are mixed, rising; the last is how many there are.
        orders: random ones to average over.
        seed: of the orders.
    """
    at_least("orders", orders, 1)
    if not counts or counts[0] < 1 or any(count >= later for count, later in pairwise(counts)):
        raise PolyarchError(f"counts {list(counts)} must rise from 1 or more to the number of members")
    generator, most = torch.Generator().manual_seed(seed), counts[-1]
    places = torch.stack([torch.arange(most), *(torch.randperm(most, generator=generator) for _ in range(orders))])
    # Sums of the members between two counts: a member is added to one of them an order.
    steps = torch.bucketize(places, torch.tensor(counts), right=True)
    sums, diversity, alone = torch.empty(0), Diversity(), list[float]()
    for member in members:
        if len(alone) == most:
            raise PolyarchError(f"there are more than {most} members, the last of counts; end counts with their number")
        alone.append(accuracy(member, y))
        member = member.detach().cpu().double()
        if len(alone) == 1:
            sums = torch.full((len(steps), len(counts), *member.shape), -torch.inf, dtype=torch.float64)
        for own, step in zip(sums, steps[:, len(alone) - 1].tolist(), strict=True):
            own[step] = torch.logaddexp(own[step], member)
        diversity.add(member)
    if len(alone) < most:
        raise PolyarchError(f"there are {len(alone)} members, and counts go to {most}; end them with {len(alone)}")
    listed, *others = (_curve(own, y, counts) for own in sums)
    return Ensembles(listed, _mean(others), alone, diversity.disagreement(), diversity.kl())


def _curve(sums: Tensor, y: Tensor, counts: Sequence[int]) -> Curve:
    """Of log-sums of probabilities between two counts, [counts, n, classes]."""
    mixtures = sums.logcumsumexp(0) - torch.tensor(counts, dtype=sums.dtype).log()[:, None, None]
    measures = ([measure(mixture, y) for mixture in mixtures] for measure in (accuracy, log_likelihood, ece))
    return Curve(list(counts), *measures)


def _mean(curves: Sequence[Curve]) -> Curve:
    def mean(name: str) -> list[float]:
        rows = [getattr(curve, name) for curve in curves]
        return [sum(column) / len(rows) for column in zip(*rows, strict=True)]

    return Curve(curves[0].counts, mean("accuracy"), mean("log_likelihood"), mean("ece"))


@final
class Diversity:
    """How far members differ, by sums over them.

    With v_c the members that name class c, T(T - 1) - sum_c v_c (v_c - 1) ordered pairs disagree on an input, and

        sum_{i != j} KL(p_i || p_j) = T sum_i sum_c p_ic log p_ic - sum_c (sum_i p_ic) (sum_j log p_jc).
    """

    def __init__(self) -> None:
        """No members yet."""
        self.members = 0
        self._votes = self._probs = self._logs = self._negentropy = torch.zeros((), dtype=torch.float64)

    def add(self, log_probs: Tensor) -> None:
        """Takes a member's log-probabilities [n, classes], in double precision."""
        probs = log_probs.exp()
        self.members += 1
        self._votes = self._votes + one_hot(log_probs.argmax(-1), log_probs.shape[-1])
        self._probs = self._probs + probs
        self._logs = self._logs + log_probs
        self._negentropy = self._negentropy + (probs * log_probs).sum(-1)

    def disagreement(self) -> float | None:
        """The share of inputs on which two members' classes differ, in the mean over pairs."""
        agreeing = (self._votes * (self._votes - 1)).sum(-1)
        return None if self.members < 2 else 1 - agreeing.mean().item() / self._pairs

    def kl(self) -> float | None:
        """The mean over inputs and ordered pairs."""
        total = self.members * self._negentropy - (self._probs * self._logs).sum(-1)
        # Rounding must not make a divergence of equals negative.
        return None if self.members < 2 else max(total.mean().item() / self._pairs, 0.0)

    @property
    def _pairs(self) -> int:
        return self.members * (self.members - 1)
