"""Local search, against brute force over all neighbours."""

import pytest
from landscapes import EVERY, OPTIONS, Grid, Rugged, answered, asked, chance

from polyarch.blackbox import Budget, LocalSearch
from polyarch.blackbox.base import neighbours


@pytest.mark.parametrize("move", ["first", "best"])
@pytest.mark.parametrize("seed", range(5))
def test_climbs_end_in_local_optima(move, seed):
    """From every start, against brute force over all neighbours; and no way down is ever taken."""
    rewards = Rugged(seed).rewards
    optima = {c for c in EVERY if all(rewards[n] < rewards[c] for n in neighbours(c, OPTIONS))}
    assert len(optima) > 1
    reached = set()
    for start in EVERY:
        known = {start: rewards[start]}
        _, end = answered(_from(LocalSearch(move=move), start, known), rewards)
        assert rewards[end] >= rewards[start]
        assert set(neighbours(end, OPTIONS)) <= set(known)
        reached.add(end)
    assert reached <= optima
    assert optima <= reached  # each is where the climb from itself ends


def _from(method, start, known):
    """A climb that asks about its start too, so that there is always a question, and returns where it ended."""
    yield start
    return (yield from method.climb(start, known, OPTIONS, chance(7)))


def test_steepest_takes_the_best_neighbour():
    rewards = Rugged(1).rewards
    for start in EVERY:
        path, here = [start], start
        while True:
            best = max(neighbours(here, OPTIONS), key=rewards.get)
            if rewards[best] < rewards[here]:
                break
            here = best
            path.append(here)
        _, end = answered(_from(LocalSearch(move="best"), start, {start: rewards[start]}), rewards)
        assert end == path[-1]


def test_first_move_asks_no_further_than_it_must():
    """On a slope every neighbour one up is better: the next question after a better answer is about its neighbour."""
    rewards = {c: float(sum(c)) for c in EVERY}
    questions, end = answered(_from(LocalSearch(), (0, 0, 0, 0), {(0, 0, 0, 0): 0.0}), rewards)
    assert end == (2, 0, 3, 1)
    best = questions[0]
    for question in questions[1:]:
        assert question in neighbours(best, OPTIONS)
        best = max(best, question, key=rewards.get)


def test_a_plateau_is_an_end():
    flat = dict.fromkeys(EVERY, 1.0)
    _, end = answered(_from(LocalSearch(), EVERY[5], {EVERY[5]: 1.0}), flat)
    assert end == EVERY[5]


def test_local_search_restarts_and_finds_the_best():
    evaluator = Rugged(3)
    history = LocalSearch().search(Grid(), evaluator, Budget(1000), chance())
    assert len(history) == len(EVERY) == len(set(asked(history)))
    assert history.best.reward == len(EVERY) - 1
