"""How good a classifier is class by class, and in means over classes, in which a rare one counts as much as any.

Definitions are those of scikit-learn. All is computed on the CPU in float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor

from polyarch.uncertainty.arrays import takes_arrays
from polyarch.uncertainty.checks import checked
from polyarch.uncertainty.detection import auroc


@final
@dataclass(frozen=True, eq=False)
class Confusion:
    """How often examples of each class were taken for each."""

    counts: Tensor
    """[classes, classes] int64: the true class by row, the most probable one by column."""

    @classmethod
    @takes_arrays
    def of(cls, log_probs: Tensor, target: Tensor) -> Confusion:
        """What the most probable classes of log-probabilities [n, classes] are where the true ones are [n] int64."""
        log_probs, target = checked(log_probs, target)
        classes = log_probs.shape[-1]
        places = target * classes + log_probs.argmax(-1)
        return cls(places.bincount(minlength=classes**2).view(classes, classes))

    @property
    def examples(self) -> Tensor:
        """How many there are of each class: [classes] int64."""
        return self.counts.sum(1)

    @property
    def precision(self) -> Tensor:
        """Of what was taken for a class, the share that is of it: [classes]; NaN where nothing was."""
        return self._right / self.counts.sum(0)

    @property
    def recall(self) -> Tensor:
        """Of the examples of a class, the share that was taken for it: [classes]; NaN where there is none."""
        return self._right / self.examples

    @property
    def f1(self) -> Tensor:
        """The harmonic mean of both: [classes]; NaN for a class that is neither true nor predicted anywhere."""
        return 2 * self._right / (self.counts.sum(0) + self.examples)

    @property
    def balanced_accuracy(self) -> float:
        """Mean recall over the classes that there are examples of."""
        return self.recall.nanmean().item()

    @property
    def macro_f1(self) -> float:
        """Mean F1 over the classes that are true or predicted anywhere."""
        return self.f1.nanmean().item()

    @property
    def _right(self) -> Tensor:
        return self.counts.diagonal().double()

    def most(self, count: int = 3) -> list[tuple[int, int, int]]:
        """The most frequent confusions: true class, the class it was taken for, and how often; of equals the first."""
        wrong = self.counts - self.counts.diagonal().diag()
        order = wrong.flatten().argsort(descending=True, stable=True)[:count].tolist()
        found = [(*divmod(place, len(wrong)), int(wrong.flatten()[place])) for place in order]
        return [(true, taken, times) for true, taken, times in found if times]

    def by_class(self, names: Sequence[str] = ()) -> list[dict[str, Any]]:
        """`class`, `examples`, `precision`, `recall` and `f1` of every class, None for what is not defined.

        Args:
            names: of all classes, where they have any; else they have their numbers.
        """
        columns = [
            [None if value != value else value for value in column.tolist()]
            for column in (self.examples, self.precision, self.recall, self.f1)
        ]
        keys = ("class", "examples", "precision", "recall", "f1")
        rows = zip(class_names(len(self.counts), names), *columns, strict=True)
        return [dict(zip(keys, row, strict=True)) for row in rows]

    def in_words(self, names: Sequence[str] = (), count: int = 3) -> list[str]:
        """The most frequent confusions, each such as "8 taken for 1 (5 of 36)"; none where nothing was confused."""
        shown, examples = class_names(len(self.counts), names), self.examples.tolist()
        return [
            f"{shown[true]} taken for {shown[taken]} ({times} of {examples[true]})"
            for true, taken, times in self.most(count)
        ]


def class_names(count: int, names: Sequence[str] = ()) -> list[str]:
    """The names of classes, or their numbers where they have none."""
    return list(names) or [str(number) for number in range(count)]


@takes_arrays
def auc(log_probs: Tensor, target: Tensor) -> float | None:
    """Area under the ROC curve: how often an example of a class has more of it than one of another; ties count half.

    Of more than two classes each is held against the rest, and the mean is taken over those that some examples are of,
    and some are not.

    Args:
        log_probs: [n, classes], log-probabilities.
        target: [n] int64, true classes.

    Returns:
        0.5 is guessing, 1 is perfect; None where all examples are of one class.
    """
    log_probs, target = checked(log_probs, target)
    if log_probs.shape[-1] == 2:  # either class against the other is the same: log-odds lose nothing near 1
        classes, scores = [1], log_probs[:, 1:] - log_probs[:, :1]
    else:
        classes, scores = list(range(log_probs.shape[-1])), log_probs
    areas = [
        auroc(own[target != label], own[target == label])
        for label, own in zip(classes, scores.unbind(-1), strict=True)
        if 0 < int((target == label).sum()) < len(target)
    ]
    return torch.tensor(areas, dtype=torch.float64).mean().item() if areas else None
