"""What belief over architectures says about an input: the mixture of its members, and where they disagree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import final

import torch
from torch import Tensor

from polyarch.errors import PolyarchError
from polyarch.uncertainty.arrays import takes_arrays


@final
@dataclass(frozen=True, eq=False)
class Predictive:
    """Prediction of a weighted ensemble of classifiers, with its uncertainty in nats.

    Of the total uncertainty `entropy`, `expected_entropy` is what each member sees in the data and
    `mutual_information` what the members disagree about.
    """

    log_probs: Tensor
    """[n, classes], log sum_m w_m p_m: probabilities are averaged, never logits (Antorán et al. 2020, Eq. 3)."""
    entropy: Tensor
    """[n], H[sum_m w_m p_m]; never below 0."""
    expected_entropy: Tensor
    """[n], sum_m w_m H[p_m]."""
    mutual_information: Tensor
    """[n], entropy - expected_entropy, between the class and the member; never below 0."""

    @classmethod
    @takes_arrays
    def from_members(cls, member_log_probs: Tensor, weights: Tensor) -> Predictive:
        """Mixes members. Gradients pass, and no value is read back, so that it can be captured and exported.

        Args:
            member_log_probs: [members, n, classes], log-probabilities; -inf is a probability of 0.
            weights: [members], not negative and summing to 1; a member of weight 0 has no part.

        Returns:
            The mixture, in the members' precision.
        """
        if member_log_probs.dim() != 3 or weights.shape != member_log_probs.shape[:1] or len(weights) == 0:
            raise PolyarchError(
                "members must be [members, n, classes] and weights [members], with a member at least, got "
                f"{list(member_log_probs.shape)} and {list(weights.shape)}; stack members on a new first axis"
            )
        weights = weights.to(member_log_probs)
        log_probs = (member_log_probs + weights.log()[:, None, None]).logsumexp(0)
        entropy = _entropy(log_probs)
        expected_entropy = torch.einsum("m,mn->n", weights, _entropy(member_log_probs))
        return cls(
            log_probs=log_probs,
            entropy=entropy,
            expected_entropy=expected_entropy,
            mutual_information=(entropy - expected_entropy).clamp_min(0),
        )

    @classmethod
    def joined(cls, parts: Sequence[Predictive]) -> Predictive:
        """Predictions of several batches as one."""
        names = [field.name for field in fields(cls)]
        return cls(**{name: torch.cat([getattr(part, name) for part in parts]) for name in names})

    def __repr__(self) -> str:
        n, classes = self.log_probs.shape
        return f"<Predictive of {n} inputs: {classes} classes, mean entropy {self.entropy.mean():.3g}>"

    @property
    def probs(self) -> Tensor:
        """[n, classes]."""
        return self.log_probs.exp()

    def tempered(self, temperature: float) -> Predictive:
        """The same after a temperature: probabilities softmax(log p / T), and their entropy.

        What members see themselves and what they disagree about stays as it is, so that the two no longer add up to
        `entropy`.
        """
        log_probs = (self.log_probs / temperature).log_softmax(-1)
        return replace(self, log_probs=log_probs, entropy=_entropy(log_probs))

    @property
    def confidence(self) -> Tensor:
        """[n], probability of the most probable class."""
        return self.log_probs.amax(-1).exp()

    def cpu(self) -> Predictive:
        """The same on the CPU."""
        return Predictive(**{field.name: getattr(self, field.name).cpu() for field in fields(self)})


def _entropy(log_probs: Tensor) -> Tensor:
    """- sum_c p_c log p_c over the last axis, with 0 log 0 = 0; never below 0.

    Rounding may leave the logarithm of a mixture's probability just above 0, and what is sure an entropy below it.
    """
    bounded = log_probs.clamp(torch.finfo(log_probs.dtype).min, 0)
    return (log_probs.exp() * -bounded).sum(-1)
