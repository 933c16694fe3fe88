import copy
import math

import pytest
import torch
from torch import nn

from polyarch.data.likelihood import Classification
from polyarch.data.preprocess import Standardise
from polyarch.errors import PolyarchError
from polyarch.uncertainty import Ensemble, image_range, pgd
from polyarch.uncertainty.ensemble import Apart

SHAPE = (2, 3, 3)
CLASSES = 4


def chance(seed=0):
    return torch.Generator().manual_seed(seed)


def images(n=12, seed=0):
    return torch.rand(n, *SHAPE, generator=chance(seed)), torch.randint(CLASSES, (n,), generator=chance(seed + 1))


def network(seed):
    """With batch norm and dropout, to which an attack must do nothing."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = nn.Sequential(
            nn.Conv2d(2, 5, 3, padding=1), nn.BatchNorm2d(5), nn.Tanh(), nn.Flatten(), nn.Dropout(), nn.Linear(45, 4)
        )
        model[1].running_mean.normal_()
    return model


def ensemble(members=3):
    weights = torch.tensor([0.6, 0.3, 0.1])[:members]
    standardise = Standardise(torch.full((2, 1, 1), 0.5), torch.full((2, 1, 1), 0.25))
    networks = Apart([network(seed) for seed in range(members)])
    return Ensemble(standardise, networks, weights / weights.sum(), Classification(CLASSES)).eval()


ATTACK = {"budget": 8 / 255, "steps": 5, "step_size": 3 / 255}


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (0.0, 255.0), (0.0, 16.0), (-1.0, 1.0)])
def test_stays_in_the_ball_and_in_the_range(low, high):
    x, y = images()
    x = torch.cat([x, torch.zeros(2, *SHAPE), torch.ones(2, *SHAPE)]) * (high - low) + low
    y = torch.cat([y, torch.tensor([0, 1, 2, 3])])
    moved = pgd(ensemble().output, x, y, generator=chance(), low=low, high=high, **ATTACK)
    radius = ATTACK["budget"] * (high - low)
    assert (moved - x).abs().max() <= radius * (1 + 1e-4)
    assert (moved - x).abs().max() > 0.9 * radius
    assert moved.min() >= low
    assert moved.max() <= high


def test_bytes_become_numbers_on_their_own_scale():
    x, y = images()
    bytes_ = (x * 255).to(torch.uint8)
    model = ensemble()
    moved = pgd(lambda z: model.output(z / 255), bytes_, y, generator=chance(), high=255.0, **ATTACK)
    assert moved.dtype == torch.float32
    same = pgd(model.output, bytes_ / 255, y, generator=chance(), **ATTACK)
    assert (moved / 255 - same).abs().max() < 1e-5


def test_logistic_model_in_closed_form():
    """log p(y) = log sigmoid(±w x): one step of full size takes every pixel to the far side of the ball."""
    x, _ = images()
    x = 0.2 + 0.6 * x  # so that the range does not cut the ball
    y = torch.tensor([0, 1] * 6)
    weight = torch.randn(SHAPE, generator=chance(5))

    def log_probs_of(z):
        score = (z * weight).flatten(1).sum(1)
        return torch.stack([-score, score], 1).log_softmax(-1)

    moved = pgd(log_probs_of, x, y, budget=0.1, steps=1, step_size=0.2, generator=chance())
    against = -weight.sign() * (2 * y - 1).view(-1, 1, 1, 1)
    assert torch.allclose(moved, x + 0.1 * against, atol=1e-6)
    # Of size half the ball: the same way from wherever the start was.
    start = x + 0.1 * (2 * torch.rand(x.shape, generator=chance()) - 1)
    moved = pgd(log_probs_of, x, y, budget=0.1, steps=1, step_size=0.05, generator=chance())
    expected = (start + 0.05 * against).clamp(x - 0.1, x + 0.1)
    assert torch.allclose(moved, expected, atol=1e-6)


def test_linear_softmax_in_closed_form():
    """The gradient of log p(y) is W_y - sum_c p_c W_c."""
    x, y = images(n=30)
    weight = torch.randn(CLASSES, *SHAPE, generator=chance(3), dtype=torch.float64)
    x = x.double()

    def log_probs_of(z):
        return torch.einsum("nabc,kabc->nk", z, weight).log_softmax(-1)

    start = (x + 0.05 * (2 * torch.rand(x.shape, generator=chance()).double() - 1)).clamp(0, 1)
    gradient = weight[y] - torch.einsum("nk,kabc->nabc", log_probs_of(start).exp(), weight)
    expected = (start - 0.02 * gradient.sign()).clamp(x - 0.05, x + 0.05).clamp(0, 1)
    moved = pgd(log_probs_of, x, y, budget=0.05, steps=1, step_size=0.02, generator=chance())
    assert torch.allclose(moved, expected, atol=1e-12)


def test_the_start_is_clipped_to_the_range():
    seen = []

    def log_probs_of(z):
        seen.append(z.detach().clone())
        return z.flatten(1)[:, :2].log_softmax(-1)

    x = torch.cat([torch.zeros(1, *SHAPE), torch.ones(1, *SHAPE)])
    pgd(log_probs_of, x, torch.tensor([0, 1]), budget=0.5, steps=1, step_size=0.1, generator=chance())
    (first,) = seen
    assert first.min() >= 0
    assert first.max() <= 1
    assert 0.1 < (first - x).abs().mean() < 0.4, "half of each start lies outside and is put on the edge"


def test_members_are_averaged_by_their_share_of_the_true_class():
    """d/dx -log sum_m w_m p_m = sum_m r_m d/dx -log p_m, with r_m proportional to w_m p_m(y)."""
    model = ensemble().double()
    x, y = images()
    x = x.double().requires_grad_()
    mixed = -model.output(x).gather(1, y[:, None]).sum()
    (through_mixture,) = torch.autograd.grad(mixed, x)
    fits, gradients = [], []
    for member in model.networks.networks:
        z = x.detach().requires_grad_()
        fit = nn.functional.cross_entropy(member((z - 0.5) / 0.25), y, reduction="none")
        gradients.append(torch.autograd.grad(fit.sum(), z)[0])
        fits.append(fit.detach())
    responsibility = model.weights[:, None] * torch.exp(-torch.stack(fits))
    responsibility = responsibility / responsibility.sum(0)
    expected = torch.einsum("mn,mnabc->nabc", responsibility, torch.stack(gradients))
    assert torch.allclose(through_mixture, expected, atol=1e-10)
    of_logits = torch.einsum("m,mnabc->nabc", model.weights, torch.stack(gradients))
    assert not torch.allclose(expected, of_logits, atol=1e-3), "the check would not tell the two apart"


def test_more_steps_harm_more():
    model = ensemble()
    x, _ = images(n=40)
    y = model.output(x).argmax(-1)

    def fit(z):
        return model.output(z).gather(1, y[:, None]).mean().item()

    weak, strong = (
        pgd(model.output, x, y, budget=0.1, steps=steps, step_size=0.02, generator=chance()) for steps in (1, 8)
    )
    assert fit(strong) < fit(weak) < fit(x)


def test_nothing_in_the_model_changes():
    model = ensemble()
    before = copy.deepcopy(model.state_dict())
    modes = [module.training for module in model.modules()]
    x, y = images()
    kept, state = x.clone(), torch.get_rng_state()
    with torch.no_grad():  # as an evaluation would be
        pgd(model.output, x, y, generator=chance(), **ATTACK)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(x, kept)
    assert not x.requires_grad
    assert [module.training for module in model.modules()] == modes
    assert all(p.grad is None for p in model.parameters())
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_batches_change_nothing_and_a_seed_decides():
    model = ensemble().double()
    x, y = images()
    whole = pgd(model.output, x.double(), y, generator=chance(), **ATTACK)
    parts = pgd(model.output, x.double(), y, generator=chance(), batch=5, **ATTACK)
    assert torch.allclose(whole, parts, atol=1e-9)
    assert not torch.equal(whole, pgd(model.output, x.double(), y, generator=chance(1), **ATTACK))


def test_ranges():
    x, _ = images()
    assert image_range(x) == (0, 1)
    assert image_range((x * 255).to(torch.uint8)) == (0, 255)
    assert image_range((x * 16).to(torch.uint8), 16.0) == (0, 16)
    with pytest.raises(PolyarchError, match=r"run from .* to 2; scale them"):
        image_range(torch.cat([x, torch.full((1, *SHAPE), 2.0)]))
    with pytest.raises(PolyarchError, match="known range"):
        image_range(x - 0.5)
    with pytest.raises(PolyarchError, match=r"not inputs \[18\]"):
        image_range(x.flatten(1))


@pytest.mark.parametrize(
    "wrong",
    [{"budget": 0.0}, {"budget": 2.0}, {"budget": math.nan}, {"step_size": -1.0}, {"steps": 0}, {"high": 0.5}],
)
def test_what_makes_no_attack_is_refused(wrong):
    x, y = images()
    with pytest.raises(PolyarchError):
        pgd(ensemble().output, x, y, generator=chance(), **{**ATTACK, **wrong})
