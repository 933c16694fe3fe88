"""Tokens reach the embedding of a module of one's own as whole numbers, from the search to a prediction."""

import json
import sys

import numpy as np
import pytest
import torch
from commandline import cli, refused

import polyarch as pa

READER = """
import polyarch as pa
from torch import nn


class Reader(nn.Module):
    def __init__(self, rows=20):
        super().__init__()
        self.embedding = nn.Embedding(rows, 8)
        self.mix = pa.Choice("mix", {"mean": Mean(), "largest": Largest()})
        self.head = nn.Linear(8, 2)

    def forward(self, tokens):
        return self.head(self.mix(self.embedding(tokens)))


class Mean(nn.Module):
    def forward(self, x):
        return x.mean(-2)


class Largest(nn.Module):
    def forward(self, x):
        return x.amax(-2)


def too_small():
    return Reader(19)


def deep():
    head = nn.Sequential(nn.Flatten(), nn.Linear(48, 2))
    return nn.Sequential(nn.Embedding(20, 8), pa.Depth("depth", [nn.Linear(8, 8) for _ in range(2)], head))
"""
PARSEC = ("--method", "parsec", "--set", "epochs=25", "--set", "samples=2", "--set", "batch_size=32", "--device", "cpu")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with a model that reads tokens, and 400 texts of six: the class is whether one of them is 7."""
    folder = tmp_path_factory.mktemp("tokens")
    (folder / "my_reader.py").write_text(READER)
    random = np.random.default_rng(0)
    y = random.integers(0, 2, 400)
    x = random.choice([token for token in range(20) if token != 7], (400, 6))
    x[y == 1, 2] = 7
    x[0, 0] = 19
    np.savez(folder / "texts.npz", x=x, y=y)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.syspath_prepend(folder)
        yield folder
        sys.modules.pop("my_reader", None)


@pytest.fixture(scope="module")
def searched(home):
    arguments = ("--space", "my_reader:Reader", *PARSEC, "--set", "weights.lr=0.3", "--set", "select=0.2")
    return cli("search", *arguments, "--data", "texts.npz", "--out", "run", "--json")


def test_a_model_learns_of_tokens(home, searched):
    """As numbers of mean 0 they left every model at chance, or failed in its embedding."""
    assert searched.json["metrics"]["test"]["accuracy"] > 0.9
    assert "240 train, 80 select, 80 test examples of 6 tokens each" in searched.err
    kept = json.loads((home / "run" / "config.json").read_text())["data"]["inputs"]
    assert kept == {"shape": [6], "type": "tokens", "low": [0.0], "high": [19.0], "columns": None, "parts": None}
    assert "6 tokens" in (home / "run" / "report.html").read_text()


def test_they_are_tokens_in_all_that_follows(home, searched):
    task, run = pa.data.load("texts.npz", select=0.2), pa.open_run("run")
    assert run.model()(task.test.x).argmax(-1).eq(task.test.y).double().mean() > 0.9
    assert run.model()[0](task.test.x).dtype == torch.int64
    found = cli("evaluate", "run", "--json").json["metrics"]
    assert found["selected"] == pytest.approx(searched.json["metrics"]["test"], abs=1e-6)
    np.savez("test.npz", x=task.test.x.numpy().astype(np.int32), y=task.test.y)
    assert cli("evaluate", "run", "--data", "test.npz", "--json").json["metrics"] == found
    rows = cli("predict", "run", "--inputs", "test.npz", "--json").json["predictions"]
    said = run.ensemble()(task.test.x)
    assert [row["class"] for row in rows] == [str(k) for k in said.log_probs.argmax(-1).tolist()]
    assert min(row["entropy"] for row in rows) >= 0
    assert cli("search", "--resume", "--out", "run").code == 0
    assert cli("select", "run", "--by", "valid-accuracy", "--sample", "4").code == 0


def test_tokens_in_memory_and_in_a_module_with_depth(home, tmp_path):
    task = pa.data.load(tuple(np.load("texts.npz").values()), select=0.2)
    method = pa.methods.VariationalDepth(epochs=2, batch_size=32)
    run = pa.search(pa.ModuleSpace("my_reader:deep"), task, method, out=tmp_path / "run", compute=pa.Compute("cpu"))
    assert run.model()(task.test.x).shape == (80, 2)


def test_what_is_no_token_of_the_run_is_refused(home, searched, tmp_path):
    x = np.load("texts.npz")["x"][:9]
    np.savez(tmp_path / "floats.npz", x=x.astype(np.float32), y=np.arange(9) % 2)
    np.savez(tmp_path / "unknown.npz", x=x + 20, y=np.arange(9) % 2)
    (tmp_path / "d.csv").write_text("a,b,c,d,e,f\n1,2,3,4,5,6\n")
    for asked in (("predict", "--inputs"), ("evaluate", "--data"), ("evaluate", "--ood")):
        refused(asked[0], "run", *asked[1:], tmp_path / "floats.npz", says=("this run takes tokens", "int64"))
        refused(asked[0], "run", *asked[1:], tmp_path / "unknown.npz", says="this run knows the tokens 0 to 19")
    refused("predict", "run", "--inputs", tmp_path / "d.csv", says=("this run takes tokens", "int64 in a .npz"))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--space", "depth"), ("tokens", "the space 'depth' has no embedding", "save numbers as float32")),
        (("--space", "nasbench201", *PARSEC), "needs images"),
        (("--space", "my_reader:too_small", *PARSEC), ("on 20 tokens of shape (6,)", "index out of range")),
    ],
)
def test_networks_without_an_embedding_for_them(home, arguments, says):
    refused("search", *arguments, "--data", "texts.npz", "--out", "none", says=says)
    assert not (home / "none").exists()


@pytest.mark.parametrize("score", ["jacob-cov", "synflow"])
def test_scores_that_change_inputs_a_little(home, searched, score):
    refused("select", "run", "--by", score, "--sample", "2", says=(score, "these are tokens", "another score"))


def test_memory_and_cost(home, searched):
    needs = cli("doctor", "--space", "my_reader:Reader", *PARSEC[:-2], "--data", "texts.npz", "--json")
    assert needs.json["search"]["parameters"] == 20 * 8 + 18
    assert searched.json["cost"]["selected"] == {
        "parameters": 178,
        "macs": 18,
        "uncounted": sorted(["embedding", "mean" if "mean" in searched.json["architecture"] else "amax"]),
    }
    asked = ("cost", "--space", "my_reader:Reader", "--input", "6", "--tokens", "20", "--classes", "2")
    found = cli(*asked, "--arch", "mix=largest", "--json").json
    assert (found["parameters"], found["macs"], found["uncounted"]) == (178, 18, ["amax", "embedding"])
    refused(*asked[:-4], "--tokens", "21", "--arch", "mix=largest", says="on 21 tokens of shape (6,)")
