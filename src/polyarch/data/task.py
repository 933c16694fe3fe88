"""A Task: data in named, disjoint splits, how networks see inputs, and how outputs are evaluated."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from polyarch.data.in_words import task_in_words
from polyarch.data.kinds import Inputs, inputs_of
from polyarch.data.preprocess import AS_READ, Preprocess, Units
from polyarch.data.vocabulary import Columns
from polyarch.errors import PolyarchError

NOT_FOR_LEARNING = ("calibrate", "test")
"""The splits that no method is given."""


@dataclass(frozen=True, eq=False)
class Split:
    """Examples: `x` is [n, ...], `y` is [n].

    Of a task as they were read, uint8, float32, int64 or, in a table, float64; of a problem as networks see them, and
    on the device.
    """

    x: Tensor
    y: Tensor

    def __post_init__(self) -> None:
        """Numpy arrays become tensors, which share their memory."""
        for name, values in vars(self).items():
            if isinstance(values, np.ndarray):
                object.__setattr__(self, name, torch.from_numpy(values))

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

        It is what is learnt from: where classes have weights, multiplied by that of the target's class. What judges
        predictions, or needs a density, asks `unweighted`.

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

    @property
    def words(self) -> str:
        """What is predicted, for people."""
        return type(self).__name__

    @property
    def unweighted(self) -> Likelihood:
        """The same, in which every example counts alike."""
        return self

    def counted(self, fit: Tensor, target: Tensor) -> Tensor:
        """Log-likelihoods [..., batch] of `unweighted` as learning counts them."""
        return fit

    def on(self, device: torch.device) -> Likelihood:
        """The same with its tensors on a device, so that a captured step needs no copy from the host."""
        return self

    @property
    def fits(self) -> bool:
        """Whether something of it is fitted on validation data, which a search then needs."""
        return False

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """What `likelihood_from` needs to make this likelihood again."""


@dataclass(frozen=True)
class Classification(Likelihood):
    """Categorical likelihood; outputs are logits."""

    metric: ClassVar[str] = "accuracy"

    classes: int
    weights: tuple[float, ...] | Tensor = ()
    """How much an example of each class counts where weights and belief are learnt; empty: all alike. While a search
    runs it is a tensor [classes] on its device."""

    @property
    def outputs(self) -> int:  # type: ignore[override]
        """One logit per class."""
        return self.classes

    @override
    def log_likelihood(self, output: Tensor, target: Tensor) -> Tensor:
        target = target.expand(output.shape[:-1])
        # Not log_softmax and a gather: that would normalise every class to read off one, and copy strided
        # outputs.
        fit = output.gather(-1, target.unsqueeze(-1)).squeeze(-1) - output.logsumexp(-1)
        return self.counted(fit, target)

    @property
    @override
    def words(self) -> str:
        return f"one of {self.classes} classes{', weighted' if len(self.weights) else ''}"

    @property
    @override
    def unweighted(self) -> Classification:
        return replace(self, weights=()) if len(self.weights) else self

    @override
    def counted(self, fit: Tensor, target: Tensor) -> Tensor:
        if not len(self.weights):
            return fit
        return fit * torch.as_tensor(self.weights, dtype=fit.dtype, device=fit.device)[target]

    @override
    def on(self, device: torch.device) -> Classification:
        return replace(self, weights=torch.tensor(self.weights, device=device)) if len(self.weights) else self

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
        weights = {"weights": [float(weight) for weight in self.weights]} if len(self.weights) else {}
        return {"kind": "classification", "classes": self.classes, **weights}


ClassWeights = Literal["none", "balanced"]
"""How much classes count in learning: every example alike, or every class alike, however many examples it has."""
Noise = Literal["fixed", "task", "input"]
"""Where the standard deviation of numbers to predict comes from: it is 1, one for the whole task, or one per input."""

FLOOR = 0.1
"""The least standard deviation that a network can say of an input, as a share of that of all targets: one that overfits
would claim next to none."""
SURPRISE = 10.0
"""A squared residual of more variances than this moves a variance no further: no example throws training off. Of
Gaussian residuals 0.2 % are beyond, and a variance learnt so is 0.3 % too small."""


@dataclass(frozen=True)
class Gaussian(Likelihood):
    """Gaussian likelihood of a number; the first output is its mean.

    With `noise="input"` a second output is the logarithm of the variance, which the likelihood scales and floors.

    Where noise is learnt, values are those of the Gaussian, gradients those in Fisher's metric (natural ones): by the
    mean the residual, as with standard deviation 1. Else a network that learns well would learn ever faster, by the
    inverse of the variance, until it diverges.
    """

    metric: ClassVar[str] = "squared_error"

    scale: float | Tensor = 1.0
    """The standard deviation; with `noise="input"` the unit of the network's own. While it is learnt, a tensor
    [repeats], the leading axis of outputs."""
    noise: Noise = "fixed"

    @property
    def outputs(self) -> int:  # type: ignore[override]
        """The mean, and where every input has its own noise the logarithm of the variance."""
        return 2 if self.noise == "input" else 1

    @property
    @override
    def words(self) -> str:
        kinds = {"fixed": "fixed noise", "task": "one noise for all", "input": "noise of every input's own"}
        return f"a number with {kinds[self.noise]}"

    @property
    @override
    def fits(self) -> bool:
        return self.noise != "fixed"

    def mean(self, output: Tensor) -> Tensor:
        """[..., batch, outputs] -> [..., batch]."""
        return output[..., 0]

    def deviation(self, output: Tensor) -> Tensor:
        """The standard deviation of the target around the mean: [..., batch, outputs] -> [..., batch]."""
        if self.noise == "input":
            return self.scale * (output[..., 1].exp() + FLOOR**2).sqrt()
        scale = self.scale
        if isinstance(scale, Tensor):
            scale = scale.view(-1, *(1,) * (output.dim() - 2))
        return torch.ones_like(output[..., 0]) * scale

    @override
    def log_likelihood(self, output: Tensor, target: Tensor) -> Tensor:
        # Not torch.distributions.Normal: it reads values back to validate them, which no captured step may.
        residual, deviation = target - self.mean(output), self.deviation(output)
        surprise = (residual / deviation).square()
        fit = -0.5 * surprise - deviation.log() - 0.5 * math.log(2 * math.pi)
        if not self.fits:
            return fit
        natural = -0.5 * residual.square() + (surprise.clamp_max(SURPRISE).detach() - 1) * deviation.log()
        return fit.detach() + (natural - natural.detach())

    @override
    def mixture(self, outputs: Tensor, weights: Tensor) -> Tensor:
        """Mean and, where every input has its own noise, variance of the mixture, whose shape is not Gaussian."""
        weights = weights[..., None]
        mean = (self.mean(outputs) * weights).sum(0)
        if self.noise != "input":
            return mean.unsqueeze(-1)
        spread = (self.mean(outputs) - mean).square()
        variance = ((self.deviation(outputs).square() + spread) * weights).sum(0)
        # Rounding may leave it just below the floor, of which the logarithm is no number.
        own = (variance / self.scale**2 - FLOOR**2).clamp_min(torch.finfo(variance.dtype).tiny)
        return torch.stack([mean, own.log()], -1)

    @override
    def metric_values(self, output: Tensor, target: Tensor) -> Tensor:
        """Squared error of the mean."""
        return (self.mean(output) - target).square()

    @override
    def settings(self) -> dict[str, Any]:
        return {"kind": "gaussian", "scale": float(self.scale), "noise": self.noise}


def likelihood_from(settings: dict[str, Any]) -> Likelihood:
    """The likelihood that gave these `settings()`."""
    kinds: dict[str, type[Classification] | type[Gaussian]] = {
        "classification": Classification,
        "gaussian": Gaussian,
    }
    values = dict(settings)
    if "weights" in values:
        values["weights"] = tuple(values["weights"])
    return kinds[values.pop("kind")](**values)


@dataclass(frozen=True, eq=False)
class Task:
    """What is to be learnt: data in splits, standardisation, likelihood, and what the data was."""

    name: str
    splits: Mapping[str, Split]
    """Disjoint, and only those that there are: `train`; `search`, on which belief is learnt; `select`, by which a
    search is stopped and an architecture selected; `calibrate`; `test`; and `unlabelled`, training examples without
    their label."""
    likelihood: Likelihood
    preprocess: Preprocess
    """From inputs as they were read to what networks see; it is part of every model."""
    fingerprint: str
    """Changes when any example, label, split or statistic changes."""
    source: dict[str, Any] | None = None
    """What `polyarch.data.load` was called with, so that a run can find its data again: `{"data": text,
    "settings": {...}}`; None for data in memory."""
    classes: tuple[str, ...] = field(default=())
    """Names of the classes, where the data has them."""
    columns: Columns | None = None
    """What is known of the columns, where the data is a table."""
    units: Units = AS_READ
    """In which numbers to predict are learnt; what a run hands out speaks in those that they were read in."""
    tokens: int = 0
    """How many different ones there are, where inputs are tokens, counted from 0; 0: inputs are numbers."""
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
        """Shape of what networks see of one example: (features,), (channels, height, width) or (length,)."""
        return (self.columns.features,) if self.columns else tuple(self.train.x.shape[1:])

    def seen(self, split: Split, device: torch.device | None = None) -> Split:
        """Examples as networks see and learn them: inputs preprocessed, numbers to predict in the task's units.

        Args:
            split: raw examples of this task.
            device: where to; images travel as the bytes that they were read as, and are preprocessed there.
        """
        preprocess = deepcopy(self.preprocess).to(device)
        return Split(preprocess(split.x.to(device)), self.units.learnt(split.y.to(device)))

    @property
    def inputs(self) -> Inputs:
        """What its inputs are, to which a run holds all others."""
        return inputs_of([split.x for split in self.splits.values()], self.columns)

    @property
    def shape(self) -> TaskShape:
        """What a network must know of the task."""
        return TaskShape(self.input_shape, self.likelihood.outputs, self.tokens)

    def __repr__(self) -> str:
        return task_in_words(self)


@dataclass(frozen=True)
class TaskShape:
    """The sizes a network is built for: one example's shape and the number of outputs."""

    input: tuple[int, ...]
    outputs: int
    tokens: int = 0
    """How many different ones there are, where inputs are tokens, counted from 0; 0: inputs are numbers."""

    def trial(self, count: int, device: torch.device | None = None) -> Tensor:
        """Inputs to try a network on: zeros, or the last of the tokens, for which an embedding must have a row."""
        if self.tokens:
            return torch.full((count, *self.input), self.tokens - 1, device=device)
        return torch.zeros(count, *self.input, device=device)
