"""What fine-tuning a candidate is and what it tells: the recipe, looks at validation data, the curve."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Annotated

import torch
from torch import Tensor

from polyarch.data.task import Split
from polyarch.settings import AtLeast, NonNegative, PositiveFloat, Share, check


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """The recipe: momentum SGD at a constant rate, from the supernet's weights and without momentum at first."""

    lr: PositiveFloat = 0.01
    batch_size: Annotated[int, AtLeast(2)] = 64  # batch norm has no variance of one example
    momentum: Share = 0.9
    weight_decay: NonNegative = 5e-4

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True)
class Look:
    """A look at validation data during a pass."""

    step: int = 0
    """After so many minibatches."""
    examples: int = 0
    """On so many examples, the same for all that are compared; 0 is all of them."""
    recalibrate: bool = True
    """With batch-norm statistics of the network's own, measured on training data; else with those it has, which are
    the supernet's before the first step."""


@dataclass(frozen=True)
class Seen:
    """What a look saw."""

    loss: float
    """Mean negative log-likelihood."""
    metric: float
    """The likelihood's everyday metric, for classes the accuracy."""
    seconds: float


@dataclass(frozen=True)
class Curve:
    """What happened to one candidate; entry t - 1 of a tensor is of step t, all float64 [steps] on the CPU."""

    losses: Tensor
    """Mean loss of the step's minibatch, before the weights move on it."""
    start_seconds: float
    """Of taking the network out of the supernet."""
    step_seconds: float
    """Of all steps, looks aside: with capturing the first one on a GPU, and with measuring gradients where asked to."""
    gradient_norms: Tensor | None = None
    """L1 norm of the step's gradient over all trained parameters, weight decay left out."""
    gradient_sums: Tensor | None = None
    """L1 norm of the sum, coordinate by coordinate, of all gradients up to the step."""
    looks: dict[Look, Seen] = field(default_factory=dict)

    def seconds_of(self, steps: int) -> float:
        """What the start and the first steps took, each step its share of the time of all."""
        return self.start_seconds + (self.step_seconds * steps / len(self.losses) if steps else 0.0)


class Clock:
    """Says how long it is since it was last asked, once the device has done all it was told."""

    def __init__(self, device: torch.device) -> None:
        """It runs from now on."""
        self._device = device
        self._last = 0.0
        self.lap()

    def lap(self) -> float:
        """Seconds since the last time."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        now = time.perf_counter()
        passed, self._last = now - self._last, now
        return passed


def part_of(examples: Split, count: int, seed: int) -> Split:
    """So many of some examples, the same for the same seed; 0 is all of them."""
    if not 0 < count < len(examples):
        return examples
    order = torch.randperm(len(examples), generator=torch.Generator().manual_seed(seed))[:count]
    return examples.rows(order.to(examples.y.device))
