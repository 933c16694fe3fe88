"""One-shot training: identities between its methods under plain SGD, fairness, and what is selected."""

import itertools

import pytest
import torch

import polyarch as pa
from polyarch import PolyarchError
from polyarch.core import gradients
from polyarch.methods import OneShot
from polyarch.methods.one_shot import fair_paths
from polyarch.spaces.views import Dense
from polyarch.training.dry_run import prepare

CELLS = pa.spaces.NasBench201(channels=2, cells=1)
PLAIN = {"batch_size": 8, "weights": {"lr": 0.1, "momentum": 0.0, "weight_decay": 0.0, "grad_clip": 0.0}}
MOMENTUM = {"batch_size": 8, "weights": {"grad_clip": 0.0, "nesterov": True}}


def stepped(method, images, space=CELLS, repeats=1):
    """A first step: the problem and state after it, weights before it, and its feed."""
    problem, state, feed = prepare(method, space, images, images.seen(images.train), repeats)
    before = {name: value.detach().clone() for name, value in state.weights.items()}
    method.step(problem, state, feed)
    return problem, state, before, feed


def assert_equal_steps(one, other, images):
    _, first, _, _ = stepped(one, images, repeats=2)
    _, second, _, _ = stepped(other, images, repeats=2)
    for name, value in first.tensors().items():
        assert torch.allclose(value, second.tensors()[name], atol=1e-6), name


@pytest.mark.parametrize("recipe", [PLAIN, MOMENTUM], ids=["plain", "momentum"])
def test_one_path_is_single_path(images, recipe):
    single = OneShot(**recipe)
    assert_equal_steps(single, OneShot(paths=1, inner_steps=1, proximal=3.0, **recipe), images)
    nearly = 1 - 1e-9  # takes the general way: start, end, and towards it
    assert_equal_steps(single, OneShot(**recipe, outer_lr=nearly), images)


def test_metaprox_without_lambda_is_reptile(images):
    """As lambda goes to 0, through the branch that adds the pull; and a lambda that is there is felt."""
    reptile = OneShot(inner_steps=4, **PLAIN)
    assert_equal_steps(reptile, OneShot(inner_steps=4, proximal=1e-12, **PLAIN), images)
    with pytest.raises(AssertionError):
        assert_equal_steps(reptile, OneShot(inner_steps=4, proximal=1.0, **PLAIN), images)


def loss(problem, batch, view):
    return -problem.log_likelihood(problem.supernet(batch.x, view), batch)


def by_hand(problem, batch, choices, before, steps, rate, proximal=0.0):
    """Gradients along S plain steps of one path, and where it ends; the supernet is left there."""
    weights = list(problem.supernet.parameters())
    with torch.no_grad():
        for weight, value in zip(weights, before.values(), strict=True):
            weight.copy_(value)
    found = []
    for _ in range(steps):
        own = gradients(loss(problem, batch, Dense(choices)), weights)
        found.append(own)
        with torch.no_grad():
            for weight, gradient, start in zip(weights, own, before.values(), strict=True):
                weight -= rate * (gradient + proximal * (weight - start))
    return found, [weight.detach().clone() for weight in weights]


def test_the_update_of_reptile_is_the_first_order_gradient_of_the_sum_of_losses(images):
    """Times the inner rate (3.22 and 3.24), with the sign of descent."""
    method = OneShot(inner_steps=4, **PLAIN)
    problem, state, before, feed = stepped(method, images)
    after = [value.detach().clone() for value in state.weights.values()]
    choices = method._paths(problem, state, feed)[:, 0]
    found, _ = by_hand(problem, feed.batches["train"][0], choices, before, 4, 0.1)
    for parts, old, new in zip(zip(*found, strict=True), before.values(), after, strict=True):
        assert torch.allclose(new - old, -0.1 * sum(parts), atol=1e-6)


@pytest.mark.parametrize(("paths", "steps", "proximal", "outer"), [(4, 1, 0, 1), (3, 4, 2.0, 1), (2, 3, 2.0, 0.3)])
def test_paths_are_averaged(images, paths, steps, proximal, outer):
    """Each from the same start; w moves towards the mean of the ends."""
    method = OneShot(**PLAIN, paths=paths, inner_steps=steps, proximal=float(proximal), outer_lr=float(outer))
    problem, state, before, feed = stepped(method, images)
    after = [value.detach().clone() for value in state.weights.values()]
    choices, batch = method._paths(problem, state, feed), feed.batches["train"][0]
    ends = [by_hand(problem, batch, choices[:, k], before, steps, 0.1, proximal)[1] for k in range(paths)]
    for parts, old, new in zip(zip(*ends, strict=True), before.values(), after, strict=True):
        assert torch.allclose(new, old + outer * (sum(parts) / paths - old), atol=1e-6)


def test_the_mean_of_paths_is_one_step_of_the_mean_gradient(images):
    """With momentum as well: one step is linear in the gradient."""
    method = OneShot(paths=3, batch_size=8, weights={"grad_clip": 0.0})
    problem, state, before, feed = stepped(method, images)
    momenta = {name: value.clone() for name, value in state.optimiser.items()}
    choices, batch = method._paths(problem, state, feed), feed.batches["train"][0]
    with torch.no_grad():
        for name, value in state.weights.items():
            value.copy_(before[name])
    weights = list(state.weights.values())
    mean = gradients(sum(loss(problem, batch, Dense(choices[:, k])) for k in range(3)) / 3, weights)
    for (name, value), gradient in zip(state.weights.items(), mean, strict=True):
        assert torch.allclose(momenta[f"weights.{name}"], gradient + 5e-4 * value, atol=1e-5)


def test_fair_paths_use_every_operation_of_every_edge_once(images):
    method = OneShot(sampling="fair", batch_size=8)
    problem, state, feed = prepare(method, CELLS, images, images.seen(images.train), 3)
    choices = method._paths(problem, state, feed)
    assert choices.shape == (3, 5, 6)
    assert torch.equal(choices.sort(1).values, torch.arange(5)[None, :, None].expand(3, 5, 6))
    assert len({tuple(row) for row in choices.flatten(0, 1).tolist()}) > 5, "repeats draw their own"


def test_every_order_of_an_edge_is_as_likely(images):
    uniform = torch.rand(6000, 6, 5, generator=torch.Generator().manual_seed(0))
    first = fair_paths(CELLS, uniform)[:, 0]
    counts = torch.stack([(first == option).sum(0) for option in range(5)])
    assert (counts - 1200).abs().max() < 5 * (6000 * 0.2 * 0.8) ** 0.5


def test_fair_paths_of_darts_share_a_topology():
    """Every operation once on each edge of it, and a node's two inputs differ; every topology is drawn."""
    space = pa.spaces.Darts()
    uniform = torch.rand(500, 16, 35, generator=torch.Generator().manual_seed(0))
    choices = space.fair_paths(uniform)
    assert choices.shape == (500, 7, 16)
    inputs, operations = choices // 7, choices % 7
    assert (inputs == inputs[:, :1]).all(), "one topology for all paths"
    assert torch.equal(operations.sort(1).values, torch.arange(7)[None, :, None].expand(500, 7, 16))
    pairs = inputs[:, 0].unflatten(1, (8, 2))
    assert (pairs[..., 0] != pairs[..., 1]).all()
    for node in range(4):
        seen = {frozenset(pair) for pair in pairs[:, node].tolist()}
        assert seen == {frozenset(pair) for pair in itertools.combinations(range(node + 2), 2)}


def test_no_fair_paths_where_decisions_differ(tmp_path, images):
    space = pa.spaces.NasBench1Shot1(sub_space=1, channels=2, cells=3)
    with pytest.raises(PolyarchError, match="different numbers of options") as error:
        pa.search(space, images, OneShot(sampling="fair"), out=tmp_path / "run")
    assert "\n" not in str(error.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"paths": 0}, "paths is 0"),
        ({"inner_steps": 0}, "inner_steps is 0"),
        ({"proximal": -1.0}, "proximal"),
        ({"outer_lr": 0.0}, "outer_lr is 0.0"),
        ({"sampling": "fair", "paths": 4}, "leave out paths=4"),
    ],
)
def test_settings_that_make_no_sense(settings, says):
    with pytest.raises(PolyarchError, match=says):
        OneShot(**settings)


def test_belief_stays_the_prior(tmp_path, images):
    run = pa.search(
        CELLS, images, OneShot(epochs=1, batch_size=8), out=tmp_path / "run", start=pa.Start(prior="exponential(0.5)")
    )
    expected = torch.tensor([0.5**k for k in range(5)])
    for probs in run.distribution.probs().values():
        assert torch.allclose(probs, expected / expected.sum())


def test_what_is_selected_fits_validation_data_best(tmp_path, images):
    """Of twenty drawn, with the shared weights; the mode of a prior would be its first option everywhere."""
    run = pa.search(CELLS, images, OneShot(epochs=2, batch_size=8), out=tmp_path / "run")
    drawn = pa.distributions.uniform(CELLS.decisions).sample(20, torch.Generator().manual_seed(1))
    supernet, y = run.supernet(), images.select.y
    x = run.preprocess()(images.select.x).unsqueeze(0)
    with torch.no_grad():
        fits = [images.likelihood.log_likelihood(supernet(x, Dense(row[None])), y[None]).mean() for row in drawn]
    assert run.architecture == CELLS.decode(drawn)[torch.stack(fits).argmax()]
