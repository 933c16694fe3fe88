"""What a run was told about cost: limits on the network that it selects, and a price while it searches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from polyarch.core import Method
from polyarch.data.task import TaskShape
from polyarch.errors import PolyarchError
from polyarch.spaces.base import Space
from polyarch.spaces.bounds import Column, Pricing, SpaceBounds
from polyarch.spaces.limits import COUNTED, LATENCY, Limit, Price
from polyarch.tables import open_table


def make_bounds(
    limits: Sequence[Limit],
    space: Space,
    shape: TaskShape,
    table: str = "",
    *,
    device: str = "cpu",
    measured: Mapping[str, float] | None = None,
) -> SpaceBounds | None:
    """Limits on networks of a space, a name that is no other cost being a column of a table; None without limits.

    Args:
        limits: of which there may be none.
        space: of the networks.
        shape: of the data that they are built for.
        table: the file of a table.
        device: where latencies are measured.
        measured: seconds that are known (`SpaceBounds.measured`).
    """
    if not limits:
        return None
    columns = {limit.name: limit for limit in limits if limit.name not in (*COUNTED, LATENCY)}
    looked_up = {name: _column(name, table, space) for name in columns}
    return SpaceBounds(limits, space, shape, columns=looked_up, device=torch.device(device), measured=measured)


def _column(name: str, file: str, space: Space) -> Column:
    """What a table has for choices of a space."""
    if not file:
        raise PolyarchError(
            f"there is no limit on {name!r}: it can be on parameters, macs, latency, or on a column of a table, which "
            "--table names (a TableTruth among the callbacks in Python)"
        )
    table = open_table(Path(file))
    column = table.column(name)
    if column.predicted:
        raise PolyarchError(
            f"{table.where}: {column.name} is a prediction, and a limit is on what was counted or measured; take "
            "parameters, macs or latency"
        )
    if column.better == "higher" or column.split is not None:
        raise PolyarchError(
            f"{table.where}: {column.name} says how good networks are, and nothing is chosen by that; a limit is on "
            "what they cost"
        )
    return lambda choices: torch.from_numpy(table.known(column.name, space, choices))


def make_pricing(price: str, method: Method, searched: Space, space: Space, shape: TaskShape) -> Pricing | None:
    """What cost is worth in a stage; None where it has no price.

    Args:
        price: as `Price.of` reads it; may be empty.
        method: of the search.
        searched: the whole search's space.
        space: the stage's own. Networks of its last stage are those that are used, so they are priced throughout.
        shape: of the data.
    """
    if not price:
        return None
    last, told = method.stages(searched)[-1].space, Price.of(price)
    same = last.decisions == space.decisions
    return Pricing(told.name, told.nats / told.unit, last if same else space, shape)


def selects(method: Method) -> bool:
    """Whether a search selects a network, and is not told one."""
    return method.meaning.kind != "fixed" or type(method).preferred is not Method.preferred


def check_cost(method: Method, bounds: SpaceBounds | None, pricing: Pricing | None) -> None:
    """Raises before a search where nothing could be selected, or where a price could not be counted."""
    if (bounds or pricing) and not selects(method):
        raise PolyarchError(
            f"{method.name} trains one network that it is told, so limits and a price choose nothing; leave them out"
        )
    if bounds is not None:
        bounds.anything()
    if pricing is not None and method.meaning.kind != "fixed":
        _ = pricing.simplices  # raises where costs do not add up
