"""Gaussian likelihoods whose noise is fixed, learnt for the task, or said by the network for every input."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from polyarch.data import Gaussian, load
from polyarch.data.likelihood import FLOOR, SURPRISE, likelihood_from

RANDOM = np.random.default_rng(0)
X, Y = RANDOM.normal(size=(40, 3)), RANDOM.normal(5.0, 7.0, size=40)


def outputs(count, *shape):
    return torch.randn(*shape, count, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("noise", ["fixed", "task", "input"])
def test_values_are_those_of_scipy(noise):
    likelihood = Gaussian(1.7, noise)
    output, y = outputs(likelihood.outputs, 3, 8), torch.linspace(-2, 2, 8, dtype=torch.float64)
    deviation = 1.7 * (output[..., -1].exp() + FLOOR**2).sqrt() if noise == "input" else torch.full((3, 8), 1.7)
    wanted = stats.norm.logpdf(y, output[..., 0], deviation)
    assert np.allclose(likelihood.log_likelihood(output, y), wanted, atol=1e-7)
    assert torch.allclose(likelihood.deviation(output), deviation.double())
    assert np.allclose(likelihood.metric_values(output, y), (output[..., 0] - y) ** 2)


def test_every_repeat_has_its_own_scale_while_it_is_learnt():
    scales, y = torch.tensor([0.5, 2.0], dtype=torch.float64), torch.linspace(-2, 2, 8, dtype=torch.float64)
    for shape in ((2, 8), (2, 5, 8)):  # [repeats, batch], [repeats, depths, batch]
        output = outputs(1, *shape)
        found = Gaussian(scales, "task").log_likelihood(output, y)
        for k, scale in enumerate(scales.tolist()):
            assert torch.allclose(found[k], Gaussian(scale).log_likelihood(output[k], y))


@pytest.mark.parametrize("scale", [0.01, 3.0])
def test_the_mean_learns_as_with_standard_deviation_1(scale):
    """Else learning rates would mean something else with every noise."""
    output, y = outputs(1, 6).requires_grad_(), torch.linspace(-2, 2, 6, dtype=torch.float64)
    slopes = [
        torch.autograd.grad(likelihood.log_likelihood(output, y).sum(), output, create_graph=True)[0]
        for likelihood in (Gaussian(), Gaussian(scale, "task"))
    ]
    assert torch.allclose(*slopes)
    curvatures = [torch.autograd.grad(slope.sum(), output)[0] for slope in slopes]
    assert torch.allclose(*curvatures)


def test_the_noise_of_an_input_learns_towards_its_squared_residual():
    likelihood, y = Gaussian(2.0, "input"), torch.tensor([3.0], dtype=torch.float64)
    right = math.log((3.0 / 2) ** 2 - FLOOR**2)  # deviation 3, as is the residual
    for log_variance, low, high in ((right, -1e-9, 1e-9), (right - 1, 0.1, 9), (right + 1, -1, -0.1), (-3.0, 1, 9)):
        output = torch.tensor([[0.0, log_variance]], dtype=torch.float64, requires_grad=True)
        [slope] = torch.autograd.grad(likelihood.log_likelihood(output, y).sum(), output)
        assert slope[0, 0].item() == pytest.approx(3.0)
        assert low <= slope[0, 1].item() <= high  # however sure it was
        exact = torch.autograd.grad(
            torch.distributions.Normal(0.0, likelihood.deviation(output)).log_prob(y).sum(), output
        )[0]
        if (3.0 / likelihood.deviation(output)) ** 2 < SURPRISE:
            assert slope[0, 1].item() == pytest.approx(exact[0, 1].item())
        else:
            assert 0 < slope[0, 1] < exact[0, 1]


def test_scales_start_at_the_deviation_of_the_training_targets_and_survive_a_config():
    for noise, outputs_wanted in (("task", 1), ("input", 2)):
        task = load((X, Y), kind="regression", noise=noise, standardise=False)
        assert task.likelihood == Gaussian(pytest.approx(task.train.y.double().std(correction=0).item()), noise)
        task = load((X, Y), kind="regression", noise=noise)
        assert task.likelihood == Gaussian(1.0, noise)  # in the unit of the deviation
        assert task.units.scale == pytest.approx(task.train.y.double().std(correction=0).item())
        assert task.shape.outputs == outputs_wanted
        assert likelihood_from(task.likelihood.settings()) == task.likelihood
    assert load((X, Y), noise="fixed").likelihood == Gaussian()
    assert load((X, Y)).likelihood == Gaussian(1.0, "task")
    assert load((X, Y), select=0).likelihood == Gaussian()  # nothing to learn noise from
    task = load((X, np.ones(40)), kind="regression", noise="task")
    assert (task.likelihood.scale, task.units.offset, task.units.scale) == (1, 1, 1)
    assert likelihood_from({"kind": "gaussian", "scale": 1.0}) == Gaussian()  # as runs of before have it


def test_bad_noise_is_refused(fails):
    fails((X, Y), "unknown value of Arrays.noise 'inputs'; did you mean 'input'?", kind="regression", noise="inputs")
    fails((X, (Y > 5).astype(int)), "noise=task is for numbers to predict; set kind=regression", noise="task")
