"""A mixture under any likelihood: densities are mixed, and what it says follows from its members."""

import numpy as np
import pytest
import torch
from scipy import stats

from polyarch.data import Counts, MultiLabel
from polyarch.errors import PolyarchError
from polyarch.uncertainty import Mixtures

WEIGHTS = torch.tensor([0.25, 0.0, 0.75])


def outputs(k):
    return torch.randn(3, 8, k, generator=torch.Generator().manual_seed(0))


def test_counts_have_the_moments_and_density_of_a_mixture_of_poissons():
    said = Mixtures.of(outputs(1), WEIGHTS, Counts(4.0))
    rates = 4 * outputs(1)[[0, 2], :, 0].double().exp().numpy()
    target = np.arange(8)
    mixed = 0.25 * stats.poisson.pmf(target, rates[0]) + 0.75 * stats.poisson.pmf(target, rates[1])
    assert said.log_prob(torch.from_numpy(target)).numpy() == pytest.approx(np.log(mixed))
    support = np.arange(300)[:, None]
    density = 0.25 * stats.poisson.pmf(support, rates[0]) + 0.75 * stats.poisson.pmf(support, rates[1])
    mean = (support * density).sum(0)
    assert said.mean.numpy() == pytest.approx(mean)
    assert said.variance.numpy() == pytest.approx(((support - mean) ** 2 * density).sum(0))
    assert said.std.numpy() == pytest.approx(said.variance.numpy() ** 0.5)
    assert said.entropy is said.mutual_information is None


def test_labels_of_a_mixture_go_together():
    """One member says both hold, the other that none does: both or none is likely, one alone is not."""
    both = Mixtures.of(torch.tensor([[[9.0, 9.0]], [[-9.0, -9.0]]]), torch.tensor([0.5, 0.5]), MultiLabel(2))
    together, apart = (both.log_prob(torch.tensor([y])).exp().item() for y in ([1.0, 1.0], [1.0, 0.0]))
    assert together == pytest.approx(0.5, abs=1e-3)
    assert apart < 1e-3
    assert both.mean.tolist() == [[pytest.approx(0.5)] * 2]
    assert both.entropy.item() == pytest.approx(2 * np.log(2))
    assert both.mutual_information.item() == pytest.approx(2 * np.log(2), abs=0.01)


def test_uncertainty_adds_up_and_equal_members_do_not_disagree():
    said = Mixtures.of(outputs(2), WEIGHTS, MultiLabel(2))
    assert torch.allclose(said.entropy, said.expected_entropy + said.mutual_information)
    assert said.mutual_information.min() > 0
    same = Mixtures.of(outputs(2)[:1].expand(3, -1, -1), WEIGHTS, MultiLabel(2))
    assert torch.allclose(same.mutual_information, torch.zeros(8).double(), atol=1e-12)


def test_metrics_are_of_the_mixture():
    said = Mixtures.of(outputs(1), WEIGHTS, Counts(4.0))
    target = torch.arange(8.0)
    found = said.metrics(target)
    assert list(found) == ["absolute_error", "deviance", "log_likelihood"]
    assert found["absolute_error"] == pytest.approx((said.mean - target).abs().mean().item())
    assert found["log_likelihood"] == pytest.approx(said.log_prob(target).mean().item())


def test_what_does_not_fit_is_refused():
    with pytest.raises(PolyarchError, match="members must be"):
        Mixtures.of(outputs(2), WEIGHTS, Counts())
    with pytest.raises(PolyarchError, match="there are 8 predictions and 0 targets"):
        Mixtures.of(outputs(1), WEIGHTS, Counts()).metrics(torch.empty(0))
