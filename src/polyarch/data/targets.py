"""What is to be predicted: classes or numbers, recognised where nothing is said, and classes by their names."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from polyarch.data.checks import Array, checked_labels, reason
from polyarch.errors import PolyarchError, nearest

logger = logging.getLogger("polyarch")

Kind = Literal["classification", "regression"]
KindSetting = Literal["auto", "classification", "regression"]
NoiseSetting = Literal["auto", "fixed", "task", "input"]
FEW = 20
"""So many different whole numbers may be classes, whatever numbers they are."""
EACH = 10
"""Of more than these, numbered without gaps, each class has at least so many examples on average."""


def is_text(y: Array) -> bool:
    """Whether targets are words."""
    return y.dtype.kind in "UO"


def recognised(y: Array) -> Kind:
    """What targets [n] are: classes where they are words, truth values, or whole numbers of few different values."""
    if is_text(y) or y.dtype.kind == "b":
        return "classification"
    y = y[np.isfinite(y)]  # what is not is refused later
    values = np.unique(y)
    if (values != np.round(values)).any():
        return "regression"
    few = len(values) <= FEW and 2 * len(values) <= len(y)
    counted = (
        len(values) > 0
        and values[0] in (0, 1)
        and values[-1] - values[0] + 1 == len(values)
        and len(y) >= EACH * len(values)
    )
    return "classification" if few or counted else "regression"


def kind_of(y: Array, setting: KindSetting, where: str) -> Kind:
    """What targets are, by the setting or by what they look like; where numbers are to be predicted, that is said."""
    if setting != "auto":
        return setting
    flat = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
    if flat.ndim != 1 or flat.dtype.kind not in "buifUO" or not len(flat):
        return "classification"  # which says what is wrong
    kind = recognised(as_words(flat, where) if is_text(flat) else flat)
    if kind == "regression":
        logger.warning(
            "%s: what is to be predicted has %d different values, and looks like regression; set kind=classification "
            "where they are classes",
            *(where, len(np.unique(flat))),
        )
    return kind


MANY = 12
"""Columns of which an error tells the names."""
DELIMITERS = ",;\t|"
"""What usually stands between the cells of a table."""


def no_label(where: str, label: str, columns: Sequence[str]) -> PolyarchError:
    """The error for a table without the column that is to be predicted."""
    between = next((character for character in DELIMITERS if character in columns[0]), "")
    if len(columns) == 1 and between:
        return PolyarchError(
            f"{where} has one column, {columns[0]!r}, as if {between!r} stood between its cells; say so: "
            f"--set delimiter={shlex.quote(between)} (delimiter={between!r} in Python)"
        )
    told = ", ".join(columns[:MANY]) + (f" and {len(columns) - MANY} more" if len(columns) > MANY else "")
    likely = nearest(label, columns) or columns[-1]
    return PolyarchError(
        f"{where} has no column {label!r} to predict, its columns are {told}; say which one is, such as "
        f"--set label={shlex.quote(likely)} (label={likely!r} in Python)"
    )


def as_words(y: Array, what: str) -> Array:
    """Targets that are texts, or Python's own values of any sort, as numpy texts or numbers [n]."""
    if y.dtype.kind == "U":
        return y
    try:
        found = np.array(y.tolist())
    except (TypeError, ValueError) as error:
        raise PolyarchError(f"{what} is no column of targets ({reason(error)}); give one for every example") from error
    if found.dtype.kind in "buif":
        return found
    return np.array([str(value) for value in y], dtype=str)


def class_labels(y: Array, what: str) -> Array:
    """Targets as words or as int64, [n]; raises where they are neither."""
    if is_text(y):
        if y.ndim == 2 and y.shape[1] == 1:
            y = y[:, 0]
        if y.ndim != 1:
            raise PolyarchError(f"{what} has the shape {list(y.shape)}; give one class per example: [n]")
        y = as_words(y, what)
    return y if is_text(y) else checked_labels(y, what)


def class_names(labels: Array) -> tuple[str, ...]:
    """Names of all classes in order: words, or whole numbers unless they count from 0 without gaps."""
    values = np.unique(labels)
    counted = not is_text(labels) and np.array_equal(values, np.arange(len(values)))
    return () if counted else tuple(str(value) for value in values)


def class_indices(labels: Array, names: tuple[str, ...], what: str) -> NDArray[np.int64]:
    """Which class each label is, from 0: [n].

    Args:
        labels: as `class_labels` has them.
        names: of all classes; numbers are places among them, unless the names are numbers.
        what: what to call the labels in an error.
    """
    if not names:
        return labels.astype(np.int64)
    if not is_text(labels) and not all(name.removeprefix("-").isdecimal() for name in names):
        wrong = (labels < 0) | (labels >= len(names))
        indices = labels
    else:
        places = {name: place for place, name in enumerate(names)}
        indices = np.array([places.get(str(label), -1) for label in labels], dtype=np.int64)
        wrong = indices < 0
    if wrong.any():
        row = int(wrong.argmax())
        raise PolyarchError(
            f"{what}[{row}] is {str(labels[row])!r}, and the classes are {', '.join(names)}; give one of these"
        )
    return indices.astype(np.int64)
