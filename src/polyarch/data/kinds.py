"""What inputs a task has, so that a run knows which others it can take."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from polyarch.data.checks import NUMERIC, Array, are_tokens
from polyarch.data.frames import Frame, frame_of_array
from polyarch.data.rows import Rows, ends_of
from polyarch.data.several import InputType, Parts, in_rows, parts_from
from polyarch.data.vocabulary import Columns, columns_from, named
from polyarch.errors import PolyarchError
from polyarch.settings import plain

logger = logging.getLogger("polyarch")

TYPES: dict[torch.dtype, InputType] = {torch.uint8: "bytes", torch.int64: "tokens"}
"""What inputs are by how they are kept; all others are numbers."""
MANY = 100_000
"""Of so many examples columns are looked at for other units."""
APART = 10
"""Images whose numbers are so many times those of others are on another scale: bytes, and what goes from 0 to 1."""


@final
@dataclass(frozen=True)
class Inputs:
    """What a task's inputs are: a run keeps it, and holds all other inputs to it."""

    shape: tuple[int, ...]
    """Of one example as it is read: (columns,), (channels, height, width) or (length,)."""
    type: InputType = "numbers"
    low: tuple[float, ...] = ()
    """The least of all examples: in every column of vectors, else of all numbers together."""
    high: tuple[float, ...] = ()
    columns: Columns | None = None
    """Of a table, what is known of its columns; None where inputs are told apart by their places alone."""
    parts: Parts | None = None
    """Where every example has several inputs, which; `shape` is then that of the row in which they stand side by side,
    and `low` and `high` are of each."""

    def settings(self) -> dict[str, Any]:
        """What `inputs_from` needs to make this again."""
        found: dict[str, Any] = plain(self)
        return found

    @property
    def tokens(self) -> int:
        """How many different ones there are, where inputs are tokens; else 0."""
        return 1 + int(self.high[0]) if self.type == "tokens" else 0

    @property
    def features(self) -> tuple[int, ...]:
        """The shape of what a network sees of one example."""
        return (self.columns.features,) if self.columns else self.shape

    @property
    def words(self) -> str:
        """In words, for people."""
        if self.columns:
            return self.columns.words()
        if self.parts:
            return self.parts.words
        size = " × ".join(map(str, self.shape))
        return f"{size} tokens" if self.type == "tokens" else size

    def fitted(self, x: Array | Frame, what: str) -> Array:
        """Inputs as this run's own: a table by its columns, whole numbers as tokens where those are tokens.

        Args:
            x: as it was read, [n, ...].
            what: what to call it in an error.
        """
        if self.parts:
            raise PolyarchError(
                f"{what} is one input, and this run takes {len(self.parts.names)} ({self.parts.words}); ask it in "
                f"Python: run.predict({self.parts})"
            )
        if self.columns:
            return self.columns.coded(self._table(x, self.columns, what), what)
        if isinstance(x, Frame):
            raise PolyarchError(f"{what} is a table, and this run takes inputs {list(self.shape)} without names")
        if self.type != "tokens":
            return x.astype(np.float64) if are_tokens(x) else x
        if x.dtype.kind not in "ui":
            raise PolyarchError(
                f"{what} holds values of type {x.dtype}, and this run takes tokens; give whole numbers, as int64 in a "
                ".npz"
            )
        return x.astype(np.int64)

    @staticmethod
    def _table(x: Array | Frame, columns: Columns, what: str) -> Frame:
        """Inputs as a table with this run's columns; an array has them in order, and can hold no words."""
        if isinstance(x, Frame):
            check_columns(what, list(x.columns), columns.names)
            return x
        words = [column.name for column in columns.columns if column.holds == "category"]
        if words or x.shape[1:] != (len(columns.columns),) or x.dtype.kind not in NUMERIC:
            raise PolyarchError(
                f"{what} is an array {list(x.shape)}, and this run takes a table of {columns.words()}; give a .csv or "
                f"a data frame with {named(columns.names)}"
            )
        by_place = frame_of_array(x, what)
        if tuple(by_place.columns) != columns.names:
            logger.warning(
                "%s has no names of columns, and is taken to hold %s in this order", what, named(columns.names)
            )
        return Frame(dict(zip(columns.names, by_place.columns.values(), strict=True)), by_place.place)

    def check(
        self, text: str, x: Any, highest_byte: float, before: tuple[float, float] = (math.inf, -math.inf)
    ) -> None:
        """Raises where inputs of this shape are on another scale than the run's own, so that all answers mislead.

        Pixels that are bytes have a known range, to which others must keep; of other inputs only the size is compared.
        Two arrays of bytes may both be dark, and two of features may well be far apart: of columns, that is said. Of
        tokens that it has not seen a run knows nothing.

        Args:
            text: what to call them in an error.
            x: [n, ...], raw inputs: a tensor, or `Rows`.
            highest_byte: what white is, where pixels are bytes.
            before: the least and the greatest number of those that were read before, where these are a part.
        """
        if self.parts:
            for one, name, values in zip(self.each(), self.parts.names, self.parts.unpacked(x), strict=True):
                if one.type != "numbers" and (values != values.round()).any():
                    raise PolyarchError(
                        f"{text}[{name}] has fractions, and this run takes {one.type} there; give those"
                    )
                one.check(f"{text}[{name}]", as_type(values, one.type), highest_byte)
            return
        pixels = self.type == "bytes" and len(self.shape) == 3
        low, high = (0.0, highest_byte) if pixels else (min(self.low), max(self.high))
        if self.columns:
            self._say_far(text, x)
            return
        least, most = ends_of(x)
        least, most = min(least, before[0]), max(most, before[1])
        if self.type == "tokens":
            if TYPES.get(x.dtype) != "tokens" or most > high:
                raise PolyarchError(
                    f"{text} has inputs up to {most:g}, and this run knows the tokens 0 to {high:g}; put one of these "
                    "in the place of each that it does not know"
                )
            return
        outside = pixels and (least < low or most > high)
        same = TYPES.get(x.dtype, "numbers") == self.type and (self.type == "bytes" or len(self.shape) == 1)
        reach, own = max(abs(least), abs(most)), max(abs(low), abs(high))
        apart = not same and min(reach, own) > 0 and max(reach / own, own / reach) >= APART
        if outside or apart:
            raise PolyarchError(
                f"{text} has numbers from {least:.3g} to {most:.3g}, and this run's own are from {low:.3g} to "
                f"{high:.3g}, so that whatever is said of them would come of the scale; scale them to that range, and "
                "save them as a .npz"
            )
        if len(self.shape) == 1:
            self._say_far(text, x)

    def rows(self, given: Any, what: str, highest_byte: float) -> Tensor:
        """Several inputs of other examples side by side, as this run's own stand; raises as `check` does."""
        assert self.parts is not None
        arrays = self.parts.checked(given, what)
        for own, name, one in zip(self.each(), self.parts.names, arrays, strict=True):
            own.check(f"{what}[{name}]", torch.from_numpy(one), highest_byte)
        return torch.from_numpy(in_rows(arrays))

    def each(self) -> list[Inputs]:
        """Where there are several inputs, what each is."""
        assert self.parts is not None
        told = zip(self.parts.shapes, self.parts.types, self.low, self.high, strict=True)
        return [Inputs(shape, kind, (low,), (high,)) for shape, kind, low, high in told]

    def _say_far(self, text: str, x: Tensor) -> None:
        """Says in which columns most numbers are far from the run's own, by more than the width of its range."""
        x = x[:MANY].double()
        low, high = torch.tensor(self.low, dtype=x.dtype), torch.tensor(self.high, dtype=x.dtype)
        far = (x > 2 * high - low) | (x < 2 * low - high)  # not so where there is a gap
        places = (2 * far.sum(0) > x.isfinite().sum(0)).nonzero()[:, 0].tolist()
        if self.columns:
            names = [own.name for own in (self.columns.columns[k] for k in places) if own.holds == "number"]
        else:
            names = [str(k) for k in places]
        if names:
            logger.warning("%s: %s far from all that the run has seen; are the units the same?", text, named(names))


def inputs_from(settings: Mapping[str, Any]) -> Inputs:
    """The inputs that gave these `settings()`."""
    columns = settings["columns"]
    return Inputs(
        shape=tuple(settings["shape"]),
        type=settings["type"],
        low=tuple(settings["low"]),
        high=tuple(settings["high"]),
        columns=columns_from(columns) if columns else None,
        parts=parts_from(settings["parts"]) if settings.get("parts") else None,
    )


def inputs_of(splits: Sequence[Any], columns: Columns | None, parts: Parts | None = None) -> Inputs:
    """What inputs are, given in several splits [n, ...]."""
    if parts is not None:
        each = [inputs_of(own, None) for own in zip(*map(parts.unpacked, splits), strict=True)]
        each_end = (tuple(min(own.low) for own in each), tuple(max(own.high) for own in each))
        return Inputs(tuple(splits[0].shape[1:]), "numbers", *each_end, None, parts)
    if isinstance(splits[0], Rows):
        kind, scan = TYPES.get(splits[0].dtype, "numbers"), splits[0].scan
        return Inputs(tuple(splits[0].shape[1:]), kind, tuple(scan.low.tolist()), tuple(scan.high.tolist()), columns)
    by_column = splits[0].ndim == 2 and splits[0].dtype != torch.int64
    rows = [x if by_column else x.reshape(-1, 1) for x in splits]
    # Of a column without any number both are 0: nothing is far from it that is not far from that.
    low = torch.stack([values.nan_to_num(nan=torch.inf).amin(0) for values in rows]).amin(0)
    high = torch.stack([values.nan_to_num(nan=-torch.inf).amax(0) for values in rows]).amax(0)
    known = low <= high
    ends = (torch.where(known, end, 0).tolist() for end in (low, high))
    low_end, high_end = (tuple(end) for end in ends)
    return Inputs(tuple(splits[0].shape[1:]), TYPES.get(splits[0].dtype, "numbers"), low_end, high_end, columns)


def as_type(x: Tensor, kind: InputType) -> Tensor:
    """Inputs of a type that were kept as floats."""
    return x.to({"bytes": torch.uint8, "tokens": torch.int64}.get(kind, x.dtype))


def check_columns(path: str, header: Sequence[str], wanted: Sequence[str]) -> None:
    """Raises where a column is missing that a run takes."""
    missing = [name for name in wanted if name not in header]
    if missing:
        raise PolyarchError(
            f"{path}: no {named(missing)}, which the run takes (the header has {named(header)}); add what is missing"
            " under that name, and separate cells as the run's data does"
        )


def in_order(names: Sequence[str]) -> list[str]:
    """Columns as a run takes them that knows no names: as they are counted, where they are, else as they stand."""
    return _counted(names) or list(names)


def say_order(what: str, names: Sequence[str]) -> None:
    """Says that names were not looked at, by a run that knows none; only once all is read, or an error is said."""
    if _counted(names) is None:
        logger.warning("%s: the run knows no names of columns, and takes %s in this order", what, named(names))


def _counted(names: Sequence[str]) -> list[str] | None:
    """The names in their order, where they count columns from 0 or 1."""
    for start in (0, 1):
        counted = [str(start + place) for place in range(len(names))]
        if set(names) == set(counted):
            return counted
    return None


def say_left_over(path: str, header: Sequence[str], used: Sequence[str]) -> None:
    """Says which columns of a table are of no use to a run; only once all others were read, or an error is said."""
    left_over = [name for name in header if name not in used]
    if left_over:
        logger.warning("%s: %s left over, which the run does not take", path, named(left_over))
