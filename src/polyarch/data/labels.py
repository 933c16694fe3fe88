"""Few labels: of the training examples some keep their label, all others are there to look at."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from polyarch.data.splitting import turns
from polyarch.data.task import Classification, Split, Task
from polyarch.errors import PolyarchError

HIDDEN = -1
"""Stands where a label is hidden."""


def few_labels(task: Task, count: int) -> tuple[Split, Split]:
    """The training split in two: `count` examples with their labels, and all others with `HIDDEN` in their place.

    Every class has equally many labels, as far as `count` and the class allow. Which examples these are depends on the
    data and its setting `split_seed` alone (0 for data in memory), not on a run's seed: all seeds and methods learn
    from the same labels. Fewer labels are a part of more. Both parts keep the data's order.
    """
    _check(task, count)
    kept = labelled(task, count)
    hidden = torch.full_like(task.train.y[~kept], HIDDEN)
    return Split(task.train.x[kept], task.train.y[kept]), Split(task.train.x[~kept], hidden)


def labelled(task: Task, count: int) -> Tensor:
    """Which training examples keep their label where `count` do: bool [n]."""
    labels = task.train.y.numpy()
    order = np.random.default_rng(_split_seed(task)).permutation(len(labels))
    # Classes take turns: first one example of each, then a second, as long as they have any.
    in_turn = order[np.argsort(turns(labels[order]), kind="stable")]
    keeps = np.zeros(len(labels), bool)
    keeps[in_turn[:count]] = True
    return torch.from_numpy(keeps)


def _check(task: Task, count: int) -> None:
    if not isinstance(task.likelihood, Classification):
        raise PolyarchError(f"labels={count}, but {task.name} has numbers to predict, not classes; leave labels out")
    if count < task.likelihood.classes:
        raise PolyarchError(
            f"labels={count} is below the {task.likelihood.classes} classes of {task.name}; give one a class or more"
        )
    if count >= len(task.train):
        raise PolyarchError(
            f"labels={count} leaves none of the {len(task.train)} training examples of {task.name} without its label; "
            "give fewer, or leave labels out"
        )


def _split_seed(task: Task) -> int:
    return int(task.source["settings"]["split_seed"]) if task.source else 0
