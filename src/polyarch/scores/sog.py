"""Gradients of fine-tuning as scores: how far, and how straight, a candidate is pushed.

They are those of the SoTL thesis, section 4.2.4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from polyarch.scores.curves import Curve
from polyarch.scores.tuned import Tuned


@dataclass(frozen=True, kw_only=True)
class Sog(Tuned):
    """SoG, the sum of gradients.

    Gradients are added up coordinate by coordinate; the scalar is the L1 norm of that sum, as in the thesis's code. Its
    text only says that coordinates are summed, but with their signs they would cancel.
    """

    name: ClassVar[str] = "sog"
    larger_is_better: ClassVar[bool] = True
    meaning: ClassVar[str] = (
        "L1 norm of the sum of all gradients of fine-tuning from the supernet's weights: large where gradients are "
        "large and keep their direction. More parameters have more of it."
    )
    cost: ClassVar[str] = "A forward and a backward pass of every minibatch, and a sum as large as the weights."
    gradients: ClassVar[bool] = True

    def read(self, curve: Curve) -> float:
        """See `Tuned.read`."""
        assert curve.gradient_sums is not None
        return float(curve.gradient_sums[self.steps - 1])


@dataclass(frozen=True, kw_only=True)
class Sogn(Tuned):
    """SoGN, the sum of gradient norms: L1, as the thesis has it; its code adds up L2 norms of layers."""

    name: ClassVar[str] = "sogn"
    larger_is_better: ClassVar[bool] = True
    meaning: ClassVar[str] = (
        "Sum of the L1 norms of all gradients of fine-tuning from the supernet's weights, whatever their direction. "
        "More parameters have more of it."
    )
    cost: ClassVar[str] = "A forward and a backward pass of every minibatch."
    gradients: ClassVar[bool] = True

    def read(self, curve: Curve) -> float:
        """See `Tuned.read`."""
        assert curve.gradient_norms is not None
        return float(curve.gradient_norms[: self.steps].sum())
