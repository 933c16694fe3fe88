"""How good candidates are on validation data with the supernet's weights, fine-tuned or not."""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass
from typing import ClassVar

from typing_extensions import override

from polyarch.errors import PolyarchError
from polyarch.scores.base import Candidate, Need
from polyarch.scores.curves import Curve, Look
from polyarch.scores.tuned import Tuned
from polyarch.settings import Count


@dataclass(frozen=True, kw_only=True)
class _Validated(Tuned, ABC):
    """What both have in common: when and how validation data is looked at."""

    needs: ClassVar[frozenset[Need]] = frozenset({"weights", "train", "select"})

    steps: Count = 0
    """Minibatches of fine-tuning before it; 0 takes the supernet's weights as they are."""
    examples: Count = 0
    """Validation examples, the same for all candidates; 0 is all there are (the thesis's minibatch: 64)."""
    recalibrate: bool = True
    """Whether batch norm first gets statistics of the candidate's own, measured on training data: those of a supernet
    are of many architectures."""

    @property
    @override
    def looks(self) -> tuple[Look, ...]:
        return (self._look,)

    @property
    def _look(self) -> Look:
        return Look(self.steps, self.examples, self.recalibrate)

    @override
    def seconds(self, curve: Curve) -> float:
        return curve.seconds_of(self.steps) + curve.looks[self._look].seconds


@dataclass(frozen=True, kw_only=True)
class ValidAccuracy(_Validated):
    """The share of validation examples whose class is right."""

    name: ClassVar[str] = "valid-accuracy"
    larger_is_better: ClassVar[bool] = True
    meaning: ClassVar[str] = "Accuracy on validation data with the supernet's weights."
    cost: ClassVar[str] = "A forward pass of validation data, and one of training data for batch norm."

    @override
    def check(self, candidate: Candidate) -> None:
        """Refuses data without classes, too."""
        super().check(candidate)
        assert candidate.likelihood is not None
        if candidate.likelihood.metric != "accuracy":
            raise PolyarchError(
                f"{self.name} is for classes, and {candidate.likelihood.predicts} are predicted here; use valid-loss"
            )

    @override
    def read(self, curve: Curve) -> float:
        return curve.looks[self._look].metric


@dataclass(frozen=True, kw_only=True)
class ValidLoss(_Validated):
    """The mean loss on validation data."""

    name: ClassVar[str] = "valid-loss"
    larger_is_better: ClassVar[bool] = False
    meaning: ClassVar[str] = "Mean negative log-likelihood of validation data with the supernet's weights."
    cost: ClassVar[str] = "A forward pass of validation data, and one of training data for batch norm."

    @override
    def read(self, curve: Curve) -> float:
        return curve.looks[self._look].loss
