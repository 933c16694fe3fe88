"""Unlabelled inputs for a trained model, read as its training data would have been."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from polyarch.data.checks import Array, checked_inputs
from polyarch.data.files import (
    IMAGE_ENDINGS,
    absolute,
    check_columns,
    check_distinct,
    csv_numbers,
    is_image,
    line_error,
    listed,
    no_lines,
    number_in,
    read_csv,
    read_image,
    read_npz,
    say_left_over,
    stacked,
)
from polyarch.data.kinds import Inputs
from polyarch.errors import PolyarchError

LABEL = "label"  # the default of Csv.label
MODES = {1: "L", 3: "RGB"}


def read_inputs(text: str, like: Inputs) -> tuple[list[str], Tensor]:
    """Inputs from a .npz, a .csv, an image, or a folder with images in it or below it.

    Args:
        text: the path. Of a .npz, the array x is read, or the only array; of a .csv, the columns that `like` names, in
            its order, or all but a label where it names none; images become grey or RGB, and are scaled where they
            differ in size.
        like: what a run's own inputs are (`Run.inputs`).

    Returns:
        Names (row numbers, or file names relative to the folder) and raw inputs [n, *shape], not
        standardised: int64 where `like` are tokens, uint8 where the file holds uint8, else float32.

    Raises:
        PolyarchError: the inputs are wrong or do not fit.
    """
    if not os.path.exists(os.path.expanduser(text)):
        raise PolyarchError(f"{text or repr(text)}: no such file or folder; check the path")
    path = Path(absolute(text))
    ending = path.suffix.lower()
    if path.is_dir() or is_image(path):
        names, x = _images(path, like.shape)
    elif ending == ".npz":
        names, x = _npz(path, like)
    elif ending == ".csv":
        names, x = _csv(path, like)
    else:
        raise PolyarchError(
            f"{path}: not a file of inputs that polyarch reads; give a .npz, a .csv, an image"
            f" ({', '.join(IMAGE_ENDINGS)}) or a folder of images"
        )
    return names, torch.from_numpy(np.ascontiguousarray(x))


def _npz(path: Path, like: Inputs) -> tuple[list[str], Array]:
    arrays = read_npz(str(path), lambda present: present if len(present) == 1 else ["x"], "x=...")
    ((name, x),) = arrays.items()
    x = checked_inputs(like.fitted(x, f"{path}: {name}"), f"{path}: {name}")
    if x.shape[1:] != like.shape:
        raise PolyarchError(
            f"{path}: {name} holds {_said(x.shape[1:])}, but the model takes {_said(like.shape)}; resize them to that "
            "shape, or give a folder of images, which is scaled"
        )
    return _numbered(x), x


def _csv(path: Path, like: Inputs) -> tuple[list[str], Array]:
    if len(like.shape) != 1:
        raise PolyarchError(
            f"{path}: a .csv holds vectors, but the model takes {_said(like.shape)}; give a .npz or images"
        )
    table = like.columns
    header, lines = read_csv(str(path), table.delimiter if table else ",")
    if table:
        check_distinct(str(path), header)
        check_columns(str(path), header, table.names)
    else:
        _check_header(path, header)
        if len(header) not in (like.shape[0], like.shape[0] + 1):
            raise _wrong_columns(path, header, like.shape[0])
    rows = list(lines)
    if not rows:
        raise no_lines(str(path))
    columns = table.names if table else _by_place(path, header, rows, like.shape[0])
    numbers = np.array([csv_numbers(str(path), number, cells, columns) for number, cells in rows])
    x = checked_inputs(like.fitted(numbers, f"{path}: x"), f"{path}: x")
    if table:
        say_left_over(str(path), header, table.names)
    return _numbered(x), x


def _by_place(path: Path, header: list[str], rows: list[tuple[int, dict[str, str]]], features: int) -> list[str]:
    """The columns to read where a run has no names for its inputs: all, or all but the label."""
    if len(header) == features:
        return header
    label = _label(header, [cells for _, cells in rows])
    if label is None:
        raise _wrong_columns(path, header, features)
    return [name for name in header if name != label]


def _check_header(path: Path, header: list[str]) -> None:
    """Raises for names that occur twice, and for a first line of data, which would be lost.

    Columns counted from 0 or 1 are names all the same: data frames without names are saved so.
    """
    counted = [[str(start + i) for i in range(len(header))] for start in (0, 1)]
    if header and header not in counted and all(number_in(name) is not None for name in header):
        raise line_error(str(path), 1, "holds numbers where the columns' names belong; add a line of names")
    check_distinct(str(path), header)


def _label(header: list[str], rows: list[dict[str, str]]) -> str | None:
    """The column to leave out: the one named label, or the only one without any number in it.

    A column with some numbers is a feature with a mistake in it, not a label.
    """
    if LABEL in header:
        return LABEL
    words = [name for name in header if all(number_in(row[name]) is None for row in rows)]
    return words[0] if len(words) == 1 else None


def _wrong_columns(path: Path, header: list[str], features: int) -> PolyarchError:
    return PolyarchError(
        f"{path}: {len(header)} column(s), but the model takes {features} feature(s); give {features}"
        f" column(s) of numbers, separated by commas, and at most one more, named {LABEL!r} or all words"
    )


def _images(path: Path, shape: tuple[int, ...]) -> tuple[list[str], Array]:
    if len(shape) != 3 or shape[0] not in MODES:
        raise PolyarchError(
            f"{path}: images have 1 or 3 channels, but the model takes {_said(shape)}; give a"
            f" .npz{' or a .csv' if len(shape) == 1 else ''}"
        )
    root, paths = path.parent, [path]
    if path.is_dir():
        root, paths = path, list(_found(path))
    if not paths:
        raise PolyarchError(
            f"{path}: no image ({', '.join(IMAGE_ENDINGS)}) in the folder or below it; add some, or check the path"
        )
    channels, height, width = shape
    x = stacked([read_image(each, (width, height)) for each in paths], MODES[channels])
    return [each.relative_to(root).as_posix() for each in paths], x


def _found(folder: Path, above: frozenset[Path] = frozenset()) -> Iterator[Path]:
    """Images in a folder and its sub-folders, by name; hidden folders are left out, as in ImageFolder."""
    above |= {folder.resolve()}
    for path in listed(folder):
        if path.is_dir():
            if not path.name.startswith(".") and path.resolve() not in above:  # a link may lead back up
                yield from _found(path, above)
        elif is_image(path):
            yield path


def _said(shape: tuple[int, ...]) -> str:
    return f"{'vectors' if len(shape) == 1 else 'images'} {list(shape)}"


def _numbered(x: Array) -> list[str]:
    return [str(row) for row in range(len(x))]
