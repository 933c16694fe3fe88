"""Data in memory: arrays, and torch Datasets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset
from typing_extensions import override

from polyarch.data.arrays import from_arrays
from polyarch.data.checks import Array, reason
from polyarch.data.frames import Frame, frame_of, is_frame
from polyarch.data.likelihood import ClassWeights
from polyarch.data.own_likelihoods import BY_KIND
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
    """A map-style torch Dataset of (x, y) items, with a test Dataset or without; read whole into memory."""

    dataset: Dataset[Any] = field(repr=False)
    test_dataset: Dataset[Any] | None = field(default=None, repr=False)

    @override
    def read(self) -> RawData:
        """All items, in order."""
        where = type(self.dataset).__name__
        x, y = _items(self.dataset)
        if self.test_dataset is None:
            return from_arrays(self, x, y, where)
        x_test, y_test = _items(self.test_dataset)
        return from_arrays(self, x, y, where, x_test, y_test)


def _items(dataset: Dataset[Any]) -> tuple[Array | dict[str, Array], Array]:
    """Inputs [n, ...] and targets [n] of a map-style Dataset."""
    name = type(dataset).__name__
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__"):
        raise PolyarchError(f"{name} has no length and no items by index; give a map-style Dataset")
    xs: list[Any] = []
    ys: list[Array] = []
    for index in range(len(dataset)):
        try:
            item = dataset[index]
        except Exception as error:  # whatever the user's code raises
            raise PolyarchError(
                f"{name}: item {index} cannot be read ({type(error).__name__}: {reason(error)}); mend its __getitem__"
            ) from error
        if not isinstance(item, tuple | list) or len(item) != 2:
            raise PolyarchError(f"{name}: item {index} is {type(item).__name__}; give a pair (x, y)")
        several = is_several(item[0])
        xs.append(item[0] if several else _array(item[0], f"x of item {index}"))
        ys.append(_array(item[1], f"y of item {index}"))
        if several != is_several(xs[0]):
            raise PolyarchError(f"{name}: only one of the items 0 and {index} has several inputs; make them alike")
        for what, values in (("x", xs), ("y", ys)) if not several else (("y", ys),):
            if values[-1].shape != values[0].shape:
                raise PolyarchError(
                    f"{name}: {what} of item {index} has the shape {list(values[-1].shape)} but that of item"
                    f" 0 {list(values[0].shape)}; make them equal"
                )
    if not xs:
        raise PolyarchError(f"{name} is empty; give a Dataset with examples")
    return stacked(xs, name) if is_several(xs[0]) else np.stack(xs), np.stack(ys)


def _inputs(x: Any, what: str) -> Array | Frame | dict[str, Array]:
    """A copy of arrays, or the columns of a data frame."""
    if is_several(x):
        return as_read(x, what)
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
