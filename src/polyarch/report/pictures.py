"""Figures that need the networks to speak: calibration, functions on the plane, hard images."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from markupsafe import Markup
from PIL import Image
from torch import Tensor

from polyarch.data.task import Classification, Split, Task
from polyarch.report import evidence, figures, words
from polyarch.report.drawing import Array
from polyarch.report.evidence import Voices
from polyarch.runs.run import Run
from polyarch.uncertainty.calibration import reliability

SIDE = 96
"""Cells along each side of a map."""
PANELS = 12
POINTS = 400
HARDEST = 12


def stacked(rows: Sequence[Array]) -> Array:
    """Rows of equal length as one array."""
    return np.stack(list(rows))


def calibration(runs: Sequence[Run], voices: Sequence[Voices], name: str, split: Split, *, depth: bool) -> Markup:
    """Reliability of the selected network, the pruned and the full mixture; of several seeds, pooled."""
    kinds: list[tuple[str, str, list[Tensor]]] = [
        ("Selected network", "", [evidence.model_log_probs(v.model, split.x) for v in voices])
    ]
    pruned = [v.pruned for v in voices if v.pruned]
    if len(pruned) == len(voices):
        mixed = [evidence.ensemble_log_probs(e, split.x) for e in pruned]
        cut = any(v.full for v in voices)
        kinds.append(("Mixture, pruned" if cut else "Mixture", "_ensemble", mixed))
        if cut:
            full = [evidence.ensemble_log_probs(v.full or e, split.x) for v, e in zip(voices, pruned, strict=True)]
            kinds.append(("Mixture, all depths" if depth else "Mixture, not pruned", "_unpruned", full))
    elif len(runs) == 1 and evidence.is_point(runs[0]):
        kinds = [("This network", *kinds[0][1:])]
    diagrams = []
    measure = words.CLASSIFICATION[3]
    for title, kind, answers in kinds:
        errors = [evidence.metric(run, name, kind, "ece") for run in runs]
        shown = measure.show([e for e in errors if e is not None]) if None not in errors else "–"
        diagram = reliability(torch.cat(answers), split.y.repeat(len(answers)))
        diagrams.append((title, f"ECE {shown}", diagram))
    return figures.reliability(diagrams, f"{words.SPLITS[name]} examples" + (", all seeds" if len(runs) > 1 else ""))


# ---------------------------------------------------------------------------------------------------------------------
# Functions on the plane.


def functions(runs: Sequence[Run], voices: Sequence[Voices], task: Task) -> dict[str, Any] | None:
    """Maps of what networks say about every point of a plane; None for data that is no plane."""
    if task.input_shape != (2,):
        return None
    x = task.train.x.double().numpy()
    low, high = x.min(0), x.max(0)
    room = 0.12 * np.maximum(high - low, 1e-6)
    (left, bottom), (right, top) = low - room, high + room
    across, up = np.meshgrid(np.linspace(left, right, SIDE), np.linspace(bottom, top, SIDE))
    plane = torch.from_numpy(np.stack([across.ravel(), up.ravel()], -1)).to(task.train.x.dtype)
    paint = _Painter(task)
    if len(runs) > 1 and all(v.pruned for v in voices):
        panels = _seeds(runs, voices, plane, paint)
    elif evidence.is_depth(runs[0]):
        panels = _depths(runs[0], voices[0], plane, paint)
    else:
        panels = [figures.Panel("selected network", paint(_answers(voices[0], plane)))]
    points = np.linspace(0, len(x) - 1, min(POINTS, len(x))).astype(np.int64)
    shade = task.train.y.double().numpy() if paint.classifies else np.full(len(x), np.nan)
    svg = figures.maps(panels, (left, right, bottom, top), x[points], shade[points])
    return {"svg": svg, "seeds": len(runs) > 1, "classifies": paint.classifies, "point": evidence.is_point(runs[0])}


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


@torch.no_grad()
def _answers(voice: Voices, plane: Tensor) -> Tensor:
    answers: Tensor = voice.model(plane)
    return answers


@torch.no_grad()
def _depths(run: Run, voice: Voices, plane: Tensor, paint: _Painter) -> list[figures.Panel]:
    """Depths one by one; for a search, the mixture and where its depths disagree."""
    members = run.ensemble(evidence.largest(run)).members(plane)
    selected = evidence.depth_of(run)
    extra = 0 if voice.pruned is None else 2 if paint.classifies else 1
    panels = [
        figures.Panel(f"depth {d}" + (", selected" if d == selected and extra else ""), paint(members[d]), d == selected)
        for d in picked(len(members), selected, PANELS - extra)
    ]
    if voice.pruned is not None:
        panels.append(figures.Panel("mixture", paint(voice.pruned.output(plane))))
        if paint.classifies:
            doubt = evidence.predictive([voice.pruned], plane).mutual_information
            panels.append(figures.Panel("disagreement", figures.strength_image(_square(doubt))))
    return panels


@torch.no_grad()
def _seeds(runs: Sequence[Run], voices: Sequence[Voices], plane: Tensor, paint: _Painter) -> list[figures.Panel]:
    """The mixture of every seed, their mean, and where seeds and depths disagree."""
    ensembles = [v.pruned for v in voices if v.pruned is not None]
    outputs = [e.output(plane) for e in ensembles]
    panels = [
        figures.Panel(f"seed {run.seed}" + (f", depth {evidence.depth_of(run)}" if evidence.is_depth(run) else ""), paint(out))
        for run, out in list(zip(runs, outputs, strict=True))[: PANELS - 2]
    ]
    if paint.classifies:
        together = evidence.predictive(ensembles, plane)
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


# ---------------------------------------------------------------------------------------------------------------------
# Images.


def gallery(voices: Sequence[Voices], split: Split, task: Task) -> list[dict[str, Any]]:
    """The examples of largest predictive entropy: picture, true and predicted class, and the likeliest classes."""
    ensembles = [v.pruned for v in voices if v.pruned is not None]
    if ensembles:
        said = evidence.predictive(ensembles, split.x)
        log_probs, entropy, disagreement = said.log_probs, said.entropy, said.mutual_information
    else:
        log_probs = evidence.model_log_probs(voices[0].model, split.x)
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
                    {"name": classes[k], "width": f"{100 * p:.1f}", "value": words.percent(p, digits=0), "true": k == true}
                    for p, k in zip(top.values.tolist(), top.indices.tolist(), strict=True)
                ],
                "entropy": words.number(entropy[index].item(), 2),
                "disagreement": words.number(disagreement[index].item(), 2) if ensembles else "",
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
