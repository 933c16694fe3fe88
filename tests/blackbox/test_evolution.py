"""Regularised evolution: who is the parent, and who dies."""

import pytest
from landscapes import OPTIONS, Grid, Rugged, asked, chance

from polyarch.architecture import Decision
from polyarch.blackbox import Budget, RegularisedEvolution
from polyarch.blackbox.base import drawn, neighbours
from polyarch.errors import PolyarchError


def test_evolution_keeps_the_youngest():
    """With everybody in the sample the parent is the best of the last `population` evaluations, and of no earlier."""
    evaluator = Rugged(seed=2)
    method = RegularisedEvolution(population=3, sample=200)  # with replacement, so 200 draws miss none of 3
    history = method.search(Grid(), evaluator, Budget(60), chance(1))
    order = asked(history)
    best_was_dropped = False
    for k in range(3, len(order)):
        parent = max(order[k - 3 : k], key=evaluator.reward)
        assert order[k] in neighbours(parent, OPTIONS)
        best_was_dropped |= evaluator.reward(parent) < max(map(evaluator.reward, order[:k]))
    assert best_was_dropped  # age, not merit


class Pair(Grid):
    decisions = (Decision("one", ("0",)), Decision("two", ("0", "1")))


def test_evolution_by_hand():
    """One decision of two options and a population of one: the only child of either is the other, for ever."""
    asking = RegularisedEvolution(population=1, sample=1).ask(Pair(), chance())
    first = next(asking)
    other = (0, 1 - first[1])
    assert [asking.send(reward) for reward in (1.0, 0.0, 5.0, 5.0)] == [other, first, other, first]


def test_evolution_first_draws_its_population():
    method = RegularisedEvolution(population=5, sample=1)
    history = method.search(Grid(), Rugged(), Budget(5), chance(9))
    generator = chance(9)
    assert asked(history) == [drawn(Grid().random(), generator) for _ in range(5)]


def test_evolution_settings():
    assert (RegularisedEvolution().population, RegularisedEvolution().sample) == (10, 3)
    with pytest.raises(PolyarchError, match="population is 0"):
        RegularisedEvolution(population=0)
