"""Searches at their defaults beside scikit-learn: the page shows its rows, and one set runs."""

import json

import numpy as np
import pytest


@pytest.fixture
def own_data():
    from reproduce import own_data

    return own_data


def test_seeds_are_taken_together_as_all_their_examples(own_data):
    random = np.random.default_rng(0)
    seeds = [random.normal(mean, 1.0, size) for mean, size in ((0.0, 20), (0.5, 31), (-0.2, 12))]
    rows = [
        {"examples": len(own), "difference": own.mean(), "error": own.std(ddof=1) / len(own) ** 0.5} for own in seeds
    ]
    every = np.concatenate(seeds)
    assert own_data.together(rows) == pytest.approx((every.mean(), every.std(ddof=1) / len(every) ** 0.5))


@pytest.mark.parametrize(("difference", "as_good"), [(-1.0, True), (0.09, True), (0.11, False)])
def test_as_good_is_within_one_standard_error(own_data, difference, as_good):
    assert own_data.holds([{"examples": 100, "difference": difference, "error": 0.1}]) is as_good


def test_losses_are_those_that_scikit_learn_has(own_data):
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import log_loss

    x = np.random.default_rng(1).normal(size=(60, 3))
    y = (x.sum(1) > 0) * 2 + (x[:, 0] > 0)
    model = LogisticRegression().fit(x, y)
    assert own_data._losses_of(model, x, y, True).mean() == pytest.approx(log_loss(y, model.predict_proba(x)))


def test_every_set_is_written_and_read(own_data, tmp_path):
    import polyarch as pa

    for name in ("iris", "gaps", "tokens", "moons"):
        task = pa.data.load(str(own_data.SETS[name].write(tmp_path)))
        assert len(task.splits) == 3


def test_one_set_runs_and_is_not_run_twice(own_data, call, tmp_path, capsys):
    call(own_data, "--quick", "--out", tmp_path)
    [row] = json.loads((tmp_path / "wine.json").read_text())["rows"]
    assert row["chosen"].startswith("chosen for 98 examples of 13 numbers: select=0.25")
    assert set(row["models"]) == {"linear", "trees", "network"}
    assert row["best"] == min(row["models"], key=lambda name: row["models"][name]["select"])
    assert row["loss"] < 0.5
    assert row["loss"] - row["models"][row["best"]]["test"] == pytest.approx(row["difference"])
    capsys.readouterr()
    call(own_data, "--quick", "--out", tmp_path)
    assert capsys.readouterr().out == ""


def test_the_page_shows_the_rows_that_are_kept(own_data):
    found = own_data.read(own_data.OUT)
    page = own_data.PAGE.read_text(encoding="utf-8")
    assert found
    assert own_data.with_table(page, found) == page
    assert own_data.shown(found) in page
