"""One number that makes a prediction as sure as it should be (Guo et al. 2017), on the log of a mixture."""

from __future__ import annotations

import torch
from scipy.optimize import brentq
from torch import Tensor

from polyarch.errors import PolyarchError
from polyarch.uncertainty.arrays import takes_arrays

NOTICED = 1.92
"""Nats of log-likelihood that a temperature must gain, the 95 % point of the likelihood-ratio test (half of
chi-squared's 3.84): a few examples ask for any temperature, and a well calibrated prediction is spoilt by it."""
HOTTEST = 20.0
"""Temperatures are sought between this and one by this."""


@takes_arrays
def fit_temperature(log_probs: Tensor, target: Tensor, counts: Tensor | None = None) -> float:
    """The temperature T at which softmax(log p / T) has the largest log-likelihood.

    That is concave in 1 / T, so the one place where its slope is zero is looked for. Where every prediction is right,
    there is none: the surer, the better, without end. Then nothing is known of errors, and the temperature is 1; as it
    is where the examples do not ask for another, by a likelihood-ratio test at the level 5 % (`NOTICED`).

    Args:
        log_probs: [n, classes], log-probabilities of examples that weights were not learnt on.
        target: [n] int64, true classes.
        counts: [n], how much each example counts; all alike unless told.

    Returns:
        Above 1 where predictions are too sure, below where they are not sure enough.
    """
    if log_probs.dim() != 2 or target.shape != log_probs.shape[:1] or log_probs.numel() == 0:
        raise PolyarchError(
            f"log-probabilities must be [n, classes] and targets [n], neither empty, got {list(log_probs.shape)} and "
            f"{list(target.shape)}; give one row and one class number per example"
        )
    log_probs, target = log_probs.detach().cpu().double(), target.cpu()
    finite = log_probs.clamp_min(torch.finfo(torch.float64).min / HOTTEST)  # 0 * -inf is no number
    true = finite.gather(-1, target.unsqueeze(-1)).squeeze(-1)
    if (true == finite.amax(-1)).all():
        return 1.0

    counts = torch.ones_like(true) if counts is None else counts.cpu().double()
    counts = counts * counts.sum() / counts.square().sum()  # unequal ones are worth fewer examples (Kish 1965)

    def slope(sharpness: float) -> float:
        expected = ((sharpness * finite).softmax(-1) * finite).sum(-1)
        return (counts * (true - expected)).mean().item()

    def total(sharpness: float) -> float:
        return (counts * (sharpness * true - (sharpness * finite).logsumexp(-1))).sum().item()

    if slope(HOTTEST) >= 0:
        best = HOTTEST
    elif slope(1 / HOTTEST) <= 0:
        best = 1 / HOTTEST
    else:
        best = brentq(slope, 1 / HOTTEST, HOTTEST)
    return 1 / best if total(best) - total(1.0) >= NOTICED else 1.0
