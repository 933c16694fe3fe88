"""`polyarch search` fits plain models beside what it found: once, at its end or resumed, unless it is told not to."""

import sys

import pytest
from commandline import SPIRALS, TINY, cli, files

import polyarch as pa
from polyarch.runs.plain import read_plain
from polyarch.uncertainty.calibration import log_likelihood

NAMES = ["logistic regression", "boosted trees", "plain network"]
OWN = """
import polyarch as pa
from torch import nn


def make():
    kinds = {"relu": nn.ReLU(), "tanh": nn.Tanh(), "none": nn.Identity()}
    return nn.Sequential(nn.Linear(2, 8), pa.Choice("act", kinds), nn.Linear(8, 2))
"""


def test_they_are_fitted_and_shown(finished):
    found = read_plain(finished)
    assert [model.name for model in found.models] == NAMES
    assert cli("show", finished, "--json").json["plain"]["models"][0]["metrics"] == found.models[0].metrics
    said = cli("show", finished).out
    rows = {line.partition("  ")[0]: line.split() for line in said.splitlines()}
    for model in found.models:
        assert f"{model.metrics['test']['accuracy']:.4f}" in rows[model.name]
    assert f"\n  {' '.join(found.sentences())}\n" in said
    page = (finished / "report.html").read_text(encoding="utf-8")
    assert all(f"<td>{name.capitalize()}</td>" in page for name in NAMES)


def test_a_resumed_search_has_them_and_a_finished_one_keeps_them(interrupted, finished):
    said = cli("search", "--resume", "--out", interrupted)
    assert said.code == 0, said.err
    assert "plain models: fitting logistic regression, boosted trees and plain network, in 3 s at most\n" in said.err
    own, undisturbed = read_plain(interrupted), read_plain(finished)
    assert [model.metrics for model in own.models] == [model.metrics for model in undisturbed.models]
    assert [model.difference for model in own.models] == [model.difference for model in undisturbed.models]
    before = files(interrupted)
    again = cli("search", "--resume", "--out", interrupted)
    assert "plain models" not in again.err
    assert files(interrupted)["plain.json"] == before["plain.json"]


def test_without_them(tmp_path):
    out = tmp_path / "run"
    said = cli("search", *TINY, "--no-plain", "--out", out)
    assert said.code == 0
    assert "plain" not in said.err
    assert not (out / "plain.json").exists()
    assert "plain" not in cli("show", out, "--json").json
    assert "Boosted trees" not in (out / "report.html").read_text(encoding="utf-8")
    assert cli("search", "--resume", "--out", out).code == 0
    assert read_plain(out) is not None


def test_runs_beneath_a_search_and_single_networks_have_none(tmp_path):
    out = tmp_path / "run"
    assert cli("search", *TINY, "--repeats", 2, "--baselines", "1", "--out", out).code == 0
    assert sorted(path.relative_to(out).as_posix() for path in out.rglob("plain.json")) == [
        "seed-0/plain.json",
        "seed-1/plain.json",
    ]
    rows = [line.partition("  ")[0] for line in cli("show", out).out.splitlines()]
    assert rows.index("plain network") < rows.index("fixed depth=1")
    assert all("plain" in run for run in cli("show", out, "--json").json["runs"])
    assert cli("train", out / "seed-0", "--out", tmp_path / "alone", "--set", "epochs=1").code == 0
    assert not (tmp_path / "alone" / "plain.json").exists()


def test_they_are_compared_with_the_network_that_is_handed_over(tmp_path, monkeypatch):
    (tmp_path / "beside_plain.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    out = tmp_path / "run"
    short = ("--set", "epochs=4", "--set", "samples=2", "--set", "batch_size=20", "--device", "cpu")
    search = ("--space", "beside_plain:make", "--method", "parsec", *SPIRALS, *short)
    assert cli("search", *search, "--no-train", "--out", out).code == 0
    shared = read_plain(out)
    assert not shared.trained
    assert shared.advice == "train what it selected alone"
    assert cli("search", "--resume", "--out", out).code == 0
    alone, run = read_plain(out), pa.open_run(out)
    assert alone.trained
    assert [model.metrics for model in alone.models] == [model.metrics for model in shared.models]
    worth = run.result["metrics"]["select_trained"]["log_likelihood"]
    mixture = (run.ensemble()(run.task().select.x).log_probs / run.temperature).log_softmax(-1)
    together = log_likelihood(mixture, run.task().select.y)
    assert alone.own_metrics["log_likelihood"] == pytest.approx(max(worth, together), abs=1e-6)
    sys.modules.pop("beside_plain", None)
