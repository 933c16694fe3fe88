"""The estimator of the paper (Eqs. 3 to 8) against enumeration, and what its training must do."""

import copy
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import polyarch as pa
from polyarch import PolyarchError
from polyarch.core import FeedSpec, Problem
from polyarch.data.task import Split
from polyarch.distributions import Categorical
from polyarch.distributions.categorical import pad
from polyarch.methods import Parsec
from polyarch.methods.parsec import effective_samples, importance_weights
from polyarch.streams import Streams
from polyarch.testing.toy import Lines, every_choice, log_likelihoods, toy_task
from polyarch.training.dry_run import prepare
from polyarch.training.loop import Batches, Loop, Progress

CELLS = pa.spaces.NasBench201(channels=2, cells=1)


@pytest.fixture(scope="module")
def line(tmp_path_factory):
    """Forty points, 24 of them to train on and 16 to judge architectures by."""
    folder = tmp_path_factory.mktemp("line")
    toy_task(folder)
    return pa.data.load(folder / "line.npz", kind="regression", select=0.4, test=0)


def problem_of(task, space, repeats=1, prior=None):
    return Problem(
        space,
        space.supernet(task.shape, repeats),
        task.likelihood,
        prior or pa.distributions.uniform(space.decisions),
        {name: Split(task.preprocess(split.x), split.y) for name, split in task.learning_data().items()},
    )


def loop_of(method, problem):
    streams = [Streams(k) for k in range(problem.repeats)]
    return Loop(method, problem, method.init(problem, streams, None), streams, Progress(), method.epochs)


# ---------------------------------------------------------------------------------------------------------------------
# Gradients.


def errors_of_the_estimates(task, samples, repeats=400):
    """How far the mean of many estimates is from the gradients of Eq. 3, by enumeration: of belief, and of weights."""
    # A first step of many repeats, alike but for what they draw; prepare() trains and searches on the same batch.
    method = Parsec(samples=samples, batch_size=8, weights={"grad_clip": 0.0, "weight_decay": 0.0})
    problem, state, feed = prepare(method, Lines(), task, task.seen(task.train), repeats)
    [batch] = feed.batches["search"]
    with torch.no_grad():
        state.weights["offset"].fill_(1.0)
        state.belief["logits"].copy_(torch.tensor([[0.5, -0.3, 0.2], [0.4, -0.4, 0.0]]))
    belief = method.distribution(problem.space, state.belief)
    fits = log_likelihoods(problem, batch.x, batch.y).sum(-1)  # [repeats, architectures]
    marginal = (belief.log_prob(every_choice(Lines()).expand(repeats, -1, -1)) + fits).logsumexp(-1)
    exact = torch.autograd.grad(marginal.sum(), [state.belief["logits"], state.weights["offset"]])
    method.step(problem, state, feed)
    # Both optimisers go down, and keep what they were given: Adam half of it, SGD the mean over examples.
    estimates = (-2 * state.optimiser["belief.logits.first"], -8 * state.optimiser["weights.offset"])
    pairs = zip(estimates, exact, strict=True)
    return [((mean.mean(0) - one[0]).norm() / one[0].norm()).item() for mean, one in pairs]


def test_estimates_converge_to_the_gradient_of_the_marginal_likelihood(line):
    """Eqs. 7 and 8: biased at few samples, and less so at more."""
    few, more, many = (errors_of_the_estimates(line, samples) for samples in (2, 16, 256))
    for k, group in enumerate(("belief", "weights")):
        assert many[k] < 0.03, group
        assert many[k] < more[k] / 3 < few[k] / 6, group


def test_weights_are_of_whole_batches_and_safe_for_any_fit():
    fits = torch.tensor([-1e4, -1e4 - math.log(3), -2e4], dtype=torch.float64)
    assert importance_weights(fits, 1.0).tolist() == pytest.approx([0.75, 0.25, 0.0], rel=1e-9)
    single = importance_weights(torch.tensor([[-1e4, -1e4], [-1e38, 0.0]]), 1.0)
    assert single.tolist() == [[0.5, 0.5], [0.0, 1.0]]


def test_the_batch_size_as_temperature_weighs_by_the_mean(line):
    """With temperature 1 omega is a ratio of products over the batch, with the batch size of geometric means."""
    for temperature, power in ((1.0, 1.0), (8.0, 1 / 8)):
        method = Parsec(samples=3, batch_size=8, temperature=temperature, arch={"lr": 0.0})
        problem, state, feed = prepare(method, Lines(), line, line.seen(line.train), repeats=1)
        [batch] = feed.batches["search"]
        choices = sampled(method, problem, state, feed)[0]
        likelihoods = log_likelihoods(problem, batch.x, batch.y)[0].double().exp().prod(-1)
        rows = [every_choice(Lines()).tolist().index(choice) for choice in choices.tolist()]
        expected = likelihoods[rows] ** power
        expected = expected / expected.sum()
        info = method.step(problem, state, feed)
        assert info.metrics["effective_samples"].item() == pytest.approx(1 / (expected**2).sum().item(), rel=1e-4)


def test_effective_samples():
    """Equal weights count all, a winner one; in between as worked out for log-likelihoods that scatter by s."""
    assert effective_samples(torch.full((16,), 1 / 16)).item() == pytest.approx(16)
    assert effective_samples(torch.tensor([0.0, 1.0, 0.0])).item() == 1
    assert effective_samples(torch.tensor([[0.5, 0.25, 0.25], [0.5, 0.5, 0.0]])).tolist() == pytest.approx([8 / 3, 2])
    normal = torch.randn(20_000, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for spread, expected in ((0.1, 15.9), (1.0, 8.2), (3.0, 2.7), (6.4, 1.6)):
        mean = effective_samples(importance_weights(spread * normal, 1.0)).mean().item()
        assert mean == pytest.approx(expected, abs=0.1), spread


# ---------------------------------------------------------------------------------------------------------------------
# One step.


def sampled(method, problem, state, feed):
    """The architectures of a step, [repeats, K, decisions]: by the Gumbel-max trick."""
    logits = method.distribution(problem.space, state.belief).logits.detach()
    return (logits.unsqueeze(1) + feed.draws["gumbel"]).argmax(-1)


def test_samples_come_from_belief(line):
    method = Parsec(samples=20_000)
    problem, state, feed = prepare(method, Lines(), line, line.seen(line.train), repeats=1)
    with torch.no_grad():
        state.belief["logits"].copy_(torch.tensor([[1.0, 0.0, -1.0], [0.5, -0.5, 0.0]]))
    choices = sampled(method, problem, state, feed)[0]
    probs = method.distribution(problem.space, state.belief).probs()
    for k, decision in enumerate(Lines().decisions):
        counts = torch.bincount(choices[:, k], minlength=len(decision)) / len(choices)
        assert torch.allclose(counts, probs[decision.name][0], atol=0.01)


@pytest.mark.parametrize("samples", [1, 3])
def test_a_step_is_plain_sgd_on_the_sampled_networks(images, samples):
    """The same samples, by the same omega, move weights and belief (Algorithm 1); one sample is ordinary training."""
    method = Parsec(samples=samples, batch_size=8, weights={"grad_clip": 1.0}, temperature=4.0)
    problem = problem_of(images, CELLS)
    loop = loop_of(method, problem)
    state, loop.batches.counts = loop.state, [1]
    networks, choices = [], []
    before = copy.deepcopy(problem.supernet)
    gumbel = method.draw(problem, Streams(0))["gumbel"]
    for noise in gumbel:
        choices.append(noise.argmax(-1))  # belief is uniform
        networks.append(before.extract(CELLS.architecture(choices[-1].tolist())).train())
    streams = Streams(0)
    names = ("train", "search")
    rows = {name: torch.randperm(len(problem.data[name]), generator=streams["data"])[:8] for name in names}
    x, y = ({n: getattr(problem.data[n], part)[rows[n]] for n in rows} for part in "xy")
    with torch.no_grad():
        fits = [-F.cross_entropy(network(x["search"]), y["search"], reduction="sum") for network in networks]
    likelihoods = (torch.stack(fits) / 4).double().exp()
    omega = (likelihoods / likelihoods.sum()).float()
    if samples == 1:
        assert omega.item() == 1

    # By hand: every network's own gradient, added up under the names of the shared weights.
    expected = {name: torch.zeros_like(value[0]) for name, value in before.named_parameters()}
    for network, choice, weight in zip(networks, choices, omega, strict=True):
        F.cross_entropy(network(x["train"]), y["train"]).backward()
        own = dict(network.named_parameters())
        for name in expected:
            member = name_in_member(name, choice)
            if member in own:
                expected[name] += weight * own[member].grad
    norm = torch.stack([gradient.norm() for gradient in expected.values()]).norm()
    loop.epoch()
    for name, value in before.named_parameters():
        old = value.detach()[0]
        gradient = expected[name] / max(norm, 1.0) + 3e-4 * old
        assert torch.allclose(state.weights[name][0], old - 0.025 * gradient, atol=2e-6), name
    score = sum(w * (F.one_hot(c, 5) - 0.2) for w, c in zip(omega, choices, strict=True))
    first = state.optimiser["belief.logits.first"][0]
    assert torch.allclose(first, -0.5 * score, atol=1e-5), "a uniform prior adds nothing"
    assert torch.allclose(state.belief["logits"][0], 0.02 * score.sign(), atol=1e-5), "Adam's first step is its rate"


def name_in_member(name, choice):
    """A tensor of the supernet as the network of one choice calls it; None where that has it not."""
    name = name.removeprefix("network.")
    for edge, option in zip(CELLS.decisions, choice.tolist(), strict=True):
        place, found, rest = name.partition(f".edges.{edge.name}.options.")
        if found:
            number, _, rest = rest.partition(".")
            return f"{place}.edges.{edge.name}.{rest}" if int(number) == option else None
    return name


def test_examples_are_counted(line):
    method = Parsec(samples=3, batch_size=8)
    problem, state, feed = prepare(method, Lines(), line, line.seen(line.train), repeats=2)
    info = method.step(problem, state, feed)
    assert (info.forward, info.backward) == (3 * (8 + 8), 3 * 8)


# ---------------------------------------------------------------------------------------------------------------------
# The prior.


def slopes(task, prior):
    """Belief about the slope after 60 steps with weights omega that are nearly alike."""
    problem = problem_of(task, Lines(), prior=prior)
    loop = loop_of(Parsec(epochs=60, samples=2, temperature=1e6), problem)
    while not loop.progress.finished(60):
        loop.epoch()
    return loop.method.distribution(problem.space, loop.state.belief).probs()["slope"][0].detach()


def test_belief_moves_towards_a_peaked_prior(line):
    prior = Categorical(Lines().decisions, pad([torch.tensor([0.0, 8.0, 0.0]), torch.zeros(2)]))
    believed = slopes(line, prior)
    assert believed.argmax() == 1
    assert believed[1] > 0.6
    assert slopes(line, None).max() < 0.6, "omega alone must not lead there"


def test_the_prior_speaks_once_for_all_examples_that_judge(line):
    """What it adds to the gradient of a uniform one, which adds nothing: E[log prior]'s, by the batch's share."""
    peaked = Categorical(Lines().decisions, pad([torch.tensor([0.0, 3.0, 0.0]), torch.tensor([0.0, 1.0])]))
    found = []
    for prior in (None, peaked):
        loop = loop_of(Parsec(samples=2, batch_size=8), problem_of(line, Lines(), prior=prior))
        loop.batches.counts = [1]
        loop.epoch()
        found.append(-2 * loop.state.optimiser["belief.logits.first"][0])
    logits = torch.zeros(2, 3, requires_grad=True)
    probs = torch.stack([logits[0].softmax(-1), F.pad(logits[1, :2].softmax(-1), (0, 1))])
    log_prior = F.pad(peaked.log_probs[1, :2], (0, 1))
    expected = (probs[0] * peaked.log_probs[0]).sum() + (probs[1] * log_prior).sum()
    [slope] = torch.autograd.grad(expected, [logits])
    assert torch.allclose(found[1] - found[0], slope * 8 / 16, atol=1e-6)


# ---------------------------------------------------------------------------------------------------------------------
# Auxiliary towers.


@pytest.mark.parametrize("form", ["sparse", "dense"])
def test_a_tower_counts_by_its_weight_for_the_weights_alone(tmp_path, form):
    """What it says moves the weights, its own among them; architectures are weighed by the network's answer."""
    random = np.random.default_rng(0)
    np.savez(tmp_path / "images.npz", x=random.integers(0, 256, (32, 1, 32, 32), np.uint8), y=np.arange(32) % 3)
    task = pa.data.load(tmp_path / "images.npz", select=0.5, test=0)
    space, ends = pa.spaces.Darts(channels=2, layers=3, network="evaluation"), {}
    for auxiliary in (0.0, 0.4, 0.8):
        still = {"lr": 0.1, "momentum": 0.0, "weight_decay": 0.0, "grad_clip": 0.0}
        method = Parsec(samples=2, batch_size=8, auxiliary=auxiliary, form=form, weights=still)
        problem, state, feed = prepare(method, space, task, task.seen(task.train), 1)
        before = {name: value.detach().clone() for name, value in state.weights.items()}
        info = method.step(problem, state, feed)
        moved = {name: value.detach() - before[name] for name, value in state.weights.items()}
        ends[auxiliary] = (moved, state.belief["logits"].detach().clone(), info.metrics["log_likelihood"])
    none, some, more = (ends[auxiliary][0] for auxiliary in (0.0, 0.4, 0.8))
    towers = [name for name in none if ".auxiliary." in name]
    assert towers
    for name in none:
        assert torch.allclose(more[name] - none[name], 2 * (some[name] - none[name]), atol=1e-5), name
    assert all(none[name].abs().max() == 0 for name in towers)
    assert any(some[name].abs().max() > 0 for name in towers)
    for auxiliary in (0.4, 0.8):
        assert torch.equal(ends[auxiliary][1], ends[0.0][1])
        assert torch.allclose(ends[auxiliary][2], ends[0.0][2])


# ---------------------------------------------------------------------------------------------------------------------
# Whole searches.


def test_both_forms_learn_the_same(images):
    """And the sparse one runs the operations of its samples alone, of both repeats."""
    ends, ran = {}, {"sparse": [], "dense": []}
    for form in ran:
        method = Parsec(samples=3, epochs=1, batch_size=8, form=form)
        problem = problem_of(images, CELLS, repeats=2)
        loop = loop_of(method, problem)
        loop.batches.counts = [1]
        for place in problem.supernet.runner.points.values():
            for option, module in enumerate(place.options):
                module.register_forward_hook(lambda *_, form=form, key=(place.name, option): ran[form].append(key))
        line = loop.epoch()
        ends[form] = (loop.state.tensors(), line["step"])
    assert len(ran["sparse"]) < len(ran["dense"]) / 2
    for name, value in ends["dense"][0].items():
        assert torch.allclose(ends["sparse"][0][name], value, atol=1e-5), name
    for name, value in ends["dense"][1].items():
        assert ends["sparse"][1][name] == pytest.approx(value, rel=1e-5)


def test_it_finds_the_line(tmp_path, line):
    """Belief ends at the line that fits search data best by enumeration, the offset being learnt meanwhile."""
    settings = {"samples": 8, "batch_size": 8, "temperature": 2.0, "weights": {"lr": 0.05}}
    method = Parsec(epochs=150, evaluation={"every": 25}, **settings)
    run = pa.search(Lines(), line, method, out=tmp_path / "run")
    problem = problem_of(line, Lines())
    problem.supernet.load_state_dict(run.supernet().state_dict())
    [batch] = problem.passes("search")
    fits = log_likelihoods(problem, batch.x, batch.y)[0].sum(-1)
    assert list(run.architecture.choices) == every_choice(Lines())[fits.argmax()].tolist()
    assert min(p.max().item() for p in run.distribution.probs().values()) > 0.9
    history = run.history()
    assert history[-1]["select"]["log_likelihood"] > history[0]["select"]["log_likelihood"]
    assert history[-1]["epoch"] == 150, "the last state is kept"
    assert 1 <= min(line["step"]["effective_samples"] for line in history) <= 8


def test_without_validation_data(tmp_path):
    task = toy_task(tmp_path)
    with pytest.raises(PolyarchError, match="set select"):
        pa.search(Lines(), task, Parsec(), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"samples": 0}, "samples is 0"),
        ({"temperature": 0.0}, "temperature is .*; it must be above 0"),
        ({"temperature": -1.0}, "temperature is .*; it must be above 0"),
        ({"weights": {"lr": 0.0}}, "lr is 0.0; it must be above 0"),
        ({"weights": {"schedule": {"last_lr": -0.1}}}, "last_lr is -0.1"),
        ({"arch": {"lr": -0.1}}, "lr is -0.1"),
        ({"weights": {"momentum": 1.0}}, "momentum"),
        ({"weights": {"weight_decay": -1.0}}, "weight_decay"),
        ({"weights": {"grad_clip": -1.0}}, "grad_clip"),
    ],
)
def test_settings_that_make_no_sense(settings, says):
    with pytest.raises(PolyarchError, match=says):
        Parsec(**settings)


# ---------------------------------------------------------------------------------------------------------------------
# Its two feeds.


def test_a_shorter_feed_begins_again(line):
    """24 examples to train on are six batches of 4 per epoch; of 16 to judge by, the fifth is the first again."""
    problem = problem_of(line, Lines(), repeats=2)
    batches = Batches(problem, {"train": FeedSpec("train", 4), "search": FeedSpec("search", 4)})
    assert len(batches.counts) == 6, "steps are counted on the first feed"
    batches.shuffle([Streams(0), Streams(1)])
    seen = {"train": [], "search": []}
    for step in range(len(batches.counts)):
        for name, [batch] in batches.every(step).items():
            seen[name].append(batch.x.flatten(1).tolist())
    for repeat, streams in enumerate((Streams(0), Streams(1))):
        for name in ("train", "search"):
            x = problem.data[name].x.flatten()
            order = torch.randperm(len(x), generator=streams["data"]).split(4)
            expected = [x[order[step % len(order)]].tolist() for step in range(6)]
            assert [found[repeat] for found in seen[name]] == expected


def test_a_longer_feed_is_not_finished(line):
    problem = problem_of(line, Lines())
    batches = Batches(problem, {"search": FeedSpec("search", 4), "train": FeedSpec("train", 4)})
    assert len(batches.counts) == 4


def test_several_batches_per_step(line):
    """A feed of two batches per step takes both from one order, and begins again as a whole."""
    problem = problem_of(line, Lines())
    batches = Batches(problem, {"train": FeedSpec("train", 4), "search": FeedSpec("search", 3, count=2)})
    assert len(batches.counts) == 6
    batches.shuffle([Streams(0)])
    found = [[batch.x[0].flatten().tolist() for batch in batches.every(step)["search"]] for step in range(3)]
    assert found[0] == found[2] != found[1]
    assert len({value for both in found[:2] for one in both for value in one}) == 12


def test_a_feed_longer_than_its_split(line):
    with pytest.raises(PolyarchError, match="lower batch_size"):
        Batches(problem_of(line, Lines()), {"train": FeedSpec("train", 4), "search": FeedSpec("search", 9, count=2)})


def test_batches_are_no_larger_than_the_smaller_split(line):
    problem = problem_of(line, Lines())
    assert {spec.size for spec in Parsec(batch_size=512).feeds(problem).values()} == {16}
