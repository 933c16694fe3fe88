"""Mixtures of Gaussians against scipy and Monte Carlo, and the scale of noise that held-out data fits."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy import integrate, optimize, stats

from polyarch import PolyarchError
from polyarch.data.likelihood import FLOOR, Gaussian
from polyarch.data.preprocess import Standardise
from polyarch.uncertainty import Ensemble, Gaussians
from polyarch.uncertainty.ensemble import Apart
from polyarch.uncertainty.gaussians import fitted


def mixtures():
    """Three members on four inputs: alike, far apart with a gap between, one far narrower, and all on one place."""
    means = torch.tensor([[0.0, -50.0, 0.0, 3.0], [0.1, 0.0, 1.0, 3.0], [-0.2, 50.0, 0.5, 3.0]])
    deviations = torch.tensor([[1.0, 0.1, 1e-3, 2.0], [1.5, 0.2, 1.0, 2.0], [0.7, 0.1, 3.0, 2.0]])
    return Gaussians(means.double(), deviations.double(), torch.tensor([0.5, 0.2, 0.3], dtype=torch.float64))


def cdf(said, k):
    return lambda y: float(said.weights.numpy() @ stats.norm.cdf(y, said.means[:, k], said.deviations[:, k]))


@pytest.mark.parametrize("probability", [1e-6, 0.05, 0.3, 0.49, 0.6, 0.95, 1 - 1e-6])
def test_quantiles_are_the_roots_that_scipy_finds(probability):
    said = mixtures()
    for k, found in enumerate(said.quantile(probability).tolist()):
        own = cdf(said, k)
        wanted = optimize.brentq(lambda y, own=own: own(y) - probability, -100, 100, xtol=1e-13, rtol=1e-14)
        assert found == pytest.approx(wanted, abs=1e-9)


def test_where_members_leave_a_gap_any_number_in_it_is_a_median():
    said = mixtures()
    assert cdf(said, 1)(said.quantile(0.5)[1].item()) == pytest.approx(0.5, abs=1e-12)


def test_moments_quantiles_and_intervals_are_those_of_draws():
    said, random, n = mixtures(), np.random.default_rng(0), 200_000
    member = random.choice(3, n, p=said.weights.numpy())
    for k in (0, 2, 3):
        drawn = random.normal(said.means[member, k].numpy(), said.deviations[member, k].numpy())
        assert said.mean[k].item() == pytest.approx(drawn.mean(), abs=0.02)
        assert said.variance[k].item() == pytest.approx(drawn.var(), rel=0.02)
        low, high = (end[k].item() for end in said.interval(0.8))
        assert ((low < drawn) & (drawn < high)).mean() == pytest.approx(0.8, abs=0.005)
    assert torch.equal(said.std.square().round(decimals=9), said.variance.round(decimals=9))


def test_one_member_is_a_gaussian():
    said = Gaussians(torch.tensor([[1.0, -2.0]]).double(), torch.tensor([[0.5, 3.0]]).double(), torch.ones(1).double())
    y = torch.tensor([1.2, 4.0], dtype=torch.float64)
    own = stats.norm([1.0, -2.0], [0.5, 3.0])
    assert said.mean.tolist() == [1.0, -2.0]
    assert said.std.tolist() == pytest.approx([0.5, 3.0])
    assert said.quantile(0.9).tolist() == pytest.approx(own.ppf(0.9))
    assert said.log_prob(y).tolist() == pytest.approx(own.logpdf(y))
    z = (y.numpy() - own.mean()) / own.std()  # Gneiting and Raftery 2007, Eq. 21
    closed = own.std() * (z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - 1 / math.sqrt(math.pi))
    assert said.crps(y).tolist() == pytest.approx(closed)


def integrated_crps(own, at, means):
    """The integral of (F(t) - [t >= y])^2, piece by piece so that no narrow member is stepped over."""
    ends = [-80.0, *sorted({p + d for p in (at, *means) for d in (-0.01, 0.0, 0.01)}), 80.0]
    pieces = [
        integrate.quad(lambda t, above=first >= at: (own(t) - above) ** 2, first, last, limit=400)[0]
        for first, last in pairwise(ends)
    ]
    return sum(pieces)


def test_density_cdf_and_crps_are_those_of_scipy():
    said, y = mixtures(), torch.tensor([0.4, 3.0, 0.02, 9.0], dtype=torch.float64)
    for k, at in enumerate(y.tolist()):
        own = cdf(said, k)
        density = said.weights.numpy() @ stats.norm.pdf(at, said.means[:, k], said.deviations[:, k])
        assert said.log_prob(y)[k].item() == pytest.approx(math.log(density), rel=1e-9)
        assert said.cdf(y)[k].item() == pytest.approx(own(at), abs=1e-14)
        assert said.crps(y)[k].item() == pytest.approx(integrated_crps(own, at, said.means[:, k].tolist()), abs=1e-6)


def test_an_interval_holds_what_is_no_more_central_than_it_is_wide():
    said, y = mixtures(), torch.tensor([0.3, -50.1, 0.5, 4.0], dtype=torch.float64)
    for coverage in (0.2, 0.5, 0.9):
        low, high = said.interval(coverage)
        assert ((low <= y) & (y <= high)).tolist() == (said.centrality(y) <= coverage).tolist()


def test_members_without_weight_have_no_part_and_bad_input_is_refused():
    outputs = torch.tensor([[[0.0]], [[1e6]]])
    said = Gaussians.of(outputs, torch.tensor([1.0, 0.0]), Gaussian(2.0))
    assert said.quantile(0.95).item() == pytest.approx(2 * 1.644854, abs=1e-5)
    assert said.log_prob(torch.zeros(1)).isfinite().all()
    for probability in (0.0, 1.0, -0.1, math.nan):
        with pytest.raises(PolyarchError, match="between 0 and 1"):
            said.quantile(probability)
    with pytest.raises(PolyarchError, match=r"\[members, n, 2\]"):
        Gaussians.of(outputs, torch.ones(2) / 2, Gaussian(2.0, "input"))


# ---------------------------------------------------------------------------------------------------------------------
# The scale that held-out data fits.


@pytest.mark.parametrize("noise", ["task", "input"])
def test_of_one_network_it_is_the_closed_form(noise):
    random = torch.Generator().manual_seed(0)
    likelihood = Gaussian(3.0, noise)
    outputs = torch.randn(1, 50, likelihood.outputs, generator=random, dtype=torch.float64)
    target = torch.randn(50, generator=random, dtype=torch.float64)
    found = fitted(outputs, torch.ones(1), target, likelihood)
    residuals = target - outputs[0, :, 0]
    if noise == "task":
        assert found.scale == pytest.approx(residuals.square().mean().sqrt().item(), rel=1e-12)
    else:
        own = (outputs[0, :, 1].exp() + FLOOR**2).sqrt()
        assert found.scale == pytest.approx((residuals / own).square().mean().sqrt().item(), rel=1e-12)


@pytest.mark.parametrize("noise", ["task", "input"])
def test_of_a_mixture_it_is_where_held_out_targets_are_most_probable(noise):
    random = torch.Generator().manual_seed(1)
    likelihood = Gaussian(1.0, noise)
    outputs = torch.randn(4, 80, likelihood.outputs, generator=random, dtype=torch.float64)
    weights, target = torch.tensor([0.4, 0.3, 0.2, 0.1]), torch.randn(80, generator=random, dtype=torch.float64)

    def loss(log_scale):
        said = Gaussians.of(outputs, weights, Gaussian(math.exp(log_scale), noise))
        return -said.log_prob(target).mean().item()

    best = optimize.minimize_scalar(loss, bounds=(-4, 4), method="bounded", options={"xatol": 1e-10})
    found = fitted(outputs, weights, target, likelihood)
    assert math.log(found.scale) == pytest.approx(best.x, abs=1e-6)
    assert fitted(outputs, weights, target, found).scale == pytest.approx(found.scale, rel=1e-6)


def test_networks_without_an_error_leave_a_positive_scale():
    outputs = torch.zeros(2, 5, 1)
    assert 0 < fitted(outputs, torch.ones(2) / 2, torch.zeros(5), Gaussian(1.0, "task")).scale < 1e-5


# ---------------------------------------------------------------------------------------------------------------------
# An ensemble.


def test_an_ensemble_gives_the_mixture_of_its_members():
    networks = [torch.nn.Linear(2, 2) for _ in range(3)]
    standardise = Standardise(torch.zeros(2), torch.ones(2))
    likelihood, weights, x = Gaussian(0.7, "input"), torch.tensor([0.2, 0.5, 0.3]), torch.randn(6, 2)
    ensemble = Ensemble(standardise, Apart(networks), weights, likelihood)
    said, members = ensemble.gaussians(x), torch.stack([network(x) for network in networks]).double()
    deviations = 0.7 * (members[..., 1].exp() + FLOOR**2).sqrt()
    mean = (weights.double()[:, None] * members[..., 0]).sum(0)
    second = (weights.double()[:, None] * (deviations.square() + members[..., 0].square())).sum(0)
    assert torch.allclose(said.mean, mean, atol=1e-6)
    assert torch.allclose(said.variance, second - mean.square(), atol=1e-6)
    # What `output` says of the mixture has the same two moments.
    output = ensemble.output(x).double()
    assert torch.allclose(likelihood.mean(output), said.mean, atol=1e-6)
    assert torch.allclose(likelihood.deviation(output), said.std, atol=1e-6)
    assert torch.allclose(ensemble.log_likelihood(x, mean.float()).double(), said.log_prob(mean), atol=1e-5)
