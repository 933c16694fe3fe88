"""`polyarch select`: an architecture from belief, by a score."""

import math

import numpy as np
import pytest
from commandline import cli, refused

import polyarch as pa
from polyarch.runs.examples import EXAMPLES
from polyarch.scores import Parameters, SynFlow, sample_and_score

SEARCH = ("--space", "nasbench201", "--method", "parsec", "--data", "digits", "--device", "cpu", "--no-train")
SMALL = ("channels=2", "space.cells=1", "epochs=1", "samples=2", "batch_size=256")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("select") / "run"
    said = cli("search", *SEARCH, *(part for text in SMALL for part in ("--set", text)), "--out", out)
    assert said.code == 0, said.err
    return out


@pytest.fixture
def from_memory(tmp_path):
    x = np.random.default_rng(0).normal(size=(40, 2)).astype(np.float32)
    task = pa.data.load((x, (x[:, 0] > 0).astype(np.int64)), test=0)
    space, method = pa.spaces.ResidualDepth(max_depth=3, width=4), pa.methods.VariationalDepth(epochs=2)
    return pa.search(space, task, method, out=tmp_path / "memory", compute=pa.Compute("cpu")).folder


@pytest.mark.parametrize("by", ["synflow", "snip", "grasp", "parameters", "macs"])
def test_every_score(folder, by):
    found = cli("select", folder, "--by", by, "--sample", 4, "--json").json
    assert list(found) == ["run", "by", "sampled", "distinct", "architecture", "candidates", "argmax"]
    assert (found["run"], found["by"], found["sampled"]) == (str(folder), by, 4)
    assert found["architecture"] == found["candidates"][0]["architecture"]
    scores = [each["score"] for each in found["candidates"]]
    assert scores == sorted(scores, reverse=True)
    assert len(scores) == found["distinct"]


def test_the_same_as_in_python(folder):
    said = cli("select", folder, "--by", "synflow", "--sample", 6, "--seed", 5, "--top", 2, "--json").json
    found = sample_and_score(pa.open_run(folder), SynFlow(), 6, seed=5)
    assert said["distinct"] == len(found.candidates)
    best = found.candidates[:2]
    assert said["candidates"] == [
        {"architecture": str(c.architecture), "score": c.score, "log_prob": c.log_prob} for c in best
    ]
    assert said["argmax"]["score"] == found.argmax.score


@pytest.mark.parametrize("by", ["sotl", "train-loss", "valid-accuracy-minibatch", "valid-loss"])
def test_scores_of_trained_weights(folder, by):
    quick = () if by.startswith("valid") else ("--set", "steps=2")
    found = cli("select", folder, "--by", by, "--sample", 3, *quick, "--json").json
    scores = [each["score"] for each in found["candidates"]]
    assert scores == sorted(scores, reverse=by.startswith("valid-accuracy"))
    assert all(0 <= score < 10 for score in scores)


def test_words(folder):
    said = cli("select", folder, "--by", "parameters", "--sample", 30, "--top", 2)
    assert (said.code, said.err) == (0, "")
    found = sample_and_score(pa.open_run(folder), Parameters(), 30)
    lines = said.out.splitlines()
    assert lines[0] == f"{len(found.candidates)} different networks among 30 drawn, largest parameters first:"
    assert lines[1].split() == ["parameters", "probability", "architecture"]
    for line, evaluated in zip((lines[2], lines[3], lines[5]), (*found.candidates[:2], found.argmax), strict=True):
        score, probability, architecture = line.split()
        assert float(score) == evaluated.score
        assert float(probability) == pytest.approx(math.exp(evaluated.log_prob), rel=0.01)
        assert architecture == str(evaluated.architecture)
    assert "most probable" in lines[4]
    assert Parameters.meaning in said.out


def test_a_class_of_ones_own(folder):
    path = "polyarch.scores.parameters:Parameters"
    own, named = (cli("select", folder, "--by", by, "--sample", 5, "--json").json for by in (path, "parameters"))
    assert own["by"] == path
    assert own["candidates"] == named["candidates"]


def test_belief_that_cannot_say_how_probable(folder, monkeypatch):
    def cannot(self, choices):
        raise pa.PolyarchError("not in closed form")

    monkeypatch.setattr(pa.distributions.Categorical, "log_prob", cannot)
    said = cli("select", folder, "--by", "parameters", "--sample", 3)
    assert said.out.splitlines()[1].split() == ["parameters", "architecture"]
    assert "log_prob" not in cli("select", folder, "--by", "parameters", "--sample", 3, "--json").json["argmax"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "give the folder of a run and --by SCORE"),
        (("--by", "sinflow"), "unknown score 'sinflow'; did you mean 'synflow'?"),
        (("--by", "polyarch.spaces.darts:Darts"), "is no score"),
        (("--by", "synflow", "--sample", "0"), "Invalid value for '--sample'"),
        (("--by", "synflow", "--top", "0"), "Invalid value for '--top'"),
        (("--by", "sotl", "--set", "step=3"), "did you mean 'steps'?"),
        (("--by", "sotl", "--set", "steps=0"), "steps is 0"),
        (("--by", "table"), "table needs a table and a column"),
    ],
)
def test_bad_input(folder, arguments, says):
    refused("select", folder, *arguments, says=says)


def test_no_run(tmp_path):
    refused("select", tmp_path, "--by", "synflow", says=str(tmp_path))


def test_data_that_is_gone(from_memory):
    assert cli("select", from_memory, "--by", "snip", "--sample", 5).code == 0
    (from_memory / EXAMPLES).unlink()
    refused("select", from_memory, "--by", "snip", says="came from memory")
    assert cli("select", from_memory, "--by", "synflow", "--sample", 5, "--json").json["architecture"]
