"""What every black-box search is: one evaluation after another, until the budget is spent."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

from polyarch.blackbox.evaluators import Evaluator
from polyarch.blackbox.history import Budget, Choices, Evaluation, History, Spent
from polyarch.distributions.base import Distribution
from polyarch.errors import PolyarchError
from polyarch.settings import check
from polyarch.spaces.base import Space

Asking = Generator[Choices, float, None]
"""Yields what to evaluate next, and is sent its reward."""


@dataclass(frozen=True, kw_only=True)
class BlackBox(ABC):
    """Looks for an architecture of large reward. A subclass is a frozen dataclass whose fields are its settings.

    Every evaluation is paid, also of an architecture that was evaluated before: so do the authors of NAS-Bench-201, and
    a search that asks about what it could know wastes its budget. A method that keeps a record need not ask.
    """

    name: ClassVar[str]
    meaning: ClassVar[str]
    """One sentence for a person."""

    def __post_init__(self) -> None:
        check(self)

    @abstractmethod
    def ask(self, space: Space, generator: torch.Generator) -> Asking:
        """Says what to evaluate, one architecture after another: `reward = yield choices`; may end or go on for ever.

        Args:
            space: what is searched; it has several architectures.
            generator: the only source of chance.
        """

    def search(self, space: Space, evaluator: Evaluator, budget: Budget, generator: torch.Generator) -> History:
        """Asks until the next evaluation is more than the budget pays; that one is not made.

        Args:
            space: what is searched.
            evaluator: of architectures of this space.
            budget: in a unit that every evaluation costs some of.
            generator: the only source of chance; the same state gives the same history.
        """
        if max(options_of(space)) == 1:
            raise PolyarchError(f"the space {space.name!r} has one architecture; there is nothing to search")
        made: list[Evaluation] = []
        spent, asking = Spent(), self.ask(space, generator)
        choices = next(asking)
        while budget.pays(spent + (price := _checked(evaluator.price(choices), budget))):
            spent += price
            made.append(Evaluation(choices, evaluator.reward(choices), spent))
            try:
                choices = asking.send(made[-1].reward)
            except StopIteration:  # the method has nothing left to ask
                break
        if not made:
            raise PolyarchError(
                f"the budget of {budget} does not pay for one evaluation, which costs {price.counted(budget.unit):g}; "
                "raise it"
            )
        return History(tuple(made))


def _checked(price: Spent, budget: Budget) -> Spent:
    """Raises for a price with which a search would never end."""
    if not price.counted(budget.unit) > 0:
        raise PolyarchError(
            f"an evaluation costs {price.counted(budget.unit):g} {budget.unit}, so that a budget of "
            f"{budget} is never spent; count in evaluations, or say what one costs"
        )
    return price


def options_of(space: Space) -> list[int]:
    """How many options each decision has."""
    return [len(decision) for decision in space.decisions]


def drawn(source: Distribution, generator: torch.Generator) -> Choices:
    """One architecture of what a space draws random ones from."""
    [choices] = source.sample(1, generator).tolist()
    return tuple(choices)


def mutated(choices: Choices, options: Sequence[int], generator: torch.Generator) -> Choices:
    """One decision at random takes another option at random."""
    open_ = [k for k, count in enumerate(options) if count > 1]
    k = open_[_number_below(len(open_), generator)]
    shift = 1 + _number_below(options[k] - 1, generator)
    return (*choices[:k], (choices[k] + shift) % options[k], *choices[k + 1 :])


def neighbours(choices: Choices, options: Sequence[int]) -> list[Choices]:
    """Everything that differs in one decision."""
    return [
        (*choices[:k], option, *choices[k + 1 :])
        for k, count in enumerate(options)
        for option in range(count)
        if option != choices[k]
    ]


def _number_below(count: int, generator: torch.Generator) -> int:
    return int(torch.randint(count, (), generator=generator))
