"""Training one network is plain training: against torch's own optimisers and modules."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import polyarch as pa
from polyarch import PolyarchError
from polyarch.core import Problem
from polyarch.data.task import Split
from polyarch.methods import FixedDepth, Info, Parsec, Standalone
from polyarch.runs.run import WEIGHTS
from polyarch.runs.search import resume
from polyarch.spaces.choice import DropPath
from polyarch.spaces.darts import Darts
from polyarch.streams import Streams
from polyarch.testing.callbacks import InterruptAfter
from polyarch.training import checkpoints
from polyarch.training.dry_run import prepare
from polyarch.training.loop import Loop, Progress

CELLS = pa.spaces.NasBench201(channels=2, cells=1)
CELL = "|nor_conv_3x3~0|+|nor_conv_3x3~0|avg_pool_3x3~1|+|skip_connect~0|nor_conv_1x1~1|none~2|"
DARTS = Darts(channels=2, layers=3)
NORMAL = [("sep_conv_3x3", 0), ("skip_connect", 1), ("dil_conv_3x3", 0), ("max_pool_3x3", 1)] * 2
REDUCE = [("skip_connect", 0), ("avg_pool_3x3", 1), ("skip_connect", 2), ("sep_conv_3x3", 1)] * 2
GENOTYPE = f"Genotype(normal={NORMAL}, normal_concat=[2, 3, 4, 5], reduce={REDUCE}, reduce_concat=[2, 3, 4, 5])"


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    return image_task(tmp_path_factory.mktemp("images"), classes=3)


def image_task(folder, classes):
    random = np.random.default_rng(0)
    np.savez(folder / "images.npz", x=random.integers(0, 256, (40, 2, 8, 8), np.uint8), y=np.arange(40) % classes)
    return pa.data.load(folder / "images.npz", select=0.25, test=0.15)


def loop_of(method, space, task, dtype=torch.float32):
    """A training of one repeat, from seed 0, and the network as it begins."""
    [stage] = method.stages(space)
    problem = Problem(
        stage.space,
        stage.space.supernet(task.shape),
        task.likelihood,
        pa.distributions.uniform(stage.space.decisions),
        {"train": Split(task.preprocess(task.train.x).to(dtype), task.train.y)},
    )
    problem.supernet.to(dtype)
    streams = [Streams(0)]
    loop = Loop(method, problem, method.init(problem, streams, None), streams, Progress(), method.epochs)
    return loop, extracted(problem)


def extracted(problem):
    return problem.supernet.extract(problem.space.architecture([0] * len(problem.space.decisions)))


# ---------------------------------------------------------------------------------------------------------------------
# Steps.


def test_it_is_a_plain_training_loop(images):
    """Six steps over two epochs, with batch norm, in double precision; written with torch alone."""
    method = Standalone(
        architecture=CELL,
        epochs=2,
        batch_size=8,
        weights={"lr": 0.1, "nesterov": True, "weight_decay": 0.01, "grad_clip": 0.5},
        stopping={"split": "never"},
    )
    loop, network = loop_of(method, CELLS, images, torch.float64)
    assert len(loop.batches.counts) == 3
    optimiser = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, T_max=2)
    x, y, order = loop.problem.data["train"].x, loop.problem.data["train"].y, Streams(0)["data"]
    network.train()
    for _ in range(2):
        clipped = []
        for rows in torch.randperm(len(y), generator=order)[:24].split(8):
            optimiser.zero_grad()
            F.cross_entropy(network(x[rows]), y[rows]).backward()
            clipped.append(torch.nn.utils.clip_grad_norm_(network.parameters(), 0.5) > 0.5)
            optimiser.step()
        assert any(clipped), "clipping must have been tried"
        schedule.step()
        loop.epoch()
    found = extracted(loop.problem).state_dict()
    for name, expected in network.state_dict().items():
        torch.testing.assert_close(found[name], expected, rtol=1e-6, atol=1e-7, msg=lambda text, n=name: f"{n}: {text}")


def test_a_repeat_is_trained_on_its_own(images):
    """Two repeats: each from its own first weights, on its own order of examples."""
    method = Standalone(architecture=CELL, epochs=1, batch_size=8)
    problem, state, feed = prepare(method, CELLS, images, images.seen(images.train), repeats=2)
    before = [problem.supernet.extract(problem.space.architecture([0] * 6), repeat) for repeat in range(2)]
    first = [network.state_dict()["stem.conv.weight"] for network in before]
    assert not torch.equal(*first)
    info = method.step(problem, state, feed)
    [batch] = feed.batches["train"]
    for repeat, network in enumerate(before):
        fit = -F.cross_entropy(network.train()(batch.x[repeat]), batch.y[repeat])
        assert info.metrics["log_likelihood"][repeat].item() == pytest.approx(fit.item(), rel=1e-5)
    assert (info.forward, info.backward) == (8, 8)


def test_the_auxiliary_tower_is_added_by_its_weight(images):
    method = Standalone(
        architecture=GENOTYPE, batch_size=12, weights={"lr": 1.0, "momentum": 0.0, "weight_decay": 0.0}, auxiliary=0.4
    )
    problem, state, feed = prepare(method, DARTS, images, images.seen(images.train), repeats=1)
    network = extracted(problem).train()
    [batch] = feed.batches["train"]
    answer, tower = network(batch.x[0])
    main, aside = (F.cross_entropy(output, batch.y[0]) for output in (answer, tower))
    parameters = dict(network.named_parameters())
    slopes = torch.autograd.grad(main + 0.4 * aside, list(parameters.values()))
    tower_alone = torch.autograd.grad(
        F.cross_entropy(network(batch.x[0])[1], batch.y[0]), [parameters["stem.conv.weight"]]
    )
    assert tower_alone[0].abs().max() > 1e-3, "the tower must reach the stem, or there is nothing to see"
    info = method.step(problem, state, feed)
    assert info.metrics["log_likelihood"].item() == pytest.approx(-main.item(), rel=1e-5)
    for (name, value), slope in zip(parameters.items(), slopes, strict=True):
        moved = state.weights[f"network.{name}"][0]
        assert torch.allclose(moved, value - slope, atol=1e-5), name


# ---------------------------------------------------------------------------------------------------------------------
# Drop path.


def watched(problem, run):
    """The weights [batch] of every place that may be left out, as it was run."""
    seen = {}
    for place in problem.supernet.runner.points.values():
        if isinstance(place, DropPath):
            place.register_forward_hook(lambda own, *_: seen.update({own.name: own.selection}))
    run()
    return {
        name: selection[0, 0] if isinstance(selection, torch.Tensor) else selection for name, selection in seen.items()
    }


def dropping(images, rate, epoch, batch_size=24):
    method = Standalone(architecture=GENOTYPE, epochs=10, batch_size=batch_size, drop_path=rate)
    problem, state, feed = prepare(method, DARTS, images, images.seen(images.train), repeats=1)
    feed.schedule["drop_path"].fill_(method.schedule(epoch)["drop_path"])
    return method, problem, state, feed


def test_every_place_but_an_identity_may_be_left_out(images):
    """Cell 0 is normal, 1 and 2 are reductions, whose skips from the inputs have weights and are left out too."""
    _, problem, _, _ = dropping(images, 0.5, 9)
    expected = set()
    for layer, pairs in enumerate((NORMAL, REDUCE, REDUCE)):
        for slot, (operation, source) in enumerate(pairs):
            if operation != "skip_connect" or (layer > 0 and source < 2):
                expected.add(f"drop.{layer}.{slot // 2}<-{source}")
    assert set(problem.supernet.drop_paths) == expected


def test_what_is_kept_is_scaled_up(images):
    method, problem, state, feed = dropping(images, 0.4, 5)
    assert feed.schedule["drop_path"].item() == pytest.approx(0.2)
    kept = watched(problem, lambda: method.step(problem, state, feed))
    assert kept.keys() == set(problem.supernet.drop_paths)
    weights = torch.stack(list(kept.values()))  # [places, batch]
    assert weights.shape == (len(kept), 24)
    assert {round(value, 4) for value in weights.flatten().tolist()} == {0.0, 1.25}
    assert weights.mean().item() == pytest.approx(1, abs=0.1)
    assert len(set(map(tuple, weights.tolist()))) == len(kept), "every place has a fate of its own"
    assert len(set(map(tuple, weights.T.tolist()))) == 24, "and every example"


def test_the_rate_rises_from_zero(images):
    method, problem, state, feed = dropping(images, 0.4, 0)
    assert [method.schedule(epoch)["drop_path"] for epoch in range(10)] == pytest.approx([0.04 * k for k in range(10)])
    for weights in watched(problem, lambda: method.step(problem, state, feed)).values():
        assert (weights == 1).all()


def test_a_step_with_paths_left_out_is_that_of_the_network_with_zeros_there(images):
    method, problem, state, feed = dropping(images, 0.4, 9)
    method = replace(method, weights={"lr": 0.05, "momentum": 0.0, "weight_decay": 0.0})
    network = extracted(problem).train()
    [batch] = feed.batches["train"]
    draws = dict(zip(problem.supernet.drop_paths, batch.draws["drop_path"][0], strict=True))

    def leave_out(place, inputs, output):
        kept = (draws[place.name] < 0.64) / 0.64
        return inputs[0] * kept.view(-1, 1, 1, 1)

    for module in network.modules():
        if isinstance(module, DropPath):
            module.register_forward_hook(leave_out)
    optimiser = torch.optim.SGD(network.parameters(), lr=0.05)
    F.cross_entropy(network(batch.x[0])[0], batch.y[0]).backward()
    optimiser.step()
    method.step(problem, state, feed)
    for name, expected in network.named_parameters():
        assert torch.allclose(state.weights[f"network.{name}"][0], expected, atol=1e-5), name


def test_evaluation_leaves_nothing_out(images):
    method, problem, state, feed = dropping(images, 0.9, 9)
    method.step(problem, state, feed)
    found = {}
    selections = watched(problem, lambda: found.update(method.evaluate(problem, state, "train")))
    assert all(selection == ((0, 1.0),) for selection in selections.values())
    examples = problem.data["train"]
    with torch.no_grad():
        output = extracted(problem).eval()(examples.x)
    assert found["log_likelihood"].item() == pytest.approx(-F.cross_entropy(output, examples.y).item(), rel=1e-5)
    assert found["accuracy"].item() == pytest.approx((output.argmax(-1) == examples.y).float().mean().item())


def test_without_places_to_leave_out_nothing_is_drawn(images):
    """Cells of nasbench201 have no drop path; the recipe of DARTS works on them all the same."""
    method = Standalone(architecture=CELL, drop_path=0.2)
    _, _, feed = prepare(method, CELLS, images, images.seen(images.train), repeats=1)
    assert feed.draws == {}
    assert feed.batches["train"][0].draws == {"augment": {}}


# ---------------------------------------------------------------------------------------------------------------------
# Inherited weights.


@dataclass(frozen=True, kw_only=True)
class Still(Standalone):
    """Learns nothing, so that its run ends in the state that it began in."""

    def step(self, problem, state, feed):
        return Info({"log_likelihood": torch.zeros(problem.repeats)}, forward=1, backward=0)


@pytest.fixture(scope="module")
def searched(images, tmp_path_factory):
    out = tmp_path_factory.mktemp("searched") / "run"
    return pa.search(CELLS, images, Parsec(epochs=1, samples=2, batch_size=8), out=out)


def test_training_starts_at_the_network_that_the_search_gives(tmp_path, images, searched):
    """The selected one, whose statistics the run keeps, and another, whose are measured anew."""
    for k, architecture in enumerate((searched.architecture, CELLS.parse(CELL))):
        method = Still(architecture=str(architecture), network="search", epochs=1)
        runs = pa.search(
            CELLS,
            images,
            method,
            out=tmp_path / str(k),
            repeats=2,
            start=pa.Start(weights_from=searched.folder),
            compute=pa.Compute("cpu"),
        )
        expected = searched.model(architecture)
        for run in runs:
            own = run.model().state_dict()
            assert own.keys() == expected.state_dict().keys()
            for name, value in expected.state_dict().items():
                assert torch.equal(own[name], value), name
            assert torch.equal(run.model()(images.test.x), expected(images.test.x))
            assert str(run.architecture) == str(architecture)


def test_inherited_weights_are_trained_further(tmp_path, images, searched):
    method = Standalone(architecture=str(searched.architecture), network="search", epochs=1, weights={"lr": 1e-3})
    run = pa.search(CELLS, images, method, out=tmp_path / "run", start=pa.Start(weights_from=searched.folder))
    before, after = (r.model().state_dict()["1.head.weight"] for r in (searched, run))
    assert 0 < (after - before).abs().max() < 0.05


def test_a_trained_network_is_trained_further(tmp_path, images):
    """Of a run that trained one network, in the form that it has there."""
    first = pa.search(
        CELLS, images, Standalone(architecture=CELL, epochs=1), out=tmp_path / "first", compute=pa.Compute("cpu")
    )
    still = Still(architecture=CELL, epochs=1)
    again = pa.search(
        CELLS,
        images,
        still,
        out=tmp_path / "again",
        start=pa.Start(weights_from=first.folder),
        compute=pa.Compute("cpu"),
    )
    found = again.model().state_dict()
    for name, value in first.model().state_dict().items():
        assert torch.equal(found[name], value), name


def test_killed_before_the_first_checkpoint_it_inherits_again(tmp_path, images, searched):
    method = Standalone(architecture=str(searched.architecture), network="search", epochs=2, batch_size=8)
    settings = {"start": pa.Start(weights_from=searched.folder), "seed": 3}
    whole = pa.search(CELLS, images, method, out=tmp_path / "whole", **settings)
    with pytest.raises(KeyboardInterrupt):
        pa.search(CELLS, images, method, out=tmp_path / "torn", callbacks=[InterruptAfter(0)], **settings)
    assert not list((tmp_path / "torn").glob("checkpoint-*"))
    torn = resume(tmp_path / "torn")
    (ours, _), (theirs, _) = (checkpoints.load(run.folder / WEIGHTS) for run in (torn, whole))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(value, theirs[name]) for name, value in ours.items())


def test_weights_that_do_not_fit(tmp_path, images, searched):
    (tmp_path / "other").mkdir()
    other = image_task(tmp_path / "other", classes=4)
    arch = str(searched.architecture)
    fits = Standalone(architecture=arch, network="search", epochs=1)
    depth = pa.spaces.ResidualDepth(max_depth=1, width=4)
    deep = pa.search(depth, images, FixedDepth(epochs=1), out=tmp_path / "deep")
    for space, task, method, folder, says in (
        (replace(CELLS, channels=4), images, fits, searched.folder, "do not fit this network"),
        (replace(CELLS, cells=2), images, fits, searched.folder, "do not fit this network"),
        (CELLS, other, fits, searched.folder, "head.weight is missing or has another shape"),
        (CELLS, images, fits, deep.folder, "depth"),
        (depth, images, Standalone(architecture="depth=1", epochs=1), searched.folder, "nasbench201"),
        (CELLS, images, Parsec(epochs=1), searched.folder, "only training one network"),
        (CELLS, images, fits, tmp_path / "absent", "holds no run"),
    ):
        with pytest.raises(PolyarchError, match=says) as caught:
            pa.search(space, task, method, out=tmp_path / "run", start=pa.Start(weights_from=folder))
        assert "\n" not in str(caught.value)
        assert not (tmp_path / "run").exists()


# ---------------------------------------------------------------------------------------------------------------------
# Settings.


def test_belief_is_a_point_mass(tmp_path, images):
    run = pa.search(CELLS, images, Standalone(architecture=CELL, epochs=1, batch_size=8), out=tmp_path / "run")
    assert str(run.architecture) == run.result["architecture"] == CELL
    assert run.distribution.entropy().item() == 0
    assert all(p.tolist() == [1.0] for p in run.distribution.probs().values())
    assert run.result["cost"]["selected"]["parameters"] == CELLS.cost(CELLS.parse(CELL), images.shape).parameters
    assert sum(p.numel() for p in run.model().parameters()) == run.result["cost"]["selected"]["parameters"]


def test_forms_of_the_network(images):
    """`evaluation` has a scale and shift in the cells' batch norm, `search` a bias in their convolutions."""
    for form, ending in (("evaluation", "norm.weight"), ("search", "conv.bias")):
        [stage] = Standalone(architecture=CELL, network=form).stages(CELLS)
        names = {name for name, _ in stage.space.supernet(images.shape).named_parameters()}
        assert f"network.blocks.0.edges.1<-0.{ending}" in names, form


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"drop_path": 1.0}, "drop_path is .*; it must be at least 0 and below 1"),
        ({"drop_path": -0.1}, "drop_path is .*; it must be at least 0 and below 1"),
        ({"network": "serach"}, "did you mean 'search'"),
        ({"weights": {"lr": 0.0}}, "lr is 0.0; it must be above 0"),
        ({"weights": {"momentum": 1.0}}, "momentum"),
        ({"weights": {"weight_decay": -1.0}}, "weight_decay"),
        ({"weights": {"grad_clip": -1.0}}, "grad_clip"),
        ({"auxiliary": -1.0}, "auxiliary"),
        ({"augment": {"crop": -1}}, "crop"),
        ({"augment": {"cutout": -1}}, "cutout"),
        ({"epochs": 0}, "epochs"),
    ],
)
def test_settings_that_make_no_sense(settings, says):
    with pytest.raises(PolyarchError, match=says):
        Standalone(**settings)


def test_what_does_not_go_together_shows_before_training(tmp_path, images):
    vectors = pa.data.load("spirals", points=20, test_points=4)
    depth = pa.spaces.ResidualDepth(max_depth=1, width=4)
    for space, task, settings, says in (
        (CELLS, images, {"architecture": ""}, "say which architecture"),
        (CELLS, images, {"architecture": "depth=1"}, "no cell of nasbench201"),
        (CELLS, images, {"architecture": CELL, "augment": {"cutout": 9}}, "cutout is 9"),
        (CELLS, vectors, {"architecture": CELL}, "needs images"),
        (depth, vectors, {"architecture": "depth=1", "augment": {"flip": True}}, "augmentation needs images"),
    ):
        with pytest.raises(PolyarchError, match=says):
            pa.search(space, task, Standalone(**settings), out=tmp_path / "run")
        assert not (tmp_path / "run").exists()
