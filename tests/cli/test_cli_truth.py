"""`polyarch search --table`, and the best of several seeds, on the command line."""

import json

import numpy as np
import pytest
from commandline import SMALL, SPIRALS, TINY, assert_same_run, cli, files, refused

import polyarch as pa
from polyarch import catalogue
from polyarch.callbacks import Checkpoints
from polyarch.runs.run import read_history
from polyarch.tables import convert
from polyarch.testing.callbacks import InterruptAfter

TEXTS = [f"depth={depth}" for depth in range(3)]
NUMBERS = {"depth=0": 61.5, "depth=1": 93.25, "depth=2": 88.0}


@pytest.fixture
def tables(tmp_path, monkeypatch):
    """A folder of tables: `depths`, which is whole, and `others`, of another space."""
    folder = tmp_path / "tables"
    folder.mkdir()
    rows = "".join(f"{text},{NUMBERS[text]},{9 - k}\n" for k, text in enumerate(TEXTS))
    (folder / "depths.csv").write_text(f"arch,valid_acc,test_loss\n{rows}")
    convert(folder / "depths.csv", folder / "depths.npz")
    np.savez(folder / "others.npz", arch=np.array(["|none~0|"]), valid_acc=np.ones(1))
    monkeypatch.setenv("POLYARCH_TABLES", str(folder))
    return folder


def test_lines_progress_and_result_have_the_truth(tmp_path, tables):
    out = tmp_path / "run"
    said = cli("search", *TINY, "--table", "depths", "--out", out, "--json")
    truths = [line["truth"] for line in read_history(out)]
    assert len(truths) == 6
    assert set(truths) <= set(NUMBERS.values())
    first = said.err.splitlines()[1]
    assert first.startswith("search: epoch 1/6")
    assert first.endswith(f" | truth {truths[0]:.5g}")
    assert said.json["truth"] == {
        "table": str(tables / "depths.npz"),
        "column": "valid_acc",
        "predicted": False,
        "selected": NUMBERS[said.json["architecture"]],
        "random": {
            "mean": pytest.approx(np.mean(list(NUMBERS.values()))),
            "std": pytest.approx(np.std(list(NUMBERS.values()))),
            "architectures": 3,
        },
        "best": 93.25,
    }
    assert cli("show", out, "--json").json == said.json
    selected = said.json["truth"]["selected"]
    assert (
        f"true valid_acc: {selected:.5g}; random architectures 80.917 ± 13.9; the best 93.25\n" in cli("show", out).out
    )


def test_another_column(tmp_path, tables):
    out = tmp_path / "run"
    found = cli("search", *TINY, "--table", tables / "depths.npz", "--column", "test_loss", "--out", out, "--json").json
    assert (found["truth"]["column"], found["truth"]["best"]) == ("test_loss", 7.0)


def test_a_network_that_the_table_lacks(tmp_path, tables):
    np.savez(tables / "part.npz", arch=np.array(TEXTS), valid_acc=np.full(3, np.nan))
    out = tmp_path / "run"
    said = cli("search", *TINY, "--table", "part", "--out", out)
    assert said.code == 0
    assert said.err.count("part.npz has no valid_acc for depth=") == 1
    assert ", truth" not in said.err
    assert [line["truth"] for line in read_history(out)] == [None] * 6
    assert "true valid_acc: not in the table\n" in said.out


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--table", "others"), ("none of its 1 rows is of the space 'depth'", "'|none~0|'")),
        (("--table", "depths", "--column", "valid_ac"), "did you mean 'valid_acc'?"),
        (("--table", "depth"), "unknown table 'depth'; did you mean 'depths'?"),
        (("--table", "./depths.npz"), "no such table; check the path"),
        (("--column", "valid_acc"), "column 'valid_acc' is of no table"),
    ],
)
def test_refused_before_anything_is_made(tmp_path, monkeypatch, tables, flags, says):
    monkeypatch.chdir(tmp_path)
    refused("search", *TINY, *flags, "--out", tmp_path / "run", says=says)
    assert not (tmp_path / "run").exists()


def test_resume_finds_the_table_again_and_takes_no_other(tmp_path, monkeypatch, tables):
    whole, torn = tmp_path / "whole", tmp_path / "torn"
    assert cli("search", *TINY, "--table", "depths", "--out", whole).code == 0

    with pytest.raises(KeyboardInterrupt):
        pa.search(
            pa.spaces.ResidualDepth(max_depth=2, width=4),
            pa.data.load("spirals", points=60, test_points=40, select=0.3),
            pa.methods.VariationalDepth(epochs=6, batch_size=20),
            out=torn,
            compute=pa.Compute("cpu"),
            callbacks=[pa.TableTruth("depths"), Checkpoints(seconds=0), InterruptAfter(4)],
        )
    before = files(torn)
    for flags, says in (
        (("--table", "others"), f"--table others conflicts with the run in {torn}, which has {tables / 'depths.npz'}"),
        (("--column", "test_loss"), f"--column test_loss conflicts with the run in {torn}, which has valid_acc"),
    ):
        refused("search", "--resume", *flags, "--out", torn, says=says)
    assert files(torn) == before
    repeated = ("--table", "depths", "--column", "valid_acc")
    assert cli("search", "--resume", *repeated, "--out", torn).code == 0
    assert_same_run(torn, whole)
    monkeypatch.delenv("POLYARCH_TABLES")
    assert cli("search", "--resume", "--out", torn).code == 0


def test_a_run_without_a_table_takes_none_on_resume(interrupted, tables):
    refused("search", "--resume", "--table", "depths", "--out", interrupted, says="which has none; leave it out")


def test_the_best_repeat_is_marked_and_named(tmp_path):
    out = tmp_path / "run"
    found = cli("search", *TINY, "--seed", 4, "--repeats", 3, "--out", out, "--json").json
    valid = {run["seed"]: run["metrics"]["select"] for run in found["runs"]}
    best = max(valid, key=lambda seed: (valid[seed]["accuracy"], valid[seed]["log_likelihood"]))
    assert found["best"] == json.loads((out / "result.json").read_text())["best"] == best
    lines = [line for line in cli("show", out).out.splitlines() if ", seed " in line]
    assert [line.endswith(", the best of 3 on validation data:") for line in lines] == [s == best for s in valid]
    for verb in (("evaluate", out), ("select", out, "--by", "parameters")):
        refused(*verb, says=("holds 3 repeats", f"{out / f'seed-{best}'}, the best"))
    assert ", the best" not in cli("show", out / "seed-4").out.splitlines()[0]


def test_a_preset_of_two_seeds(tmp_path):
    """PARSEC as its paper ran it: K = 16, two seeds, the better kept; told otherwise, otherwise."""
    _, preset = catalogue.find("method", "parsec-best-of-2")
    assert preset == {"samples": 16}
    told = (*SPIRALS, *SMALL, "--method", "parsec-best-of-2", "--set", "epochs=1", "--set", "samples=2")
    found = cli("search", *told, "--seed", 7, "--out", tmp_path / "two", "--json").json
    assert [run["seed"] for run in found["runs"]] == [7, 8]
    assert found["best"] in (7, 8)
    assert cli("search", "--resume", *told, "--out", tmp_path / "two").code == 0
    assert "runs" not in cli("search", *told, "--repeats", 1, "--out", tmp_path / "one", "--json").json
