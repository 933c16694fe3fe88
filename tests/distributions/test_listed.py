"""A list of architectures, against enumeration of the whole space."""

import math

import pytest
import torch

from polyarch import PolyarchError
from polyarch.architecture import Decision
from polyarch.distributions import Listed, uniform

DECISIONS = (Decision("a", ("0", "1", "2")), Decision("b", ("off", "on")))
CHOICES = torch.tensor([[2, 1], [0, 0], [2, 0]])
WEIGHTS = torch.tensor([0.5, 0.2, 0.3], dtype=torch.float64)
EVERY = torch.cartesian_prod(torch.arange(3), torch.arange(2))


@pytest.fixture
def belief():
    return Listed(DECISIONS, CHOICES, WEIGHTS.log() + 4.0)


def test_probabilities_are_those_of_the_list(belief):
    found = belief.log_prob(EVERY).exp()
    wanted = {tuple(c.tolist()): w.item() for c, w in zip(CHOICES, WEIGHTS, strict=True)}
    assert found.tolist() == pytest.approx([wanted.get(tuple(c), 0.0) for c in EVERY.tolist()])
    assert found.sum().item() == pytest.approx(1)
    marginals = belief.probs()
    for k, decision in enumerate(DECISIONS):
        for option in range(len(decision)):
            by_hand = found[EVERY[:, k] == option].sum()
            assert marginals[decision.name][option].item() == pytest.approx(by_hand.item())
    assert belief.mode().tolist() == [2, 1]


def test_entropy_and_kl_are_sums_over_the_space(belief):
    probs = belief.log_prob(EVERY).exp()
    some = probs[probs > 0]
    assert belief.entropy().item() == pytest.approx(-(some * some.log()).sum().item())
    assert belief.kl(uniform(DECISIONS)).item() == pytest.approx((some * (some * 6).log()).sum().item(), rel=1e-6)
    assert belief.kl(belief).item() == pytest.approx(0, abs=1e-12)
    without = Listed(DECISIONS, CHOICES, torch.tensor([0.0, 0.0, -torch.inf]))
    assert without.entropy().item() == pytest.approx(torch.tensor(2.0).log().item())


def test_the_entropy_of_a_sure_list_is_zero_and_not_below():
    sure = Listed((Decision("a", ("x", "y")),), torch.tensor([[0]]), torch.zeros(1))
    assert math.copysign(1, sure.entropy().item()) == 1


def test_draws_are_as_frequent_as_they_should_be(belief):
    drawn = belief.sample(20_000, torch.Generator().manual_seed(0))
    for choices, weight in zip(CHOICES, WEIGHTS, strict=True):
        share = (drawn == choices).all(-1).double().mean().item()
        assert share == pytest.approx(weight.item(), abs=4.5 * (0.25 / 20_000) ** 0.5)


def test_repeats(belief):
    both = Listed(DECISIONS, torch.stack([CHOICES, CHOICES.flip(0)]), torch.stack([WEIGHTS.log(), WEIGHTS.log()]))
    assert both.mode().tolist() == [[2, 1], [2, 0]]
    assert both.entropy().tolist() == pytest.approx([belief.entropy().item()] * 2)
    assert both.log_prob(EVERY.expand(2, -1, -1)).shape == (2, 6)
    assert both.repeat(0).log_prob(EVERY).tolist() == pytest.approx(belief.log_prob(EVERY).tolist())
    with pytest.raises(PolyarchError, match="take repeat"):
        both.sample(1, torch.Generator())


def test_what_a_list_does_not_have(belief):
    with pytest.raises(PolyarchError, match="no soft weights"):
        belief.mean_weights()
    with pytest.raises(PolyarchError, match="no soft weights"):
        belief.relax(1, torch.Generator(), 1.0)
    with pytest.raises(PolyarchError, match="do not fit"):
        Listed(DECISIONS, CHOICES, WEIGHTS[:2])
