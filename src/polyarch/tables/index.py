"""From the choices of a space to the rows of a table."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from polyarch.errors import PolyarchError
from polyarch.spaces.base import Space

ABSENT = -1
"""The row of an architecture that the table does not have."""
SMALL = 1_000_000
"""A space of at most so many architectures has an index, and can be enumerated."""
_UNASKED = -2
_CHUNK = 65_536


class SpaceIndex:
    """Finds rows by choices.

    For a small space it is an array with an entry for every combination of options. An entry is made when it is first
    asked for: keys can be dear (a module hash is), and most searches see a part of their space.
    """

    def __init__(self, space: Space, rows: Mapping[str, int]) -> None:
        """Nothing is looked up yet.

        Args:
            space: whose choices will be given.
            rows: row numbers by what names an architecture in the table.
        """
        self._space, self._rows = space, rows
        sizes = [len(decision) for decision in space.decisions]
        self._sizes = np.array(sizes)
        self._combinations = math.prod(sizes)
        self._entries: NDArray[np.int32] | None = None
        if self.small:
            self._strides = np.cumprod([1, *sizes[:0:-1]])[::-1]  # the last decision counts fastest
            self._entries = np.full(self._combinations, _UNASKED, np.int32)

    @property
    def small(self) -> bool:
        """Whether the space can be enumerated."""
        return self._combinations <= SMALL

    def rows(self, choices: NDArray[np.int64]) -> NDArray[np.int32]:
        """Row numbers [n] of choices [n, decisions]; `ABSENT` where the table has none."""
        check_choices(self._space, choices)
        if self._entries is None:
            return self._looked_up(choices)
        codes = choices @ self._strides
        rows = self._entries[codes]
        unasked = np.flatnonzero(rows == _UNASKED)
        if len(unasked):
            new, first = np.unique(codes[unasked], return_index=True)
            self._entries[new] = self._looked_up(choices[unasked[first]])
            rows = self._entries[codes]
        return rows

    def everything(self) -> Iterator[NDArray[np.int64]]:
        """All choices of a small space, in parts [n, decisions]."""
        for start in range(0, self._combinations, _CHUNK):
            codes = np.arange(start, min(start + _CHUNK, self._combinations))
            yield codes[:, None] // self._strides % self._sizes

    def _looked_up(self, choices: NDArray[np.int64]) -> NDArray[np.int32]:
        key, architecture = self._space.key, self._space.architecture
        return np.array([self._rows.get(key(architecture(row)), ABSENT) for row in choices.tolist()], np.int32)


def check_choices(space: Space, choices: NDArray[np.int64]) -> None:
    """Raises unless choices are those of architectures of a space."""
    sizes = np.array([len(decision) for decision in space.decisions])
    if choices.ndim != 2 or choices.shape[1] != len(sizes) or choices.dtype.kind != "i":
        raise PolyarchError(
            f"choices are {choices.dtype} of shape {list(choices.shape)}; the space {space.name!r} takes whole numbers "
            f"[n, {len(sizes)}]"
        )
    # Checked, because an option too many would be the code of another architecture.
    if ((choices < 0) | (choices >= sizes)).any():
        raise PolyarchError(f"choices name an option that a decision of the space {space.name!r} does not have")
