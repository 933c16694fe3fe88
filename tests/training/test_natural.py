"""Updates of Gaussian belief against steps by hand, and against posteriors that are known."""

import math

import pytest
import torch
from scipy.special import ndtri

from polyarch.training.natural import (
    Posterior,
    bayes_by_backprop,
    curvature_by_noise,
    deviation,
    newton,
    vadam,
    vadam_printed,
)

N, DELTA = 25_000, 1.0
BETAS = (0.5, 0.999)


def double(*values):
    return torch.tensor(values, dtype=torch.float64)


def belief_of(mean, precision, data_size=N, prior_precision=DELTA):
    """One number of one repeat."""
    return Posterior(double(mean), double(precision), data_size, prior_precision)


def run_vadam(belief, gradients, lr=0.1, betas=BETAS):
    """[mean, precision] after each of a list of steps, each a list of gradients, one per draw."""
    first, steps = torch.zeros_like(belief.mean), torch.zeros(len(belief.mean), dtype=torch.float64)
    path = []
    for step in gradients:
        draws = torch.stack([torch.full_like(belief.mean, g) for g in step])
        vadam(belief, draws, first, steps, lr=double(lr)[0], betas=betas)
        path.append((belief.mean.item(), belief.precision.item()))
    return path


# ---------------------------------------------------------------------------------------------------------------------
# Steps by hand.


def test_vadam_by_hand():
    """N = 10, delta = 2, so delta/N = 0.2; rate 0.1, betas 0.5 and 0.75; gradients 1, then 2 and -1 at two draws."""
    found = run_vadam(belief_of(0.5, 2.0, 10, 2.0), [[1.0], [2.0, -1.0]], betas=(0.5, 0.75))
    # m = 0.5 (1 + 0.1) = 0.55, over 0.5 is 1.1; s = 0.25, over 0.25 is 1; mean = 0.5 - 0.1 * 1.1 / 1.2.
    first = 0.5 - 0.11 / 1.2
    assert found[0] == pytest.approx((first, 10 * 0.25 + 2), rel=1e-12)
    # The mean gradient is 0.5, the mean of squares 2.5: m = 0.275 + 0.25 + 0.1 mean, s = 0.1875 + 0.625 = 0.8125.
    momentum = (0.525 + 0.1 * first) / 0.75
    second = first - 0.1 * momentum / (math.sqrt(0.8125 / 0.4375) + 0.2)
    assert found[1] == pytest.approx((second, 10 * 0.8125 + 2), rel=1e-12)


def test_vadam_as_printed_by_hand():
    """N = 10, delta = 2; rate 0.1 for both, gamma 0.5; gradients 1 and -2."""
    belief, change = belief_of(0.5, 2.0, 10, 2.0), torch.zeros(1, dtype=torch.float64)
    # s = 0.1; mean = 0.5 - 0.1 (1 + 0.2 * 0.5) / (0.1 + 0.2), and no momentum yet.
    vadam_printed(belief, double(1.0), change, lr=double(0.1)[0], momentum=0.5)
    first = 0.5 - 0.11 / 0.3
    assert (belief.mean.item(), belief.precision.item()) == pytest.approx((first, 3.0), rel=1e-12)
    # s = 0.09 + 0.4 = 0.49; the last change counts by 0.5 * (0.1 + 0.2) / (0.49 + 0.2).
    vadam_printed(belief, double(-2.0), change, lr=double(0.1)[0], momentum=0.5)
    second = first - 0.1 * (-2 + 0.2 * first) / 0.69 + 0.5 * 0.3 / 0.69 * (first - 0.5)
    assert (belief.mean.item(), belief.precision.item()) == pytest.approx((second, 6.9), rel=1e-12)
    assert change.item() == pytest.approx(second - first, rel=1e-12)


def test_without_momentum_the_printed_form_is_vprop():
    printed, plain = belief_of(0.3, 4.0, 100), belief_of(0.3, 4.0, 100)
    change, lr = torch.zeros(1, dtype=torch.float64), double(0.05)[0]
    for gradient in (double(0.2), double(-0.5), double(0.1)):
        vadam_printed(printed, gradient, change, lr=lr, momentum=0.0)
        newton(plain, gradient, gradient.square(), lr=lr)
        assert torch.equal(printed.mean, plain.mean)
        assert torch.equal(printed.precision, plain.precision)


def test_the_forms_differ_where_gradients_are_small():
    """A gradient of 1e-3 moves the mean by a rate in the library's form, by some 24 of them as printed."""
    [(mean, _)] = run_vadam(belief_of(0.0, 1.0), [[1e-3]], lr=3e-4)
    assert mean == pytest.approx(-3e-4, rel=0.05)
    belief = belief_of(0.0, 1.0)
    vadam_printed(belief, double(1e-3), torch.zeros_like(belief.mean), lr=double(3e-4)[0], momentum=0.5)
    assert belief.mean.item() == pytest.approx(-24.8 * 3e-4, rel=0.01)


# ---------------------------------------------------------------------------------------------------------------------
# Deviation and prior.


def test_deviation_is_of_the_uncorrected_curvature():
    """It is exactly 1 before the first step, and 1/sqrt(N s + delta) after any."""
    assert deviation(double(1.0)).item() == 1.0
    s = 0.0
    gradients = [0.01, -0.02, 0.005, 0.03]
    for gradient, (_, precision) in zip(
        gradients, run_vadam(belief_of(0.0, 1.0), [[g] for g in gradients]), strict=True
    ):
        s = 0.999 * s + 0.001 * gradient**2
        assert deviation(double(precision)).item() == pytest.approx(1 / math.sqrt(N * s + 1), rel=1e-6)


def test_tiny_gradients_are_not_lost_in_the_precision():
    """N s is 2.5e-9 beside a delta of 1, yet its root decides the first step, as in Adam."""
    data_size = 2.5e8
    [(mean, _)] = run_vadam(belief_of(0.0, 1.0, data_size), [[1e-7]])
    assert mean == pytest.approx(-0.1 * 1e-7 / (1e-7 + 1 / data_size), rel=1e-6)


def test_without_gradients_the_prior_alone_moves_the_mean():
    """s stays 0 and delta/N cancels in the library's first step: the mean shrinks by the rate."""
    path = run_vadam(belief_of(2.0, 1.0), [[0.0]] * 3)
    assert path[0][0] == pytest.approx(2.0 * 0.9, rel=1e-12)
    assert 0 < path[2][0] < path[1][0] < path[0][0]
    assert [precision for _, precision in path] == [1.0] * 3
    [(unmoved, _)] = run_vadam(belief_of(0.0, 1.0), [[0.0]])
    assert unmoved == 0
    belief = belief_of(2.0, 1.0)
    newton(belief, double(0.0), double(0.0), lr=double(0.1)[0])
    assert (belief.mean.item(), belief.precision.item()) == pytest.approx((1.8, 1.0), rel=1e-12)


def test_where_curvature_is_negative_belief_is_no_wider_than_the_prior():
    belief = belief_of(1.0, 1.5)
    newton(belief, double(0.1), double(-3.0), lr=double(0.1)[0])
    assert belief.precision.item() == DELTA
    assert math.isfinite(belief.mean.item())


def test_repeats_do_not_touch_each_other():
    mean, gradients = torch.randn(2, 3, dtype=torch.float64), torch.randn(2, 2, 3, dtype=torch.float64)

    def updated(rows):
        belief = Posterior(mean[rows].clone(), torch.ones_like(mean[rows]), N, DELTA)
        first, steps = torch.zeros_like(belief.mean), double(0.0, 4.0)[rows]
        vadam(belief, gradients[:, rows], first, steps, lr=double(0.1)[0], betas=BETAS)
        return belief.mean

    both = updated([0, 1])
    assert torch.equal(both, torch.cat([updated([0]), updated([1])]))


# ---------------------------------------------------------------------------------------------------------------------
# Known posteriors: a loss h/2 (alpha - m)^2 of N examples and the prior make N(N h m / P, 1 / P), P = N h + delta.

H, M, EXAMPLES, PRIOR = 0.5, 1.5, 100, 2.0
TRUE_PRECISION = EXAMPLES * H + PRIOR
TRUE_MEAN = EXAMPLES * H * M / TRUE_PRECISION
BOTH_SIDES = double(1.0, -1.0).unsqueeze(-1)
"""Two draws whose mean and mean square are those of a normal: for a quadratic loss, expectations are exact."""


def at_draws(belief):
    """Gradients at both draws, [2, 1]."""
    return H * (belief.mean + belief.precision.rsqrt() * BOTH_SIDES - M)


def test_von_finds_the_posterior():
    belief = belief_of(0.0, PRIOR, EXAMPLES, PRIOR)
    for _ in range(300):
        gradients = at_draws(belief)
        estimate = curvature_by_noise(gradients, BOTH_SIDES, belief.precision)
        newton(belief, gradients.mean(0), estimate, lr=double(0.1)[0])
    assert belief.mean.item() == pytest.approx(TRUE_MEAN, rel=1e-9)
    assert belief.precision.item() == pytest.approx(TRUE_PRECISION, rel=1e-9)


def test_bayes_by_backprop_finds_the_posterior():
    belief = belief_of(0.0, PRIOR, EXAMPLES, PRIOR)
    for _ in range(1500):
        bayes_by_backprop(belief, at_draws(belief), BOTH_SIDES, lr=double(0.01)[0])
    assert belief.mean.item() == pytest.approx(TRUE_MEAN, rel=1e-9)
    assert belief.precision.item() == pytest.approx(TRUE_PRECISION, rel=1e-9)


def test_bayes_by_backprop_follows_the_gradient_of_the_bound():
    """Against automatic differentiation of N E[loss] + KL in mean and log deviation, the loss being no quadratic."""
    mean, log_width = double(0.3).requires_grad_(), double(-0.4).requires_grad_()
    noise, lr = double(0.7, -1.2, 0.1).unsqueeze(-1), 1e-3
    alpha = mean + log_width.exp() * noise
    [gradients] = torch.autograd.grad(alpha.sin().sum(), [alpha], retain_graph=True)
    own = torch.distributions.Normal(mean, log_width.exp())
    prior = torch.distributions.Normal(double(0.0), double(PRIOR).rsqrt())
    bound = EXAMPLES * alpha.sin().mean() + torch.distributions.kl_divergence(own, prior).sum()
    slopes = torch.autograd.grad(bound, [mean, log_width])
    belief = belief_of(0.3, math.exp(0.8), EXAMPLES, PRIOR)
    bayes_by_backprop(belief, gradients, noise, lr=double(lr)[0])
    assert belief.mean.item() == pytest.approx(0.3 - lr * slopes[0].item(), rel=1e-12)
    assert -belief.precision.log().item() / 2 == pytest.approx(-0.4 - lr * slopes[1].item(), rel=1e-12)


@pytest.mark.parametrize("batch", [1, 4])
def test_vprop_finds_the_posterior_from_single_examples(batch):
    """Of a Gaussian with unit noise, whose curvature is 1: the mean whatever the batch, the precision for batches of 1.

    The square of a batch's mean gradient is smaller by the size of the batch, so deviations are too large by its root.
    """
    examples = 2_000
    belief, lr = belief_of(0.0, PRIOR, examples, PRIOR), double(0.005)[0]
    for step in range(4_000):
        seen = M + (-1) ** step / math.sqrt(batch)  # the mean of a batch, whose deviation is that
        gradient = belief.mean - seen
        newton(belief, gradient, gradient.square(), lr=lr)
    assert belief.mean.item() == pytest.approx(examples * M / (examples + PRIOR), rel=0.01)
    assert belief.precision.item() == pytest.approx(examples / batch + PRIOR, rel=0.02)


def test_curvature_by_noise():
    """E[cos''] under N(mean, width^2) is -exp(-width^2 / 2) cos(mean); by equally probable draws."""
    count, mean, width = 100_001, 0.4, 0.8
    noise = torch.from_numpy(ndtri((torch.arange(count, dtype=torch.float64).numpy() + 0.5) / count)).unsqueeze(-1)
    found = curvature_by_noise(-(mean + width * noise).sin(), noise, double(width**-2))
    assert found.item() == pytest.approx(-math.exp(-(width**2) / 2) * math.cos(mean), rel=1e-4)
