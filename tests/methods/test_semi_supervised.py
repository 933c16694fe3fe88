"""Few labels: the loss against a plain computation, the weight that rises, what labels may not tell, whole runs."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import polyarch as pa
from polyarch import PolyarchError
from polyarch.core import Problem
from polyarch.data.task import Split
from polyarch.methods import SemiSupervised, StochasticArchitectures
from polyarch.runs.run import WEIGHTS, read_history
from polyarch.spaces import PerExample, Wiring
from polyarch.streams import Streams
from polyarch.testing.toy import Lines
from polyarch.training import checkpoints
from polyarch.training.dry_run import prepare

SMALL = {"stages": 2, "nodes": 3, "channels": 2}
LISTED = Wiring(**SMALL, listed=3)
QUICK = {"epochs": 2, "batch_size": 8}
LABELLED, UNLABELLED, CLASSES = 4, 4, 3
BLACK = -1.5


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    path, random = tmp_path_factory.mktemp("images") / "images.npz", np.random.default_rng(0)
    np.savez(path, x=random.integers(0, 256, (48, 1, 6, 6), np.uint8), y=np.arange(48) % 3)
    return pa.data.load(path, select=0.25, test=0, labels=12)


def of(images, method, space, repeats=1):
    """A first step's problem, state and feed, with other examples in the two parts of the training split."""
    resplit = images.resplit(labels=0)
    whole = resplit.seen(resplit.train)
    problem, state, feed = prepare(method, space, images, whole, repeats)
    x, y = whole.x, whole.y
    data = {"train": Split(x[:12], y[:12]), "unlabelled": Split(x[12:], torch.full_like(y[12:], -1))}
    problem = replace(problem, data=data, black=torch.full((1, 1, 1), BLACK))
    batches = {
        name: [replace(given, x=data[name].x[:4].expand(repeats, *[-1] * 4), y=data[name].y[:4].expand(repeats, -1))]
        for name, [given] in feed.batches.items()
    }
    return problem, state, replace(feed, batches=batches)


def drawn(feed, number, name):
    """What was drawn for a pass of a batch, without the axis of repeats: `uniform`, and how images are changed."""
    own = feed.batches[name][0].draws[str(number)]
    return {"uniform": own["uniform"][0]} | {what: value[0] for what, value in own["augment"].items()}


# ---------------------------------------------------------------------------------------------------------------------
# The loss.


def changed(image, crop, flip):
    """One image [1, 6, 6], cut out of a black frame of one pixel and then mirrored."""
    row, column = crop.tolist()
    framed = np.pad(image, ((0, 0), (1, 1), (1, 1)), constant_values=BLACK)
    cut = framed[:, row : row + 6, column : column + 6]
    return cut[:, :, ::-1] if flip else cut


def seen(feed, number, names):
    """What a pass sees of the only repeat, image by image: [1, examples, 1, 6, 6]."""
    found = []
    for name in names:
        crops, flips = (drawn(feed, number, name)[what] for what in ("crop", "flip"))
        found += [changed(*parts) for parts in zip(feed.batches[name][0].x[0].numpy(), crops, flips, strict=True)]
    return torch.from_numpy(np.stack(found))[None]


def wirings(feed, number, names, space):
    """Of three listed wirings, which one a number between 0 and 1 means: [1, examples, decisions]."""
    numbers = torch.cat([drawn(feed, number, name)["uniform"][:, 0] for name in names])
    return torch.tensor([space.members[int(3 * n)].choices for n in numbers.tolist()])[None]


def trained_by_hand(images, method, steps):
    """Weights and statistics after some steps with torch's own optimiser and losses."""
    problem, state, feed = of(images, method, LISTED)
    network, labels = problem.supernet.train(), feed.batches["train"][0].y[0]
    optimiser = torch.optim.SGD(network.parameters(), 0.1, momentum=0.9, nesterov=True, weight_decay=5e-4)
    names = ("train", "unlabelled") if method.consistency else ("train",)

    def logits(number):
        return network(seen(feed, number, names), PerExample(wirings(feed, number, names, LISTED)))[0]

    half = method.epochs * (24 // UNLABELLED) / 2
    for step in range(steps):
        first = logits(0)
        loss = F.cross_entropy(first[:LABELLED], labels)
        if method.consistency:
            with torch.no_grad():
                second = logits(1)
            rising = np.exp(-5 * (1 - min(1, step / half)) ** 2)
            distance = ((first - second) ** 2).sum() / (CLASSES * (LABELLED + UNLABELLED))
            loss = loss + method.consistency * rising * distance
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return {name: value for name, value in state.tensors().items() if name.startswith(("weights/", "buffers/"))}


@pytest.mark.parametrize("consistency", [20.0, 0.0])
def test_steps_are_those_of_a_plain_computation(images, consistency):
    method = SemiSupervised(consistency=consistency, epochs=1, batch_size=8, augment={"crop": 1, "flip": True})
    expected = trained_by_hand(images, method, 5)
    problem, state, feed = of(images, method, LISTED)
    for _ in range(5):  # the weight rises for three of them
        info = method.step(problem, state, feed)
    found = state.tensors()
    for name, value in expected.items():
        assert torch.allclose(found[name].double(), value.detach().double(), atol=2e-6), name
    passes = {20.0: (16, 8), 0.0: (4, 4)}
    assert (info.forward, info.backward) == passes[consistency]


def test_both_passes_have_draws_of_their_own(images):
    *_, feed = of(images, SemiSupervised(**QUICK, augment={"crop": 1}), LISTED)
    for name, what in product(("train", "unlabelled"), ("uniform", "crop")):
        assert not torch.equal(*(drawn(feed, number, name)[what] for number in (0, 1)))
    *_, alone = of(images, SemiSupervised(**QUICK, augment={"crop": 1}, consistency=0.0), LISTED)
    assert [list(batch.draws) for [batch] in alone.batches.values()] == [["0"], ["0"]]


def test_one_architecture_differs_from_itself_by_dropout_and_changed_images_alone(images):
    """The Pi-model."""
    distances = {}
    for name, space, settings in (
        ("nothing", Wiring(**SMALL, listed=1), {}),
        ("images", Wiring(**SMALL, listed=1), {"augment": {"crop": 1}}),
        ("dropout", Wiring(**SMALL, listed=1, dropout=0.5), {}),
        ("architectures", LISTED, {}),
    ):
        method = SemiSupervised(**QUICK, **settings)
        problem, state, feed = of(images, method, space)
        problem.supernet.draw_from([Streams(0)["noise"]])
        distances[name] = method.step(problem, state, feed).metrics["distance"].item()
    assert distances.pop("nothing") == 0
    assert min(distances.values()) > 1e-6


# ---------------------------------------------------------------------------------------------------------------------
# What changes while it trains.


def test_the_weight_rises_for_half_of_all_steps():
    method = SemiSupervised()
    part = torch.zeros(46_000, 1)
    data = {"train": Split(part[:4000], part[:4000, 0]), "unlabelled": Split(part, part[:, 0])}
    problem = Problem(None, None, None, None, data)
    steps = torch.tensor([0.0, 718 * 25, 718 * 50, 718 * 50 + 1, 718 * 100 - 1], dtype=torch.float64)
    expected = [20 * np.exp(-5), 20 * np.exp(-1.25), 20, 20, 20]
    assert method.weight(problem, steps).tolist() == pytest.approx(expected)


def test_a_run_counts_its_steps(tmp_path, images):
    method = SemiSupervised(epochs=3, batch_size=16)
    pa.search(LISTED, images, method, out=tmp_path / "run", compute=pa.Compute("cpu"))
    told = [line["step"]["consistency_weight"] for line in read_history(tmp_path / "run")]
    rising = [20 * np.exp(-5 * (1 - min(1, step / 4.5)) ** 2) for step in range(9)]  # 24 // 8 steps per epoch
    assert told == pytest.approx(np.reshape(rising, (3, 3)).mean(1), rel=1e-5)


def test_the_rate_falls_as_in_the_released_code():
    rates = [SemiSupervised().schedule(epoch)["weights.lr"] for epoch in range(100)]
    assert [epoch for epoch in range(1, 100) if rates[epoch] < rates[epoch - 1]] == [40, 80]
    assert rates[-1] == pytest.approx(0.1 * 0.2**2)


def test_half_of_a_batch_is_labelled_unless_there_are_too_few(images):
    problem, _, _ = of(images, SemiSupervised(), LISTED)  # 12 labelled and 24 others
    feeds = [SemiSupervised(batch_size=size).feeds(problem) for size in (8, 9, 30)]
    sizes = [{name: spec.size for name, spec in specs.items()} for specs in feeds]
    assert sizes[0] == {"unlabelled": 4, "train": 4}
    assert sizes[1] == {"unlabelled": 5, "train": 4}
    assert sizes[2] == {"unlabelled": 15, "train": 12}
    assert list(sizes[0]) == ["unlabelled", "train"]  # an epoch is a pass over the first


# ---------------------------------------------------------------------------------------------------------------------
# Whole runs.


def kept(folder):
    """Everything that a run learnt, and what it measured, times aside."""
    tensors, _ = checkpoints.load(folder / WEIGHTS)
    lines = [{name: value for name, value in line.items() if name != "seconds"} for line in read_history(folder)]
    return tensors, lines


def assert_same(one, other):
    (ours, our_lines), (theirs, their_lines) = kept(one), kept(other)
    assert ours.keys() == theirs.keys()
    assert [name for name, value in ours.items() if not torch.equal(value, theirs[name])] == []
    assert our_lines == their_lines


def with_other_hidden_labels(x, y):
    """Data with as many hidden labels changed as leave the splits as they are, and how many that is."""

    def splits(y):
        task = pa.data.load((x, y), select=0.25, test=0, labels=12)
        return [tensor for split in task.splits.values() for tensor in (split.x, split.y)]

    known, changed = splits(y), 0
    for k in range(len(y)):
        other = y.copy()
        other[k] = (y[k] + 1) % CLASSES
        if all(map(torch.equal, splits(other), known)):
            y, changed = other, changed + 1
    return pa.data.load((x, y), select=0.25, test=0, labels=12), changed


@pytest.mark.parametrize("method", [SemiSupervised(**QUICK), StochasticArchitectures(**QUICK)])
def test_hidden_labels_change_nothing(tmp_path, images, method):
    x, y = np.random.default_rng(0).integers(0, 256, (48, 1, 6, 6), np.uint8), np.arange(48) % 3
    other, changed = with_other_hidden_labels(x, y)
    assert changed >= 12
    for name, task in (("one", images), ("other", other)):
        pa.search(LISTED, task, method, out=tmp_path / name, compute=pa.Compute("cpu"))
    assert_same(tmp_path / "one", tmp_path / "other")


def test_other_methods_learn_from_the_labelled_alone(tmp_path, images):
    method = StochasticArchitectures(**QUICK)
    few = replace(images, splits={name: images.splits[name] for name in ("train", "select")})
    pa.search(LISTED, images, method, out=tmp_path / "labels", compute=pa.Compute("cpu"))
    pa.search(LISTED, few, method, out=tmp_path / "few", compute=pa.Compute("cpu"))
    assert_same(tmp_path / "labels", tmp_path / "few")


def test_a_run_finds_its_labels_again(tmp_path, images):
    run = pa.search(LISTED, images, SemiSupervised(**QUICK), out=tmp_path / "run", compute=pa.Compute("cpu"))
    assert run.config.data["source"]["settings"]["labels"] == 12
    assert run.config.data["examples"] == {"train": 12, "select": 12, "unlabelled": 24}
    found = pa.open_run(tmp_path / "run").task().splits
    for name, split in images.splits.items():
        assert torch.equal(found[name].x, split.x)
        assert torch.equal(found[name].y, split.y)


def test_few_labels_and_many_examples_teach_digits(tmp_path):
    task = pa.data.load("digits", labels=100)
    space = Wiring(stages=2, nodes=2, channels=8, listed=3)
    method = SemiSupervised(epochs=4, batch_size=64, augment={"crop": 1})
    run = pa.search(space, task, method, out=tmp_path / "run", compute=pa.Compute("cpu"))
    assert run.result["metrics"]["test"]["accuracy"] > 0.4  # guessing is 0.1; 0.59 was seen


# ---------------------------------------------------------------------------------------------------------------------
# What is refused.


def test_refused(tmp_path, images):
    with pytest.raises(PolyarchError, match=r"needs examples without a label; .* --set labels=N"):
        pa.search(
            LISTED, images.resplit(labels=0), SemiSupervised(**QUICK), out=tmp_path / "run", compute=pa.Compute("cpu")
        )
    assert not (tmp_path / "run").exists()
    with pytest.raises(PolyarchError, match="'lines' run no batch of several; semi-supervised needs another space"):
        prepare(SemiSupervised(**QUICK), Lines(), images, images.seen(images.train), 1)
    for settings in ({"consistency": -1.0}, {"batch_size": 1}):
        with pytest.raises(PolyarchError, match="must be at least"):
            SemiSupervised(**settings)
