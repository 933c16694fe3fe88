"""Parameters and multiply-accumulates of many architectures at once: counted for every option, and added up."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import prod
from typing import final

import torch
from torch import Tensor

from polyarch.data.task import TaskShape
from polyarch.distributions.bounded import Part, Sums, total
from polyarch.errors import PolyarchError
from polyarch.spaces.base import Space
from polyarch.spaces.cost import Cost, CostTable, TabulatesCosts
from polyarch.spaces.limits import COUNTED
from polyarch.spaces.relaxation import SimplexPerDecision
from polyarch.spaces.sub_spaces import Listed, Restricted

JOINT = 10_000
"""What may be chosen of decisions that share an option of a simplex is listed where there is no more of it."""
SOME = 200
"""Networks that are counted one by one to learn what they cost at least, where there are more."""
Use = tuple[int, int]
"""An option of a simplex, by their numbers."""


@final
@dataclass(frozen=True)
class Counted:
    """What networks of a space have of `COUNTED`."""

    space: Space
    shape: TaskShape

    def __call__(self, choices: Tensor) -> Tensor:
        """Of choices [n, decisions]: [n, 2], exact."""
        if self.table is not None:
            return self.base + total(self.table, choices.cpu())
        return torch.tensor([self._one(tuple(row)) for row in choices.tolist()], dtype=torch.float64).reshape(-1, 2)

    def cheapest(self, name: str) -> Tensor:
        """The choices [1, decisions] of a network that has least of one of `COUNTED`; of some, where `is_sampled`."""
        column, source, table = COUNTED.index(name), self.space.random(), self.table
        if table is not None and source.product is not None:
            found = torch.zeros(1, len(self.space.decisions), dtype=torch.int64)
            for part in table.parts:
                found[0, list(part.decisions)] = part.choices[part.costs[:, column].argmin()]
            return found
        some = source.sample(SOME, torch.Generator().manual_seed(0)) if self.is_sampled else source.support()
        return some[self(some)[:, column].argmin()].unsqueeze(0)

    @property
    def is_sampled(self) -> bool:
        """Whether the cheapest network is that of `SOME` draws, since networks are many and counted one by one."""
        source = self.space.random()
        return (self.table is None or source.product is None) and source.architectures > SOME

    def _one(self, choices: tuple[int, ...]) -> list[float]:
        if choices not in self._known:
            cost = self.space.cost(self.space.architecture(choices), self.shape)
            self._known[choices] = [float(getattr(cost, name)) for name in COUNTED]
        return self._known[choices]

    @cached_property
    def _known(self) -> dict[tuple[int, ...], list[float]]:
        return {}

    @cached_property
    def base(self) -> Tensor:
        """What all networks have, [2]."""
        costs = self._options
        assert costs is not None
        return _row(costs.base)

    @cached_property
    def table(self) -> Sums | None:
        """What the parts of an architecture add to that, without bounds; None where it has to be counted one by one."""
        costs = self._options
        if costs is None:
            return None
        simplices = tuple(torch.stack([_row(cost) for cost in own]) for own in costs.options.values())
        groups = _sharing(self._uses)
        sizes = [len(decision) for decision in self.space.decisions]
        if any(prod(sizes[k] for k in group) > JOINT for group in groups):
            return None
        parts = tuple(self._part(group, sizes, simplices) for group in groups)
        if self.space.relaxation is None or self.space.relaxation.simplices == self.space.decisions:
            simplices = self.decisions
        return Sums(parts, torch.full((len(COUNTED),), torch.inf, dtype=torch.float64), simplices)

    @cached_property
    def decisions(self) -> tuple[Tensor, ...]:
        """What every option of a decision adds, [options, 2]; what two decisions both switch on counts for both.

        Raises where costs do not add up.
        """
        costs = self._options
        if costs is None:
            raise PolyarchError(
                f"costs of networks of the space {self.space.name!r} do not add up over its decisions, so that they "
                "cannot have a price; set a limit instead"
            )
        names = list(costs.options.values())
        return tuple(
            torch.stack([sum((_row(names[s][o]) for s, o in used), torch.zeros(2)) for used in own]).double()
            for own in self._uses
        )

    def _part(self, group: Sequence[int], sizes: Sequence[int], simplices: Sequence[Tensor]) -> Part:
        """Every joint choice of some decisions, an option that several of them switch on counted once."""
        joint = list(itertools.product(*(range(sizes[k]) for k in group)))
        used = [{use for k, option in zip(group, row, strict=True) for use in self._uses[k][option]} for row in joint]
        nothing = torch.zeros(len(COUNTED), dtype=torch.float64)
        costs = torch.stack([sum((simplices[s][o] for s, o in uses), nothing) for uses in used])
        return Part(tuple(group), torch.tensor(joint), costs)

    @cached_property
    def _uses(self) -> list[list[tuple[Use, ...]]]:
        """The options of simplices that every option of a decision switches on."""
        space, sizes = self.space, [range(len(decision)) for decision in self.space.decisions]
        options: Sequence[Sequence[int]] = sizes
        while isinstance(space, Listed | Restricted):
            if isinstance(space, Restricted):
                options = [[space.left[k][option] for option in own] for k, own in enumerate(options)]
            space = space.space
        relaxation = space.relaxation or SimplexPerDecision(space.decisions)
        return [[relaxation.uses(k, option) for option in own] for k, own in enumerate(options)]

    @cached_property
    def _options(self) -> CostTable | None:
        """What every option of a simplex adds."""
        space = self.space
        if space.count() == 1:
            return None  # built as it is, perhaps in another form
        while isinstance(space, Listed | Restricted):
            space = space.space
        return None if space.listed_only else _option_costs(space, self.shape)


@lru_cache(maxsize=8)
def _option_costs(space: Space, shape: TaskShape) -> CostTable | None:
    """What every option of a simplex of a space adds; None where that is not known."""
    if len(space.decisions) == 1:
        [decision] = space.decisions
        costs = [space.cost(space.architecture([k]), shape) for k in range(len(decision))]
        return CostTable(Cost(0, 0), {decision.name: costs})
    try:
        return space.cost_table(shape) if isinstance(space, TabulatesCosts) else None
    except PolyarchError:  # a Choice inside an option of another
        return None


def _row(cost: Cost) -> Tensor:
    return torch.tensor([float(getattr(cost, name)) for name in COUNTED], dtype=torch.float64)


def _sharing(uses: Sequence[Sequence[Sequence[Use]]]) -> list[list[int]]:
    """Decisions in groups, such that no option of a simplex is switched on from two of them."""
    groups: list[tuple[set[int], set[Use]]] = []
    for k, options in enumerate(uses):
        used = {use for own in options for use in own}
        touched = [group for group in groups if group[1] & used]
        groups = [group for group in groups if group not in touched]
        groups.append(({k}.union(*(own for own, _ in touched)), used.union(*(own for _, own in touched))))
    return sorted(sorted(own) for own, _ in groups)
