"""What inputs and targets must be; every error says where the first bad value is."""

from __future__ import annotations

from collections.abc import Sized
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyarch.errors import PolyarchError

Array = NDArray[Any]

NUMERIC = "buif"  # numpy's kinds: bool, unsigned, signed, float
LABEL_LIMIT = 2**31  # a label beyond this is a mistake, and would not survive the conversion from float


def are_tokens(x: Array) -> bool:
    """Whether inputs are tokens, which have no order and no size: whole numbers [n, length] in 32 bits or 64."""
    return x.ndim == 2 and x.dtype.kind == "i" and x.dtype.itemsize in (4, 8)


def checked_inputs(x: Array, what: str) -> Array:
    """Inputs as vectors [n, f], images [n, c, h, w] or tokens [n, length].

    Tokens become int64, uint8 stays, and every other type becomes float32.

    Args:
        x: [n, f], [n, h, w] (grey), [n, c, h, w], or [n, h, w, c] with c in (1, 3, 4) and h, w > 4.
        what: what to call `x` in an error, such as "data.npz: x".
    """
    if x.dtype.kind not in NUMERIC:
        raise PolyarchError(f"{what} holds values of type {x.dtype}; give numbers")
    if x.ndim not in (2, 3, 4) or x.size == 0:
        raise PolyarchError(
            f"{what} has the shape {list(x.shape)}; give vectors [n, features] or images [n, channels, height, width]"
        )
    if are_tokens(x):
        first_bad(x, x < 0, what, "whole numbers are tokens, which run from 0; save numbers as float32")
        return x.astype(np.int64)
    if x.ndim == 3:
        x = x[:, None]
    elif x.ndim == 4 and x.shape[3] in (1, 3, 4) and min(x.shape[1:3]) > 4:
        x = np.moveaxis(x, 3, 1)
    if x.dtype == np.uint8:
        return x
    with np.errstate(over="ignore"):  # what does not fit becomes infinite, and is reported below
        x = x.astype(np.float32)
    first_bad(x, ~np.isfinite(x), what, "give finite float32 numbers, or leave those examples out")
    return x


def checked_labels(y: Array, what: str) -> NDArray[np.int64]:
    """Whole numbers [n], which name classes, from integers or whole floats of shape [n] or [n, 1]."""
    y = _column(y, what)
    if y.dtype.kind == "f":
        first_bad(y, ~np.isfinite(y), what, "every example needs a label")
        first_bad(y, y != np.round(y), what, "labels are whole numbers; for numbers to predict set kind=regression")
    elif y.dtype.kind == "b":
        y = y.astype(np.int64)
    first_bad(y, np.abs(y) >= LABEL_LIMIT, what, "labels run from 0 to the number of classes - 1")
    return y.astype(np.int64)


def checked_numbers(y: Array, what: str) -> NDArray[np.float32]:
    """Regression targets [n], float32, from numbers of shape [n] or [n, 1]."""
    y = _column(y, what)
    with np.errstate(over="ignore"):
        y = y.astype(np.float32)
    first_bad(y, ~np.isfinite(y), what, "every example needs a finite target")
    return y


def checked_targets(y: Array, what: str) -> NDArray[np.float32]:
    """Targets of a likelihood of one's own: finite numbers [n] or [n, k], float32; [n, 1] becomes [n]."""
    if y.dtype.kind not in NUMERIC:
        raise PolyarchError(f"{what} holds values of type {y.dtype}; give numbers")
    if y.ndim not in (1, 2) or y.size == 0:
        raise PolyarchError(f"{what} has the shape {list(y.shape)}; give targets [n], or several per example: [n, k]")
    with np.errstate(over="ignore"):
        y = y.astype(np.float32)
    first_bad(y, ~np.isfinite(y), what, "every example needs a finite target")
    return y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y


def check_classes(y: NDArray[np.int64], everything: NDArray[np.int64], names: tuple[str, ...], where: str) -> int:
    """The number of classes, once every class has a training example.

    Args:
        y: [n] labels of the training split.
        everything: labels of all splits.
        names: names of all classes, or () where they have none.
        where: what to call the data in an error.
    """
    count = len(names) or int(everything.max()) + 1
    if len(np.unique(everything)) < 2:
        only = names[everything[0]] if names else everything[0]
        raise PolyarchError(f"{where}: all labels are {only}; classification needs at least two classes")
    if count > len(everything):
        raise PolyarchError(
            f"{where}: fewer examples ({len(everything)}) than classes ({count}); add examples, or number the"
            " classes 0, 1, 2, ... without gaps"
        )
    missing = np.flatnonzero(np.bincount(y, minlength=count) == 0)
    if len(missing):
        shown = ", ".join(repr(names[i]) if names else str(i) for i in missing[:5])
        more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
        raise PolyarchError(
            f"{where}: no training example of class {shown}{more}; add examples, or set aside fewer for"
            f" other splits{'' if names else '; classes are numbered 0, 1, 2, ... without gaps'}"
        )
    return count


def check_pair(x: Sized, y: Sized, what: tuple[str, str]) -> None:
    """Raises where inputs and targets differ in number."""
    if len(x) != len(y):
        raise PolyarchError(f"{what[0]} has {len(x)} examples but {what[1]} has {len(y)}; give one y for every x")


def reason(error: Exception) -> str:
    """The first line of a foreign error, so that ours stays one line."""
    return (str(error) or type(error).__name__).splitlines()[0]


def _column(y: Array, what: str) -> Array:
    """[n] from [n] or [n, 1] numbers."""
    if y.dtype.kind not in NUMERIC:
        raise PolyarchError(f"{what} holds values of type {y.dtype}; give numbers")
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1:
        raise PolyarchError(f"{what} has the shape {list(y.shape)}; give one number per example: [n]")
    return y


def first_bad(values: Array, bad: Array, what: str, advice: str) -> None:
    """Raises with the place and value of the first element marked bad."""
    if bad.any():
        place = np.unravel_index(int(bad.argmax()), bad.shape)
        raise PolyarchError(f"{what}[{', '.join(str(int(i)) for i in place)}] is {values[place]}; {advice}")
