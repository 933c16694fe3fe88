"""How good predictions are, and whether their confidence can be trusted.

Classifiers are judged by their log-probabilities, so that nothing underflows before its logarithm is needed.
All is computed on the CPU in float64, so that no result depends on the order in which a device adds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from polyarch.errors import PolyarchError
from polyarch.uncertainty.arrays import takes_arrays
from polyarch.uncertainty.checks import checked
from polyarch.uncertainty.classes import Confusion, auc
from polyarch.uncertainty.gaussians import Gaussians

COVERAGES = (0.5, 0.8, 0.9, 0.95)
"""How much central intervals should hold, where it is measured how much they do."""


@final
@dataclass(frozen=True, eq=False)
class Reliability:
    """A reliability diagram: predictions sorted into bins of equal width by their confidence."""

    edges: Tensor
    """[bins + 1], from 0 to 1. Bin b is (edges[b], edges[b + 1]]; the first holds 0 too."""
    confidence: Tensor
    """[bins], mean probability of the predicted class; NaN where a bin is empty."""
    accuracy: Tensor
    """[bins], share of correct predictions; NaN where a bin is empty."""
    count: Tensor
    """[bins] int64, number of predictions."""


@takes_arrays
def accuracy(log_probs: Tensor, target: Tensor) -> float:
    """Share of examples whose most probable class is the true one.

    Args:
        log_probs: [n, classes], log-probabilities.
        target: [n] int64, true classes.

    Returns:
        mean_i [argmax_c p_ic = y_i]; of equally probable classes the first is predicted.
    """
    log_probs, target = checked(log_probs, target)
    return (log_probs.argmax(-1) == target).double().mean().item()


@takes_arrays
def log_likelihood(log_probs: Tensor, target: Tensor) -> float:
    """Mean log-probability of the true class, in nats.

    A logarithm, unlike the figure under that name in the released code of Antorán et al. 2020, which is the mean of p.

    Args:
        log_probs: [n, classes], log-probabilities; of a mixture, log sum_m w_m p_m.
        target: [n] int64, true classes.

    Returns:
        mean_i log p_i,y_i; minus infinity where a true class has probability 0.
    """
    log_probs, target = checked(log_probs, target)
    return log_probs.gather(-1, target.unsqueeze(-1)).mean().item()


@takes_arrays
def brier(log_probs: Tensor, target: Tensor) -> float:
    """Multi-class Brier score: 0 is perfect, 2 is certain and wrong.

    Args:
        log_probs: [n, classes], log-probabilities.
        target: [n] int64, true classes.

    Returns:
        mean_i sum_c (p_ic - [c = y_i])^2, summed over classes and not averaged over them.
    """
    log_probs, target = checked(log_probs, target)
    return (log_probs.exp() - one_hot(target, log_probs.shape[-1])).square().sum(-1).mean().item()


@takes_arrays
def reliability(log_probs: Tensor, target: Tensor, bins: int = 15) -> Reliability:
    """Confidence and accuracy of the predicted class, in bins of confidence.

    Args:
        log_probs: [n, classes], log-probabilities.
        target: [n] int64, true classes.
        bins: how many bins of equal width.

    Returns:
        The diagram; the confidence of example i is max_c p_ic.
    """
    log_probs, target = checked(log_probs, target)
    log_confidence, predicted = log_probs.max(-1)
    confidence = log_confidence.exp()
    edges, index = _binned(confidence, bins)
    count = index.bincount(minlength=bins)
    return Reliability(
        edges=edges,
        confidence=index.bincount(confidence, minlength=bins) / count,
        accuracy=index.bincount((predicted == target).double(), minlength=bins) / count,
        count=count,
    )


@takes_arrays
def ece(log_probs: Tensor, target: Tensor, bins: int = 15) -> float:
    """Expected calibration error of the predicted class (Guo et al. 2017, Eq. 3).

    Args:
        log_probs: [n, classes], log-probabilities.
        target: [n] int64, true classes.
        bins: how many bins of equal width.

    Returns:
        sum_b (count_b / n) |accuracy_b - confidence_b| over the bins of `reliability` that are not empty.
    """
    diagram = reliability(log_probs, target, bins)
    gaps = (diagram.accuracy - diagram.confidence).abs()
    return (diagram.count * gaps).nansum().item() / len(target)


@takes_arrays
def ece_all_classes(log_probs: Tensor, target: Tensor, bins: int = 10) -> float:
    """The calibration error in the released code of Antorán et al. 2020: not the usual one, kept to compare with it.

    All n * classes probabilities are sorted into bins of equal width. An entry is correct only if its class
    is both the predicted and the true one, and the share of correct entries is compared with the bin's upper
    edge. So even perfect predictions score above 0: their entries at 0 are compared with 1 / bins.

    The released code drops entries that are exactly 0 or, by rounding, above 1, and gives NaN if a bin is
    empty; here such entries fall in the first and the last bin, and an empty bin adds nothing.

    Args:
        log_probs: [n, classes], log-probabilities.
        target: [n] int64, true classes.
        bins: how many bins of equal width.

    Returns:
        sum_b (count_b / (n * classes)) |correct_b / count_b - upper edge_b|.
    """
    log_probs, target = checked(log_probs, target)
    predicted = log_probs.argmax(-1)
    correct = one_hot(target, log_probs.shape[-1]) * (predicted == target).unsqueeze(-1)
    edges, index = _binned(log_probs.exp().flatten(), bins)
    count = index.bincount(minlength=bins)
    corrects = index.bincount(correct.flatten().double(), minlength=bins)
    return (corrects - count * edges[1:]).abs().sum().item() / log_probs.numel()


@takes_arrays
def summary(log_probs: Tensor, target: Tensor) -> dict[str, float]:
    """What is measured of a classifier: by every class alike (`classes`), and by every example alike.

    Args:
        log_probs: [n, classes], log-probabilities.
        target: [n] int64, true classes.

    Returns:
        `accuracy`, `balanced_accuracy`, macro `f1`, `auc`, `log_likelihood`, `brier`, `ece` (15 bins) and
        `ece_all_classes` (10 bins), by name; no `auc` where all targets are of one class.
    """
    log_probs, target = checked(log_probs, target)
    confusion, area = Confusion.of(log_probs, target), auc(log_probs, target)
    return {
        "accuracy": accuracy(log_probs, target),
        "balanced_accuracy": confusion.balanced_accuracy,
        "f1": confusion.macro_f1,
        **({} if area is None else {"auc": area}),
        "log_likelihood": log_likelihood(log_probs, target),
        "brier": brier(log_probs, target),
        "ece": ece(log_probs, target),
        "ece_all_classes": ece_all_classes(log_probs, target),
    }


@takes_arrays
def regression_summary(said: Gaussians, target: Tensor) -> dict[str, float]:
    """What is measured of a network, or of a mixture of them, that predicts a number.

    Args:
        said: of n inputs.
        target: [n], true values.

    Returns:
        `rmse`, sqrt(mean_i (mean_i - y_i)^2); `mae`, mean_i |mean_i - y_i|; `r2`, the share of the targets' variance
        around their own mean that is explained, left out where they are all equal; `log_likelihood`, mean_i log p(y_i)
        in nats; `crps`, the mean continuous ranked probability score; and of central intervals that should hold 50, 80,
        90 and 95 % of the targets the share that they do hold, such as `coverage_90`, and their mean width, such as
        `width_90`.
    """
    if target.shape != said.mean.shape or len(target) == 0:
        raise PolyarchError(
            f"regression needs as many targets as predictions, and one at least, got {list(target.shape)} and "
            f"{list(said.mean.shape)}; pass targets [n]"
        )
    target = target.detach().cpu().double()
    residual = said.mean - target
    error, spread = residual.square().mean(), (target - target.mean()).square().mean()
    found = {
        "rmse": error.sqrt().item(),
        "mae": residual.abs().mean().item(),
        **({"r2": (1 - error / spread).item()} if target.min() < target.max() else {}),
        "log_likelihood": said.log_prob(target).mean().item(),
        "crps": said.crps(target).mean().item(),
    }
    centrality = said.centrality(target)
    for coverage in COVERAGES:
        low, high = said.interval(coverage)
        found[f"coverage_{round(100 * coverage)}"] = (centrality <= coverage).double().mean().item()
        found[f"width_{round(100 * coverage)}"] = (high - low).mean().item()
    return found


def _binned(probs: Tensor, bins: int) -> tuple[Tensor, Tensor]:
    """Edges [bins + 1] of equal bins on [0, 1], open on the left, and the bin [n] of each probability.

    The outermost edges bind nothing: 0 is in the first bin, and what rounding has put above 1 in the last.
    """
    if bins < 1:
        raise PolyarchError(f"there must be at least one bin, got bins={bins}")
    edges = torch.linspace(0, 1, bins + 1, dtype=torch.float64)
    return edges, torch.bucketize(probs, edges[1:-1])
