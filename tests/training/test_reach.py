"""How far belief can go: against simulations by the real optimisers, with gradients that always say the same."""

import logging
import math
import re

import numpy as np
import pytest
import torch

import polyarch as pa
from polyarch.methods import Balenas, Darts, Drnas, Gdas, Parsec
from polyarch.settings import updated
from polyarch.spaces.views import one_hot
from polyarch.training.dry_run import prepare
from polyarch.training.reach import largest_share, say_if_too_short

SPACE = pa.spaces.NasBench201(channels=2, cells=1)
METHODS = {"darts": Darts, "gdas": Gdas, "drnas": Drnas, "balenas": Balenas, "parsec": Parsec}


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    """Twenty images of noise, 12 of them to train on."""
    path = tmp_path_factory.mktemp("few") / "images.npz"
    np.savez(path, x=np.random.default_rng(0).integers(0, 256, (20, 1, 4, 4), np.uint8), y=np.arange(20) % 3)
    return pa.data.load(path, select=0.4, test=0)


def prepared(method, task):
    return prepare(method, SPACE, task, task.seen(task.train), repeats=2)


def moved(method, problem, state, feed, steps):
    """Belief after so many steps whose gradients favour one option of every edge: the largest share of an option."""
    best = torch.stack([w.argmax(-1) for w in method.distribution(SPACE, state.belief).mean_weights()], -1)
    slope = 1.0 - 2 * one_hot(best, 5)
    for _ in range(steps):
        if isinstance(method, Parsec):
            method.arch.step(state, list(state.belief.values()), [slope], feed.schedule["arch.lr"])
        else:
            method.move_belief(problem, state, [[slope]], feed)
    return max(w.max().item() for w in method.distribution(SPACE, state.belief).mean_weights())


@pytest.mark.parametrize("lr", [3e-4, 0.01, 0.1])
@pytest.mark.parametrize("name", METHODS)
def test_as_far_as_constant_gradients_take_it(name, lr, task):
    """A logit moves by the rate in a step; drawn noise and gradients that change can only lead less far."""
    method = updated(METHODS[name](), {"arch.lr": lr})
    problem, state, feed = prepared(method, task)
    reached = largest_share(method, problem, state, 60 * lr)
    assert moved(method, problem, state, feed, 60) == pytest.approx(reached, rel=0.01)


@pytest.mark.parametrize("distance", [0.0, 0.135, 5.85])
def test_shares_in_closed_form(distance, task):
    """Of five operations: softmax of +-distance, and the mean of a Dirichlet with elu(+-distance) + 1."""
    expected = {"darts": math.exp(distance), "parsec": math.exp(distance), "drnas": 1 + distance}
    for name, best in expected.items():
        method = METHODS[name]()
        problem, state, _ = prepared(method, task)
        found = largest_share(method, problem, state, distance)
        assert found == pytest.approx(best / (best + 4 * math.exp(-distance)), abs=1e-3), name


def test_only_steps_as_long_as_the_rate_have_a_bound(task):
    problem, *_ = prepared(Balenas(), task)
    each = {u: Balenas(arch={"update": u}).belief_steps(problem) for u in ("vadam", "printed", "von", "vprop")}
    assert each == {"vadam": 1, "printed": 0, "von": 0, "vprop": 0}


@pytest.mark.parametrize(
    ("objective", "batch", "steps"),
    [({}, 6, 2), ({}, 5, 2), ({"loss": "sotl", "steps": 2}, 4, 2), ({"loss": "sotl", "steps": 100}, 4, 1)],
)
def test_steps_of_belief(objective, batch, steps, task, tmp_path):
    """As many in an epoch as Adam counts in a search; none while belief rests."""
    method = Darts(objective=objective, batch_size=batch, epochs=3, warmup_epochs=1)
    problem, *_ = prepared(method, task)
    assert method.belief_steps(problem) == steps

    class Counted(pa.Callback):
        def on_step(self, step):
            self.steps = getattr(self, "steps", 0) + (step.epoch >= 1)

    pa.search(SPACE, task, method, out=tmp_path / "run", callbacks=[counted := Counted()], compute=pa.Compute("cpu"))
    assert counted.steps == steps * method.belief_epochs()


def said(caplog, method, task):
    caplog.clear()
    problem, state, _ = prepared(method, task)
    with caplog.at_level(logging.WARNING, "polyarch"):
        say_if_too_short(method, problem, state)
    return caplog.text


def test_a_search_says_before_it_starts_that_belief_cannot_form(caplog, task, tmp_path):
    method = Darts(batch_size=6, epochs=2)
    pa.search(SPACE, task, method, out=tmp_path / "run", compute=pa.Compute("cpu"))
    text = caplog.text
    assert "belief cannot form: 4 steps at arch.lr=0.0003 leave every option a share below 0.21" in text
    assert "(its paper: 19,500 steps at 0.0003); epochs=9750 would let it" in text
    assert "arch.lr=1" not in text, "a rate so high is no advice"


@pytest.mark.parametrize("name", METHODS)
def test_what_it_says_would_help_does(name, caplog, task):
    method = updated(METHODS[name](batch_size=6, epochs=40), {"arch.lr": 3e-4})
    epochs, lr = re.search(r"epochs=(\d+) .* arch.lr=([\d.]+),", said(caplog, method, task)).groups()
    assert not said(caplog, updated(method, {"epochs": int(epochs)}), task)
    assert not said(caplog, updated(method, {"arch.lr": float(lr)}), task)


def test_nothing_is_said_where_belief_stands_still_or_goes_far_enough(caplog, task):
    still = updated(Darts(batch_size=6, epochs=2), {"arch.lr": 0.0})
    for method in (still, updated(still, {"arch.lr": 0.5}), pa.methods.OneShot(batch_size=6, epochs=1), Parsec()):
        assert not said(caplog, method, task)


def test_a_finished_belief_is_no_belief_that_cannot_form(caplog, task):
    """As one that is started from another run's."""
    method = Darts(batch_size=6, epochs=2)
    problem, state, _ = prepared(method, task)
    with torch.no_grad():
        state.belief["alpha"][..., 0] += 5
    say_if_too_short(method, problem, state)
    assert not caplog.text
