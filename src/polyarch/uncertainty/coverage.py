"""Answering only where sure: the risk of what is answered against how much is answered, and where to draw the line."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import torch
from scipy.special import bdtr
from torch import Tensor

from polyarch.errors import PolyarchError
from polyarch.uncertainty.arrays import takes_arrays

LEVELS = 10
"""`threshold_for_risk` tries to keep a tenth of the inputs, two tenths, ..., all."""


@final
@dataclass(frozen=True, eq=False)
class RiskCoverage:
    """Risk against coverage: one point for every confidence that occurs, the most confident first.

    Inputs of equal confidence are kept or left out together.
    """

    confidence: Tensor
    """[points], the least confidence that is kept; falling."""
    coverage: Tensor
    """[points], share of inputs that are kept; rising to 1."""
    risk: Tensor
    """[points], share of errors among those that are kept."""

    @property
    def area(self) -> float:
        """Area under the curve of risk over coverage, as steps: 0 is perfect; less is better.

        At a coverage between two points the risk is that of the next, which keeps as much at least. Without ties it is
        the mean over k of the risk of the k most confident inputs.
        """
        widths = self.coverage.diff(prepend=self.coverage.new_zeros(1))
        return (widths * self.risk).sum().item()


@takes_arrays
def risk_coverage(confidence: Tensor, correct: Tensor) -> RiskCoverage:
    """The curve of risk against coverage.

    Args:
        confidence: [n], larger is surer.
        correct: [n] bool, whether the prediction is right.
    """
    confidence, correct = _checked(confidence, correct)
    order = confidence.argsort(descending=True)
    confidence, errors = confidence[order], (~correct[order]).double().cumsum(0)
    last = torch.ones_like(correct)
    last[:-1] = confidence[1:] < confidence[:-1]  # of every group of equals, the place where it ends
    kept = torch.arange(1, len(confidence) + 1, dtype=torch.float64)[last]
    return RiskCoverage(confidence=confidence[last], coverage=kept / len(confidence), risk=errors[last] / kept)


@takes_arrays
def risk_coverage_of(log_probs: Tensor, target: Tensor) -> RiskCoverage:
    """The curve of a classifier that answers where its predicted class is most probable.

    Args:
        log_probs: [n, classes], log-probabilities.
        target: [n] int64, true classes.
    """
    log_confidence, predicted = log_probs.cpu().max(-1)
    return risk_coverage(log_confidence.double().exp(), predicted == target.cpu())


@takes_arrays
def errors_last(correct: Tensor) -> RiskCoverage:
    """The best curve that so many errors allow: all of them come after everything that is right.

    Args:
        correct: [n] bool, whether the prediction is right.
    """
    ordered = correct.sort(descending=True).values
    return risk_coverage(torch.arange(len(ordered), 0, -1, dtype=torch.float64), ordered)


def examples_for_risk(risk: float, *, doubt: float = 0.05) -> int:
    """How many held-out inputs `threshold_for_risk` must keep at least, which it then must keep without an error."""
    for name, value in (("risk", risk), ("doubt", doubt)):
        if not 0 < value < 1:
            raise PolyarchError(f"{name} is {value}; it must be between 0 and 1, such as 0.05")
    return math.ceil(math.log(doubt / LEVELS) / math.log1p(-risk))


@takes_arrays
def threshold_for_risk(confidence: Tensor, correct: Tensor, risk: float, *, doubt: float = 0.05) -> float:
    """Above which confidence the risk is at most a chosen one, for new inputs and not on these alone.

    With probability 1 - `doubt` over the held-out inputs, the share of errors among new inputs of the same kind whose
    confidence is *above* the threshold is at most `risk`. Ten thresholds are tried: those that keep one tenth, two
    tenths, ..., all of the held-out inputs. A threshold passes if, were its true risk above `risk`, so few errors as it
    has would be seen with a probability of at most `doubt` / 10 (an exact binomial test). Given where a preset rank
    falls and how many inputs lie above it, these are independent draws of the inputs above it, so each test holds as it
    stands, ties or none; that there are ten is paid for by the division (Bonferroni). The smallest threshold whose risk
    *here* is at most `risk` would be the luckiest of many, and promise nothing.

    Args:
        confidence: [n] of held-out inputs, above 0; neither training nor a choice may have used them.
        correct: [n] bool, whether the prediction is right.
        risk: the largest share of errors among what is kept, between 0 and 1.
        doubt: how probable it may be that the promise is broken.

    Returns:
        The smallest threshold that passes; 0 where all inputs may be kept.

    Raises:
        PolyarchError: none passes.
    """
    least = examples_for_risk(risk, doubt=doubt)
    confidence, correct = _checked(confidence, correct)
    ordered = torch.cat([confidence.sort(descending=True).values, torch.zeros(1, dtype=torch.float64)])
    for level in range(LEVELS, 0, -1):
        threshold = ordered[-(-level * len(confidence) // LEVELS)].item()
        kept = confidence > threshold
        errors = int((kept & ~correct).sum())
        if kept.any() and bdtr(errors, int(kept.sum()), risk) <= doubt / LEVELS:
            return threshold
    raise PolyarchError(
        f"no threshold promises a risk of at most {risk:g} by {len(confidence)} held-out examples with {1 - doubt:.0%} "
        f"certainty (one must keep {least} of them without an error, or more with few); allow a larger risk, or hold "
        "out more"
    )


def _checked(confidence: Tensor, correct: Tensor) -> tuple[Tensor, Tensor]:
    """Both on the CPU, confidence in float64; raises unless they fit each other."""
    fits = confidence.dim() == 1 and confidence.shape == correct.shape and len(confidence) > 0
    if not fits or correct.dtype != torch.bool:
        raise PolyarchError(
            f"confidence and correct must be [n] with n > 0, the latter true or false, got {list(confidence.shape)} "
            f"and {correct.dtype} {list(correct.shape)}; give one of each an input"
        )
    if confidence.isnan().any():
        raise PolyarchError("a confidence is not a number; leave such inputs out")
    return confidence.detach().cpu().double(), correct.cpu()
