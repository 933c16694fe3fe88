"""The bench of agreement runs from end to end, and tells a form that is wrong from one that rounds differently."""

import json

import pytest

from polyarch.spaces import nasbench201_plain
from polyarch.spaces.supernets import ChoiceSupernet


@pytest.fixture
def rows_of(tmp_path):
    from bench import agreement

    def run(part, *words):
        agreement.main([part, "--data", "digits", "--device", "cpu", "--small", "--out", str(tmp_path), *words])
        about, *rows = map(json.loads, (tmp_path / f"{part}.jsonl").read_text().splitlines())
        assert {"command", "commit", "machine"} <= about.keys()
        return rows

    return run


@pytest.fixture
def fused_on_cpu(monkeypatch):
    """The fast form without its kernels: they are alike but for their speed."""
    monkeypatch.setattr(ChoiceSupernet, "_runs_merged", lambda self, x, view: self.merged is not None and self._fast)


def test_a_form_that_rounds_differently_agrees(rows_of, fused_on_cpu):
    rows = rows_of("states", "--spaces", "nasbench201", "--states", "3", "--every", "1")
    assert [row["of"] for row in rows] == ["loss", "belief", "weights", "statistics"]
    assert all(row["agrees"] for row in rows)
    assert all(0 < row["fast_plain"]["worst"] < 1e-3 for row in rows if row["of"] != "loss")


def test_a_form_that_is_wrong_does_not(rows_of, fused_on_cpu, monkeypatch):
    right = nasbench201_plain.statistics

    def wrong(convolved):
        mean, factor, variance = right(convolved)
        return mean, 1.001 * factor, variance

    monkeypatch.setattr(nasbench201_plain, "statistics", wrong)
    rows = {row["of"]: row for row in rows_of("states", "--spaces", "nasbench201", "--states", "2", "--every", "1")}
    assert not rows["belief"]["agrees"]
    assert not rows["weights"]["agrees"]


def test_steps_have_a_control(rows_of, fused_on_cpu):
    *steps, verdict = rows_of("steps", "--steps", "3")
    assert [row["step"] for row in steps] == [1, 2, 3]
    assert all(row["moved"] > 0 for row in steps)
    assert steps[-1]["control_loss"] > 0
    assert verdict["agrees"]


def test_searches_are_compared_over_seeds(rows_of):
    rows = rows_of("search", "--epochs", "1", "--seeds", "2")
    assert [(row["form"], row["seed"]) for row in rows[:4]] == [("plain", 0), ("plain", 1), ("fast", 0), ("fast", 1)]
    assert all(row["agrees"] and row["off"] == 0 for row in rows[4:-1])  # on a CPU both are the plain form
    assert rows[-1]["same"] == 2
