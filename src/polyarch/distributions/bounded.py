"""The most probable architecture within bounds on what networks cost.

A mode that is within them is taken as it is. Else it depends on the belief and on the bounds:

- Where costs add up over parts of an architecture and belief is a product, it is found exactly, by a pass over the
  parts that keeps what may still be the best: partial architectures of which no other is as probable and as cheap.
- Architectures of a list, and of a product whose costs do not add up, are looked at in the order of their probability:
  all of them where they are few. Of many, and where looking takes long (a latency is measured), the most probable
  ones are, and then the most probable with ever fewer multiply-accumulates.
- What is read out of simplices has no probability. It is read out of belief's weights times exp(-price cost), under the
  smallest price for which it is within the bounds.
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyarch.distributions.base import Distribution
from polyarch.distributions.categorical import Categorical
from polyarch.distributions.discretized import Discretized
from polyarch.distributions.listed import Listed

FEW = 20_000
"""Architectures of a product of at most so many are all looked at, if need be."""
MANY = 2_000
"""Of more than that, so many are."""
CHUNK = 256
LADDER = torch.linspace(0.95, 0, 20).tolist()
"""Shares of the mode's multiply-accumulates that are tried where looking takes long; last, as few as there are."""
PRICES = torch.cat([torch.zeros(1), torch.logspace(-4, 2.84, 2000)]).double()
"""Of a cost as large as the largest of any option, in nats, under which architectures are read out; 700 is about the
most that an exponential bears."""
WIDEST = 2_000_000
"""Partial architectures that one step of the pass over the parts may compare."""

Numbers = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Part:
    """Decisions whose common cost does not depend on any other."""

    decisions: tuple[int, ...]
    choices: Tensor
    """All that may be chosen of them, int64 [n, decisions]."""
    costs: Tensor
    """What each of these adds, [n, costs]."""


@dataclass(frozen=True, eq=False)
class Sums:
    """Costs that add up over parts of an architecture: parameters and multiply-accumulates, in this order."""

    parts: tuple[Part, ...]
    spare: Tensor
    """What is left of every bound by what all networks have, [costs]; infinity where there is no bound."""
    simplices: tuple[Tensor, ...]
    """What every option of a simplex adds, [options, costs], for belief that architectures are read out of."""


class Bounds(ABC):
    """What networks may cost at most."""

    @property
    @abstractmethod
    def sums(self) -> Sums | None:
        """The costs that add up; None where the space has none that do."""

    @property
    @abstractmethod
    def others(self) -> bool:
        """Whether there are bounds on what does not add up, as on a latency."""

    @property
    @abstractmethod
    def looks(self) -> int | None:
        """How many architectures may be looked at, one after another; None: any number, since that is quick."""

    @abstractmethod
    def first(self, choices: Tensor) -> int | None:
        """The number of the first of choices [n, decisions] that is within all bounds; None where none is."""

    @abstractmethod
    def anything(self) -> tuple[int, ...]:
        """Choices of some architecture within all bounds, whatever is believed; raises where none was found."""

    def allow(self, choices: Sequence[int]) -> bool:
        """Whether an architecture is within them."""
        return self.first(torch.tensor([list(choices)])) is not None


def most_probable(belief: Distribution, bounds: Bounds) -> tuple[int, ...] | None:
    """The choices of the most probable architecture within bounds, as this module has it; None where none was found."""
    for choices in _preferred(belief, bounds):
        place = bounds.first(choices)
        if place is not None:
            return tuple(choices[place].tolist())
    return None


def _preferred(belief: Distribution, bounds: Bounds) -> Iterator[Tensor]:
    """What to look at, the most probable first: choices [n, decisions]."""
    yield belief.mode().unsqueeze(0).cpu()
    if isinstance(belief, Discretized):
        if bounds.sums is not None:
            found = _read_out(belief, bounds.sums)
            several = min(len(found), bounds.looks or len(found))  # evenly, where looking takes long
            yield found[torch.linspace(0, len(found) - 1, several).round().long()]
    elif isinstance(belief, Listed):
        order = belief.log_weights.sort(descending=True, stable=True)
        yield belief.choices[order.indices[order.values > -torch.inf]].cpu()
    elif belief.product is not None:
        yield from _of_product(belief.product, bounds)


def _of_product(product: Categorical, bounds: Bounds) -> Iterator[Tensor]:
    sums = bounds.sums
    if sums is not None and not bounds.others:
        best = front(product, sums)
        if best is not None:
            yield best.choices  # the most probable first
            return
    looks = bounds.looks or (FEW if product.architectures <= FEW else MANY)
    ordered = islice(in_order(product), looks)
    while chunk := list(islice(ordered, min(CHUNK, looks))):
        yield torch.tensor(chunk)
    if sums is not None and bounds.others:
        whole = total(sums, product.mode().unsqueeze(0).cpu())[0]
        least = torch.stack([part.costs[:, 1].min() for part in sums.parts]).sum()
        for share in LADDER:
            lowered = torch.stack([sums.spare[0], sums.spare[1].clamp_max(torch.maximum(share * whole[1], least))])
            best = front(product, replace(sums, spare=lowered))
            if best is not None:
                yield best.choices[:1]


def total(sums: Sums, choices: Tensor) -> Tensor:
    """What choices [n, decisions] add to what all networks have: [n, costs]."""
    found = torch.zeros(len(choices), len(sums.spare), dtype=torch.float64)
    for part in sums.parts:
        place = torch.zeros(len(choices), dtype=torch.int64)
        for k, decision in enumerate(part.decisions):
            place = place * (int(part.choices[:, k].max()) + 1) + choices[:, decision]
        found += part.costs[place]
    return found


def in_order(product: Categorical) -> Iterator[tuple[int, ...]]:
    """All architectures of a product that have any probability, the most probable first."""
    logs = product.log_probs.detach().double().cpu()
    rows = [logs[k, : len(d)].sort(descending=True, stable=True) for k, d in enumerate(product.decisions)]
    values = [row.values[row.values > -torch.inf].tolist() for row in rows]
    options = [row.indices.tolist() for row in rows]
    # A state has the rank of each decision's option. Its children take the next option of one decision, no earlier than
    # the one that was moved last, so that every state has one parent, which is at least as probable.
    start = (0,) * len(rows)
    heap = [(-sum(row[0] for row in values), start, 0)]
    while heap:
        cost, ranks, moved = heapq.heappop(heap)
        yield tuple(own[rank] for own, rank in zip(options, ranks, strict=True))
        for k in range(moved, len(ranks)):
            if ranks[k] + 1 < len(values[k]):
                step = values[k][ranks[k]] - values[k][ranks[k] + 1]
                heapq.heappush(heap, (cost + step, (*ranks[:k], ranks[k] + 1, *ranks[k + 1 :]), k))


@dataclass(frozen=True, eq=False)
class Front:
    """Architectures of which no other is as probable and as cheap."""

    choices: Tensor
    """int64 [n, decisions]."""
    log_probs: Numbers
    costs: Numbers
    """What they add to what all networks have, [n, bounded costs]."""


def front(product: Categorical, sums: Sums) -> Front | None:
    """All such within bounds that add up, by a pass over the parts; None where that would compare too many."""
    limited = sums.spare.isfinite()
    spare = sums.spare[limited].double().numpy()
    logs = product.log_probs.detach().double().cpu()
    steps: list[tuple[Tensor, Numbers, Numbers]] = []
    for part in sums.parts:
        scores = np.sum([logs[k, part.choices[:, place]].numpy() for place, k in enumerate(part.decisions)], axis=0)
        costs = part.costs[:, limited].double().numpy()
        possible = np.flatnonzero(scores > -np.inf)
        kept = possible[_best(scores[possible], costs[possible])]
        steps.append((part.choices[kept], scores[kept], costs[kept]))
    rest = np.sum([costs.min(0) for *_, costs in steps], axis=0)
    if (rest > spare).any():
        return Front(torch.zeros(0, len(product.decisions), dtype=torch.int64), np.zeros(0), np.zeros((0, len(spare))))
    scores, costs = np.zeros(1), np.zeros((1, len(spare)))
    found = torch.zeros(1, len(product.decisions), dtype=torch.int64)
    for part, (choices, own, own_costs) in zip(sums.parts, steps, strict=True):
        if len(scores) * len(own) > WIDEST:
            return None
        rest = rest - own_costs.min(0)
        together = (scores[:, None] + own).ravel()
        spent = (costs[:, None] + own_costs).reshape(len(together), -1)
        within = np.flatnonzero((spent + rest <= spare).all(1))
        kept = within[_best(together[within], spent[within])]
        scores, costs = together[kept], spent[kept]
        found = found[kept // len(own)]
        found[:, list(part.decisions)] = choices[kept % len(own)]
    return Front(found, scores, costs)


def _best(scores: Numbers, costs: Numbers) -> NDArray[np.intp]:
    """The rows of which no other has a score as large and costs [n, 0 to 2] as small; of equals the first."""
    order = np.lexsort((*costs.T[::-1], -scores))
    if costs.shape[1] < 2:
        own = costs[order].sum(1)
        least = np.minimum.accumulate(own)
        return order[np.append(True, own[1:] < least[:-1])] if len(order) else order
    # By falling score; so far cheapest pairs of costs are a staircase, on which the one rises as the other falls.
    first, second, kept = list[float](), list[float](), list[int]()
    for row, (one, other) in zip(order.tolist(), costs[order].tolist(), strict=True):
        place = bisect_right(first, one)
        if place and second[place - 1] <= other:
            continue
        beyond = place
        while beyond < len(first) and second[beyond] >= other:
            beyond += 1
        first[place:beyond], second[place:beyond] = [one], [other]
        kept.append(row)
    return np.array(kept, dtype=np.intp)


def _read_out(belief: Discretized, sums: Sums) -> Tensor:
    """What is read out under rising prices of what is over its bound, the cheapest last: [n, decisions]."""
    over = total(sums, belief.mode().unsqueeze(0).cpu())[0] / sums.spare.clamp_min(1)
    wanted = over * (over > 1) if (over > 1).any() else torch.tensor([0.0, 1.0])  # of others, all there is to go by
    largest = torch.stack([own.amax(0) for own in sums.simplices]).amax(0).clamp_min(1)
    costs = [(own / largest * wanted).sum(-1) / wanted.sum() for own in sums.simplices]
    means = [weights.detach().double().cpu() for weights in belief.mean_weights()]
    under = [
        torch.cat([mean * (-PRICES[:, None] * cost).exp(), (-cost).exp().unsqueeze(0)])
        for mean, cost in zip(means, costs, strict=True)
    ]
    return torch.unique_consecutive(belief.discretize(under), dim=0)
