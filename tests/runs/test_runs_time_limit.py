"""A search with a time limit makes as many epochs as there is time for, as a whole that is that much shorter."""

import time
from dataclasses import replace

import numpy as np
import pytest
import torch

import polyarch as pa
from polyarch.methods import Darts, VariationalDepth
from polyarch.runs import timing
from polyarch.runs.config import Config, describe_method
from polyarch.runs.options import seconds_of
from polyarch.runs.run import WEIGHTS
from polyarch.runs.timing import AIM, Deadline, Forecast, fitted
from polyarch.spaces import ResidualDepth
from polyarch.training import checkpoints
from polyarch.training.pace import Pace, with_epochs

SPACE = ResidualDepth(max_depth=2, width=8)


@pytest.fixture(scope="module")
def arrays():
    generator = np.random.default_rng(0)
    x = generator.normal(size=(600, 4)).astype(np.float32)
    return x, (x[:, 0] * x[:, 1] > 0).astype(int)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("5m", 300), ("1h", 3600), ("1.5h", 5400), (" 2M ", 120), (3, 3), (0.5, 0.5)],
)
def test_what_a_limit_says(text, seconds):
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "0", "-5", "5 min", "m", "1e3", "nan", "inf", "5d", "1h30m", 0, -1.0])
def test_what_says_no_limit_is_refused(text):
    with pytest.raises(pa.PolyarchError, match="write seconds, minutes or hours: 90s, 5m, 1h"):
        pa.Compute(time_limit=text)


def pace(epoch, evaluation=0.0, start=0.0):
    return Pace(start=start, epoch=epoch, evaluation=evaluation, example=0.0)


@pytest.mark.parametrize(
    ("seconds", "epochs"),
    [(1000, 100), (211.01 / AIM + 10, 100), (210.99 / AIM + 10, 99), (50.01 / AIM + 10, 23), (14.2, 1), (14.01, 1)],
)
def test_as_many_epochs_as_fit(seconds, epochs):
    """An epoch takes 2 s, every tenth an evaluation of 1 s, the start 1 s and the end 10 s."""
    method = VariationalDepth(epochs=100, evaluation={"every": 10})
    foretold = Forecast((pace(2.0, 1.0, 1.0),), ending=10.0)
    found = fitted(method, SPACE, foretold, seconds)
    assert found.epochs == epochs
    took = 1 + 2 * found.epochs + -(-found.epochs // 10) + 10
    assert took <= seconds


def test_no_time_for_one_epoch_is_said():
    with pytest.raises(pa.PolyarchError, match=r"no time for one epoch in .* 5 s: it takes about 12 s"):
        fitted(VariationalDepth(epochs=100), SPACE, Forecast((pace(10.2),), 0.0), 5.0)


def test_all_stages_are_shortened_alike():
    method = pa.methods.named("pdarts", epochs=20, warmup_epochs=10)
    foretold = Forecast((pace(1.0), pace(2.0), pace(3.0)), ending=0.0)
    found = fitted(method, pa.spaces.named("darts"), foretold, 60 / AIM)
    assert (found.epochs, found.warmup_epochs) == (10, 5)
    assert [stage.epochs for stage in found.stages(pa.spaces.named("darts"))] == [10, 10, 10]


def epochs_of(run):
    return run.config.method["settings"]["epochs"]


def test_a_search_ends_in_time(tmp_path, arrays):
    """100,000 epochs would take minutes; those that fit end as all would, at a learning rate of next to nothing."""
    method = VariationalDepth(epochs=100_000, batch_size=64, weights={"schedule": {"kind": "cosine"}})
    begun = time.monotonic()
    run = pa.search(SPACE, arrays, method, out=tmp_path / "run", compute=pa.Compute("cpu", time_limit=4))
    assert time.monotonic() - begun < 12
    assert run.config.time_limit == 4
    made = run.config.make_method()
    assert 1 <= made.epochs < 50_000
    assert made.schedule(made.epochs - 1)["weights.lr"] < max(0.01, 3 / made.epochs) * made.schedule(0)["weights.lr"]


class Killed(pa.Callback):
    def on_evaluation(self, evaluation):
        evaluation.checkpoint()
        if evaluation.metrics["epoch"] == 2:
            raise KeyboardInterrupt


def test_an_interrupted_search_goes_on_to_the_same_end_as_one_of_so_many_epochs(tmp_path, arrays):
    method = VariationalDepth(epochs=100_000, batch_size=64)
    limited = {"out": tmp_path / "limited", "compute": pa.Compute("cpu", time_limit=3)}
    with pytest.raises(KeyboardInterrupt):
        pa.search(SPACE, arrays, method, callbacks=[Killed()], **limited)
    config = Config.read(tmp_path / "limited")
    few = with_epochs(config.make_method(), 6)  # so that this machine's speed decides nothing here
    replace(config, method=describe_method(few)).write(tmp_path / "limited")
    run = pa.resume(tmp_path / "limited", task=arrays)
    whole = pa.search(SPACE, arrays, few, out=tmp_path / "whole", compute=pa.Compute("cpu"))
    ours, theirs = (checkpoints.load(each.folder / WEIGHTS)[0] for each in (run, whole))
    assert all(torch.equal(value, theirs[name]) for name, value in ours.items())
    assert run.history()[-1]["epoch"] == 6


def test_where_all_epochs_fit_nothing_changes(tmp_path, arrays):
    method = VariationalDepth(epochs=3)
    run = pa.search(SPACE, arrays, method, out=tmp_path / "run", compute=pa.Compute("cpu", time_limit="1h"))
    assert run.config.make_method() == method


def test_nothing_is_left_behind_where_no_epoch_fits(tmp_path, arrays):
    space = ResidualDepth(max_depth=20, width=64)
    with pytest.raises(pa.PolyarchError, match="no time for one epoch"):
        pa.search(space, arrays, "variational-depth", out=tmp_path / "run", compute=pa.Compute("cpu", time_limit=0.01))
    assert not (tmp_path / "run").exists()


def test_a_search_is_made_as_it_was_foretold(tmp_path, monkeypatch):
    """With the epochs in which belief rests; what was foretold was asked of the whole method."""
    seen = []

    def observed(method, space, foretold, seconds):
        seen.append((method, foretold, seconds))
        return fitted(method, space, Forecast((pace(1.0),), 0.0), 4 / AIM)

    monkeypatch.setattr(timing, "fitted", observed)
    method = Darts(epochs=40, warmup_epochs=20, batch_size=256)
    space = pa.spaces.named("polyarch.testing.digits_network:DigitsNetwork")
    run = pa.search(space, "digits", method, out=tmp_path / "run", compute=pa.Compute("cpu", time_limit=60))
    [(asked, foretold, seconds)] = seen
    assert asked == method
    assert foretold.paces[0].epoch > 0
    assert 30 < seconds < 60
    made = run.config.make_method()
    assert (made.epochs, made.warmup_epochs, run.history()[-1]["epoch"]) == (4, 2, 4)


def test_a_search_that_became_slower_ends_at_its_deadline(tmp_path, arrays, caplog):
    class Slower(pa.Callback):
        def on_evaluation(self, evaluation):
            time.sleep(0.2)

    late = [Slower(), Deadline(0.5)]
    run = pa.search(SPACE, arrays, VariationalDepth(epochs=50), out=tmp_path / "run", callbacks=late)
    last = run.history()[-1]["epoch"]
    assert 1 <= last <= 4
    assert f"the search ends after epoch {last}" in caplog.text
