"""Fine-tuning against a training loop written by hand, and the scores that are read from it."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import polyarch as pa
from polyarch import PolyarchError
from polyarch.data.likelihood import Classification, Gaussian
from polyarch.data.task import Split, TaskShape
from polyarch.distributions import uniform
from polyarch.scores import (
    Candidate,
    Look,
    Sog,
    Sogn,
    Sotl,
    Tabulated,
    TrainLoss,
    Tuning,
    ValidAccuracy,
    ValidLoss,
    fine_tuned,
    read_together,
)
from polyarch.scores.fine_tuning import tuned_at_once
from polyarch.spaces import NasBench201, Sparse
from polyarch.tables import Table
from polyarch.training.calibration import calibration_batches, recalibrate

SHAPE = TaskShape((1, 6, 6), 3)
SPACE = NasBench201(channels=2, cells=1)
TEXTS = (
    "|nor_conv_3x3~0|+|none~0|skip_connect~1|+|skip_connect~0|nor_conv_1x1~1|avg_pool_3x3~2|",
    "|skip_connect~0|+|nor_conv_1x1~0|none~1|+|nor_conv_3x3~0|none~1|nor_conv_3x3~2|",
)
STEPS, SIZE = 7, 4
SETTINGS = {"steps": STEPS, "batch_size": SIZE, "lr": 0.05}


def examples(count, seed):
    generator = torch.Generator().manual_seed(seed)
    return Split(torch.randn(count, *SHAPE.input, generator=generator), torch.arange(count) % 3)


@pytest.fixture(scope="module")
def candidates():
    supernet = SPACE.supernet(SHAPE)
    supernet.reset_parameters([torch.Generator().manual_seed(0)])
    given = {"likelihood": Classification(3), "train": examples(22, 1), "select": examples(10, 2), "order": 11}
    return [Candidate(SPACE.parse(text), SPACE, SHAPE, supernet, **given) for text in TEXTS]


def batches_by_hand(candidate):
    """Five batches of four an epoch of 22 examples, two of which are left out."""
    generator = torch.Generator().manual_seed(11)
    while True:
        order = torch.randperm(22, generator=generator)
        for k in range(5):
            part = order[4 * k : 4 * k + 4]
            yield candidate.train.x[part], candidate.train.y[part]


def by_hand(candidate, steps=STEPS, lr=0.05):
    """Losses, gradients and the network at the end; momentum SGD spelt out."""
    network = candidate.supernet.extract(candidate.architecture).train()
    weights = list(network.parameters())
    speeds = [torch.zeros_like(w) for w in weights]
    losses, gradients, feed = [], [], batches_by_hand(candidate)
    for _ in range(steps):
        x, y = next(feed)
        loss = F.cross_entropy(network(x), y)
        found = torch.autograd.grad(loss, weights)
        losses.append(loss.item())
        gradients.append(torch.cat([g.flatten().double() for g in found]))
        with torch.no_grad():
            for w, g, v in zip(weights, found, speeds, strict=True):
                v.mul_(0.9).add_(g + 5e-4 * w)
                w.sub_(lr * v)
    return losses, torch.stack(gradients), network


def test_scores_are_those_of_a_training_run_by_hand(candidates):
    wanted = [by_hand(candidate) for candidate in candidates]
    chance = torch.Generator()
    expected = {
        Sotl: [sum(losses) for losses, _, _ in wanted],
        TrainLoss: [losses[-1] for losses, _, _ in wanted],
        Sog: [g.sum(0).abs().sum().item() for _, g, _ in wanted],
        Sogn: [g.abs().sum().item() for _, g, _ in wanted],
    }
    for kind, values in expected.items():
        assert kind(**SETTINGS)(candidates, chance).tolist() == pytest.approx(values, rel=1e-5), kind
    assert not Sotl.larger_is_better
    assert not TrainLoss.larger_is_better


def test_validation_after_fine_tuning(candidates):
    accuracies, losses = [], []
    for candidate in candidates:
        network = by_hand(candidate)[2]
        recalibrate(network, calibration_batches(candidate.train.x, seed=11))
        output = network.eval()(candidate.select.x)
        accuracies.append((output.argmax(-1) == candidate.select.y).double().mean().item())
        losses.append(F.cross_entropy(output, candidate.select.y).item())
    assert ValidAccuracy(**SETTINGS)(candidates, torch.Generator()).tolist() == pytest.approx(accuracies)
    assert ValidLoss(**SETTINGS)(candidates, torch.Generator()).tolist() == pytest.approx(losses, rel=1e-5)


def test_validation_with_the_supernets_weights_as_they_are(candidates):
    valid = candidates[0].select
    part = torch.randperm(10, generator=torch.Generator().manual_seed(11))[:6]
    for kept, x, y in ((0, valid.x, valid.y), (6, valid.x[part], valid.y[part])):
        networks = [c.supernet.extract(c.architecture) for c in candidates]
        wanted = [F.cross_entropy(network(x), y).item() for network in networks]
        found = ValidLoss(examples=kept, recalibrate=False)(candidates, torch.Generator())
        assert found.tolist() == pytest.approx(wanted, rel=1e-5)
    calibrated = ValidLoss()(candidates, torch.Generator())
    assert not torch.allclose(calibrated, ValidLoss(recalibrate=False)(candidates, torch.Generator()))


def test_looks_leave_training_alone(candidates):
    looks = [Look(step, recalibrate=r) for step in (0, 3, STEPS) for r in (True, False)]
    tuning = Tuning(lr=0.05, batch_size=SIZE)
    [plain] = fine_tuned(candidates[:1], STEPS, tuning, torch.Generator())
    [seen] = fine_tuned(candidates[:1], STEPS, tuning, torch.Generator(), looks=looks, gradients=True)
    assert torch.equal(plain.losses, seen.losses)
    assert plain.gradient_norms is None
    assert list(seen.looks) == looks
    network = by_hand(candidates[0], steps=3)[2].eval()
    loss = F.cross_entropy(network(candidates[0].select.x), candidates[0].select.y).item()
    assert seen.looks[Look(3, recalibrate=False)].loss == pytest.approx(loss, rel=1e-5)


def test_a_short_pass_is_the_beginning_of_a_long_one(candidates):
    tuning = Tuning(batch_size=SIZE)
    [long] = fine_tuned(candidates[:1], 9, tuning, torch.Generator(), gradients=True)
    [short] = fine_tuned(candidates[:1], 4, tuning, torch.Generator(), gradients=True)
    for name in ("losses", "gradient_norms", "gradient_sums"):
        assert torch.equal(getattr(long, name)[:4], getattr(short, name)), name


def test_many_scores_are_read_from_one_pass(candidates, monkeypatch):
    same = {"batch_size": SIZE}
    scores = [
        Sotl(steps=5, **same),
        TrainLoss(steps=3, **same),
        Sog(steps=4, **same),
        Sogn(steps=5, **same),
        ValidLoss(**same),
        ValidLoss(steps=2, **same),
        Sotl(steps=5, lr=0.1, **same),
    ]
    alone = [score(candidates, torch.Generator().manual_seed(5)).tolist() for score in scores]
    taken_out = []
    extract = type(candidates[0].supernet).extract

    def counted(supernet, architecture, repeat=0):
        taken_out.append(architecture)
        return extract(supernet, architecture, repeat)

    monkeypatch.setattr(type(candidates[0].supernet), "extract", counted)
    read = read_together(scores, candidates, torch.Generator().manual_seed(5))
    assert [[value for value, _ in row] for row in read] == [list(row) for row in zip(*alone, strict=True)]
    assert len(taken_out) == 2 * len(candidates)  # one pass a candidate and recipe
    assert all(seconds > 0 for row in read for _, seconds in row)


def with_dropout():
    return nn.Sequential(nn.Linear(4, 5), nn.Dropout(0.5), pa.Choice("act", {"relu": nn.ReLU(), "tanh": nn.Tanh()}))


def without_weights():
    return pa.Choice("layer", {"linear": nn.Linear(3, 3), "skip": nn.Identity()})


def test_dropout_draws_from_the_generator_alone():
    space, shape = pa.ModuleSpace(with_dropout), TaskShape((4,), 5)
    supernet = space.supernet(shape)
    supernet.reset_parameters([torch.Generator().manual_seed(0)])
    x = torch.randn(8, 4, generator=torch.Generator().manual_seed(1))
    train = Split(x, torch.arange(8) % 5)
    given = [
        Candidate(a, space, shape, supernet, likelihood=Classification(5), train=train)
        for a in space.decode(torch.tensor([[0], [1]]))
    ]
    score, state = Sotl(steps=3, batch_size=4), torch.get_rng_state()
    zero, again, other = (score(given, torch.Generator().manual_seed(seed)) for seed in (0, 0, 1))
    assert torch.equal(zero, again)
    assert not torch.equal(zero, other)
    assert torch.equal(score(given[1:], torch.Generator().manual_seed(0)), zero[1:])
    assert torch.equal(state, torch.get_rng_state())


def test_fewer_examples_than_a_batch(candidates):
    few = Split(candidates[0].train.x[:3], candidates[0].train.y[:3])
    batches = replace(candidates[0], train=few).batches(64)
    assert {len(next(batches)) for _ in range(3)} == {3}


def test_regression_has_a_loss_and_no_accuracy():
    space = pa.spaces.ResidualDepth(max_depth=2, width=4)
    supernet = space.supernet(TaskShape((2,), 1))
    supernet.reset_parameters([torch.Generator().manual_seed(0)])
    data = Split(torch.randn(6, 2, generator=torch.Generator().manual_seed(0)), torch.linspace(-1, 1, 6))
    given = {"likelihood": Gaussian(scale=0.5), "train": data, "select": data}
    candidate = Candidate(space.parse("depth=2"), space, TaskShape((2,), 1), supernet, **given)
    network = supernet.extract(candidate.architecture)
    wanted = -torch.distributions.Normal(network(data.x).squeeze(-1), 0.5).log_prob(data.y).mean()
    assert ValidLoss(recalibrate=False)([candidate], torch.Generator()).item() == pytest.approx(wanted.item(), rel=1e-5)
    with pytest.raises(PolyarchError, match="valid-accuracy is for classes"):
        ValidAccuracy()([candidate], torch.Generator())


@pytest.mark.parametrize(
    ("kind", "settings", "says"),
    [
        (Sotl, {"steps": 0}, "steps is 0; it must be at least 1"),
        (ValidLoss, {"steps": -1}, "steps is -1; it must be at least 0"),
        (ValidLoss, {"examples": -1}, "examples is -1"),
        (Sotl, {"lr": 0.0}, "lr is 0.0; it must be above 0"),
        (Sotl, {"momentum": 1.0}, "momentum is 1.0; it must be at least 0 and below 1"),
        (Sotl, {"batch_size": 1}, "batch_size is 1; it must be at least 2"),
        (Sog, {"weight_decay": -1.0}, "weight_decay is -1.0"),
        (Sog, {"steps": 1.5}, "whole number"),
    ],
)
def test_settings_that_make_no_sense(kind, settings, says):
    with pytest.raises(PolyarchError, match=says):
        kind(**settings)


def test_a_network_without_weights_learns_nothing():
    space, shape = pa.ModuleSpace(without_weights), TaskShape((3,), 3)
    train = Split(torch.eye(3).repeat(2, 1), torch.arange(3).repeat(2))
    linear, skip = (
        Candidate(space.parse(f"layer={name}"), space, shape, space.supernet(shape), None, Classification(3), train)
        for name in ("linear", "skip")
    )
    loss = F.cross_entropy(train.x, train.y).item()
    for score, wanted in ((Sotl(steps=4), 4 * loss), (TrainLoss(steps=4), loss), (Sog(steps=4), 0), (Sogn(steps=4), 0)):
        assert score([skip], torch.Generator()).item() == pytest.approx(wanted)
        assert score([linear], torch.Generator()).item() != pytest.approx(wanted)
    assert ValidLoss(steps=4)([replace(skip, select=train)], torch.Generator()).item() == pytest.approx(loss)


# ---------------------------------------------------------------------------------------------------------------------
# Tables.


def test_a_table_with_its_sign(candidates):
    columns = {"test_acc": np.array([2.0, 1.0]), "valid_loss": np.array([0.5, 0.25]), "odd": np.array([1.0, 2.0])}
    table = Table("t.npz", {"arch": np.array(TEXTS), **columns})
    given = [Candidate(c.architecture, SPACE, SHAPE, table=table, column="test_acc") for c in reversed(candidates)]
    assert Tabulated()(given, torch.Generator()).tolist() == [1.0, 2.0]
    assert Tabulated(column="valid_loss")(given, torch.Generator()).tolist() == [-0.25, -0.5]
    with pytest.raises(PolyarchError, match="does not say which direction is better"):
        Tabulated(column="odd")(given, torch.Generator())
    with pytest.raises(PolyarchError, match="unknown column"):
        Tabulated(column="test_ac")(given, torch.Generator())


# ---------------------------------------------------------------------------------------------------------------------
# Many at once.


LOOKS = (Look(step=0), Look(step=0, examples=6, recalibrate=False), Look(step=3), Look(step=3, examples=6))


def many(device="cpu"):
    """Candidates of every operation, some of which use no weights but those of the skeleton."""
    supernet, dtype = SPACE.supernet(SHAPE).to(device, torch.float64), torch.float64
    supernet.reset_parameters([torch.Generator().manual_seed(0)])
    with torch.no_grad():
        for _ in range(3):  # statistics that are not those of the start
            supernet.train()(torch.randn(1, 8, *SHAPE.input, dtype=dtype, device=device), Sparse((3, 2, 3, 2, 3, 2)))
    splits = {name: examples(count, seed) for name, count, seed in (("train", 40, 1), ("select", 10, 2))}
    given = {name: Split(s.x.to(device, dtype), s.y.to(device)) for name, s in splits.items()}
    drawn = uniform(SPACE.decisions).sample(6, torch.Generator().manual_seed(3)).tolist()
    cells = [*drawn, [0] * 6, [1] * 6]
    return [
        Candidate(SPACE.architecture(cell), SPACE, SHAPE, supernet, likelihood=Classification(3), order=11, **given)
        for cell in cells
    ]


def alone(candidates, steps, looks):
    tuning = Tuning(lr=0.05, batch_size=SIZE)
    return [fine_tuned([c], steps, tuning, torch.Generator(), looks=looks, gradients=True)[0] for c in candidates]


def check_same(found, wanted, tolerance):
    for curve, own in zip(found, wanted, strict=True):
        for name in ("losses", "gradient_norms", "gradient_sums"):
            if getattr(own, name) is None:
                assert getattr(curve, name) is None
                continue
            assert torch.allclose(getattr(curve, name), getattr(own, name), rtol=tolerance, atol=tolerance), name
        assert curve.looks.keys() == own.looks.keys()
        for look, seen in own.looks.items():
            assert curve.looks[look].loss == pytest.approx(seen.loss, rel=tolerance), look
            assert curve.looks[look].metric == pytest.approx(seen.metric), look
            assert curve.looks[look].seconds > 0


def test_many_at_once_are_what_each_is_alone():
    candidates = many()
    before = {name: value.clone() for name, value in candidates[0].supernet.state_dict().items()}
    found = tuned_at_once(candidates, 5, Tuning(lr=0.05, batch_size=SIZE), LOOKS, True)
    check_same(found, alone(candidates, 5, LOOKS), 1e-9)
    assert all(torch.equal(value, before[name]) for name, value in candidates[0].supernet.state_dict().items())


def test_many_that_are_only_looked_at():
    candidates = many()
    check_same(tuned_at_once(candidates, 0, Tuning(), LOOKS[:2], False), _looked_at(candidates), 1e-9)


def _looked_at(candidates):
    return [fine_tuned([c], 0, Tuning(), torch.Generator(), looks=LOOKS[:2])[0] for c in candidates]


@pytest.mark.cuda
def test_a_gpu_takes_many_at_once(monkeypatch):
    candidates = many("cuda")
    wanted = alone(candidates, 5, LOOKS)
    tuning = Tuning(lr=0.05, batch_size=SIZE)
    called = []

    def limited(some, *given):
        called.append(len(some))
        if len(some) > 4:
            raise torch.OutOfMemoryError
        return tuned_at_once(some, *given)

    monkeypatch.setattr("polyarch.scores.fine_tuning.tuned_at_once", limited)
    found = fine_tuned(candidates, 5, tuning, torch.Generator(), looks=LOOKS, gradients=True)
    assert called == [8, 4, 4]
    check_same(found, wanted, 1e-6)
