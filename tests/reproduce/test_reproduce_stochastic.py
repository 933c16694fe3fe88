"""Stochastic architectures from training to tables, on digits; and the tables of the docs are those of the rows."""

import json
from pathlib import Path

import pytest
import torch

PAGE = Path(__file__).parents[2] / "docs" / "results" / "stochastic-architectures.md"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the rows are of networks that were trained in `folder / "runs"`."""
    return tmp_path_factory.mktemp("stochastic")


@pytest.fixture
def script(monkeypatch):
    """The script, with networks of seconds."""
    from reproduce import stochastic_architectures as script
    from reproduce import stochastic_measures as measures
    from reproduce import stochastic_networks as networks

    for module in (measures, networks):
        monkeypatch.setattr(module, "MANY", 12)
    monkeypatch.setattr(measures, "PASSES", 3)
    monkeypatch.setattr(measures, "BATCHES", 4)
    monkeypatch.setattr(measures, "COMPARED", 8)
    monkeypatch.setattr(measures, "ATTACKS", measures.ATTACKS[:1])
    small = networks.Setup(
        data="digits", space={"stages": 2, "nodes": 3, "channels": 2}, method={"epochs": 1}, examples=128, small=False,
        watched=40, judged=40, attacked=4, outside="digits", labels=50,
    )  # fmt: skip
    monkeypatch.setitem(networks.SETUPS, "fashion", small)
    return script


def test_from_training_to_rows(script, call, folder, capsys):
    for verb in ("train", "measure"):
        call(script, verb, "fashion", "--runs", folder / "runs", "--out", folder)
    found = json.loads((folder / "fashion.json").read_text())
    rows = {}
    for row in found["rows"]:
        rows.setdefault(row["kind"], {}).setdefault(row["row"], row)
    assert found["command"] == "python -m reproduce.stochastic_architectures measure fashion"
    assert set(rows) == {
        "table", "curves", "seen", "attacks", "few labels", "batch means", "statistics", "ensembles"
    }  # fmt: skip
    table = rows["table"]
    assert table["dropout"]["members"] == 3
    assert table["deep ensemble"]["parameters"] == 5 * table["residual"]["parameters"]
    assert table["deep ensemble"]["log_likelihood"] >= table["individuals"]["log_likelihood"]  # by Jensen
    # the other data is the test data itself, up to its length
    assert table["nsa-id"]["outside"]["entropy"]["auroc"] == pytest.approx(0.5)
    assert len(rows["curves"]) == 16
    assert rows["seen"].keys() == {"nsa-i-5", "nsa-i-50", "nsa-i-12"}
    assert rows["ensembles"]["nsa-i-12"]["counts"] == [1, 2, 5, 10, 12]
    trained = sorted((folder / "runs").iterdir())
    before = [path.stat().st_mtime_ns for path in trained]
    call(script, "train", "fashion", "--runs", folder / "runs", "--out", folder)
    assert [path.stat().st_mtime_ns for path in trained] == before, "nothing is trained twice"


def test_members_alone_are_the_mean_of_networks(script, call, folder):
    from reproduce.stochastic_measures import Bench, log_probs
    from reproduce.stochastic_networks import SETUPS, task_of

    names, where = [f"member-{k}" for k in range(5)], ("--runs", folder / "runs", "--out", folder)
    call(script, "train", "fashion", *where, "--networks", *names)  # unless they are there already
    call(script, "measure", "fashion", *where, "--measures", "table")
    rows = {row["row"]: row for row in json.loads((folder / "fashion.json").read_text())["rows"]}
    setup = SETUPS["fashion"]
    bench = Bench(setup, folder / "runs", 0, task_of("digits", "", setup), None, torch.device("cpu"))
    x, y = bench.test()
    said = torch.stack([log_probs(network, x)[0] for _, network in bench.networks(*names)])
    right = (said.argmax(-1) == y).double().mean()
    assert rows["individuals"]["accuracy"] == pytest.approx(right.item())
    together = (said.exp().mean(0).argmax(-1) == y).double().mean()
    assert rows["deep ensemble"]["accuracy"] == pytest.approx(together.item())


def test_the_page_has_the_tables_of_the_rows(call, capsys):
    from reproduce import stochastic_architectures as script

    call(script, "show")
    told = capsys.readouterr().out.strip()
    assert told in PAGE.read_text(encoding="utf-8")
