"""From examples to a Task: checks, disjoint splits, statistics of the training split, fingerprint."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from polyarch.data.checks import (
    Array,
    check_classes,
    check_pair,
    checked_inputs,
    checked_labels,
    checked_numbers,
)
from polyarch.data.task import Classification, Gaussian, Likelihood, Split, Standardise, Task
from polyarch.errors import PolyarchError

Kind = Literal["classification", "regression"]
Indices = NDArray[np.int64]

CHUNK = 2**22  # elements turned to float64 at a time, so that statistics of a large uint8 set need little memory


@dataclass(frozen=True)
class Examples:
    """What a source read: inputs [n, ...] and targets [n], with a test set where the data has one."""

    x: Array
    y: Array
    where: str
    """What to call the data in an error: a file name or a source's name."""
    x_test: Array | None = None
    y_test: Array | None = None
    kind: Kind = "classification"
    classes: tuple[str, ...] = ()
    """Names of all classes in the order of their labels, where the data has them."""
    standardise: bool = True
    """Whether inputs are brought to mean 0 and deviation 1; not where networks must see them as they are."""


def make_task(
    examples: Examples,
    *,
    name: str,
    source: dict[str, Any] | None,
    valid: float,
    test: float,
    split_seed: int,
) -> Task:
    """Checks and splits the examples.

    Args:
        examples: what was read.
        name: the task's name.
        source: how to load it again (`Task.source`).
        valid: share (below 1) or count of examples for validation.
        test: share or count of examples for test; 0 where the examples have a test set.
        split_seed: which random split.
    """
    where = examples.where
    x, y = _checked(examples.x, examples.y, examples.kind, where, "x", "y")
    x_test, y_test = x[:0], y[:0]
    if examples.x_test is not None and examples.y_test is not None:
        x_test, y_test = _checked(examples.x_test, examples.y_test, examples.kind, where, "x_test", "y_test")
        for what, ours, theirs in (("shape", x.shape[1:], x_test.shape[1:]), ("type", x.dtype, x_test.dtype)):
            if ours != theirs:
                raise PolyarchError(
                    f"{where}: examples of x have the {what} {ours} but those of x_test {theirs}; make them equal"
                )

    train_part, valid_part, test_part = split_indices(
        len(y),
        valid=held_count("valid", valid, len(y)),
        test=held_count("test", test, len(y)),
        strata=y if examples.kind == "classification" else None,
        seed=split_seed,
        where=where,
    )
    check_disjoint((train_part, valid_part, test_part), len(y))

    likelihood: Likelihood
    if examples.kind == "classification":
        everything = np.concatenate([y, y_test])
        likelihood = Classification(check_classes(y[train_part], everything, examples.classes, where))
    else:
        likelihood = Gaussian()

    train = _split(x, y, train_part)
    splits = {
        "train": train,
        "valid": _split(x, y, valid_part) if len(valid_part) else None,
        "test": _split(x, y, test_part) if len(test_part) else None,
    }
    if len(y_test):
        splits["test"] = _split(x_test, y_test, np.arange(len(y_test)))
    mean, std = statistics(train.x.numpy())
    if not examples.standardise:
        mean, std = np.zeros_like(mean), np.ones_like(std)
    return Task(
        name=name,
        train=train,
        valid=splits["valid"],
        test=splits["test"],
        likelihood=likelihood,
        standardise=Standardise(torch.from_numpy(mean), torch.from_numpy(std)),
        fingerprint=fingerprint(splits, mean, std),
        source=source,
        classes=examples.classes,
    )


def _checked(x: Array, y: Array, kind: Kind, where: str, x_name: str, y_name: str) -> tuple[Array, Array]:
    what = (f"{where}: {x_name}", f"{where}: {y_name}")
    x = checked_inputs(x, what[0])
    y = checked_labels(y, what[1]) if kind == "classification" else checked_numbers(y, what[1])
    check_pair(x, y, what)
    return x, y


def _split(x: Array, y: Array, part: Indices) -> Split:
    # Indexing copies, so that the caller's arrays may change later without changing the task. A copy from a
    # transposed view may still be transposed, hence ascontiguousarray.
    return Split(torch.from_numpy(np.ascontiguousarray(x[part])), torch.from_numpy(y[part]))


def held_count(name: str, amount: float, n: int) -> int:
    """How many of `n` examples a share (below 1; at least one example) or a count is."""
    if 0 <= amount < 1:
        return max(1, round(amount * n)) if amount else 0
    if amount < 0 or amount != int(amount):
        raise PolyarchError(
            f"{name}={amount} is out of range; give a share from 0 to below 1, or a whole number of examples"
        )
    return int(amount)


def split_indices(
    n: int, *, valid: int, test: int, strata: Array | None, seed: int, where: str
) -> tuple[Indices, Indices, Indices]:
    """Train, valid and test indices of a random split, each sorted, so that a split keeps the data's order.

    Args:
        n: how many examples there are.
        valid: how many go to validation.
        test: how many go to test.
        strata: [n] labels that every split should hold in proportion; None for a plain random split.
        seed: which split.
        where: what to call the data in an error.
    """
    if n - valid - test < 2:
        raise PolyarchError(
            f"{where}: {n} examples less {valid} for valid and {test} for test leave fewer than 2 for"
            " training; lower valid or test"
        )
    order = np.random.default_rng(seed).permutation(n)
    if strata is not None:
        # Within its class, example k of c gets the place k/c; sorted by place, every stretch of the order
        # holds the classes in proportion. The last of each class has the place 1: it stays in training.
        labels = strata[order]
        _, members, sizes = np.unique(labels, return_inverse=True, return_counts=True)
        place = (turns(labels) + 1) / sizes[members]
        order = order[np.argsort(place, kind="stable")]
    return np.sort(order[test + valid :]), np.sort(order[test : test + valid]), np.sort(order[:test])


def turns(labels: Array) -> Indices:
    """For each of `labels` [n], how many of the same class come before it."""
    by_class = np.argsort(labels, kind="stable")
    _, starts, sizes = np.unique(labels[by_class], return_index=True, return_counts=True)
    found = np.empty(len(labels), np.int64)
    found[by_class] = np.arange(len(labels)) - np.repeat(starts, sizes)
    return found


def check_disjoint(parts: tuple[Indices, ...], n: int) -> None:
    """Raises unless every one of `n` examples is in exactly one part."""
    uses = np.bincount(np.concatenate(parts), minlength=n)
    if len(uses) != n or (uses != 1).any():
        raise PolyarchError("splits overlap or leave examples out; please report this as a bug in polyarch")


def statistics(x: Array) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Mean and standard deviation a feature [f] or a channel [c, 1, 1]; the deviation of a constant is 1.

    Args:
        x: the training split's inputs, [n, f] or [n, c, h, w].
    """
    axes = (0,) if x.ndim == 2 else (0, 2, 3)
    rows = max(1, CHUNK // int(np.prod(x.shape[1:])))
    chunks = [slice(start, start + rows) for start in range(0, len(x), rows)]
    count = x.size // x.shape[1]

    def total(power: int, centre: Array | float) -> Array:
        return np.sum(
            [((x[chunk].astype(np.float64) - centre) ** power).sum(axes, keepdims=True) for chunk in chunks],
            0,
        )

    mean = total(1, 0.0) / count
    std = np.sqrt(total(2, mean) / count).astype(np.float32)
    # Rounding may leave a constant a deviation of 1e-17, and any other value at test time would then explode.
    constant = x.min(axes, keepdims=True) == x.max(axes, keepdims=True)
    std[constant | (std == 0)] = 1.0
    return mean.astype(np.float32)[0], std[0]


def fingerprint(splits: dict[str, Split | None], mean: Array, std: Array) -> str:
    """Sha256 over names, types, shapes and little-endian bytes of all splits and of the statistics."""
    arrays = {"mean": mean, "std": std}
    for name, split in splits.items():
        if split is not None:
            arrays |= {f"{name}.x": split.x.numpy(), f"{name}.y": split.y.numpy()}
    digest = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
        digest.update(f"{name} {little.dtype.str} {little.shape};".encode())
        digest.update(little.data)
    return digest.hexdigest()
