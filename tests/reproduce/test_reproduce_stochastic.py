"""Stochastic architectures from training to tables, on digits; and the tables of the docs are those of the rows."""

import json
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "results" / "stochastic-architectures.md"


@pytest.fixture(autouse=True)
def from_the_root(monkeypatch):
    monkeypatch.syspath_prepend(ROOT)


@pytest.fixture
def reproduce(monkeypatch):
    """The scripts, with networks of seconds."""
    from reproduce import stochastic_architectures as script
    from reproduce import stochastic_measures as measures
    from reproduce import stochastic_networks as networks

    for module in (measures, networks):
        monkeypatch.setattr(module, "MANY", 12)
    monkeypatch.setattr(measures, "PASSES", 6)
    monkeypatch.setattr(measures, "COMPARED", 8)
    small = networks.Setup(
        data="digits",
        space={"stages": 2, "nodes": 3, "channels": 4},
        method={"epochs": 2},
        examples=300,
        small=False,
        watched=40,
        judged=60,
        attacked=20,
        outside="digits",
        labels=50,
    )
    monkeypatch.setitem(networks.SETUPS, "fashion", small)
    return script


def call(script, monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["stochastic_architectures", *map(str, arguments)])
    script.main()


def test_from_training_to_rows(reproduce, monkeypatch, tmp_path, capsys):
    for verb in ("train", "measure"):
        call(reproduce, monkeypatch, verb, "fashion", "--runs", tmp_path / "runs", "--out", tmp_path)
    found = json.loads((tmp_path / "fashion.json").read_text())
    rows = {}
    for row in found["rows"]:
        rows.setdefault(row["kind"], {}).setdefault(row["row"], row)
    assert found["command"] == "python -m reproduce.stochastic_architectures measure fashion"
    assert set(rows) == {
        "table", "curves", "seen", "attacks", "few labels", "batch means", "statistics", "ensembles"
    }  # fmt: skip
    table = rows["table"]
    assert table["dropout"]["members"] == 6
    assert table["deep ensemble"]["parameters"] == 5 * table["residual"]["parameters"]
    assert table["deep ensemble"]["log_likelihood"] >= table["individuals"]["log_likelihood"]  # by Jensen
    # the other data is the test data itself, up to its length
    assert table["nsa-id"]["outside"]["entropy"]["auroc"] == pytest.approx(0.5)
    assert len(rows["curves"]) == 16
    assert rows["seen"].keys() == {"nsa-i-5", "nsa-i-50", "nsa-i-12"}
    assert rows["ensembles"]["nsa-i-12"]["counts"] == [1, 2, 5, 10, 12]
    trained = sorted(path.name for path in (tmp_path / "runs").iterdir())
    before = [(tmp_path / "runs" / name).stat().st_mtime_ns for name in trained]
    call(reproduce, monkeypatch, "train", "fashion", "--runs", tmp_path / "runs", "--out", tmp_path)
    assert [(tmp_path / "runs" / name).stat().st_mtime_ns for name in trained] == before, "nothing is trained twice"


def test_members_alone_are_the_mean_of_networks(reproduce, monkeypatch, tmp_path):
    from reproduce.stochastic_measures import Bench, log_probs
    from reproduce.stochastic_networks import SETUPS, task_of

    names = [f"member-{k}" for k in range(5)]
    call(reproduce, monkeypatch, "train", "fashion", "--runs", tmp_path, "--out", tmp_path, "--networks", *names)
    kinds = ["--measures", "table"]
    call(reproduce, monkeypatch, "measure", "fashion", "--runs", tmp_path, "--out", tmp_path, *kinds)
    rows = {row["row"]: row for row in json.loads((tmp_path / "fashion.json").read_text())["rows"]}
    setup = SETUPS["fashion"]
    bench = Bench(setup, tmp_path, 0, task_of("digits", "", setup), None, torch.device("cpu"))
    x, y = bench.test()
    said = torch.stack([log_probs(bench.network(name), x)[0] for name in names])
    right = (said.argmax(-1) == y).double().mean()
    assert rows["individuals"]["accuracy"] == pytest.approx(right.item())
    together = (said.exp().mean(0).argmax(-1) == y).double().mean()
    assert rows["deep ensemble"]["accuracy"] == pytest.approx(together.item())


def test_the_page_has_the_tables_of_the_rows(monkeypatch, capsys):
    from reproduce import stochastic_architectures as script

    call(script, monkeypatch, "show")
    told = capsys.readouterr().out.strip()
    assert told in PAGE.read_text(encoding="utf-8")
