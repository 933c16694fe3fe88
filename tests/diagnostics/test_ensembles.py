"""Mixtures of few and many members, and how far members differ."""

import json
import weakref
from dataclasses import asdict
from itertools import combinations, permutations

import numpy as np
import pytest
import torch
from lively import examples, lively
from scipy.stats import entropy
from unchanged import unchanged

from polyarch.diagnostics import combine, combine_within, counts_up_to
from polyarch.errors import PolyarchError
from polyarch.spaces import Wiring
from polyarch.uncertainty import Predictive, accuracy, ece, log_likelihood
from polyarch.uncertainty.ensemble import Within


def members(count=7, examples=40, classes=4, scale=2.0, seed=0):
    chance = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(count, examples, classes, generator=chance, dtype=torch.float64)
    return logits.log_softmax(-1), torch.randint(classes, (examples,), generator=chance)


def mixed(log_probs):
    weights = torch.full((len(log_probs),), 1 / len(log_probs), dtype=torch.float64)
    return Predictive.from_members(log_probs, weights).log_probs


def check_curve(curve, said, y):
    """The first of `said` [members, n, classes], mixed all at once."""
    for k, count in enumerate(curve.counts):
        together = mixed(said[:count])
        assert curve.accuracy[k] == accuracy(together, y)
        assert curve.log_likelihood[k] == pytest.approx(log_likelihood(together, y), abs=1e-9)
        assert curve.ece[k] == pytest.approx(ece(together, y), abs=1e-9)


def test_the_curve_is_that_of_mixing_all_at_once():
    said, y = members()
    found = combine(iter(said), y, [1, 2, 5, 7])
    assert found.listed.counts == [1, 2, 5, 7]
    check_curve(found.listed, said, y)
    assert found.members == [accuracy(member, y) for member in said]
    # All members are all members, in any order.
    assert found.averaged.accuracy[-1] == pytest.approx(found.listed.accuracy[-1])
    assert found.averaged.log_likelihood[-1] == pytest.approx(found.listed.log_likelihood[-1])
    json.dumps(asdict(found), allow_nan=False)
    assert combine(said, y, [1, 2, 5, 7]) == found
    assert combine(said, y, [1, 2, 5, 7], seed=1).averaged != found.averaged
    assert combine(said, y, [1, 2, 5, 7], seed=1).listed == found.listed


def test_orders_are_all_alike_likely():
    said, y = members(count=3, examples=12)
    found = combine(said, y, [1, 2, 3], orders=900).averaged
    for k, count in enumerate(found.counts):
        each = [log_likelihood(mixed(said[list(chosen)]), y) for chosen in combinations(range(3), count)]
        assert found.log_likelihood[k] == pytest.approx(np.mean(each), abs=4 * np.std(each) / 900**0.5 + 1e-9)


def test_the_given_order_is_not_averaged_over():
    said, y = members(count=2)
    single = {combine(said, y, [1, 2], orders=1, seed=seed).averaged.log_likelihood[0] for seed in range(12)}
    assert sorted(single) == pytest.approx(sorted(log_likelihood(member, y) for member in said))


def test_probabilities_too_small_for_a_number_are_mixed():
    said = torch.tensor([[[0.0, -2000.0]], [[0.0, -1999.0]]], dtype=torch.float64)
    found = combine(said, torch.tensor([1]), [2])
    assert found.listed.log_likelihood == pytest.approx([np.logaddexp(-2000, -1999) - np.log(2)])


@pytest.mark.parametrize("scale", [0.1, 5.0])
def test_disagreement_and_divergence_are_those_of_all_pairs(scale):
    said, y = members(count=5, scale=scale)
    found = combine(said, y, [5])
    probs, classes = said.exp().numpy(), said.argmax(-1)
    pairs = list(permutations(range(5), 2))
    assert found.kl == pytest.approx(np.mean([entropy(probs[i], probs[j], axis=-1).mean() for i, j in pairs]))
    differ = [(classes[i] != classes[j]).double().mean().item() for i, j in pairs]
    assert found.disagreement == pytest.approx(np.mean(differ))


def test_members_that_say_the_same():
    said, y = members(count=1)
    found = combine(said.expand(4, -1, -1), y, [1, 4])
    assert found.disagreement == 0
    assert found.kl == pytest.approx(0, abs=1e-12)
    assert found.listed.accuracy[0] == found.listed.accuracy[1]
    alone = combine(said, y, [1])
    assert alone.disagreement is None
    assert alone.kl is None


def test_members_are_let_go():
    said, y = members(count=6)
    alive: list[weakref.ref] = []

    def one_by_one():
        for member in said:
            assert sum(ref() is not None for ref in alive) <= 1
            copy = member.clone()
            alive.append(weakref.ref(copy))
            yield copy
            del copy

    assert combine(one_by_one(), y, [6]) == combine(said, y, [6])


@pytest.mark.parametrize("settings", [{}, {"listed": 6, "own_affine": True, "own_aggregation": True}])
def test_members_inside_a_supernet(settings):
    space = Wiring(stages=2, nodes=3, channels=2, aggregation="sum", **settings)
    supernet, (x, y) = lively(space), examples(30)
    choices = space.random().sample(6, torch.Generator().manual_seed(0))
    with unchanged(supernet):
        found = combine_within(supernet, x, y, choices, batch_size=8)
    with torch.no_grad():
        said = Within(supernet.eval(), choices)(x).log_softmax(-1)
    assert found.listed.counts == [1, 2, 5, 6]
    check_curve(found.listed, said, y)
    assert found.disagreement > 0
    some = combine_within(supernet, x, y, choices, counts=[3, 6])
    assert some.listed.accuracy == [accuracy(mixed(said[:count]), y) for count in (3, 6)]


def test_counts():
    assert counts_up_to(1) == [1]
    assert counts_up_to(2) == [1, 2]
    assert counts_up_to(10) == [1, 2, 5, 10]
    assert counts_up_to(500) == [1, 2, 5, 10, 20, 50, 100, 200, 500]
    assert counts_up_to(501)[-2:] == [500, 501]
    with pytest.raises(PolyarchError, match="most is 0"):
        counts_up_to(0)


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ([], "must rise"),
        ([0, 7], "must rise"),
        ([1, 1, 7], "must rise"),
        ([7, 5], "must rise"),
        ([1, 8], "there are 7 members, and counts go to 8; end them with 7"),
        ([1, 6], "more than 6 members"),
    ],
)
def test_counts_that_do_not_fit_are_refused(counts, message):
    said, y = members()
    with pytest.raises(PolyarchError, match=message):
        combine(said, y, counts)


def test_other_refusals():
    said, y = members()
    with pytest.raises(PolyarchError, match="orders is 0"):
        combine(said, y, [7], orders=0)
    with pytest.raises(PolyarchError, match=r"got \[40, 4\] and \[39\]"):
        combine(said, y[:39], [7])
    with pytest.raises(PolyarchError, match="does not sum to 1"):
        combine(said.exp(), y, [7])
