"""Quality against cost: the section of a report, from belief and from what was trained or looked up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator

from polyarch.distributions.bounded import front
from polyarch.plotting import (
    BLUE,
    GREEN,
    INK,
    MUTED,
    NARROW,
    ORANGE,
    PALE,
    Array,
    at_both_widths,
    grid,
    margins,
    style,
    to_svg,
)
from polyarch.report import formatting
from polyarch.report.report_data import ReportData
from polyarch.spaces.counted import Counted
from polyarch.spaces.limits import COUNTED, Limit, Price
from polyarch.streams import Streams

DRAWS = 200
"""Architectures that are drawn from belief, where there are more."""
TITLES = {"parameters": "parameters", "macs": "multiply-accumulates"}


@dataclass(frozen=True, eq=False)
class Points:
    """Some networks: what they cost, and how good they are."""

    label: str
    colour: str
    costs: Array
    worth: Array


@dataclass(frozen=True)
class Panel:
    """One way to say how good networks are."""

    title: str
    points: Sequence[Points]
    larger_is_better: bool = True
    frontier: tuple[Array, Array] | None = None
    """Costs and worth of the best at every cost, where they are known beside the points."""
    shares: bool = False
    """Whether its points are shares of draws that cost at most as much, and say nothing of how good they are."""


def pareto(report: ReportData) -> dict[str, Any] | None:
    """What belief says of networks by their cost, and what those are worth that were trained or looked up."""
    if report.several or report.is_point:
        return None
    run = report.run
    told = [Limit.of(limit) for limit in run.config.limits if Limit.of(limit).name in COUNTED]
    priced = [Price.of(run.config.price).name] if run.config.price else []
    name = next(iter([*(limit.name for limit in told), *priced]), "parameters")
    counted = Counted(run.space, run.config.shape())
    panels = [panel for panel in (_by_belief(report, counted, name), _by_worth(report, counted, name)) if panel]
    costs = np.concatenate([own.costs for panel in panels for own in panel.points]) if panels else np.zeros(0)
    if not len(costs) or costs.min() == costs.max():
        return None
    most = next((limit.most for limit in told if limit.name == name), None)
    return {
        "svg": at_both_widths(lambda width: _figure(panels, TITLES[name], most, width)),
        "cost": TITLES[name],
        "drawn": any(panel.frontier for panel in panels),
        "shares": any(panel.shares for panel in panels),
        "worth": panels[-1].title if len(panels) > 1 or not report.learns else "",
        "limited": most is not None,
    }


def _by_belief(report: ReportData, counted: Counted, name: str) -> Panel | None:
    """Draws of belief, its mode and what was selected: how probable they are, or what share of draws costs less."""
    if not report.learns:
        return None
    belief, space, column = report.run.distribution, report.run.space, COUNTED.index(name)
    mode, chosen = belief.mode().unsqueeze(0), torch.tensor([report.run.architecture.choices])
    few = belief.exact and belief.architectures <= DRAWS
    drawn = belief.support() if few else belief.sample(DRAWS, Streams(report.run.seed)["architecture"])
    rows = [("from belief", PALE, drawn), ("mode", BLUE, mode), ("selected", ORANGE, chosen)]
    costs = [counted(choices)[:, column].numpy() for *_, choices in rows]
    if not belief.exact:
        order = np.sort(costs[0])
        shares = [np.searchsorted(order, own, side="right") / len(order) for own in costs]
        points = [Points(label, colour, *pair) for (label, colour, _), *pair in zip(rows, costs, shares, strict=True)]
        return Panel("share of draws that cost at most so much", points, shares=True)
    logs = [belief.log_prob(choices).detach().double().numpy() for *_, choices in rows]
    points = [
        Points(label, colour, own[finite], log[finite])
        for (label, colour, _), own, log in zip(rows, costs, logs, strict=True)
        for finite in [np.isfinite(log)]
    ]
    best, table, product = None, counted.table, belief.product
    if table is not None and product is not None:
        bounds = torch.full((len(COUNTED),), torch.inf, dtype=torch.float64)
        bounds[column] = torch.finfo(torch.float64).max
        found = front(product, replace(table, spare=bounds))
        if found is not None:
            log = belief.log_prob(found.choices.to(drawn)).detach().double().numpy()
            best = (found.costs[:, 0] + float(counted.base[column]), log)
    title = f"log-probability of {report.members}" if space.nested else "log-probability under belief, nats"
    return Panel(title, points, frontier=best)


def _by_worth(report: ReportData, counted: Counted, name: str) -> Panel | None:
    """Networks that were trained alone, or that a table has; None where there is at most one."""
    column, run = COUNTED.index(name), report.run

    def costs(texts: Sequence[str]) -> Array:
        choices = torch.tensor([run.space.parse(text).choices for text in texts])
        found: Array = counted(choices)[:, column].numpy()
        return found

    found = report.trust
    if found is not None:
        points = [
            Points(label, colour, costs([one.architecture for one in own]), np.array([one.worth for one in own]))
            for label, colour, source in (("drawn uniformly", GREEN, "uniform"), ("drawn from belief", BLUE, "belief"))
            for own in [[one for one in found.drawn if one.source == source]]
            if own
        ]
        points.append(Points("selected", ORANGE, costs([found.selected]), np.array([found.selected_worth])))
        return Panel(found.worth_is, points, found.better == "higher")
    fixed = [group for group in report.groups if group.option is not None]
    if not fixed or not report.split:
        return None
    metric = report.metrics[0]
    pairs = [(group.option, report.values(group.runs, "", metric.name)) for group in fixed]
    known = [(option, formatting.mean(values)) for option, values in pairs if values]
    chosen = report.network_values(metric.name)
    if not known or not chosen:
        return None
    choices = torch.tensor([[option] for option, _ in known])
    alone = Points("trained alone", GREEN, counted(choices)[:, column].numpy(), np.array([worth for _, worth in known]))
    own = Points("selected", ORANGE, costs([str(run.architecture)]), np.array(chosen))
    return Panel(f"{formatting.SPLITS[report.split]} {metric.title}", [alone, own], metric.higher_is_better)


def best_by_cost(costs: Array, worth: Array, *, larger_is_better: bool = True) -> tuple[Array, Array]:
    """Costs and worth of the networks than which none is as cheap and better, the cheapest first."""
    merit = worth if larger_is_better else -worth
    order = np.lexsort((-merit, costs))
    ahead = np.append(True, merit[order][1:] > np.maximum.accumulate(merit[order])[:-1])
    return costs[order][ahead], worth[order][ahead]


def _figure(panels: Sequence[Panel], cost: str, most: float | None, width: float) -> Markup:
    with style():
        is_narrow = width <= NARROW
        if is_narrow:
            figure = Figure(figsize=(width, 0.6 + 2.4 * len(panels)))
            found = figure.subplots(len(panels), 1, squeeze=False)[:, 0]
            margins(figure, 0.75, 0.14, 0.5, 0.3, hspace=0.55)
        else:
            figure = Figure(figsize=(width, 3.0))
            found = figure.subplots(1, len(panels), squeeze=False)[0]
            margins(figure, 0.7, 0.14, 0.5, 0.3, wspace=0.2)
        for axes, panel in zip(found, panels, strict=True):
            _draw(axes, panel, most)
            axes.set_xlabel(cost)
        return to_svg(figure, "pareto")


def _draw(axes: Axes, panel: Panel, most: float | None) -> None:
    grid(axes)
    axes.set_title(panel.title)
    costs, worth = (np.concatenate([getattr(own, name) for own in panel.points]) for name in ("costs", "worth"))
    if not panel.shares:
        x, y = best_by_cost(*(panel.frontier or (costs, worth)), larger_is_better=panel.larger_is_better)
        axes.step(np.append(x, max(costs.max(), x[-1])), np.append(y, y[-1]), where="post", color=MUTED, linewidth=1)
    for own in panel.points:
        several = len(own.costs) > 1 or own.colour == GREEN
        size, edge = (4, "none") if several else (7, INK)
        axes.plot(own.costs, own.worth, "o", color=own.colour, markersize=size, markeredgecolor=edge, label=own.label)
    if most is not None and most <= 1.5 * costs.max():
        axes.axvline(most, color=MUTED, linewidth=1, linestyle=":")
    if panel.frontier is not None:  # what belief hardly ever draws would press the rest into a line
        axes.set_ylim(bottom=max(axes.get_ylim()[0], worth.min() - 0.5 * (worth.max() - worth.min() + 1)))
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.legend(loc="best", fontsize=8, handletextpad=0.1, borderaxespad=0.2)
