"""How long a search takes is foretold by a few steps; a shorter one is shorter as a whole."""

from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch

import polyarch as pa
from polyarch.runs.config import Config
from polyarch.runs.preparing import prepare, streams_of
from polyarch.settings import plain
from polyarch.training import pace
from polyarch.training.loop import Loop, Progress
from polyarch.training.optimisers import Schedule, Sgd
from polyarch.training.pace import measure, with_epochs


class Clock:
    """Goes on by what is said to take time, and by nothing else."""

    now = 0.0

    def monotonic(self):
        return self.now


CLOCK = Clock()


@dataclass(frozen=True, kw_only=True)
class Slow(pa.methods.VariationalDepth):
    """A step takes 2 s, the first 3 s more; an end of an epoch 0.5 s; an evaluation 0.01 s for every example."""

    name = "slow"

    def step(self, problem, state, feed):
        CLOCK.now += 2.0 if CLOCK.now else 5.0
        return super().step(problem, state, feed)

    def end_epoch(self, problem, state, epoch, evaluated):
        CLOCK.now += 0.5
        return super().end_epoch(problem, state, epoch, evaluated)

    def evaluate(self, problem, state, split):
        CLOCK.now += 0.01 * len(problem.data[split])
        return super().evaluate(problem, state, split)


@pytest.fixture
def clock(monkeypatch):
    CLOCK.now = 0.0
    monkeypatch.setattr(pace, "time", SimpleNamespace(monotonic=CLOCK.monotonic))
    return CLOCK


@pytest.fixture
def loop(tmp_path, clock):
    """At the beginning of nine epochs of eight steps, with 80 training examples and 20 to stop by."""
    x = torch.randn(100, 3)
    task = pa.data.load((x, (x[:, 0] > 0).long()), select=0.2, test=0)
    space = pa.spaces.ResidualDepth(max_depth=2, width=4)
    pa.search(space, task, pa.methods.VariationalDepth(epochs=1), out=tmp_path / "run", compute=pa.Compute("cpu"))
    config = Config.read(tmp_path / "run")
    made = prepare(config, task, Progress(), streams_of(config), None)
    return Loop(Slow(epochs=9, batch_size=10), made.problem, made.state, made.streams, Progress(), 9)


def test_a_pace_is_what_the_parts_of_a_search_take(loop):
    found = measure(loop, 100.0)
    assert (found.start, found.epoch) == (pytest.approx(3.0), pytest.approx(8 * 2.0 + 0.5))
    assert (found.evaluation, found.example) == (pytest.approx(0.01 * 20), pytest.approx(0.01))
    assert found.seconds(9, every=4) == pytest.approx(3 + 9 * 16.5 + 3 * 0.2)


def test_few_steps_are_made_where_they_take_long(loop, clock):
    measure(loop, 1.0)
    assert clock.now == pytest.approx(5 + 2 + 4 * 0.5 + 2 * 0.01 * 20)


@pytest.mark.parametrize("name", ["variational-depth", "darts", "gdas", "parsec", "single-path", "standalone"])
def test_fewer_epochs_change_nothing_else_of_most_methods(name):
    method = pa.methods.named(name)
    assert plain(with_epochs(method, 7)) == plain(method) | {"epochs": 7}


def test_what_counts_in_epochs_keeps_its_share():
    method = pa.methods.named("pdarts", epochs=20, warmup_epochs=10)
    for epochs, resting in ((20, 10), (10, 5), (7, 3), (1, 0)):
        shorter = with_epochs(method, epochs)
        assert (shorter.epochs, shorter.warmup_epochs) == (epochs, resting)
        assert shorter.plan == method.plan
    images = pa.methods.named("variational-depth-images")
    assert images.weights.schedule.milestones == (30,)
    assert with_epochs(images, 100).weights.schedule.milestones == (6,)
    shares = pa.methods.Standalone(epochs=100, weights=Sgd(schedule=Schedule(kind="multistep", milestones=(0.5, 80))))
    assert with_epochs(shares, 10).weights.schedule.milestones == (0.5, 8)
    rates = [with_epochs(shares, 10).schedule(epoch)["weights.lr"] for epoch in (4, 5, 8)]
    assert rates == pytest.approx([0.025, 0.0025, 0.00025])
