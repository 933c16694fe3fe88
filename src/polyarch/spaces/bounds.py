"""Limits on the networks of a space: what each costs, and whether that is within them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import final

import torch
from torch import Tensor
from typing_extensions import override

from polyarch.architecture import Architecture
from polyarch.data.task import TaskShape
from polyarch.distributions.bounded import FEW, MANY, Bounds, Sums, most_probable
from polyarch.errors import PolyarchError
from polyarch.spaces.base import Space
from polyarch.spaces.cost import network_seconds
from polyarch.spaces.counted import SOME, Counted
from polyarch.spaces.limits import COUNTED, LATENCY, Limit

MEASURED = 16
"""Networks whose latency is measured one after another, the most probable first, before cheaper ones are tried."""
Column = Callable[[Tensor], Tensor]
"""From choices [n, decisions] to the numbers [n] of a table; NaN where it has none."""


@final
class SpaceBounds(Bounds):
    """Limits on what networks of a space cost: counted, measured on this machine, or looked up in a table.

    A network whose cost a table does not know is not within a limit on it. What was measured is remembered, so that a
    network is not within a limit at one time and beyond it at another.
    """

    def __init__(
        self,
        limits: Sequence[Limit],
        space: Space,
        shape: TaskShape,
        *,
        columns: Mapping[str, Column] | None = None,
        device: torch.device | None = None,
        measured: Mapping[str, float] | None = None,
    ) -> None:
        """Nothing is counted or measured yet.

        Args:
            limits: one or more.
            space: of the networks.
            shape: of the data that they are built for.
            columns: what a table knows, by the names of limits.
            device: where latencies are measured; by default the CPU.
            measured: seconds that were measured before, by batch and architecture, as `measured` has them.
        """
        self.limits, self.space, self.shape = tuple(limits), space, shape
        self._columns, self._device = columns or {}, device or torch.device("cpu")
        self.measured = dict(measured or {})
        """Seconds of a forward pass, by `BATCH ARCHITECTURE`."""
        self.counted = Counted(space, shape)

    @property
    @override
    def others(self) -> bool:
        return any(limit.name not in COUNTED for limit in self.limits)

    @property
    @override
    def looks(self) -> int | None:
        return MEASURED if any(limit.name == LATENCY for limit in self.limits) else None

    @cached_property
    def sums(self) -> Sums | None:
        """What adds up, and how much of it is left."""
        if self.counted.table is None:
            return None
        most = {limit.name: limit.most for limit in self.limits}
        bounds = torch.tensor([most.get(name, torch.inf) for name in COUNTED], dtype=torch.float64)
        return replace(self.counted.table, spare=bounds - self.counted.base)

    @override
    def first(self, choices: Tensor) -> int | None:
        within = torch.ones(len(choices), dtype=torch.bool)
        for limit in self.limits:
            if limit.name != LATENCY and within.any():
                rows = within.nonzero().squeeze(-1)
                within[rows] = self._costs(limit, choices[rows]) <= limit.most  # NaN is not
        latencies = [limit for limit in self.limits if limit.name == LATENCY]
        for row in within.nonzero().squeeze(-1).tolist():
            if all(self._costs(limit, choices[row : row + 1]) <= limit.most for limit in latencies):
                return int(row)
        return None

    def costs(self, architecture: Architecture) -> dict[str, float]:
        """What an architecture has of everything that is limited, by the limits' texts."""
        choices = torch.tensor([architecture.choices])
        return {str(limit): float(self._costs(limit, choices)) for limit in self.limits}

    def _costs(self, limit: Limit, choices: Tensor) -> Tensor:
        """[n]."""
        if limit.name in COUNTED:
            return self.counted(choices)[:, COUNTED.index(limit.name)]
        if limit.name == LATENCY:
            found = [self._seconds(limit.batch, architecture) for architecture in self.space.decode(choices)]
            return torch.tensor(found, dtype=torch.float64)
        return self._columns[limit.name](choices).double()

    def _seconds(self, batch: int, architecture: Architecture) -> float:
        key = f"{batch} {architecture}"
        if key not in self.measured:
            self.measured[key] = network_seconds(self.space, architecture, self.shape, batch, self._device)
        return self.measured[key]

    # -- what there is -------------------------------------------------------------------------------------------------

    @override
    def anything(self) -> tuple[int, ...]:
        """Choices of some network that is within the limits; raises where none was found, with the least there is."""
        found = most_probable(self.space.random(), self)
        if found is None:
            asked, least = " and ".join(map(str, self.limits)), ", ".join(map(self._least, self.limits))
            raise PolyarchError(
                f"no network of the space {self.space.name!r} is within {asked}: {least}; raise the limit"
            )
        return found

    def _least(self, limit: Limit) -> str:
        """The smallest cost there is of a kind, in words."""
        drawn = f"of {SOME} drawn, " if self.counted.is_sampled else ""
        if limit.name in COUNTED:
            least = float(self._costs(limit, self.counted.cheapest(limit.name))[0])
            return f"{drawn}the fewest {limit.name} are {limit.shown(least)}"
        if limit.name == LATENCY:
            seconds = round(float(self._costs(limit, self.counted.cheapest("macs"))[0]), 6)
            return f"{drawn}the network of fewest multiply-accumulates takes {limit.shown(seconds)} for {limit.unit}"
        source = self.space.random()
        few = source.architectures <= FEW
        some = source.support() if few else source.sample(MANY, torch.Generator().manual_seed(0))
        known = self._costs(limit, some)
        known = known[~known.isnan()]
        return f"the least {limit.name} is {float(known.min()):g}" if len(known) else f"no network has a {limit.name}"


@final
class Pricing:
    """What the cost of networks is worth in fit, in nats per example."""

    def __init__(
        self, name: str, per_unit: float, space: Space, shape: TaskShape, device: torch.device | None = None
    ) -> None:
        """Nothing is counted yet.

        Args:
            name: of what is counted.
            per_unit: nats per example for one more of it.
            space: of the networks.
            shape: of the data that they are built for.
            device: of `decisions` and `simplices`; by default the CPU.
        """
        self._told = (name, per_unit, space, shape)
        self._column, self._per_unit, self._counted = COUNTED.index(name), per_unit, Counted(space, shape)
        self._device = device

    def on(self, device: torch.device) -> Pricing:
        """The same with its tensors on a device."""
        return Pricing(*self._told, device)

    def of(self, choices: Tensor) -> Tensor:
        """Of choices [n, decisions]: [n], on the CPU."""
        return self._per_unit * self._counted(choices.cpu())[:, self._column]

    @cached_property
    def decisions(self) -> tuple[Tensor, ...]:
        """What every option of a decision adds, [options]; raises where costs do not add up."""
        return self._of_options(self._counted.decisions)

    @cached_property
    def simplices(self) -> tuple[Tensor, ...]:
        """What every option of a simplex that is mixed adds, [options]."""
        table = self._counted.table
        return self.decisions if table is None else self._of_options(table.simplices)

    def _of_options(self, costs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        return tuple((self._per_unit * own[:, self._column]).float().to(self._device) for own in costs)
