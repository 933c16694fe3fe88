"""How a search went: what it was worth from epoch to epoch, what was watched beside it, and whether it collapsed."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from polyarch.plotting import BLUE, GREEN, at_both_widths, short
from polyarch.report import formatting, time_figures
from polyarch.report.report_data import ReportData
from polyarch.report.time_figures import Line, Panel
from polyarch.report.trajectory import Trajectory
from polyarch.spaces.cells import cells_of
from polyarch.tables.columns import better_of

TITLES = {"log_likelihood": "log-likelihood, nats", "objective": "objective"}
"""Of what a search is worth besides the likelihood's metric."""
WATCHED = {
    "skip_share": Panel("skips among the mode's operations", (), percent=True, from_zero=True),
    "cell_depth": Panel("depth of the mode's cell, edges", (), whole=True, from_zero=True),
    "sigma": Panel("deviation of the logits", ()),
    "effective_samples": Panel("effective samples", ()),
    "hessian_eigenvalue": Panel("architecture Hessian: largest eigenvalue", ()),
    "hessian_trace": Panel("architecture Hessian: trace", ()),
    "discretisation_gap": Panel("loss of the mode above the supernet's, nats", ()),
}
"""What else may have been watched, in the order of its panels, which have no lines yet."""


def search_progress(report: ReportData) -> dict[str, Any] | None:
    """What the search was worth from epoch to epoch; a nested decision has a map, so only where more was watched."""
    if report.is_point or len(report.trajectories[0].epochs) < 2:
        return None
    split = "select" if "select" in report.trajectories[0].values else "train"
    truth, watched = _truth_panel(report), _watched(report)
    if report.is_nested and not truth and not watched:
        return None
    others = [time_figures.MOVED, *watched] if report.learns else watched
    main = _main(report, split)
    if truth:  # on an axis of its own: a table has its numbers of other data, or after another training
        others.insert(0, truth)
    return {
        "svg": at_both_widths(
            partial(time_figures.search_progress, report.trajectories, main, others, _collapses(report.trajectories))
        ),
        "where": formatting.SPLITS[split],
        "lines": {line.label for line in main.lines},
        "notes": [sentence for sentence in (collapse(report), _changes(report), _truth(report)) if sentence],
    }


def _main(report: ReportData, split: str) -> Panel:
    """What the search was worth: its mode or mixture, and the supernet that mixes all operations, if there is one."""
    values = report.trajectories[0].values[split]
    metric = report.task.likelihood.metric
    name = next(name for name in (metric, "log_likelihood", "objective") if name in values)
    lines = [Line(split, name, report.about(), colour=BLUE)]
    if f"supernet_{name}" in values:
        lines.append(Line(split, f"supernet_{name}", report.about("supernet_"), colour=GREEN))
    title = f"{formatting.titled(name) if name == metric else TITLES[name]} on {formatting.SPLITS[split]} data"
    return Panel(title, lines, percent=name in formatting.PERCENT)


def _watched(report: ReportData) -> list[Panel]:
    """What the method watched, in whatever part of a line that stands."""
    values = report.trajectories[0].values
    parts = [part for part in ("train", "select", "step", "watch") if part in values]
    homes = {name: part for name in WATCHED for part in parts if name in values[part]}
    panels = [replace(WATCHED[name], lines=[Line(part, name, colour=BLUE)]) for name, part in homes.items()]
    cells = cells_of(report.run.space)
    if "skip_share" in homes and cells is not None and cells.most_skips < 1:
        panels[0] = replace(panels[0], levels=[(cells.most_skips, "collapse above")])
    return panels


# --------------------------------------------------------------------------------------------------
# Ground truth.


def _truth_panel(report: ReportData) -> Panel | None:
    """What the table has for the mode; accuracies as shares."""
    if not all("table" in trajectory.values for trajectory in report.trajectories):
        return None
    scale, column = _scale(report), report.run.config.column
    known = report.result(report.run).get("truth", {})
    random, best = (known.get("random") or {}).get("mean"), known.get("best")
    levels = [(v / (scale or 1), name) for v, name in ((random, "random ones"), (best, "the best")) if v is not None]
    line = Line("table", "truth", "mode", scale or 1)
    by = "predicted" if known.get("predicted") else "by the table"
    return Panel(f"{short(column, 30)} of the mode, {by}", [line], percent=scale is not None, levels=levels)


def _scale(report: ReportData) -> float | None:
    """What the table's numbers are to be divided by to be shares; None where they are no accuracies."""
    if better_of(report.run.config.column) != "higher":
        return None
    tables = [trajectory.values["table"] for trajectory in report.trajectories if "table" in trajectory.values]
    seen = [float(np.nanmax(table["truth"])) for table in tables]
    best = (report.result(report.run).get("truth") or {}).get("best")
    return 100.0 if max([best or 0.0, *seen]) > 1 else 1.0


def _truth(report: ReportData) -> str:
    """What the table has for what was selected, beside plain baselines."""
    known = [result["truth"] for result in report.results if "truth" in result]
    if not known:
        return ""
    scale = _scale(report)

    def show(value: float, deviation: float | None = None) -> str:
        if scale is None:
            return formatting.number(value, 3, deviation)
        return formatting.percent(value / scale, None if deviation is None else deviation / scale)

    own = [truth["selected"] for truth in known if truth["selected"] is not None]
    reached = show(formatting.mean(own), statistics.stdev(own) if len(own) > 1 else None) if own else "nothing"
    which = "selected architectures" if report.several else "selected architecture"
    column = f"{'predicted ' if known[0].get('predicted') else ''}{known[0]['column']}"
    parts = [f"By the table, {column} of the {which} is {reached}"]
    if known[0]["random"] is not None:
        parts.append(f"of random ones {show(known[0]['random']['mean'], known[0]['random']['std'])}")
    if known[0]["best"] is not None:
        parts.append(f"of the best {show(known[0]['best'])}")
    return ", ".join(parts) + ". Nothing was chosen by it."


# --------------------------------------------------------------------------------------------------
# In formatting.


def _changes(report: ReportData) -> str:
    if not report.learns:
        return ""
    counts = [len(trajectory.changes) for trajectory in report.trajectories]
    if max(counts) == 0:
        return "The mode of belief never changed."
    if report.several:
        span = f"{min(counts)} to {max(counts)} times" if min(counts) < max(counts) else _times(counts[0])
        return f"The mode of belief changed {span} per seed."
    last = f"{'' if counts[0] == 1 else 'last '}after epoch {report.trajectories[0].changes[-1]:.0f}"
    return f"The mode of belief changed {_times(counts[0])}, {last}."


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def _collapses(trajectories: Sequence[Trajectory]) -> list[float]:
    """When each run that ever collapsed did so first."""
    found = []
    for trajectory in trajectories:
        collapsed = np.nan_to_num(trajectory.values.get("watch", {}).get("collapsed", np.zeros(len(trajectory.epochs))))
        found += trajectory.epochs[collapsed > 0][:1].tolist()
    return found


def _kept(trajectory: Trajectory, name: str) -> float:
    """One thing that was watched, of what was kept."""
    found = trajectory.kept_value("watch", name)
    return np.nan if found is None else float(found)


def collapse(report: ReportData) -> str:
    """Whether cells became little more than skips, when first, and whether the selected ones are; nothing if never."""
    first = _collapses(report.trajectories)
    if not first:
        return ""
    ended = sum(_kept(trajectory, "collapsed") == 1 for trajectory in report.trajectories)
    if report.several:
        when = f"at epoch {first[0]:.0f}" if len(first) == 1 else f"first at epoch {min(first):.0f}"
        return (
            f"The search collapsed for {len(first)} of {len(report.runs)} seeds, {when}; of the kept cells "
            f"{ended or 'none'} {'is' if ended == 1 else 'are'} little more than skips."
        )
    for_good = "" if ended else ", but not for good"
    share = formatting.about_percent(_kept(report.trajectories[0], "skip_share"))
    return f"The search collapsed at epoch {first[0]:.0f}{for_good}: {share} of the kept mode's operations are skips."
