"""What black-box searches share: moves, budgets, histories."""

import itertools
from collections import Counter

import pytest
import torch
from landscapes import EVERY, OPTIONS, Grid, Rugged, asked, chance

from polyarch.blackbox import Budget, LocalSearch, RandomSearch, RegularisedEvolution, Spent
from polyarch.blackbox.base import drawn, mutated, neighbours
from polyarch.errors import PolyarchError
from polyarch.spaces.sub_spaces import Listed, Restricted
from polyarch.testing.toy import Lines

METHODS = (RandomSearch(), RegularisedEvolution(population=4, sample=2), LocalSearch(), LocalSearch(move="best"))


def test_neighbours_are_all_that_differ_in_one_decision():
    for choices in EVERY:
        wanted = {other for other in EVERY if sum(a != b for a, b in zip(choices, other, strict=True)) == 1}
        found = neighbours(choices, OPTIONS)
        assert set(found) == wanted
        assert len(found) == len(wanted) == 2 + 0 + 3 + 1


def test_mutation_is_uniform_over_decisions_then_options():
    generator, start = chance(), (1, 0, 2, 0)
    counts = Counter(mutated(start, OPTIONS, generator) for _ in range(6000))
    assert set(counts) == set(neighbours(start, OPTIONS))
    expected = {n: 2000 / (OPTIONS[k] - 1) for n in counts for k in range(4) if n[k] != start[k]}
    statistic = sum((counts[n] - expected[n]) ** 2 / expected[n] for n in counts)
    assert statistic < 20.5  # chi-squared of 5 degrees of freedom: 0.1 %


def test_draws_are_uniform():
    generator = chance()
    counts = Counter(drawn(Grid().random(), generator) for _ in range(4800))
    assert set(counts) == set(EVERY)
    assert sum((count - 200) ** 2 / 200 for count in counts.values()) < 49.7  # 23 degrees of freedom: 0.1 %


@pytest.mark.parametrize("method", [RandomSearch(), LocalSearch()])
def test_random_architectures_are_those_that_the_space_draws(method):
    """Starts of climbs too; a local search ends when all of them are known."""
    some = [EVERY[k] for k in (1, 5, 11)]
    space = Listed(Grid(), [Grid().format(choices) for choices in some])
    history = method.search(space, Rugged(), Budget(len(EVERY)), chance())
    assert set(asked(history)) >= set(some)
    assert asked(history)[0] in some
    if method.name == "random-search":
        assert set(asked(history)) == set(some)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("amount", "unit", "made"), [(17, "evaluations", 17), (509, "forward", 16), (320, "backward", 16)]
)
def test_budget_is_counted_alike(method, amount, unit, made):
    """Equal prices: every method gets the same number of evaluations for its budget."""
    history = method.search(Grid(), Rugged(), Budget(amount, unit), chance())
    assert len(history) == made
    assert history.spent.evaluations == made
    assert history.spent.forward == 30 * made
    assert history.spent.backward == 20 * made


@pytest.mark.parametrize("method", METHODS)
def test_budget_of_seconds(method):
    """Prices differ: the sum of the evaluator's prices is paid, and one question more would have been too much."""
    evaluator = Rugged()
    history = method.search(Grid(), evaluator, Budget(31, "seconds"), chance())
    paid = list(itertools.accumulate(evaluator.seconds[choices] for choices in asked(history)))
    assert history.paid("seconds").tolist() == pytest.approx(paid)
    assert paid[-1] == history.spent.seconds <= 31
    longer = method.search(Grid(), evaluator, Budget(40, "seconds"), chance())
    assert asked(longer)[: len(history)] == asked(history)
    assert longer.paid("seconds")[len(history)] > 31


@pytest.mark.parametrize("method", METHODS)
def test_same_seed_same_history(method):
    first, second, other = (method.search(Grid(), Rugged(), Budget(15), chance(seed)) for seed in (3, 3, 4))
    assert first == second
    assert asked(first) != asked(other)


@pytest.mark.parametrize("method", METHODS)
def test_own_chance_alone(method):
    before = torch.get_rng_state()
    method.search(Grid(), Rugged(), Budget(15), chance())
    assert torch.equal(before, torch.get_rng_state())


def test_running_best():
    evaluator = Rugged()
    history = RandomSearch().search(Grid(), evaluator, Budget(40), chance(1))
    rewards = [evaluator.rewards[choices] for choices in asked(history)]
    assert history.rewards().tolist() == rewards
    assert len(set(rewards)) < len(rewards)  # some were drawn twice, so that ties occur
    wanted = [rewards.index(max(rewards[: k + 1])) for k in range(len(rewards))]
    assert history.incumbents().tolist() == wanted
    assert history.best == history.evaluations[wanted[-1]]
    assert history.choices().tolist() == [list(choices) for choices in asked(history)]


def test_evaluating_again_is_paid_again():
    evaluator = Rugged()
    evaluator.seconds = dict.fromkeys(EVERY, 2.0)
    for method in (RandomSearch(), RegularisedEvolution(population=2, sample=1)):
        history = method.search(Grid(), evaluator, Budget(200, "seconds"), chance())
        assert len(history) == 100 > len(EVERY)
        assert history.spent.seconds == 200
    local = LocalSearch().search(Grid(), evaluator, Budget(200, "seconds"), chance())
    assert sorted(asked(local)) == sorted(EVERY)  # it asks about none twice, and ends when all are known
    assert local.spent.seconds == 2 * len(EVERY)


def test_bad_budgets():
    with pytest.raises(PolyarchError, match="the budget is 0 seconds; it must be a finite number above 0"):
        Budget(0, "seconds")
    with pytest.raises(PolyarchError, match="unknown unit of a budget 'second'; did you mean 'seconds'"):
        Budget(1, "second")
    with pytest.raises(PolyarchError, match="does not pay for one evaluation, which costs 30; raise it"):
        RandomSearch().search(Grid(), Rugged(), Budget(29, "forward"), chance())

    class Free(Rugged):
        def price(self, choices):
            return Spent(evaluations=1)

    with pytest.raises(PolyarchError, match="costs 0 seconds, so that a budget of 5 seconds is never spent"):
        LocalSearch().search(Grid(), Free(), Budget(5, "seconds"), chance())


def test_nothing_to_search():
    space = Lines()
    alone = Restricted.to(space, space.architecture([1, 0]))
    with pytest.raises(PolyarchError, match="has one architecture; there is nothing to search"):
        RegularisedEvolution().search(alone, Rugged(), Budget(5), chance())
