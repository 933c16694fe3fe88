"""Data in memory: arrays, and torch Datasets."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset
from typing_extensions import override

from polyarch.data.arrays import from_arrays
from polyarch.data.checks import Array, reason
from polyarch.data.frames import frame_of, is_frame
from polyarch.data.likelihood import ClassWeights
from polyarch.data.own_likelihoods import BY_KIND
from polyarch.data.readers import Items, Keep, is_mapped, on_disk, processes
from polyarch.data.rows import Rows, scanned
from polyarch.data.several import as_read, is_several, stacked
from polyarch.data.source import Unsplit
from polyarch.data.splitting import RawData
from polyarch.data.targets import KindSetting, NoiseSetting
from polyarch.errors import PolyarchError


@dataclass(frozen=True, eq=False)
class Memory(Unsplit):
    """Data that no text can find again."""

    kind: KindSetting = field(default="auto", kw_only=True)
    """What y is: classes, or numbers to predict; `auto` takes many different numbers, or fractions, for the latter."""
    noise: NoiseSetting = field(default="auto", kw_only=True)
    """Standard deviation of numbers to predict: that of the targets (`fixed`), or learnt, one for the `task` or one per
    `input`; `auto` is `task`, or `fixed` where there is no validation data to learn it from."""
    likelihood: str = field(default=BY_KIND, kw_only=True)
    """What outputs say of y: `auto`, by `kind`; `multi-label` (y is [n, labels], 0 or 1), `counts`, or a subclass of
    `polyarch.Likelihood` (or its `package.module:name`)."""
    standardise: bool = field(default=True, kw_only=True)
    """Bring inputs and numbers to predict to mean 0 and deviation 1, as training examples have them; else networks see
    them as they are."""
    class_weights: ClassWeights = field(default="none", kw_only=True)
    """How much classes count in learning: every example alike (`none`), or every class alike (`balanced`)."""

    @property
    @override
    def text(self) -> None:
        """None: a run cannot load it again by itself."""
        return None


@dataclass(frozen=True, eq=False)
class Arrays(Memory):
    """Arrays x and y, numpy or torch, with a test set or without; where networks take several inputs, x is several."""

    x: Any = field(repr=False)
    y: Any = field(repr=False)
    x_test: Any = field(default=None, repr=False)
    y_test: Any = field(default=None, repr=False)

    @override
    def read(self) -> RawData:
        """Copies of the arrays, which a task keeps: the caller's may change later."""
        if (self.x_test is None) != (self.y_test is None):
            raise PolyarchError("arrays: only one of x_test and y_test is given; give both or neither")
        x, y = _inputs(self.x, "x"), _array(self.y, "y").copy()
        if self.x_test is None:
            return from_arrays(self, x, y, "arrays")
        return from_arrays(self, x, y, "arrays", _inputs(self.x_test, "x_test"), _array(self.y_test, "y_test").copy())


@dataclass(frozen=True, eq=False)
class TorchDataset(Memory):
    """A map-style torch Dataset of (x, y) items, with a test Dataset or without."""

    dataset: Dataset[Any] = field(repr=False)
    test_dataset: Dataset[Any] | None = field(default=None, repr=False)
    keep: Keep = field(default="auto", kw_only=True)
    """Where inputs are kept while a search runs: in `memory`, after every item was read once; or on `disk`, so to say:
    every item is read whenever it is needed, and must be the same each time. `auto`: so where all are more than 2
    GiB."""
    workers: int = field(default=-1, kw_only=True)
    """Processes that read items as they are needed; -1: half of the cores. It changes no result."""

    @override
    def read(self) -> RawData:
        """All items, in order."""
        where = type(self.dataset).__name__
        x, y = self._items(self.dataset, self.keep)
        if self.test_dataset is None:
            return from_arrays(self, x, y, where)
        test = self._items(self.test_dataset, "disk" if isinstance(x, Rows) else "memory")
        return from_arrays(self, x, y, where, *test)

    def _items(self, dataset: Dataset[Any], keep: Keep) -> tuple[Array | Rows | dict[str, Array], Array]:
        """Inputs [n, ...] and targets [n] of a map-style Dataset."""
        name = type(dataset).__name__
        if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__"):
            raise PolyarchError(f"{name} has no length and no items by index; give a map-style Dataset")
        if not len(dataset):
            raise PolyarchError(f"{name} is empty; give a Dataset with examples")
        first = _item(dataset, 0)
        x = first[0]
        one = partial(_alike, dataset, first)
        if isinstance(x, np.ndarray) and on_disk(keep, len(dataset), x.shape, x.dtype.itemsize):
            return scanned(Items(one, len(dataset), name, processes(self.workers)), name)
        pairs = [first, *(one(index) for index in range(1, len(dataset)))]
        xs, ys = [own for own, _ in pairs], np.stack([own for _, own in pairs])
        return np.stack(xs) if isinstance(x, np.ndarray) else stacked(xs, name), ys


def _item(dataset: Dataset[Any], index: int) -> tuple[Any, Array]:
    """Input and target of an item; where it has several inputs, these as they were given."""
    name = type(dataset).__name__
    try:
        item = dataset[index]
    except Exception as error:  # whatever the user's code raises
        raise PolyarchError(
            f"{name}: item {index} cannot be read ({type(error).__name__}: {reason(error)}); mend its __getitem__"
        ) from error
    if not isinstance(item, tuple | list) or len(item) != 2:
        raise PolyarchError(f"{name}: item {index} is {type(item).__name__}; give a pair (x, y)")
    x = item[0] if is_several(item[0]) else _array(item[0], f"x of item {index}")
    return x, _array(item[1], f"y of item {index}")


def _alike(dataset: Dataset[Any], first: tuple[Any, Array], index: int) -> tuple[Any, Array]:
    """An item that must be like the first."""
    name, own = type(dataset).__name__, _item(dataset, index)
    if isinstance(own[0], np.ndarray) != isinstance(first[0], np.ndarray):
        raise PolyarchError(f"{name}: only one of the items 0 and {index} has several inputs; make them alike")
    for what, value, at_first in zip("xy", own, first, strict=True):
        if isinstance(value, np.ndarray) and value.shape != at_first.shape:
            raise PolyarchError(
                f"{name}: {what} of item {index} has the shape {list(value.shape)} but that of item"
                f" 0 {list(at_first.shape)}; make them equal"
            )
    return own


def _inputs(x: Any, what: str) -> Any:
    """A copy of arrays, or the columns of a data frame."""
    if is_several(x):
        return as_read(x, what)
    if is_mapped(x):
        return x  # it stays where it is
    return frame_of(x, what) if is_frame(x) else _array(x, what).copy()


def _array(values: Any, what: str) -> Array:
    """A numpy array from a numpy array, a torch tensor, a list, a Pillow image or a number."""
    try:
        if isinstance(values, Tensor):
            values = values.detach().cpu()
            return (values.float() if values.dtype == torch.bfloat16 else values).numpy()  # no bfloat16 in numpy
        return np.asarray(values)
    except (TypeError, ValueError) as error:
        raise PolyarchError(f"{what} is no array ({reason(error)}); give all examples the same shape") from error
