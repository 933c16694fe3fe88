"""A Task: data in disjoint splits, how inputs are standardised, and how outputs are judged."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar

from torch import Tensor, nn


@dataclass(frozen=True)
class Split:
    """Examples of one split, as they were read: `x` is [n, ...] (uint8 or float32), `y` is [n]."""

    x: Tensor
    y: Tensor

    def __len__(self) -> int:
        return len(self.y)


class Likelihood(ABC):
    """What a network's output says about a target."""

    outputs: int
    """How many numbers the network must produce for one example."""
    measure: ClassVar[str]
    """The name of what `measured` gives when averaged over examples: `accuracy`, `squared_error`."""

    @abstractmethod
    def log_likelihood(self, output: Tensor, target: Tensor) -> Tensor:
        """The log-probability of a target given an output, one number an example and never averaged.

        Args:
            output: [..., batch, outputs].
            target: broadcastable to [..., batch].

        Returns:
            [..., batch].
        """

    @abstractmethod
    def mixture(self, outputs: Tensor, weights: Tensor) -> Tensor:
        """The output whose likelihood is sum_m weights[m] p(target | outputs[m]), where one exists.

        Args:
            outputs: [members, ..., batch, outputs].
            weights: [members, ...], summing to 1 over members.

        Returns:
            [..., batch, outputs].
        """

    @abstractmethod
    def measured(self, output: Tensor, target: Tensor) -> Tensor:
        """The everyday measure of an example [..., batch]: 1 where a class is right, or the squared error."""

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """What `likelihood_from` needs to make this likelihood again."""


@dataclass(frozen=True)
class Classification(Likelihood):
    """Categorical likelihood; outputs are logits."""

    measure: ClassVar[str] = "accuracy"

    classes: int

    @property
    def outputs(self) -> int:  # type: ignore[override]
        """One logit a class."""
        return self.classes

    def log_likelihood(self, output: Tensor, target: Tensor) -> Tensor:
        """See `Likelihood.log_likelihood`."""
        target = target.expand(output.shape[:-1])
        # Not log_softmax and a gather: that would normalise every class to read off one, and copy strided
        # outputs.
        return output.gather(-1, target.unsqueeze(-1)).squeeze(-1) - output.logsumexp(-1)

    def mixture(self, outputs: Tensor, weights: Tensor) -> Tensor:
        """Log-probabilities of the mixture: probabilities are averaged, never logits (Eq. 3 of LDN)."""
        return (outputs.log_softmax(-1) + weights.log()[..., None, None]).logsumexp(0)

    def measured(self, output: Tensor, target: Tensor) -> Tensor:
        """1 where the most probable class is the right one."""
        return (output.argmax(-1) == target).to(output.dtype)

    def settings(self) -> dict[str, Any]:
        """See `Likelihood.settings`."""
        return {"kind": "classification", "classes": self.classes}


@dataclass(frozen=True)
class Gaussian(Likelihood):
    """Gaussian likelihood of a fixed standard deviation; the output is the mean."""

    measure: ClassVar[str] = "squared_error"

    scale: float = 1.0

    @property
    def outputs(self) -> int:  # type: ignore[override]
        """The mean alone."""
        return 1

    def log_likelihood(self, output: Tensor, target: Tensor) -> Tensor:
        """See `Likelihood.log_likelihood`."""
        # Not torch.distributions.Normal: it reads values back to validate them, which no captured step may.
        residual = (target - output.squeeze(-1)) / self.scale
        return -0.5 * residual.square() - math.log(self.scale * math.sqrt(2 * math.pi))

    def mixture(self, outputs: Tensor, weights: Tensor) -> Tensor:
        """The mean of the mixture; its shape is not Gaussian, so only the first moment is kept."""
        return (outputs * weights[..., None, None]).sum(0)

    def measured(self, output: Tensor, target: Tensor) -> Tensor:
        """Squared error of the mean."""
        return (output.squeeze(-1) - target).square()

    def settings(self) -> dict[str, Any]:
        """See `Likelihood.settings`."""
        return {"kind": "gaussian", "scale": self.scale}


def likelihood_from(settings: dict[str, Any]) -> Likelihood:
    """The likelihood that gave these `settings()`."""
    kinds: dict[str, type[Classification] | type[Gaussian]] = {
        "classification": Classification,
        "gaussian": Gaussian,
    }
    values = dict(settings)
    return kinds[values.pop("kind")](**values)


class Standardise(nn.Module):
    """Maps raw inputs (uint8 or float) to float32 of mean 0 and deviation 1 a channel or feature.

    Mean and deviation are those of the training split. It travels with the model, so that a model takes
    inputs exactly as they were read.
    """

    def __init__(self, mean: Tensor, std: Tensor) -> None:
        """Keeps `mean` and `std`, both broadcastable against one example."""
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("std", std)

    mean: Tensor
    std: Tensor

    def forward(self, x: Tensor) -> Tensor:
        """[n, ...] raw -> [n, ...] standardised."""
        return (x.to(self.mean.dtype) - self.mean) / self.std


@dataclass(frozen=True)
class Task:
    """What is to be learnt: splits, standardisation, likelihood, and what the data was."""

    name: str
    train: Split
    valid: Split | None
    test: Split | None
    likelihood: Likelihood
    standardise: Standardise
    fingerprint: str
    """Changes when any example, label, split or statistic changes."""
    source: dict[str, Any] | None = None
    """What `polyarch.data.load` was called with, so that a run can find its data again: `{"data": text,
    "settings": {...}}`; None for data in memory."""
    classes: tuple[str, ...] = field(default=())
    """Names of the classes, where the data has them."""

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one example: (features,) or (channels, height, width)."""
        return tuple(self.train.x.shape[1:])

    @property
    def shape(self) -> TaskShape:
        """What a network must know of the task."""
        return TaskShape(self.input_shape, self.likelihood.outputs)


@dataclass(frozen=True)
class TaskShape:
    """The sizes a network is built for: one example's shape and the number of outputs."""

    input: tuple[int, ...]
    outputs: int
