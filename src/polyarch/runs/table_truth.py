"""Watching the truth: a callback that says what a benchmark's table has for what a search believes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import final

from typing_extensions import override

from polyarch.callbacks import Callback, Ending, Evaluation
from polyarch.errors import PolyarchError
from polyarch.runs.config import Config
from polyarch.spaces.base import Space
from polyarch.tables.truth import Truth, find_truth


@final
class TableTruth(Callback):
    """At every evaluation, as `truth`, what a table has for the mode of belief; at the end, for what was selected.

    What a model predicts is written as `predicted` instead, and said to be so in the result.

    It is only watched: nothing is ever chosen by it. A run remembers its table, so that whoever resumes it need not
    name it again.
    """

    def __init__(self, table: str | os.PathLike[str], column: str | None = None) -> None:
        """Nothing is read yet.

        Args:
            table: ground truth, a path or a name (see `polyarch.tables`).
            column: which of its columns; by default the only one of validation accuracy.
        """
        self._table, self._column = table, column
        self._opened: Truth | None = None

    def open(self, space: Space) -> Truth:
        """Reads the table for what is to be searched; raises where it does not fit. `search` calls it."""
        self._opened = find_truth(space, self._table, self._column, splits=("valid",))
        self._opened.check_fits()
        return self._opened

    @override
    def on_evaluation(self, evaluation: Evaluation) -> None:
        assert self._opened is not None
        # What is not learnt, as by one-shot methods, has no mode that means anything.
        learnt = any(bool((p != p[..., :1]).any()) for p in evaluation.belief.probs().values())
        known = self._opened.known(evaluation.space, evaluation.belief.mode()) if learnt else None
        name = "predicted" if self._opened.column.predicted else "truth"
        evaluation.metrics[name] = known or [None] * evaluation.repeats

    @override
    def on_end(self, ending: Ending) -> None:
        assert self._opened is not None
        for architecture, result in zip(ending.architectures, ending.results, strict=True):
            result["truth"] = self._opened.result(ending.space, architecture)


def open_table_truth(callbacks: Sequence[Callback], space: Space) -> tuple[str, str]:
    """Opens the table that a new search is watched by; its file and column, empty where there is none."""
    watching = [callback for callback in callbacks if isinstance(callback, TableTruth)]
    if len(watching) > 1:
        raise PolyarchError(f"a search is watched by one table, not by {len(watching)}; give one TableTruth")
    opened = [callback.open(space) for callback in watching]
    return (opened[0].table.where, opened[0].column.name) if opened else ("", "")


def table_truth_of(config: Config) -> list[Callback]:
    """What watches a run that is resumed by the table that it has, if any."""
    if not config.table:
        return []
    watching = TableTruth(config.table, config.column)
    watching.open(config.make_space())
    return [watching]
