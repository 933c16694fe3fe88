"""Splits in a search: what belief learns on, what is evaluated and stopped on, and what is found again."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import polyarch as pa
from polyarch.data.task import Split
from polyarch.runs.config import Config
from polyarch.runs.preparing import make_problem

SPACE = pa.spaces.NasBench201(channels=2, cells=1)
METHOD = pa.methods.Parsec(epochs=2, samples=2, batch_size=8)  # keeps its last state


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path, random = tmp_path_factory.mktemp("images") / "images.npz", np.random.default_rng(0)
    np.savez(path, x=random.integers(0, 256, (60, 1, 4, 4), np.uint8), y=np.arange(60) % 3)
    return path


@pytest.fixture(scope="module")
def task(path):
    return pa.data.load(path, select=0.2, search=0.2, calibrate=6, test=6)


@pytest.fixture(scope="module")
def run(task, tmp_path_factory):
    return pa.search(SPACE, task, METHOD, out=tmp_path_factory.mktemp("roles") / "run", compute=pa.Compute("cpu"))


def with_other_labels(task, name):
    split = task.splits[name]
    return replace(task, splits={**task.splits, name: Split(split.x, (split.y + 1) % 3)})


def kept(run):
    return {name: value for name, value in run._tensors.items() if not name.startswith("statistics/")}


def same(one, other):
    return all(torch.equal(value, kept(other)[name]) for name, value in kept(one).items())


def test_a_method_is_given_neither_calibration_nor_test_data(task, run):
    def given(task):
        return make_problem(Config.read(run.folder), SPACE, task, torch.device("cpu")).data

    own, shared = given(task), given(task.resplit(search=0))
    assert {name: len(split) for name, split in own.items()} == {"train": 24, "search": 12, "select": 12}
    assert shared["search"] is shared["select"]
    assert set(given(task.resplit(search=0, select=0))) == {"train"}


def test_belief_learns_on_search_data_and_is_evaluated_on_validation_data(tmp_path, task, run):
    for name, alike in (("select", True), ("search", False)):
        other = pa.search(SPACE, with_other_labels(task, name), METHOD, out=tmp_path / name, compute=pa.Compute("cpu"))
        assert same(run, other) == alike, name
    assert run.history()[-1]["select"] != pa.open_run(tmp_path / "select").history()[-1]["select"]
    assert "train" not in run.history()[-1]  # nothing goes by it
    assert run.result["kept"].keys() == {"epoch", "train", "select"}
    assert run.result["metrics"].keys() == {"select", "select_ensemble", "test", "test_ensemble", "test_tempered"}


def test_a_run_stores_its_sizes_and_finds_the_same_splits(task, run):
    assert run.config.data["examples"] == {"train": 24, "search": 12, "select": 12, "calibrate": 6, "test": 6}
    found = pa.open_run(run.folder).task()
    assert found.fingerprint == task.fingerprint
    for name, split in task.splits.items():
        assert torch.equal(found.splits[name].x, split.x)


def test_other_data_has_all_its_labels(tmp_path):
    task = pa.data.load("spirals", points=40, test_points=0, labels=10)
    method, space = pa.methods.VariationalDepth(epochs=1), pa.spaces.ResidualDepth(max_depth=1, width=2)
    run = pa.search(space, task, method, out=tmp_path / "run", compute=pa.Compute("cpu"))
    assert len(run.task().train) == 10
    judged_on = run.other_data("spirals")
    assert torch.equal(judged_on.x, task.training.x)
    assert judged_on.y.min() == 0
