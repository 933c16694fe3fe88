"""`polyarch rank`: scores compared with the truth, on a run and on a bare space."""

import json
import subprocess
import time

import numpy as np
import pytest
from commandline import POLYARCH, cli, files, refused

import polyarch as pa
from polyarch.ranking import draw, rank
from polyarch.scores import Macs, Sotl, SynFlow, candidates_of
from polyarch.streams import Streams

SEARCH = ("--space", "nasbench201", "--method", "parsec", "--data", "digits", "--device", "cpu", "--no-train")
SMALL = ("channels=2", "space.cells=1", "epochs=1", "samples=2", "batch_size=256")
BARE = ("--space", "nasbench201", "--set", "channels=2", "--set", "cells=1", "--input", "1x8x8", "--device", "cpu")
QUICK = ("--set", "steps=2", "--set", "batch_size=8")


def sets(texts):
    return [part for text in texts for part in ("--set", text)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("rank") / "run"
    said = cli("search", *SEARCH, *sets(SMALL), "--out", out)
    assert said.code == 0, said.err
    return out


@pytest.fixture(scope="module")
def space():
    return pa.spaces.NasBench201(channels=2, cells=1)


@pytest.fixture(scope="module")
def table(tmp_path_factory, space):
    """The truth of 200 cells: about what their convolutions are worth."""
    texts = [a.text for a in draw(space, 200, 0)]
    worth = np.array([float(text.count("conv")) for text in texts])
    noise = np.random.default_rng(0).normal(size=200)
    path = tmp_path_factory.mktemp("tables") / "cells.npz"
    columns = {
        "test_acc": 80 + worth + noise,
        "valid_acc": 80 + worth,
        "test_loss": -worth - noise,
        "flat_acc": worth * 0,
    }
    np.savez(path, arch=np.array(texts), **columns)
    return path


def few(space, table, count=8):
    return ("--sample", count, "--table", table, "--column", "test_acc", "--device", "cpu")


def test_json_is_what_python_says(folder, space, table):
    by = "sotl,synflow,macs"
    said = cli("rank", folder, "--by", by, *few(space, table), *QUICK, "--seed", 0, "--json").json
    run = pa.open_run(folder)
    architectures = draw(space, 8, 0)
    scores = {"sotl": Sotl(steps=2, batch_size=8), "synflow": SynFlow(), "macs": Macs()}
    candidates = candidates_of(run, architectures, Sotl.needs, Streams(0)["data"])
    with np.load(table) as held:
        truth = dict(zip(held["arch"].tolist(), held["test_acc"], strict=True))
    found = rank(candidates, scores, np.array([truth[a.text] for a in architectures]))
    wanted = json.loads(json.dumps(found.summary()))
    for name in ("sotl", "synflow", "macs", "parameters", "random"):
        ours, theirs = said["scores"][name], wanted["scores"][name]
        assert {k: v for k, v in ours.items() if k != "seconds"} == {k: v for k, v in theirs.items() if k != "seconds"}
        assert ours["seconds"] >= 0
    assert list(said["scores"]) == ["sotl", "synflow", "macs", "parameters", "random"]
    assert (said["architectures"], said["sampled"], said["column"]) == (8, "uniform", "test_acc")
    assert said["by"] == ["sotl", "synflow", "macs"]


def test_every_score_in_one_go(folder, space, table):
    by = "sotl,train-loss,sog,sogn,valid-accuracy,valid-loss,valid-accuracy-minibatch,valid-loss-minibatch"
    by += ",valid-accuracy-shared,grad-norm,jacob-cov,snip,grasp,synflow,macs,table"
    quick = ("sotl.steps=2", "train-loss.steps=1", "sog.steps=2", "sogn.steps=2", "batch_size=8")
    said = cli("rank", folder, "--by", by, *few(space, table, 3), *sets(quick), "--resamples", 20, "--json").json
    assert list(said["scores"]) == [*by.split(","), "parameters", "random"]
    assert said["scores"]["table"]["spearman"] == 1
    assert said["scores"]["table"]["regret"] == 0


def test_words(space, table):
    said = cli("rank", *BARE, "--by", "synflow,macs", *few(space, table)[:-2])
    assert (said.code, said.err) == (0, "")
    lines = said.out.splitlines()
    assert lines[0] == "8 architectures of nasbench201, drawn evenly"
    assert lines[1].startswith(f"truth: test_acc of {table}, mean ")
    assert lines[3].split()[:3] == ["score", "Spearman", "Kendall"]
    assert [line.split()[0] for line in lines[4:8]] == ["synflow", "macs", "parameters", "random"]
    assert lines[7].split()[1] == "0.00"
    assert SynFlow.meaning in said.out


def test_a_bare_space_with_data_and_a_column_as_score(space, table):
    arguments = ("--space", "nasbench201", "--data", "digits", *sets(("channels=2", "cells=1", "column=valid_acc")))
    said = cli("rank", *arguments, "--by", "snip,table", *few(space, table), "--json").json
    assert said["input"] == [1, 8, 8]
    assert 0 < said["scores"]["table"]["spearman"] < 1
    assert said["scores"]["snip"]["spearman"] is not None


def test_a_list_of_architectures(tmp_path, space, table):
    texts = [a.text for a in draw(space, 5, 0)]
    listed = tmp_path / "cells.txt"
    listed.write_text("# mine\n\n" + "\n".join([*texts, texts[0]]) + "\n")
    truth = ("--table", table, "--column", "test_acc")
    said = cli("rank", *BARE, "--by", "macs", "--architectures", listed, *truth, "--json").json
    assert said["architectures"] == 5
    assert said["sampled"] == str(listed)
    refused("rank", *BARE, "--by", "macs", "--architectures", listed, "--sample", 3, *truth, says="leave --sample")
    listed.write_text(f"{texts[0]}\n|none~0|\n")
    refused("rank", *BARE, "--by", "macs", "--architectures", listed, *truth, says=("cells.txt, line 2", "no cell of"))
    listed.write_text("# nothing\n")
    refused("rank", *BARE, "--by", "macs", "--architectures", listed, *truth, says="names no architecture")
    refused("rank", *BARE, "--by", "macs", "--architectures", tmp_path / "gone", *truth, says="gone")


def test_from_belief(folder, space, tmp_path):
    run = pa.open_run(folder)
    drawn = draw(space, 6, 3, run.distribution)
    path = tmp_path / "t.npz"
    np.savez(path, arch=np.array([a.text for a in drawn]), test_acc=np.arange(6.0))
    arguments = ("--by", "macs", "--from", "belief", "--sample", 6, "--seed", 3, "--table", path, "--json")
    assert cli("rank", folder, *arguments).json["sampled"] == "belief"


def test_the_table_that_a_run_was_watched_by(tmp_path):
    path = tmp_path / "depths.npz"
    np.savez(path, arch=np.array([f"depth={d}" for d in range(3)]), valid_acc=np.array([50.0, 70.0, 60.0]))
    tiny = ("--data", "spirals", *sets(("points=40", "test_points=10", "max_depth=2", "width=4", "epochs=1")))
    assert cli("search", *tiny, "--table", path, "--out", tmp_path / "run", "--device", "cpu").code == 0
    said = cli("rank", tmp_path / "run", "--by", "parameters", "--sample", 9, "--json")
    assert said.json["scores"]["parameters"]["spearman"] == pytest.approx(0.5)
    assert said.json["column"] == "valid_acc"
    assert said.err == "polyarch: there are 3 different architectures, not 9\n"


def test_a_constant_truth_is_said(space, table):
    arguments = (*BARE, "--by", "macs", "--sample", 5, "--table", table, "--column", "flat_acc")
    said = cli("rank", *arguments)
    assert said.code == 0
    assert "undefined for parameters: the truth is the same for all" in said.out
    assert "nan" not in said.out
    told = cli("rank", *arguments, "--json").json["scores"]["macs"]
    assert told["spearman"] is told["kendall"] is None
    assert told["undefined"] == "the truth is the same for all"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--by", "sotll"), "unknown score 'sotll'; did you mean 'sotl'?"),
        (("--by", ","), "--by names no score"),
        (("--by", "sotl"), "sotl needs trained weights; give a run"),
        (("--by", "macs,snip"), "snip needs data"),
        (("--by", "macs", "--sample", "0"), "Invalid value for '--sample'"),
        (("--by", "macs", "--sample", "300"), "of the architectures asked for"),
        (("--by", "macs", "--column", "test_ac"), "unknown column"),
        (("--by", "macs", "--from", "beliefs"), "did you mean 'belief'?"),
        (("--by", "macs", "--from", "belief"), "give its folder"),
        (("--by", "macs", "--set", "steps=2"), "unknown setting 'steps'"),
        (("--by", "sotl", "--set", "steps=0"), "steps is 0"),
        (("--by", "table", "--set", "table.column=nothing"), "unknown column"),
        (("--by", "polyarch.scores.macs:Macs,macs"), "two scores have the same name"),
        (("--by", "macs", "--data", "digits"), "--input is for a bare space without data"),
    ],
)
def test_bad_input(space, table, arguments, says):
    given = ("--table", table) + (() if "--column" in arguments else ("--column", "test_acc"))
    sample = () if "--sample" in arguments else ("--sample", 4)
    refused("rank", *BARE, *sample, *given, *arguments, says=says)


def test_more_bad_input(folder, space, table, tmp_path):
    truth = ("--table", table, "--column", "test_acc")
    refused("rank", "--by", "macs", *truth, says="say what to rank")
    refused("rank", folder, "--space", "darts", "--by", "macs", *truth, says="--space and the folder of a run")
    refused("rank", *BARE, "--by", "macs", says="name a table and a column")
    refused("rank", tmp_path, "--by", "macs", *truth, says="holds no run")
    said = refused("rank", "--space", "depth", "--input", 2, "--by", "macs", *truth, says="no row for 21 of")
    assert "depth=" in said.err


def test_data_without_a_validation_split(tmp_path):
    path, out = tmp_path / "t.npz", tmp_path / "run"
    np.savez(path, arch=np.array([f"depth={d}" for d in range(3)]), test_acc=np.arange(3.0))
    tiny = (
        "--data",
        "spirals",
        *sets(("points=40", "test_points=10", "max_depth=2", "width=4", "epochs=1", "select=0")),
    )
    assert cli("search", *tiny, "--set", "stopping.split=never", "--out", out, "--device", "cpu").code == 0
    refused("rank", out, "--by", "valid-loss", "--sample", 3, "--table", path, says="valid-loss needs validation data")


# ---------------------------------------------------------------------------------------------------------------------
# A folder.


def test_a_folder_keeps_everything_and_goes_on(folder, space, table, tmp_path):
    out = tmp_path / "ranking"
    arguments = ("rank", folder, "--by", "train-loss,macs", *few(space, table), *QUICK, "--out", out)
    first = cli(*arguments, "--json").json
    kept = files(out)
    assert set(kept) == {"lock", "rank.json", "scores.jsonl", "ranking.json", "ranking.png", "ranking.svg"}
    assert json.loads(kept["ranking.json"])["scores"] == first["scores"]
    assert len(kept["scores.jsonl"].splitlines()) == 8 * 3
    assert cli(*arguments, "--json").json == first
    assert files(out) == kept
    refused(*arguments, "--column", "valid_acc", says=("other arguments", "column"))
    refused(*arguments[:-2], "--out", folder, says="holds no ranking")
    lines = kept["scores.jsonl"].splitlines(keepends=True)
    (out / "scores.jsonl").write_bytes(b"".join(lines[:10]) + lines[10][:7])
    again = cli(*arguments, "--json").json
    for name, figures in first["scores"].items():
        assert {k: v for k, v in figures.items() if k != "seconds"} == {
            k: v for k, v in again["scores"][name].items() if k != "seconds"
        }


def test_killed_for_real(folder, space, table, tmp_path):
    out = tmp_path / "ranking"
    arguments = ("rank", folder, "--by", "sotl", *few(space, table, 8), "--set", "steps=25", "--out", out, "--json")
    with subprocess.Popen([POLYARCH, *map(str, arguments)], stdout=subprocess.DEVNULL) as process:
        scores = out / "scores.jsonl"
        while process.poll() is None and not (scores.exists() and scores.read_bytes().count(b"\n") >= 3):
            time.sleep(0.01)
        process.kill()
    left = scores.read_bytes()
    whole = left[: left.rindex(b"\n") + 1]
    found = cli(*arguments).json
    assert scores.read_bytes().startswith(whole)
    fresh = cli(*arguments[:-3], "--json").json
    assert found["scores"]["sotl"]["intervals"] == fresh["scores"]["sotl"]["intervals"]


def test_without_a_table_the_library_has_one():
    bare = ("--space", "nasbench201", "--set", "channels=8", "--set", "cells=1", "--input", "1x14x14", "--classes", 10)
    said = cli("rank", *bare, "--by", "macs", "--sample", 12, "--device", "cpu", "--json")
    assert said.code == 0, said.err
    told = json.loads(said.out)
    assert told["architectures"] == 12
    assert told["scores"].keys() == {"macs", "parameters", "random"}
    refused("rank", *BARE, "--by", "macs", says=("comes with one",))
