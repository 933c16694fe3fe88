"""Inputs for a trained model, read as its training data would have been, with labels or without."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from polyarch.data.checks import Array, check_pair, checked_inputs
from polyarch.data.files import (
    IMAGE_ENDINGS,
    FileSource,
    TableFile,
    absolute,
    csv_frame,
    is_image,
    line_error,
    listed,
    parquet_frame,
    read_images,
    read_npz,
    stacked,
)
from polyarch.data.frames import Frame, are_numbers
from polyarch.data.kinds import Inputs, in_order, say_left_over, say_order
from polyarch.data.likelihood import Likelihood
from polyarch.data.rows import Rows
from polyarch.data.targets import class_indices, class_labels
from polyarch.data.task import Split
from polyarch.data.vocabulary import named
from polyarch.errors import PolyarchError

logger = logging.getLogger("polyarch")

LABEL = "label"  # the default of Csv.label
MODES = {1: "L", 3: "RGB"}


def read_inputs(text: str, like: Inputs) -> tuple[list[str], Tensor]:
    """Inputs from a .npz, a .csv, a .parquet, an image, or a folder with images in it or below it.

    Args:
        text: the path. Of a .npz, the array x is read, or the only array; of a table, the columns that `like` names, in
            its order, or all but a label where it names none; images become grey or RGB, and are scaled where they
            differ in size.
        like: what a run's own inputs are (`Run.inputs`).

    Returns:
        Names (row numbers, or file names relative to the folder) and raw inputs [n, *shape], not yet
        preprocessed: int64 where `like` are tokens, uint8 where the file holds uint8, float64 where `like` are columns
        of a table (numbers, codes of categories, NaN for gaps), else float32.

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
    elif ending in (".csv", ".parquet"):
        names, x = _table(path, like)
    else:
        raise PolyarchError(
            f"{path}: not a file of inputs that polyarch reads; give a .npz, a .csv, a .parquet, an image"
            f" ({', '.join(IMAGE_ENDINGS)}) or a folder of images"
        )
    return names, torch.from_numpy(np.ascontiguousarray(x))


def read_labelled(source: FileSource, like: Inputs, likelihood: Likelihood, classes: Sequence[str]) -> Split:
    """Labelled data in a file, as a run's own: its test set where it comes with one, else all of it.

    Args:
        source: of the file.
        like: what the run's inputs are.
        likelihood: the run's.
        classes: names of the run's classes; none where it predicts others.
    """
    where = source.text
    if isinstance(source, TableFile):
        frame = source.frame()
        x: Array | Frame | Rows = frame
        missing = [name for name in source.label_columns if name not in frame.columns]
        if missing:
            raise PolyarchError(
                f"{where} has no {named(missing)}, which the run predicts (the header has "
                f"{named(list(frame.columns))}); add what is true there under that name"
            )
        y = source.targets(frame)
        if not like.columns:
            names = [name for name in frame.columns if name not in (*source.label_columns, *source.drop)]
            x = np.stack([frame.numbers(name) for name in in_order(names)], 1)
    else:
        raw = source.read()
        given, y = (raw.x, raw.y) if raw.x_test is None or raw.y_test is None else (raw.x_test, raw.y_test)
        assert not isinstance(given, Mapping)  # a file has one input
        x = given
        y = np.array(raw.classes)[y] if raw.classes else y
    if not isinstance(x, Rows):
        x = like.fitted(x, where if isinstance(x, Frame) else f"{where}: x")
        x = x if like.columns else checked_inputs(x, f"{where}: x")
    if tuple(x.shape[1:]) != like.shape:
        raise PolyarchError(
            f"{where} has inputs of shape {list(x.shape[1:])}, and this run is for {list(like.shape)}; give data of "
            "that shape"
        )
    what = f"{where}: {source.label if isinstance(source, TableFile) else 'y'}"
    targets = class_indices(class_labels(y, what), tuple(classes), what) if classes else likelihood.checked(y, what)
    check_pair(x, targets, (f"{where}: x", what))
    if isinstance(source, TableFile) and not like.columns:
        say_order(where, names)
    if isinstance(source, TableFile) and like.columns:
        say_left_over(where, list(source.frame().columns), [*like.columns.names, *source.label_columns])
    return Split(x if isinstance(x, Rows) else np.ascontiguousarray(x), torch.from_numpy(targets))


def _npz(path: Path, like: Inputs) -> tuple[list[str], Array]:
    arrays = read_npz(str(path), lambda present: present if len(present) == 1 else ["x"], "x=...")
    ((name, x),) = arrays.items()
    if like.columns:
        x = like.fitted(x, f"{path}: {name}")
        return _numbered(x), x
    x = checked_inputs(like.fitted(x, f"{path}: {name}"), f"{path}: {name}")
    if x.shape[1:] != like.shape:
        raise PolyarchError(
            f"{path}: {name} holds {_said(x.shape[1:])}, but the model takes {_said(like.shape)}; resize them to that "
            "shape, or give a folder of images, which is scaled"
        )
    return _numbered(x), x


def _table(path: Path, like: Inputs) -> tuple[list[str], Array]:
    if len(like.shape) != 1:
        raise PolyarchError(
            f"{path}: a table holds vectors, but the model takes {_said(like.shape)}; give a .npz or images"
        )
    known = like.columns
    where = str(path)
    if path.suffix.lower() == ".parquet":
        frame = parquet_frame(where)
    else:
        frame = csv_frame(where, known.delimiter if known else ",")
    header = list(frame.columns)
    if known:
        x = like.fitted(frame, where)
        say_left_over(where, header, known.names)
        return _numbered(x), x
    _check_header(path, header)
    columns = _by_place(path, frame, like.shape[0])
    numbers = np.stack([frame.numbers(name) for name in in_order(columns)], 1)
    gaps = np.isnan(numbers)
    if gaps.any():
        row, column = np.argwhere(gaps)[0]
        raise PolyarchError(
            f"{frame.place(int(row))} has no number in column {columns[column]!r}, and the run knows no gaps; add it, "
            "or take the row out"
        )
    x = checked_inputs(like.fitted(numbers, f"{path}: x"), f"{path}: x")
    say_order(where, columns)
    return _numbered(x), x


def _by_place(path: Path, frame: Frame, features: int) -> list[str]:
    """The columns to read where a run has no names for its inputs: all, or all but the label."""
    header = list(frame.columns)
    if len(header) == features:
        return header
    label = _label(frame) if len(header) == features + 1 else None
    if label is None:
        raise _wrong_columns(path, header, features)
    return [name for name in header if name != label]


def _check_header(path: Path, header: list[str]) -> None:
    """Raises for a first line of data, which would be lost.

    Columns counted from 0 or 1 are names all the same: data frames without names are saved so.
    """
    counted = [[str(start + i) for i in range(len(header))] for start in (0, 1)]
    if header and header not in counted and are_numbers(header):
        raise line_error(str(path), 1, "holds numbers where the columns' names belong; add a line of names")


def _label(frame: Frame) -> str | None:
    """The column to leave out: the one named label, or the only one without any number in it.

    A column with some numbers is a feature with a mistake in it, not a label.
    """
    if LABEL in frame.columns:
        return LABEL
    words = [
        name
        for name, column in frame.columns.items()
        if column.dtype.kind != "f" and not any(are_numbers([cell]) for cell in column)
    ]
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
    images = read_images(paths, (width, height))
    colours = [image.mode == "RGB" for image in images]
    if channels == 3 and not any(colours):
        logger.warning("%s: all images are grey, and the run's are in colour; what it says may mislead", path)
    elif channels == 1 and any(colours):
        logger.warning("%s: images are in colour, and looked at in grey, as the run's are", path)
    x = stacked(images, MODES[channels])
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
