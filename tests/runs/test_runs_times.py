"""What pruning saves: every predictor's time is its own."""

import json
import re

import pytest
import torch
from torch import nn

import polyarch as pa
from polyarch.cli.show import show_runs
from polyarch.report import write_report
from polyarch.runs import results
from polyarch.spaces import cost

SECONDS = {"selected": 0.03, "largest": 0.1, "ensemble": 0.08, "unpruned": 0.2}


@pytest.fixture(scope="module")
def timed(tmp_path_factory):
    """A search whose passes take what `SECONDS` says, and what each of those that were timed answers."""
    told, folder = {}, tmp_path_factory.mktemp("timed") / "run"

    def forward_seconds(models, x):
        told.update({name: model(x) for name, model in models.items()}, x=x)
        return {name: SECONDS[name] for name in models}

    space, task = pa.spaces.ResidualDepth(max_depth=3, width=8), pa.data.load("digits")
    method, compute = pa.methods.VariationalDepth(epochs=1, update="sgd"), pa.Compute("cpu")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(results, "forward_seconds", forward_seconds)
        run = pa.search(space, task, method, out=folder, select="expectation", compute=compute)
    assert 0 < run.architecture.choices[0] < 3
    return run, told


def test_the_network_and_the_mixture_are_timed_each_against_its_own_whole(timed):
    run, told = timed
    deepest, x = run.space.architecture([3]), told["x"]
    expected = {
        "selected": run.model()(x),
        "largest": run.model(deepest)(x),
        "ensemble": run.ensemble().output(x),
        "unpruned": run.ensemble(deepest).output(x),
    }
    for name, output in expected.items():
        assert torch.equal(told[name], output), name
    assert run.result["forward_seconds"] == SECONDS
    assert run.result["forward_saving"] == pytest.approx({"selected": 0.7, "ensemble": 0.6})


def test_both_savings_are_shown_as_whose_they_are(timed, capsys):
    run, _ = timed
    show_runs(run.folder, [run], as_json=False)
    assert "forward time saved: 70% by the network alone, 60% by the mixture" in capsys.readouterr().out
    show_runs(run.folder, [run], as_json=True)
    assert json.loads(capsys.readouterr().out)["forward_saving"].keys() == {"selected", "ensemble"}
    page = " ".join(re.sub(r"<[^>]*>", " ", write_report(run, run.task()).read_text()).split())
    assert "saves 70 % of the forward time of the network alone, 60 % of that of the mixture" in page
    assert re.search(r"forward time saved\W+70 %\W+pruned mixture 60 %", page)
    assert re.search(r"forward pass, network alone 30\S* ms 100\S* ms 70 % saved", page)
    assert re.search(r"forward pass, mixture 80\S* ms 200\S* ms 60 % saved", page)


def test_where_nothing_is_nested_there_is_one_time(tmp_path):
    run = pa.search(
        pa.spaces.NasBench201(channels=2, cells=1),
        pa.data.load("digits"),
        pa.methods.Parsec(epochs=1, samples=2),
        out=tmp_path / "run",
        compute=pa.Compute("cpu"),
    )
    assert set(run.result["forward_seconds"]) == {"selected"}
    assert "forward_saving" not in run.result


class Clocked(nn.Module):
    """Takes so many seconds of a clock of the test's own, one of them after the other."""

    def __init__(self, name, seconds, clock):
        super().__init__()
        self.name, self.seconds, self.clock = name, iter(seconds), clock

    def forward(self, x):
        self.clock["order"].append(self.name)
        self.clock["now"] += next(self.seconds)
        return x


def test_forward_seconds_is_the_median_of_rounds_in_turn(monkeypatch):
    clock = {"now": 0.0, "order": []}
    monkeypatch.setattr(cost.time, "perf_counter", lambda: clock["now"])
    warm_up, slow = [100.0, 50.0], [9.0, 9.0]
    models = {
        "one": Clocked("one", [*warm_up, 1, 2, *slow, 1], clock),
        "two": Clocked("two", [*warm_up, 3, 4, *slow, 3], clock),
    }
    assert cost.forward_seconds(models, torch.zeros(1), rounds=5) == {"one": 2, "two": 4}
    assert clock["order"] == ["one", "two"] * 7
