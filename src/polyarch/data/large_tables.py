"""Tables larger than memory: columns are read one by one, and coded rows lie in a file that has no name.

What is learnt of a table is learnt column by column (`vocabulary.Reading`, `preprocess.Encode`), so that one column is
all that is in memory. Then all are coded into one array of doubles in a temporary file, from which batches are read. It
is in the folder of temporary files (`TMPDIR`), and gone with the process, however that ends.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from typing_extensions import override

from polyarch.data.checks import Array
from polyarch.data.frames import Frame
from polyarch.data.rows import Indices
from polyarch.data.vocabulary import Columns
from polyarch.errors import PolyarchError


@final
class ColumnsOnDisk(Mapping[str, Array]):
    """Columns by name, each read when it is asked for; the last one is kept, since it is usually asked for again."""

    def __init__(self, read: Callable[[str], Array], names: Sequence[str]) -> None:
        """Takes what reads a column, and the names of all."""
        self._read, self._names, self._last = read, tuple(names), ("", np.empty(0))

    @override
    def __getitem__(self, name: str) -> Array:
        if name not in self._names:
            raise KeyError(name)
        if self._last[0] != name:
            self._last = (name, self._read(name))
        return self._last[1]

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    @override
    def __len__(self) -> int:
        return len(self._names)

    def only(self, names: Collection[str]) -> ColumnsOnDisk:
        """Some of them."""
        return ColumnsOnDisk(self._read, [name for name in self._names if name in names])


@final
@dataclass(frozen=True)
class CodedRows:
    """Rows of a table as `Columns.coded` has them, float64 with NaN for gaps."""

    rows: Array
    """[n, columns], which may lie in a file."""

    dtype = np.dtype(np.float64)
    workers = 0

    @property
    def shape(self) -> tuple[int, ...]:
        """Columns of a row."""
        return self.rows.shape[1:]

    def __len__(self) -> int:
        return len(self.rows)

    def read(self, rows: Indices) -> tuple[Array, Array]:
        """A copy of some; what is predicted is known apart from them."""
        return np.array(self.rows[rows]), np.zeros(len(rows))


def coded_on_disk(columns: Columns, frame: Frame, where: str) -> Array:
    """All rows of a table, coded, in a temporary file: [n, columns]."""
    shape = (len(frame), len(columns.columns))
    try:
        with tempfile.TemporaryFile() as file:
            rows: Array = np.memmap(file, np.float64, "w+", shape=shape)
            for place, column in enumerate(columns.columns):
                rows[:, place] = columns.coded_column(column, frame, where, tell=False)
    except OSError as error:
        raise PolyarchError(
            f"{where}: no room for its {8 * shape[0] * shape[1] / 2**30:.1f} GiB of numbers in {tempfile.gettempdir()} "
            f"({error.strerror}); set TMPDIR to a folder with more, or keep=memory"
        ) from error
    return rows
