"""Hypergradients against central differences, each other, and answers worked out by hand."""

import pytest
import torch
import torch.nn.functional as F

from polyarch.training.hypergradients import (
    mixed_product,
    sotl_first_order,
    sotl_forward,
    sotl_reverse,
    unrolled_exact,
)

RATE = 0.1
EXACT = (sotl_forward, sotl_reverse)


def numbers(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def quadratic(weights, alpha, batch):
    """Curvature in weights, in alpha, and between the two."""
    [w], [a] = weights, alpha
    mixed, target = batch
    return 0.5 * (w - target).square().sum() + w @ mixed @ a + 0.25 * a.square().sum() * w.square().sum()


def net(weights, alpha, batch):
    """A hidden layer whose two activations are mixed by softmax of one alpha, inputs scaled by another."""
    first, second, bias = weights
    mix, scale = alpha
    x, y = batch
    hidden = (x * scale.exp()) @ first + bias
    hidden = torch.stack([hidden.tanh(), F.softplus(hidden)], -1) @ mix.softmax(0)
    return F.cross_entropy(hidden @ second, y)


def quadratic_problem(steps):
    batches = [(numbers(3, 2, seed=t), numbers(3, seed=100 + t)) for t in range(steps)]
    return quadratic, [numbers(3)], [numbers(2, seed=7)], batches


def net_problem(steps):
    batches = [(numbers(8, 4, seed=t), torch.arange(8) % 3) for t in range(steps)]
    return net, [numbers(4, 5), numbers(5, 3, seed=1), numbers(5, seed=2)], [numbers(2, seed=3), numbers(4)], batches


PROBLEMS = {"quadratic": quadratic_problem, "net": net_problem}


def sotl(loss, weights, alpha, batches, rate):
    """SoTL itself, step by step, without any derivative of training."""
    total = 0.0
    for batch in batches:
        weights = [w.detach().requires_grad_() for w in weights]
        value = loss(weights, alpha, batch)
        gradients = torch.autograd.grad(value, weights)
        size = rate(alpha) if callable(rate) else rate
        weights = [w - size * g for w, g in zip(weights, gradients, strict=True)]
        total += value.item()
    return total, weights


def central_differences(f, alpha, distance=1e-5):
    """df/dalpha of a function to numbers."""
    found = [torch.zeros_like(part) for part in alpha]
    for part, gradient in zip(alpha, found, strict=True):
        for place in range(part.numel()):
            ends = []
            for sign in (1, -1):
                moved = [other.clone() for other in alpha]
                [own] = [m for m, other in zip(moved, alpha, strict=True) if other is part]
                own.view(-1)[place] += sign * distance
                ends.append(f(moved))
            gradient.view(-1)[place] = (ends[0] - ends[1]) / (2 * distance)
    return found


def flat(tensors):
    return torch.cat([t.reshape(-1) for t in tensors])


def assert_close(found, wanted, relative):
    assert [f.shape for f in found] == [w.shape for w in wanted]
    assert (flat(found) - flat(wanted)).norm() <= relative * flat(wanted).norm()


@pytest.mark.parametrize("steps", [1, 2, 7])
@pytest.mark.parametrize("problem", PROBLEMS)
def test_exact_gradients_agree(problem, steps):
    loss, weights, alpha, batches = PROBLEMS[problem](steps)
    wanted = central_differences(lambda moved: sotl(loss, weights, moved, batches, RATE)[0], alpha)
    total, last = sotl(loss, weights, alpha, batches, RATE)
    forward, reverse = (by(loss, weights, alpha, batches, RATE) for by in EXACT)
    assert_close(forward.gradient, reverse.gradient, 1e-12)
    for found in (forward, reverse):
        assert_close(found.gradient, wanted, 1e-6)
        assert_close(found.weights, last, 1e-12)
        assert found.total.item() == pytest.approx(total, rel=1e-12)


@pytest.mark.parametrize("by", EXACT)
@pytest.mark.parametrize("problem", PROBLEMS)
def test_the_rate_itself_can_be_learnt(problem, by):
    loss, weights, alpha, batches = PROBLEMS[problem](5)
    alpha = [*alpha, torch.tensor(-2.0, dtype=torch.float64)]

    def own(weights, alpha, batch):
        return loss(weights, alpha[:-1], batch)

    def rate(alpha):
        return alpha[-1].exp()

    wanted = central_differences(lambda moved: sotl(own, weights, moved, batches, rate)[0], alpha)
    assert wanted[-1].abs() > 1e-3
    assert_close(by(own, weights, alpha, batches, rate).gradient, wanted, 1e-6)


@pytest.mark.parametrize("problem", PROBLEMS)
def test_first_order_sums_direct_gradients(problem):
    loss, weights, alpha, batches = PROBLEMS[problem](4)
    found = sotl_first_order(loss, weights, alpha, batches, RATE)
    wanted, path = [torch.zeros_like(part) for part in alpha], weights
    for batch in batches:
        direct = central_differences(lambda moved, w=path, b=batch: loss(w, moved, b).item(), alpha)
        wanted = [w + d for w, d in zip(wanted, direct, strict=True)]
        path = sotl(loss, path, alpha, [batch], RATE)[1]
    assert_close(found.gradient, wanted, 1e-6)
    assert_close(found.weights, path, 1e-12)
    exact = flat(sotl_reverse(loss, weights, alpha, batches, RATE).gradient)
    assert (flat(found.gradient) - exact).norm() > 0.01 * exact.norm()  # both losses have d2L/dw dalpha


def test_first_order_is_exact_where_weights_do_not_feel_alpha():
    def loss(weights, alpha, batch):
        return 0.5 * (weights[0] - batch).square().sum() + alpha[0].square().sum()

    batches = [numbers(3, seed=t) for t in range(4)]
    arguments = (loss, [numbers(3)], [numbers(2)], batches, RATE)
    assert_close(sotl_first_order(*arguments).gradient, sotl_forward(*arguments).gradient, 1e-12)


@pytest.mark.parametrize("by", [*EXACT, sotl_first_order])
def test_worked_out_by_hand(by):
    """L = (w - a)^2 / 2, w_0 = 0, rate r: w_t = a (1 - (1-r)^t), so L_t = a^2 (1-r)^{2t} / 2."""
    a, r, steps = 3.0, 0.25, 3
    start = [torch.zeros((), dtype=torch.float64)]
    alpha = [torch.tensor(a, dtype=torch.float64)]
    found = by(lambda w, alpha, _: 0.5 * (w[0] - alpha[0]) ** 2, start, alpha, range(steps), r)
    left = [(1 - r) ** t for t in range(steps)]
    assert found.total.item() == pytest.approx(sum(a**2 * q**2 / 2 for q in left))
    assert found.weights[0].item() == pytest.approx(a * (1 - (1 - r) ** steps))
    exact, direct = sum(a * q**2 for q in left), sum(a * q for q in left)  # 3 (1 + .5625 + .3164), 3 (1 + .75 + .5625)
    assert found.gradient[0].item() == pytest.approx(direct if by is sotl_first_order else exact)


@pytest.mark.parametrize("by", EXACT)
def test_losses_without_curvature(by):
    """L = w: the gradient does not depend on anything, so that there is nothing to differentiate a second time."""
    found = by(lambda w, a, _: w[0].sum(), [numbers(2)], [numbers(3)], range(3), RATE)
    assert torch.equal(found.gradient[0], torch.zeros(3, dtype=torch.float64))
    assert torch.allclose(found.weights[0], numbers(2) - 3 * RATE)


@pytest.mark.parametrize("by", [*EXACT, sotl_first_order])
def test_what_is_given_stays_as_it_was(by):
    loss, weights, alpha, batches = net_problem(2)
    before = [t.clone() for t in (*weights, *alpha)]
    with torch.no_grad():
        found = by(loss, weights, alpha, batches, RATE)
    assert all(torch.equal(old, new) for old, new in zip(before, (*weights, *alpha), strict=True))
    assert not any(t.requires_grad for t in (*weights, *alpha, *found.gradient, *found.weights, found.total))


@pytest.mark.parametrize("by", [*EXACT, sotl_first_order])
def test_no_batches_and_unused_parts(by):
    loss, weights, alpha, batches = quadratic_problem(2)
    nothing = by(loss, weights, alpha, [], RATE)
    assert nothing.total == 0
    assert_close(nothing.gradient, [torch.zeros(2)], 0)
    spare = numbers(2, 2)
    found = by(lambda w, a, b: loss(w[:1], a[:1], b), [*weights, spare], [*alpha, spare], batches, RATE)
    assert torch.equal(found.gradient[1], torch.zeros(2, 2, dtype=torch.float64))
    assert torch.equal(found.weights[1], spare)


# ---------------------------------------------------------------------------------------------------------------------
# One step and validation data.


def one_step(problem):
    loss, weights, alpha, (train, valid) = PROBLEMS[problem](2)
    return (lambda w, a: loss(w, a, train)), (lambda w, a: loss(w, a, valid)), weights, alpha, RATE


def unrolled_by_difference(train_loss, valid_loss, weights, alpha, rate):
    """As `unrolled_exact`, its second derivative by `mixed_product`: what DARTS computes in second order (Eq. 3.12)."""
    weights, alpha = ([tensor.clone().requires_grad_() for tensor in tensors] for tensors in (weights, alpha))
    slopes = torch.autograd.grad(train_loss(weights, alpha), weights)
    ahead = [(weight - rate * slope).detach().requires_grad_() for weight, slope in zip(weights, slopes, strict=True)]
    found = torch.autograd.grad(valid_loss(ahead, alpha), [*alpha, *ahead], materialize_grads=True)
    direct, direction = found[: len(alpha)], found[len(alpha) :]
    moved = [weight.detach().unsqueeze(0) for weight in weights]  # one repeat

    def alpha_gradients():
        own = [weight[0] for weight in moved]
        return [g.unsqueeze(0) for g in torch.autograd.grad(train_loss(own, alpha), alpha, materialize_grads=True)]

    mixed = mixed_product(alpha_gradients, moved, [d.unsqueeze(0) for d in direction])
    return [d - rate * m[0] for d, m in zip(direct, mixed, strict=True)]


def after_one_step(train_loss, valid_loss, weights, alpha, rate):
    _, stepped = sotl(lambda w, a, _: train_loss(w, a), weights, alpha, [None], rate)
    return valid_loss(stepped, alpha).item()


@pytest.mark.parametrize("problem", PROBLEMS)
def test_second_order(problem):
    train_loss, valid_loss, weights, alpha, rate = one_step(problem)
    wanted = central_differences(lambda moved: after_one_step(train_loss, valid_loss, weights, moved, rate), alpha)
    exact = unrolled_exact(train_loss, valid_loss, weights, alpha, rate)
    assert_close(exact, wanted, 1e-6)
    found = unrolled_by_difference(train_loss, valid_loss, weights, alpha, rate)
    assert_close(found, exact, 1e-3)
    direct = unrolled_by_difference(train_loss, valid_loss, weights, alpha, 0.0)
    assert (flat(direct) - flat(exact)).norm() > 0.01 * flat(exact).norm()  # the second term counts


def test_the_difference_in_single_precision():
    train_loss, valid_loss, weights, alpha, rate = one_step("net")
    exact = unrolled_exact(train_loss, valid_loss, weights, alpha, rate)
    single = [[t.float() for t in tensors] for tensors in (weights, alpha)]
    batches = [(x.float(), y) for x, y in net_problem(2)[3]]
    losses = [lambda w, a, b=batch: net(w, a, b) for batch in batches]
    found = unrolled_by_difference(*losses, *single, rate)
    assert_close([f.double() for f in found], exact, 1e-3)


def test_second_order_by_hand():
    """Train (w - a)^2 / 2 from w = 0 steps to r a; validation (w - 1)^2 / 2 there has slope (r a - 1) r in a."""
    a, r = 3.0, 0.1
    start, alpha = [torch.zeros((), dtype=torch.float64)], [torch.tensor(a, dtype=torch.float64)]
    losses = (lambda w, alpha: 0.5 * (w[0] - alpha[0]) ** 2, lambda w, _: 0.5 * (w[0] - 1) ** 2)
    for by in (unrolled_exact, unrolled_by_difference):
        assert by(*losses, start, alpha, r)[0].item() == pytest.approx((r * a - 1) * r)


def test_validation_at_its_optimum_leaves_the_direct_gradient():
    losses = (lambda w, a: 0.5 * (w[0] - a[0]).square().sum(), lambda w, a: a[0].square().sum() + 0 * w[0].sum())
    alpha = [numbers(2)]
    for by in (unrolled_exact, unrolled_by_difference):
        assert_close(by(*losses, [numbers(2)], alpha, RATE), [2 * alpha[0]], 1e-12)
