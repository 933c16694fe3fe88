"""Data of one's own in files: .npz, .csv, and a folder of images with one sub-folder per class."""

from __future__ import annotations

import csv
import logging
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import override

from polyarch.data.checks import Array, reason
from polyarch.data.kinds import Columns, named
from polyarch.data.source import Unsplit
from polyarch.data.splitting import Kind, RawData
from polyarch.data.task import ClassWeights, Noise
from polyarch.errors import PolyarchError, unknown
from polyarch.settings import Count

logger = logging.getLogger("polyarch")

IMAGE_ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".pgm", ".ppm")
GREY_MODES = ("1", "L", "LA")
DEEP_MODES = ("I", "F", "I;16", "I;16L", "I;16B", "I;16N")


@dataclass(frozen=True)
class FileSource(Unsplit):
    """Data at a path."""

    path: str
    standardise: bool = field(default=True, kw_only=True)
    """Bring inputs to mean 0 and deviation 1, as training examples have them; else networks see them as they are."""
    class_weights: ClassWeights = field(default="none", kw_only=True)
    """How much classes count in learning: every example alike (`none`), or every class alike (`balanced`)."""

    @property
    @override
    def text(self) -> str:
        """The absolute path, so that a run finds its data from any folder."""
        return absolute(self.path)


@dataclass(frozen=True, kw_only=True)
class Npz(FileSource):
    """A .npz file with arrays x and y, and x_test and y_test where it has a test set."""

    kind: Kind = "classification"
    """What y is: class indices, or numbers to predict."""
    noise: Noise = "fixed"
    """Standard deviation of numbers to predict: 1 (`fixed`), or learnt, one for the `task` or one per `input`."""

    @override
    def read(self) -> RawData:
        """The arrays; nothing pickled is ever loaded."""
        arrays = read_npz(self.text, self._wanted, "x=..., y=...")
        return RawData(
            arrays["x"],
            arrays["y"],
            where=self.text,
            x_test=arrays.get("x_test"),
            y_test=arrays.get("y_test"),
            kind=self.kind,
            noise=self.noise,
            standardise=self.standardise,
            class_weights=self.class_weights,
        )

    @staticmethod
    def _wanted(present: list[str]) -> list[str]:
        with_test = not {"x_test", "y_test"}.isdisjoint(present)
        return ["x", "y", "x_test", "y_test"] if with_test else ["x", "y"]


@dataclass(frozen=True, kw_only=True)
class Csv(FileSource):
    """A .csv file (UTF-8) with a header: one column of labels, all others numbers."""

    features: tuple[str, ...] = field(default=(), kw_only=False)
    """The columns that inputs are made of, in this order, whatever else there is; empty: all but the label's."""
    label: str = "label"
    """The column to predict."""
    kind: Kind = "classification"
    """What the label column is: classes (integers from 0, or words), or numbers to predict."""
    noise: Noise = "fixed"
    """Standard deviation of numbers to predict: 1 (`fixed`), or learnt, one for the `task` or one per `input`."""
    delimiter: str = ","
    """What stands between two cells."""

    @override
    def read(self) -> RawData:
        """Vectors of the features."""
        header, lines = read_csv(self.text, self.delimiter)
        self._check_header(header)
        names = self.features or tuple(name for name in header if name != self.label)
        check_columns(self.text, header, names)
        features, labels, numbers = [], [], []
        for number, cells in lines:
            labels.append(cells[self.label].strip())
            if not labels[-1]:
                raise line_error(self.text, number, f"has no label in column {self.label!r}; add it")
            features.append(csv_numbers(self.text, number, cells, names))
            numbers.append(number)
        if not labels:
            raise no_lines(self.text)
        y, classes = self._targets(labels, numbers)
        say_left_over(self.text, header, [*names, self.label])
        return RawData(
            np.array(features),
            y,
            where=self.text,
            kind=self.kind,
            noise=self.noise,
            classes=classes,
            standardise=self.standardise,
            class_weights=self.class_weights,
            columns=Columns(names, self.label, self.delimiter),
        )

    def _check_header(self, header: list[str]) -> None:
        check_distinct(self.text, header)
        if self.label not in header:
            raise PolyarchError(f"{self.text}: {unknown('label column', self.label, header)}; set label to its name")
        if len(header) < 2:
            raise line_error(self.text, 1, f"has no column besides the label {self.label!r}; add the features")

    def _targets(self, labels: list[str], lines: list[int]) -> tuple[Array, tuple[str, ...]]:
        """Targets [n], and the class names where labels are words."""
        values = [number_in(label) for label in labels]
        if self.kind == "classification" and any(value is None for value in values):
            classes, y = np.unique(np.array(labels), return_inverse=True)
            return y, tuple(str(name) for name in classes)
        for value, label, line in zip(values, labels, lines, strict=True):
            if value is None or not math.isfinite(value):
                raise line_error(self.text, line, f"has the label {label!r}, no finite number; mend the line")
            if self.kind == "classification" and (value < 0 or value != int(value)):
                raise line_error(
                    self.text,
                    line,
                    f"has the label {label!r}, negative or fractional; number the classes from 0, name"
                    " them by words, or set kind=regression",
                )
        return np.array(values, dtype=np.float64), ()


@dataclass(frozen=True, kw_only=True)
class ImageFolder(FileSource):
    """8-bit images in a folder, one sub-folder per class; uint8 [1, h, w] if all are grey, else [3, h, w]."""

    size: Count = 0
    """Scale every image to this height and width; 0: keep them, and all must be of one size."""

    @override
    def read(self) -> RawData:
        """All images, classes and files in the order of their names."""
        root = Path(self.text)
        classes = [p.name for p in listed(root) if p.is_dir() and not p.name.startswith(".")]
        if len(classes) < 2:
            raise PolyarchError(f"{root}: {len(classes)} sub-folder(s); put each class's images in a folder of its own")
        paths, y = [], []
        for label, name in enumerate(classes):
            found = [p for p in listed(root / name) if is_image(p)]
            if not found:
                raise PolyarchError(
                    f"{root / name}: no image ({', '.join(IMAGE_ENDINGS)}); add some, or remove the folder"
                )
            paths += found
            y += [label] * len(found)
        size = (self.size, self.size) if self.size else None
        images = [read_image(path, size) for path in paths]
        for path, image in zip(paths, images, strict=True):
            if image.size != images[0].size:
                raise PolyarchError(
                    f"{path} is {image.width}x{image.height} but {paths[0]} is"
                    f" {images[0].width}x{images[0].height}; make them equal, or set size to scale them all"
                )
        mode = "L" if all(image.mode == "L" for image in images) else "RGB"
        return RawData(
            stacked(images, mode),
            np.array(y),
            where=str(root),
            classes=tuple(classes),
            standardise=self.standardise,
            class_weights=self.class_weights,
        )


def absolute(path: str) -> str:
    """A path that means the same from any folder."""
    return os.path.abspath(os.path.expanduser(path))


def check_file(path: str) -> None:
    """Raises where there is no file, or an empty one."""
    if not os.path.isfile(path):
        raise PolyarchError(f"{path}: no such file; check the path")
    if os.path.getsize(path) == 0:
        raise PolyarchError(f"{path}: the file is empty; write it again")


def listed(folder: Path) -> list[Path]:
    """What is in a folder, by name."""
    try:
        return sorted(folder.iterdir())
    except OSError as error:
        raise PolyarchError(f"{folder}: cannot be listed ({reason(error)}); check the folder") from error


def read_npz(path: str, wanted: Callable[[list[str]], list[str]], written: str) -> dict[str, Array]:
    """Arrays of a .npz file by name; nothing pickled is ever loaded.

    Args:
        path: the file.
        wanted: the names of the arrays to read, given the names of all arrays in the file.
        written: how to pass the arrays to numpy.savez, for the advice in an error.
    """
    check_file(path)
    try:
        with open(path, "rb") as file:
            content = np.load(file, allow_pickle=False)
            if isinstance(content, np.ndarray):
                raise ValueError("a single array")
            present = list(content.files)
            names = wanted(present)
            arrays = {name: np.asarray(content[name]) for name in names if name in present}
    except Exception as error:  # a damaged zip file fails in many ways, an .npy or pickle in others
        raise PolyarchError(
            f"{path}: not a readable .npz file of plain arrays ({reason(error)}); write it with"
            f" numpy.savez(path, {written}), without object arrays"
        ) from error
    missing = [name for name in names if name not in arrays]
    if missing:
        raise PolyarchError(
            f"{path}: no array {' or '.join(missing)} (it holds {', '.join(present) or 'nothing'});"
            f" write it with numpy.savez(path, {written})"
        )
    return arrays


def read_csv(path: str, delimiter: str = ",") -> tuple[list[str], Iterator[tuple[int, dict[str, str]]]]:
    """The header's names, and the number and the cells by name of every later line that is not blank.

    Lines are read as they are asked for, so that the first error in the file is the one raised; names that
    occur twice (see `check_distinct`) lose cells.
    """
    lines = _csv_lines(path, delimiter)
    _, first = next(lines, (1, []))
    header = [name.strip() for name in first]
    return header, _csv_rows(path, header, lines)


def _csv_lines(path: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Line numbers and cells of all lines that are not blank; the header first."""
    check_file(path)
    if len(delimiter) != 1:
        raise PolyarchError(f"delimiter is {delimiter!r}; it must be one character")
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, delimiter=delimiter)
            yield from ((reader.line_num, row) for row in reader if row)
    except (csv.Error, ValueError, OSError) as error:
        raise PolyarchError(f"{path}: not a readable UTF-8 .csv file ({reason(error)}); save it as one") from error


def _csv_rows(
    path: str, header: list[str], lines: Iterator[tuple[int, list[str]]]
) -> Iterator[tuple[int, dict[str, str]]]:
    for number, row in lines:
        if len(row) != len(header):
            raise line_error(path, number, f"has {len(row)} cells where the header has {len(header)}; mend the line")
        yield number, dict(zip(header, row, strict=True))


def check_distinct(path: str, header: list[str]) -> None:
    """Raises where two columns have the same name."""
    if len(set(header)) != len(header):
        twice = next(name for name in header if header.count(name) > 1)
        raise line_error(path, 1, f"names two columns {twice!r}; give every column its own name")


def check_columns(path: str, header: list[str], wanted: Sequence[str]) -> None:
    """Raises where a column is missing that a run takes."""
    missing = [name for name in wanted if name not in header]
    if missing:
        raise PolyarchError(
            f"{path}: no {named(missing)}, which the run takes (the header has {named(header)}); add what is missing"
            " under that name, and separate cells as the run's data does"
        )


def say_left_over(path: str, header: list[str], used: Sequence[str]) -> None:
    """Says which columns of a table are of no use to a run; only once all others were read, or an error is said."""
    left_over = [name for name in header if name not in used]
    if left_over:
        logger.warning("%s: %s left over, which the run does not take", path, named(left_over))


def csv_numbers(path: str, line: int, cells: dict[str, str], columns: Iterable[str]) -> list[float]:
    """What columns hold in a line, in their order."""
    numbers = []
    for column in columns:
        cell = cells[column]
        value = number_in(cell)
        if value is None or not math.isfinite(value):
            raise line_error(path, line, f"has {cell!r} in column {column!r}; features must be finite numbers")
        numbers.append(value)
    return numbers


def number_in(cell: str) -> float | None:
    """The number a cell holds, finite or not; None where it holds none."""
    try:
        return float(cell)
    except ValueError:
        return None


def line_error(path: str, line: int, what: str) -> PolyarchError:
    """The error for a line of a file."""
    return PolyarchError(f"{path}: line {line} {what}")


def no_lines(path: str) -> PolyarchError:
    """The error for a .csv file that ends after its header."""
    return PolyarchError(f"{path}: no line of data under the header; add examples")


def is_image(path: Path) -> bool:
    """Whether a path ends as an image does."""
    return path.suffix.lower() in IMAGE_ENDINGS


def read_image(path: Path, size: tuple[int, int] | None) -> Any:
    """A Pillow image in grey (L) or colour (RGB), scaled to a size (width, height) where one is given."""
    from PIL import Image

    try:
        with Image.open(path) as file:
            if file.mode in DEEP_MODES:
                raise ValueError(f"more than 8 bits per channel, mode {file.mode}")
            image = file.convert("L" if file.mode in GREY_MODES else "RGB")
    except Exception as error:  # each of Pillow's formats fails in its own ways
        raise PolyarchError(
            f"{path}: not a readable 8-bit image ({reason(error)}); replace or remove the file"
        ) from error
    return image.resize(size, Image.Resampling.BILINEAR) if size else image


def stacked(images: Sequence[Any], mode: str) -> Array:
    """Images of one size as uint8 [n, 1, h, w] (mode L) or [n, 3, h, w] (mode RGB)."""
    x = np.stack([np.asarray(image.convert(mode)) for image in images])
    # Made explicit here, because checked_inputs takes channels-last for granted only above 4 pixels.
    return x[:, None] if mode == "L" else np.moveaxis(x, 3, 1)
