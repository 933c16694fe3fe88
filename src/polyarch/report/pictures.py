"""Figures that need the networks to speak: calibration, uncertainty, functions on the plane, hard images."""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
import torch
from markupsafe import Markup
from PIL import Image
from torch import Tensor

from polyarch.data.labels import labelled
from polyarch.data.task import Classification, Task
from polyarch.plotting import BLUE, GREEN, MUTED, Array
from polyarch.report import evidence, uncertainty_figures, words
from polyarch.report import prediction_figures as figures
from polyarch.report.evidence import Voices
from polyarch.report.story import MIXED, UNPRUNED, Story
from polyarch.runs.results import largest
from polyarch.uncertainty.calibration import reliability
from polyarch.uncertainty.coverage import errors_last, risk_coverage_of
from polyarch.uncertainty.predictive import Predictive

SIDE = 96
"""Cells along each side of a map."""
PANELS = 12
POINTS = 400
HARDEST = 12


def calibration(story: Story) -> Markup:
    """Reliability of the selected network, the pruned and the full mixture; of several seeds, pooled."""
    split, name = story.judged, story.split
    assert split is not None
    assert name is not None
    title = "This network" if story.is_point else "Selected network"
    kinds = [(title, "", story.networks_said)]
    if story.is_mixed:
        title = "Mixture, pruned" if story.is_cut else "Mixture"
        kinds.append((title, MIXED, [said.log_probs for said in story.mixtures_said]))
    if story.is_cut:
        full = [(v, v.full or v.pruned) for v in story.voices]
        kinds.append(("Mixture, all depths", UNPRUNED, [v.log_probs(e.output, split.x) for v, e in full if e]))
    [measure] = [m for m in story.measures if m.name == "ece"]
    diagrams = []
    for title, kind, answers in kinds:
        errors = story.values(story.runs, kind, measure.name)
        diagram = reliability(torch.cat(answers), split.y.repeat(len(answers)))
        diagrams.append((title, f"ECE {measure.show(errors)}" if errors else "", diagram))
    return figures.reliability(diagrams, f"{words.SPLITS[name]} examples" + (", all seeds" if story.several else ""))


def risk(story: Story) -> tuple[Markup, dict[str, str]] | None:
    """Risk against coverage of the selected network and the mixture, and the AURC of each; None where nobody errs."""
    split = story.judged
    assert split is not None
    mixed = [said.log_probs for said in story.mixtures_said]
    alone = "network" if story.is_point else "selected network"
    named = {alone: (GREEN, story.networks_said), "mixture": (BLUE, mixed)}
    curves = {name: [risk_coverage_of(own, split.y) for own in said] for name, (_, said) in named.items()}
    if not any(curve.risk[-1] for own in curves.values() for curve in own):
        return None
    lines = [uncertainty_figures.Risk(name, named[name][0], own) for name, own in curves.items()]
    ideal = [errors_last(own.argmax(-1) == split.y) for own in mixed]
    lines.append(uncertainty_figures.Risk("errors of the mixture last", MUTED, ideal, is_ideal=True))
    areas = {name: words.AURC.show([curve.area for curve in own]) for name, own in curves.items()}
    return uncertainty_figures.risks(lines), areas


def disagreement(story: Story) -> tuple[Markup, float | None] | None:
    """Mutual information of right and wrong answers, of several seeds pooled; the AUROC where there are both.

    None where members do not disagree.
    """
    split, said = story.judged, Predictive.joined(story.mixtures_said)
    assert split is not None
    if not uncertainty_figures.disagrees(said.mutual_information):
        return None
    kinds = uncertainty_figures.right_and_wrong(said, split.y.repeat(len(story.mixtures_said)))
    return uncertainty_figures.information(kinds), kinds[-1].auroc


# --------------------------------------------------------------------------------------------------
# Functions on the plane.


def functions(story: Story) -> Markup:
    """Maps of what networks say about every point of a plane."""
    task = story.task
    x = task.train.x.double().numpy()
    low, high = x.min(0), x.max(0)
    room = 0.12 * np.maximum(high - low, 1e-6)
    (left, bottom), (right, top) = low - room, high + room
    across, up = np.meshgrid(np.linspace(left, right, SIDE), np.linspace(bottom, top, SIDE))
    plane = torch.from_numpy(np.stack([across.ravel(), up.ravel()], -1)).to(task.train.x.dtype)
    paint = _Painter(task)
    if story.several:
        panels = _seeds(story, plane, paint)
    elif story.is_depth:
        panels = _depths(story, plane, paint)
    else:
        panels = [figures.Panel("selected network", paint(_answers(story.voices[0], plane)), strong=True)]
    points = np.linspace(0, len(x) - 1, min(POINTS, len(x))).astype(np.int64)
    shade = _labels(story) if story.classifies else np.full(len(x), np.nan)
    return figures.maps(panels, (left, right, bottom, top), x[points], shade[points])


def _labels(story: Story) -> Array:
    """Classes of the training examples; not a number where the run was not told."""
    labels, count = story.task.train.y.double(), story.run.config.labels
    if count:
        labels[~labelled(story.task, count)] = torch.nan
    return labels.numpy()


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
        return figures.signed_image(_square((output.squeeze(-1) - self.middle) / self.half))


def _square(values: Tensor) -> Array:
    square: Array = values.double().unflatten(0, (SIDE, SIDE)).numpy()
    return square


def _answers(voice: Voices, plane: Tensor) -> Tensor:
    """Of the mixture where there is one, else of the network."""
    return voice.answers(voice.pruned.output if voice.pruned else voice.model, plane)


def _depths(story: Story, plane: Tensor, paint: _Painter) -> list[figures.Panel]:
    """Depths one by one; for a search, the mixture and where its depths disagree."""
    [voice] = story.voices
    whole = voice.full or story.run.ensemble(largest(story.run)).to(voice.device)
    members = voice.answers(whole.members, plane)
    selected, pruned = story.depths[0], voice.pruned
    extra = 0 if pruned is None else 2 if paint.classifies else 1
    panels = [
        figures.Panel(
            f"depth {d}" + (", selected" if d == selected and pruned else ""),
            paint(members[d]),
            d == selected,
        )
        for d in picked(len(members), selected, PANELS - extra)
    ]
    if pruned is not None:
        panels.append(figures.Panel("mixture", paint(_answers(voice, plane))))
        if paint.classifies:
            doubt = evidence.predictive([voice], plane).mutual_information
            panels.append(figures.Panel("disagreement", figures.strength_image(_square(doubt))))
    return panels


def _seeds(story: Story, plane: Tensor, paint: _Painter) -> list[figures.Panel]:
    """The answer of every seed, their mean, and where seeds and depths disagree."""
    outputs = [_answers(voice, plane) for voice in story.voices]
    titles = [f"seed {run.seed}" for run in story.runs]
    if story.is_depth and not story.is_point:
        titles = [f"{title}, depth {depth}" for title, depth in zip(titles, story.depths, strict=True)]
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
    """At most so many of `count` depths: the first three, the selected and the last, then evenly between."""
    chosen = {d for d in (0, 1, 2, selected, count - 1) if d < count}
    while len(chosen) < min(most, count):
        rest = [d for d in range(count) if d not in chosen]
        chosen.add(max(rest, key=lambda d: min(abs(d - c) for c in chosen)))
    return sorted(chosen)


# --------------------------------------------------------------------------------------------------
# Images.


def gallery(story: Story) -> list[dict[str, Any]]:
    """The examples of largest predictive entropy: picture, true class, and the likeliest classes."""
    task, (_, split) = story.task, evidence.judged_split(story.task) or ("train", story.task.train)
    if story.is_mixed:
        said = evidence.predictive(story.voices, split.x)
        log_probs, entropy, disagreement = said.log_probs, said.entropy, said.mutual_information
    else:
        log_probs = story.voices[0].log_probs(story.voices[0].model, split.x)
        entropy = torch.distributions.Categorical(logits=log_probs, validate_args=False).entropy()
        disagreement = torch.zeros_like(entropy)
    classes = task.classes or tuple(str(k) for k in range(log_probs.shape[-1]))
    cards = []
    for index in entropy.argsort(descending=True, stable=True)[:HARDEST].tolist():
        top = log_probs[index].exp().topk(min(3, len(classes)))
        true, guess = int(split.y[index]), int(top.indices[0])
        cards.append(
            {
                "src": _png(split.x[index], task.train.x),
                "true": classes[true],
                "guess": classes[guess],
                "wrong": true != guess,
                "bars": [
                    {
                        "name": classes[k],
                        "width": f"{100 * p:.1f}",
                        "value": words.percent(p, digits=0),
                        "true": k == true,
                    }
                    for p, k in zip(top.values.tolist(), top.indices.tolist(), strict=True)
                ],
                "entropy": words.number(entropy[index].item(), 2),
                "disagreement": words.number(disagreement[index].item(), 2) if story.is_mixed else "",
            }
        )
    return cards


def _png(image: Tensor, like: Tensor) -> str:
    """One image [channels, h, w] as a data URI, its values scaled by the range of all training images."""
    low, high = like.min().double(), like.max().double()
    scaled = ((image.double() - low) / (high - low).clamp_min(1e-9) * 255).clamp(0, 255).round()
    pixels = scaled.to(torch.uint8).permute(1, 2, 0).squeeze(-1).numpy()
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
