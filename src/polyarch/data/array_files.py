"""Arrays in .npy and .npz files, read some rows at a time, so that a file may be larger than memory."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import IO, Any, final

import numpy as np

from polyarch.data.checks import Array, reason
from polyarch.data.files import check_file, read_npz
from polyarch.errors import PolyarchError

NPY = ".npy"


@final
@dataclass(frozen=True)
class ArrayFile:
    """An array in a file."""

    path: str
    name: str
    """In a .npz; empty in a .npy."""
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    by_rows: bool
    """Whether rows follow each other in the file; else it is read as a whole."""

    @property
    def what(self) -> str:
        """What to call it in an error."""
        return f"{self.path}: {self.name or 'the array'}"

    def parts(self, most: int | None) -> Iterator[tuple[int, Array]]:
        """Rows of it, so many at a time, each time with the number of the first; one part where it has none."""
        rows = self.shape[0] if self.shape else 0
        if not self.by_rows or not rows or most is None or most >= rows:
            whole = self._whole()
            step = most or max(rows, 1)
            for start in range(0, max(rows, 1), step):
                yield start, whole[start : start + step] if rows else whole
            return
        try:
            with ExitStack() as opened:
                file = _opened(opened, self.path, self.name)
                _header(file)
                for start in range(0, rows, most):
                    yield start, self._read(file, min(most, rows - start))
        except (OSError, EOFError, ValueError, zipfile.BadZipFile) as error:
            raise _unreadable(self.path, error) from error

    def _whole(self) -> Array:
        if self.name:
            return read_npz(self.path, lambda present: [self.name], "x=...")[self.name]
        try:
            found: Array = np.load(self.path, allow_pickle=False)
        except Exception as error:
            raise _unreadable(self.path, error) from error
        return found

    def _read(self, file: IO[bytes], rows: int) -> Array:
        size = rows * math.prod(self.shape[1:]) * self.dtype.itemsize
        content = file.read(size)
        if len(content) < size:
            raise ValueError("it ends before its last row")
        return np.frombuffer(content, self.dtype).reshape(rows, *self.shape[1:])


def array_file(path: str) -> ArrayFile:
    """A .npy, or of a .npz the array x or the only one; nothing pickled is ever loaded."""
    check_file(path)
    name = ""
    try:
        if not path.lower().endswith(NPY):
            with zipfile.ZipFile(path) as content:
                present = [member.removesuffix(NPY) for member in content.namelist()]
            name = present[0] if len(present) == 1 else "x"
        with ExitStack() as opened:
            shape, fortran, dtype = _header(_opened(opened, path, name))
        if dtype.hasobject:
            raise ValueError("an array of objects")
    except Exception as error:  # a damaged zip file fails in many ways, a missing array in one more
        if path.lower().endswith(NPY):
            raise _unreadable(path, error) from error
        read_npz(path, lambda present: present if len(present) == 1 else ["x"], "x=...")  # which says what is wrong
        raise _unreadable(path, error) from error
    return ArrayFile(path, name, shape, dtype, not fortran)


def _opened(opened: ExitStack, path: str, name: str) -> IO[bytes]:
    if not name:
        return opened.enter_context(open(path, "rb"))
    content = opened.enter_context(zipfile.ZipFile(path))
    return opened.enter_context(content.open(f"{name}{NPY}"))


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, whether columns follow each other rather than rows, and type of an array."""
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(file)
    return tuple(shape), fortran and len(shape) > 1, dtype


def _unreadable(path: str, error: Exception) -> PolyarchError:
    return PolyarchError(
        f"{path}: not a readable file of plain arrays ({reason(error)}); write it with numpy.save or numpy.savez, "
        "without object arrays"
    )
