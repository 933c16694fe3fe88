"""Spaces, methods, data and runs may be given by name wherever they may be given as objects."""

import json

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

import polyarch as pa
from polyarch import catalogue
from polyarch.methods import Darts, VariationalDepth
from polyarch.runs.names import as_run, as_task
from polyarch.spaces import ResidualDepth

SMALL = {"epochs": 2, "batch_size": 64}


@pytest.fixture
def arrays():
    generator = np.random.default_rng(0)
    x = generator.normal(size=(120, 3)).astype(np.float32)
    return x, (x[:, 0] > 0).astype(int)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """A name that stands for two epochs."""
    entry = catalogue.METHODS["variational-depth"]
    monkeypatch.setitem(catalogue.METHODS, "brief", catalogue.Entry(entry.path, "brief", SMALL))


def config(folder):
    written = json.loads((folder / "config.json").read_text())
    return {name: written[name] for name in ("space", "method", "data")}


def test_names_search_as_objects_do(tmp_path, arrays):
    by_name = pa.search("depth", arrays, "brief", out=tmp_path / "names")
    task = pa.data.load(arrays)
    by_object = pa.search(ResidualDepth(), task, VariationalDepth(**SMALL), out=tmp_path / "objects")
    assert config(tmp_path / "names") == config(tmp_path / "objects")
    assert torch.equal(by_name.distribution.probs()["depth"], by_object.distribution.probs()["depth"])


def test_a_class_of_ones_own_is_named_by_its_path(tmp_path, arrays):
    paths = ("polyarch.spaces.depth:ResidualDepth", "polyarch.methods.variational_depth:VariationalDepth")
    space, method = pa.spaces.named(paths[0], max_depth=3), pa.methods.named(paths[1], **SMALL)
    assert space == ResidualDepth(max_depth=3)
    assert method == VariationalDepth(**SMALL)


def test_named_takes_settings_beside_those_of_the_name():
    assert pa.spaces.named("darts-20", channels=4) == pa.spaces.Darts(layers=20, channels=4)
    method = pa.methods.named("sotl-darts", epochs=3, arch={"lr": 0.5})
    assert isinstance(method, Darts)
    assert (method.objective.loss, method.epochs, method.arch.lr) == ("sotl", 3, 0.5)
    with pytest.raises(pa.PolyarchError, match="did you mean 'epochs'"):
        pa.methods.named("darts", epoch=3)


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ({"space": "dept"}, "unknown space 'dept'; did you mean 'depth'"),
        ({"method": "dart"}, "unknown method 'dart'; did you mean 'darts'"),
        ({"task": "digit"}, "unknown data 'digit'; did you mean 'digits'"),
        ({"space": "polyarch.methods:Darts"}, "is no space"),
        ({"space": ResidualDepth}, r"the space is a class, .* ResidualDepth\(\)"),
        ({"method": 3}, "the method is of type int; give a Method, or a name"),
        ({"space": VariationalDepth()}, "the space is of type VariationalDepth; give a Space"),
        ({"task": 3}, "cannot load data from int"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_left_behind(tmp_path, arrays, what, words):
    told = {"space": "depth", "task": arrays, "method": "brief"} | what
    with pytest.raises(pa.PolyarchError, match=words):
        pa.search(**told, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_data_is_whatever_load_takes(tmp_path, arrays):
    x, y = arrays
    np.savez(tmp_path / "own.npz", x=x, y=y)
    dataset = TensorDataset(torch.from_numpy(x), torch.from_numpy(y))
    prints = {as_task(data).fingerprint for data in (arrays, list(arrays), tmp_path / "own.npz", dataset)}
    task = pa.data.load(arrays)
    assert as_task(task) is task
    assert prints == {task.fingerprint}


def test_data_from_memory_is_given_again_as_it_was(tmp_path, arrays):
    pa.search("depth", arrays, "brief", out=tmp_path / "run")
    (tmp_path / "run" / "result.json").unlink()
    run = pa.resume(tmp_path / "run", task=arrays)
    assert run.finished
    (tmp_path / "run" / "result.json").unlink()
    with pytest.raises(pa.PolyarchError, match="no longer what this run was made with"):
        pa.resume(tmp_path / "run", task=(arrays[0], 1 - arrays[1]))


def test_a_run_is_named_by_its_folder(tmp_path, arrays):
    np.savez(tmp_path / "own.npz", x=arrays[0], y=arrays[1])
    pa.search("depth", tmp_path / "own.npz", "brief", out=tmp_path / "run")
    assert pa.fit_plain_models(tmp_path / "run").models
    with pytest.raises(pa.PolyarchError, match="do not share weights"):
        pa.train_selected(tmp_path / "run")
    run = pa.open_run(tmp_path / "run")
    assert as_run(run) is run
