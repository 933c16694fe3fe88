"""What all measures of classifiers ask of log-probabilities and classes."""

from __future__ import annotations

import torch
from torch import Tensor

from polyarch.errors import PolyarchError

_NORMALISED = 0.05
"""How far log sum p may be from 0: wide enough for bfloat16, too narrow for probabilities or most logits."""


def checked(log_probs: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Both on the CPU, `log_probs` in float64 and off its graph; raises unless they fit each other."""
    if log_probs.dim() != 2 or target.shape != log_probs.shape[:1] or log_probs.numel() == 0:
        raise PolyarchError(
            "log-probabilities must be [n, classes] and targets [n], neither empty, got "
            f"{list(log_probs.shape)} and {list(target.shape)}; give one row and one class number per example"
        )
    if target.is_floating_point() or target.dtype == torch.bool:
        raise PolyarchError(f"targets must be class numbers in int64, got {target.dtype}; convert with .long()")
    log_probs, target = log_probs.detach().cpu().double(), target.cpu().long()
    classes = log_probs.shape[1]
    low, high = target.aminmax()
    if low < 0 or high >= classes:
        raise PolyarchError(
            f"targets run from {low.item()} to {high.item()}, but there are {classes} classes; "
            f"number them 0 to {classes - 1}"
        )
    # Written so that NaN fails too.
    normalised = log_probs.logsumexp(-1).abs() <= _NORMALISED
    if not normalised.all():
        row = normalised.long().argmin().item()
        raise PolyarchError(
            f"row {row} of the log-probabilities does not sum to 1 after exp, or is not a number; "
            "pass logits.log_softmax(-1), neither logits nor probabilities"
        )
    return log_probs, target
