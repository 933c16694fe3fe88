"""Data of one's own in files: .npz, .csv, and a folder of images with one sub-folder per class."""

from __future__ import annotations

import csv
import logging
import os
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, final

import numpy as np
from typing_extensions import override

from polyarch.data.arrays import from_arrays
from polyarch.data.checks import Array, reason
from polyarch.data.frames import Frame, check_named, is_gap, parsed, typed_frame
from polyarch.data.kinds import check_columns, say_left_over
from polyarch.data.large_tables import ColumnsOnDisk
from polyarch.data.likelihood import ClassWeights
from polyarch.data.own_likelihoods import BY_KIND
from polyarch.data.readers import ImageFiles, Keep, mapped_npz, on_disk, processes
from polyarch.data.rows import Rows, scanned
from polyarch.data.source import Unsplit
from polyarch.data.splitting import RawData
from polyarch.data.targets import KindSetting, NoiseSetting, no_label
from polyarch.data.vocabulary import Reading, of_use
from polyarch.errors import PolyarchError
from polyarch.settings import Count

logger = logging.getLogger("polyarch")

IMAGE_ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".pgm", ".ppm")
GREY_MODES = ("1", "L", "LA")
CLEAR = "polyarch-transparent"
"""Under this name an image that was read knows whether any of it was transparent."""
DEEP_MODES = ("I", "F", "I;16", "I;16L", "I;16B", "I;16N")


@dataclass(frozen=True)
class FileSource(Unsplit):
    """Data at a path."""

    path: str
    standardise: bool = field(default=True, kw_only=True)
    """Bring inputs and numbers to predict to mean 0 and deviation 1, as training examples have them; else networks see
    them as they are."""
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

    kind: KindSetting = "auto"
    """What y is: classes, or numbers to predict; `auto` takes many different numbers, or fractions, for the latter."""
    noise: NoiseSetting = "auto"
    """Standard deviation of numbers to predict: that of the targets (`fixed`), or learnt, one for the `task` or one per
    `input`; `auto` is `task`, or `fixed` where there is no validation data to learn it from."""
    likelihood: str = BY_KIND
    """What outputs say of targets: `auto`, by `kind`; `multi-label` (y is [n, labels], 0 or 1), `counts`, or one of
    your own, `my_file:ClassName`."""
    keep: Keep = "auto"
    """Where inputs are kept while a search runs: in `memory`, or on `disk`, which takes a file as `numpy.savez` writes
    it; `auto`: on disk from 2 GiB on."""

    @override
    def read(self) -> RawData:
        """The arrays; nothing pickled is ever loaded."""
        mapped = self._mapped()
        if mapped:
            return from_arrays(self, mapped["x"], mapped["y"], self.text, mapped.get("x_test"), mapped.get("y_test"))
        arrays = read_npz(self.text, self._wanted, "x=..., y=...")
        return from_arrays(self, arrays["x"], arrays["y"], self.text, arrays.get("x_test"), arrays.get("y_test"))

    def _mapped(self) -> dict[str, Array] | None:
        """The arrays as they lie in the file, where inputs stay there; None where they are read."""
        size = os.path.getsize(self.text) if os.path.isfile(self.text) else 0
        if not size or not on_disk(self.keep, size, ()):
            return None
        found = mapped_npz(self.text)
        if found is not None and {"x", "y"} <= set(found) and set(self._wanted(list(found))) <= set(found):
            return found
        if self.keep == "disk":
            raise PolyarchError(
                f"{self.text}: its arrays cannot be read where they lie; write it with numpy.savez(path, x=..., y=...)"
                ", which does not compress, or set keep=memory"
            )
        return None

    @staticmethod
    def _wanted(present: list[str]) -> list[str]:
        with_test = not {"x_test", "y_test"}.isdisjoint(present)
        return ["x", "y", "x_test", "y_test"] if with_test else ["x", "y"]


@dataclass(frozen=True, kw_only=True)
class TableFile(FileSource):
    """A table of one's own: one column to predict, numbers and words in the others, gaps in any of these."""

    features: tuple[str, ...] = field(default=(), kw_only=False)
    """The columns that inputs are made of, in this order, whatever else there is; empty: all but the label's."""
    label: str = "label"
    """The column to predict; of several labels their columns, separated by commas."""
    drop: tuple[str, ...] = ()
    """Columns that inputs are not made of, such as a number of the row."""
    categories: tuple[str, ...] = ()
    """Columns of categories, where they look like numbers, or where all rows differ; others are recognised."""
    missing: tuple[str, ...] = ()
    """What stands for a gap, besides an empty cell, NA, N/A, NaN, null, none and ?."""
    kind: KindSetting = "auto"
    """What the label column holds: classes, or numbers to predict; `auto` takes many different numbers, or fractions,
    for the latter."""
    noise: NoiseSetting = "auto"
    """Standard deviation of numbers to predict: that of the targets (`fixed`), or learnt, one for the `task` or one per
    `input`; `auto` is `task`, or `fixed` where there is no validation data to learn it from."""
    likelihood: str = BY_KIND
    """What outputs say of targets: `auto`, by `kind`; `multi-label` (y is [n, labels], 0 or 1), `counts`, or one of
    your own, `my_file:ClassName`."""

    @property
    def between(self) -> str:
        """What stands between two cells, where they are text."""
        return ","

    @property
    def label_columns(self) -> tuple[str, ...]:
        """The columns to predict."""
        return tuple(name.strip() for name in self.label.split(",")) if self.likelihood != BY_KIND else (self.label,)

    @abstractmethod
    def frame(self) -> Frame:
        """All that the file holds."""

    @override
    def read(self) -> RawData:
        """The columns of the features, and the label's."""
        frame = self.frame()
        header = list(frame.columns)
        y = self.targets(frame)
        for what, names in (("features", self.features), ("drop", self.drop), ("categories", self.categories)):
            if what == "features":
                check_columns(self.text, header, names)
            else:
                check_named(names, header, what, self.text)
        names = self.features or tuple(name for name in header if name not in (*self.label_columns, *self.drop))
        if not names:
            raise PolyarchError(f"{self.text}: there is no column besides the label {self.label!r}; add the features")
        holds = of_use(frame, names, self.categories, self.missing, self.text)
        if self.features:
            say_left_over(self.text, header, [*names, *self.label_columns])
        return RawData(
            _only(frame, holds),
            y,
            where=self.text,
            kind=self.kind,
            noise=self.noise,
            likelihood=self.likelihood,
            classes=self.label_columns if len(self.label_columns) > 1 else (),
            standardise=self.standardise,
            class_weights=self.class_weights,
            reading=Reading(holds, self.label, self.between, self.missing),
        )

    def targets(self, frame: Frame) -> Array:
        """What the label column holds: numbers where all cells do, else words; of several columns numbers [n, k]."""
        columns = [self._target(frame, name) for name in self.label_columns]
        if len(columns) == 1:
            return columns[0]
        for name, column in zip(self.label_columns, columns, strict=True):
            if column.dtype.kind != "f":
                raise PolyarchError(f"{self.text}: the label column {name!r} holds words; several labels are numbers")
        return np.stack(columns, 1)

    def _target(self, frame: Frame, label: str) -> Array:
        """What one column holds."""
        if label not in frame.columns:
            raise no_label(self.text, label, list(frame.columns))
        cells = frame.column(label)
        empty = np.isnan(cells) if cells.dtype.kind == "f" else cells == ""
        if empty.any():
            raise PolyarchError(
                f"{frame.place(int(empty.argmax()))} has no label in column {label!r}; add it, or take the row out"
            )
        if cells.dtype.kind == "f":
            return cells
        numbers = np.array([parsed(cell) for cell in cells])
        wrong = ~np.isfinite(numbers)
        if not wrong.any():
            return numbers
        row = int(wrong.argmax())
        if is_gap(cells[row]) and (~wrong).any():
            raise PolyarchError(
                f"{frame.place(row)} has no label in column {label!r}, but {cells[row]!r}; add it, or take the row out"
            )
        if self.kind == "regression":
            raise PolyarchError(f"{frame.place(row)} has the label {cells[row]!r}, no finite number; mend it")
        return cells


@final
@dataclass(frozen=True, kw_only=True)
class Csv(TableFile):
    """A .csv file (UTF-8) with a header: one column to predict, numbers and words in the others, gaps allowed."""

    delimiter: str = ","
    """What stands between two cells."""

    @property
    @override
    def between(self) -> str:
        return self.delimiter

    @override
    def frame(self) -> Frame:
        return csv_frame(self.text, self.delimiter)


@final
@dataclass(frozen=True, kw_only=True)
class Parquet(TableFile):
    """A .parquet file: one column to predict, numbers and words in the others, gaps allowed."""

    keep: Keep = "auto"
    """Where its rows are kept while a search runs: in `memory`, or coded on `disk`, in a temporary file of eight bytes
    a number; `auto`: on disk from 2 GiB on."""

    @override
    def frame(self) -> Frame:
        return parquet_frame(self.text, self.keep)


@dataclass(frozen=True, kw_only=True)
class ImageFolder(FileSource):
    """8-bit images in a folder, one sub-folder per class; uint8 [1, h, w] if all are grey, else [3, h, w]."""

    size: Count = 0
    """Scale every image to this height and width; 0: keep them, and all must be of one size."""
    keep: Keep = "auto"
    """Where images are kept while a search runs: decoded in `memory`, or on `disk`, from where they are read as they
    are needed; `auto`: on disk where they would take more than 2 GiB."""
    workers: int = -1
    """Processes that read from disk; -1: half of the cores. It changes no result."""

    def sizes(self) -> list[tuple[int, int]]:
        """Width and height of every image, as far as they can be told without reading it all."""
        _, paths, _ = self._files()
        return [image_size(path) for path in paths]

    @override
    def read(self) -> RawData:
        """All images, classes and files in the order of their names."""
        classes, paths, y = self._files()
        size = (self.size, self.size) if self.size else None
        files = self._on_disk(paths, y, size)
        if files is not None:
            x, labels = scanned(files, self.text)
            return self._raw(x, labels, classes)
        images = read_images(paths, size)
        for path, image in zip(paths, images, strict=True):
            if image.size != images[0].size:
                raise other_size(path, image.size, paths[0], images[0].size)
        mode = "L" if all(image.mode == "L" for image in images) else "RGB"
        return self._raw(stacked(images, mode), np.array(y), classes)

    def _raw(self, x: Array | Rows, y: Array, classes: Sequence[str]) -> RawData:
        return RawData(
            x,
            y,
            where=self.text,
            classes=tuple(classes),
            standardise=self.standardise,
            class_weights=self.class_weights,
        )

    def _on_disk(self, paths: Sequence[Path], y: Sequence[int], size: tuple[int, int] | None) -> ImageFiles | None:
        """The images to read as they are needed; None where they are read at once."""
        if self.keep == "memory":
            return None
        first = size or image_size(paths[0])
        if not on_disk(self.keep, len(paths), (3, *first)):
            return None
        heads = [image_head(path) for path in paths]
        for path, (_, own) in zip(paths, heads, strict=True):
            if size is None and own != first:
                raise other_size(path, own, paths[0], first)
        mode = "L" if all(own in GREY_MODES for own, _ in heads) else "RGB"
        return ImageFiles(tuple(paths), tuple(y), mode, first, read_image, processes(self.workers))

    def _files(self) -> tuple[list[str], list[Path], list[int]]:
        """The names of the classes, and every image with its class."""
        root = Path(self.text)
        classes = [p.name for p in listed(root) if p.is_dir() and not p.name.startswith(".")]
        if len(classes) < 2:
            raise PolyarchError(f"{root}: {len(classes)} sub-folder(s); put each class's images in a folder of its own")
        paths: list[Path] = []
        y: list[int] = []
        for label, name in enumerate(classes):
            found = [p for p in listed(root / name) if is_image(p)]
            if not found:
                raise PolyarchError(
                    f"{root / name}: no image ({', '.join(IMAGE_ENDINGS)}); add some, or remove the folder"
                )
            paths += found
            y += [label] * len(found)
        return classes, paths, y


def absolute(path: str) -> str:
    """A path that means the same from any folder."""
    return os.path.abspath(os.path.expanduser(path))


def check_file(path: str) -> None:
    """Raises where there is no file, or an empty one."""
    if not os.path.isfile(path):
        raise PolyarchError(f"{path}: no such file or folder; check the path")
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


def csv_frame(path: str, delimiter: str = ",") -> Frame:
    """All columns of a .csv file as texts; every error names a line."""
    return next(csv_frames(path, delimiter))


def csv_frames(path: str, delimiter: str = ",", most: int | None = None) -> Iterator[Frame]:
    """The same, so many rows at a time; all at once where that is not said."""
    check_file(path)
    if len(delimiter) != 1:
        raise PolyarchError(f"delimiter is {delimiter!r}; it must be one character")
    header: list[str] = []
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, delimiter=delimiter)
            lines = ((reader.line_num, row) for row in reader if row)
            for _, first in islice(lines, 1):
                header = [name.strip() for name in first]
                check_distinct(path, header)
            yet = True
            while (part := list(islice(lines, most))) or yet:
                yield _of_lines(path, header, part)
                yet = False
    except (csv.Error, ValueError, OSError) as error:
        raise PolyarchError(f"{path}: not a readable UTF-8 .csv file ({reason(error)}); save it as one") from error


def _of_lines(path: str, header: list[str], lines: list[tuple[int, list[str]]]) -> Frame:
    numbers = [number for number, _ in lines]
    for number, row in lines:
        if len(row) != len(header):
            raise line_error(path, number, f"has {len(row)} cells where the header has {len(header)}; mend the line")
    if not numbers:
        raise PolyarchError(f"{path}: no line of data under the header; add examples")
    cells = [[cell.strip() for cell in column] for column in zip(*(row for _, row in lines), strict=True)]
    columns = {name: np.array(column, dtype=object) for name, column in zip(header, cells, strict=True)}
    return Frame(columns, lambda row: f"{path}: line {numbers[row]}")


def parquet_frame(path: str, keep: Keep = "memory") -> Frame:
    """All columns of a .parquet file; those that stay on the disk are read when they are asked for."""
    if keep != "memory":
        columns = _parquet_columns(path, keep)
        if columns is not None:
            return columns
    return next(parquet_frames(path))


def _parquet_columns(path: str, keep: Keep) -> Frame | None:
    """A table of which one column is in memory at a time; None where all are read at once."""
    try:
        from pyarrow import parquet, types

        with parquet.ParquetFile(path) as file:
            schema, rows = file.schema_arrow, file.metadata.num_rows
    except Exception:  # what is wrong with it, who reads it all says
        return None
    if not rows or len(set(schema.names)) < len(schema.names) or not on_disk(keep, rows, (len(schema.names),), 8):
        return None

    def read(name: str) -> Array:
        try:
            column = parquet.read_table(path, columns=[name]).column(0)
        except Exception as error:  # damaged files fail in many ways
            raise PolyarchError(f"{path}: not a readable .parquet file ({reason(error)}); write it again") from error
        return typed_frame([(name, _cells(column), str(column.type))], path).columns[name]

    # Of a column of lists one is enough to see that it is one.
    trials: list[tuple[str, list[Any], str]] = [
        (own.name, [[]] if types.is_nested(own.type) else [], str(own.type)) for own in schema
    ]
    refused = typed_frame(trials, path).refused
    return Frame(ColumnsOnDisk(read, schema.names), partial(_row_of, path, 0), refused)


def _only(frame: Frame, names: Collection[str]) -> Frame:
    """Some of a table's columns."""
    if isinstance(frame.columns, ColumnsOnDisk):
        return replace(frame, columns=frame.columns.only(names))
    return Frame({name: frame.columns[name] for name in names}, frame.place)


def parquet_frames(path: str, most: int | None = None) -> Iterator[Frame]:
    """The same, so many rows at a time; all at once where that is not said."""
    check_file(path)
    try:
        from pyarrow import Table, parquet
    except ImportError:
        raise PolyarchError(
            f"{path}: reading Parquet needs pyarrow; install polyarch[parquet], or save the table as a .csv"
        ) from None
    names: list[str] = []
    start = 0
    try:
        with parquet.ParquetFile(path) as file:
            names, rows = list(file.schema_arrow.names), file.metadata.num_rows
            check_distinct(path, names)
            if not rows or not names:
                raise PolyarchError(f"{path}: the table is empty; add examples")
            tables = (Table.from_batches([part]) for part in file.iter_batches(most)) if most else [file.read()]
            for table in tables:
                named = zip(names, table.columns, strict=True)
                frame = typed_frame(((name, _cells(column), str(column.type)) for name, column in named), path)
                yield replace(frame, place=partial(_row_of, path, start))
                start += table.num_rows
    except PolyarchError:
        raise
    except Exception as error:  # damaged files fail in many ways
        raise PolyarchError(f"{path}: not a readable .parquet file ({reason(error)}); write it again") from error


def _row_of(path: str, start: int, row: int) -> str:
    return f"{path}: row {start + row}"


def _cells(column: Any) -> Array | Sequence[Any]:
    """A column of pyarrow: numbers and texts as a Frame has them, eight bytes a cell; of others Python's own values."""
    from pyarrow import compute, float64, types

    if types.is_integer(column.type) or types.is_floating(column.type):
        return np.asarray(compute.cast(column, float64(), safe=False).to_numpy(), np.float64)
    if not (types.is_string(column.type) or types.is_large_string(column.type)):
        cells: list[Any] = column.to_pylist()
        return cells
    coded = column.combine_chunks().dictionary_encode()
    words = np.array([*(word.strip() for word in coded.dictionary.to_pylist()), ""], dtype=object)
    texts: Array = words[coded.indices.fill_null(len(words) - 1).to_numpy(zero_copy_only=False)]
    return texts


def check_distinct(path: str, header: list[str]) -> None:
    """Raises where two columns have the same name."""
    if len(set(header)) != len(header):
        twice = next(name for name in header if header.count(name) > 1)
        raise line_error(path, 1, f"names two columns {twice!r}; give every column its own name")


def line_error(path: str, line: int, what: str) -> PolyarchError:
    """The error for a line of a file."""
    return PolyarchError(f"{path}: line {line} {what}")


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
            image.info[CLEAR] = _is_clear(file)
    except Exception as error:  # each of Pillow's formats fails in its own ways
        raise PolyarchError(
            f"{path}: not a readable 8-bit image ({reason(error)}); replace or remove the file"
        ) from error
    return image.resize(size, Image.Resampling.BILINEAR) if size else image


def _is_clear(image: Any) -> bool:
    """Whether any of a Pillow image is transparent."""
    may_be = image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info
    return may_be and bool(image.convert("RGBA").getchannel("A").getextrema()[0] < 255)


def read_images(paths: Sequence[Path], size: tuple[int, int] | None) -> list[Any]:
    """Images as `read_image` reads them; that some are transparent, which is not looked at, is said."""
    images = [read_image(path, size) for path in paths]
    clear = [path for path, image in zip(paths, images, strict=True) if image.info[CLEAR]]
    if clear:
        logger.warning(
            "%s is transparent, as are %d of %d images: the colours beneath count as they are; lay images on a "
            "background if that is not meant",
            *(clear[0], len(clear), len(paths)),
        )
    return images


def image_head(path: Path) -> tuple[str, tuple[int, int]]:
    """Pillow's mode of an image, and its width and height, by its header where that is enough."""
    from PIL import Image

    try:
        with Image.open(path) as file:
            return file.mode, file.size
    except Exception:  # of whatever is wrong the reading tells
        image = read_image(path, None)
        return image.mode, image.size


def image_size(path: Path) -> tuple[int, int]:
    """Width and height of an image."""
    return image_head(path)[1]


def other_size(path: Path, size: tuple[int, int], first: Path, firsts: tuple[int, int]) -> PolyarchError:
    """The error for images of several sizes."""
    return PolyarchError(
        f"{path} is {size[0]}x{size[1]} but {first} is {firsts[0]}x{firsts[1]}; make them equal, or set size to scale "
        "them all"
    )


def stacked(images: Sequence[Any], mode: str) -> Array:
    """Images of one size as uint8 [n, 1, h, w] (mode L) or [n, 3, h, w] (mode RGB)."""
    x = np.stack([np.asarray(image.convert(mode)) for image in images])
    # Made explicit here, because checked_inputs takes channels-last for granted only above 4 pixels.
    return x[:, None] if mode == "L" else np.moveaxis(x, 3, 1)
