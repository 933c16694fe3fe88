"""Table: measured numbers of many architectures, found by text or by choices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import override

from polyarch.architecture import Architecture
from polyarch.data.checks import Array
from polyarch.errors import PolyarchError
from polyarch.settings import at_least
from polyarch.spaces.base import Space
from polyarch.tables.benchmark import Benchmark, Coverage
from polyarch.tables.columns import DESCRIPTION, Better, Column, columns_of
from polyarch.tables.index import ABSENT, SpaceIndex

NAMES = ("arch", "module_hash")
"""The arrays that may name the architectures; the first that a file has does. The second is NAS-Bench-101's."""
SHOWN = 3
Rows = NDArray[np.integer[Any]]


@final
class Table(Benchmark):
    """Ground truth: columns of numbers, one row per architecture.

    An architecture is named by `space.key`. What has no row is an error, never a guess; so is a column with gaps.
    """

    def __init__(self, where: str, arrays: Mapping[str, Array]) -> None:
        """Takes the arrays of a file as they are.

        Args:
            where: what to call the table in an error; its path.
            arrays: texts [n] under one of `NAMES`; numbers [n] or [n, k], which are the columns; anything else, kept
                aside. See `tables.columns` for what a file may say of its columns.
        """
        self.where = where
        named_by = next((name for name in NAMES if name in arrays), None)
        if named_by is None:
            raise PolyarchError(f"{where}: no array {' or '.join(NAMES)}; add the architectures as texts")
        self.architectures: tuple[str, ...] = _texts(arrays[named_by], f"{where}: {named_by}")
        """What names each row."""
        self._row_of = _numbered(self.architectures, where)
        self.columns: dict[str, Column] = columns_of(arrays, len(self), where)
        if not self.columns:
            raise PolyarchError(f"{where}: no column; add arrays of numbers, one for each of its {len(self)} texts")
        held = {column.array for column in self.columns.values()}
        self.others: dict[str, Array] = {
            name: array for name, array in arrays.items() if name not in {*held, named_by, DESCRIPTION}
        }
        """Arrays that are no columns."""
        self._arrays = {name: arrays[name] for name in held}
        self._checked: dict[str, NDArray[np.float64]] = {}
        self._indices: dict[Space, SpaceIndex] = {}

    def __len__(self) -> int:
        return len(self.architectures)

    @override
    def with_gaps(self, name: str) -> NDArray[np.float64]:
        """All numbers of a column [rows], also where some are not finite."""
        column = self.column(name)
        array = self._arrays[column.array]
        return (array if column.place is None else array[:, column.place]).astype(np.float64)

    def whole(self, name: str) -> NDArray[np.float64]:
        """All numbers of a column [rows]; raises where one is not finite."""
        if name not in self._checked:
            numbers = self.with_gaps(name)
            gaps = np.flatnonzero(~np.isfinite(numbers))
            if len(gaps):
                raise PolyarchError(
                    f"{self.where}: column {name!r} has no finite number in {len(gaps)} of its {len(self)} rows, first "
                    f"in row {gaps[0]} ({self.architectures[gaps[0]]}); take another column, or a table without "
                    "these rows"
                )
            numbers.setflags(write=False)  # it is kept, and given to whoever asks
            self._checked[name] = numbers
        return self._checked[name]

    @override
    def check_whole(self, name: str) -> None:
        self.whole(name)

    @override
    def draw(self, space: Space, n: int, generator: torch.Generator) -> list[Architecture]:
        """Rows, as they come."""
        order = torch.randperm(len(self), generator=generator).tolist()
        return [space.parse(self.architectures[row]) for row in order[:n]]

    @override
    def random(self, space: Space, n: int, generator: torch.Generator) -> Tensor:
        """Draws of the space, whether they have a row or not."""
        return space.random().sample(n, generator)

    def look_up(self, column: str, names: Sequence[str]) -> NDArray[np.float64]:
        """Numbers [n] of the architectures that the table calls so."""
        return self.whole(column)[self.rows(names)]

    def rows(self, names: Sequence[str]) -> Rows:
        """Row numbers [n] of the architectures that the table calls so."""
        rows = np.fromiter((self._row_of.get(name, ABSENT) for name in names), np.int64, len(names))
        if (rows == ABSENT).any():
            missing = list(dict.fromkeys(names[k] for k in np.flatnonzero(rows == ABSENT).tolist()))
            advice = "write them exactly as the table does, or name their space"
            raise self._lacks(len(missing), missing[:SHOWN], advice)
        return rows

    @override
    def values(self, column: str, space: Space, choices: Tensor) -> Tensor:
        return torch.from_numpy(self.whole(column)[self.rows_of(space, choices)]).to(choices.device)

    @override
    def known(self, column: str, space: Space, choices: Tensor) -> NDArray[np.float64]:
        rows = [self._row_of.get(space.key(architecture)) for architecture in space.decode(choices)]
        numbers = self.with_gaps(column)
        return np.array([np.nan if row is None else numbers[row] for row in rows], np.float64)

    def rows_of(self, space: Space, choices: Tensor) -> Rows:
        """Row numbers [n] of choices [n, decisions] of a space."""
        asked = choices.cpu().numpy()
        rows = self._index(space).rows(asked)
        if (rows == ABSENT).any():
            missing = np.unique(asked[rows == ABSENT], axis=0).tolist()
            first = [_shown(space, space.architecture(row)) for row in missing[:SHOWN]]
            advice = f"see `polyarch table info --space {space.name}` for how much of the space it covers"
            raise self._lacks(len(missing), first, advice)
        return rows

    def best(self, column: str, top: int = 10, better: Better | None = None) -> list[tuple[str, float]]:
        """The best rows by a column, the best first: what names them, and their numbers.

        Args:
            column: a column's name.
            top: how many.
            better: which direction is better, where the table does not say or the other end is wanted.
        """
        at_least("top", top, 1)
        better = better or self.column(column).better
        if better is None:
            raise PolyarchError(
                f"{self.where}: column {column!r} does not say which direction is better; add --higher or --lower"
            )
        numbers = self.whole(column)
        order = np.argsort(-numbers if better == "higher" else numbers, kind="stable")[:top]
        return [(self.architectures[row], float(numbers[row])) for row in order.tolist()]

    @override
    def coverage(self, space: Space) -> Coverage:
        """How many of a space's architectures have a row; raises where none has.

        A space that is too large to enumerate is compared through the texts of the rows.
        """
        index = self._index(space)
        if not index.small:
            covered = sum(self._is_of(space, name) for name in self.architectures)
            found = Coverage(space.count(), covered, (), len(self) - covered)
        else:
            found = self._enumerated(space, index)
        if found.covered == 0:
            raise self._of_another(space)
        return found

    def _enumerated(self, space: Space, index: SpaceIndex) -> Coverage:
        architectures, covered = 0, 0
        missing: list[str] = []
        hit = np.zeros(len(self), bool)
        for choices in index.everything():
            rows = index.rows(choices)
            absent = rows == ABSENT
            architectures += len(rows)
            covered += int((~absent).sum())
            hit[rows[~absent]] = True
            wanted = choices[absent][: SHOWN - len(missing)].tolist()
            missing += [_shown(space, space.architecture(row)) for row in wanted]
        return Coverage(architectures, covered, tuple(missing), int((~hit).sum()))

    def _index(self, space: Space) -> SpaceIndex:
        if space not in self._indices:
            self._indices[space] = SpaceIndex(space, self._row_of)
        return self._indices[space]

    def _is_of(self, space: Space, name: str) -> bool:
        try:
            return space.key(space.parse(name)) == name
        except PolyarchError:
            return False

    def _of_another(self, space: Space) -> PolyarchError:
        first = self.architectures[0]
        try:
            why = f"the space writes {space.key(space.parse(first))!r}"
        except PolyarchError as error:
            why = str(error)
        return PolyarchError(
            f"{self.where}: none of its {len(self)} rows is of the space {space.name!r}; the first is {first!r}: {why}"
        )

    def _lacks(self, count: int, first: list[str], advice: str) -> PolyarchError:
        named = ", ".join(map(repr, first)) + (", ..." if count > len(first) else "")
        return PolyarchError(f"{self.where}: no row for {count} of the architectures asked for: {named}; {advice}")


def _shown(space: Space, architecture: Architecture) -> str:
    """The text of an architecture, and what tables call it where that is another."""
    key = space.key(architecture)
    return architecture.text if key == architecture.text else f"{architecture.text} ({key})"


def _texts(array: Array, what: str) -> tuple[str, ...]:
    if array.dtype.kind != "U" or array.ndim != 1:
        raise PolyarchError(f"{what} is {array.dtype} of shape {list(array.shape)}; it must be texts [n]")
    if not len(array):
        raise PolyarchError(f"{what} is empty; a table needs a row")
    return tuple(array.tolist())


def _numbered(names: tuple[str, ...], where: str) -> dict[str, int]:
    """Row numbers by name; raises where two rows have the same."""
    rows = {name: row for row, name in enumerate(names)}
    if len(rows) < len(names):
        raise PolyarchError(f"{where}: {_repeated(names, rows)}; keep one row per architecture")
    return rows


def _repeated(names: tuple[str, ...], last: Mapping[str, int]) -> str:
    """Says which names occur in several rows, the first few in full."""
    places: dict[str, list[int]] = {}
    for row, name in enumerate(names):
        if last[name] != row or name in places:
            places.setdefault(name, []).append(row)
    twice = [f"{name!r} in rows {', '.join(map(str, rows))}" for name, rows in list(places.items())[:SHOWN]]
    more = ", ..." if len(places) > SHOWN else ""
    return f"{len(places)} architectures stand in several rows: {'; '.join(twice)}{more}"
