"""Attacks: inputs changed as little as a budget allows, so that a model errs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from polyarch.data.rows import ends_of
from polyarch.errors import PolyarchError
from polyarch.settings import at_least
from polyarch.uncertainty.arrays import takes_arrays


@takes_arrays
def pgd(
    log_probs_of: Callable[[Tensor], Tensor],
    x: Tensor,
    y: Tensor,
    *,
    budget: float,
    steps: int,
    step_size: float,
    generator: torch.Generator,
    low: float = 0.0,
    high: float = 1.0,
    batch: int = 256,
) -> Tensor:
    """Projected gradient descent in the maximum norm (Madry et al. 2018), through the averaged prediction.

    From a start drawn evenly from the ball of radius `budget` around every input, each step moves every pixel by
    `step_size` in the direction that lowers the log-probability of the true class, and then back into the ball and the
    range. Of a mixture that is log sum_m w_m p_m(y): a member's gradient counts by its share of the true class's
    probability. The start is clipped to the range too; the released code of the paper on stochastic architectures
    leaves it outside until after the first step.

    Parameters, buffers and torch's own generators stay as they were.

    Args:
        log_probs_of: the model, in evaluation mode: raw inputs [n, ...] to log-probabilities [n, classes], such as
            `Ensemble.output`.
        x: [n, ...], raw inputs between `low` and `high`, on the model's device.
        y: [n] int64, true classes, on the model's device.
        budget: the most that a pixel may change, as a share of the range `high - low`.
        steps: how many.
        step_size: how far one goes, as a share of the range.
        generator: of the start, on the CPU; the same for every device and every `batch`.
        low: the lowest value that a pixel can have.
        high: the highest.
        batch: how many inputs are attacked at once.

    Returns:
        Attacked inputs [n, ...], floating-point also where `x` is not.
    """
    at_least("steps", steps, 1)
    for name, value in (("budget", budget), ("step_size", step_size)):
        if not 0 < value <= 1:
            raise PolyarchError(f"{name} is {value}; it must be above 0 and at most 1, a share of the range of pixels")
    x = x if x.is_floating_point() else x.float()
    if x.min() < low or x.max() > high:
        raise PolyarchError(
            f"inputs run from {low:g} to {high:g}, outside their range of {low:g} to {high:g}; "
            "give the range that they have"
        )
    radius, step = budget * (high - low), step_size * (high - low)
    start = (2 * torch.rand(x.shape, generator=generator) - 1).to(x) * radius
    parts = zip(x.split(batch), y.split(batch), start.split(batch), strict=True)

    def attacked(clean: Tensor, true: Tensor, away: Tensor) -> Tensor:
        lowest, highest = (clean - radius).clamp_min(low), (clean + radius).clamp_max(high)
        moved = (clean + away).clamp(lowest, highest)
        for _ in range(steps):
            uphill = _gradient(log_probs_of, moved, true)
            moved = (moved - step * uphill.sign()).clamp(lowest, highest)
        return moved

    return torch.cat([attacked(*part) for part in parts])


def _gradient(log_probs_of: Callable[[Tensor], Tensor], x: Tensor, y: Tensor) -> Tensor:
    """Of every example's log-probability of its true class, by the example: like `x`."""
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        # Examples do not meet in evaluation mode, so the gradient of the sum holds each one's own.
        fit = log_probs_of(x).gather(-1, y.unsqueeze(-1)).sum()
        (gradient,) = torch.autograd.grad(fit, x)
    return gradient


@takes_arrays
def image_range(x: Any, highest_byte: float = 255.0) -> tuple[float, float]:
    """The lowest and the highest value that a pixel can have, where inputs are images in a known range.

    Args:
        x: [n, ...], raw inputs.
        highest_byte: what white is, for images of bytes (uint8).

    Returns:
        (0, `highest_byte`) for images of bytes, (0, 1) for floating-point images that keep to that.

    Raises:
        PolyarchError: the inputs are something else.
    """
    if len(x.shape) != 4:
        raise PolyarchError(
            f"an attack changes images [channels, height, width] within a known range, not inputs {list(x.shape[1:])}; "
            "use a run on images"
        )
    if x.dtype == torch.uint8:
        return 0.0, highest_byte
    low, high = ends_of(x)
    if low < 0 or high > 1:
        raise PolyarchError(
            f"an attack needs images in a known range: bytes (uint8) from 0 to 255 or numbers from 0 to 1, and these "
            f"run from {x.min().item():g} to {x.max().item():g}; scale them to that range and search again"
        )
    return 0.0, 1.0
