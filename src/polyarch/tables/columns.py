"""The columns of a table, and what they mean: the split they were measured on, and whether more of it is better.

A file says so itself in a text array `columns` that holds one JSON object, by the names of arrays, every part optional:

    {"acc": {"split": "test", "better": "higher", "about": "accuracy in %, mean of three seeds"}}

What it does not say follows from the words of an array's name, digits and signs aside:

- val, valid, validation: the valid split; test: the test split; train, training: the training split. Both of two, as in
  `valtest_acc`, is neither of them: valid+test.
- acc, accuracy: higher is better. loss, error, err: lower is better.
- time, latency, params, parameters, flops, macs: costs; lower is better, and they belong to no split, so that
  `train_time` is not a figure of the training split.
- Words for both directions, or for none: unknown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from polyarch.data.checks import NUMERIC, Array
from polyarch.errors import PolyarchError, unknown

Better = Literal["higher", "lower"]

DESCRIPTION = "columns"
SPLITS = ("train", "valid", "test", "train+valid", "train+test", "valid+test", "train+valid+test")
PREDICTION = "prediction"
"""The split of what has not been measured on any."""
BETTER = ("higher", "lower")

_SPLIT_WORDS = {
    "training": "train",
    "train": "train",
    "validation": "valid",
    "valid": "valid",
    "val": "valid",
    "test": "test",
}
_SPLIT_WORD = "|".join(_SPLIT_WORDS)  # the longer of two that begin alike comes first
_HIGHER = frozenset({"acc", "accuracy"})
_COSTS = frozenset({"time", "latency", "params", "parameters", "flops", "macs"})
_LOWER = frozenset({"loss", "error", "err"}) | _COSTS


@dataclass(frozen=True)
class Column:
    """One number per architecture, and what it means."""

    array: str
    """The array of the file that holds it."""
    label: str | None
    """Which of the array's second axis; None where the array is one column."""
    place: int | None
    """Where that is on the second axis."""
    split: str | None
    """What it was measured on, one of `SPLITS`; `PREDICTION` where it was not measured; None where it belongs to none
    or nobody says."""
    better: Better | None
    """Which direction is better; None where nobody says."""
    about: str = ""

    @property
    def name(self) -> str:
        """ARRAY, or ARRAY[LABEL]."""
        return self.array if self.label is None else f"{self.array}[{self.label}]"

    @property
    def predicted(self) -> bool:
        """Whether its numbers are predictions, not measurements."""
        return self.split == PREDICTION


def split_of(name: str) -> str | None:
    """The split that the words of a name speak of."""
    words = _words(name)
    if _COSTS.intersection(words):
        return None
    telling = [word for word in words if re.fullmatch(f"(?:{_SPLIT_WORD})+", word)]
    found = {_SPLIT_WORDS[part] for word in telling for part in re.findall(_SPLIT_WORD, word)}
    return "+".join(split for split in ("train", "valid", "test") if split in found) or None


def better_of(name: str) -> Better | None:
    """The better direction by the words of a name."""
    words = _words(name)
    higher, lower = bool(_HIGHER.intersection(words)), bool(_LOWER.intersection(words))
    if higher == lower:
        return None
    return "higher" if higher else "lower"


def _words(name: str) -> list[str]:
    return re.findall("[a-z]+", name.lower())


def abridged(labels: list[str]) -> str:
    """Labels one after another, the middle left out where there are many."""
    return ", ".join(labels if len(labels) <= 30 else [*labels[:3], "...", labels[-1]])


def columns_of(arrays: Mapping[str, Array], rows: int, where: str) -> dict[str, Column]:
    """All columns by name: the arrays of numbers [rows], and [rows, k] as k columns.

    Args:
        arrays: everything in the file.
        rows: how many architectures it has.
        where: what to call the file in an error.
    """
    holders = {name: a for name, a in arrays.items() if a.dtype.kind in NUMERIC and a.ndim in (1, 2) and len(a) == rows}
    said = _description(arrays, where)
    for name in said:
        if name in arrays and name not in holders:
            raise PolyarchError(
                f"{where}: its description has a column {name!r}, whose array is {arrays[name].dtype} of shape "
                f"{list(arrays[name].shape)}; it must be numbers, one for each of the {rows} architectures"
            )
        if name not in holders:
            raise PolyarchError(f"{where}: in its description, {unknown('column', name, holders)}")
    columns: dict[str, Column] = {}
    for name, array in holders.items():
        labels = [(None, None)] if array.ndim == 1 else enumerate(_labels(name, arrays, rows))
        for place, label in labels:
            column = _column(name, label, place, said.get(name, {}))
            if column.name in columns:
                raise PolyarchError(f"{where}: two columns are called {column.name!r}; rename an array")
            columns[column.name] = column
    return columns


def _column(array: str, label: str | None, place: int | None, said: Mapping[str, Any]) -> Column:
    split, better = said.get("split", split_of(array)), said.get("better", better_of(array))
    return Column(array, label, place, split, better, said.get("about", ""))


def _labels(name: str, arrays: Mapping[str, Array], rows: int) -> list[str]:
    """Names for the second axis of an array: a list of that length beside it in the file, or else 0, 1, ...

    Where several lists have that length, it is the one that begins with the same word (latency_ms, latency_devices).
    Labels take the place of numbers, since `loss[1]` would otherwise be the first epoch or the second.
    """
    length = arrays[name].shape[1]
    lists = [other for other, array in arrays.items() if array.shape == (length,) != (rows,) and _can_label(array)]
    akin = [other for other in lists if other.split("_")[0] == name.split("_")[0]]
    fitting = akin or lists
    labels = arrays[fitting[0]].tolist() if len(fitting) == 1 else range(length)
    return [str(label) for label in labels]


def _can_label(array: Array) -> bool:
    return array.dtype.kind in "Uiu" and len(np.unique(array)) == len(array)


def _description(arrays: Mapping[str, Array], where: str) -> dict[str, dict[str, Any]]:
    """What the file says of its columns itself, checked."""
    if DESCRIPTION not in arrays:
        return {}
    try:
        said = json.loads(str(arrays[DESCRIPTION].item()))
    except ValueError:
        said = None
    if not isinstance(said, dict) or not all(isinstance(entry, dict) for entry in said.values()):
        raise PolyarchError(f"{where}: the array {DESCRIPTION!r} must be one text that holds a JSON object of objects")
    for name, entry in said.items():
        for part, value in entry.items():
            _check_part(f"{where}: column {name!r}", part, value)
    return said


def _check_part(where: str, part: str, value: Any) -> None:
    if part not in ("split", "better", "about"):
        raise PolyarchError(f"{where}: {unknown('part of a description', part, ('split', 'better', 'about'))}")
    if part == "about":
        if not isinstance(value, str):
            raise PolyarchError(f"{where}: its 'about' is {value!r}; it must be text")
    elif value is not None and value not in (SPLITS if part == "split" else BETTER):
        raise PolyarchError(f"{where}: {unknown(part, str(value), SPLITS if part == 'split' else BETTER)}")
