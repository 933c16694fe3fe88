"""Numpy arrays where tensors are: for functions that people call with what other libraries gave them."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np
import torch

P = ParamSpec("P")
T = TypeVar("T")


def takes_arrays(function: Callable[P, T]) -> Callable[P, T]:
    """A function of tensors that is given numpy arrays, too; what it gives back are tensors."""

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> T:
        named: dict[str, Any] = {name: _tensor(value) for name, value in kwargs.items()}
        return function(*map(_tensor, args), **named)

    return called


def _tensor(value: Any) -> Any:
    if not isinstance(value, np.ndarray):
        return value
    # Of a view that goes backwards torch makes none, and one that may not be written to it warns of.
    return torch.from_numpy(np.array(value))
