"""Whether a belief can be trusted: the section of a report, where networks were trained or looked up to find out."""

from __future__ import annotations

from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.stats import rankdata

from polyarch.plotting import BLUE, GREEN, MUTED, NARROW, ORANGE, at_both_widths, grid, margins, style, to_svg
from polyarch.ranking import Trust
from polyarch.ranking.comparisons import Comparison
from polyarch.ranking.trust import Source, shown
from polyarch.report.report_data import ReportData

COLOURS: dict[Source, str] = {"belief": BLUE, "uniform": GREEN}


def trust(report: ReportData) -> dict[str, Any] | None:
    """What was found, question by question, and every architecture that it was found by."""
    found = report.trust
    if found is None:
        return None
    how = {
        "training": "Architectures were drawn from belief and uniformly, half of each, and trained alone.",
        "table": "Architectures were drawn from belief and uniformly, half of each, and looked up in a table.",
    }
    questions = (
        ("does belief order them?", "Kendall's tau of belief and worth", found.order),
        ("does the selected network beat a random one?", "probability of being the better", found.selected_wins),
        ("does a draw from belief beat a uniform one?", "probability of being the better", found.belief_wins),
    )
    return {
        "about": how[found.by],
        "svg": at_both_widths(lambda width: _figure(found, width)),
        "rows": [
            {"question": question, "cells": [measure, shown(own.estimate), f"{own.even:g}", own.verdict, _more(own)]}
            for question, measure, own in questions
        ],
        "sentences": found.sentences(),
    }


def _more(found: Comparison) -> str:
    if found.settled or found.estimate.value is None:
        return "–"
    return "beyond a thousand" if found.more is None else f"about {found.more}"


def _figure(found: Trust, width: float) -> Markup:
    """Worth by where an architecture was drawn from, and against how probable belief makes it."""
    with style():
        if width <= NARROW:
            figure = Figure(figsize=(width, 4.6))
            axes = figure.subplots(2, 1, sharey=True)
            margins(figure, 0.75, 0.14, 0.5, 0.13, hspace=0.25)
        else:
            figure = Figure(figsize=(width, 2.6))
            axes = figure.subplots(1, 2, sharey=True, width_ratios=(1, 2))
            margins(figure, 0.83, 0.14, 0.5, 0.13, wspace=0.06)
        for panel in axes:
            grid(panel)
            panel.axhline(found.selected_worth, color=ORANGE, linewidth=1.2)
        _by_source(axes[0], found)
        _by_belief(axes[1], found)
        axes[0].set_ylabel("worth")
        axes[1].annotate(
            "selected",
            (1, found.selected_worth),
            (-2, 3),
            ("axes fraction", "data"),
            "offset points",
            color=ORANGE,
            ha="right",
        )
        return to_svg(figure, "trust")


def _by_source(axes: Axes, found: Trust) -> None:
    for place, source in enumerate(COLOURS):
        worth = [one.worth for one in found.drawn if one.source == source]
        across = place + 0.25 * np.linspace(-1, 1, len(worth) + 2)[1:-1]
        axes.plot(across, worth, "o", color=COLOURS[source], markersize=4, alpha=0.8)
    axes.set_xlim(-0.5, 1.5)
    axes.set_xticks([0, 1], ["from belief", "uniformly"])


def _by_belief(axes: Axes, found: Trust) -> None:
    if found.order.estimate.value is None:
        axes.annotate(found.order.undefined, (0.5, 0.1), xycoords="axes fraction", ha="center", color=MUTED)
        axes.set_xticks([])
        return
    ranks = rankdata([-np.inf if one.log_belief is None else one.log_belief for one in found.drawn])
    for rank, one in zip(ranks, found.drawn, strict=True):
        axes.plot([rank], [one.worth], "o", color=COLOURS[one.source], markersize=4, alpha=0.8)
    axes.set_xlabel("rank by belief: the most probable at the right")
