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
    stacked,
)
from polyarch.errors import PolyarchError

LABEL = "label"  # the default of Csv.label
MODES = {1: "L", 3: "RGB"}


def read_inputs(text: str, shape: tuple[int, ...]) -> tuple[list[str], Tensor]:
    """Inputs from a .npz, a .csv, an image, or a folder with images in it or below it.

    Args:
        text: the path. Of a .npz, the array x is read, or the only array; of a .csv, all columns but a label;
            images become grey or RGB, and are scaled where they differ in size.
        shape: one example's shape, (features,) or (channels, height, width).

    Returns:
        Names (row numbers, or file names relative to the folder) and raw inputs [n, *shape], not
        standardised: uint8 where the file holds uint8, else float32.

    Raises:
        PolyarchError: the inputs are wrong or do not fit `shape`.
    """
    if not os.path.exists(os.path.expanduser(text)):
        raise PolyarchError(f"{text or repr(text)}: no such file or folder; check the path")
    path = Path(absolute(text))
    ending = path.suffix.lower()
    if path.is_dir() or is_image(path):
        names, x = _images(path, shape)
    elif ending == ".npz":
        names, x = _npz(path, shape)
    elif ending == ".csv":
        names, x = _csv(path, shape)
    else:
        raise PolyarchError(
            f"{path}: not a file of inputs that polyarch reads; give a .npz, a .csv, an image"
            f" ({', '.join(IMAGE_ENDINGS)}) or a folder of images"
        )
    return names, torch.from_numpy(np.ascontiguousarray(x))


def _npz(path: Path, shape: tuple[int, ...]) -> tuple[list[str], Array]:
    arrays = read_npz(str(path), lambda present: present if len(present) == 1 else ["x"], "x=...")
    ((name, x),) = arrays.items()
    x = checked_inputs(x, f"{path}: {name}")
    if x.shape[1:] != shape:
        raise PolyarchError(
            f"{path}: {name} holds {_said(x.shape[1:])}, but the model takes {_said(shape)}; resize them to that "
            "shape, or give a folder of images, which is scaled"
        )
    return _numbered(x), x


def _csv(path: Path, shape: tuple[int, ...]) -> tuple[list[str], Array]:
    if len(shape) != 1:
        raise PolyarchError(f"{path}: a .csv holds vectors, but the model takes {_said(shape)}; give a .npz or images")
    header, lines = read_csv(str(path))
    _check_header(path, header)
    if len(header) not in (shape[0], shape[0] + 1):
        raise _wrong_columns(path, header, shape[0])
    rows = list(lines)
    if not rows:
        raise no_lines(str(path))
    if len(header) > shape[0]:
        label = _label(header, [cells for _, cells in rows])
        if label is None:
            raise _wrong_columns(path, header, shape[0])
        for _, cells in rows:
            del cells[label]
    numbers = np.array([csv_numbers(str(path), number, cells) for number, cells in rows])
    x = checked_inputs(numbers, f"{path}: x")
    return _numbered(x), x


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
