"""What can be read a few examples at a time: image files, arrays in a .npz file or mapped, and torch Datasets."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, final

import numpy as np

from polyarch.data.checks import NUMERIC, Array, checked_inputs
from polyarch.data.rows import LARGE, Indices

Keep = Literal["auto", "memory", "disk"]
"""Where inputs are while something is learnt from them: in `memory`, or on `disk`, from which batches are read."""


def on_disk(keep: Keep, count: int, shape: Sequence[int], itemsize: int = 1) -> bool:
    """Whether so many examples stay on the disk; `auto`: where they are large."""
    return keep == "disk" or (keep == "auto" and count * int(np.prod(shape)) * itemsize > LARGE)


def processes(workers: int) -> int:
    """How many read ahead: as many as were asked for; of -1 half of the cores, at most 8."""
    return workers if workers >= 0 else max(1, min(8, len(os.sched_getaffinity(0)) // 2))


@final
@dataclass(frozen=True)
class ImageFiles:
    """Images, each in a file of its own."""

    paths: tuple[Path, ...]
    labels: tuple[int, ...]
    mode: str
    """`L` or `RGB`, of all."""
    size: tuple[int, int]
    """Width and height, to which an image is scaled where it has others."""
    load: Callable[[Path, tuple[int, int] | None], Any]
    """Opens one (`files.read_image`)."""
    workers: int

    dtype = np.dtype(np.uint8)

    @property
    def shape(self) -> tuple[int, ...]:
        """Channels, height and width."""
        return (1 if self.mode == "L" else 3, self.size[1], self.size[0])

    def __len__(self) -> int:
        return len(self.paths)

    def read(self, rows: Indices) -> tuple[Array, Array]:
        """Decoded; a grey image becomes a colour one among such."""
        x = np.empty((len(rows), *self.shape), np.uint8)
        for place, row in enumerate(rows):
            image = self.load(self.paths[row], self.size).convert(self.mode)
            x[place] = np.moveaxis(np.asarray(image).reshape(*self.shape[1:], -1), 2, 0)
        return x, np.array(self.labels)[rows]


@final
@dataclass(frozen=True)
class MappedArrays:
    """Arrays that lie in files, of which the system reads what is touched."""

    x: Array
    """[n, ...]."""
    y: Array
    where: str

    workers = 0

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one, as tasks have it."""
        return self._checked([0]).shape[1:]

    @property
    def dtype(self) -> np.dtype[Any]:
        """As tasks have it."""
        return self._checked([0]).dtype

    def __len__(self) -> int:
        return len(self.x)

    def read(self, rows: Indices) -> tuple[Array, Array]:
        """A copy of some."""
        return self._checked(rows), np.asarray(self.y[rows])

    def _checked(self, rows: Sequence[int] | Indices) -> Array:
        return checked_inputs(np.asarray(self.x[rows]), f"{self.where}[{rows[0]}:{rows[-1] + 1}]")


@final
@dataclass(frozen=True)
class Items:
    """Items (x, y) of a map-style torch Dataset, one input each."""

    item: Callable[[int], tuple[Array, Array]]
    """Reads one; raises where it is not like the first."""
    count: int
    where: str
    workers: int

    @cached_property
    def _first(self) -> Array:
        return checked_inputs(self.item(0)[0][None], f"{self.where}: x of item 0")

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the first, as of all."""
        return self._first.shape[1:]

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the first, as of all."""
        return self._first.dtype

    def __len__(self) -> int:
        return self.count

    def read(self, rows: Indices) -> tuple[Array, Array]:
        """Item by item."""
        pairs = [self.item(int(row)) for row in rows]
        x = checked_inputs(np.stack([x for x, _ in pairs]), f"{self.where}: x of items {rows[0]} to {rows[-1]}")
        return x, np.stack([y for _, y in pairs])


def mapped_npz(path: str) -> dict[str, Array] | None:
    """The arrays of a .npz file, mapped; None where they are compressed or not as numpy writes them."""
    found: dict[str, Array] = {}
    with zipfile.ZipFile(path) as archive, open(path, "rb") as file:
        for info in archive.infolist():
            if info.compress_type != zipfile.ZIP_STORED or not info.filename.endswith(".npy"):
                return None
            file.seek(info.header_offset + 26)  # a local header: lengths of its name and of what it adds
            lengths = np.frombuffer(file.read(4), "<u2").tolist()
            file.seek(info.header_offset + 30 + sum(lengths))
            version = np.lib.format.read_magic(file)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, fortran, dtype = read(file)
            if dtype.hasobject or fortran or dtype.kind not in NUMERIC or not shape or 0 in shape:
                return None
            found[info.filename.removesuffix(".npy")] = np.memmap(path, dtype, "r", file.tell(), shape)
    return found


def is_mapped(x: Any) -> bool:
    """Whether an array lies in a file, as that of `numpy.load(path, mmap_mode="r")` does."""
    while isinstance(x, np.ndarray):
        if isinstance(x, np.memmap):
            return True
        x = x.base
    return False
