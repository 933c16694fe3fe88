"""The page about a comparison: what is best, by how much, and whether it beats what nobody searched for."""

from __future__ import annotations

import shlex
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from polyarch import catalogue
from polyarch.data.likelihood import Classification, Gaussian
from polyarch.files import write_whole
from polyarch.plotting import BLUE, GREEN, LINE, MUTED, NARROW, at_both_widths, grid, margins, short, style, to_svg
from polyarch.report import formatting
from polyarch.report.formatting import Metric
from polyarch.report.templates import render
from polyarch.runs.standings import Comparison, Row
from polyarch.settings import written

PAGE = "comparison.html"
ERRORS = 2.0
"""Standard errors from which on a difference counts."""
BESIDE = ("log_likelihood", "ece", "crps")
"""Metrics beside the one that rows are ranked by."""
LONGEST = 80
"""Characters of an architecture's text that a table has room for."""


def write_comparison(found: Comparison) -> Path:
    """Writes `comparison.html` into a comparison's folder: one file that needs no network."""
    path = found.folder / PAGE
    write_whole(path, render("comparison.html.j2", _context(found)).encode("utf-8", "backslashreplace"))
    return path


def _context(found: Comparison) -> dict[str, Any]:
    rows, metrics = found.rows, _metrics(found)
    done = [row for row in rows if row.found]
    where = formatting.SPLITS.get(found.split, "")
    seeds = list(dict.fromkeys(run.seed for run in found.grid.runs))
    contents = {"table": "Results", "seeds": "Seeds"} if done else {}
    contents |= {"baselines": "Baselines", "runs": "Runs", "made": "How it was made"}
    return {
        "data": found.grid.data["name"],
        "methods": [_name(found, row) for row in sorted(rows, key=_order(found)) if not row.entrant.baseline],
        "headline": _headline(found, done, metrics),
        "finding": _finding(found, rows, done),
        "tiles": [
            ("runs", formatting.whole(sum(len(row.found) for row in rows)), f"of {len(found.grid.runs)}"),
            ("seeds", formatting.ranges(seeds), ""),
            ("budget of a run", formatting.whole(found.grid.budget), "examples passed"),
        ],
        "contents": list(contents.items()),
        "where": where,
        "optimistic": found.split == "select",
        "examples": formatting.whole(found.grid.data["examples"].get(found.split, 0)),
        "table": {
            "first": metrics[0].title if metrics else "",
            "metrics": metrics,
            "rows": [_line(found, row, done, metrics) for row in rows] if done else [],
        },
        "svg": at_both_widths(lambda width: _figure(found, done, metrics[0], width)) if done else "",
        "baselines": list({row.entrant.name: row.entrant.about for row in rows if row.entrant.baseline}.items()),
        "runs": [line for row in rows for line in _runs(found, row, metrics)],
        "settings": [_settings(found, row) for row in sorted(rows, key=_order(found))],
        "command": f"polyarch compare --out {shlex.quote(str(found.folder))}",
    }


def _metrics(found: Comparison) -> list[Metric]:
    """Those that every run has, the one that rows are ranked by first."""
    likelihood = found.likelihood
    if isinstance(likelihood, Classification):
        known: Sequence[Metric] = formatting.CLASSIFICATION
    elif isinstance(likelihood, Gaussian):
        known = formatting.REGRESSION
    else:
        known = formatting.metrics_of(likelihood)
    shown = {metric.name: metric for metric in known if metric.name in found.metrics}
    first, *_ = found.metrics or [""]
    if first and first not in shown:
        shown[first] = Metric(first, formatting.titled(first), "mean over examples", found.higher_is_better)
    return [shown[name] for name in dict.fromkeys((first, *BESIDE)) if name in shown]


def _order(found: Comparison) -> Any:
    """As it was asked for."""
    return lambda row: found.grid.entrants.index(row.entrant)


def _name(found: Comparison, row: Row) -> str:
    """With its space where there are several."""
    name = catalogue.short(row.entrant.name)
    return f"{name}, {_space(found, row)}" if _space(found, row) else name


def _space(found: Comparison, row: Row) -> str:
    several = len({entrant.space for entrant in found.grid.entrants}) > 1
    return catalogue.short(row.entrant.space) if several else ""


def _headline(found: Comparison, done: Sequence[Row], metrics: Sequence[Metric]) -> str:
    if not done:
        return "No run is finished yet."
    first = [row for row in done if row.rank == 1]
    names = " and ".join(_name(found, row) for row in first)
    value = metrics[0].show([row.mean(metrics[0].name) or 0.0 for row in first[:1]])
    what = f"{formatting.SPLITS[found.split]} {metrics[0].title} of {value}, mean over {len(first[0].found)} seeds"
    return f"{names[0].upper()}{names[1:]} {'does' if len(first) == 1 else 'do'} best: a {what}."


def _finding(found: Comparison, rows: Sequence[Row], done: Sequence[Row]) -> list[tuple[str, list[str]]]:
    """Whether searching was worth it, how sure that is, and what is missing."""
    worth, sure, lacks = [], [], []
    methods = [row for row in done if not row.entrant.baseline]
    plain = [row for row in done if row.entrant.baseline]
    if methods and plain:
        best, nobody = methods[0], plain[0]
        above = (best.rank or 0) < (nobody.rank or 0)
        verdict = "is ahead of" if above else "is not ahead of"
        worth.append(
            f"The best method, {_name(found, best)}, {verdict} the best of what nobody searched for, "
            f"{_name(found, nobody)}."
        )
    close = [row for row in done if row.behind and (row.behind[1] is None or row.behind[0] < ERRORS * row.behind[1])]
    if close:
        sure.append(
            f"By these seeds {', '.join(_name(found, row) for row in close)} cannot be told from the first: less than "
            f"{ERRORS:g} standard errors behind."
        )
    elif len(done) > 1:
        sure.append(f"All others are more than {ERRORS:g} standard errors behind.")
    for row in rows:
        if row.failed:
            lacks.append(
                f"{_name(found, row)}: {len(row.failed)} failed, the first since {next(iter(row.failed.values()))}."
            )
        if row.waiting:
            lacks.append(f"{_name(found, row)}: {row.waiting} not finished.")
    told = {"Worth it?": worth, "How sure?": sure, "Missing": lacks}
    return [(name, sentences) for name, sentences in told.items() if sentences]


def _line(found: Comparison, row: Row, done: Sequence[Row], metrics: Sequence[Metric]) -> dict[str, Any]:
    """A row of the table of results."""
    cells = []
    for metric in metrics:
        means = [own.mean(metric.name) or 0.0 for own in done]
        best = metric.show([max(means) if metric.higher_is_better else min(means)])
        values = row.values(metric.name)
        text = metric.show(values) if values else "–"
        cells.append({"text": text, "best": bool(values) and metric.show([formatting.mean(values)]) == best})
    return {
        "name": catalogue.short(row.entrant.name),
        "space": _space(found, row),
        "baseline": row.entrant.baseline,
        "rank": row.rank or "–",
        "n": len(row.found),
        "cells": cells,
        "behind": _behind(row, metrics[0]),
        "spent": "–" if row.spent is None else formatting.whole(row.spent),
        "parameters": formatting.whole(statistics.fmean(own.parameters for own in row.found)) if row.found else "–",
    }


def _behind(row: Row, metric: Metric) -> str:
    if row.behind is None:
        return ""
    value, error = row.behind
    return formatting.percent(value, error) if metric.percent else formatting.number(value, metric.digits, error)


def _runs(found: Comparison, row: Row, metrics: Sequence[Metric]) -> list[dict[str, Any]]:
    lines = [
        {
            "name": own.run.name,
            "seed": own.run.seed,
            "selected": short(own.architecture, LONGEST),
            "value": metrics[0].show([own.metrics[metrics[0].name]]),
            "epochs": own.epochs,
        }
        for own in row.found
    ]
    for name, why in row.failed.items():
        [run] = [run for run in found.grid.runs if run.name == name]
        lines.append({"name": name, "seed": run.seed, "selected": f"failed: {why}", "value": "–", "epochs": "–"})
    return lines


def _settings(found: Comparison, row: Row) -> tuple[str, dict[str, str]]:
    """What a method was set to, and to search what."""
    config = found.grid.config_of(row.entrant)
    flat: dict[str, str] = {}

    def add(prefix: str, values: dict[str, Any]) -> None:
        for name, value in values.items():
            if isinstance(value, dict):
                add(f"{prefix}{name}.", value)
            else:
                flat[f"{prefix}{name}"] = written(tuple(value) if isinstance(value, list) else value)

    add("", {name: value for name, value in config.method["settings"].items() if name != "architecture"})
    return _name(found, row), flat


def _figure(found: Comparison, rows: Sequence[Row], metric: Metric, width: float) -> Markup:
    """A line for every row, a dot for every run."""
    with style():
        narrow = width <= NARROW
        most = 18 if narrow else 34
        height = 0.62 + 0.34 * len(rows)
        figure = Figure(figsize=(width, height))
        axes = figure.subplots()
        margins(figure, 0.09 + 0.066 * min(most, max(len(_name(found, row)) for row in rows)), 0.2, 0.46, 0.1)
        scale = 100 if metric.percent else 1
        for seed in dict.fromkeys(run.seed for run in found.grid.runs):
            points = [
                (scale * own.metrics[metric.name], place)
                for place, row in enumerate(rows)
                for own in row.found
                if own.run.seed == seed
            ]
            axes.add_line(Line2D(*zip(*points, strict=True), color=LINE, linewidth=0.8, zorder=1))
        for place, row in enumerate(rows):
            values = [scale * value for value in row.values(metric.name)]
            colour = GREEN if row.entrant.baseline else BLUE
            axes.scatter(values, [place] * len(values), s=16, color=colour, alpha=0.75, linewidths=0, zorder=2)
            axes.plot([formatting.mean(values)] * 2, [place - 0.28, place + 0.28], color=colour, linewidth=2, zorder=3)
        axes.set_yticks(range(len(rows)), [short(_name(found, row), most) for row in rows])
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_xlabel(
            f"{formatting.SPLITS[found.split]} {metric.title}{', %' if metric.percent else ''}", color=MUTED
        )
        grid(axes, "x")
        return to_svg(figure, "seeds")
