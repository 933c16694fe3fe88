"""Inputs for a trained model, read as its training data would have been, with labels or without."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TypeVar, final

import numpy as np
import torch
from torch import Tensor

from polyarch.data.array_files import ArrayFile, array_file
from polyarch.data.checks import Array, check_pair, checked_inputs
from polyarch.data.files import (
    IMAGE_ENDINGS,
    FileSource,
    TableFile,
    absolute,
    csv_frames,
    is_image,
    line_error,
    listed,
    parquet_frames,
    read_images,
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
T = TypeVar("T")

LABEL = "label"  # the default of Csv.label
MODES = {1: "L", 3: "RGB"}


def read_inputs(text: str, like: Inputs) -> tuple[list[str], Tensor]:
    """Inputs from a .npy, a .npz, a .csv, a .parquet, an image, or a folder with images in it or below it.

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
    return next(iter(input_parts(text, like, None)))


@final
@dataclass(frozen=True)
class InputParts:
    """Inputs in a file or folder, read part by part, as often as they are iterated over."""

    total: int | None
    """How many there are; None where only reading tells."""
    parts: Callable[[], Iterator[tuple[list[str], Array]]]

    def __iter__(self) -> Iterator[tuple[list[str], Tensor]]:
        """Names and raw inputs, as `read_inputs` gives them."""
        for names, x in self.parts():
            yield names, torch.from_numpy(np.ascontiguousarray(x))


def input_parts(text: str, like: Inputs, most: int | None) -> InputParts:
    """What `read_inputs` reads, at most so many at a time, so that there may be more than memory holds."""
    if not os.path.exists(os.path.expanduser(text)):
        raise PolyarchError(f"{text or repr(text)}: no such file or folder; check the path")
    path = Path(absolute(text))
    ending = path.suffix.lower()
    if path.is_dir() or is_image(path):
        count = sum(1 for _ in _image_paths(path)) if path.is_dir() else 1
        return InputParts(count, partial(_images, path, like.shape, most))
    if ending in (".npy", ".npz"):
        file = array_file(str(path))
        return InputParts(file.shape[0] if file.shape else None, partial(_arrays, file, like, most))
    if ending in (".csv", ".parquet"):
        return InputParts(None, partial(_table, path, like, most))
    raise PolyarchError(
        f"{path}: not a file of inputs that polyarch reads; give a .npy, a .npz, a .csv, a .parquet, an image"
        f" ({', '.join(IMAGE_ENDINGS)}) or a folder of images"
    )


def said_once(parts: Iterator[T]) -> Iterator[T]:
    """The same parts, of which nothing is said twice: not of the same column, where the first part has it, too."""
    said: set[tuple[str, str]] = set()

    def is_new(record: logging.LogRecord) -> bool:
        column = record.args[1] if isinstance(record.args, tuple) and len(record.args) > 1 else ""
        key = (str(record.msg), column if isinstance(column, str) else "")
        known = key in said
        said.add(key)
        return not known

    while True:
        logger.addFilter(is_new)
        try:
            part = next(parts, None)
        finally:
            logger.removeFilter(is_new)
        if part is None:
            return
        yield part


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


def _arrays(file: ArrayFile, like: Inputs, most: int | None) -> Iterator[tuple[list[str], Array]]:
    for start, rows in file.parts(most):
        what = f"{file.what}[{start}:]" if start else file.what
        x = like.fitted(rows, what)
        if not like.columns:
            x = checked_inputs(x, what)
            if x.shape[1:] != like.shape:
                raise PolyarchError(
                    f"{what} holds {_said(x.shape[1:])}, but the model takes {_said(like.shape)}; resize them to that "
                    "shape, or give a folder of images, which is scaled"
                )
        yield _numbered(x, start), x


def _table(path: Path, like: Inputs, most: int | None) -> Iterator[tuple[list[str], Array]]:
    if len(like.shape) != 1:
        raise PolyarchError(
            f"{path}: a table holds vectors, but the model takes {_said(like.shape)}; give a .npz or images"
        )
    known = like.columns
    where, start = str(path), 0
    if path.suffix.lower() == ".parquet":
        frames = parquet_frames(where, most)
    else:
        frames = csv_frames(where, known.delimiter if known else ",", most)
    columns: list[str] = []
    for frame in frames:
        what = f"{where}, from row {start} on" if start else where
        if known:
            x = like.fitted(frame, what)
        else:
            columns = columns or _by_place(path, frame, like.shape[0])
            x = _without_gaps(frame, columns, like, f"{what}: x")
        if not start:  # once all is well, or an error is said
            if known:
                say_left_over(where, list(frame.columns), known.names)
            else:
                say_order(where, columns)
        yield _numbered(x, start), x
        start += len(x)


def _without_gaps(frame: Frame, columns: list[str], like: Inputs, what: str) -> Array:
    """Columns of a table for a run that knows no names of them, and no gaps."""
    numbers = np.stack([frame.numbers(name) for name in in_order(columns)], 1)
    gaps = np.isnan(numbers)
    if gaps.any():
        row, column = np.argwhere(gaps)[0]
        raise PolyarchError(
            f"{frame.place(int(row))} has no number in column {columns[column]!r}, and the run knows no gaps; add it, "
            "or take the row out"
        )
    return checked_inputs(like.fitted(numbers, what), what)


def _by_place(path: Path, frame: Frame, features: int) -> list[str]:
    """The columns to read where a run has no names for its inputs: all, or all but the label."""
    header = list(frame.columns)
    _check_header(path, header)
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


def _images(path: Path, shape: tuple[int, ...], most: int | None) -> Iterator[tuple[list[str], Array]]:
    if len(shape) != 3 or shape[0] not in MODES:
        raise PolyarchError(
            f"{path}: images have 1 or 3 channels, but the model takes {_said(shape)}; give a"
            f" .npz{' or a .csv' if len(shape) == 1 else ''}"
        )
    root, paths = path if path.is_dir() else path.parent, _image_paths(path)
    channels, height, width = shape
    while part := list(islice(paths, most)):
        images = read_images(part, (width, height))
        names = [each.relative_to(root).as_posix() for each in part]
        what = f"{path}, {names[0]} to {names[-1]}" if len(part) == most else path
        colours = [image.mode == "RGB" for image in images]
        if channels == 3 and not any(colours):
            logger.warning("%s: all images are grey, and the run's are in colour; what it says may mislead", what)
        elif channels == 1 and any(colours):
            logger.warning("%s: images are in colour, and looked at in grey, as the run's are", what)
        yield names, stacked(images, MODES[channels])


def _image_paths(path: Path) -> Iterator[Path]:
    """An image, or those of a folder; raises where there is none."""
    paths = _found(path) if path.is_dir() else iter([path])
    first = next(paths, None)
    if first is None:
        raise PolyarchError(
            f"{path}: no image ({', '.join(IMAGE_ENDINGS)}) in the folder or below it; add some, or check the path"
        )
    yield first
    yield from paths


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


def _numbered(x: Array, start: int) -> list[str]:
    return [str(start + row) for row in range(len(x))]
