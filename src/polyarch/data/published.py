"""Published image sets, read from the files they are published as: IDX, CIFAR binary, SVHN's .mat."""

from __future__ import annotations

import gzip
import math
import os
import zlib
from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from typing_extensions import override

from polyarch.data.checks import Array, reason
from polyarch.data.source import Source
from polyarch.data.splitting import RawData
from polyarch.errors import PolyarchError
from polyarch.settings import Count

DIGITS = tuple("0123456789")
FETCH = "fetch the file again"
CIFAR_PIXELS = 3 * 32 * 32


@dataclass(frozen=True, kw_only=True)
class Published(Source):
    """A published image set: files of known names in a folder, with a test set of their own."""

    folder: str = ""
    """Where the files are, directly or in the set's usual sub-folder; empty: $POLYARCH_DATA or ./data."""
    limit: Count = 0
    """Read only the first so many training and test examples, for a quick try; 0: all."""
    select: float = 0.1

    text: ClassVar[str]
    sub_folder: ClassVar[str]
    train_files: ClassVar[tuple[str, ...]]
    test_files: ClassVar[tuple[str, ...]]

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """Names of the classes, in the order of the labels."""

    @abstractmethod
    def read_part(self, files: list[Path]) -> tuple[Array, Array]:
        """Images [n, c, h, w] uint8 and labels [n] from the training files or the test files."""

    @override
    def settings(self) -> dict[str, Any]:
        """All settings; the folder is absolute, so that a run finds its data from any folder."""
        folder = os.path.abspath(os.path.expanduser(self.folder)) if self.folder else ""
        return {**super().settings(), "folder": folder}

    @override
    def read(self) -> RawData:
        """The training and the test files."""
        files = self._find()
        end = self.limit or None
        x, y = self.read_part(files[: len(self.train_files)])
        x_test, y_test = self.read_part(files[len(self.train_files) :])
        return RawData(
            x[:end],
            y[:end],
            where=f"{self.text} in {files[0].parent}",
            x_test=x_test[:end],
            y_test=y_test[:end],
            classes=self.names,
        )

    def _find(self) -> list[Path]:
        """The training files and the test files; a name ending in .gz is also accepted unpacked."""
        root = Path(self.folder or os.environ.get("POLYARCH_DATA") or "data").expanduser().absolute()
        names = self.train_files + self.test_files
        lacking: list[list[str]] = []
        for place in (root / self.sub_folder, root):
            found = [
                next((p for p in (place / name, place / name.removesuffix(".gz")) if p.is_file()), None)
                for name in names
            ]
            files = [path for path in found if path is not None]
            if len(files) == len(names):
                return files
            lacking.append([name for name, path in zip(names, found, strict=True) if path is None])
        fewest = min(lacking, key=len)
        some = f" (missing: {', '.join(fewest)})" if len(fewest) < len(names) else ""
        raise PolyarchError(
            f"{self.text}: expected the files {', '.join(names)} in {root / self.sub_folder} or {root}{some};"
            " put them there, or name their folder with the setting folder or the variable POLYARCH_DATA"
        )


@dataclass(frozen=True, kw_only=True)
class Idx(Published):
    """Grey images in MNIST's IDX format, gzipped or not."""

    train_files: ClassVar[tuple[str, ...]] = ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz")
    test_files: ClassVar[tuple[str, ...]] = ("t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz")

    @override
    def read_part(self, files: list[Path]) -> tuple[Array, Array]:
        """[n, 1, h, w] and [n] from a file of images and a file of labels."""
        x, y = read_idx(files[0], 3), read_idx(files[1], 1)
        if len(x) != len(y):
            raise PolyarchError(
                f"{files[0]} has {len(x)} images but {files[1].name} has {len(y)} labels; fetch both again"
            )
        _check_labels(y, len(self.names), files[1])
        return x[:, None], y


@dataclass(frozen=True, kw_only=True)
class Mnist(Idx):
    """MNIST: handwritten digits, uint8 [1, 28, 28]."""

    text: ClassVar[str] = "mnist"
    sub_folder: ClassVar[str] = "mnist"
    names: ClassVar[tuple[str, ...]] = DIGITS


@dataclass(frozen=True, kw_only=True)
class FashionMnist(Idx):
    """Fashion-MNIST: pieces of clothing, uint8 [1, 28, 28]."""

    text: ClassVar[str] = "fashion-mnist"
    sub_folder: ClassVar[str] = "fashion-mnist"
    names: ClassVar[tuple[str, ...]] = (
        *("t-shirt", "trouser", "pullover", "dress", "coat"),
        *("sandal", "shirt", "sneaker", "bag", "ankle boot"),
    )


@dataclass(frozen=True, kw_only=True)
class Cifar10(Published):
    """CIFAR-10, binary version: colour photographs of ten kinds of things, uint8 [3, 32, 32]."""

    text: ClassVar[str] = "cifar10"
    sub_folder: ClassVar[str] = "cifar-10-batches-bin"
    train_files: ClassVar[tuple[str, ...]] = tuple(f"data_batch_{i}.bin" for i in range(1, 6))
    test_files: ClassVar[tuple[str, ...]] = ("test_batch.bin",)
    names: ClassVar[tuple[str, ...]] = (
        *("airplane", "automobile", "bird", "cat", "deer"),
        *("dog", "frog", "horse", "ship", "truck"),
    )

    @override
    def read_part(self, files: list[Path]) -> tuple[Array, Array]:
        """[n, 3, 32, 32] and [n] from all files, in order."""
        return _read_cifar(files, label_bytes=1, label=0, classes=len(self.names))


@dataclass(frozen=True, kw_only=True)
class Cifar100(Published):
    """CIFAR-100, binary version: colour photographs of a hundred kinds of things, uint8 [3, 32, 32]."""

    label_kind: Literal["fine", "coarse"] = "fine"
    """The 100 classes, or the 20 groups of them."""

    text: ClassVar[str] = "cifar100"
    sub_folder: ClassVar[str] = "cifar-100-binary"
    train_files: ClassVar[tuple[str, ...]] = ("train.bin",)
    test_files: ClassVar[tuple[str, ...]] = ("test.bin",)

    @property
    @override
    def names(self) -> tuple[str, ...]:
        """The binary files hold numbers alone."""
        return tuple(str(i) for i in range(100 if self.label_kind == "fine" else 20))

    @override
    def read_part(self, files: list[Path]) -> tuple[Array, Array]:
        """[n, 3, 32, 32] and [n]; a record starts with the coarse and the fine label."""
        label = 1 if self.label_kind == "fine" else 0
        return _read_cifar(files, label_bytes=2, label=label, classes=len(self.names))


@dataclass(frozen=True, kw_only=True)
class Svhn(Published):
    """SVHN, cropped digits: colour photographs of house numbers, uint8 [3, 32, 32]."""

    text: ClassVar[str] = "svhn"
    sub_folder: ClassVar[str] = "svhn"
    train_files: ClassVar[tuple[str, ...]] = ("train_32x32.mat",)
    test_files: ClassVar[tuple[str, ...]] = ("test_32x32.mat",)
    names: ClassVar[tuple[str, ...]] = DIGITS

    @override
    def read_part(self, files: list[Path]) -> tuple[Array, Array]:
        """[n, 3, h, w] and [n]; the file has images as [h, w, 3, n] and calls the digit 0 ten."""
        from scipy.io import loadmat

        path = files[0]
        try:
            content = loadmat(path)
            x, y = content["X"], content["y"]
        except Exception as error:  # the reader of a foreign format fails in many ways on a bad file
            raise PolyarchError(f"{path}: not a readable SVHN file with X and y ({reason(error)}); {FETCH}") from error
        fits = x.ndim == 4 and x.shape[2] == 3 and x.dtype == np.uint8 and y.dtype.kind in "ui"
        if not fits or y.size != x.shape[3]:
            raise PolyarchError(
                f"{path}: X is {x.dtype} {list(x.shape)} and y {y.dtype} {list(y.shape)}, where uint8"
                f" [h, w, 3, n] and [n, 1] were expected; {FETCH}"
            )
        y = y.reshape(-1).astype(np.int64)
        _check_labels(y, 11, path)
        return np.transpose(x, (3, 2, 0, 1)), y % 10


def read_idx(path: Path, dimensions: int) -> Array:
    """A uint8 array of so many dimensions from an IDX file, gzipped or not."""
    content = _read_bytes(path)
    if content[:2] == b"\x1f\x8b":
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as error:
            raise PolyarchError(f"{path}: truncated or damaged gzip file ({reason(error)}); {FETCH}") from error
    start = 4 + 4 * dimensions
    # Two zero bytes, 8 for uint8, the number of dimensions; then each size as four bytes, the highest first.
    if content[:4] != bytes((0, 0, 8, dimensions)) or len(content) < start:
        raise PolyarchError(f"{path}: not an IDX file of {dimensions} dimension(s) of bytes; {FETCH}")
    shape = tuple(int(size) for size in np.frombuffer(content, ">u4", dimensions, 4))
    expected = start + math.prod(shape)
    if len(content) != expected:
        raise PolyarchError(f"{path}: {len(content)} bytes where {expected} were expected (truncated?); {FETCH}")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def _read_cifar(files: list[Path], label_bytes: int, label: int, classes: int) -> tuple[Array, Array]:
    """Images [n, 3, 32, 32] and labels [n] from records: label bytes, then red, green and blue planes."""
    record = label_bytes + CIFAR_PIXELS
    parts = []
    for path in files:
        content = np.frombuffer(_read_bytes(path), np.uint8)
        if len(content) % record:
            raise PolyarchError(
                f"{path}: {len(content)} bytes are no whole number of {record}-byte records (truncated?); {FETCH}"
            )
        parts.append(content.reshape(-1, record))
        _check_labels(parts[-1][:, label], classes, path)
    records = np.concatenate(parts)
    return records[:, label_bytes:].reshape(-1, 3, 32, 32), records[:, label]


def _read_bytes(path: Path) -> bytes:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise PolyarchError(f"{path}: cannot be read ({reason(error)}); check the file and its permissions") from error
    if not content:
        raise PolyarchError(f"{path}: the file is empty; {FETCH}")
    return content


def _check_labels(y: Array, classes: int, path: Path) -> None:
    bad = np.flatnonzero((y < 0) | (y >= classes))
    if len(bad):
        raise PolyarchError(f"{path}: label {y[bad[0]]} of record {bad[0]} is out of range; {FETCH}")
