"""A Task: data in named, disjoint splits, how inputs are standardised, and how outputs are evaluated."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from typing_extensions import override

from polyarch.errors import PolyarchError

NOT_FOR_LEARNING = ("calibrate", "test")
"""The splits that no method is given."""


@dataclass(frozen=True, eq=False)
class Split:
    """Examples: `x` is [n, ...], `y` is [n].

    Of a task as they were read, uint8 or float32; of a problem standardised and on the device.
    """

    x: Tensor
    y: Tensor

    def __len__(self) -> int:
        return len(self.y)

    def some(self, most: int) -> Split:
        """At most so many of them, in one fixed random order; all as they are where there are no more."""
        if len(self) <= most:
            return self
        rows = fixed_order(len(self))[:most].to(self.y.device)
        return Split(self.x[rows], self.y[rows])


def fixed_order(count: int) -> Tensor:
    """The one random order of so many examples in which they are looked at where nothing is learnt."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(0))


class Likelihood(ABC):
    """What a network's output says about a target."""

    outputs: int
    """How many numbers the network must produce for one example."""
    metric: ClassVar[str]
    """The name of what `metric_values` gives when averaged over examples: `accuracy`, `squared_error`."""

    @abstractmethod
    def log_likelihood(self, output: Tensor, target: Tensor) -> Tensor:
        """The log-probability of a target given an output, one number per example and never averaged.

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
    def metric_values(self, output: Tensor, target: Tensor) -> Tensor:
        """The everyday metric per example [..., batch]: 1 where a class is right, or the squared error."""

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """What `likelihood_from` needs to make this likelihood again."""


@dataclass(frozen=True)
class Classification(Likelihood):
    """Categorical likelihood; outputs are logits."""

    metric: ClassVar[str] = "accuracy"

    classes: int

    @property
    def outputs(self) -> int:  # type: ignore[override]
        """One logit per class."""
        return self.classes

    @override
    def log_likelihood(self, output: Tensor, target: Tensor) -> Tensor:
        target = target.expand(output.shape[:-1])
        # Not log_softmax and a gather: that would normalise every class to read off one, and copy strided
        # outputs.
        return output.gather(-1, target.unsqueeze(-1)).squeeze(-1) - output.logsumexp(-1)

    @override
    def mixture(self, outputs: Tensor, weights: Tensor) -> Tensor:
        """Log-probabilities of the mixture: probabilities are averaged, never logits (Antorán et al. 2020, Eq. 3)."""
        return (outputs.log_softmax(-1) + weights.log()[..., None, None]).logsumexp(0)

    @override
    def metric_values(self, output: Tensor, target: Tensor) -> Tensor:
        """1 where the most probable class is the right one."""
        return (output.argmax(-1) == target).to(output.dtype)

    @override
    def settings(self) -> dict[str, Any]:
        return {"kind": "classification", "classes": self.classes}


@dataclass(frozen=True)
class Gaussian(Likelihood):
    """Gaussian likelihood of a fixed standard deviation; the output is the mean."""

    metric: ClassVar[str] = "squared_error"

    scale: float = 1.0

    @property
    def outputs(self) -> int:  # type: ignore[override]
        """The mean alone."""
        return 1

    @override
    def log_likelihood(self, output: Tensor, target: Tensor) -> Tensor:
        # Not torch.distributions.Normal: it reads values back to validate them, which no captured step may.
        residual = (target - output.squeeze(-1)) / self.scale
        return -0.5 * residual.square() - math.log(self.scale * math.sqrt(2 * math.pi))

    @override
    def mixture(self, outputs: Tensor, weights: Tensor) -> Tensor:
        """The mean of the mixture; its shape is not Gaussian, so only the first moment is kept."""
        return (outputs * weights[..., None, None]).sum(0)

    def variance(self, output: Tensor) -> Tensor:
        """The variance of the target given an output: [..., batch]."""
        return torch.full_like(output.squeeze(-1), self.scale**2)

    @override
    def metric_values(self, output: Tensor, target: Tensor) -> Tensor:
        """Squared error of the mean."""
        return (output.squeeze(-1) - target).square()

    @override
    def settings(self) -> dict[str, Any]:
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
    """Maps raw inputs (uint8 or float) to float32 of mean 0 and deviation 1 per channel or feature.

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

    @override
    def forward(self, x: Tensor) -> Tensor:
        """[n, ...] raw -> [n, ...] standardised."""
        return (x.to(self.mean.dtype) - self.mean) / self.std


@dataclass(frozen=True, eq=False)
class Task:
    """What is to be learnt: data in splits, standardisation, likelihood, and what the data was."""

    name: str
    splits: Mapping[str, Split]
    """Disjoint, and only those that there are: `train`; `search`, on which belief is learnt; `select`, by which a
    search is stopped and an architecture selected; `calibrate`; `test`; and `unlabelled`, training examples without
    their label."""
    likelihood: Likelihood
    standardise: Standardise
    fingerprint: str
    """Changes when any example, label, split or statistic changes."""
    source: dict[str, Any] | None = None
    """What `polyarch.data.load` was called with, so that a run can find its data again: `{"data": text,
    "settings": {...}}`; None for data in memory."""
    classes: tuple[str, ...] = field(default=())
    """Names of the classes, where the data has them."""
    indices: Mapping[str, Tensor] = field(default_factory=dict)
    """Which of the examples that were read are in a split, sorted; not of a test set that the data came with."""
    again: Callable[..., Task] | None = field(default=None, repr=False)
    """Splits what was read anew, with other settings: what `resplit` calls."""

    @property
    def train(self) -> Split:
        """Examples that weights are learnt on, with their labels."""
        return self.splits["train"]

    @property
    def search(self) -> Split | None:
        """Examples that belief alone is learnt on; None where it shares those of `select` (see `examples_for`)."""
        return self.splits.get("search")

    @property
    def select(self) -> Split | None:
        """Validation data: a search is stopped and an architecture selected by it."""
        return self.splits.get("select")

    @property
    def calibrate(self) -> Split | None:
        """Examples that guarantees are made by, after everything is frozen; nothing else looks at them."""
        return self.splits.get("calibrate")

    @property
    def test(self) -> Split | None:
        """Examples to measure on at the very end."""
        return self.splits.get("test")

    @property
    def training(self) -> Split:
        """All training examples in the data's order, `labels.HIDDEN` where one has no label: for what needs none."""
        if "unlabelled" not in self.splits:
            return self.train
        parts = [self.splits[name] for name in ("train", "unlabelled")]
        order = torch.cat([self.indices[name] for name in ("train", "unlabelled")]).argsort()
        return Split(torch.cat([part.x for part in parts])[order], torch.cat([part.y for part in parts])[order])

    def examples_for(self, role: str) -> Split | None:
        """The split of a role; for `search` that of `select`, where it has none of its own."""
        shared = self.select if role == "search" else None
        return self.splits.get(role, shared)

    def learning_data(self) -> dict[str, Split]:
        """What a method is given: every split that is not for later, and under `search` whatever belief learns on."""
        given = {name: split for name, split in self.splits.items() if name not in NOT_FOR_LEARNING}
        search = self.examples_for("search")
        return given if search is None else {**given, "search": search}

    def resplit(self, **settings: Any) -> Task:
        """The same examples in other splits.

        Args:
            **settings: those of the data that say how it is split: `select`, `search`, `calibrate`, `test`, `labels`,
                `split_seed`; what is left out stays as it is.
        """
        if self.again is None:
            raise PolyarchError(f"{self.name} was not loaded by polyarch.data.load, so it cannot be split anew")
        return self.again(**settings)

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
