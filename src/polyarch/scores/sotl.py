"""Training losses as scores: how fast a candidate learns from the supernet's weights (SoTL thesis)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from polyarch.scores.curves import Curve
from polyarch.scores.tuned import Tuned


@dataclass(frozen=True, kw_only=True)
class Sotl(Tuned):
    """SoTL, the sum of training losses (Eq. 3.1)."""

    name: ClassVar[str] = "sotl"
    larger_is_better: ClassVar[bool] = False
    meaning: ClassVar[str] = (
        "Sum of the training losses of the minibatches it is fine-tuned on from the supernet's weights: what learns "
        "fast has a small one."
    )
    cost: ClassVar[str] = "A forward and a backward pass of every minibatch."

    def read(self, curve: Curve) -> float:
        """See `Tuned.read`."""
        return float(curve.losses[: self.steps].sum())


@dataclass(frozen=True, kw_only=True)
class TrainLoss(Tuned):
    """TLMini, the training loss of the last minibatch."""

    name: ClassVar[str] = "train-loss"
    larger_is_better: ClassVar[bool] = False
    meaning: ClassVar[str] = "Training loss of the last minibatch it is fine-tuned on from the supernet's weights."
    cost: ClassVar[str] = "A forward and a backward pass of every minibatch."

    def read(self, curve: Curve) -> float:
        """See `Tuned.read`."""
        return float(curve.losses[self.steps - 1])
