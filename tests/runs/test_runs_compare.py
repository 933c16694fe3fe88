"""Comparisons: what they are made of, what comes out, and that nothing is lost or done twice whoever dies."""

import importlib
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from comparing import SPACE, begun, claimed, data, method, outcome, outcomes

import polyarch as pa
from polyarch.callbacks import Checkpoints
from polyarch.errors import PolyarchError
from polyarch.files import read_json
from polyarch.runs.claims import Claims
from polyarch.runs.compare import carry_on
from polyarch.runs.folders import states
from polyarch.runs.grid import CLAIMS, FAILED, RUNS, Grid
from polyarch.runs.standings import Comparison
from polyarch.runs.workers import make_run, work
from polyarch.testing.callbacks import InterruptAfter

CELLS = pa.spaces.NasBench201(channels=2, cells=1)


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    """As workers have it: sums are taken in the same order."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A comparison that one worker made in this process; look, but do not touch."""
    folder = tmp_path_factory.mktemp("finished") / "comparison"
    begun(folder)
    assert work(folder) == 8
    return folder


# ---------------------------------------------------------------------------------------------------------------------
# What it is made of.


def test_what_nobody_searched_for_is_always_there(finished):
    grid = Grid.read(finished)
    names = [entrant.name for entrant in grid.entrants]
    assert names == ["mine", "random architecture", "largest network", "uniform belief"]
    assert [entrant.baseline for entrant in grid.entrants] == [False, True, True, True]
    _, random, largest, uniform = (grid.config_of(entrant).method for entrant in grid.entrants)
    assert (random["name"], largest["name"], uniform["name"]) == ("fixed-depth", "fixed-depth", "single-path")
    assert largest["settings"]["depth"] == -1
    for baseline in (random, largest, uniform):  # trained as what they are compared with
        assert baseline["settings"]["batch_size"] == 20
        assert baseline["settings"]["stopping"]["split"] == "never"


def test_cells_have_no_largest_and_seeds_have_random_ones_of_their_own(tmp_path):
    images = pa.data.load("digits", labels=0)
    grid = begun(
        tmp_path / "cells", space=CELLS, methods={"mine": pa.methods.Darts(epochs=1)}, task=images, seeds=range(4)
    )
    assert [entrant.name for entrant in grid.entrants] == ["mine", "random architecture", "uniform belief"]
    assert [entrant.trains for entrant in grid.entrants] == [True, False, True]
    drawn = [grid.config(run).method["settings"]["architecture"] for run in grid.runs if run.entrant == 1]
    assert len(set(drawn)) == 4
    assert all(CELLS.parse(text) for text in drawn)


def test_every_run_has_the_same_budget(finished):
    found = Comparison(finished)
    assert found.grid.budget == 4 * (2 * 40 + 18)  # two steps of 20 examples, and a pass over the held-out ones
    for row in found.rows:
        for own in row.found:
            assert 0.6 * found.grid.budget < own.spent <= found.grid.budget
    epochs = [found.grid.config_of(entrant).method["settings"]["epochs"] for entrant in found.grid.entrants]
    assert epochs == [4, 4, 4, 4]


def test_a_budget_of_ones_own_and_what_counts_in_epochs(tmp_path):
    sgd = method(update="sgd", weights={"schedule": {"kind": "multistep", "milestones": (2, 3)}})
    grid = begun(tmp_path / "asked", methods={"mine": method(), "sgd": sgd}, budget=8 * 80)
    mine, paper, *baselines = (grid.config_of(entrant).method["settings"] for entrant in grid.entrants)
    assert (mine["epochs"], paper["epochs"]) == (6, 8)
    assert paper["weights"]["schedule"]["milestones"] == [4, 6]
    assert [own["epochs"] for own in baselines] == [8, 8, 8]
    cheapest = begun(tmp_path / "cheapest", methods={"mine": method(), "sgd": sgd})
    assert cheapest.budget == 4 * 80
    with pytest.raises(PolyarchError, match=r"a budget of 10 examples does not pay for one epoch of mine"):
        begun(tmp_path / "little", budget=10)
    assert not (tmp_path / "little").exists()


def test_training_what_is_selected_is_paid_for(tmp_path):
    folder = tmp_path / "cells"
    images = pa.data.load("digits", test=0.7, select=0.1)
    grid = begun(folder, space=CELLS, methods={"mine": pa.methods.OneShot(epochs=3)}, task=images, seeds=[0])
    assert [entrant.name for entrant in grid.entrants] == ["mine", "random architecture"]
    passed = 2 * (len(images.train) // 64 * 64)
    assert grid.budget == 2 * 3 * passed
    assert grid.config(grid.runs[1]).method["settings"]["epochs"] == 6
    assert work(folder) == 2
    rows = {row.entrant.name: row for row in Comparison(folder).rows}
    [searched], [random] = rows["mine"].found, rows["random architecture"].found
    assert (searched.spent, random.spent) == (grid.budget, grid.budget)
    alone = read_json(folder / RUNS / "mine-seed-0" / "trained" / "result.json")
    assert searched.metrics["accuracy"] == alone["metrics"]["test"]["accuracy"]


def test_what_comes_out(finished):
    found = Comparison(finished)
    by_hand = {}
    for name in ("mine", "random-architecture", "largest-network", "uniform-belief"):
        results = [read_json(finished / RUNS / f"{name}-seed-{seed}" / "result.json")["metrics"] for seed in (0, 1)]
        by_hand[name.replace("-", " ")] = [r.get("test_ensemble", r["test"])["accuracy"] for r in results]
    best = max(by_hand.values(), key=np.mean)
    for row in found.rows:
        values = by_hand[row.entrant.name]
        assert row.values("accuracy") == values
        assert row.mean("accuracy") == pytest.approx(np.mean(values))
        assert row.std("accuracy") == pytest.approx(np.std(values, ddof=1))
        assert row.rank == 1 + sum(np.mean(other) > np.mean(values) for other in by_hand.values())
        if row.behind:
            apart = np.array(best) - values
            assert row.behind == pytest.approx((apart.mean(), apart.std(ddof=1) / np.sqrt(2)))
    assert [row.rank for row in found.rows] == sorted(row.rank for row in found.rows)
    assert found.rows[0].behind is None
    told = found.summary()
    assert (told["metric"], told["split"], len(told["rows"]), told["failed"]) == ("accuracy", "test", 4, {})


def test_data_from_memory_goes_along(tmp_path):
    random = np.random.default_rng(0)
    x = random.normal(size=(60, 2)).astype(np.float32)
    task = pa.data.load((x, (x[:, 0] > 0).astype(int)), select=0.3)
    folder = tmp_path / "memory"
    begun(folder, task=task, seeds=[0])
    assert work(folder) == 4
    assert [path.relative_to(folder).parent for path in folder.rglob("examples.safetensors")] == [
        folder.relative_to(folder)
    ]


# ---------------------------------------------------------------------------------------------------------------------
# Nothing lost, nothing done twice.


def test_what_is_finished_is_left_alone(finished, tmp_path):
    folder = shutil.copytree(finished, tmp_path / "copy")
    shutil.rmtree(folder / RUNS / "mine-seed-1")
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("result.json")}
    assert work(folder) == 1
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert outcomes(folder) == outcomes(finished)
    assert work(folder) == 0


@pytest.mark.parametrize("damage", ["none", "cut", "clock"])
def test_what_was_interrupted_goes_on_bit_equal(finished, tmp_path, damage):
    folder = tmp_path / "interrupted"
    begun(folder)
    with pytest.raises(KeyboardInterrupt):
        work(folder, callbacks=[Checkpoints(seconds=0), InterruptAfter(3)])
    [(path, *_)] = [sorted((folder / RUNS).rglob("checkpoint-*"), reverse=True)]
    if damage == "cut":
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    if damage == "clock":  # it was set back: all that is there is from tomorrow
        for own in folder.rglob("*"):
            os.utime(own, (time.time() + 86_400,) * 2)
    assert [one.state for one in states(folder)] == ["interrupted", *["waiting"] * 7]
    assert work(folder) == 8
    assert outcomes(folder) == outcomes(finished)


def test_two_begin_and_work_in_one_folder(two_processes, finished, tmp_path):
    made = two_processes(
        tmp_path,
        """
        sys.path.insert(0, TESTS)
        from comparing import begun
        from polyarch.runs.workers import work
        meet("ready")
        begun(here / "both")
        said = work(here / "both")
        """.replace("TESTS", repr(str(Path(__file__).parent))),
    )
    assert sum(made) == 8
    assert set(claimed(tmp_path / "both").values()) == {1}
    assert outcomes(tmp_path / "both") == outcomes(finished)


def test_a_run_that_fails_is_told_of_and_the_others_are_made(tmp_path):
    folder = tmp_path / "diverging"
    steep = method(weights={"lr": 1e20})
    begun(folder, methods={"mine": method(), "steep": steep}, seeds=[0])
    assert work(folder) == 5
    assert "training diverged" in read_json(folder / RUNS / "steep-seed-0" / FAILED)["error"]
    found = Comparison(folder)
    assert found.rows[-1].rank is None
    assert list(found.summary()["failed"]) == ["steep-seed-0"]
    assert {one.name: one.state for one in states(folder)}["runs/steep-seed-0"] == "failed"
    assert work(folder) == 0  # within one comparison it is not tried again


def test_code_of_ones_own_that_changed_is_not_compared_with_what_it_was(tmp_path, monkeypatch):
    source = (
        "from dataclasses import dataclass\nimport polyarch as pa\n"
        "@dataclass(frozen=True, kw_only=True)\nclass Mine(pa.methods.VariationalDepth):\n"
        "    def schedule(self, epoch):\n        return super().schedule(%s)\n"
    )
    (tmp_path / "mine_changing.py").write_text(source % "epoch")
    monkeypatch.syspath_prepend(tmp_path)
    import mine_changing

    own = mine_changing.Mine(epochs=2, batch_size=20)
    begun(tmp_path / "comparison", methods={"mine": own}, seeds=[0])
    Grid.read(tmp_path / "comparison").check_code()
    (tmp_path / "mine_changing.py").write_text(source % "0")
    importlib.reload(mine_changing)
    with pytest.raises(PolyarchError, match="makes mine in the space space has changed since the comparison began"):
        work(tmp_path / "comparison")


def test_who_asks_for_other_things_is_refused(finished, tmp_path):
    same = Grid.read(finished)
    assert begun(finished) == same
    for asked, says in (
        ({"seeds": (0, 1, 2)}, "other seeds: 0, 1, not 0, 1, 2"),
        ({"methods": {"other": method()}}, "other methods: mine, not other"),
        ({"methods": {"mine": method(epochs=5)}}, "other settings;"),
        ({"budget": 100.0}, "other budget: none, not 100.0"),
        ({"task": pa.data.load("spirals", points=80)}, "other data"),
    ):
        with pytest.raises(PolyarchError, match=re.escape(says)):
            begun(finished, **asked)
    with pytest.raises(PolyarchError, match="a budget of examples, not of time"):
        begun(tmp_path / "timed", compute=pa.Compute(time_limit=5))
    (tmp_path / "mine.txt").touch()
    with pytest.raises(PolyarchError, match="is not an empty folder"):
        begun(tmp_path)


# ---------------------------------------------------------------------------------------------------------------------
# Processes.


def killed_by_what_is_told(folder):
    """Kills the worker of a run that is being made, once another is finished."""
    killed = []

    def tell(text):
        if "is finished" in text and not killed:
            claims = [path for path in (folder / CLAIMS).iterdir() if not path.read_text().startswith("free")]
            killed.append(int(claims[0].read_text().split()[2]))
            os.kill(killed[0], signal.SIGKILL)
        told.append(text)

    told = []
    return tell, told


def test_a_worker_that_is_killed_is_replaced_and_what_it_made_gone_on_with(finished, tmp_path):
    folder = tmp_path / "killed"
    begun(folder)
    tell, told = killed_by_what_is_told(folder)
    found = carry_on(folder, pa.Workers(count=1), tell)
    assert [row.waiting for row in found.rows] == [0, 0, 0, 0]
    assert outcomes(folder) == outcomes(finished)
    [line] = [text for text in told if "killed" in text]
    assert re.fullmatch(r"a worker was killed by SIGKILL while it made [\w-]+, which another goes on with .*", line)
    assert sorted(claimed(folder).values()) == [1] * 7 + [2]


def test_a_full_disk_ends_it_in_a_line_and_it_goes_on_where_there_is_room(finished, tmp_path):
    folder = tmp_path / "full"
    begun(folder)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (6000, hard))
    try:
        with pytest.raises(PolyarchError, match=r"no room left to write .*; .* the same command again"):
            carry_on(folder, pa.Workers(count=1))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not list(folder.rglob(FAILED))
    assert work(folder) == 8
    assert outcomes(folder) == outcomes(finished)


@pytest.mark.slow
def test_a_driver_that_is_killed_takes_its_workers_along_and_is_started_again(finished, tmp_path):
    folder = tmp_path / "driver"
    begun(folder)
    script = "import sys, polyarch as pa; pa.compare(out=sys.argv[1], workers=pa.Workers(count=2))"
    driver = subprocess.Popen([sys.executable, "-c", script, str(folder)])
    while not list(folder.rglob("result.json")):
        assert driver.poll() is None
        time.sleep(0.01)
    driver.kill()
    driver.wait()
    claims = Claims(folder / CLAIMS)
    open_runs = [run for run in Grid.read(folder).runs if not (folder / RUNS / run.name / "result.json").exists()]
    assert open_runs, "too quick to be caught"
    ends = time.monotonic() + 10
    while [run for run in open_runs if (claim := claims.take(run.name)) is None or claim.free()]:
        assert time.monotonic() < ends, "a worker outlived its driver"
    pa.compare(out=folder, workers=pa.Workers(count=1))
    assert outcomes(folder) == outcomes(finished)


@pytest.mark.slow
def test_the_python_door(finished, tmp_path):
    folder = tmp_path / "door"
    asked = {"seeds": [0], "workers": pa.Workers(count=1)}
    found = pa.compare({"mine": method()}, {"space": SPACE}, data(), out=folder, **asked)
    same = outcomes(finished)
    assert outcomes(folder) == {name: same[name] for name in same if name.endswith("seed-0")}
    again = pa.compare({"mine": method()}, {"space": SPACE}, data(), out=folder, **asked)
    assert again.summary() == found.summary() == pa.compare(out=folder).summary()
    with pytest.raises(PolyarchError, match="two methods are called"):
        pa.compare([method(), method(epochs=5)], [SPACE], data(), out=tmp_path / "two")


def test_one_run_by_hand_is_that_of_the_comparison(finished, tmp_path):
    grid = Grid.read(finished)
    for run in grid.runs[:4]:
        make_run(tmp_path / RUNS / run.name, grid.config(run), data())
    same = outcomes(finished)
    assert {run.name: outcome(tmp_path / RUNS / run.name) for run in grid.runs[:4]} == {
        run.name: same[run.name] for run in grid.runs[:4]
    }
