"""BaLeNAS's steps against DARTS at the drawn parameters, its belief, and what its training must do."""

import itertools

import numpy as np
import pytest
import torch
from torch import nn

import polyarch as pa
from polyarch import PolyarchError
from polyarch.methods.balenas import Balenas
from polyarch.methods.darts import Darts
from polyarch.testing.methods import check_capture
from polyarch.training.dry_run import prepare

CELLS = pa.spaces.NasBench201(channels=2, cells=1)
RAGGED = pa.spaces.NasBench1Shot1(sub_space=1, channels=4, cells=3)


class Small(nn.Module):
    """Two places with three options each."""

    def __init__(self):
        super().__init__()
        self.block = pa.Choice("block", {f"{k}x{k}": nn.Conv2d(1, 2, k, padding=k // 2) for k in (1, 3, 5)})
        self.after = pa.Choice("after", {"relu": nn.ReLU(), "tanh": nn.Tanh(), "none": nn.Identity()})
        self.head = nn.Linear(2, 3)

    def forward(self, x):
        return self.head(self.after(self.block(x)).mean((-1, -2)))


SMALL = pa.ModuleSpace(Small)
UPDATES = ["vadam", "printed", "bayes-by-backprop", "von", "vprop"]


def prepared(task, repeats=1, space=CELLS, **settings):
    method = Balenas(batch_size=8, **settings)
    return method, *prepare(method, space, task, task.seen(task.train), repeats)


# ---------------------------------------------------------------------------------------------------------------------
# One step.


def darts_step(task, alpha, lr=3e-4, **settings):
    """A state of DARTS after a first step from the same weights and batches, with `alpha` as its parameters."""
    method = Darts(**settings, batch_size=8, arch={"lr": lr, "weight_decay": 0.0})
    problem, state, feed = prepare(method, CELLS, task, task.seen(task.train), 1)
    with torch.no_grad():
        state.belief["alpha"].copy_(alpha)
    method.step(problem, state, feed)
    return state


def normal(feed):
    """Belief's noise in every pass, [repeats, passes, simplices, longest]."""
    return feed.batches["train"][0].draws["noise"]["normal"]


@pytest.mark.parametrize("order", ["first", "second"])
def test_belief_moves_by_gradients_at_the_draws_and_weights_at_the_mean(images, order):
    """DARTS at each drawn alpha has the same gradient, its mixed part included; and at the new mean the same w."""
    objective = {"order": order}
    method, problem, state, feed = prepared(images, samples=2, objective=objective, initial_precision=4.0, data_size=0)
    before = state.belief["mean"].detach().clone()
    drawn = [before + 0.5 * normal(feed)[:, k] for k in range(2)]
    # Adam keeps half of its first gradient.
    slopes = [2 * darts_step(images, alpha, objective=objective).optimiser["belief.alpha.first"] for alpha in drawn]
    method.step(problem, state, feed)
    n = problem.train_size  # prepare() searches on the training data
    expected = (slopes[0] + slopes[1]) / 2 + before / n
    torch.testing.assert_close(2 * state.optimiser["belief.mean.first"], expected, rtol=1e-4, atol=1e-7)
    squares = (slopes[0].square() + slopes[1].square()) / 2
    precision = 0.999 * 4 + 0.001 * (n * squares + 1).double()
    torch.testing.assert_close(state.belief["precision"], precision, rtol=1e-9, atol=0)
    scale = ((precision - 1) / n / 0.001).sqrt() + 1 / n
    torch.testing.assert_close(state.belief["mean"].detach(), (before - 3e-4 * expected / scale).float())

    trained = darts_step(images, state.belief["mean"].detach(), lr=0.0)
    for name, weight in state.weights.items():
        torch.testing.assert_close(weight, trained.weights[name], rtol=1e-5, atol=1e-7)


def test_noise_is_normal_for_draws_and_absent_from_the_weight_step(images):
    *_, feed = prepared(images, samples=400)
    noise = normal(feed)
    assert noise.shape == (1, 401, 6, 5)
    assert not noise[:, -1].any()
    assert abs(noise[:, :-1].mean().item()) < 0.05
    assert noise[:, :-1].std().item() == pytest.approx(1, abs=0.05)


def test_the_number_of_examples_is_a_setting(images):
    """The square of a gradient counts for N examples; by default those of the validation data."""
    grown = []
    for data_size in (0, 24, 24_000):
        method, problem, state, feed = prepared(images, data_size=data_size)
        method.step(problem, state, feed)
        grown.append(state.belief["precision"] - 1)
    assert problem.train_size == 24
    assert torch.equal(grown[0], grown[1])
    torch.testing.assert_close(grown[2], 1000 * grown[1], rtol=1e-6, atol=0)


@pytest.mark.parametrize("update", UPDATES)
def test_every_update_moves_all_of_belief(images, update):
    settings = {"arch": {"update": update}, "samples": 2, "initial_precision": 2.0}
    method, problem, state, feed = prepared(images, repeats=2, space=SMALL, **settings)
    before = {name: value.detach().clone() for name, value in state.belief.items()}
    for _ in range(3):
        method.step(problem, state, feed)
    for name, value in state.belief.items():
        assert value.isfinite().all(), name
        assert (value != before[name]).all(), name
    assert (state.belief["precision"] > 0).all()
    check_capture(method, SMALL, images)


# ---------------------------------------------------------------------------------------------------------------------
# Belief.


def test_belief_starts_at_deviation_one_exactly(images):
    method, _, state, _ = prepared(images, data_size=25_000)
    belief = method.distribution(CELLS, state.belief)
    assert torch.equal(belief.deviation, torch.ones_like(belief.deviation))
    assert state.belief["mean"].abs().max() < 0.01


def test_options_that_do_not_exist(images):
    """They have no deviation, are never drawn, and count in no mean."""
    method, problem, state, _ = prepared(images, space=RAGGED, initial_precision=4.0)
    sizes = [len(simplex) for simplex in RAGGED.relaxation.simplices]
    assert len(set(sizes)) > 1
    simplices = method.distribution(RAGGED, state.belief).simplices
    for k, size in enumerate(sizes):
        assert (simplices.deviation[0, k, :size] == 0.5).all()
        assert not simplices.deviation[0, k, size:].any()
        assert (simplices.mean[0, k, size:] == -torch.inf).all()
    assert method.evaluate(problem, state, "select")["sigma"].item() == 0.5


def test_expected_losses_are_regularised_by_curvature(images):
    """Eq. 19, by a Gauss-Hermite grid over three drawn parameters: exact for a quadratic."""
    method, _, state, _ = prepared(images, initial_precision=2.0)
    random = torch.Generator().manual_seed(0)
    with torch.no_grad():
        state.belief["mean"].normal_(generator=random)
    belief = method.distribution(CELLS, state.belief).repeat(0)
    root, shift = (torch.randn(*size, generator=random, dtype=torch.float64) for size in ((3, 3), (3,)))
    hessian = root @ root.T

    def loss(alpha):
        away = alpha.double()[..., 0, :3] - shift
        return (away @ hessian * away).sum(-1) / 2

    nodes, weights = (torch.from_numpy(v) for v in np.polynomial.hermite_e.hermegauss(3))
    noise = torch.zeros(27, *belief.mean.shape)
    noise[:, 0, :3] = torch.tensor(list(itertools.product(nodes.tolist(), repeat=3)))
    shares = torch.tensor([np.prod(w) for w in itertools.product((weights / weights.sum()).tolist(), repeat=3)])
    with torch.no_grad():
        expected = (shares * loss(belief.drawn(noise))).sum()
        assert expected.item() == pytest.approx((loss(belief.mean) + 0.5 / 2 * hessian.trace()).item(), rel=1e-5)


# ---------------------------------------------------------------------------------------------------------------------
# Whole searches.


def test_a_search_tells_deviation_and_gap(tmp_path, images):
    run = pa.search(CELLS, images, Balenas(epochs=2, batch_size=8, data_size=25_000), out=tmp_path / "run")
    told = [line["select"] for line in run.history()]
    assert 1 > told[0]["sigma"] > told[1]["sigma"] > 0
    for one in told:
        gap = one["supernet_log_likelihood"] - one["log_likelihood"]
        assert one["discretisation_gap"] == pytest.approx(gap, abs=1e-9)
    kept = run.distribution
    assert kept.deviation.mean().item() == pytest.approx(told[1]["sigma"], rel=1e-6)
    assert list(run.architecture.choices) == kept.mean.argmax(-1).tolist()


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"samples": 0}, "samples is 0"),
        ({"arch": {"update": "adam"}}, "value of .*update"),
        ({"data_size": -1}, "data_size is -1"),
        ({"prior_precision": 0.0}, "prior_precision is 0.0; it must be above 0"),
        ({"initial_precision": 0.5}, "initial_precision is 0.5; it must be at least 1.0"),
        ({"arch": {"beta1": 1.0}}, "beta1 is 1.0"),
        ({"arch": {"beta2": -0.1}}, "beta2 is -0.1"),
        ({"arch": {"lr": -1.0}}, "lr is -1.0"),
        ({"arch": {"weight_decay": 1e-3}}, "weight_decay"),
        ({"objective": {"loss": "sotl"}}, "objective.loss=valid alone"),
        ({"objective": {"loss": "sovl"}}, "objective.loss=valid alone"),
    ],
)
def test_settings_that_make_no_sense(settings, says):
    with pytest.raises(PolyarchError, match=says) as raised:
        Balenas(**settings)
    assert "\n" not in str(raised.value)
