import math

import pytest
import torch

from polyarch import Decision, PolyarchError
from polyarch.distributions import Categorical, selection, uniform
from polyarch.distributions.evidence import Evidence, posterior, pruned_mixtures, ruled_out, sufficient

DEPTH = (Decision("depth", tuple(str(k) for k in range(4))),)


def belief(*probs):
    return Categorical(DEPTH, torch.tensor([probs], dtype=torch.float64).log())


def draws(examples=50, seed=0):
    return -torch.rand(4, examples, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_the_posterior_by_enumeration():
    prior, fit = belief(0.4, 0.3, 0.2, 0.1), torch.tensor([-3.0, -1.0, 0.5, 0.0], dtype=torch.float64)
    joint = [p * math.exp(f) for p, f in zip((0.4, 0.3, 0.2, 0.1), fit.tolist(), strict=True)]
    expected = torch.tensor([j / sum(joint) for j in joint], dtype=torch.float64)
    torch.testing.assert_close(posterior(fit, prior).probs()["depth"], expected)


def test_splits_without_examples_say_nothing():
    fit = torch.zeros(4)
    assert set(Evidence(fit, torch.zeros(4, 0)).by_split()) == {"train"}
    found = Evidence(fit, draws()).by_split()
    torch.testing.assert_close(found["select"], draws().sum(-1))


def test_what_is_ruled_out_has_less_than_a_tenth_of_the_largest():
    assert ruled_out(belief(0.03, 0.07, 0.3, 0.6)).tolist() == [True, False, False, False]
    assert not ruled_out(uniform(DEPTH)).any()


def test_mixtures_pruned_at_every_option_by_enumeration():
    q, held_out = (0.1, 0.2, 0.3, 0.4), draws(5)
    found = pruned_mixtures(belief(*q), held_out)
    for d in range(4):
        cut = [*q[:d], sum(q[d:])]
        for n in range(5):
            p = sum(weight * math.exp(held_out[k, n]) for k, weight in enumerate(cut))
            assert found[d, n].item() == pytest.approx(math.log(p), abs=1e-12)
    # Mass on one option alone: the mixture is its network, and what comes before it has no part.
    alone = pruned_mixtures(belief(0.0, 0.0, 1.0, 0.0), held_out)
    torch.testing.assert_close(alone[2:], held_out[2].expand(2, -1))
    torch.testing.assert_close(alone[:2], held_out[:2])


def test_the_smallest_that_is_good_enough():
    """Of 10 examples option 1 loses 1 on two and wins 1 on one: 0.1 worse, with a standard error of sqrt(0.29 / 10)."""
    held_out = torch.zeros(4, 10, dtype=torch.float64)
    held_out[1, :3] = torch.tensor([-1.0, -1.0, 1.0])
    held_out[0] = -1
    assert sufficient(held_out) == 1
    held_out[1, 2] = 0  # 0.2 worse, with sqrt(0.16 / 10)
    assert sufficient(held_out) == 2
    steady = torch.tensor([[-1.1] * 20, [-1.01] * 20, [-1.0] * 20, [-1.0] * 20], dtype=torch.float64)
    assert sufficient(steady) == 2, "a difference without spread counts, however small; of equals the first is best"


def test_the_standard_error_is_the_bootstraps():
    held_out, chance = draws(40), torch.Generator().manual_seed(1)
    best = held_out[held_out.mean(-1).argmax()]
    for option in range(4):
        lost = best - held_out[option]
        rows = torch.randint(40, (20_000, 40), generator=chance)
        drawn = lost[rows].mean(-1).std().item()
        assert lost.std(correction=0).item() / 40**0.5 == pytest.approx(drawn, rel=0.03, abs=1e-12)


def test_rules_of_parsimony_are_selection_rules():
    held_out = draws()
    held_out[0] -= 2
    q, known = belief(0.1, 0.1, 0.1, 0.7), Evidence(torch.zeros(4), held_out)
    assert selection.select(q, "sufficient", known) == (1,)
    mixtures = pruned_mixtures(q, held_out)
    assert selection.select(q, "sufficient-mixture", known) == (sufficient(mixtures),)
    assert selection.rule_for("sufficient", True, {"train": 10, "select": 5}) == "sufficient"
    with pytest.raises(PolyarchError, match="set select"):
        selection.rule_for("sufficient", True, {"train": 10})
    with pytest.raises(PolyarchError, match="argmax"):
        selection.rule_for("sufficient", False, {"train": 10, "select": 5})


def test_examples_count_as_if_they_were_there_so_often():
    held_out, times = draws(20), torch.arange(20) % 3 + 1
    counted = Evidence(torch.zeros(4), held_out, times)
    repeated = Evidence(torch.zeros(4), held_out.repeat_interleave(times, -1))
    torch.testing.assert_close(counted.by_split()["select"], repeated.by_split()["select"])
    # A mixture is one of densities, whose logarithm is then counted.
    q = belief(0.1, 0.2, 0.3, 0.4)
    mixed = [pruned_mixtures(q, own.held_out) for own in (counted, repeated)]
    torch.testing.assert_close((mixed[0] * times).sum(-1), mixed[1].sum(-1))
    # What the first option loses on few examples, it makes up for on those that count more.
    steady = torch.zeros(4, 20, dtype=torch.float64)
    steady[0, :10], steady[0, 10:] = -1.0, 0.2
    favoured = torch.tensor([0.1] * 10 + [1.9] * 10, dtype=torch.float64)
    for rule in ("sufficient", "sufficient-mixture"):
        assert selection.select(q, rule, Evidence(torch.zeros(4), steady)) != (0,)
        assert selection.select(q, rule, Evidence(torch.zeros(4), steady, favoured)) == (0,)
