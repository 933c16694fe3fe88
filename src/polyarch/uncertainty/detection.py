"""How well a number tells inputs of another kind (other data, attacked inputs) from those that a model is for.

In all of this the *outside* inputs are the positive ones, and a larger score means "more likely outside": an entropy, a
mutual information, one minus a probability.
"""

from __future__ import annotations

import torch
from torch import Tensor

from polyarch.errors import PolyarchError
from polyarch.uncertainty.arrays import takes_arrays
from polyarch.uncertainty.predictive import Predictive

SCORES = ("mutual_information", "entropy", "confidence")
"""What `detection` tells inputs apart by; a score falls as the confidence rises: one minus the top probability."""


@takes_arrays
def auroc(inside: Tensor, outside: Tensor) -> float:
    """Area under the ROC curve: how often an outside input scores above an inside one.

    Args:
        inside: [n], scores of inputs that the model is for: the negative ones.
        outside: [m], scores of the others: the positive ones.

    Returns:
        P(outside > inside) + P(outside = inside) / 2 over all pairs; 0.5 is guessing, 1 is perfect.
    """
    inside, outside = _checked(inside, outside)
    ordered = inside.sort().values
    below = torch.searchsorted(ordered, outside, side="left")
    not_above = torch.searchsorted(ordered, outside, side="right")
    return (below + not_above).double().mean().item() / (2 * len(inside))


@takes_arrays
def fpr95(inside: Tensor, outside: Tensor) -> float:
    """False-positive rate at a true-positive rate of 95 %: what it costs to notice most of the outside inputs.

    Outside inputs are the positive ones. Papers that call the inside inputs positive report another number, which is
    `fpr95(-outside, -inside)`.

    Args:
        inside: [n], scores of inputs that the model is for.
        outside: [m], scores of the others.

    Returns:
        The share of inside inputs whose score reaches the highest threshold that at least 95 % of the outside ones
        reach; 0 is perfect, 0.95 is guessing.
    """
    inside, outside = _checked(inside, outside)
    noticed = -(-95 * len(outside) // 100)  # rounded up, in whole numbers: no float is 0.95
    threshold = outside.sort(descending=True).values[noticed - 1]
    return (inside >= threshold).double().mean().item()


def detection(inside: Predictive, outside: Predictive) -> dict[str, dict[str, float]]:
    """How well each of `SCORES` tells outside inputs from inside ones.

    Args:
        inside: what a mixture says about inputs that it is for.
        outside: what it says about the others.

    Returns:
        For each of `SCORES`, `auroc` and `fpr95`.
    """
    found = {}
    for name in SCORES:
        ours, theirs = _score(inside, name), _score(outside, name)
        found[name] = {"auroc": auroc(ours, theirs), "fpr95": fpr95(ours, theirs)}
    return found


def _score(said: Predictive, name: str) -> Tensor:
    """The larger, the more likely outside: [n]."""
    score: Tensor = 1 - said.confidence if name == "confidence" else getattr(said, name)
    return score


def _checked(inside: Tensor, outside: Tensor) -> tuple[Tensor, Tensor]:
    """Both on the CPU in float64; raises unless they are rows of numbers."""
    for name, scores in (("inside", inside), ("outside", outside)):
        if scores.dim() != 1 or len(scores) == 0 or scores.isnan().any():
            raise PolyarchError(
                f"{name} scores must be [n] with n > 0 and none of them NaN, got {list(scores.shape)}; give one number "
                "an input"
            )
    return inside.detach().cpu().double(), outside.detach().cpu().double()
