"""The steps that DARTS and its relatives share, against plain torch on a network small enough to write down."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call

import polyarch as pa
from polyarch import PolyarchError
from polyarch.core import Feed, Problem, gradients
from polyarch.data.task import Split
from polyarch.distributions import Categorical
from polyarch.distributions.categorical import pad
from polyarch.methods import Darts, Drnas, Gdas
from polyarch.spaces import ModuleSpace
from polyarch.streams import Streams
from polyarch.training.augment import Augment
from polyarch.training.dry_run import one_step
from polyarch.training.hypergradients import mixed_product
from polyarch.training.loop import Batches, Loop, Progress
from polyarch.trees import tree_map

CELLS = pa.spaces.NasBench201(channels=2, cells=1)


class Small(nn.Module):
    """Two open places with two and three options, and batch norm."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(3, 4)
        self.first = pa.Choice("first", {"bias": nn.Linear(4, 4), "no-bias": nn.Linear(4, 4, bias=False)})
        self.norm = nn.BatchNorm1d(4)
        self.second = pa.Choice("second", {"tanh": nn.Tanh(), "skip": nn.Identity(), "linear": nn.Linear(4, 4)})
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        return self.head(self.second(self.norm(self.first(self.stem(x)))))


SMALL = ModuleSpace(Small)


def loss_by_hand(weights, alpha, x, y):
    """The mean loss of `Small` in training, mixed by the softmax of alpha; weights by their names in `Small`."""

    def linear(name, value):
        return F.linear(value, weights[f"{name}.weight"], weights.get(f"{name}.bias"))

    p, q = alpha[0, :2].softmax(-1), alpha[1].softmax(-1)
    value = linear("stem", x)
    value = p[0] * linear("first.options.0", value) + p[1] * linear("first.options.1", value)
    value = F.batch_norm(value, None, None, weights["norm.weight"], weights["norm.bias"], training=True)
    value = q[0] * value.tanh() + q[1] * value + q[2] * linear("second.options.2", value)
    return F.cross_entropy(linear("head", value), y)


@pytest.fixture(scope="module")
def vectors(tmp_path_factory):
    """Forty points of three classes, 24 of them to train on and 16 to judge architectures by."""
    folder, random = tmp_path_factory.mktemp("vectors"), np.random.default_rng(0)
    x = random.normal(size=(40, 3)).astype(np.float32)
    np.savez(folder / "vectors.npz", x=x, y=(x @ random.normal(size=(3, 3))).argmax(-1))
    return pa.data.load(folder / "vectors.npz", select=0.4, test=0)


def prepared(method, task, space=SMALL, repeats=1, prior=None, dtype=torch.float64):
    """A problem in double precision, a state that a few steps could have left, and the feed of a step."""
    splits = task.learning_data()
    problem = Problem(
        space,
        space.supernet(task.shape, repeats).to(dtype),
        task.likelihood,
        prior or pa.distributions.uniform(space.decisions),
        {name: Split(task.preprocess(split.x).to(dtype), split.y) for name, split in splits.items()},
        black=torch.tensor(-2.0),
    )
    streams = [Streams(k) for k in range(repeats)]
    state = method.init(problem, streams, None)
    for group in (state.belief, state.optimiser, state.scratch):
        group.update({name: value.detach().to(dtype) for name, value in group.items()})
    for value in state.belief.values():
        value.normal_(generator=streams[0]["noise"]).requires_grad_()
    batches = Batches(problem, method.feeds(problem))
    batches.shuffle(streams)
    drawn = tree_map(lambda *values: torch.stack(values), *(method.draw(problem, s) for s in streams))
    batches.draws(drawn)
    assert set(drawn) <= set(batches.names), "all of it belongs to a batch"
    schedule = {name: torch.tensor(value, dtype=dtype) for name, value in method.schedule(0).items()}
    return problem, state, Feed(batches.every(0), {}, schedule)


def roll(state):
    """Momentum as if steps had been made."""
    generator = torch.Generator().manual_seed(5)
    for name, value in state.optimiser.items():
        if name.startswith("weights."):
            value.normal_(0, 0.3, generator=generator)


class ByHand:
    """One repeat, trained by torch's own optimisers."""

    def __init__(self, method, state, repeat):
        names = {name: name.removeprefix("network.") for name in state.weights}
        self.weights = {own: state.weights[n][repeat].detach().clone().requires_grad_() for n, own in names.items()}
        self.alpha = state.belief["alpha"][repeat].detach().clone().requires_grad_()
        own = method.weights
        self.clip = own.grad_clip
        self.sgd = torch.optim.SGD(
            self.weights.values(),
            lr=own.lr,
            momentum=own.momentum,
            nesterov=own.nesterov,
            weight_decay=own.weight_decay,
        )
        for n, own in names.items():
            self.sgd.state[self.weights[own]]["momentum_buffer"] = state.optimiser[f"weights.{n}"][repeat].clone()
        arch = method.arch
        self.adam = torch.optim.Adam([self.alpha], lr=arch.lr, betas=(0.5, 0.999), weight_decay=arch.weight_decay)

    def loss(self, batch):
        return loss_by_hand(self.weights, self.alpha, *batch)

    def slope(self, batch):
        """Of the loss in alpha, everything else fixed."""
        return torch.autograd.grad(self.loss(batch), self.alpha)[0]

    def move_belief(self, gradient):
        self.alpha.grad = gradient
        self.adam.step()

    def train(self, batch):
        found = torch.autograd.grad(self.loss(batch), list(self.weights.values()))
        for weight, gradient in zip(self.weights.values(), found, strict=True):
            weight.grad = gradient
        nn.utils.clip_grad_norm_(self.weights.values(), self.clip)
        self.sgd.step()

    def kept(self):
        """Copies of the weights, and of their momentum."""
        momenta = [self.sgd.state[weight]["momentum_buffer"] for weight in self.weights.values()]
        return [value.detach().clone() for value in self.weights.values()], [value.clone() for value in momenta]

    @torch.no_grad()
    def put_back(self, weights, momenta=()):
        for weight, value in zip(self.weights.values(), weights, strict=True):
            weight.copy_(value)
        for weight, value in zip(self.weights.values(), momenta, strict=False):
            self.sgd.state[weight]["momentum_buffer"].copy_(value)

    def agrees_with(self, state, repeat):
        assert torch.allclose(state.belief["alpha"][repeat], self.alpha, atol=1e-7)
        for name, value in self.weights.items():
            assert torch.allclose(state.weights[f"network.{name}"][repeat], value, atol=1e-7), name
            momentum = self.sgd.state[value]["momentum_buffer"]
            assert torch.allclose(state.optimiser[f"weights.network.{name}"][repeat], momentum, atol=1e-7), name


def of_repeat(batches, repeat):
    return [(batch.x[repeat], batch.y[repeat]) for batch in batches]


def found_slopes(state):
    """The gradient that Adam was given at its first step, of which it keeps half."""
    return 2 * state.optimiser["belief.alpha.first"]


# ---------------------------------------------------------------------------------------------------------------------
# One validation batch.


@pytest.mark.parametrize("settings", [{"grad_clip": 0.5}, {"nesterov": True, "weight_decay": 0.1}])
def test_first_order_belief_moves_first_and_weights_see_it(vectors, settings):
    """Three steps of both optimisers; a rate of belief at which it matters which is first."""
    method = Darts(batch_size=8, arch={"lr": 0.3}, weights={"lr": 0.2, **settings})
    problem, state, feed = prepared(method, vectors, repeats=2)
    hands = [ByHand(method, state, repeat) for repeat in range(2)]
    for _ in range(3):
        info = one_step(method, problem, state, feed)
        for repeat, hand in enumerate(hands):
            [train], [search] = (of_repeat(feed.batches[name], repeat) for name in ("train", "search"))
            judged = hand.loss(search)
            hand.move_belief(hand.slope(search))
            fit = hand.loss(train)
            hand.train(train)
            hand.agrees_with(state, repeat)
            assert info.metrics["search_log_likelihood"][repeat].item() == pytest.approx(-judged.item())
            assert info.metrics["log_likelihood"][repeat].item() == pytest.approx(-fit.item())
    assert (info.forward, info.backward) == (16, 16)


def unrolled_exactly(hand, train, search):
    """The validation loss after a look-ahead, differentiated through it: with momentum and weight decay."""
    group = hand.sgd.param_groups[0]
    slopes = torch.autograd.grad(hand.loss(train), list(hand.weights.values()), create_graph=True)
    ahead = {}
    for (name, weight), slope in zip(hand.weights.items(), slopes, strict=True):
        momentum = group["momentum"] * hand.sgd.state[weight]["momentum_buffer"]
        ahead[name] = weight - group["lr"] * (momentum + slope + group["weight_decay"] * weight)
    return torch.autograd.grad(loss_by_hand(ahead, hand.alpha, *search), hand.alpha)[0]


@pytest.mark.parametrize(("order", "off", "passes"), [("second", 1e-3, (5, 5)), ("exact", 1e-5, (4, 6))])
def test_second_order_agrees_with_exact_differentiation(vectors, order, off, passes):
    method = Darts(
        objective={"order": order},
        batch_size=8,
        weights={"lr": 0.05, "weight_decay": 0.05},
        arch={"weight_decay": 0.0},
    )
    problem, state, feed = prepared(method, vectors, repeats=2)
    roll(state)
    hands = [ByHand(method, state, repeat) for repeat in range(2)]
    info = one_step(method, problem, state, feed)
    for repeat, hand in enumerate(hands):
        [train], [search] = (of_repeat(feed.batches[name], repeat) for name in ("train", "search"))
        exact, first = unrolled_exactly(hand, train, search), hand.slope(search)
        assert (found_slopes(state)[repeat] - exact).norm() < off * exact.norm()
        assert (first - exact).norm() > 0.1 * exact.norm(), "else this would show nothing"
    assert (info.forward, info.backward) == (8 * passes[0], 8 * passes[1])


def test_the_published_difference_is_off_across_kinks(images):
    """Cells have ReLU: the exact product is what differentiating through the step gives, the difference is not."""
    found, still = {}, {"momentum": 0.0, "weight_decay": 0.0}
    for order in ("second", "exact"):
        method = Darts(objective={"order": order}, batch_size=8, weights=still)
        problem, state, feed = prepared(method, images, CELLS)
        problem.supernet.train()
        [train], [search] = feed.batches["train"], feed.batches["search"]
        [found[order]], _ = method._second_order(problem, state, feed, train, search, 0)

    def loss(weights, batch):
        view = method.mixture(CELLS, state.belief, {}, feed.schedule)
        return -problem.log_likelihood(functional_call(problem.supernet, weights, (batch.x, view)), batch).sum()

    alpha = state.belief["alpha"]
    slopes = torch.autograd.grad(loss(state.weights, train), list(state.weights.values()), create_graph=True)
    lr = feed.schedule["weights.lr"]
    ahead = {name: w - lr * slope for (name, w), slope in zip(state.weights.items(), slopes, strict=True)}
    [wanted] = torch.autograd.grad(loss(ahead, search), alpha)
    [direct] = torch.autograd.grad(loss({name: w.detach() for name, w in ahead.items()}, search), alpha)
    mixed = (wanted - direct).norm()
    assert (found["exact"] - wanted).norm() < 1e-8 * mixed
    assert (found["second"] - wanted).norm() > 0.5 * mixed


@pytest.mark.parametrize("order", ["second", "exact"])
def test_second_order_leaves_no_trace(vectors, order):
    """Weights, statistics and momentum are, bit by bit, those of one training step under the new belief."""
    method = Darts(objective={"order": order}, batch_size=8, weights={"lr": 0.3}, arch={"lr": 0.1})
    problem, state, feed = prepared(method, vectors, repeats=2)
    roll(state)
    copied, kept = copy.deepcopy((problem, state))
    kept.weights, kept.buffers = dict(copied.supernet.named_parameters()), dict(copied.supernet.named_buffers())
    one_step(method, problem, state, feed)

    copied.supernet.train()
    [batch] = feed.batches["train"]
    view = method.mixture(SMALL, state.belief, {}, feed.schedule)
    fit = -copied.log_likelihood(copied.supernet(batch.x, view), batch)
    method.weights.step(kept, gradients(fit, list(kept.weights.values())), feed.schedule["weights.lr"])
    expected = {name: value for name, value in kept.tensors().items() if "belief" not in name}
    assert any(name.startswith("buffers/") and "running_mean" in name for name in expected)
    for name, value in expected.items():
        assert torch.equal(state.tensors()[name], value), name


@pytest.mark.parametrize("scale", [0.0, 1e-25, 1.0])
def test_the_mixed_product_of_any_direction(scale):
    """Of L = a sum w^3, d2L / da dw times v is 3 sum w^2 v; no direction, however short, gives what is no number."""
    weights = [torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([5.0, 6.0])]
    direction = [scale * torch.tensor([[1.0, -1.0], [2.0, 0.5]]), scale * torch.tensor([3.0, -2.0])]

    def belief_gradients():
        return [weights[0].pow(3).sum(1) + weights[1].pow(3)]

    [found] = mixed_product(belief_gradients, weights, direction)
    exact = scale * 3 * torch.tensor([1.0 - 4 + 75, 18.0 + 8 - 72])
    assert torch.allclose(found, exact, rtol=1e-2, atol=1e-6)


# ---------------------------------------------------------------------------------------------------------------------
# Roll-outs.


def test_sotl_of_one_step_is_the_training_loss(vectors):
    method = Darts(objective={"loss": "sotl", "steps": 1}, batch_size=8, arch={"weight_decay": 0.0})
    problem, state, feed = prepared(method, vectors)
    hand = ByHand(method, state, 0)
    one_step(method, problem, state, feed)
    [train] = of_repeat(feed.batches["train"], 0)
    assert torch.allclose(found_slopes(state)[0], hand.slope(train), atol=1e-10)


@pytest.mark.parametrize("objective", ["sotl", "sovl"])
@pytest.mark.parametrize("restore", ["weights", "all"])
def test_a_roll_out_is_undone_and_made_again(vectors, objective, restore):
    """Algorithm 3, twice: slopes are summed over three steps, and the same steps are then made under the new belief."""
    method = Darts(
        objective={"loss": objective, "steps": 3, "restore": restore},
        batch_size=8,
        weights={"lr": 0.2},
        arch={"lr": 0.3, "weight_decay": 0.0},
    )
    problem, state, feed = prepared(method, vectors, repeats=2)
    roll(state)
    hands = [ByHand(method, state, repeat) for repeat in range(2)]
    for again in range(2):
        info = one_step(method, problem, state, feed)
        for repeat, hand in enumerate(hands):
            train = of_repeat(feed.batches["train"], repeat)
            search = of_repeat(feed.batches.get("search", ()), repeat)
            kept, slopes, fits = hand.kept(), [], []
            for k, batch in enumerate(train):
                if objective == "sotl":
                    slopes.append(hand.slope(batch))
                hand.train(batch)
                if objective == "sovl":
                    slopes.append(hand.slope(search[k % 2]))  # 16 examples are two batches: the third is the first
            hand.put_back(*kept if restore == "all" else kept[:1])
            summed = torch.stack(slopes).sum(0)
            if not again:
                assert torch.allclose(found_slopes(state)[repeat], summed, atol=1e-9), "a sum, not a mean"
            hand.move_belief(summed)
            for batch in train:
                fits.append(-hand.loss(batch).item())
                hand.train(batch)
            hand.agrees_with(state, repeat)
            assert info.metrics["log_likelihood"][repeat].item() == pytest.approx(sum(fits) / 3)
    passes = {"sotl": 2, "sovl": 3}[objective]
    assert (info.forward, info.backward) == (8 * 3 * passes, 8 * 3 * passes)


def test_statistics_are_put_back_too(vectors):
    """After a step they are those of T training passes under the new belief, and not of twice as many."""
    method = Darts(objective={"loss": "sotl", "steps": 3}, batch_size=8, arch={"lr": 0.3})
    problem, state, feed = prepared(method, vectors)
    one_step(method, problem, state, feed)
    assert state.buffers["network.norm.num_batches_tracked"].tolist() == [3]


def said(caplog):
    """What was logged since it was last asked for."""
    messages = caplog.messages.copy()
    caplog.clear()
    return messages


def test_a_roll_out_longer_than_an_epoch(vectors, caplog):
    method = Darts(objective={"loss": "sotl", "steps": 5}, batch_size=8)
    _, _, feed = prepared(method, vectors)
    assert len(feed.batches["train"]) == 3
    assert said(caplog) == ["an epoch has 3 batches: its last roll-out has 3 steps, not 5"]
    prepared(replace(method, objective=replace(method.objective, steps=3)), vectors)
    prepared(Darts(batch_size=8), vectors)
    assert said(caplog) == []


def test_the_last_roll_out_takes_what_is_left_of_an_epoch(vectors, caplog):
    """Three batches per epoch with T = 2: one roll-out of two steps and one of one, as by hand."""
    method = Darts(
        objective={"loss": "sotl", "steps": 2}, batch_size=8, epochs=1, arch={"lr": 0.3}, weights={"lr": 0.2}
    )
    problem, state, _ = prepared(method, vectors)
    hand = ByHand(method, state, 0)
    streams = [Streams(3)]
    loop = Loop(method, problem, state, streams, Progress(), 1)
    assert loop.batches.counts == [2, 1]
    order = torch.randperm(24, generator=Streams(3)["data"]).reshape(3, 8)
    train = problem.data["train"]
    steps = [(train.x[rows], train.y[rows]) for rows in order]
    line = loop.epoch()
    fits = []
    for roll_out in (steps[:2], steps[2:]):
        before, _ = hand.kept()
        slopes = []
        for batch in roll_out:
            slopes.append(hand.slope(batch))
            hand.train(batch)
        hand.put_back(before)
        hand.move_belief(sum(slopes))
        for batch in roll_out:
            fits.append(-hand.loss(batch).item())
            hand.train(batch)
    hand.agrees_with(state, 0)
    assert line["step"]["log_likelihood"][0] == pytest.approx(sum(fits) / 3), "a mean over batches, not roll-outs"
    assert line["forward"] == 2 * 24
    assert said(caplog) == ["an epoch has 3 batches: its last roll-out has 1 steps, not 2"]


def test_belief_rests_while_weights_are_trained_alone(vectors):
    for objective in ("valid", "sotl", "sovl"):
        method = Darts(
            objective={"loss": objective, "steps": 2}, batch_size=8, epochs=2, warmup_epochs=1, arch={"lr": 0.3}
        )
        problem, state, _ = prepared(method, vectors)
        loop = Loop(method, problem, state, [Streams(0)], Progress(), 2)
        before = {name: value.detach().clone() for name, value in state.tensors().items()}
        line = loop.epoch()
        for name, value in state.tensors().items():
            moves = name.startswith(("weights/", "buffers/", "optimiser/weights."))
            assert moves or torch.equal(value, before[name]), "belief and its optimiser have not begun"
        assert not torch.equal(state.weights["network.head.weight"], before["weights/network.head.weight"])
        assert line["forward"] == 24, "and no validation batch is passed"
        loop.epoch()
        assert not torch.equal(state.belief["alpha"], before["belief/alpha"])


@pytest.mark.parametrize("nesterov", [False, True])
def test_the_exact_gradient_is_that_of_the_sum_of_losses(vectors, nesterov):
    """Against central differences of T steps of torch's own SGD, with momentum and decay."""
    method = Darts(
        batch_size=8,
        weights={"lr": 0.2, "weight_decay": 0.05, "nesterov": nesterov, "grad_clip": 0.0},
        arch={"weight_decay": 0.0},
        objective={"loss": "sotl", "order": "exact", "steps": 3},
    )
    problem, state, feed = prepared(method, vectors, repeats=2)
    roll(state)
    hands = [ByHand(method, state, repeat) for repeat in range(2)]
    one_step(method, problem, state, feed)
    for repeat, hand in enumerate(hands):
        hand.clip = torch.inf
        batches, kept = of_repeat(feed.batches["train"], repeat), hand.kept()

        def summed(alpha, hand=hand, batches=batches, kept=kept):
            hand.put_back(*kept)
            hand.alpha.data.copy_(alpha)
            total = 0.0
            for batch in batches:
                total += hand.loss(batch).item()
                hand.train(batch)
            return total

        alpha, exact = hand.alpha.detach().clone(), torch.zeros(2, 3, dtype=torch.float64)
        for place in ((0, 0), (0, 1), (1, 0), (1, 1), (1, 2)):
            step = torch.zeros_like(alpha)
            step[place] = 1e-5
            exact[place] = (summed(alpha + step) - summed(alpha - step)) / 2e-5
        assert torch.allclose(found_slopes(state)[repeat], exact, rtol=1e-4, atol=1e-7)
    method = replace(method, objective=replace(method.objective, order="first"))
    problem, state, feed = prepared(method, vectors, repeats=2)
    roll(state)
    one_step(method, problem, state, feed)
    assert not torch.allclose(found_slopes(state)[1], exact, rtol=0.05), "the first order is not exact"


def test_it_is_said_once(tmp_path, vectors, caplog):
    method = Darts(objective={"loss": "sotl", "steps": 5}, batch_size=8, epochs=2)
    pa.search(SMALL, vectors, method, out=tmp_path / "run", repeats=2)
    assert sum("last roll-out has 3 steps" in message for message in said(caplog)) == 1


# ---------------------------------------------------------------------------------------------------------------------
# The prior.

PEAKED = Categorical(SMALL.decisions, pad([torch.tensor([0.0, 3.0]), torch.tensor([0.0, 1.0, -2.0])]))


@pytest.mark.parametrize(
    ("settings", "share"),
    [
        ({}, 1 / 16),
        ({"order": "second"}, 1 / 16),
        ({"order": "exact"}, 1 / 16),
        ({"loss": "sotl", "steps": 3}, 3 / 24),
        ({"loss": "sovl", "steps": 3}, 3 / 16),
    ],
)
def test_what_a_prior_adds(vectors, settings, share):
    """Its expected logarithm, spread over the examples that judge; a uniform one nothing."""
    method = Darts(objective=settings, batch_size=8, arch={"weight_decay": 0.0})
    slopes = []
    for prior in (None, PEAKED):
        problem, state, feed = prepared(method, vectors, prior=prior)
        alpha = state.belief["alpha"][0].detach().clone().requires_grad_()
        one_step(method, problem, state, feed)
        slopes.append(found_slopes(state)[0])
    table = PEAKED.log_probs.double()
    expected = (alpha[0, :2].softmax(-1) * table[0, :2]).sum() + (alpha[1].softmax(-1) * table[1]).sum()
    [slope] = torch.autograd.grad(-expected * share, alpha)
    assert torch.allclose(slopes[1] - slopes[0], slope, atol=1e-7)
    assert slope.norm() > 1e-3


@pytest.mark.parametrize("kind", [Darts, Gdas, Drnas])
def test_a_peaked_prior_pulls_belief(tmp_path, images, kind):
    prior = Categorical(CELLS.decisions, torch.tensor([0.0, 0.0, 0.0, 300.0, 0.0]).repeat(6, 1))
    run = pa.search(
        CELLS, images, kind(epochs=3, batch_size=8, arch={"lr": 0.1}), out=tmp_path / "run", start=pa.Start(prior=prior)
    )
    assert run.architecture.choices == (3,) * 6, "one of 15,625"


def test_no_prior_where_architectures_are_read_out(tmp_path, images):
    space = pa.spaces.Darts(channels=2, layers=3)
    with pytest.raises(PolyarchError, match="leave the prior uniform, or use parsec") as error:
        pa.search(space, images, Darts(), out=tmp_path / "run", start=pa.Start(prior="exponential"))
    assert "\n" not in str(error.value)
    assert not (tmp_path / "run").exists()


# ---------------------------------------------------------------------------------------------------------------------
# Augmentation.


@pytest.mark.parametrize("objective", [{}, {"loss": "sotl", "steps": 3}, {"loss": "sovl", "steps": 3}])
def test_every_batch_is_changed_by_its_own_draws(images, objective):
    """A step is one without augmentation on images that were changed before."""
    plain = Darts(batch_size=8, objective=objective)
    augment = Augment(crop=1, flip=True, cutout=2)
    method = replace(plain, augment=augment)
    problem, state, feed = prepared(method, images, CELLS, repeats=2)
    every = [batch for batches in feed.batches.values() for batch in batches]
    assert all(batch.draws["augment"].keys() == {"crop", "flip", "cutout"} for batch in every)
    crops = {str(batch.draws["augment"]["crop"].tolist()) for batch in every}
    assert len(crops) == len(every), "no two batches are changed alike"

    changed = {}
    for name, batches in feed.batches.items():
        images_of = [augment.apply(batch.x, batch.draws["augment"], problem.black) for batch in batches]
        assert not any(torch.equal(x, batch.x) for x, batch in zip(images_of, batches, strict=True))
        changed[name] = [replace(batch, x=x) for x, batch in zip(images_of, batches, strict=True)]
    other, expected, _ = prepared(plain, images, CELLS, repeats=2)
    one_step(plain, other, expected, replace(feed, batches=changed))
    one_step(method, problem, state, feed)
    for name, value in expected.tensors().items():
        assert torch.equal(state.tensors()[name], value), name


def test_vectors_cannot_be_mirrored(tmp_path, vectors):
    with pytest.raises(PolyarchError, match="augmentation needs images"):
        pa.search(SMALL, vectors, Darts(augment={"flip": True}), out=tmp_path / "run")


# ---------------------------------------------------------------------------------------------------------------------
# Settings and data that do not go.


@pytest.mark.parametrize("kind", [Darts, Gdas, Drnas])
@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"objective": {"steps": 0}}, "steps is 0"),
        ({"objective": {"loss": "sotl", "order": "second"}}, "order=second is not for objective.loss=sotl"),
        ({"objective": {"loss": "sovl", "order": "second"}}, "order=second is not for objective.loss=sovl"),
        ({"objective": {"loss": "sovl", "order": "exact"}}, "order=exact is not for objective.loss=sovl"),
        ({"objective": {"loss": "sotl", "order": "exact"}}, "set weights.grad_clip=0"),
        ({"warmup_epochs": 5, "epochs": 5}, "warmup_epochs is 5 of 5 epochs"),
        ({"warmup_epochs": -1}, "warmup_epochs is -1"),
        ({"objective": {"loss": "test"}}, "value of .*loss"),
        ({"objective": {"order": "third"}}, "value of .*order"),
        ({"objective": {"restore": "nothing"}}, "value of .*restore"),
        ({"objective": "sotl"}, "objective"),
        ({"arch": {"lr": -0.1}}, "lr is -0.1; it must be at least 0"),
        ({"arch": {"weight_decay": -0.1}}, "weight_decay is -0.1"),
        ({"weights": {"lr": 0.0}}, "lr is 0.0; it must be above 0"),
        ({"weights": {"momentum": 1.0}}, "momentum"),
        ({"weights": {"grad_clip": -1.0}}, "grad_clip is -1.0"),
        ({"augment": {"crop": -1}}, "crop is -1"),
    ],
)
def test_settings_that_make_no_sense(kind, settings, says):
    with pytest.raises(PolyarchError, match=says) as error:
        kind(**settings)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("objective", ["valid", "sovl"])
def test_without_validation_data(tmp_path, image_file, objective):
    task = pa.data.load(image_file, select=0, test=0)
    with pytest.raises(PolyarchError, match="set select"):
        pa.search(CELLS, task, Darts(objective={"loss": objective}), out=tmp_path / "run")
    assert not (tmp_path / "run").exists(), "before any training"


def test_sotl_needs_no_validation_data(tmp_path, image_file):
    task = pa.data.load(image_file, select=0, test=0)
    method = Darts(objective={"loss": "sotl", "steps": 2}, epochs=1, batch_size=20)
    run = pa.search(CELLS, task, method, out=tmp_path / "run")
    assert "select" not in run.history()[0]
    assert run.history()[0]["forward"] == 80, "40 examples, each passed in the roll-out and again"


def test_a_space_without_mixtures(tmp_path, vectors):
    with pytest.raises(PolyarchError, match="'depth' has no mixture of its options"):
        pa.search(pa.spaces.ResidualDepth(max_depth=2, width=4), vectors, Darts(), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
