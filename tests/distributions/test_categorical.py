import math

import numpy as np
import pytest
import scipy.stats
import torch

from polyarch import Decision, PolyarchError
from polyarch.distributions import Categorical, exponential, make_prior, uniform
from polyarch.distributions.categorical import pad
from polyarch.testing import check_distribution

DECISIONS = (Decision("a", ("x", "y", "z")), Decision("b", ("p", "q")), Decision("c", ("only",)))


def ragged(seed):
    generator = torch.Generator().manual_seed(seed)
    return Categorical(DECISIONS, pad([2 * torch.randn(len(d), generator=generator) for d in DECISIONS]))


@pytest.mark.parametrize("seed", range(4))
def test_contract(seed):
    check_distribution(ragged(seed))


def test_against_scipy():
    q, p = ragged(0), ragged(1)
    rows = [(q.probs()[d.name].numpy(), p.probs()[d.name].numpy()) for d in DECISIONS]
    assert q.entropy().item() == pytest.approx(sum(scipy.stats.entropy(a) for a, _ in rows), abs=1e-5)
    assert q.kl(p).item() == pytest.approx(sum(scipy.stats.entropy(a, b) for a, b in rows), abs=1e-5)


def test_leading_axes_are_kept():
    stacked = Categorical(DECISIONS, torch.stack([ragged(0).logits, ragged(1).logits]))
    choices = torch.tensor([[[0, 1, 0], [2, 0, 0]]]).expand(2, -1, -1)
    for k in range(2):
        single = stacked.repeat(k)
        assert torch.equal(single.logits, ragged(k).logits)
        assert torch.allclose(stacked.log_prob(choices)[k], single.log_prob(choices[k]))
        assert torch.allclose(stacked.entropy()[k], single.entropy())
        assert torch.equal(stacked.mode()[k], single.mode())
    with pytest.raises(PolyarchError, match="repeat"):
        stacked.sample(3, torch.Generator())


def test_a_point_mass_has_no_entropy_and_no_nan():
    point = Categorical((DECISIONS[0],), torch.tensor([[-torch.inf, 0.0, -torch.inf]]))
    assert point.entropy().item() == 0
    assert point.kl(uniform((DECISIONS[0],))).item() == pytest.approx(np.log(3))
    assert uniform((DECISIONS[0],)).kl(point).item() == np.inf


def test_the_entropy_of_what_is_certain_is_zero_and_not_below():
    certain = Categorical((Decision("a", ("x", "y")),), torch.tensor([[200.0, 0.0]]))
    assert math.copysign(1, certain.entropy().item()) == 1


def test_relaxed_weights_have_gradients_and_harden_as_temperature_falls():
    logits = torch.zeros(1, 3, requires_grad=True)
    belief = Categorical((DECISIONS[0],), logits)
    [soft] = belief.relax(50, torch.Generator().manual_seed(0), temperature=1.0)
    [slope] = torch.autograd.grad(soft[:, 0].sum(), [logits])
    assert slope[0, 0] > 0
    [hard] = belief.relax(50, torch.Generator().manual_seed(0), temperature=0.01)
    assert torch.equal(hard.argmax(-1), soft.argmax(-1))
    assert hard.max(-1).values.mean() > 0.97


def test_gumbel_draws_have_the_beliefs_probabilities():
    belief = ragged(2)
    soft = belief.relax(20_000, torch.Generator().manual_seed(0), temperature=1.0)
    for decision, weights in zip(DECISIONS, soft, strict=True):
        counted = torch.bincount(weights.argmax(-1), minlength=len(decision)) / 20_000
        assert torch.allclose(counted, belief.probs()[decision.name], atol=0.02)


@pytest.mark.parametrize(
    "text", ["exponentail", "exponential(1.5)", "exponential(x)", "uniform(2)", "", "exponential(0)"]
)
def test_priors_that_do_not_exist(text):
    with pytest.raises(PolyarchError):
        make_prior(text, DECISIONS)


def test_priors_by_name():
    assert torch.equal(make_prior("exponential", DECISIONS).logits, exponential(DECISIONS, 0.85).logits)
    half = make_prior("exponential(0.5)", DECISIONS).probs()["a"]
    assert torch.allclose(half, torch.tensor([4.0, 2.0, 1.0]) / 7)
    assert torch.allclose(make_prior("exponential(1)", DECISIONS).probs()["a"], uniform(DECISIONS).probs()["a"])


def test_logits_must_fit_the_decisions():
    with pytest.raises(PolyarchError, match="expected"):
        Categorical(DECISIONS, torch.zeros(3, 2))
