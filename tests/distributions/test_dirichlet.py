import pytest
import scipy.special
import scipy.stats
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from polyarch import Decision, PolyarchError
from polyarch.distributions import Categorical, Dirichlet, uniform
from polyarch.distributions.dirichlet import dirichlet_from_noise, dirichlet_noise, log_gamma_from_noise
from polyarch.testing import check_distribution

DECISIONS = (Decision("a", ("x", "y", "z")), Decision("b", ("p", "q")), Decision("c", ("only",)))
CONCENTRATION = torch.tensor([[0.5, 2.0, 1.5], [3.0, 1.0, 0.0], [0.7, 0.0, 0.0]])


def chance(seed=0):
    return torch.Generator().manual_seed(seed)


def doubled(shape, seed=0):
    return {name: value.double() for name, value in dirichlet_noise(shape, chance(seed)).items()}


def test_contract():
    check_distribution(Dirichlet(DECISIONS, CONCENTRATION))


def test_architectures_have_the_probabilities_of_the_mean():
    belief = Dirichlet(DECISIONS, CONCENTRATION)
    same = Categorical(DECISIONS, CONCENTRATION.log())
    assert torch.allclose(belief.probs()["a"], torch.tensor([0.125, 0.5, 0.375]))
    assert torch.allclose(belief.mean_weights()[1], torch.tensor([0.75, 0.25]))
    assert belief.mode().tolist() == [1, 0, 0]
    assert belief.log_prob(torch.tensor([[2, 1, 0]])).item() == pytest.approx(torch.tensor(0.375 * 0.25).log().item())
    assert torch.allclose(belief.entropy(), same.entropy())
    assert torch.allclose(belief.kl(uniform(DECISIONS)), same.kl(uniform(DECISIONS)))


def test_options_drawn_from_drawn_weights_have_the_probabilities():
    soft = Dirichlet(DECISIONS, CONCENTRATION).relax(20_000, chance(), 1.0)
    for decision, theta in zip(DECISIONS, soft, strict=True):
        options = torch.multinomial(theta, 1, generator=chance(1)).squeeze(-1)
        counted = torch.bincount(options, minlength=len(decision)) / 20_000
        assert torch.allclose(counted, Dirichlet(DECISIONS, CONCENTRATION).probs()[decision.name], atol=0.02)


def test_the_temperature_changes_nothing():
    belief = Dirichlet(DECISIONS, CONCENTRATION)
    for warm, cold in zip(belief.relax(5, chance(), 10.0), belief.relax(5, chance(), 0.1), strict=True):
        assert torch.equal(warm, cold)


@pytest.mark.parametrize("shape", [0.05, 0.5, 1.0, 3.0, 40.0])
def test_gammas_against_scipy(shape):
    drawn = log_gamma_from_noise(torch.tensor([shape], dtype=torch.float64), doubled((20_000, 1))).exp().flatten()
    assert scipy.stats.kstest(drawn.numpy(), scipy.stats.gamma(shape).cdf).pvalue > 1e-3


@pytest.mark.parametrize("concentration", [[0.3, 0.2, 0.6], [1.0, 1.0, 1.0], [0.5, 3.0, 20.0]])
def test_weights_move_along_their_quantiles(concentration):
    """Each is ~ Beta(c, total - c); how its quantiles move with c is known from scipy's inverse."""
    each = torch.tensor(concentration, dtype=torch.float64).expand(100, 3).clone().requires_grad_()
    theta = dirichlet_from_noise(each, doubled((100, 3)))
    for k, c in enumerate(concentration):
        [slope] = torch.autograd.grad(theta[:, k].sum(), [each], retain_graph=True)
        rest = sum(concentration) - c
        quantile = scipy.special.betainc(c, rest, theta[:, k].detach().numpy())
        up, down = (scipy.special.betaincinv(c + h, rest, quantile) for h in (1e-5, -1e-5))
        assert torch.allclose(slope[:, k], torch.from_numpy((up - down) / 2e-5), rtol=1e-2, atol=1e-4)


@pytest.mark.parametrize("concentration", [[0.4, 1.0, 2.5], [0.1, 0.2, 6.0]])
def test_moments_and_their_gradients_are_exact_in_expectation(concentration):
    """Closed forms of E[theta] and E[theta^2], and their gradients, within five standard errors."""
    n = 100_000
    exact = torch.tensor(concentration, dtype=torch.float64, requires_grad=True)
    total = exact.sum()
    first, second = exact / total, exact * (exact + 1) / (total * (total + 1))
    each = exact.detach().expand(n, 3).clone().requires_grad_()
    theta = dirichlet_from_noise(each, doubled((n, 3)))
    for drawn, expected in ((theta, first), (theta**2, second)):
        close(drawn.detach(), expected.detach())
        for k in range(3):
            [slopes] = torch.autograd.grad(drawn[:, k].sum(), [each], retain_graph=True)
            [slope] = torch.autograd.grad(expected[k], [exact], retain_graph=True)
            close(slopes, slope)


def close(samples, expected):
    error = samples.std(0) / len(samples) ** 0.5
    assert ((samples.mean(0) - expected).abs() <= 5 * error).all()


def test_small_concentrations_stay_finite():
    concentration = torch.tensor([1e-6, 1e-6, 0.0], requires_grad=True)
    theta = dirichlet_from_noise(concentration, dirichlet_noise((500, 3), chance()))
    [slope] = torch.autograd.grad(theta[:, 0].sum(), [concentration])
    assert theta.isfinite().all()
    assert slope.isfinite().all()
    assert (theta[:, 2] == 0).all()
    assert slope[2] == 0
    assert 200 < (theta[:, 0] > 0.5).sum() < 300


def test_missing_options_have_no_gradient():
    concentration = CONCENTRATION.clone().requires_grad_()
    belief = Dirichlet(DECISIONS, concentration)
    [slope] = torch.autograd.grad(belief.entropy() + belief.kl(uniform(DECISIONS)), [concentration])
    assert slope.isfinite().all()
    assert (slope[CONCENTRATION == 0] == 0).all()


def test_draws_from_noise_can_be_captured():
    noise = dirichlet_noise((2, 3, 3), chance())
    with FakeTensorMode() as mode:
        held = {name: mode.from_tensor(value) for name, value in noise.items()}
        assert dirichlet_from_noise(mode.from_tensor(CONCENTRATION), held).shape == (2, 3, 3)


def test_leading_axes_are_kept():
    other = CONCENTRATION.flip(0).where(CONCENTRATION > 0, 0).clamp_min(0.3 * (CONCENTRATION > 0))
    stacked = Dirichlet(DECISIONS, torch.stack([CONCENTRATION, other]))
    for k, single in enumerate((CONCENTRATION, other)):
        assert torch.equal(stacked.repeat(k).concentration, single)
        assert torch.allclose(stacked.entropy()[k], stacked.repeat(k).entropy())
    with pytest.raises(PolyarchError, match="repeat"):
        stacked.relax(3, chance(), 1.0)


def test_the_concentration_must_fit_the_decisions():
    with pytest.raises(PolyarchError, match="expected"):
        Dirichlet(DECISIONS, torch.ones(3, 2))
