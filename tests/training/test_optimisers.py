"""Every update equals torch.optim's, each repeat as an optimiser of its own."""

import pytest
import torch

from polyarch import PolyarchError
from polyarch.core import State
from polyarch.settings import make
from polyarch.training.optimisers import (
    Adam,
    Schedule,
    Sgd,
    adam,
    adam_buffers,
    clip,
    momentum_buffers,
    sgd,
)

REPEATS, STEPS = 2, 6
SHAPES = {"weight": (4, 3), "bias": (4,), "scale": ()}


def some_parameters(seed=0):
    """Tensors of every rank, with an axis of repeats before them."""
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.randn(REPEATS, *shape, generator=generator, dtype=torch.float64) for name, shape in SHAPES.items()
    }


def some_gradients():
    """Those of every step; in the last ones a part is zero, as where no chosen operation has a parameter."""
    found = [list(some_parameters(seed).values()) for seed in range(1, STEPS + 1)]
    for step in found[-2:]:
        step[0].zero_()
    return found


def by_torch(make, transform=None):
    """The parameters after every step, stacked over repeats, each of which had a torch optimiser of its own."""
    paths = []
    for repeat in range(REPEATS):
        own = [value[repeat].clone().requires_grad_() for value in some_parameters().values()]
        optimiser, path = make(own), []
        for step in some_gradients():
            for parameter, gradient in zip(own, step, strict=True):
                parameter.grad = gradient[repeat].clone()
            if transform:
                transform(own)
            optimiser.step()
            path.append([parameter.detach().clone() for parameter in own])
        paths.append(path)
    return [[torch.stack(parts) for parts in zip(*steps, strict=True)] for steps in zip(*paths, strict=True)]


def assert_equal(found, expected):
    for mine, other in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("weight_decay", [0.0, 0.3])
@pytest.mark.parametrize(("momentum", "nesterov"), [(0.0, False), (0.9, False), (0.9, True)])
def test_sgd(momentum, nesterov, weight_decay):
    settings = {"momentum": momentum, "nesterov": nesterov, "weight_decay": weight_decay}
    expected = by_torch(lambda own: torch.optim.SGD(own, lr=0.1, **settings))
    ours = some_parameters()
    momenta = momentum_buffers(weights=ours)
    assert list(momenta) == ["weights.weight", "weights.bias", "weights.scale"]
    lr = torch.tensor(0.1, dtype=torch.float64)
    for step, gradients in enumerate(some_gradients()):
        before = [gradient.clone() for gradient in gradients]
        sgd(list(ours.values()), gradients, list(momenta.values()), lr=lr, **settings)
        assert_equal(ours.values(), expected[step])
        assert_equal(gradients, before)


@pytest.mark.parametrize("weight_decay", [0.0, 0.3])
@pytest.mark.parametrize("betas", [(0.5, 0.999), (0.9, 0.99)])
def test_adam(betas, weight_decay):
    expected = by_torch(lambda own: torch.optim.Adam(own, lr=0.1, betas=betas, weight_decay=weight_decay))
    ours = some_parameters()
    other = {"logits": torch.zeros(REPEATS, 2, dtype=torch.float64)}
    buffers = {**momentum_buffers(weights=other), **adam_buffers(belief=ours, other=other)}
    lr = torch.tensor(0.1, dtype=torch.float64)
    for step, gradients in enumerate(some_gradients()):
        adam(list(ours.values()), gradients, buffers, "belief", lr=lr, betas=betas, weight_decay=weight_decay)
        assert_equal(ours.values(), expected[step])
    assert buffers["belief.steps"].tolist() == [STEPS] * REPEATS
    untouched = [value for name, value in buffers.items() if not name.startswith("belief.")]
    assert all(not value.any() for value in untouched), "an update must not touch the buffers of other groups"


def test_adam_keeps_single_precision():
    """Also with the beta of 0.999, whose correction loses four digits when it is worked out in single precision."""
    ours = {"logits": torch.zeros(REPEATS, 3)}
    theirs = torch.zeros(3, requires_grad=True)
    optimiser = torch.optim.Adam([theirs], lr=0.02, betas=(0.5, 0.999))
    buffers = adam_buffers(belief=ours)
    for seed in range(STEPS):
        gradient = torch.randn(3, generator=torch.Generator().manual_seed(seed))
        theirs.grad = gradient.clone()
        optimiser.step()
        adam(list(ours.values()), [gradient.expand(REPEATS, 3)], buffers, "belief", lr=torch.tensor(0.02))
    assert ours["logits"].dtype == buffers["belief.logits.first"].dtype == torch.float32
    torch.testing.assert_close(ours["logits"], theirs.detach().expand(REPEATS, 3), rtol=2e-6, atol=0)


def test_clip():
    """Every repeat by the norm over all its own gradients: one is scaled down, the other is left alone."""
    gradients = list(some_parameters(1).values())
    for gradient in gradients:
        gradient[0] *= 10
        gradient[1] *= 0.01
    expected = []
    for repeat in range(REPEATS):
        own = [torch.zeros_like(g[repeat]).requires_grad_() for g in gradients]
        for parameter, gradient in zip(own, gradients, strict=True):
            parameter.grad = gradient[repeat].clone()
        torch.nn.utils.clip_grad_norm_(own, 5.0)
        expected.append([parameter.grad for parameter in own])
    small = [gradient[1].clone() for gradient in gradients]
    clip(gradients, 5.0)
    assert_equal(gradients, [torch.stack(parts) for parts in zip(*expected, strict=True)])
    assert_equal([gradient[1] for gradient in gradients], small)
    norms = torch.stack(
        [gradient.flatten(1).norm(dim=1) if gradient.dim() > 1 else gradient.abs() for gradient in gradients]
    )
    assert norms.norm(dim=0)[0].item() == pytest.approx(5, rel=1e-6)


def test_clip_leaves_zeros():
    gradients = [torch.zeros(REPEATS, 3)]
    clip(gradients, 5.0)
    assert not gradients[0].any()


# ---------------------------------------------------------------------------------------------------------------------
# Settings.


def by_torch_schedule(make, epochs):
    """The learning rates of so many epochs, from 0.025."""
    optimiser = torch.optim.SGD([torch.nn.Parameter(torch.zeros(()))], lr=0.025)
    schedule = make(optimiser)
    rates = []
    for _ in range(epochs):
        rates += schedule.get_last_lr()
        optimiser.step()
        schedule.step()
    return rates


@pytest.mark.parametrize("last", [0.0, 0.001])
def test_cosine(last):
    schedule = Schedule(kind="cosine", last_lr=last)
    wanted = by_torch_schedule(lambda own: torch.optim.lr_scheduler.CosineAnnealingLR(own, 7, eta_min=last), 8)
    assert [schedule.at(0.025, epoch, 7) for epoch in range(8)] == pytest.approx(wanted, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("gamma", [0.1, 0.2])
@pytest.mark.parametrize("milestones", [(), (2,), (1, 4, 5), (0,), (3, 3)])
def test_multistep(milestones, gamma):
    schedule = Schedule(kind="multistep", milestones=milestones, gamma=gamma)
    wanted = by_torch_schedule(lambda own: torch.optim.lr_scheduler.MultiStepLR(own, list(milestones), gamma), 8)
    assert [schedule.at(0.025, epoch, 8) for epoch in range(8)] == pytest.approx(wanted, rel=1e-9)


def test_milestones_below_one_are_parts_of_all_epochs():
    schedule, parts = (Schedule(kind="multistep", milestones=own) for own in ((3, 6, 8), (0.3, 0.6, 0.8)))
    assert [schedule.at(0.1, k, 10) for k in range(10)] == [parts.at(0.1, k, 10) for k in range(10)]
    assert [round(parts.at(1.0, k, 5), 9) for k in range(5)] == [1, 1, 0.1, 0.01, 0.001]


def test_a_constant_rate():
    assert {Schedule().at(0.1, epoch, 4) for epoch in range(4)} == {0.1}


def test_a_whole_recipe():
    """Clipping, weight decay and Nesterov's momentum at a falling rate, as a method has them."""

    def make(own):
        optimiser = torch.optim.SGD(own, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, T_max=STEPS)
        optimiser.register_step_post_hook(lambda *_: schedule.step())
        return optimiser

    expected = by_torch(make, lambda own: torch.nn.utils.clip_grad_norm_(own, 2.0))
    weights = Sgd(lr=0.1, nesterov=True, weight_decay=0.01, grad_clip=2.0, schedule=Schedule(kind="cosine"))
    state = State(some_parameters(), {}, {})
    state.optimiser = momentum_buffers(weights=state.weights)
    for step, gradients in enumerate(some_gradients()):
        weights.step(state, gradients, torch.tensor(weights.lr_at(step, STEPS), dtype=torch.float64))
        assert_equal(state.weights.values(), expected[step])


def test_belief_of_a_state_is_moved_by_its_settings():
    betas = (0.9, 0.99)
    expected = by_torch(lambda own: torch.optim.Adam(own, lr=0.1, betas=betas, weight_decay=0.3))
    arch = Adam(lr=0.1, betas=betas, weight_decay=0.3)
    state = State({}, {}, some_parameters())
    state.optimiser = adam_buffers(belief=state.belief)
    for step, gradients in enumerate(some_gradients()):
        arch.step(state, list(state.belief.values()), gradients, torch.tensor(arch.lr, dtype=torch.float64))
        assert_equal(state.belief.values(), expected[step])


@pytest.mark.parametrize(
    ("cls", "settings", "says"),
    [
        (Sgd, {"lr": 0.0}, "lr is 0.0; it must be above 0"),
        (Sgd, {"lr": -1.0}, "lr is -1.0; it must be above 0"),
        (Sgd, {"momentum": 1.0}, "momentum is 1.0; it must be at least 0 and below 1"),
        (Sgd, {"momentum": -0.1}, "momentum is -0.1"),
        (Sgd, {"weight_decay": -1e-4}, "weight_decay is -0.0001; it must be at least 0"),
        (Sgd, {"grad_clip": -5.0}, "grad_clip is -5.0; it must be at least 0"),
        (Sgd, {"schedule": {"kind": "linear"}}, "value of .*chedule.kind 'linear'"),
        (Sgd, {"schedule": {"last_lr": -1.0}}, "last_lr is -1.0; it must be at least 0"),
        (Sgd, {"schedule": {"milestones": (3, -1)}}, r"milestones\[1\] is -1; it must be at least 0"),
        (Sgd, {"schedule": {"gamma": 0.0}}, "gamma is 0.0; it must be above 0"),
        (Adam, {"lr": -1e-3}, "lr is -0.001; it must be at least 0"),
        (Adam, {"betas": (0.5, 1.0)}, r"betas\[1\] is 1.0; it must be at least 0 and below 1"),
        (Adam, {"betas": (0.5,)}, r"betas are \(0.5,\); give two"),
        (Adam, {"weight_decay": -1.0}, "weight_decay is -1.0; it must be at least 0"),
    ],
)
def test_settings_that_make_no_sense(cls, settings, says):
    """Whoever says them: Python, or the command line and run folders, by way of `make`."""
    for by in (lambda: cls(**settings), lambda: make(cls, settings)):
        with pytest.raises(PolyarchError, match=says) as error:
            by()
        assert "\n" not in str(error.value)


def test_belief_may_stand_still_and_weights_may_not():
    assert Adam(lr=0.0).lr == 0
    with pytest.raises(PolyarchError, match="lr is 0"):
        Sgd(lr=0)
