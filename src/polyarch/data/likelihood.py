"""What a network's output says about a target: the base of all likelihoods, and those of classes and of numbers."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor
from typing_extensions import override

from polyarch import catalogue
from polyarch.data.checks import Array, checked_labels, checked_numbers, checked_targets
from polyarch.settings import make, plain


@dataclass(frozen=True)
class Likelihood(ABC):
    """What a network's output says about a target. Subclass it for targets of your own (docs/likelihoods.md).

    It is a value: what it can be told are fields of a frozen dataclass, with defaults, and what it takes from training
    targets it takes in `learn`. Outputs have any number of leading axes (members, repeats) before those of a batch.
    """

    metric: ClassVar[str]
    """The name of what `metric_values` gives when averaged over examples: `accuracy`, `squared_error`."""
    higher_is_better: ClassVar[bool] = True
    """Of the metric."""
    predicts: ClassVar[str] = "targets"
    """What is predicted, in a word for people."""

    @property
    @abstractmethod
    def outputs(self) -> int:
        """How many numbers the network must produce for one example."""

    @abstractmethod
    def log_likelihood(self, output: Tensor, target: Tensor) -> Tensor:
        """The log-probability of a target given an output, one number per example and never averaged.

        It is what is learnt from: where classes have weights, multiplied by that of the target's class. What judges
        predictions, or needs a density, asks `unweighted`.

        Args:
            output: [..., batch, outputs].
            target: broadcastable to [..., batch], or [..., batch, k] where an example has k targets.

        Returns:
            [..., batch].
        """

    @abstractmethod
    def mixture(self, outputs: Tensor, weights: Tensor) -> Tensor:
        """The output whose likelihood is sum_m weights[m] p(target | outputs[m]), where one exists.

        Where none does, that of the same mean.

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
    def mean(self, output: Tensor) -> Tensor:
        """The expected target, which is what is predicted: [..., batch], or [..., batch, k].

        Of a class it is the probability of each, [..., batch, classes].
        """

    def variance(self, output: Tensor) -> Tensor | None:
        """The variance of the target around `mean`, of its shape; None where nothing is said of it."""
        return None

    def entropy(self, output: Tensor) -> Tensor | None:
        """The target's entropy in nats, [..., batch]; None where it has none that is easily told."""
        return None

    def figures(self, mean: Tensor, target: Tensor) -> dict[str, float]:
        """What a result tells of predictions besides the metric and the log-likelihood, by name.

        Args:
            mean: [n] or [n, k], what was predicted; float64.
            target: of the same shape.
        """
        return {}

    def columns(self, mean: Tensor, names: Sequence[str]) -> dict[str, list[Any]]:
        """How `polyarch predict` tells predictions: the columns of its CSV, [n] each.

        Args:
            mean: [n] or [n, k], what is predicted.
            names: of the k targets, or none.
        """
        if mean.dim() == 1:
            return {"mean": mean.tolist()}
        names = names or [str(place) for place in range(mean.shape[1])]
        return {f"mean({name})": column for name, column in zip(names, mean.T.tolist(), strict=True)}

    def checked(self, y: Array, what: str) -> Array:
        """Targets [n] or [n, k] as tasks keep them; raises where they are none of this likelihood's.

        Args:
            y: as they were read.
            what: what to call them in an error.
        """
        return checked_targets(y, what)

    def learn(self, y: Array) -> Self:
        """The same with what it takes from training targets, as `checked` gives them: their number, their scale."""
        return self

    @property
    def words(self) -> str:
        """What is predicted for one example, for people."""
        return self.predicts

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

    def settings(self) -> dict[str, Any]:
        """What `likelihood_from` needs to make this likelihood again: `kind`, which names its class, and its fields."""
        return {"kind": catalogue.name_of("likelihood", type(self)), **plain(self)}


@dataclass(frozen=True)
class Classification(Likelihood):
    """Categorical likelihood; outputs are logits."""

    metric: ClassVar[str] = "accuracy"
    predicts: ClassVar[str] = "classes"

    classes: int
    weights: tuple[float, ...] | Tensor = ()
    """How much an example of each class counts where weights and belief are learnt; empty: all alike. While a search
    runs it is a tensor [classes] on its device."""

    @property
    @override
    def outputs(self) -> int:
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
    def mean(self, output: Tensor) -> Tensor:
        return output.softmax(-1)

    @override
    def entropy(self, output: Tensor) -> Tensor:
        log_probs = output.log_softmax(-1)
        return -(log_probs.exp() * log_probs.clamp_min(torch.finfo(output.dtype).min)).sum(-1)

    @override
    def checked(self, y: Array, what: str) -> Array:
        return checked_labels(y, what)

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
    higher_is_better: ClassVar[bool] = False
    predicts: ClassVar[str] = "numbers"

    scale: float | Tensor = 1.0
    """The standard deviation; with `noise="input"` the unit of the network's own. While it is learnt, a tensor
    [repeats], the leading axis of outputs."""
    noise: Noise = "fixed"

    @property
    @override
    def outputs(self) -> int:
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

    @override
    def mean(self, output: Tensor) -> Tensor:
        return output[..., 0]

    @override
    def variance(self, output: Tensor) -> Tensor:
        return self.deviation(output).square()

    @override
    def checked(self, y: Array, what: str) -> Array:
        return checked_numbers(y, what)

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
    values = dict(settings)
    kind = values.pop("kind")
    if kind == "classification":
        return Classification(values["classes"], tuple(values.get("weights", ())))
    if kind == "gaussian":
        return Gaussian(**values)
    cls, _ = catalogue.find("likelihood", kind)
    made: Likelihood = make(cls, values)
    return made
