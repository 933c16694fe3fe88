"""What belief over architectures says of targets under any likelihood: a mixture of its members for every input."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from polyarch.data.likelihood import Likelihood
from polyarch.errors import PolyarchError


@final
@dataclass(frozen=True, eq=False)
class Mixtures:
    """sum_m weights[m] p(target | outputs[m, i]) for every input i, in double precision on the CPU."""

    outputs: Tensor
    """[members, n, outputs]."""
    weights: Tensor
    """[members], above 0 and summing to 1."""
    likelihood: Likelihood

    @classmethod
    def of(cls, outputs: Tensor, weights: Tensor, likelihood: Likelihood) -> Mixtures:
        """What outputs [members, n, outputs] say under a likelihood; members of weight 0 are left out."""
        if outputs.dim() != 3 or weights.shape != outputs.shape[:1] or outputs.shape[-1] != likelihood.outputs:
            raise PolyarchError(
                f"members must be [members, n, {likelihood.outputs}] and weights [members], got "
                f"{list(outputs.shape)} and {list(weights.shape)}; stack members on a new first axis"
            )
        weights = weights.detach().cpu().double()
        outputs, weights = outputs.detach().cpu().double()[weights > 0], weights[weights > 0]
        return cls(outputs, weights / weights.sum(), likelihood.unweighted)

    def __repr__(self) -> str:
        members, n, _ = self.outputs.shape
        return f"<Mixtures of {n} inputs: {members} members, {self.likelihood.predicts}>"

    @property
    def output(self) -> Tensor:
        """What the likelihood makes of all members: [n, outputs]."""
        return self.likelihood.mixture(self.outputs, self.weights)

    @property
    def mean(self) -> Tensor:
        """The expected target, which is what is predicted: [n] or [n, k]."""
        return self._averaged(self.likelihood.mean(self.outputs))

    @property
    def variance(self) -> Tensor | None:
        """Of the target: the mean of the members' variances, and the variance of their means, which is disagreement.

        None where the likelihood says nothing of it.
        """
        own = self.likelihood.variance(self.outputs)
        return None if own is None else self._averaged(own + (self.likelihood.mean(self.outputs) - self.mean).square())

    @property
    def std(self) -> Tensor | None:
        """The root of `variance`."""
        variance = self.variance
        return None if variance is None else variance.sqrt()

    @property
    def entropy(self) -> Tensor | None:
        """[n], in nats, of what is predicted; None where the likelihood tells none."""
        return self.likelihood.entropy(self.output)

    @property
    def expected_entropy(self) -> Tensor | None:
        """[n], the mean of the members' entropies: what each of them sees in the data."""
        own = self.likelihood.entropy(self.outputs)
        return None if own is None else self._averaged(own)

    @property
    def mutual_information(self) -> Tensor | None:
        """[n], entropy - expected_entropy: what the members disagree about."""
        total, own = self.entropy, self.expected_entropy
        return None if total is None or own is None else (total - own).clamp_min(0)

    def log_prob(self, target: Tensor) -> Tensor:
        """Log sum_m w_m p(target | m), [n], in nats."""
        own = self.likelihood.log_likelihood(self.outputs, target.cpu())
        return (own + self.weights.log()[:, None]).logsumexp(0)

    def metrics(self, target: Tensor) -> dict[str, float]:
        """The likelihood's metric and figures, and `log_likelihood`, the mean of `log_prob`."""
        target = target.cpu().double()
        if len(target) != self.outputs.shape[1] or len(target) == 0:
            raise PolyarchError(
                f"there are {self.outputs.shape[1]} predictions and {len(target)} targets; give as many, one at least"
            )
        return {
            self.likelihood.metric: self.likelihood.metric_values(self.output, target).mean().item(),
            **self.likelihood.figures(self.mean, target),
            "log_likelihood": self.log_prob(target).mean().item(),
        }

    def _averaged(self, values: Tensor) -> Tensor:
        return torch.tensordot(self.weights, values, dims=1)
