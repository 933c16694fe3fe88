"""Several inputs of one example, such as an image and what is said of it: kept side by side in one row of numbers.

So whatever reads, splits, stores and compares examples has one array, as for all other data. `preprocess.Unpack` takes
a row apart again: networks see the inputs as they were given.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, final

import numpy as np
from torch import Tensor

from polyarch.data.checks import Array, checked_inputs, reason
from polyarch.errors import PolyarchError
from polyarch.settings import plain

InputType = Literal["numbers", "bytes", "tokens"]
MOST_TOKENS = 2**24
"""Whole numbers below are kept exactly in single precision."""


@final
@dataclass(frozen=True)
class Parts:
    """What the inputs of one example are, and where each stands in its row."""

    names: tuple[str, ...]
    """By which networks take them; their places, 0, 1, ..., where they take them in order."""
    shapes: tuple[tuple[int, ...], ...]
    types: tuple[InputType, ...]
    tokens: tuple[int, ...]
    """How many different ones there are, where an input is tokens; else 0."""

    @property
    def in_order(self) -> bool:
        """Whether networks take them in order, else by name."""
        return self.names[0] == "0"

    @property
    def sizes(self) -> list[int]:
        """Numbers in a row of each."""
        return [math.prod(shape) for shape in self.shapes]

    @property
    def words(self) -> str:
        """In words, for people."""
        told = []
        for name, shape, kind in zip(self.names, self.shapes, self.types, strict=True):
            size = " × ".join(map(str, shape))
            told.append(f"{size} {kind}" if self.in_order else f"{name}: {size} {kind}")
        return " and ".join(told)

    def tree(self, values: Sequence[Any]) -> Any:
        """One value for each input, in the form in which networks take them."""
        return tuple(values) if self.in_order else dict(zip(self.names, values, strict=True))

    def unpacked(self, rows: Tensor) -> list[Tensor]:
        """[n, numbers] -> the inputs, [n, ...] each; all of them floats."""
        found = zip(rows.split(self.sizes, 1), self.shapes, strict=True)
        return [values.unflatten(1, shape) for values, shape in found]

    def checked(self, given: Any, what: str) -> list[Array]:
        """Other inputs, given as the run's own were; raises where they are others.

        Args:
            given: a tuple or list of arrays or tensors, or a mapping of them.
            what: what to call them in an error.
        """
        if not is_several(given) and not (isinstance(given, list) and self.in_order):
            raise PolyarchError(
                f"{what} is one input, and this run takes {len(self.names)} ({self.words}); give {self}"
            )
        arrays = as_read(tuple(given) if isinstance(given, list) else given, what)
        if set(arrays) != set(self.names):
            raise PolyarchError(f"{what} has the inputs {', '.join(arrays)}, and this run takes {self}; give those")
        found = []
        for name, shape, kind in zip(self.names, self.shapes, self.types, strict=True):
            own = arrays[name]
            if kind != "tokens" and own.dtype.kind == "i":
                own = own.astype(np.float64)
            found.append(checked_inputs(own, f"{what}[{name}]"))
            if found[-1].shape[1:] != shape or (kind == "tokens") != (found[-1].dtype == np.int64):
                raise PolyarchError(
                    f"{what}[{name}] is {own.dtype} of the shape {list(arrays[name].shape)}; give {kind} [n, "
                    f"{', '.join(map(str, shape))}]"
                )
        return found

    def __str__(self) -> str:
        """How they are given."""
        return f"({', '.join(f'x{name}' for name in self.names)})" if self.in_order else f"{{{', '.join(self.names)}}}"

    def settings(self) -> dict[str, Any]:
        """What `parts_from` needs to make this again."""
        found: dict[str, Any] = plain(self)
        return found


def parts_from(settings: Mapping[str, Any]) -> Parts:
    """The parts that gave these `settings()`."""
    shapes = tuple(tuple(shape) for shape in settings["shapes"])
    return Parts(tuple(settings["names"]), shapes, tuple(settings["types"]), tuple(settings["tokens"]))


def parts_of(arrays: Mapping[str, Array]) -> Parts:
    """What checked inputs are."""
    types: list[InputType] = [
        "tokens" if own.dtype == np.int64 else "bytes" if own.dtype == np.uint8 else "numbers"
        for own in arrays.values()
    ]
    tokens = [int(own.max()) + 1 if kind == "tokens" else 0 for own, kind in zip(arrays.values(), types, strict=True)]
    for name, count in zip(arrays, tokens, strict=True):
        if count > MOST_TOKENS:
            raise PolyarchError(f"x[{name}] has tokens up to {count - 1}; number those that there are from 0")
    return Parts(tuple(arrays), tuple(tuple(own.shape[1:]) for own in arrays.values()), tuple(types), tuple(tokens))


def is_several(x: Any) -> bool:
    """Whether x is several inputs: a mapping, or a tuple of arrays; a list is one array."""
    if isinstance(x, Mapping):
        return True
    return isinstance(x, tuple) and any(hasattr(one, "shape") and len(one.shape) for one in x)


def as_read(x: Any, what: str) -> dict[str, Array]:
    """Several inputs by their names, as arrays of equal length; of one number per example [n] becomes [n, 1]."""
    named = dict(x) if isinstance(x, Mapping) else {str(place): one for place, one in enumerate(x)}
    for name in named:
        if isinstance(x, Mapping) and not (isinstance(name, str) and name.isidentifier()):
            raise PolyarchError(
                f"{what} has an input called {name!r}; networks take it by that name: write a Python name"
            )
    found = {}
    for name, one in named.items():
        own = _array(one)
        found[name] = own[:, None] if own.ndim == 1 else own
    lengths = {name: len(own) for name, own in found.items() if own.ndim}
    if not found or len(set(lengths.values())) != 1 or len(lengths) < len(found):
        told = ", ".join(f"{name}: {length}" for name, length in lengths.items())
        raise PolyarchError(f"{what}: its inputs have different numbers of examples ({told}); make them equal")
    return found


def in_rows(arrays: Sequence[Array]) -> Array:
    """Checked inputs side by side: float32 [n, numbers]."""
    return np.concatenate([own.reshape(len(own), -1).astype(np.float32) for own in arrays], 1)


def stacked(items: Sequence[Any], what: str) -> dict[str, Array]:
    """Several inputs of every example, as those of all examples, by their names."""
    rows = [dict(item) if isinstance(item, Mapping) else {str(k): one for k, one in enumerate(item)} for item in items]
    for index, row in enumerate(rows):
        if row.keys() != rows[0].keys():
            raise PolyarchError(f"{what}: item {index} has other inputs than item 0; give each the same")
    try:
        found = {name: np.stack([_array(row[name]) for row in rows]) for name in rows[0]}
    except ValueError as error:
        raise PolyarchError(
            f"{what}: an input has not one shape in all items ({reason(error)}); make them equal"
        ) from None
    return as_read(found if isinstance(items[0], Mapping) else tuple(found.values()), what)


def _array(values: Any) -> Array:
    return values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
