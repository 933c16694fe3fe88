"""A table as it was read: columns by name, before anything is learnt of them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, final

import numpy as np
from typing_extensions import Protocol, runtime_checkable

from polyarch.data.checks import Array
from polyarch.errors import PolyarchError, unknown

Holds = Literal["number", "category"]
"""What a column holds."""
GAPS = frozenset({"", "na", "n/a", "#n/a", "nan", "null", "none", "nat", "<na>", "?"})
"""What stands where a value is missing, in any case, as spreadsheets, R, pandas and old data sets write it."""
DATES = ("datetime", "timedelta", "date", "duration", "timestamp", "time")
WORDS = ("category", "categorical", "enum", "dictionary")
"""How types of columns begin, in lower case, in pandas, polars and pyarrow."""
LARGEST = float(np.finfo(np.float32).max)
DECIMAL_COMMA = re.compile(r"[-+]?\d+,\d+")


@final
@dataclass(frozen=True, eq=False)
class Frame:
    """Columns of equal length by name, each float64 with NaN for a gap, or texts, of which some may stand for gaps."""

    columns: Mapping[str, Array]
    """[rows] each."""
    place: Callable[[int], str]
    """What to call a row in an error."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Why nothing can be made of a column, such as one of dates; only where it is asked for is that an error."""

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def column(self, name: str) -> Array:
        """A column as it was read; raises where nothing can be made of it."""
        if name in self.refused:
            raise PolyarchError(self.refused[name])
        return self.columns[name]

    def numbers(self, name: str, gaps: Collection[str] = (), settable: bool = False) -> Array:
        """A column as float64 [rows], NaN in its gaps; raises where a cell is neither.

        Args:
            name: of the column.
            gaps: what else stands for a gap.
            settable: whether that is a setting still, as it is for a search and not for a run.
        """
        column = self.column(name)
        if column.dtype.kind == "f":
            values = column.copy()
            for mark in gaps:
                values[values == parsed(mark)] = math.nan
        else:
            values = np.array([math.nan if is_gap(cell, gaps) else parsed(cell) for cell in column], dtype=np.float64)
            wrong = np.isnan(values) & ~self.missing(name, gaps)
            if wrong.any():
                row = int(wrong.argmax())
                gap = f"set missing={column[row]}" if settable else "leave the cell empty"
                raise PolyarchError(
                    f"{self.place(row)} has {column[row]!r} in column {name!r}, no number, as its other cells are; "
                    f"mend it, or, where it stands for a gap, {gap}"
                )
        too_large = np.abs(values) > LARGEST
        if too_large.any():
            row = int(too_large.argmax())
            raise PolyarchError(
                f"{self.place(row)} has {column[row]!r} in column {name!r}; give finite numbers that fit float32"
            )
        return values

    def texts(self, name: str, gaps: Collection[str] = ()) -> Array:
        """A column as texts [rows], None in its gaps; whole numbers are written without a point."""
        column, missing = self.column(name), self.missing(name, gaps)
        cells = [_text(value) for value in column] if column.dtype.kind == "f" else column
        return np.array([None if gap else cell for cell, gap in zip(cells, missing, strict=True)], dtype=object)

    def missing(self, name: str, gaps: Collection[str] = ()) -> Array:
        """Where a column has a gap: bool [rows]."""
        column = self.column(name)
        if column.dtype.kind == "f":
            found: Array = np.isnan(column) | np.isin(column, [parsed(mark) for mark in gaps])
            return found
        return np.array([is_gap(cell, gaps) for cell in column], dtype=bool)

    def holds(self, name: str, gaps: Collection[str] = ()) -> Holds:
        """What a column holds: words where most of its cells are no numbers; `numbers` says where a few are none."""
        column = self.column(name)
        if column.dtype.kind == "f":
            return "number"
        cells = [cell for cell in column if not is_gap(cell, gaps)]
        numbers = sum(not math.isnan(parsed(cell)) for cell in cells)
        if 2 * numbers >= len(cells):
            return "number"
        if all(DECIMAL_COMMA.fullmatch(cell) for cell in cells):
            raise PolyarchError(
                f"{self.place(0)} has {column[0]!r} in column {name!r}: numbers with a comma; write them with a point "
                "for decimals and nothing between thousands"
            )
        return "category"


def parsed(cell: str) -> float:
    """The number that a cell holds, finite or not; NaN where it holds none."""
    try:
        return math.nan if "_" in cell else float(cell)  # Python reads 1_000 as a number, and tables do not
    except ValueError:
        return math.nan


def are_numbers(cells: Iterable[str]) -> bool:
    """Whether every cell holds a number."""
    return not any(math.isnan(parsed(cell)) for cell in cells)


def is_gap(cell: str, gaps: Collection[str] = ()) -> bool:
    """Whether a cell stands for a missing value."""
    return cell.casefold() in GAPS or cell in gaps


def _text(value: float) -> str:
    """A number as a category: 7, not 7.0."""
    return str(int(value)) if math.isfinite(value) and value == int(value) else str(value)


# ---------------------------------------------------------------------------------------------------------------------
# Data frames of other libraries, known by what they can do, so that none is imported.


@runtime_checkable
class DataFrame(Protocol):
    """A table of pandas, polars or the like."""

    columns: Any

    def __getitem__(self, name: Any) -> Any:
        """A column."""

    def to_numpy(self) -> Any:
        """All columns."""


def is_frame(x: Any) -> bool:
    """Whether x is a table whose columns have names."""
    return isinstance(x, DataFrame)


def frame_of(x: DataFrame, what: str) -> Frame:
    """The columns of a data frame; a name that is no text becomes one.

    Args:
        x: the data frame.
        what: what to call it in an error.
    """
    names = [str(name) for name in x.columns]
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise PolyarchError(f"{what} has two columns {twice!r}; give every column its own name")
    if not names or not len(x.to_numpy()):
        raise PolyarchError(f"{what} is empty; give rows and columns")
    return typed_frame(((name, *_values(x[own])) for name, own in zip(names, x.columns, strict=True)), what)


def _values(column: Any) -> tuple[Sequence[Any] | Array, str]:
    """One of a data frame's columns, and its type.

    Python's own values of it are what all libraries have in common; numbers of numpy are taken as they are.
    """
    dtype = getattr(column, "dtype", None)
    if isinstance(dtype, np.dtype) and dtype.kind in "iuf":
        return np.array(column, np.float64), str(dtype)
    return column.tolist() if hasattr(column, "tolist") else column.to_list(), str(dtype or "")


def typed_frame(columns: Iterable[tuple[str, Sequence[Any] | Array, str]], what: str) -> Frame:
    """A table whose columns have types.

    Args:
        columns: name, Python's own values or an array as a Frame has it, and what the table says it holds.
        what: what to call the table in an error.
    """
    read: dict[str, Array] = {}
    refused: dict[str, str] = {}
    for name, values, dtype in columns:
        try:
            read[name] = values if isinstance(values, np.ndarray) else _column_of(values, name, what, dtype)
        except PolyarchError as error:
            read[name], refused[name] = np.full(len(values), "", dtype=object), str(error)
    return Frame(read, lambda row: f"{what}: row {row}", refused)


def _column_of(values: Sequence[Any], name: str, what: str, dtype: str) -> Array:
    """A column of numbers as float64, of anything else as texts; what is missing becomes NaN or an empty text.

    Args:
        values: Python's own.
        name: of the column.
        what: what to call the table in an error.
        dtype: what the table says it holds.
    """
    if dtype.lower().startswith(DATES):
        raise PolyarchError(
            f"{what}: column {name!r} holds dates; turn them into numbers, such as days since a date, or leave the "
            "column out"
        )
    gaps = [_is_missing(value) for value in values]
    known = [value for value, gap in zip(values, gaps, strict=True) if not gap]
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in known)
    if known and numbers and not dtype.lower().startswith(WORDS):
        return np.array([math.nan if gap else float(value) for value, gap in zip(values, gaps, strict=True)])
    if any(isinstance(value, list | dict | tuple | set | np.ndarray) for value in known):
        raise PolyarchError(f"{what}: column {name!r} holds lists; give one number or one text in every cell")
    texts = ["" if gap else _word(value) for value, gap in zip(values, gaps, strict=True)]
    return np.array(texts, dtype=object)


def _word(value: Any) -> str:
    return _text(value) if isinstance(value, float) else str(value).strip()


def _is_missing(value: Any) -> bool:
    """Whether a cell of a data frame is empty; pandas' NA says of no comparison whether it holds."""
    empty = value is None or type(value).__name__ in ("NAType", "NaTType")
    return empty or (isinstance(value, float) and math.isnan(value))


def frame_of_array(x: Array, what: str) -> Frame:
    """The columns of an array [n, features] of numbers with gaps, under their places: "0", "1", ..."""
    return Frame({str(k): x[:, k].astype(np.float64) for k in range(x.shape[1])}, lambda row: f"{what}[{row}]")


def has_gaps(x: Array) -> bool:
    """Whether an array holds vectors of numbers of which some are missing."""
    return x.ndim == 2 and x.dtype.kind == "f" and bool(np.isnan(x).any())


def check_named(names: Sequence[str], columns: Collection[str], setting: str, where: str) -> None:
    """Raises where a setting names what is no column."""
    for name in names:
        if name not in columns:
            raise PolyarchError(f"{where}: {setting}: {unknown('column', name, columns)}")
