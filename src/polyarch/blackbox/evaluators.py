"""Evaluators: what one evaluation costs, and what it says."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import final

import torch
from typing_extensions import override

from polyarch.blackbox.history import Choices, Spent
from polyarch.errors import PolyarchError
from polyarch.scores.base import Candidate, Score
from polyarch.settings import at_least
from polyarch.spaces.base import Space
from polyarch.tables.benchmark import Benchmark


class Evaluator(ABC):
    """Rewards architectures. Asked twice about one, it says the same and costs the same."""

    @abstractmethod
    def price(self, choices: Choices) -> Spent:
        """What evaluating this architecture costs; known before it is evaluated."""

    @abstractmethod
    def reward(self, choices: Choices) -> float:
        """How good it is; larger is better, whatever the direction of what lies behind."""


@final
class TableEvaluator(Evaluator):
    """A column of a table; its time, recorded too, is paid in simulated seconds."""

    def __init__(
        self, table: Benchmark, space: Space, reward: str, seconds: str | float = 0.0, share: float = 1.0
    ) -> None:
        """Checks the columns.

        Args:
            table: has a row for every architecture that will be asked about.
            space: whose choices will be given.
            reward: the column to reward by; a figure of the test split is refused.
            seconds: the column of what an evaluation takes, or a number for all.
            share: how much of these seconds is paid: 12 / 200 where 12 of the 200 epochs are needed.
        """
        column = table.column(reward)
        if column.split is not None and "test" in column.split.split("+"):
            raise PolyarchError(
                f"{table.where}: column {reward!r} is of the {column.split} split, and nothing is chosen on test data; "
                "search for a validation column, and look at this one as the truth"
            )
        if column.better is None:
            raise PolyarchError(
                f"{table.where}: column {reward!r} does not say which direction is better, so it cannot reward; "
                "take another column, or describe it in the file"
            )
        at_least("share", share, 0)
        table.check_whole(reward)
        if isinstance(seconds, str):
            table.check_whole(seconds)
        else:
            at_least("seconds", seconds, 0)
        self._table, self._space, self._reward = table, space, reward
        self._sign = 1.0 if column.better == "higher" else -1.0
        self._seconds, self._share = seconds, share

    @override
    def price(self, choices: Choices) -> Spent:
        seconds = self._number(self._seconds, choices) if isinstance(self._seconds, str) else self._seconds
        return Spent(evaluations=1, seconds=seconds * self._share)

    @override
    def reward(self, choices: Choices) -> float:
        return self._sign * self._number(self._reward, choices)

    def _number(self, column: str, choices: Choices) -> float:
        return self._table.values(column, self._space, torch.tensor([choices])).item()


@final
class ScoreEvaluator(Evaluator):
    """Any score; with SoTL, evolution is guided by training speed."""

    def __init__(self, score: Score, like: Candidate, forward: int = 0, backward: int = 0, seed: int = 0) -> None:
        """Nothing is evaluated yet.

        Args:
            score: what rewards.
            like: a candidate with all that the score needs; only its architecture will be exchanged.
            forward: examples that the score passes forward for one candidate.
            backward: examples that it passes backward.
            seed: of the score, the same for every candidate, so that all are compared on equal terms.
        """
        self._score, self._like, self._seed = score, like, seed
        self._sign = 1.0 if score.larger_is_better else -1.0
        self._price = Spent(evaluations=1, forward=forward, backward=backward)

    @override
    def price(self, choices: Choices) -> Spent:
        return self._price

    @override
    def reward(self, choices: Choices) -> float:
        candidate = replace(self._like, architecture=self._like.space.architecture(choices))
        number = self._score([candidate], torch.Generator().manual_seed(self._seed)).item()
        if not math.isfinite(number):
            raise PolyarchError(f"{self._score.name} of {candidate.architecture} is {number}; use another score")
        return self._sign * number
