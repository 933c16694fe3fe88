import numpy as np
import pytest
import scipy.integrate
import scipy.stats
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from polyarch import Decision, PolyarchError
from polyarch.distributions import Categorical, GaussianLogits, uniform
from polyarch.distributions.gaussian import winning
from polyarch.testing import check_distribution

DECISIONS = (Decision("a", ("x", "y", "z")), Decision("b", ("p", "q")), Decision("c", ("only",)))
INF = torch.inf
MEAN = torch.tensor([[0.3, -0.5, 0.1], [1.0, 0.2, -INF], [0.4, -INF, -INF]])
DEVIATION = torch.tensor([[0.5, 2.0, 0.1], [1.0, 0.5, 0.0], [0.3, 0.0, 0.0]])


def chance(seed=0):
    return torch.Generator().manual_seed(seed)


def exact(mean, deviation):
    mean, deviation = (torch.tensor(row, dtype=torch.float64) for row in (mean, deviation))
    return winning(mean, deviation)


def by_scipy(mean, deviation):
    """Adaptive quadrature, one option at a time, in the option's own standard units."""
    gaussians = [scipy.stats.norm(m, s) for m, s in zip(mean, deviation, strict=True)]

    def density(z, k):
        others = [g.cdf(mean[k] + deviation[k] * z) for j, g in enumerate(gaussians) if j != k]
        return scipy.stats.norm.pdf(z) * np.prod(others)

    def borders(k):
        raw = [(m + s * u - mean[k]) / deviation[k] for m, s in zip(mean, deviation, strict=True) for u in (-5, 0, 5)]
        return sorted({z for z in raw if -9 < z < 9})

    return [
        scipy.integrate.quad(density, -9, 9, args=(k,), points=borders(k), limit=500, epsabs=1e-11)[0]
        for k in range(len(mean))
    ]


@pytest.mark.parametrize("seed", range(3))
def test_contract(seed):
    mean = torch.randn(MEAN.shape, generator=chance(seed)).where(MEAN > -INF, -INF)
    check_distribution(GaussianLogits(DECISIONS, mean, DEVIATION))


@pytest.mark.parametrize(
    ("mean", "deviation"),
    [
        ([0.0, 0.0, 0.0], [1.0, 1.0, 1.0]),
        ([0.3, -0.5, 0.1, 0.0], [0.5, 2.0, 0.1, 1.0]),
        ([0.3, -0.5, 0.1], [1e-3, 1.0, 1e-2]),
        ([1.0, 1.0001, -3.0], [1e-4, 1e-4, 3.0]),
        ([0.0, 6.0], [1.0, 1.0]),
    ],
)
def test_against_adaptive_quadrature(mean, deviation):
    assert exact(mean, deviation).tolist() == pytest.approx(by_scipy(mean, deviation), abs=1e-8)


def test_two_options_in_closed_form():
    first, _ = exact([1.0, 0.4], [0.3, 2.0]).tolist()
    assert first == pytest.approx(scipy.stats.norm.cdf(0.6 / np.hypot(0.3, 2.0)), abs=1e-10)


def test_against_drawing():
    belief = GaussianLogits(DECISIONS, MEAN, DEVIATION)
    drawn = MEAN + DEVIATION * torch.randn(100_000, *MEAN.shape, generator=chance(1))
    for k, decision in enumerate(DECISIONS):
        counted = torch.bincount(drawn[:, k].argmax(-1), minlength=len(decision)) / 100_000
        assert torch.allclose(counted, belief.probs()[decision.name], atol=0.01)


def test_logits_without_deviation():
    assert exact([0.2, 0.7, 0.7], [0.0, 0.0, 0.0]).tolist() == [0, 1, 0]  # among equals argmax takes the first
    second = scipy.stats.norm.cdf(-0.5)
    assert exact([0.5, 0.0, 0.5, 0.1], [0.0, 1.0, 0.0, 0.0]).tolist() == pytest.approx(
        [1 - second, second, 0, 0], abs=1e-8
    )


def test_a_point_mass():
    belief = GaussianLogits(DECISIONS, MEAN, torch.zeros_like(MEAN))
    assert belief.entropy().item() == 0
    assert belief.log_prob(torch.tensor([[0, 0, 0], [1, 0, 0]])).tolist() == [0, -INF]
    assert belief.sample(3, chance()).tolist() == [[0, 0, 0]] * 3
    assert belief.kl(uniform(DECISIONS)).item() == pytest.approx(np.log(6))


def test_the_mode_is_that_of_the_mean_and_not_the_most_probable():
    decision = (Decision("a", ("narrow", "narrow too", "wide")),)
    belief = GaussianLogits(decision, torch.tensor([[0.1, 0.09, 0.0]]), torch.tensor([[0.1, 0.1, 10.0]]))
    assert belief.mode().tolist() == [0]
    assert belief.probs()["a"].argmax() == 2
    assert torch.allclose(belief.mean_weights()[0], torch.tensor([0.1, 0.09, 0.0]).softmax(-1))


def test_probabilities_can_be_differentiated():
    mean = torch.tensor([0.3, -0.5, 0.1, -INF], dtype=torch.float64, requires_grad=True)
    deviation = torch.tensor([0.5, 1.0, 0.2, 0.0], dtype=torch.float64, requires_grad=True)
    for value, step in ((mean, 0), (deviation, 1)):
        [slope] = torch.autograd.grad(winning(mean, deviation)[0], [value])
        for k in range(3):
            h = torch.zeros(4, dtype=torch.float64)
            h[k] = 1e-5
            up, down = (winning(mean + s * h * (step == 0), deviation + s * h * (step == 1))[0].item() for s in (1, -1))
            assert slope[k].item() == pytest.approx((up - down) / 2e-5, abs=1e-7)
        assert slope[3] == 0


def test_missing_options_have_no_gradient():
    mean, deviation = MEAN.clone().requires_grad_(), DEVIATION.clone().requires_grad_()
    belief = GaussianLogits(DECISIONS, mean, deviation)
    value = belief.entropy() + belief.kl(uniform(DECISIONS)) + belief.relax(4, chance(), 0.5)[1][:, 0].sum()
    for slope in torch.autograd.grad(value, [mean, deviation]):
        assert slope.isfinite().all()
        assert (slope[MEAN == -INF] == 0).all()


def test_relaxed_weights_follow_the_drawn_logits():
    belief = GaussianLogits(DECISIONS, MEAN, DEVIATION)
    noise = torch.randn(5, *MEAN.shape, generator=chance())
    for k, soft in enumerate(belief.relax(5, chance(), 0.5)):
        logits = (MEAN + DEVIATION * noise)[:, k, : len(DECISIONS[k])]
        assert torch.allclose(soft, (logits / 0.5).softmax(-1))
    assert torch.equal(belief.drawn(noise).argmax(-1), belief.sample(5, chance()))


def test_kl_equals_that_of_the_categorical_of_its_probabilities():
    belief = GaussianLogits(DECISIONS[:1], MEAN[:1], DEVIATION[:1])
    prior = Categorical(DECISIONS[:1], torch.tensor([[0.0, 1.0, 2.0]]))
    expected = scipy.stats.entropy(belief.probs()["a"].numpy(), prior.probs()["a"].numpy())
    assert belief.kl(prior).item() == pytest.approx(expected, abs=1e-5)


def test_probabilities_can_be_captured():
    with FakeTensorMode() as mode:
        assert winning(mode.from_tensor(MEAN), mode.from_tensor(DEVIATION)).shape == MEAN.shape


def test_leading_axes_are_kept():
    stacked = GaussianLogits(DECISIONS, torch.stack([MEAN, 2 * MEAN]), torch.stack([DEVIATION, DEVIATION / 2]))
    for k in range(2):
        assert torch.allclose(stacked.entropy()[k], stacked.repeat(k).entropy())
        assert torch.equal(stacked.mode()[k], stacked.repeat(k).mode())
    with pytest.raises(PolyarchError, match="repeat"):
        stacked.sample(3, chance())


def test_mean_and_deviation_must_fit_the_decisions():
    with pytest.raises(PolyarchError, match="expected"):
        GaussianLogits(DECISIONS, MEAN, DEVIATION[:2])
