"""Data in memory: arrays, and torch Datasets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset
from typing_extensions import override

from polyarch.data.checks import Array, reason
from polyarch.data.source import Unsplit
from polyarch.data.splitting import Kind, RawData
from polyarch.data.task import ClassWeights, Noise
from polyarch.errors import PolyarchError


@dataclass(frozen=True, eq=False)
class Memory(Unsplit):
    """Data that no text can find again."""

    kind: Kind = field(default="classification", kw_only=True)
    """What y is: class indices, or numbers to predict."""
    noise: Noise = field(default="fixed", kw_only=True)
    """Standard deviation of numbers to predict: 1 (`fixed`), or learnt, one for the `task` or one per `input`."""
    standardise: bool = field(default=True, kw_only=True)
    """Bring inputs to mean 0 and deviation 1, as training examples have them; else networks see them as they are."""
    class_weights: ClassWeights = field(default="none", kw_only=True)
    """How much classes count in learning: every example alike (`none`), or every class alike (`balanced`)."""

    @property
    @override
    def text(self) -> None:
        """None: a run cannot load it again by itself."""
        return None

    def _raw(self, x: Array, y: Array, where: str, x_test: Array | None = None, y_test: Array | None = None) -> RawData:
        """What was read, under the settings of all data in memory."""
        return RawData(
            x,
            y,
            where=where,
            x_test=x_test,
            y_test=y_test,
            kind=self.kind,
            noise=self.noise,
            standardise=self.standardise,
            class_weights=self.class_weights,
        )


@dataclass(frozen=True, eq=False)
class Arrays(Memory):
    """Arrays x and y, numpy or torch, with a test set or without."""

    x: Any = field(repr=False)
    y: Any = field(repr=False)
    x_test: Any = field(default=None, repr=False)
    y_test: Any = field(default=None, repr=False)

    @override
    def read(self) -> RawData:
        """Copies of the arrays, which a task keeps: the caller's may change later."""
        x, y = _array(self.x, "x").copy(), _array(self.y, "y").copy()
        if (self.x_test is None) != (self.y_test is None):
            raise PolyarchError("arrays: only one of x_test and y_test is given; give both or neither")
        if self.x_test is None:
            return self._raw(x, y, "arrays")
        x_test, y_test = _array(self.x_test, "x_test").copy(), _array(self.y_test, "y_test").copy()
        return self._raw(x, y, "arrays", x_test, y_test)


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
            return self._raw(x, y, where)
        x_test, y_test = _items(self.test_dataset)
        return self._raw(x, y, where, x_test, y_test)


def _items(dataset: Dataset[Any]) -> tuple[Array, Array]:
    """Inputs [n, ...] and targets [n] of a map-style Dataset."""
    name = type(dataset).__name__
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__"):
        raise PolyarchError(f"{name} has no length and no items by index; give a map-style Dataset")
    xs: list[Array] = []
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
        xs.append(_array(item[0], f"x of item {index}"))
        ys.append(_array(item[1], f"y of item {index}"))
        for what, values in (("x", xs), ("y", ys)):
            if values[-1].shape != values[0].shape:
                raise PolyarchError(
                    f"{name}: {what} of item {index} has the shape {list(values[-1].shape)} but that of item"
                    f" 0 {list(values[0].shape)}; make them equal"
                )
    if not xs:
        raise PolyarchError(f"{name} is empty; give a Dataset with examples")
    return np.stack(xs), np.stack(ys)


def _array(values: Any, what: str) -> Array:
    """A numpy array from a numpy array, a torch tensor, a list, a Pillow image or a number."""
    try:
        if isinstance(values, Tensor):
            values = values.detach().cpu()
            return (values.float() if values.dtype == torch.bfloat16 else values).numpy()  # no bfloat16 in numpy
        return np.asarray(values)
    except (TypeError, ValueError) as error:
        raise PolyarchError(f"{what} is no array ({reason(error)}); give all examples the same shape") from error
