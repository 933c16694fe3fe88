"""Sets that hold the truth as often as asked: split conformal prediction (Papadopoulos et al. 2002, Lei et al. 2018).

Every calibration example gets a score that says how strange its true answer looks to what predicts. The set of a new
input holds the answers that look no stranger than the quantile of these scores. If calibration examples and new inputs
are exchangeable, and nothing that predicts has seen the former, a set holds the truth with at least the probability
asked for, whatever predicts and however badly. That is *marginal*: on average over inputs and calibration data, not for
one kind of input. Given n calibration examples without ties it is Beta(k, n + 1 - k), k being the rank of the quantile
(Vovk 2012).
"""

from __future__ import annotations

import math
from fractions import Fraction

import torch
from torch import Tensor

from polyarch.errors import PolyarchError
from polyarch.uncertainty.arrays import takes_arrays


def examples_for_coverage(coverage: float) -> int:
    """How many calibration examples a coverage needs at least: the smallest n with ceil((n + 1) coverage) <= n."""
    share = _exactly(coverage)
    return math.ceil(share / (1 - share))


@takes_arrays
def conformal_quantile(scores: Tensor, coverage: float) -> float:
    """The score that a new one stays at or below with a probability of at least `coverage`.

    Args:
        scores: [n], of calibration examples; exchangeable with the new one.
        coverage: between 0 and 1, such as 0.9. The decimal number that it is written as is meant: 0.9 is 9/10.

    Returns:
        Of the scores, in rising order, number ceil((n + 1) coverage).
    """
    least = examples_for_coverage(coverage)
    if scores.dim() != 1 or len(scores) < least or scores.isnan().any():
        raise PolyarchError(
            f"a coverage of {coverage:g} needs scores [n] with n at least {least} and none of them NaN, got "
            f"{list(scores.shape)}; lower it, or hold out more"
        )
    rank = math.ceil((len(scores) + 1) * _exactly(coverage))
    return scores.detach().cpu().double().kthvalue(rank).values.item()


@takes_arrays
def class_scores(log_probs: Tensor, target: Tensor) -> Tensor:
    """1 - p(true class), [n]: its sets are the smallest on average (Sadinle et al. 2019).

    Args:
        log_probs: [n, classes], log-probabilities.
        target: [n] int64, true classes.
    """
    return 1 - log_probs.double().gather(-1, target.unsqueeze(-1)).squeeze(-1).exp()


@takes_arrays
def class_sets(log_probs: Tensor, quantile: float) -> Tensor:
    """Which classes are in the set of each input, [n, classes] bool.

    Those whose score is at most the quantile, and always the most probable class. Without the latter a set would be
    empty where no class is probable enough, which happens if what predicts errs less often than sets may: to answer
    nothing there would only make the promise true by the letter.

    Args:
        log_probs: [n, classes], log-probabilities.
        quantile: of `class_scores` of calibration examples.
    """
    likely = 1 - log_probs.double().exp() <= quantile
    return likely.scatter(-1, log_probs.argmax(-1, keepdim=True), True)


@takes_arrays
def number_scores(mean: Tensor, deviation: Tensor, target: Tensor) -> Tensor:
    """|target - mean| / deviation, [n]: an error of twice the size is no stranger where twice as much was expected.

    Args:
        mean: [n], predictions.
        deviation: [n], their predicted standard deviations, above 0.
        target: [n], true numbers.
    """
    return (target.double() - mean).abs() / deviation


@takes_arrays
def intervals(mean: Tensor, deviation: Tensor, quantile: float) -> Tensor:
    """The numbers whose score is at most the quantile: [n, 2], from mean - quantile deviation to the same above.

    Args:
        mean: [n], predictions.
        deviation: [n], their predicted standard deviations, above 0.
        quantile: of `number_scores` of calibration examples.
    """
    return torch.stack([mean - quantile * deviation, mean + quantile * deviation], -1)


def _exactly(coverage: float) -> Fraction:
    """The decimal number that was meant: 10 * 0.9 must be 9, and rounded up 9."""
    if not 0 < coverage < 1:
        raise PolyarchError(f"coverage is {coverage}; it must be between 0 and 1, such as 0.9")
    return Fraction(str(float(coverage)))
