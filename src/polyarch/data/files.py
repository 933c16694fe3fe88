"""Data of one's own in files: .npz, .csv, and a folder of images with one sub-folder a class."""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from polyarch.data.checks import Array, reason
from polyarch.settings import at_least
from polyarch.data.source import Unsplit
from polyarch.data.splitting import Examples, Kind
from polyarch.errors import PolyarchError, unknown

IMAGE_ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".pgm", ".ppm")
GREY_MODES = ("1", "L", "LA")
DEEP_MODES = ("I", "F", "I;16", "I;16L", "I;16B", "I;16N")


@dataclass(frozen=True)
class FileSource(Unsplit):
    """Data at a path."""

    path: str

    @property
    def text(self) -> str:
        """The absolute path, so that a run finds its data from any folder."""
        return os.path.abspath(os.path.expanduser(self.path))


@dataclass(frozen=True, kw_only=True)
class Npz(FileSource):
    """A .npz file with arrays x and y, and x_test and y_test where it has a test set."""

    kind: Kind = "classification"
    """What y is: class indices, or numbers to predict."""

    def read(self) -> Examples:
        """The arrays; nothing pickled is ever loaded."""
        arrays: dict[str, Array] = {}
        _check_file(self.text)
        try:
            with open(self.text, "rb") as file:
                content = np.load(file, allow_pickle=False)
                if isinstance(content, np.ndarray):
                    raise ValueError("a single array")
                present = list(content.files)
                for name in ("x", "y", "x_test", "y_test"):
                    if name in present:
                        arrays[name] = np.asarray(content[name])
        except Exception as error:  # a damaged zip file fails in many ways, an .npy or pickle in others
            raise PolyarchError(
                f"{self.text}: not a readable .npz file of plain arrays ({reason(error)}); write it with"
                " numpy.savez(path, x=..., y=...), without object arrays"
            ) from error
        needed = ("x", "y", "x_test", "y_test") if {"x_test", "y_test"} & set(arrays) else ("x", "y")
        missing = [name for name in needed if name not in arrays]
        if missing:
            raise PolyarchError(
                f"{self.text}: no array {' or '.join(missing)} (it holds {', '.join(present) or 'nothing'});"
                " write it with numpy.savez(path, x=..., y=...)"
            )
        return Examples(
            arrays["x"],
            arrays["y"],
            where=self.text,
            x_test=arrays.get("x_test"),
            y_test=arrays.get("y_test"),
            kind=self.kind,
        )


@dataclass(frozen=True, kw_only=True)
class Csv(FileSource):
    """A .csv file (UTF-8) with a header: one column of labels, all others numbers."""

    label: str = "label"
    """The column to predict."""
    kind: Kind = "classification"
    """What the label column is: classes (integers from 0, or words), or numbers to predict."""
    delimiter: str = ","
    """What stands between two cells."""

    def read(self) -> Examples:
        """Vectors of all columns but the label's."""
        lines = self._lines()
        _, first = next(lines, (1, []))
        header = [name.strip() for name in first]
        self._check_header(header)
        features, labels, numbers = [], [], []
        for number, row in lines:
            if len(row) != len(header):
                raise self._error(
                    number, f"has {len(row)} cells where the header has {len(header)}; mend the line"
                )
            cells = dict(zip(header, row, strict=True))
            labels.append(cells.pop(self.label).strip())
            if not labels[-1]:
                raise self._error(number, f"has no label in column {self.label!r}; add it")
            features.append([self._number(cell, name, number) for name, cell in cells.items()])
            numbers.append(number)
        if not labels:
            raise PolyarchError(f"{self.text}: no line of data under the header; add examples")
        y, classes = self._targets(labels, numbers)
        return Examples(np.array(features), y, where=self.text, kind=self.kind, classes=classes)

    def _check_header(self, header: list[str]) -> None:
        if len(set(header)) != len(header):
            twice = next(name for name in header if header.count(name) > 1)
            raise self._error(1, f"names two columns {twice!r}; give every column its own name")
        if self.label not in header:
            raise PolyarchError(
                f"{self.text}: {unknown('label column', self.label, header)}; set label to its name"
            )
        if len(header) < 2:
            raise self._error(1, f"has no column besides the label {self.label!r}; add the features")

    def _lines(self) -> Iterator[tuple[int, list[str]]]:
        """Line numbers and cells of all lines that are not blank; the header first."""
        _check_file(self.text)
        if len(self.delimiter) != 1:
            raise PolyarchError(f"delimiter is {self.delimiter!r}; it must be one character")
        try:
            with open(self.text, encoding="utf-8-sig", newline="") as file:
                reader = csv.reader(file, delimiter=self.delimiter)
                yield from ((reader.line_num, row) for row in reader if row)
        except (csv.Error, ValueError, OSError) as error:
            raise PolyarchError(
                f"{self.text}: not a readable UTF-8 .csv file ({reason(error)}); save it as one"
            ) from error

    def _number(self, cell: str, column: str, line: int) -> float:
        value = _float(cell)
        if value is None or not math.isfinite(value):
            raise self._error(line, f"has {cell!r} in column {column!r}; features must be finite numbers")
        return value

    def _targets(self, labels: list[str], lines: list[int]) -> tuple[Array, tuple[str, ...]]:
        """Targets [n], and the class names where labels are words."""
        values = [_float(label) for label in labels]
        if self.kind == "classification" and any(value is None for value in values):
            classes, y = np.unique(np.array(labels), return_inverse=True)
            return y, tuple(str(name) for name in classes)
        for value, label, line in zip(values, labels, lines, strict=True):
            if value is None or not math.isfinite(value):
                raise self._error(line, f"has the label {label!r}, no finite number; mend the line")
            if self.kind == "classification" and (value < 0 or value != int(value)):
                raise self._error(
                    line,
                    f"has the label {label!r}, negative or fractional; number the classes from 0, name"
                    " them by words, or set kind=regression",
                )
        return np.array(values, dtype=np.float64), ()

    def _error(self, line: int, what: str) -> PolyarchError:
        return PolyarchError(f"{self.text}: line {line} {what}")


@dataclass(frozen=True, kw_only=True)
class ImageFolder(FileSource):
    """8-bit images in a folder, one sub-folder a class; uint8 [1, h, w] if all are grey, else [3, h, w]."""

    size: int = 0
    """Scale every image to this height and width; 0: keep them, and all must be of one size."""

    def read(self) -> Examples:
        """All images, classes and files in the order of their names."""
        at_least("size", self.size, 0)
        root = Path(self.text)
        classes = [p.name for p in _listed(root) if p.is_dir() and not p.name.startswith(".")]
        if len(classes) < 2:
            raise PolyarchError(
                f"{root}: {len(classes)} sub-folder(s); put each class's images in a folder of its own"
            )
        paths, y = [], []
        for label, name in enumerate(classes):
            found = [p for p in _listed(root / name) if p.suffix.lower() in IMAGE_ENDINGS]
            if not found:
                raise PolyarchError(
                    f"{root / name}: no image ({', '.join(IMAGE_ENDINGS)}); add some, or remove the folder"
                )
            paths += found
            y += [label] * len(found)
        images = [self._image(path) for path in paths]
        for path, image in zip(paths, images, strict=True):
            if image.size != images[0].size:
                raise PolyarchError(
                    f"{path} is {image.width}x{image.height} but {paths[0]} is"
                    f" {images[0].width}x{images[0].height}; make them equal, or set size to scale them all"
                )
        mode = "L" if all(image.mode == "L" for image in images) else "RGB"
        x = np.stack([np.asarray(image.convert(mode)) for image in images])
        # Made explicit here, because checked_inputs takes channels-last for granted only above 4 pixels.
        x = x[:, None] if mode == "L" else np.moveaxis(x, 3, 1)
        return Examples(x, np.array(y), where=str(root), classes=tuple(classes))

    def _image(self, path: Path) -> Any:
        """An image in grey (L) or colour (RGB), scaled where asked."""
        from PIL import Image

        try:
            with Image.open(path) as file:
                if file.mode in DEEP_MODES:
                    raise ValueError(f"more than 8 bits a channel, mode {file.mode}")
                image = file.convert("L" if file.mode in GREY_MODES else "RGB")
        except Exception as error:  # each of Pillow's formats fails in its own ways
            raise PolyarchError(
                f"{path}: not a readable 8-bit image ({reason(error)}); replace or remove the file"
            ) from error
        return image.resize((self.size, self.size), Image.Resampling.BILINEAR) if self.size else image


def _check_file(path: str) -> None:
    if not os.path.isfile(path):
        raise PolyarchError(f"{path}: no such file; check the path")
    if os.path.getsize(path) == 0:
        raise PolyarchError(f"{path}: the file is empty; write it again")


def _listed(folder: Path) -> list[Path]:
    """What is in a folder, by name."""
    try:
        return sorted(folder.iterdir())
    except OSError as error:
        raise PolyarchError(f"{folder}: cannot be listed ({reason(error)}); check the folder") from error


def _float(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None
