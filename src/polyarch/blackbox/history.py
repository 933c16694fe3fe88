"""What a black-box search paid and what it found, evaluation by evaluation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from polyarch.errors import PolyarchError, unknown

Choices = tuple[int, ...]
"""The option number of every decision."""
Unit = Literal["evaluations", "forward", "backward", "seconds"]
"""What a budget may be counted in; see `Spent`."""


@dataclass(frozen=True)
class Spent:
    """What was paid, in the words in which every method counts."""

    evaluations: int = 0
    """How many were made; evaluating the same architecture again counts again."""
    forward: int = 0
    """Examples passed forward."""
    backward: int = 0
    """Examples passed backward."""
    seconds: float = 0.0
    """Simulated: the time that a table recorded, not the time that looking it up takes."""

    def __add__(self, other: Spent) -> Spent:
        return Spent(
            self.evaluations + other.evaluations,
            self.forward + other.forward,
            self.backward + other.backward,
            self.seconds + other.seconds,
        )

    def counted(self, unit: Unit) -> float:
        """The number in one unit."""
        number: float = getattr(self, unit)
        return number


@dataclass(frozen=True)
class Budget:
    """The most that a search may pay, in one unit."""

    amount: float
    unit: Unit = "evaluations"

    def __post_init__(self) -> None:
        if self.unit not in get_args(Unit):
            raise unknown("unit of a budget", self.unit, get_args(Unit))
        if not 0 < self.amount < math.inf:
            raise PolyarchError(f"the budget is {self.amount:g} {self.unit}; it must be a finite number above 0")

    def __str__(self) -> str:
        return f"{self.amount:g} {self.unit}"

    def pays(self, spent: Spent) -> bool:
        """Whether so much is within the budget."""
        return spent.counted(self.unit) <= self.amount


@dataclass(frozen=True)
class Evaluation:
    """One architecture, and how good it is."""

    choices: Choices
    reward: float
    """Larger is better, always."""
    spent: Spent
    """All that was paid up to here, this evaluation included."""


@dataclass(frozen=True)
class History:
    """Every evaluation of a search, in order; at least one."""

    evaluations: tuple[Evaluation, ...]

    def __len__(self) -> int:
        return len(self.evaluations)

    @property
    def best(self) -> Evaluation:
        """The evaluation with the largest reward; of equals, the first."""
        return max(self.evaluations, key=lambda each: each.reward)

    @property
    def spent(self) -> Spent:
        """All that was paid."""
        return self.evaluations[-1].spent

    def choices(self) -> Tensor:
        """What was evaluated: int64 [n, decisions]."""
        return torch.tensor([each.choices for each in self.evaluations])

    def rewards(self) -> Tensor:
        """How good each was: float64 [n]."""
        return torch.tensor([each.reward for each in self.evaluations], dtype=torch.float64)

    def paid(self, unit: Unit) -> Tensor:
        """What had been paid when each evaluation was done: float64 [n], growing."""
        return torch.tensor([each.spent.counted(unit) for each in self.evaluations], dtype=torch.float64)

    def incumbents(self) -> Tensor:
        """The place of the best evaluation so far, by reward, after each of them: int64 [n].

        With `truth = table.values(column, space, history.choices())`, the truth of the incumbent as a function of
        what was paid is `truth[history.incumbents()]` against `history.paid(unit)`.
        """
        rewards = self.rewards()
        before = torch.cat([torch.tensor([-math.inf], dtype=torch.float64), rewards.cummax(0).values[:-1]])
        places = torch.where(rewards > before, torch.arange(len(self)), 0)
        return places.cummax(0).values
