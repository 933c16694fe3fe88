"""Studies of belief over depth, small: they run, a known answer comes out of their arithmetic, and tables are drawn."""

import importlib
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import polyarch as pa
from polyarch.distributions import Categorical
from polyarch.distributions.evidence import pruned_mixtures

RESULTS = Path(__file__).parents[2] / "docs" / "results"


def rows_of(file):
    return json.loads(file.read_text())["rows"]


def test_predictions_of_a_belief_by_hand():
    from reproduce import nested_belief

    q, probs = torch.tensor([0.5, 0.3, 0.2]), torch.rand(3, 40, 2, dtype=torch.float64)
    probs, target = probs / probs.sum(-1, keepdim=True), torch.randint(2, (40,))
    assert nested_belief.pruned(q, 1).tolist() == pytest.approx([0.5, 0.5, 0.0])
    assert nested_belief.pruned(q, 2).tolist() == pytest.approx(q.tolist())
    mixed = torch.einsum("d,dnc->nc", nested_belief.pruned(q, 1).double(), probs)
    worth = nested_belief.worth(mixed, target)
    decisions = pa.spaces.ResidualDepth(max_depth=2).decisions
    held_out = probs.log().gather(2, target.expand(3, -1)[..., None]).squeeze(-1)
    by_library = pruned_mixtures(Categorical(decisions, q.log()[None]), held_out)[1]
    assert worth["log_likelihood"] == pytest.approx(by_library.mean().item(), abs=1e-6)
    assert worth["p_true"] == pytest.approx(by_library.exp().mean().item(), abs=1e-6)
    assert worth["error"] == (mixed.argmax(-1) != target).double().mean()


def test_nested_belief(call, tmp_path, monkeypatch, capsys):
    from reproduce import nested_belief

    wine = nested_belief.DATA["wine"]
    small = replace(wine, space=pa.spaces.ResidualDepth(max_depth=2, width=4), training={"batch_size": 64, "epochs": 2})
    monkeypatch.setattr(nested_belief, "DATA", {"wine": small})
    monkeypatch.setattr(nested_belief, "FIXED", (0, -1))
    call(nested_belief, "--quick", "--only", "wine", "--out", tmp_path)
    rows = rows_of(tmp_path / "wine.json")
    assert [(row["way"], row["seed"]) for row in rows] == [
        (way, seed) for way in (*nested_belief.WAYS, "fixed", "fixed") for seed in (0, 1)
    ]
    for row in rows[2:6]:
        assert row["lag"]["select" if row["way"] == "natural-held" else "train"] == pytest.approx(0, abs=1e-4)
    capsys.readouterr()
    call(nested_belief, "--table", "--out", tmp_path)
    assert "| wine | natural-held | sufficient |" in capsys.readouterr().out


def test_spiral_draws(call, tmp_path, monkeypatch, capsys):
    from reproduce import spiral_draws

    monkeypatch.setattr(spiral_draws, "SPACE", pa.spaces.ResidualDepth(max_depth=4, width=4))
    monkeypatch.setattr(spiral_draws, "FIXED", (1, 4))
    call(spiral_draws, "--quick", "--draws", 1, "--epochs", 2, "--out", tmp_path)
    *learnt, shallow, deep = rows_of(tmp_path / "draws.json")
    assert [row["way"] for row in learnt] == list(spiral_draws.WAYS)
    assert (shallow["depth"], deep["depth"]) == (1, 4)
    assert all(len(row["test"]) == len(row["train"]) == 5 for row in learnt)
    capsys.readouterr()
    monkeypatch.setattr(spiral_draws, "BESIDE", 4)
    call(spiral_draws, "--table", "--out", tmp_path)
    said = capsys.readouterr().out
    assert "| natural, held-out: network by sufficient |" in said
    assert spiral_draws.interval([0.1, 0.2, 0.3]).startswith("+0.200 (−0.048 to +0.448)")  # Student's, two degrees


def test_tuning_has_at_least_the_compute_of_the_search(call, tmp_path, monkeypatch, capsys):
    pytest.importorskip("optuna")
    from reproduce import tuned

    data = tuned.DATA["breast-cancer"]
    monkeypatch.setattr(
        tuned, "DATA", {"breast-cancer": replace(data, training={"batch_size": 256, "epochs": 1}, widths=(2, 4))}
    )
    monkeypatch.setattr(tuned, "DEPTH", 2)
    call(tuned, "--quick", "--seeds", 1, "--out", tmp_path)
    search, *tuning = rows_of(tmp_path / "breast-cancer.json")
    assert (search["who"], search["mixture"].keys()) == ("one search", {"log_likelihood", "error", "ece"})
    assert [row["who"] for row in tuning] == ["TPE, 1 times the compute", "random, 1 times the compute"]
    for row in tuning:
        assert row["seconds"] >= search["seconds"]
        assert row["trials"] >= 1
        assert 0 <= row["depth"] <= 2
    capsys.readouterr()
    call(tuned, "--table", "--out", tmp_path)
    assert "| breast-cancer | one search |" in capsys.readouterr().out


def test_natural_steps_of_what_factorises_find_what_factorises():
    """Where log-likelihoods are sums over decisions, the posterior factorises, and a few contexts know it exactly."""
    from reproduce.factorised import factorised

    space, chance = pa.spaces.NasBench201(channels=2, cells=1), torch.Generator().manual_seed(0)
    worth = torch.randn(6, 5, generator=chance, dtype=torch.float64)
    asked = []

    def totals(choices):
        asked.append(len(choices))
        return worth.gather(1, choices.T).sum(0)

    found = factorised(space.decisions, totals, contexts=2)
    assert torch.allclose(found.log_probs.double(), worth.log_softmax(-1), atol=1e-5)
    assert set(asked) == {2 * 5}


def test_natural_steps_climb_the_bound_where_decisions_depend_on_each_other():
    """Its optimum need not be the best belief that factorises, but is a belief better than the prior."""
    from reproduce.factorised import factorised

    decisions = pa.spaces.NasBench201(channels=2, cells=1).decisions[:2]
    joint = 3 * torch.randn(5, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)

    def bound(belief):
        first, second = belief.log_probs.double()
        both = first[:, None] + second
        return (both.exp() * (joint - both)).sum()

    prior = Categorical(decisions, torch.zeros(2, 5, dtype=torch.float64))
    found = factorised(decisions, lambda choices: joint[choices[:, 0], choices[:, 1]], contexts=64)
    assert bound(found) > bound(prior) + 1
    assert bound(found) <= joint.flatten().logsumexp(0) + 1e-9


@pytest.mark.parametrize("name", ["nested_belief", "spiral_draws", "belief", "factorised", "tuned"])
def test_the_page_shows_what_was_kept(name, call, capsys):
    script = importlib.import_module(f"reproduce.{name}")
    call(script, "--table")
    page = (RESULTS / "belief.md").read_text()
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert lines
    assert [line for line in lines if line not in page] == []
