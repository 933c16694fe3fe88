"""Few labels: of the training examples some keep their label, all others are there to look at."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from polyarch.data.checks import Array
from polyarch.errors import PolyarchError

HIDDEN = -1
"""Stands where a label is hidden."""


def keep_labels(labels: Array, count: int, *, classes: int, seed: int, name: str) -> NDArray[np.bool_]:
    """Which training examples keep their label where `count` do: bool [n].

    Every class has equally many, as far as `count` and the class allow, and fewer labels are a part of more. Which
    examples these are depends on the data and its `split_seed` alone, not on a run's seed: all seeds and methods learn
    from the same labels.

    Args:
        labels: [n], of all training examples.
        count: how many keep theirs.
        classes: how many classes there are.
        seed: the data's `split_seed`.
        name: the task's, for an error.
    """
    if count < classes:
        raise PolyarchError(f"labels={count} is below the {classes} classes of {name}; give one per class or more")
    if count >= len(labels):
        raise PolyarchError(
            f"labels={count} leaves none of the {len(labels)} training examples of {name} without its label; "
            "give fewer, or leave labels out"
        )
    order = np.random.default_rng(seed).permutation(len(labels))
    # Classes take turns: first one example of each, then a second, as long as they have any.
    in_turn = order[np.argsort(turns(labels[order]), kind="stable")]
    keeps = np.zeros(len(labels), bool)
    keeps[in_turn[:count]] = True
    return keeps


def turns(labels: Array) -> NDArray[np.int64]:
    """For each of `labels` [n], how many of the same class come before it."""
    by_class = np.argsort(labels, kind="stable")
    _, starts, sizes = np.unique(labels[by_class], return_index=True, return_counts=True)
    found = np.empty(len(labels), np.int64)
    found[by_class] = np.arange(len(labels)) - np.repeat(starts, sizes)
    return found
