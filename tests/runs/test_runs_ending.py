"""What is measured while a search goes on, and what at its end: every network once, where the search ran."""

import numpy as np
import pytest
import torch

import polyarch as pa
from polyarch import PolyarchError
from polyarch.core import Problem
from polyarch.data.task import Split
from polyarch.runs import run as runs
from polyarch.runs.results import Networks
from polyarch.runs.run import STATISTICS
from polyarch.streams import Streams
from polyarch.uncertainty.members import members_of

CELLS = pa.spaces.NasBench201(channels=2, cells=1)
METHOD = pa.methods.Darts(epochs=2, batch_size=8)


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    random, path = np.random.default_rng(0), tmp_path_factory.mktemp("data") / "images.npz"
    np.savez(path, x=random.integers(0, 256, (60, 1, 6, 6), np.uint8), y=np.arange(60) % 3)
    return pa.data.load(path, select=0.4, test=0.2)


@pytest.fixture
def measured(monkeypatch):
    """Every network whose batch norm is measured, by what it was measured on."""
    found = []
    real = runs.recalibrate

    def counted(network, batches):
        batches = list(batches)
        found.append(next(network.parameters()).device)
        assert all(batch.device == found[-1] for batch in batches)
        real(network, batches)

    monkeypatch.setattr(runs, "recalibrate", counted)
    return found


class Told(pa.Callback):
    def __init__(self):
        self.said = []

    def on_begin(self, beginning):
        self.said.append(("begin", dict(beginning.examples), beginning.epoch))

    def on_evaluation(self, evaluation):
        self.said.append(("epoch", evaluation.metrics["epoch"]))

    def on_finishing(self, doing):
        self.said.append(("finishing", doing))

    def on_end(self, ending):
        self.said.append(("end", len(ending.results)))


def members(run, count=None, seed=None):
    """The architectures of a mixture."""
    chance = Streams(run.seed if seed is None else seed)["architecture"]
    return set(run.space.decode(members_of(run.space, run.distribution, count, chance).choices))


def test_every_member_is_measured_once_and_kept(task, tmp_path, measured):
    told = Told()
    run = pa.search(CELLS, task, METHOD, out=tmp_path / "run", compute=pa.Compute("cpu"), callbacks=[told])
    own = members(run) | {run.architecture}
    assert len(measured) == len(own) > 15
    assert told.said == [
        ("begin", {"train": 24, "select": 24, "test": 12}, 0),
        *[("epoch", 1), ("epoch", 2)],
        ("finishing", "evaluating what was kept"),
        ("finishing", "preparing networks"),
        ("finishing", "evaluating networks"),
        ("end", 1),
    ]
    again = pa.open_run(tmp_path / "run")
    found = Networks.of(again, again.architecture).evaluate(task.test)
    assert found["selected"] == run.result["metrics"]["test"]
    assert found["ensemble"] == run.result["metrics"]["test_ensemble"]
    again.ensemble()(task.test.x)
    assert len(measured) == len(own), "what the run keeps is not measured again"
    again.ensemble(members=5, seed=5)
    assert len(measured) == len(own | members(run, 5, 5)) > len(own), "others are"


def test_statistics_are_those_of_each_network_alone(task, tmp_path, measured):
    run = pa.search(CELLS, task, METHOD, out=tmp_path / "run", compute=pa.Compute("cpu"))
    kept, other = (pa.open_run(tmp_path / "run") for _ in range(2))
    other._statistics = {}  # measures them anew
    for architecture in list(members(run))[:4]:
        one, another = (each.networks([architecture])[0].state_dict() for each in (kept, other))
        for name, value in one.items():
            assert torch.allclose(value, another[name], atol=1e-5), name


def test_damaged_statistics_are_said_to_be(task, tmp_path):
    pa.search(CELLS, task, METHOD, out=tmp_path / "run", compute=pa.Compute("cpu"))
    path = tmp_path / "run" / STATISTICS
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(PolyarchError, match=r"is damaged.*--resume"):
        pa.open_run(tmp_path / "run").model()


@pytest.mark.parametrize(
    ("stopping", "splits", "expected"),
    [
        ("never", "used", {"select"}),
        ("select", "used", {"select"}),
        ("train", "used", {"train"}),
        ("never", "all", {"train", "select"}),
    ],
)
def test_only_what_is_used_is_evaluated_on_the_way(task, tmp_path, stopping, splits, expected):
    method = pa.methods.Darts(epochs=2, batch_size=8, stopping={"split": stopping}, evaluation={"splits": splits})
    run = pa.search(CELLS, task, method, out=tmp_path / "run", compute=pa.Compute("cpu"))
    for line in run.history():
        assert line.keys() & {"train", "select"} == expected
    kept = run.result["kept"]
    assert kept.keys() == {"epoch", "train", "select"}
    for split in expected:  # what was kept is what was measured then
        [line] = [line for line in run.history() if line["epoch"] == kept["epoch"]]
        assert kept[split] == pytest.approx(line[split], rel=1e-5)


def test_without_validation_data_training_data_is_evaluated(task, tmp_path):
    method = pa.methods.OneShot(epochs=1, batch_size=8)
    run = pa.search(CELLS, task.resplit(select=0), method, out=tmp_path / "run", compute=pa.Compute("cpu"))
    assert run.history()[-1].keys() & {"train", "select"} == {"train"}
    assert run.result["kept"].keys() == {"epoch", "train"}


def test_what_is_kept_is_evaluated_at_the_end(task, tmp_path):
    """The kept state need not be the last one: its numbers are its own, for every repeat."""
    space, method = pa.spaces.ResidualDepth(max_depth=2), pa.methods.VariationalDepth(epochs=4, batch_size=8)
    both = pa.search(space, task, method, out=tmp_path / "run", repeats=2, compute=pa.Compute("cpu"))
    for run in both:
        kept = run.result["kept"]
        data = {name: Split(task.preprocess(task.splits[name].x), task.splits[name].y) for name in ("train", "select")}
        problem = Problem(space, run.supernet(), task.likelihood, run.config.make_prior(space), data)
        state = type("State", (), {"belief": run.belief})
        for split in ("train", "select"):
            found = method.evaluate(problem, state, split)
            for name, value in found.items():
                assert kept[split][name] == pytest.approx(value[0].tolist(), rel=1e-5), name


def test_large_splits_are_evaluated_in_part_at_the_end_but_for_test_data(task, tmp_path, monkeypatch):
    for module in ("runs.results", "runs.finishing"):
        monkeypatch.setattr(f"polyarch.{module}.MOST", 10)
    run = pa.search(CELLS, task, METHOD, out=tmp_path / "run", compute=pa.Compute("cpu"))
    assert run.result["evaluated"] == {"select": 10, "test": 12}
    networks = Networks.of(run, run.architecture)
    assert networks.evaluate(task.select.some(10))["selected"] == run.result["metrics"]["select"]
    assert networks.evaluate(task.test)["selected"] == run.result["metrics"]["test"]
    whole = run.history()[-1]["select"]["supernet_log_likelihood"]  # what stopping goes by is of all examples
    assert run.result["kept"]["select"]["supernet_log_likelihood"] != whole


def test_a_part_of_a_split_is_random_and_always_the_same():
    split = Split(torch.arange(100).float().unsqueeze(1), torch.arange(100) // 10)
    part = split.some(40)
    assert len(part) == 40
    assert torch.equal(part.x.squeeze(1).long() // 10, part.y)
    assert len(part.y.unique()) == 10, "sorted by class"
    assert torch.equal(split.some(40).x, part.x)
    assert split.some(100) is split


def test_the_page_asks_nobody_again(task, tmp_path, monkeypatch):
    from polyarch.cli.report import write

    run = pa.search(CELLS, task, METHOD, out=tmp_path / "run", compute=pa.Compute("cpu"))
    assert run.answers.keys() == {"select", "test"}
    monkeypatch.setattr(Networks, "ask", lambda *_: pytest.fail("asked again"))
    page = write(tmp_path / "run", runs=[run])
    assert page.stat().st_size > 10_000
    monkeypatch.undo()
    again = write(tmp_path / "run")
    assert again.read_text() == page.read_text()
