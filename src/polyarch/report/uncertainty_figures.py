"""Figures of uncertainty: reliability, risk against coverage, and where members of a mixture disagree.

As SVG of a page, and all of them in one file for `polyarch evaluate --figure`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import matplotlib as mpl
import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from polyarch.plotting import (
    BLUE,
    CARD,
    GREEN,
    MUTED,
    NARROW,
    ORANGE,
    WIDTH,
    grid,
    style,
    thinned,
    to_file,
    to_svg,
)
from polyarch.report.formatting import AURC, THIN, number, whole
from polyarch.report.prediction_figures import FEW, diagram
from polyarch.uncertainty.calibration import ece, reliability
from polyarch.uncertainty.coverage import RiskCoverage, errors_last, risk_coverage_of
from polyarch.uncertainty.detection import auroc
from polyarch.uncertainty.early_exit import ExitCurve
from polyarch.uncertainty.predictive import Predictive

LEAST = 1e-5
"""Nats of mutual information below which members agree, for all that matters."""
BINS = 30
STEADY = 0.1
"""The share of inputs from which on a risk is of enough of them to set the height of a figure."""
STARTS = (0.0, 0.6, 0.8)
"""Coverages at which a figure may begin, where nobody errs before."""
LONGEST = 24
"""Characters of a name that a legend can hold."""


@dataclass(frozen=True)
class Risk:
    """Risk against coverage of one predictor, one curve per run."""

    label: str
    colour: str
    curves: Sequence[RiskCoverage]
    is_ideal: bool = False
    """Whether it is what a predictor could reach at best: drawn faintly."""


@dataclass(frozen=True)
class Kind:
    """Mutual information of inputs of one kind."""

    name: str
    colour: str
    information: Tensor
    """[n], in nats; n > 0."""
    auroc: float | None = None
    """How well mutual information tells them from the inputs of the first kind."""

    @property
    def label(self) -> str:
        """Its name, how many inputs there are, and the AUROC."""
        short = self.name if len(self.name) <= LONGEST else f"{self.name[: LONGEST - 1]}…"
        apart = "" if self.auroc is None else f", AUROC {self.auroc:.3f}"
        return f"{short} ({whole(len(self.information))}){apart}"


def disagrees(information: Tensor) -> bool:
    """Whether a histogram of mutual information [n] would show anything."""
    return bool((information > LEAST).any())


def right_and_wrong(said: Predictive, target: Tensor) -> list[Kind]:
    """Right and wrong predictions as two kinds, or as one where all of them are.

    Args:
        said: by a mixture.
        target: [n] int64, true classes.
    """
    right = said.log_probs.argmax(-1) == target
    parts = said.mutual_information[right], said.mutual_information[~right]
    told = auroc(*parts) if all(map(len, parts)) else None
    kinds = Kind("right", BLUE, parts[0]), Kind("wrong", ORANGE, parts[1], told)
    return [kind for kind in kinds if len(kind.information)]


def risks(lines: Sequence[Risk], width: float = WIDTH) -> Markup:
    """Risk against coverage, for a page."""
    with style():
        figure, axes, columns = _panel(width, len(lines))
        _risk_panel(axes, lines, "wrong among what is answered", columns)
        return to_svg(figure, "risk")


def information(kinds: Sequence[Kind], width: float = WIDTH) -> Markup:
    """Histograms of mutual information over each other, for a page."""
    with style():
        figure, axes, columns = _panel(width, len(kinds))
        _information_panel(axes, kinds, "share of each kind of answer", columns)
        return to_svg(figure, "information")


def intervals(lines: Sequence[tuple[str, str, Tensor]], width: float = WIDTH) -> Markup:
    """The share of targets within central intervals against what these should hold, for a page.

    Args:
        lines: of each predictor its name, its colour and the `Gaussians.centrality` [n] of targets.
        width: inches.
    """
    with style():
        figure, axes, columns = _panel(width, len(lines))
        grid(axes)
        axes.plot([0, 1], [0, 1], color=MUTED, linewidth=1, linestyle=(0, (1, 1.8)))
        for thick, (name, colour, centrality) in zip((2.6, 1.3), lines, strict=False):
            nominal = np.r_[0, np.sort(centrality.numpy()), 1]
            held = np.r_[0, np.arange(1, len(centrality) + 1) / len(centrality), 1]
            points = thinned(len(nominal))
            axes.plot(nominal[points], held[points], color=colour, linewidth=thick, label=name)
        axes.set_ylim(0, 1)
        axes.yaxis.set_major_formatter(_percent)
        _shares(axes, 0, ticks=5)
        axes.set_xlabel("share that an interval should hold")
        _legend(axes, "share of targets that it holds", len(lines), columns)
        return to_svg(figure, "intervals")


def exits(curves: Sequence[ExitCurve], least: int, width: float = WIDTH) -> Markup:
    """Accuracy against mean depth, for a page: a line per run, and dots where all inputs leave at one depth.

    Args:
        curves: one per run.
        least: the smallest depth.
        width: inches.
    """
    with style():
        figure, axes, columns = _panel(width, 2)
        grid(axes)
        for place, curve in enumerate(curves):
            points = thinned(len(curve.depth))
            depth, accuracy = curve.depth.numpy()[points] + least, curve.accuracy.numpy()[points]
            names = ("every input by itself", "all inputs at one depth") if place == 0 else (None, None)
            axes.plot(depth, accuracy, color=BLUE, linewidth=1.6 if len(curves) == 1 else 1, label=names[0])
            numbers = np.arange(len(curve.together)) + least
            axes.plot(numbers, curve.together.numpy(), "o", color=MUTED, markersize=3.5, label=names[1])
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.yaxis.set_major_formatter(_percent)
        axes.set_xlabel("mean depth at which inputs leave")
        _legend(axes, "share of right answers", 2, columns)
        return to_svg(figure, "exits")


def _panel(width: float, entries: int) -> tuple[Figure, Axes, int]:
    """A figure of one panel, with room for a legend of so many entries above it, and the columns of that."""
    columns = 1 if width <= NARROW else entries
    below, above = 0.5, 0.36 + _LINE * -(-entries // columns) / 72
    height = below + 1.73 + above
    figure = Figure(figsize=(width, height))
    sides = 0.6 / width, 1 - 0.9 / width
    return figure, figure.add_axes((sides[0], below / height, sides[1], 1.73 / height)), columns


# --------------------------------------------------------------------------------------------------
# All in one file.

_SIDE, _LEFT, _BELOW, _ABOVE = (3.6, 2.5), 0.62, 0.5, 0.85
"""Inches of a panel, and of the room to its left, below it, and above it for its title and legend."""


def draw_evaluation(
    selected: Predictive, mixture: Predictive | None, target: Tensor, others: Mapping[str, Predictive], kind: str
) -> bytes:
    """Reliability, risk against coverage and mutual information, as the content of a file.

    Args:
        selected: what the selected network says about test data.
        mixture: what the mixture says; None where it has one member alone.
        target: [n] int64, true classes.
        others: what the mixture says about inputs of other kinds, two at most, by name; where there are none, right and
            wrong predictions are told apart.
        kind: `png` or `svg`.
    """
    predictors = {"selected network": selected} | ({} if mixture is None else {"mixture": mixture})
    panels: list[Callable[[Axes], None]] = [
        partial(_reliability_panel, said=said, target=target, title=f"Share of right answers, {name}")
        for name, said in predictors.items()
    ]
    panels.append(partial(_risk_panel, lines=_risks(predictors, target), title="Wrong among what is answered"))
    if mixture is not None and any(disagrees(said.mutual_information) for said in (mixture, *others.values())):
        kinds = _kinds(mixture, others) if others else right_and_wrong(mixture, target)
        panels.append(partial(_information_panel, kinds=kinds, title="Disagreement of members, share of each kind"))
    with style(), mpl.rc_context({"axes.titleweight": "bold"}):
        rows, step = -(-len(panels) // 2), _SIDE[1] + _BELOW + _ABOVE
        width, height = 2 * (_SIDE[0] + _LEFT) + 0.25, rows * step
        figure = Figure(figsize=(width, height), facecolor=CARD)
        for place, draw in enumerate(panels):
            left, bottom = _LEFT + place % 2 * (_SIDE[0] + _LEFT), height - (place // 2 + 1) * step + _BELOW
            draw(figure.add_axes((left / width, bottom / height, _SIDE[0] / width, _SIDE[1] / height)))
        return to_file(figure, kind, "evaluation")


def _risks(predictors: Mapping[str, Predictive], target: Tensor) -> list[Risk]:
    """One line per predictor, and the best that the last of them could do."""
    curves = {name: risk_coverage_of(said.log_probs, target) for name, said in predictors.items()}
    lines = [
        Risk(f"{name}, AURC {AURC.show([curve.area])}", colour, [curve])
        for (name, curve), colour in zip(curves.items(), (GREEN, BLUE), strict=False)
    ]
    name, said = list(predictors.items())[-1]
    ideal = errors_last(said.log_probs.argmax(-1) == target)
    return [*lines, Risk(f"errors of the {name} last, {AURC.show([ideal.area])}", MUTED, [ideal], is_ideal=True)]


def _kinds(mixture: Predictive, others: Mapping[str, Predictive]) -> list[Kind]:
    own = mixture.mutual_information
    return [
        Kind("test data", BLUE, own),
        *(
            Kind(name, colour, said.mutual_information, auroc(own, said.mutual_information))
            for (name, said), colour in zip(others.items(), (ORANGE, GREEN), strict=False)
        ),
    ]


# --------------------------------------------------------------------------------------------------
# Panels.

_LINE = 11.5
"""Points from one line of a legend to the next."""


def _reliability_panel(axes: Axes, said: Predictive, target: Tensor, title: str) -> None:
    diagram(axes, reliability(said.log_probs, target))
    _shares(axes, 0, ticks=3)
    axes.set_xlabel("confidence")
    notes = (
        f"ECE {number(ece(said.log_probs, target))}; orange: surer than right, blue: less sure",
        f"larger dots: more predictions; hollow: fewer than {FEW}",
    )
    for line, note in enumerate(reversed(notes)):
        place = (0, 1), (0, 8 + _LINE * line), "axes fraction", "offset points"
        axes.annotate(note, *place, color=MUTED, fontsize=8)
    axes.set_title(title, pad=10 + _LINE * len(notes))


def _risk_panel(axes: Axes, lines: Sequence[Risk], title: str, columns: int = 1) -> None:
    grid(axes)
    for width, line in zip((2.6, 1.3, 1), lines, strict=False):  # where two are the same, both are seen
        for place, curve in enumerate(line.curves):
            points = thinned(len(curve.coverage))
            coverage, risk = curve.coverage.numpy()[points], curve.risk.numpy()[points]
            axes.plot(
                np.r_[0, coverage],
                np.r_[risk[0], risk],  # the risk at a coverage between two points is that of the next
                drawstyle="steps-pre",
                color=line.colour,
                linewidth=1 if line.is_ideal or len(line.curves) > 1 else width,
                linestyle=(0, (1, 1.8)) if line.is_ideal else "-",
                label=line.label if place == 0 else None,
            )
    steady = [curve.risk[curve.coverage >= STEADY].max().item() for line in lines for curve in line.curves]
    axes.set_ylim(0, 1.08 * max(*steady, 0.01))
    axes.yaxis.set_major_formatter(_percent)
    _shares(axes, _first_shown(lines), ticks=5)
    axes.set_xlabel("share that is answered, the surest first")
    _legend(axes, title, len(lines), columns)


def _first_shown(lines: Sequence[Risk]) -> float:
    """The coverage at which the picture begins: later than 0 where there are no errors before."""
    erring = [curve for line in lines for curve in line.curves if curve.risk[-1] > 0]
    clean = [max(curve.coverage[curve.risk == 0].tolist(), default=0.0) for curve in erring]
    return max(start for start in STARTS if start <= max(min(clean, default=0.0) - 0.05, 0))


def _information_panel(axes: Axes, kinds: Sequence[Kind], title: str, columns: int = 1) -> None:
    grid(axes)
    found = [kind.information.numpy() for kind in kinds]
    most = float(max(values.max() for values in found))
    least = min(max(float(min(values.min() for values in found)), LEAST), most / 10)
    edges = np.geomspace(least, most, BINS + 1)
    for kind, values in zip(kinds, found, strict=True):
        count, _ = np.histogram(values.clip(*edges[[0, -1]]), edges)
        axes.stairs(count / len(values), edges, fill=True, color=kind.colour, alpha=0.16)
        axes.stairs(count / len(values), edges, color=kind.colour, linewidth=1.3, label=kind.label)
    axes.set_xscale("log")
    axes.set_xlim(least, most)
    axes.minorticks_off()
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.5f}".rstrip("0").rstrip("."))
    axes.yaxis.set_major_formatter(_percent)
    axes.set_xlabel("mutual information, nats")
    _legend(axes, title, len(kinds), columns)


def _shares(axes: Axes, first: float, ticks: int) -> None:
    """An axis of shares up to all, whose outermost labels do not stick out."""
    places = np.linspace(first, 1, ticks)
    axes.set_xlim(first, 1)
    axes.set_xticks(places, [_percent(share) for share in places])
    axes.get_xticklabels()[0].set_horizontalalignment("left")
    axes.get_xticklabels()[-1].set_horizontalalignment("right")


def _percent(share: float, _: object = None) -> str:
    return f"{100 * share:.3g}{THIN}%"


def _legend(axes: Axes, title: str, entries: int, columns: int) -> None:
    """Above the panel, where nothing is drawn, and the title above it."""
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(-0.01, 1.015),
        ncols=columns,
        borderaxespad=0,
        borderpad=0.2,
        labelspacing=0.28,
        columnspacing=2.2,
        handlelength=1.5,
        handletextpad=0.6,
        fontsize=8,
        labelcolor=MUTED,
    )
    axes.set_title(title, pad=10 + _LINE * -(-entries // columns))
