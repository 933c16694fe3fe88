"""What is known of a table's columns: which hold numbers, which words and what words, from training examples alone.

It is plain values, so that it can be kept as JSON; `preprocess.Encode` is the torch module that goes by it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from polyarch.data.checks import Array
from polyarch.data.frames import Frame, Holds, are_numbers
from polyarch.errors import PolyarchError

logger = logging.getLogger("polyarch")

MOST_CATEGORIES = 64
"""So many features a column of words becomes at most; the rarest words then share one."""
UNLIKE = 0.5
"""Above this share of different words a column tells rows apart, and says nothing of new ones."""
OTHER, GAP = -1.0, -2.0
"""What stands for a category that has no feature of its own, and, among features, for a gap."""
MANY = 8
"""So many rows without a value make a column empty; of fewer that may well be, where gaps are usual."""
NAMED = 8
"""So many columns are named in a sentence, and the others counted."""


@final
@dataclass(frozen=True)
class Column:
    """One column that inputs are made of."""

    name: str
    holds: Holds = "number"
    categories: tuple[str, ...] = ()
    """Words with a feature of their own, sorted."""
    others: bool = False
    """Whether there is a feature for words that are too rare to have their own; else these have no feature set."""
    gaps: bool = False
    """Whether training examples had gaps: then a gap is a feature, too."""

    @property
    def features(self) -> int:
        """How many numbers a network sees of it."""
        return len(self.categories) + self.others + self.gaps + (self.holds == "number")


@final
@dataclass(frozen=True)
class Columns:
    """The columns that inputs are made of, in the order in which networks take them."""

    columns: tuple[Column, ...]
    label: str
    delimiter: str = ","
    missing: tuple[str, ...] = ()
    """What stands for a gap besides `frames.GAPS`."""

    @property
    def names(self) -> tuple[str, ...]:
        """Of the columns."""
        return tuple(column.name for column in self.columns)

    @property
    def features(self) -> int:
        """How many numbers a network sees of a row."""
        return sum(column.features for column in self.columns)

    def coded(self, frame: Frame, what: str, tell: bool = True) -> Array:
        """A table as float64 [rows, columns]: numbers, the places of categories, and NaN for gaps.

        What no training example had is said: categories, which become `OTHER`, and gaps.

        Args:
            frame: with all these columns.
            what: what to call it in an error.
            tell: whether to say it.
        """
        return np.stack([self.coded_column(column, frame, what, tell) for column in self.columns], 1)

    def coded_column(self, column: Column, frame: Frame, what: str, tell: bool = True) -> Array:
        """One of its columns, [rows], as `coded` has all of them."""
        if column.holds == "number":
            codes = frame.numbers(column.name, self.missing)
        else:
            places = {category: float(place) for place, category in enumerate(column.categories)}
            texts = frame.texts(column.name, self.missing)
            codes = np.array([np.nan if text is None else places.get(text, OTHER) for text in texts], dtype=np.float64)
            unknown = codes == OTHER
            if tell and unknown.any() and not column.others:
                self._say_unknown(column, texts[unknown], len(texts), what)
        gaps = int(np.isnan(codes).sum())
        if tell and column.gaps and gaps == len(codes) >= MANY:
            logger.warning("%s: column %r is empty", what, column.name)
        if tell and gaps and not column.gaps:
            instead = "the median stands there" if column.holds == "number" else "it counts as no category"
            logger.warning(
                "%s: column %r has a gap in %d of %d rows, and no training example had one; %s",
                *(what, column.name, gaps, len(codes), instead),
            )
        return codes

    @staticmethod
    def _say_unknown(column: Column, texts: Array, rows: int, what: str) -> None:
        """Says which words are new; raises where a column of words has become one of numbers."""
        known = ", ".join(map(repr, column.categories[:NAMED]))
        if are_numbers(texts) and not are_numbers(column.categories):
            raise PolyarchError(
                f"{what}: column {column.name!r} holds numbers, such as {texts[0]!r}, and the run knows words there "
                f"({known}); give the column that the run knows"
            )
        logger.warning(
            "%s: column %r has %r, which no training example had, in %d of %d rows; it counts as none of %s",
            *(what, column.name, texts[0], len(texts), rows, known),
        )

    def words(self) -> str:
        """In words, for people."""
        words = sum(column.holds == "category" for column in self.columns)
        return f"{len(self.columns)} columns" + (f", {words} of words" if words else "")


def columns_from(settings: Mapping[str, Any]) -> Columns:
    """The columns whose fields are these, as JSON has them."""
    columns = tuple(Column(**{**own, "categories": tuple(own["categories"])}) for own in settings["columns"])
    return Columns(columns, settings["label"], settings["delimiter"], tuple(settings["missing"]))


def named(columns: Sequence[str]) -> str:
    """Columns in a sentence."""
    more = f" and {len(columns) - NAMED} more" if len(columns) > NAMED else ""
    return f"column{'s' * (len(columns) > 1)} {', '.join(map(repr, columns[:NAMED]))}{more}"


# ---------------------------------------------------------------------------------------------------------------------
# Learning it.


@final
@dataclass(frozen=True)
class Reading:
    """How a table of one's own is read."""

    holds: Mapping[str, Holds]
    """The columns that are used, in their order, and what they hold."""
    label: str = ""
    """The column to predict, where it is in the table."""
    delimiter: str = ","
    """What stands between two cells."""
    missing: tuple[str, ...] = ()
    """What stands for a gap besides `frames.GAPS`."""

    def learnt(self, frame: Frame, rows: Array) -> Columns:
        """What training examples say of the columns.

        Args:
            frame: of all examples.
            rows: which of them are for training.
        """
        columns = tuple(self._learnt(name, frame, rows) for name in self.holds)
        return Columns(columns, self.label, self.delimiter, self.missing)

    def _learnt(self, name: str, frame: Frame, rows: Array) -> Column:
        gaps = bool(frame.missing(name, self.missing)[rows].any())
        if self.holds[name] == "number":
            return Column(name, gaps=gaps)
        texts = [text for text in frame.texts(name, self.missing)[rows] if text is not None]
        categories, counts = np.unique(np.array(texts, dtype=str), return_counts=True)
        others = len(categories) > MOST_CATEGORIES
        if others:  # of equally rare ones those that come last in the alphabet stay, as in scikit-learn
            rarest = np.argsort(counts, kind="stable")[: len(categories) - MOST_CATEGORIES + 1]
            categories = np.delete(categories, rarest)
        return Column(name, "category", tuple(categories.tolist()), others, gaps)


def of_use(
    frame: Frame, names: Sequence[str], categories: Collection[str] | None, missing: Collection[str], where: str
) -> dict[str, Holds]:
    """The columns that can tell something, and what they hold; which ones are left out, is said.

    Args:
        frame: all rows that were read.
        names: of the columns that inputs may be made of.
        categories: the columns that hold categories, whatever they look like; None where there is no setting for them.
        missing: what stands for a gap besides `frames.GAPS`.
        where: what to call the data.
    """
    found: dict[str, Holds] = {}
    settable, categories = categories is not None, categories or ()
    for name in names:
        gaps = frame.missing(name, missing)
        if gaps.all():
            logger.warning("%s: column %r is empty, and left out", where, name)
            continue
        holds = "category" if name in categories else frame.holds(name, missing)
        if holds == "category" and name not in categories:
            words = [text for text in frame.texts(name, missing) if text is not None]
            different = len(set(words))
            if different > max(MOST_CATEGORIES, UNLIKE * len(words)):
                logger.warning(
                    "%s: column %r has %d different texts in %d rows, which say nothing of new ones, and is left out%s",
                    *(where, name, different, len(words), f"; to keep it, set categories={name}" if settable else ""),
                )
                continue
        elif holds == "number" and _counts_rows(frame.numbers(name, missing, settable)):
            logger.warning(
                "%s: column %r counts the rows, and says nothing of new ones; to leave it out, %s",
                *(where, name, f"set drop={name}" if settable else "give the others alone"),
            )
        found[name] = holds
    if not found:
        raise PolyarchError(f"{where}: no column of features is left; add numbers, or words that occur more than once")
    return found


def _counts_rows(values: Array) -> bool:
    """Whether numbers go up by one from row to row."""
    return len(values) > 2 and bool((np.diff(values) == 1).all())
