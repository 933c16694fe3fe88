"""The sections of a report for which networks predict: calibration, uncertainty, functions on the plane, hard images.

Each is None where it has nothing to say.
"""

from __future__ import annotations

import base64
import io
import math
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from polyarch.data.likelihood import Classification
from polyarch.data.rows import Rows, ends_of
from polyarch.data.task import Task
from polyarch.errors import PolyarchError
from polyarch.plotting import BLUE, GREEN, MUTED, Array, at_both_widths
from polyarch.report import formatting, uncertainty_figures
from polyarch.report import prediction_figures as figures
from polyarch.report.networks import Networks, predictive_of_all
from polyarch.report.report_data import MIXTURE, UNPRUNED, ReportData
from polyarch.runs import results
from polyarch.runs.results import largest
from polyarch.uncertainty.calibration import COVERAGES, reliability
from polyarch.uncertainty.coverage import errors_last, risk_coverage_of
from polyarch.uncertainty.early_exit import exit_curve_of
from polyarch.uncertainty.gaussians import Gaussians
from polyarch.uncertainty.predictive import Predictive

SIDE = 96
"""Cells along each side of a map."""
PANELS = 12
POINTS = 400
HARDEST = 12
EXITING = 2_000
"""Examples, at most, of which a curve of early exit is."""


def calibration(report: ReportData) -> dict[str, Any] | None:
    """Reliability of the selected network, the pruned and the full mixture; of several seeds, pooled."""
    if not report.classifies or not report.split:
        return None
    title = "This network" if report.is_point else "Selected network"
    kinds = [(title, report.network_kind, report.network_log_probs)]
    if report.has_mixture:
        kinds.append((report.mixture_title, MIXTURE, [found.log_probs for found in report.mixture_predictives]))
    if report.is_pruned:
        unpruned = [said.mixtures["unpruned"].log_probs for said in report.answers]
        kinds.append((f"Mixture, all {report.members}", UNPRUNED, unpruned))
    [metric] = [m for m in report.metrics if m.name == "ece"]
    diagrams = []
    for title, kind, log_probs in kinds:
        errors = report.values(report.runs, kind, metric.name)
        diagram = reliability(torch.cat(log_probs), report.examples.y.repeat(len(log_probs)))
        diagrams.append((title, f"ECE {metric.show(errors)}" if errors else "", diagram))
    counted = f"{formatting.SPLITS[report.split]} examples" + (", all seeds" if report.several else "")
    return {"svg": at_both_widths(partial(figures.reliability, diagrams, counted))}


def intervals(report: ReportData) -> dict[str, Any] | None:
    """How many numbers lie within intervals that should hold a share of them; of several seeds, pooled."""
    if not report.is_of_numbers or not report.split:
        return None
    said = [results.Networks.of(run, run.architecture).predict(report.examples.x) for run in report.runs]
    for run, found in zip(report.runs, said, strict=True):
        if run.trained and report.is_trained:
            alone = results.Networks.of(run.trained, run.trained.architecture)
            found["selected"] = alone.predict(report.examples.x)["selected"]
    kinds = {"network" if report.is_point else "selected network": ("selected", report.network_kind, GREEN)}
    if report.has_mixture:
        kinds[report.mixture] = ("ensemble", MIXTURE, BLUE)
    lines, rows = [], []
    for title, (name, kind, colour) in kinds.items():
        asked = [found[name] for found in said]
        own = [one.centrality(report.examples.y.double()) for one in asked if isinstance(one, Gaussians)]
        lines.append((title, colour, torch.cat(own)))
        rows.append((title, [_held(report, kind, round(100 * coverage)) for coverage in COVERAGES]))
    svg = at_both_widths(partial(uncertainty_figures.intervals, lines))
    return {"svg": svg, "coverages": [formatting.about_percent(c) for c in COVERAGES], "rows": rows}


def _held(report: ReportData, kind: str, percent: int) -> str:
    """The share of targets within intervals that should hold so many percent, and their width; means over seeds."""
    held, width = (report.values(report.runs, kind, f"{own}_{percent}") for own in ("coverage", "width"))
    return f"{formatting.percent(formatting.mean(held))}, {formatting.number(formatting.mean(width))}"


def uncertainty(report: ReportData) -> dict[str, Any] | None:
    """Whether the mixture knows when it errs: by its confidence, and by what its members disagree about."""
    asked = report.answers if report.classifies and report.split and report.has_mixture else []
    if not any(said.members > 1 for said in asked):
        return None
    risk, disagreement = _risk(report), _disagreement(report)
    return {"risk": risk, "disagreement": disagreement, "members": report.members} if risk or disagreement else None


def _risk(report: ReportData) -> dict[str, Any] | None:
    """Risk against coverage of the selected network and the mixture, and the AURC of each; None where nobody errs."""
    target = report.examples.y
    mixed = [found.log_probs for found in report.mixture_predictives]
    alone = "network" if report.is_point else "selected network"
    named = {alone: (GREEN, report.network_log_probs), report.mixture: (BLUE, mixed)}
    curves = {name: [risk_coverage_of(own, target) for own in found] for name, (_, found) in named.items()}
    if not any(curve.risk[-1] for own in curves.values() for curve in own):
        return None
    lines = [uncertainty_figures.Risk(name, named[name][0], own) for name, own in curves.items()]
    ideal = [errors_last(own.argmax(-1) == target) for own in mixed]
    lines.append(uncertainty_figures.Risk(f"errors of the {report.mixture} last", MUTED, ideal, is_ideal=True))
    areas = {name: formatting.AURC.show([curve.area for curve in own]) for name, own in curves.items()}
    return {"svg": at_both_widths(partial(uncertainty_figures.risks, lines)), "areas": areas}


def _disagreement(report: ReportData) -> dict[str, Any] | None:
    """Mutual information of right and wrong answers, of several seeds pooled; None where members do not disagree."""
    found = Predictive.joined(report.mixture_predictives)
    if not uncertainty_figures.disagrees(found.mutual_information):
        return None
    kinds = uncertainty_figures.right_and_wrong(found, report.examples.y.repeat(len(report.mixture_predictives)))
    auroc = kinds[-1].auroc
    svg = at_both_widths(partial(uncertainty_figures.information, kinds))
    return {"svg": svg, "told_apart": auroc is not None, "misleads": auroc is not None and auroc <= 0.5}


def early_exit(report: ReportData) -> dict[str, Any] | None:
    """Accuracy against mean depth where inputs leave early; None where networks do not answer after every block."""
    cut = any(report.choices) if report.is_nested and report.has_mixture else False
    if not cut or not report.classifies or not report.split:
        return None
    with suppress(PolyarchError):
        report.run.supernet().stepwise(report.run.space.architecture([0]))
        return _exits(report)
    return None


def _exits(report: ReportData) -> dict[str, Any]:
    examples = report.examples.some(EXITING)
    curves = []
    for own in report.networks:
        assert own.mixture is not None
        curves.append(exit_curve_of(own.mixture, examples.x.to(own.device), examples.y.to(own.device)))
    return {
        "svg": at_both_widths(partial(uncertainty_figures.exits, curves, int(report.decision.options[0]))),
        "examples": formatting.whole(len(examples)),
    }


# --------------------------------------------------------------------------------------------------
# Functions on the plane.


def maps(report: ReportData) -> dict[str, Any] | None:
    """Maps of what networks predict for every point of a plane."""
    task = report.task
    if task.input_shape != (2,) or task.tokens or task.parts or not (report.classifies or report.is_of_numbers):
        return None
    x = task.training.x[:].double().numpy()
    low, high = x.min(0), x.max(0)
    room = 0.12 * np.maximum(high - low, 1e-6)
    (left, bottom), (right, top) = low - room, high + room
    across, up = np.meshgrid(np.linspace(left, right, SIDE), np.linspace(bottom, top, SIDE))
    plane = torch.from_numpy(np.stack([across.ravel(), up.ravel()], -1)).to(task.training.x.dtype)
    paint = _Painter(task)
    if report.several:
        panels = _seeds(report, plane, paint)
    elif report.is_nested:
        panels = _options(report, plane, paint)
    else:
        panels = [figures.Panel("selected network", paint(_outputs(report.networks[0], plane)), strong=True)]
    points = np.linspace(0, len(x) - 1, min(POINTS, len(x))).astype(np.int64)
    shade = _classes(task) if report.classifies else np.full(len(x), np.nan)
    svg = at_both_widths(partial(figures.maps, panels, (left, right, bottom, top), x[points], shade[points]))
    return {"svg": svg, "classifies": report.classifies, "has_mixture": report.has_mixture and not report.is_trained}


def _classes(task: Task) -> Array:
    """Classes of the training examples; not a number where the run was not told."""
    classes: Array = task.training.y.double().numpy()
    return np.where(classes >= 0, classes, np.nan)


class _Painter:
    """Turns outputs on the plane into images."""

    def __init__(self, task: Task) -> None:
        self.classifies = isinstance(task.likelihood, Classification)
        self.middle = task.train.y.double().mean().item()
        self.half = max((task.train.y.double() - self.middle).abs().max().item(), 1e-9)

    def __call__(self, output: Tensor) -> Any:
        """[SIDE * SIDE, outputs], logits or log-probabilities or means, as an image."""
        if self.classifies:
            return figures.class_image(_square(output.softmax(-1)))
        return figures.signed_image(_square((output[..., 0] - self.middle) / self.half))


def _square(values: Tensor) -> Array:
    square: Array = values.double().unflatten(0, (SIDE, SIDE)).numpy()
    return square


def _outputs(networks: Networks, plane: Tensor) -> Tensor:
    """Of the mixture where there is one, else of the network."""
    return networks.outputs(networks.mixture.output if networks.mixture else networks.selected, plane)


def _options(report: ReportData, plane: Tensor, paint: _Painter) -> list[figures.Panel]:
    """The options of a nested decision one by one; for a search, the mixture and where its members disagree."""
    [own] = report.networks
    whole = own.unpruned or report.run.ensemble(largest(report.run)).to(own.device)
    members = own.outputs(whole.members, plane)
    [selected] = report.choices
    extra = 0 if own.mixture is None else 2 if paint.classifies else 1
    panels = []
    for k in picked(len(members), selected, PANELS - extra):
        title = f"{report.decision.name} {report.decision.options[k]}"
        title += ", selected" if k == selected and own.mixture else ""
        panels.append(figures.Panel(title, paint(members[k]), k == selected))
    if own.mixture is not None:
        panels.append(figures.Panel(report.mixture, paint(_outputs(own, plane))))
        if paint.classifies:
            doubt = predictive_of_all([own], plane).mutual_information
            panels.append(figures.Panel("disagreement", figures.strength_image(_square(doubt))))
    return panels


def _seeds(report: ReportData, plane: Tensor, paint: _Painter) -> list[figures.Panel]:
    """The answer of every seed, their mean, and where seeds disagree."""
    outputs = [_outputs(own, plane) for own in report.networks]
    titles = [f"seed {run.seed}" for run in report.runs]
    if report.is_nested and not report.is_point:
        name, options = report.decision.name, report.decision.options
        titles = [f"{title}, {name} {options[k]}" for title, k in zip(titles, report.choices, strict=True)]
    shown = list(zip(titles, outputs, strict=True))[: PANELS - 2]
    panels = [figures.Panel(title, paint(output)) for title, output in shown]
    if paint.classifies:
        members = torch.stack([output.log_softmax(-1) for output in outputs])
        together = Predictive.from_members(members, torch.full((len(members),), 1 / len(members)))
        panels.append(figures.Panel("mean of the seeds", paint(together.log_probs), strong=True))
        panels.append(figures.Panel("disagreement", figures.strength_image(_square(together.mutual_information))))
    else:
        panels.append(figures.Panel("mean of the seeds", paint(torch.stack(outputs).mean(0)), strong=True))
    return panels


def picked(count: int, selected: int, most: int) -> list[int]:
    """At most so many of `count` options: the first three, the selected and the last, then evenly between."""
    chosen = {d for d in (0, 1, 2, selected, count - 1) if d < count}
    while len(chosen) < min(most, count):
        rest = [d for d in range(count) if d not in chosen]
        chosen.add(max(rest, key=lambda d: min(abs(d - c) for c in chosen)))
    return sorted(chosen)


# --------------------------------------------------------------------------------------------------
# Images.


def gallery(report: ReportData) -> dict[str, Any] | None:
    """The images of largest predictive entropy: picture, true class, and the likeliest classes."""
    task, shape = report.task, report.task.input_shape
    if not report.classifies or not report.split or len(shape) != 3 or shape[0] not in (1, 3):
        return None
    examples = report.examples
    alone = report.is_trained or not report.has_mixture
    if not alone:
        several = report.several
        found = predictive_of_all(report.networks, examples.x) if several else report.mixture_predictives[0]
        log_probs, entropy, disagreement = found.log_probs, found.entropy, found.mutual_information
    else:
        log_probs = report.network_log_probs[0]
        entropy = torch.distributions.Categorical(logits=log_probs, validate_args=False).entropy()
        disagreement = torch.zeros_like(entropy)
    classes = task.classes or tuple(str(k) for k in range(log_probs.shape[-1]))
    cards = []
    for index in entropy.argsort(descending=True, stable=True)[:HARDEST].tolist():
        top = log_probs[index].exp().topk(min(3, len(classes)))
        true, guess = int(examples.y[index]), int(top.indices[0])
        bars = [
            {"name": classes[k], "width": f"{100 * p:.1f}", "value": formatting.percent(p, digits=0), "true": k == true}
            for p, k in zip(top.values.tolist(), top.indices.tolist(), strict=True)
        ]
        cards.append(
            {
                "src": _png(examples.x[index], task.training.x),
                "true": classes[true],
                "guess": classes[guess],
                "bars": bars,
                "entropy": formatting.number(entropy[index].item(), 2),
                "disagreement": formatting.number(disagreement[index].item(), 2) if not alone else "",
            }
        )
    return {"cards": cards, "most": formatting.number(math.log(len(classes)), 2), "classes": len(classes)}


def _png(image: Tensor, like: Tensor | Rows) -> str:
    """One image [channels, h, w] as a data URI, its values scaled by the range of all training images."""
    low, high = ends_of(like)
    scaled = ((image.double() - low) / max(high - low, 1e-9) * 255).clamp(0, 255).round()
    pixels = scaled.to(torch.uint8).permute(1, 2, 0).squeeze(-1).numpy()
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
