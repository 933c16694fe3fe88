"""Callbacks that interrupt a search, or look at its folder as if it had been killed."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import final

from typing_extensions import override

from polyarch.callbacks import Callback, Evaluation


@final
class InterruptAfter(Callback):
    """Interrupts a search as Ctrl-C would, once so many of its evaluations are written."""

    def __init__(self, evaluations: int) -> None:
        """With 0, at the first evaluation, of which nothing is written then."""
        self._left = evaluations

    @override
    def on_evaluation(self, evaluation: Evaluation) -> None:
        if self._left == 0:
            raise KeyboardInterrupt
        self._left -= 1


@final
class CopyAfterFirst(Callback):
    """Copies what a search has on the disk once its first evaluation is written, as if it had been killed then."""

    def __init__(self, folder: Path, copy: Path) -> None:
        """Says where the search is and where the copy goes."""
        self._folder, self._copy = folder, copy
        self._evaluations = 0

    @override
    def on_evaluation(self, evaluation: Evaluation) -> None:
        self._evaluations += 1
        if self._evaluations == 2:  # which is not written yet
            shutil.copytree(self._folder, self._copy)
