"""Scores that are read from fine-tuning a candidate.

One pass over a candidate serves every score with the same recipe, at any number of steps up to its length: the batches
come in one fixed order, so that a short pass is the beginning of a long one (the SoTL thesis, section 4.2).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor
from typing_extensions import override

from polyarch.scores.base import Candidate, Need, Score
from polyarch.scores.curves import Curve, Look, Tuning
from polyarch.scores.fine_tuning import fine_tuned
from polyarch.settings import AtLeast, NonNegative, Positive, PositiveFloat, Share


@dataclass(frozen=True, kw_only=True)
class Tuned(Score, ABC):
    """A score that is read from the curve of a candidate; a subclass says how."""

    needs: ClassVar[frozenset[Need]] = frozenset({"weights", "train"})
    gradients: ClassVar[bool] = False
    """Whether it reads gradients."""

    steps: Positive = 100
    """Minibatches of fine-tuning (the thesis reports its estimators at 100)."""
    lr: PositiveFloat = 0.01
    """Constant learning rate (the thesis: 0.01 after single-path training, 0.001 after its variants)."""
    batch_size: Annotated[int, AtLeast(2)] = 64
    """Training examples per minibatch (the thesis: 64)."""
    momentum: Share = 0.9
    """Of the fresh optimiser (the thesis: 0.9)."""
    weight_decay: NonNegative = 5e-4
    """L2, on every weight (the thesis: 5e-4); it is not part of a loss or gradient that is read."""

    @property
    @override
    def trained_examples(self) -> int:
        return self.steps * self.batch_size

    @property
    def tuning(self) -> Tuning:
        """Its recipe."""
        return Tuning(lr=self.lr, batch_size=self.batch_size, momentum=self.momentum, weight_decay=self.weight_decay)

    @property
    def looks(self) -> tuple[Look, ...]:
        """What it must see of validation data."""
        return ()

    @abstractmethod
    def read(self, curve: Curve) -> float:
        """Its number, from a curve of at least `steps` steps with its looks."""

    def seconds(self, curve: Curve) -> float:
        """What its number took of a curve's time."""
        return curve.seconds_of(self.steps)

    @override
    def __call__(self, candidates: Sequence[Candidate], generator: torch.Generator) -> Tensor:
        read = read_together([self], candidates, generator)
        return torch.tensor([value for [(value, _)] in read], dtype=torch.float64)


def read_together(
    scores: Sequence[Tuned], candidates: Sequence[Candidate], generator: torch.Generator
) -> list[list[tuple[float, float]]]:
    """Reads many scores from as few passes as their recipes allow: one for all that share a recipe.

    Args:
        scores: to be read; each as its own call would, for the same state of the generator.
        candidates: with what they need.
        generator: see `fine_tuned`.

    Returns:
        For every candidate, a number and its seconds for every score.
    """
    for score in scores:
        for candidate in candidates:
            score.check(candidate)
    state = generator.get_state()
    read: list[list[tuple[float, float]]] = [[(0.0, 0.0)] * len(scores) for _ in candidates]
    for tuning in dict.fromkeys(score.tuning for score in scores):
        own = {place: score for place, score in enumerate(scores) if score.tuning == tuning}
        generator.set_state(state)
        curves = fine_tuned(
            candidates,
            max(score.steps for score in own.values()),
            tuning,
            generator,
            looks=dict.fromkeys(look for score in own.values() for look in score.looks),
            gradients=any(score.gradients for score in own.values()),
        )
        for row, curve in zip(read, curves, strict=True):
            for place, score in own.items():
                row[place] = (score.read(curve), score.seconds(curve))
    return read
