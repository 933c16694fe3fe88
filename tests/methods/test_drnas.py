"""Mixtures drawn from a Dirichlet; the steps around them are tested in test_bilevel.py."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import polyarch as pa
from polyarch.distributions import Dirichlet
from polyarch.methods import Drnas
from polyarch.methods.bilevel import open_logits
from polyarch.methods.drnas import concentration
from polyarch.spaces import ModuleSpace
from polyarch.training.dry_run import prepare


class Ragged(nn.Module):
    """Two open places, with two and three options."""

    def __init__(self):
        super().__init__()
        self.first = pa.Choice("first", {name: nn.Linear(3, 4) for name in "ab"})
        self.second = pa.Choice("second", {name: nn.Linear(4, 3) for name in "abc"})

    def forward(self, x):
        return self.second(torch.tanh(self.first(x)))


RAGGED = ModuleSpace(Ragged)
BETA = torch.tensor([[0.7, -0.4, 0.2], [1.5, -1.0, 0.0]], dtype=torch.float64)


@pytest.fixture(scope="module")
def vectors(tmp_path_factory):
    path, random = tmp_path_factory.mktemp("vectors") / "vectors.npz", np.random.default_rng(0)
    np.savez(path, x=random.normal(size=(40, 3)).astype(np.float32), y=np.arange(40) % 3)
    return pa.data.load(path, select=0.4, test=0)


def values_at_the_mean(beta):
    """A value per option, added up by the mean weights of the Dirichlet."""
    first, second = F.elu(beta[0, :2]) + 1, F.elu(beta[1]) + 1
    values = torch.tensor([1.0, -2.0]).double(), torch.tensor([0.5, 3.0, -1.0]).double()
    return (values[0] * first / first.sum()).sum() + (values[1] * second / second.sum()).sum()


def test_gradients_of_draws_are_those_of_their_mean(vectors):
    """In expectation: against finite differences of what is known of the mean, within four standard errors."""
    method, n = Drnas(), 40_000
    problem, _, _ = prepare(method, RAGGED, vectors, vectors.seen(vectors.train), repeats=1)
    noise = method.noise(problem, torch.Generator().manual_seed(0), n)
    each = BETA.expand(n, -1, -1).clone().requires_grad_()
    noise = {name: value.double() for name, value in noise.items()}
    draws = method.mixture(RAGGED, {"beta": each}, noise, {}).weights
    assert [weights.shape for weights in draws] == [(n, 2), (n, 3)]
    for weights in draws:
        assert (weights > 0).all()
        assert torch.allclose(weights.sum(-1), torch.ones(n).double())
    values = torch.tensor([1.0, -2.0]).double(), torch.tensor([0.5, 3.0, -1.0]).double()
    added = sum(weights @ value for weights, value in zip(draws, values, strict=True))
    assert abs(added.mean() - values_at_the_mean(BETA)) < 4 * added.std() / n**0.5
    [slopes] = torch.autograd.grad(added.sum(), each)
    for place in np.ndindex(2, 3):
        step = torch.zeros(2, 3, dtype=torch.float64)
        step[place] = 1e-5
        exact = (values_at_the_mean(BETA + step) - values_at_the_mean(BETA - step)) / 2e-5
        own = slopes[:, *place]
        assert abs(own.mean() - exact) <= 4 * own.std() / n**0.5, place
    assert not slopes[:, 0, 2].any(), "an option that does not exist"


def test_concentrations_are_positive_and_those_of_no_option_zero():
    beta = torch.tensor([[[-30.0, 2.0, 5.0], [-17.5, 0.0, -1.0]]], requires_grad=True)
    found = concentration(open_logits(RAGGED, {}, beta))
    exact = (F.elu(beta.detach().double()) + 1).float()
    exact[0, 0, 2] = 0
    assert torch.allclose(found, exact, rtol=1e-3, atol=0)
    assert (found[0, 1] > 0).all()
    assert found[0, 0, 0] > 0, "also where single precision rounds elu to -1"
    [slope] = torch.autograd.grad(found.log()[found > 0].sum(), beta)
    assert torch.allclose(slope, torch.tensor([[[1.0, 1 / 3, 0.0], [1.0, 1.0, 1.0]]]))


def test_options_that_were_given_up_do_no_harm(vectors):
    method = Drnas()
    problem, state, feed = prepare(method, RAGGED, vectors, vectors.seen(vectors.train), repeats=2)
    with torch.no_grad():
        state.belief["beta"][0, 1] = torch.tensor([-25.0, 3.0, -25.0])
        state.belief["beta"][1] = -20.0
    method.step(problem, state, feed)
    for name, value in state.tensors().items():
        assert value.isfinite().all(), name


def test_belief_is_the_dirichlet(vectors):
    """Which starts flat."""
    method = Drnas()
    _, state, _ = prepare(method, RAGGED, vectors, vectors.seen(vectors.train), repeats=2)
    belief = method.distribution(RAGGED, state.belief)
    assert isinstance(belief, Dirichlet)
    assert torch.allclose(belief.concentration, torch.tensor([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0]]), atol=0.005)
    found = method.distribution(RAGGED, {"beta": BETA.unsqueeze(0)})
    assert torch.allclose(found.probs()["first"], torch.tensor([[1.7, np.exp(-0.4)]]).double() / (1.7 + np.exp(-0.4)))
    assert found.mode().tolist() == [[0, 0]]
