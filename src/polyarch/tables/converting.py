"""A .csv file becomes a table."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from polyarch.data.files import csv_frame, line_error
from polyarch.data.frames import Frame, parsed
from polyarch.errors import PolyarchError, unknown
from polyarch.files import write_whole
from polyarch.tables.columns import DESCRIPTION, better_of, split_of
from polyarch.tables.finding import ENDING, read_table
from polyarch.tables.table import NAMES, Table

RESERVED = (*NAMES, DESCRIPTION, "file", "allow_pickle")
"""Names that mean something else in a table, or to the function that writes it."""


def convert(
    source: Path,
    out: Path,
    *,
    arch: str | None = None,
    valid: Sequence[str] = (),
    test: Sequence[str] = (),
    higher: Sequence[str] = (),
    lower: Sequence[str] = (),
) -> Table:
    """Writes a .csv file (UTF-8, with a header) as a table, and opens it.

    What the lists of names leave out follows from a column's name (see `tables.columns`).

    Args:
        source: the .csv file: a column of architecture texts, all others finite numbers.
        out: the table to write; must not exist.
        arch: the column of texts; by default the one called `arch`, or else `module_hash`.
        valid: columns measured on validation data.
        test: columns measured on test data.
        higher: columns of which more is better.
        lower: columns of which less is better.
    """
    _check_out(out)
    texts, numbers = _read(str(source), arch)
    said = _described(list(numbers), valid=valid, test=test, higher=higher, lower=lower)
    arrays: dict[str, Any] = {name: np.array(values, np.float64) for name, values in numbers.items()}
    arrays |= {NAMES[0]: np.array(texts), DESCRIPTION: np.array(json.dumps(said))}
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)
    write_whole(out, content.getvalue())
    return read_table(out)


def _check_out(out: Path) -> None:
    if out.suffix != ENDING:
        raise PolyarchError(f"--out {out}: a table is a {ENDING} file; give it that ending")
    if out.exists():
        raise PolyarchError(f"--out {out}: it exists already; choose another name, or remove it first")


def _read(path: str, arch: str | None) -> tuple[list[str], dict[str, list[float]]]:
    """Texts [n], and numbers [n] by column."""
    frame = csv_frame(path)
    header = list(frame.columns)
    arch = arch or next((name for name in NAMES if name in header), NAMES[0])
    if arch not in header:
        raise PolyarchError(f"{path}: {unknown('column of architectures', arch, header)}; name it with --arch")
    names = [name for name in header if name != arch]
    _check_names(path, names)
    row_of: dict[str, int] = {}
    for row, text in enumerate(frame.columns[arch]):
        if not text:
            raise PolyarchError(f"{frame.place(row)} has no architecture in column {arch!r}; add it")
        if text in row_of:
            before = frame.place(row_of[text]).removeprefix(f"{path}: ")
            raise PolyarchError(f"{frame.place(row)} has the architecture of {before}, {text!r}; keep one of them")
        row_of[text] = row
    return list(row_of), {name: _numbers(frame, name) for name in names}


def _check_names(path: str, names: list[str]) -> None:
    if not names:
        raise line_error(path, 1, "has no column besides the architectures; add numbers")
    for name in names:
        if not name or name in RESERVED:
            raise line_error(path, 1, f"has a column called {name!r}, which no column of a table may be; rename it")


def _numbers(frame: Frame, name: str) -> list[float]:
    column = frame.columns[name]
    values = [parsed(cell) for cell in column]
    wrong = next((row for row, value in enumerate(values) if not math.isfinite(value)), None)
    if wrong is not None:
        raise PolyarchError(
            f"{frame.place(wrong)} has {column[wrong]!r} in column {name!r}, no finite number; mend or drop the column"
        )
    return values


def _described(names: list[str], **said: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Split and direction of every column."""
    for option, given in said.items():
        for name in given:
            if name not in names:
                raise PolyarchError(f"--{option}: {unknown('column', name, names)}")
    for one, other in (("valid", "test"), ("higher", "lower")):
        both = [name for name in said[one] if name in said[other]]
        if both:
            raise PolyarchError(f"column {both[0]!r} is given to --{one} and --{other}; give it to one of them")
    return {
        name: {
            "split": next((split for split in ("valid", "test") if name in said[split]), split_of(name)),
            "better": next((better for better in ("higher", "lower") if name in said[better]), better_of(name)),
        }
        for name in names
    }
