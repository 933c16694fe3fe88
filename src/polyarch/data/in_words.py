"""A task in three lines, for people who print one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polyarch.data.kinds import TYPES, Inputs
from polyarch.data.vocabulary import NAMED

if TYPE_CHECKING:
    from polyarch.data.task import Task


def task_in_words(task: Task) -> str:
    """What is predicted; from what, and what targets are; how many examples every split has."""
    x, y = task.train.x, task.train.y
    kind = TYPES.get(x.dtype, "numbers")
    # Of inputs their kind alone, not their range: of many images that takes a second.
    inputs = Inputs(tuple(x.shape[1:]), kind, (0,), (0,), columns=task.columns, parts=task.parts).words
    unit = "" if task.columns or task.parts or kind == "tokens" else f" {kind}"
    if task.classes:
        more = f" and {len(task.classes) - NAMED} more" if len(task.classes) > NAMED else ""
        targets = ", ".join(task.classes[:NAMED]) + more
    else:
        targets = f"{y.min().item():g} to {y.max().item():g}"
    splits = ", ".join(f"{name} {len(split):,}" for name, split in task.splits.items())
    return (
        f"Task {task.name!r}: predicts {task.likelihood.words}\n"
        f"  inputs: {inputs}{unit}; targets: {targets}\n"
        f"  splits: {splits}"
    )
