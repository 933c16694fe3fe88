"""A Task: data in named, disjoint splits, how networks see inputs, and how outputs are evaluated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from polyarch.data.in_words import task_in_words
from polyarch.data.kinds import Inputs, inputs_of
from polyarch.data.likelihood import Likelihood
from polyarch.data.preprocess import AS_READ, Preprocess, Units, Unpack
from polyarch.data.rows import Rows
from polyarch.data.several import Parts
from polyarch.data.vocabulary import Columns
from polyarch.errors import PolyarchError
from polyarch.trees import tree_map

NOT_FOR_LEARNING = ("calibrate", "test")
"""The splits that no method is given."""


@dataclass(frozen=True, eq=False)
class Split:
    """Examples: `x` is [n, ...], `y` is [n], or [n, k] where an example has several targets.

    Of a task as they were read, uint8, float32, int64 or, in a table, float64; of a problem as networks see them, and
    on the device. Where networks take several inputs, `x` is a row of numbers as read, and a tuple or mapping as seen.
    """

    x: Any
    y: Tensor

    def __post_init__(self) -> None:
        """Numpy arrays become tensors, which share their memory."""
        for name, values in vars(self).items():
            if isinstance(values, np.ndarray):
                object.__setattr__(self, name, torch.from_numpy(values))

    def __len__(self) -> int:
        return len(self.y)

    def some(self, most: int) -> Split:
        """At most so many of them, in one fixed random order; all as they are where there are no more."""
        if len(self) <= most:
            return self
        rows = fixed_order(len(self))[:most].to(self.y.device)
        return Split(self.x.of(rows), self.y[rows]) if isinstance(self.x, Rows) else self.rows(rows)

    def rows(self, rows: Tensor) -> Split:
        """Those in some places."""
        return Split(tree_map(itemgetter(rows), self.x), self.y[rows])


def fixed_order(count: int) -> Tensor:
    """The one random order of so many examples in which they are looked at where nothing is learnt."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(0))


@dataclass(frozen=True, eq=False)
class Task:
    """What is to be learnt: data in splits, standardisation, likelihood, and what the data was."""

    name: str
    splits: Mapping[str, Split]
    """Disjoint, and only those that there are: `train`; `search`, on which belief is learnt; `select`, by which a
    search is stopped and an architecture selected; `calibrate`; `test`; and `unlabelled`, training examples without
    their label."""
    likelihood: Likelihood
    preprocess: Preprocess
    """From inputs as they were read to what networks see; it is part of every model."""
    fingerprint: str
    """Changes when any example, label, split or statistic changes."""
    source: dict[str, Any] | None = None
    """What `polyarch.data.load` was called with, so that a run can find its data again: `{"data": text,
    "settings": {...}}`; None for data in memory."""
    classes: tuple[str, ...] = field(default=())
    """Names of the classes, where the data has them."""
    columns: Columns | None = None
    """What is known of the columns, where the data is a table."""
    units: Units = AS_READ
    """In which numbers to predict are learnt; what a run hands out speaks in those that they were read in."""
    tokens: int = 0
    """How many different ones there are, where inputs are tokens, counted from 0; 0: inputs are numbers."""
    indices: Mapping[str, Tensor] = field(default_factory=dict)
    """Which of the examples that were read are in a split, sorted; not of a test set that the data came with."""
    again: Callable[..., Task] | None = field(default=None, repr=False)
    """Splits what was read anew, with other settings: what `resplit` calls."""

    @property
    def train(self) -> Split:
        """Examples that weights are learnt on, with their labels."""
        return self.splits["train"]

    @property
    def search(self) -> Split | None:
        """Examples that belief alone is learnt on; None where it shares those of `select` (see `examples_for`)."""
        return self.splits.get("search")

    @property
    def select(self) -> Split | None:
        """Validation data: a search is stopped and an architecture selected by it."""
        return self.splits.get("select")

    @property
    def calibrate(self) -> Split | None:
        """Examples that guarantees are made by, after everything is frozen; nothing else looks at them."""
        return self.splits.get("calibrate")

    @property
    def test(self) -> Split | None:
        """Examples to measure on at the very end."""
        return self.splits.get("test")

    @property
    def training(self) -> Split:
        """All training examples in the data's order, `labels.HIDDEN` where one has no label: for what needs none."""
        if "unlabelled" not in self.splits:
            return self.train
        parts = [self.splits[name] for name in ("train", "unlabelled")]
        order = torch.cat([self.indices[name] for name in ("train", "unlabelled")]).argsort()
        y = torch.cat([part.y for part in parts])[order]
        if isinstance(self.train.x, Rows):
            return Split(self.train.x.beside(*(part.x for part in parts[1:])).of(order), y)
        return Split(torch.cat([part.x for part in parts])[order], y)

    def examples_for(self, role: str) -> Split | None:
        """The split of a role; for `search` that of `select`, where it has none of its own."""
        shared = self.select if role == "search" else None
        return self.splits.get(role, shared)

    def learning_data(self) -> dict[str, Split]:
        """What a method is given: every split that is not for later, and under `search` whatever belief learns on."""
        given = {name: split for name, split in self.splits.items() if name not in NOT_FOR_LEARNING}
        search = self.examples_for("search")
        return given if search is None else {**given, "search": search}

    def resplit(self, **settings: Any) -> Task:
        """The same examples in other splits.

        Args:
            **settings: those of the data that say how it is split: `select`, `search`, `calibrate`, `test`, `labels`,
                `split_seed`; what is left out stays as it is.
        """
        if self.again is None:
            raise PolyarchError(f"{self.name} was not loaded by polyarch.data.load, so it cannot be split anew")
        return self.again(**settings)

    @property
    def parts(self) -> Parts | None:
        """Where every example has several inputs, which; `x` has them side by side in rows [n, numbers]."""
        return self.preprocess.parts if isinstance(self.preprocess, Unpack) else None

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of what networks see of one example: (features,), (channels, height, width) or (length,).

        Of several inputs, that of the row in which they stand side by side.
        """
        return (self.columns.features,) if self.columns else tuple(self.train.x.shape[1:])

    def seen(self, split: Split, device: torch.device | None = None) -> Split:
        """Examples as networks see and learn them: inputs preprocessed, numbers to predict in the task's units.

        Args:
            split: raw examples of this task.
            device: where to; images travel as the bytes that they were read as, and are preprocessed there.
        """
        if isinstance(split.x, Rows):
            return Split(split.x.seen(self.preprocess, device), self.units.learnt(split.y.to(device)))
        preprocess = deepcopy(self.preprocess).to(device)
        return Split(preprocess(split.x.to(device)), self.units.learnt(split.y.to(device)))

    @property
    def inputs(self) -> Inputs:
        """What its inputs are, to which a run holds all others."""
        return inputs_of([split.x for split in self.splits.values()], self.columns, self.parts)

    @property
    def shape(self) -> TaskShape:
        """What a network must know of the task."""
        return TaskShape(self.input_shape, self.likelihood.outputs, self.tokens, self.parts)

    def __repr__(self) -> str:
        return task_in_words(self)


@dataclass(frozen=True)
class TaskShape:
    """The sizes a network is built for: one example's shape and the number of outputs."""

    input: tuple[int, ...]
    outputs: int
    tokens: int = 0
    """How many different ones there are, where inputs are tokens, counted from 0; 0: inputs are numbers."""
    parts: Parts | None = None
    """Where networks take several inputs, which; `input` is then that of the row in which they stand side by side."""

    @property
    def words(self) -> str:
        """What networks are given, in words."""
        if self.parts:
            return f"several inputs ({self.parts.words})"
        return f"{f'{self.tokens} tokens' if self.tokens else 'inputs'} of shape {tuple(self.input)}"

    def trial(self, count: int, device: torch.device | None = None) -> Any:
        """Inputs to try a network on: zeros, or the last of the tokens, for which an embedding must have a row."""
        if self.parts:
            each = zip(self.parts.shapes, self.parts.tokens, strict=True)
            return self.parts.tree([TaskShape(shape, 0, tokens).trial(count, device) for shape, tokens in each])
        if self.tokens:
            return torch.full((count, *self.input), self.tokens - 1, device=device)
        return torch.zeros(count, *self.input, device=device)
