"""`polyarch trust`: a tiny search, networks trained alone, interrupted and gone on with; and ground truth."""

import json
import shutil

import numpy as np
import pytest
import torch
from commandline import SPIRALS, TINY, cli, files, refused

import polyarch as pa
from polyarch.ranking import judge, read_trust, trust_by_training
from polyarch.ranking.trust import SELDOM, Drawn
from polyarch.runs import search as searching
from polyarch.tables import convert
from polyarch.testing.callbacks import InterruptAfter

CELLS = ("--space", "nasbench201", "--set", "channels=2", "--set", "cells=1", "--data", "digits", "--device", "cpu")
SHORT = ("--set", "epochs=1", "--device", "cpu")
OWN = """
import polyarch as pa
from torch import nn


def make():
    kinds = {"relu": nn.ReLU(), "tanh": nn.Tanh(), "none": nn.Identity()}
    return nn.Sequential(nn.Linear(2, 8), pa.Choice("act", kinds), nn.Linear(8, 2))
"""


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cells") / "run"
    method = ("--method", "parsec", "--set", "epochs=1", "--set", "samples=2", "--set", "arch.lr=0.5")
    assert cli("search", *CELLS, *method, "--no-train", "--out", folder).code == 0
    return folder


@pytest.fixture
def cells(searched, tmp_path):
    """A search of cells on digits, to be touched."""
    return shutil.copytree(searched, tmp_path / "run")


@pytest.fixture
def depths(finished, tmp_path, monkeypatch):
    """A search of depths, to be touched, and a table of them."""
    rows = "depth=0,61.5,9\ndepth=1,93.25,8\ndepth=2,88.0,7\n"
    (tmp_path / "depths.csv").write_text(f"arch,test_acc,test_loss\n{rows}")
    convert(tmp_path / "depths.csv", tmp_path / "depths.npz")
    monkeypatch.setenv("POLYARCH_TABLES", str(tmp_path))
    return shutil.copytree(finished, tmp_path / "run")


# ---------------------------------------------------------------------------------------------------------------------
# By training.


def test_interrupted_and_resumed(cells, monkeypatch):
    """Ctrl-C in the third of four trainings; then the same command, and once more with a larger number."""
    before, train = files(cells), searching.search

    def interrupted(*given, out, **more):
        if out.name == "belief-0":
            more["callbacks"] = [*more["callbacks"], InterruptAfter(0)]
        return train(*given, out=out, **more)

    monkeypatch.setattr(searching, "search", interrupted)
    said = cli("trust", cells, "--train", 3, *SHORT)
    assert said.code == 130
    assert said.err.endswith("interrupted; the same command goes on where it was\n")
    assert read_trust(cells) is None
    monkeypatch.undo()
    kept = files(cells / "trust" / "uniform-0")
    found = cli("trust", cells, "--train", 3, *SHORT, "--json").json
    assert files(cells / "trust" / "uniform-0") == kept
    assert [one["source"] for one in found["drawn"]] == ["uniform", "belief", "uniform"]
    assert found["by"] == "training"
    assert found["selected"] == json.loads(before["architecture.json"])["architecture"]
    assert found["selected_worth"] == worth_of(cells / "trust" / "selected")
    run = pa.open_run(cells)
    for one, name in zip(found["drawn"], ("uniform-0", "belief-0", "uniform-1"), strict=True):
        trained = pa.open_run(cells / "trust" / name)
        assert str(trained.architecture) == one["architecture"]
        assert one["worth"] == worth_of(trained.folder)
        choices = torch.tensor([run.space.parse(one["architecture"]).choices])
        log_belief = run.distribution.log_prob(choices).item()
        assert one["log_belief"] == pytest.approx(log_belief)
    more = cli("trust", cells, "--train", 4, *SHORT, "--json").json
    assert more["drawn"][:3] == found["drawn"]
    assert len({pa.open_run(folder).seed for folder in (cells / "trust").glob("*-?")}) == 4
    after = files(cells)
    assert {name: after[name] for name in before if name != "report.html"} == {
        name: content for name, content in before.items() if name != "report.html"
    }


def test_show_and_the_report_tell_of_it(cells):
    assert "trust" not in cli("show", cells).out
    said = cli("trust", cells, "--train", 2, *SHORT)
    assert said.code == 0, said.err
    found = read_trust(cells)
    assert said.out.splitlines()[:4] == found.sentences()
    assert SELDOM in found.sentences()[0]
    assert f"  trust, {found.headline()}\n" in cli("show", cells).out
    page = (cells / "report.html").read_text()
    assert '<section id="trust">' in page
    assert "does belief order them?" in page
    assert page.count("It is open whether belief orders architectures") == 2  # at the top, and in the section
    refused("trust", cells, "--train", 2, "--set", "epochs=2", "--device", "cpu", says="other settings (epochs)")


def test_an_own_module_and_the_depth_space(tmp_path, monkeypatch, depths):
    (tmp_path / "trusted_model.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    method = ("--method", "parsec", "--set", "samples=2", "--set", "batch_size=20", "--no-train")
    out = tmp_path / "own"
    assert cli("search", "--space", "trusted_model:make", *method, *SPIRALS, *SHORT, "--out", out).code == 0
    for folder in (out, depths):
        found = cli("trust", folder, "--train", 3, "--set", "batch_size=20", *SHORT, "--json").json
        assert len(found["drawn"]) == 3


def worth_of(folder):
    return pa.open_run(folder).result["metrics"]["test"]["log_likelihood"]


# ---------------------------------------------------------------------------------------------------------------------
# By a table.


def test_by_a_table(depths):
    found = cli("trust", depths, "--table", "depths", "--column", "test_acc", "--sample", 40, "--json").json
    truth = {"depth=0": 61.5, "depth=1": 93.25, "depth=2": 88.0}
    assert all(one["worth"] == truth[one["architecture"]] for one in found["drawn"])
    assert found["selected_worth"] == truth[found["selected"]]
    assert sum(one["source"] == "belief" for one in found["drawn"]) == 20
    uniform = [one["worth"] for one in found["drawn"] if one["source"] == "uniform"]
    assert found["selected_ahead"]["value"] == found["selected_worth"] - np.median(uniform)
    loss = cli("trust", depths, "--table", "depths", "--column", "test_loss", "--sample", 40, "--json").json
    assert loss["better"] == "lower"
    assert not (depths / "trust").exists()
    assert json.loads((depths / "trust.json").read_text())["worth_is"].startswith("test_loss of ")


def test_a_damaged_result_is_said_to_be(depths):
    cli("trust", depths, "--table", "depths", "--column", "test_acc")
    text = (depths / "trust.json").read_text()
    (depths / "trust.json").write_text(text.replace("93.25", "93.26"))
    refused("show", depths, says="do not match its digest")


def test_bad_input(depths, tmp_path):
    refused("trust", depths, "--train", 1, says="draw 2 to 1000")
    refused("trust", depths, "--sample", 5, says="--sample is for a table")
    refused("trust", depths, "--table", "depths", "--train", 4, says="leave --train and --set out")
    refused("trust", depths, "--table", "nowhere", says="nowhere")
    refused("trust", depths, "--table", "depths", "--column", "test_acc", "--sample", 2000, says="draw 2 to 1000")
    refused("trust", depths, "--set", "architecture=depth=1", says="architectures are drawn")
    refused("trust", depths, "--set", "epoch=1", says="epochs")
    refused("trust", tmp_path / "none", says="holds no run")
    assert not (depths / "trust.json").exists()
    alone = tmp_path / "alone"
    assert cli("train", "--space", "depth", "--arch", "depth=1", *TINY, "--out", alone).code == 0
    refused("trust", alone, says="nothing was searched")


# ---------------------------------------------------------------------------------------------------------------------
# What is said.


def drawn(log_beliefs, worths):
    sources = ("uniform", "belief") * len(worths)
    return [Drawn("a", *one) for one in zip(sources, log_beliefs, worths, strict=False)]


def said_of(log_beliefs, worths, selected=10.0, **more):
    found = judge(drawn(log_beliefs, worths), "a", selected, worth_is="it", by="table", **more)
    return found, found.sentences()


def test_verdicts_in_words():
    down, up = [-float(k) for k in range(20)], [float(k) for k in range(20)]
    good, words = said_of(up, up, 30.0)
    assert (good.order.verdict, good.selected_wins.verdict) == ("yes", "yes")
    assert words[0].startswith("Belief orders architectures: Kendall's tau is 1.00")
    assert words[1].startswith("The selected network beats a random one")
    assert words[2].startswith("It is open whether a draw from belief beats a uniform one: probability 0.55")
    bad, words = said_of(down, up, -1.0)
    assert bad.order.verdict == "no"
    assert words[0].startswith("Belief orders architectures the wrong way round")
    assert words[1].startswith("The selected network loses against a random one")
    turned, _ = said_of(down, up, -1.0, better="lower")
    assert (turned.order.verdict, turned.selected_wins.verdict) == ("yes", "yes")
    assert turned.selected_ahead.value == pytest.approx(10.0)


def test_a_belief_without_an_order():
    flat, words = said_of([-1.0] * 8, range(8))
    assert words[0] == "Belief has no order to judge: belief is the same for all that were drawn."
    assert flat.selected_wins.estimate.value == 1
    unknown, words = said_of([None] * 8, range(8), unknown="it has no closed form")
    assert words[0] == "Belief has no order to judge: it has no closed form."
    json.dumps(unknown.summary(), allow_nan=False)


def test_in_python(cells):
    method = pa.methods.Standalone(epochs=1)
    found = trust_by_training(pa.open_run(cells), 2, method, compute=pa.Compute("cpu"))
    assert read_trust(cells) == found
