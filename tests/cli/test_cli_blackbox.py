"""`polyarch select --method`: black-box search over a table, and over a score of a run."""

import itertools

import numpy as np
import pytest
from commandline import cli, refused

import polyarch as pa

SPACE = ("--space", "nasbench201", "--set", "channels=2", "--set", "cells=1")
METHODS = ("random-search", "regularised-evolution", "local-search")


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """All cells; the more convolutions the better, and the longer it takes."""
    space = pa.spaces.NasBench201(channels=2, cells=1)
    texts = [space.architecture(c).text for c in itertools.product(range(5), repeat=6)]
    worth = np.array([float(text.count("conv")) for text in texts])
    path = tmp_path_factory.mktemp("tables") / "cells.npz"
    np.savez(path, arch=np.array(texts), valid_acc=80 + worth, test_acc=79 + worth, train_time=10 + worth)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("blackbox") / "run"
    settings = ("channels=2", "space.cells=1", "epochs=1", "batch_size=256")
    sets = (part for text in settings for part in ("--set", text))
    found = ("--space", "nasbench201", "--method", "single-path", "--data", "digits", *sets, "--no-train")
    said = cli("search", *found, "--out", out)
    assert said.code == 0, said.err
    return out


@pytest.mark.parametrize("method", METHODS)
def test_in_a_table(table, method):
    known = ("--table", table, "--column", "valid_acc", "--truth", "test_acc")
    paid = ("--seconds", "train_time", "--share", "0.5", "--budget", "400", "--unit", "seconds", "--seeds", "3")
    found = cli("select", *SPACE, "--method", method, *known, *paid, "--json").json
    assert (found["method"], found["by"], found["unit"]) == (method, "valid_acc", "seconds")
    assert len(found["runs"]) == 3
    for run in found["runs"]:
        convolutions = run["architecture"].count("conv")
        assert run["reward"] == 80 + convolutions
        assert run["truth"] == 79 + convolutions
        assert 300 < run["seconds"] <= 400
    assert len({run["architecture"] for run in found["runs"]}) > 1, "every seed its own search"
    assert "truth" in cli("select", *SPACE, "--method", method, *known, "--budget", "30").out


def test_the_column_is_by_default_the_only_one_of_validation_accuracy(table, tmp_path):
    ask = ("select", *SPACE, "--method", "random-search", "--budget", "30", "--table")
    assert cli(*ask, table, "--json").json == cli(*ask, table, "--column", "valid_acc", "--json").json
    assert "the best by valid_acc of 1 searches by random-search" in cli(*ask, table).out
    with np.load(table) as arrays:
        np.savez(tmp_path / "two.npz", **arrays, late_valid_acc=arrays["valid_acc"])
        np.savez(tmp_path / "test.npz", arch=arrays["arch"], test_acc=arrays["test_acc"])
    refused(*ask, tmp_path / "two.npz", says=("2 columns of validation accuracy", "name one with --column"))
    refused(*ask, tmp_path / "test.npz", says=("test_acc", "nothing is chosen on test data"))


def test_by_a_score_of_a_run(folder):
    small = ("--set", "population=3", "--set", "sample=2")
    found = cli(
        "select", folder, "--by", "macs", "--method", "regularised-evolution", *small, "--budget", "12", "--json"
    )
    [run] = found.json["runs"]
    assert run["evaluations"] == 12
    space = pa.open_run(folder).space
    shape = pa.data.load("digits").shape
    assert run["reward"] == space.cost(space.parse(run["architecture"]), shape).macs


def test_training_is_counted(folder):
    quick = ("--set", "steps=2", "--set", "batch_size=8", "--budget", "3")
    found = cli("select", folder, "--by", "sotl", "--method", "random-search", *quick, "--json")
    [run] = found.json["runs"]
    assert (run["evaluations"], run["forward"], run["backward"]) == (3, 48, 48)
    assert run["reward"] < 0, "a sum of losses: less is better"


def test_bad_input_is_refused(table, folder):
    known = ("--table", table, "--column", "valid_acc")
    refused("select", *SPACE, "--method", "random", *known, says=("random-search",))
    refused("select", *SPACE, "--method", "random-search", says=("say what to search",))
    refused("select", folder, "--method", "random-search", says=("--by SCORE",))
    refused(
        "select", *SPACE, "--method", "random-search", "--table", table, "--column", "test_acc", says=("test data",)
    )
    refused(
        "select", folder, "--by", "macs", "--method", "random-search", *known, says=("--column", "searched by --by")
    )
    refused("select", *SPACE, "--method", "random-search", "--reward", "valid_acc", says="--reward is now --column")
    refused("select", *SPACE, "--method", "random-search", *known, "--unit", "days", says=("unit",))
    refused("select", *SPACE, "--method", "random-search", *known, "--unit", "seconds", says=("never spent",))
    refused("select", *SPACE, "--method", "random-search", *known, "--budget", "0", says=("above 0",))
    refused("select", says=("--by SCORE",))
