"""What is not set goes by the data: known answers, what is set stays, and a run repeats exactly."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

import polyarch as pa
from polyarch.cli.choices import asked, choose, published
from polyarch.data.source import Source
from polyarch.runs.config import Config
from polyarch.runs.defaults import (
    augmentation,
    batch_size,
    chosen_for,
    epochs,
    image_side,
    prepared,
    split_sizes,
    weight_decay,
)
from polyarch.settings import dotted, plain

LEFT = {"data": (), "space": (), "method": ()}
COUNTS = [2, 10, 50, 97, 150, 399, 401, 1000, 5000, 20_000, 33_333, 33_334, 100_000, 1_000_000]


def table(count, columns=4, seed=0):
    x = np.random.default_rng(seed).normal(size=(count, columns)).astype(np.float32)
    return x, (x[:, 0] > 0).astype(np.int64)


@pytest.fixture
def file(tmp_path):
    x, y = table(100)
    np.savez(tmp_path / "table.npz", x=x, y=y)
    return str(tmp_path / "table.npz")


def all_chosen(file, *settings, preset=None, method=None):
    names = asked(published(preset) if preset else None, None, method, file)
    return choose(names.space, names.method, names.data, settings, names.settings).prepared()


def test_a_hundred_rows(file):
    task, space, method, chosen = all_chosen(file)
    assert (space.max_depth, space.width) == (3, 16)
    assert (method.batch_size, method.weights.schedule.kind) == (16, "cosine")
    assert {name: len(split) for name, split in task.splits.items()} == {"train": 55, "select": 25, "test": 20}
    assert str(chosen).startswith("chosen for 55 examples of 4 numbers: select=0.25, test=0.2, max_depth=3, width=16, ")
    assert f"epochs={method.epochs}, " in str(chosen)


def test_shares_of_splits():
    sizes = {count: split_sizes(count, own_test=False) for count in COUNTS}
    assert [sizes[count]["select"] for count in (150, 399, 1000, 33_333, 100_000)] == [0.25, 0.15, 0.15, 0.15, 0.05]
    assert [sizes[count]["test"] for count in (150, 20_000, 100_000, 1_000_000)] == [0.2, 0.2, 0.05, 0.05]
    for name in ("select", "test"):
        shares = [sizes[count][name] for count in COUNTS]
        assert shares == sorted(shares, reverse=True)
    assert set(split_sizes(1000, own_test=True)) == {"select"}


def test_more_data_means_larger_batches_and_networks_never_longer_training():
    sizes = [batch_size(count) for count in COUNTS]
    assert sizes == sorted(sizes)
    assert (sizes[0], batch_size(1000), sizes[-1]) == (16, 32, 256)
    lengths = [epochs(count, 64, 1000) for count in (1000, 4000, 16_000, 10**6)]
    assert lengths == sorted(lengths, reverse=True)
    shapes = []
    for count in (60, 600, 6000):
        task = pa.data.load(table(count))
        found = chosen_for(task, pa.spaces.ResidualDepth(), pa.methods.VariationalDepth(), LEFT)
        shapes.append((found["space"]["max_depth"], found["space"]["width"], -found["method"]["weights.weight_decay"]))
    assert shapes == sorted(shapes)


def test_epochs_are_what_the_budget_pays_for():
    assert epochs(1000, 20, 1000, budget=1e12) == 60  # 50 steps each, 3,000 in all
    assert epochs(1000, 20, 10**6, budget=3e10) == 30
    assert epochs(1000, 20, 10**9, budget=3e10) == epochs(10**6, 20, 10**9, budget=1.0) == 12


def test_sides_of_images():
    assert image_side([(32, 32)] * 3) == 0
    assert image_side([(20, 30)] * 3) == 0
    assert image_side([(64, 64)] * 3) == 0
    assert image_side([(500, 500)] * 3) == 32
    assert image_side([(26, 90), (27, 30), (100, 61)]) == 24
    assert image_side([(5, 9), (6, 7)]) == 8


def test_what_is_set_stays(file):
    told = {
        "space.width": 5, "max_depth": 1, "epochs": 7, "batch_size": 33, "select": 0.5, "test": 10.0,
        "weights.weight_decay": 0.5, "weights.grad_clip": 0.0, "stopping.patience": 3, "schedule.kind": "constant",
    }  # fmt: skip
    task, space, method, chosen = all_chosen(file, *(f"{name}={value}" for name, value in told.items()))
    assert (space.width, space.max_depth, method.epochs, method.batch_size) == (5, 1, 7, 33)
    assert {name: len(split) for name, split in task.splits.items()} == {"train": 40, "select": 50, "test": 10}
    weights = method.weights
    assert (weights.weight_decay, weights.grad_clip, weights.schedule.kind) == (0.5, 0.0, "constant")
    assert not chosen


def test_what_is_not_set_goes_by_what_is(file):
    *_, longer, _ = all_chosen(file, "epochs=400")
    assert longer.stopping.patience == 200
    assert all_chosen(file, "batch_size=55")[2].epochs == 150 == all_chosen(file, "batch_size=11")[2].epochs


@pytest.mark.parametrize(
    "search",
    [
        {"preset": "ldn-spirals"},
        {"method": "variational-depth-images"},
        {"method": "fixed-depth-spirals"},
        {"settings": ("by_data=false",)},
    ],
)
def test_published_searches_and_those_as_listed_are_left_alone(file, search):
    settings = search.pop("settings", ())
    preset = search.get("preset")
    names = asked(published(preset) if preset else None, None, search.get("method"), file)
    told = choose(names.space, names.method, file, settings, names.settings)
    task, space, method, chosen = told.prepared()
    assert (space, method) == (told.space, told.method)
    assert task.fingerprint == told.source.task().fingerprint
    assert not chosen


def test_cells_keep_the_training_of_their_papers():
    x = np.random.default_rng(0).integers(0, 255, (80, 3, 8, 8)).astype(np.uint8)
    task = pa.data.load((x, np.arange(80) % 2))
    assert chosen_for(task, pa.spaces.NasBench201(), pa.methods.Darts(), LEFT) == {"space": {}, "method": {}}


def test_images_of_all_sizes(tmp_path):
    for k in range(20):
        file = tmp_path / "images" / "ab"[k % 2] / f"{k}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (20 + k, 40)).save(file)
    task, *_, chosen = all_chosen(str(tmp_path / "images"))
    assert task.input_shape == (3, 24, 24)
    assert chosen.settings["data"]["size"] == 24
    assert chosen.settings["method"]["augment.crop"] == 3
    assert chosen.settings["method"]["augment.flip"] is True
    assert "images of 3x24x24" in str(chosen)


def test_data_is_read_once(monkeypatch, file):
    told = choose("depth", "variational-depth", file, ())
    reads, read = [], type(told.source).read
    monkeypatch.setattr(type(told.source), "read", lambda self: reads.append(1) or read(self))
    assert isinstance(told.source, Source)
    told.prepared()
    assert len(reads) == 1


def test_what_was_chosen_is_kept_and_repeats_exactly(file, tmp_path):
    task, space, method, chosen = all_chosen(file, "epochs=3")
    pa.search(space, task, method, out=tmp_path / "first")
    config = Config.read(tmp_path / "first")
    held = {"data": config.data["source"]["settings"]}
    held |= {"space": dotted(type(space), config.space["settings"])}
    held |= {"method": dotted(type(method), config.method["settings"])}
    assert all(held[group][name] == value for group, own in chosen.settings.items() for name, value in own.items())
    assert (config.make_space(), config.make_method()) == (space, method)
    again = prepared(choose("depth", "variational-depth", file, ()).source, space, method, {})[0]
    assert again.fingerprint != task.fingerprint  # without the chosen splits
    same = pa.data.load(file, **config.data["source"]["settings"])
    assert same.fingerprint == task.fingerprint
    pa.search(config.make_space(), same, config.make_method(), out=tmp_path / "second")
    first, second = (pa.open_run(tmp_path / name) for name in ("first", "second"))
    assert torch.equal(first.predict(task.test.x).log_probs, second.predict(task.test.x).log_probs)
    assert json.dumps(plain(first.config.method)) == json.dumps(plain(second.config.method))


def test_names_in_python_are_suited_as_on_the_command_line(file, tmp_path):
    *_, method, _ = all_chosen(file)
    run = pa.search("depth", file, pa.methods.VariationalDepth(epochs=2), out=tmp_path / "space")
    assert run.config.space["settings"]["width"] == 16
    assert run.config.data["examples"] == {"train": 55, "select": 25, "test": 20}
    assert run.config.method["settings"]["batch_size"] == 512  # that of an object is its own
    task = pa.data.load(file)
    run = pa.search(pa.spaces.ResidualDepth(max_depth=1, width=2), task, "fixed-depth", out=tmp_path / "method")
    assert run.config.space["settings"]["width"] == 2
    assert run.config.method["settings"]["batch_size"] == method.batch_size
    assert run.config.data["fingerprint"] == task.fingerprint  # a task was split by who made it


def test_letters_are_not_mirrored():
    assert augmentation((1, 8, 8)) == {"augment.crop": 1, "augment.flip": False}


def test_weights_are_held_back_most_where_few_numbers_are_to_be_predicted():
    x, _ = table(400)
    found = {}
    for kind, y in (("classes", x[:, 0] > 0), ("numbers", x[:, 0] + 1000)):
        task = pa.data.load((x, y))
        found[kind] = chosen_for(task, pa.spaces.ResidualDepth(), pa.methods.FixedDepth(), LEFT)["method"]
    decays = [own["weights.weight_decay"] for own in (found["classes"], found["numbers"])]
    assert decays == [weight_decay(260, x.shape[1:], numbers=False), 0.02]
    assert found["classes"]["epochs"] == found["numbers"]["epochs"]


def test_weights_are_held_back_less_where_there_is_less_to_learn_by_heart():
    decays = [weight_decay(300, (features,), numbers=False) for features in (2, 9, 25, 100, 1000)]
    assert decays == [0.003, 0.006, 0.01, 0.02, 0.02]
    assert weight_decay(20_000, (25,), numbers=False) == 0.001
    assert weight_decay(10**7, (25,), numbers=True) == 0.0001
