"""Runs on data from memory, looked at from the command line once that memory is gone."""

import numpy as np
import pandas as pd
import pytest
import torch
from commandline import assert_same_run, check_one_line, cli, refused

import polyarch as pa
from polyarch.callbacks import Checkpoints
from polyarch.data.splitting import fingerprint
from polyarch.errors import PolyarchError
from polyarch.runs import examples
from polyarch.runs.examples import EXAMPLES
from polyarch.testing.callbacks import InterruptAfter

SPACE = pa.spaces.ResidualDepth(max_depth=2, width=4)
METHOD = pa.methods.VariationalDepth(epochs=4, batch_size=20)
CPU = pa.Compute("cpu")
STOPPED = [Checkpoints(seconds=0), InterruptAfter(2)]


def table(rows=160):
    """Numbers with gaps and words, and names of classes."""
    random = np.random.default_rng(0)
    frame = pd.DataFrame({"size": random.normal(size=rows), "city": random.choice(["Bonn", "Rome"], rows)})
    named = np.where(frame["size"] > 0, "large", "small")
    frame.loc[::9, "size"] = np.nan
    return frame, named


@pytest.fixture
def task():
    return pa.data.load(table(), calibrate=20)


def test_whole_data_is_there_again(task, tmp_path):
    pa.search(SPACE, task, METHOD, out=tmp_path / "run", compute=CPU)
    again = pa.open_run(tmp_path / "run").task()
    assert repr(again) == repr(task)
    assert again.fingerprint == task.fingerprint == fingerprint(again.splits, again.preprocess)
    assert again.shape == task.shape
    assert again.inputs == task.inputs
    assert again.indices.keys() == task.indices.keys()
    for name, split in task.splits.items():
        assert torch.equal(split.x.nan_to_num(-1), again.splits[name].x.nan_to_num(-1))
        assert torch.equal(task.preprocess(split.x), again.preprocess(again.splits[name].x))
        assert torch.equal(task.indices[name], again.indices[name])


def test_evaluate_and_report_give_what_the_search_gave(task, tmp_path):
    run = pa.search(SPACE, task, METHOD, out=tmp_path / "run", compute=CPU)
    found = cli("evaluate", tmp_path / "run", "--json").json
    for name, own in (("selected", "test"), ("ensemble", "test_ensemble")):
        assert found["metrics"][name] == pytest.approx(run.result["metrics"][own])
    assert cli("report", tmp_path / "run").code == 0
    assert "large" in (tmp_path / "run" / "report.html").read_text()
    assert cli("show", tmp_path / "run").code == 0
    table()[0].to_csv(tmp_path / "rows.csv", index=False)
    assert cli("predict", tmp_path / "run", "--inputs", tmp_path / "rows.csv", "--coverage", "0.9").code == 0


def test_a_search_that_was_interrupted_goes_on_from_the_command_line(task, tmp_path):
    pa.search(SPACE, task, METHOD, out=tmp_path / "whole", compute=CPU)
    with pytest.raises(KeyboardInterrupt):
        pa.search(SPACE, task, METHOD, out=tmp_path / "torn", compute=CPU, callbacks=STOPPED)
    assert cli("search", "--resume", "--no-plain", "--out", tmp_path / "torn").code == 0
    assert_same_run(tmp_path / "whole", tmp_path / "torn")


def test_large_data_is_kept_in_part_and_that_is_said(task, tmp_path, monkeypatch):
    size = 2 * 8 + 8
    monkeypatch.setattr(examples, "MOST_BYTES", (20 + 24 + 32 + 40) * size)
    pa.search(SPACE, task, METHOD, out=tmp_path / "run", compute=CPU)
    run, lacks = pa.open_run(tmp_path / "run"), "40 of 84 of train"
    assert {name: len(split) for name, split in run.task(sample=True).splits.items()} == {
        "train": 40,
        "select": 24,
        "calibrate": 20,
        "test": 32,
    }
    rows = run.task(sample=True).indices["train"]
    assert set(rows.tolist()) < set(task.indices["train"].tolist())
    said = cli("evaluate", tmp_path / "run", "--json")
    check_one_line(said.err, ("came from memory, and the run kept some of it", lacks))
    assert said.json["metrics"]["selected"] == pytest.approx(run.result["metrics"]["test"])  # test data is whole
    assert cli("report", tmp_path / "run").code == 0
    (tmp_path / "run" / "result.json").unlink()
    refused(
        "search", "--resume", "--out", tmp_path / "run", says=("too large to be kept whole", lacks, "pass the task")
    )


def test_examples_never_take_more_than_they_may(monkeypatch):
    for counts in ({"a": 7}, {"a": 10, "b": 3, "c": 500}, {"a": 50, "b": 50, "c": 49}, {"a": 1, "b": 1, "c": 1}):
        for room in range(3, 300):
            monkeypatch.setattr(examples, "MOST_BYTES", 4 * room)
            most = examples._most(counts, 4)
            kept = sum(min(count, most) for count in counts.values())
            assert kept <= max(room, len(counts))
            more = sum(min(count, most + 1) for count in counts.values())
            assert more > room or kept == sum(counts.values())


def test_runs_beneath_a_run_leave_it_to_that(task, tmp_path):
    runs = pa.search(SPACE, task, METHOD, out=tmp_path / "run", repeats=2, compute=CPU)
    alone = pa.methods.FixedDepth(depth=1, epochs=2, batch_size=20)
    pa.search(SPACE, task, alone, out=tmp_path / "run" / "baselines" / "depth-1", compute=CPU)
    other = pa.data.load((np.ones((60, 2)) * np.arange(60)[:, None], np.arange(60) % 2))
    pa.search(SPACE, other, alone, out=tmp_path / "run" / "another", compute=CPU)
    kept = {str(path.parent.relative_to(tmp_path)) for path in tmp_path.rglob(EXAMPLES)}
    assert kept == {"run", "run/another"}
    for folder in (runs[1].folder, tmp_path / "run" / "baselines" / "depth-1"):
        assert repr(pa.open_run(folder).task()) == repr(task)
    assert cli("report", tmp_path / "run").code == 0


def test_data_with_a_name_is_not_kept(tmp_path):
    pa.search(SPACE, "spirals", METHOD, out=tmp_path / "run", compute=CPU)
    assert not (tmp_path / "run" / EXAMPLES).exists()


def test_a_folder_that_cannot_hold_them_is_left_as_it_was(task, tmp_path, monkeypatch):
    def full(*args):
        raise PolyarchError("no room left")

    monkeypatch.setattr(examples.checkpoints, "save", full)
    (tmp_path / "empty").mkdir()
    for name in ("new", "empty"):
        with pytest.raises(PolyarchError, match="no room left"):
            pa.search(SPACE, task, METHOD, out=tmp_path / name, compute=CPU)
    assert not (tmp_path / "new").exists()
    assert {path.name for path in (tmp_path / "empty").iterdir()} <= {"lock"}
