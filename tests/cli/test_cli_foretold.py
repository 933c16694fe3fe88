"""A search says how long it is going to take before it begins, and that it reads data before it is done with that."""

import io
import json
import re
import threading
import time

import pytest
from commandline import SPIRALS, TINY, cli

import polyarch as pa
from polyarch.callbacks import Foretold
from polyarch.cli import progress, waiting
from polyarch.cli.progress import Followed, Lines, in_words
from polyarch.runs import timing
from polyarch.runs.timing import Forecast
from polyarch.training.pace import Pace

CELLS = ("--space", "polyarch.testing.digits_network:DigitsNetwork", "--data", "digits", "--device", "cpu")


def test_in_words():
    foretold = Foretold(epochs=100, searching=300.0, ending=7.0, training=40.0)
    assert in_words(foretold, Followed()) == "about 5 min: 5 min for 100 epochs, 7 s to evaluate what they find"
    assert in_words(foretold, Followed(trains=True, plain=True)) == (
        "about 6 min: 5 min for 100 epochs, 7 s to evaluate what they find, 40 s to train what is selected, "
        "30 s for plain models"
    )
    depths = Foretold(epochs=3, searching=10.0, ending=0.1, training=0.0)
    assert in_words(depths, Followed(trains=True)) == "about 10 s: 10 s for 3 epochs"


class Told(pa.Callback):
    def on_forecast(self, foretold):
        self.foretold = foretold

    def on_begin(self, beginning):
        self.known = hasattr(self, "foretold")


@pytest.fixture
def paces(monkeypatch):
    """A second for an epoch, of a search as of training alone."""
    known = Forecast((Pace(start=1.0, epoch=1.0, evaluation=0.5, example=0.0),), ending=4.0)
    monkeypatch.setattr(timing, "forecast", lambda config, task, seconds=0: known)


def searched(out, callback, epochs, **told):
    space, method = pa.spaces.named(CELLS[1]), pa.methods.OneShot(epochs=epochs, batch_size=256)
    return pa.search(space, "digits", method, out=out, compute=pa.Compute("cpu"), callbacks=[callback], **told)


def test_what_is_foretold_is_what_parts_take(tmp_path, paces):
    told = Told()
    searched(tmp_path / "run", told, epochs=8)
    assert told.known, "before it begins"
    one = 1 + 8 * 1.5
    assert told.foretold == Foretold(epochs=8, searching=one, ending=4.0, training=one + 4)
    twice = Told()
    searched(tmp_path / "repeats", twice, epochs=8, repeats=2)
    assert twice.foretold == Foretold(epochs=8, searching=one, ending=8.0, training=2 * (one + 4))


def test_a_search_of_few_steps_is_not_foretold(tmp_path):
    told = Told()
    searched(tmp_path / "run", told, epochs=2)
    assert not told.known
    assert "about" not in cli("search", *TINY, "--out", tmp_path / "tiny").err


def test_nothing_is_measured_where_nobody_asks(tmp_path, monkeypatch):
    monkeypatch.setattr(timing, "forecast", None)
    assert searched(tmp_path / "run", pa.Callback(), epochs=8).finished


def test_what_is_foretold_changes_no_search(tmp_path):
    heard, unheard = Told(), pa.Callback()
    runs = [searched(tmp_path / str(k), callback, epochs=8) for k, callback in enumerate((heard, unheard))]
    assert heard.foretold.searching > 0
    assert heard.foretold.training > 0
    first, second = ([line["select"] for line in run.history()] for run in runs)
    assert first == second


def test_the_command_line_says_it_before_the_search(tmp_path, paces):
    said = cli(
        "search", *CELLS, "--method", "single-path", "--set", "epochs=8", "--out", tmp_path / "run", "--no-plain"
    )
    assert said.code == 0, said.err
    line = "search: about 34 s: 13 s for 8 epochs, 4 s to evaluate what they find, 17 s to train what is selected"
    assert said.err.index(line) < said.err.index("examples") < said.err.index("epoch 1/8")


def test_what_is_left_has_what_follows_in_it(monkeypatch):
    shown, now = Lines("search", Followed(trains=True)), [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    shown.say = lambda text: None
    shown.on_forecast(Foretold(epochs=10, searching=20.0, ending=5.0, training=8.0))
    shown.on_begin(pa.callbacks.Beginning({}, epochs=10, stages=1, stage=0, epoch=0))
    now[0] = 6.0

    def evaluation(epoch, stages=1, stage=0):
        metrics = {"epoch": epoch, "stage": stage}
        return pa.callbacks.Evaluation(metrics, None, None, {}, epochs=10, stages=stages, repeats=1)

    assert shown.left(evaluation(3)) == "27 s left"
    assert shown.left(evaluation(3, stages=2)) == "14 s left of this stage"
    assert shown.left(evaluation(10)) == ""


def test_the_doctor_says_how_long_it_would_take():
    small = ("--set", "max_depth=2", "--set", "width=4", "--set", "batch_size=20")
    found = cli("doctor", *SPIRALS, *small, "--set", "epochs=100", "--time", "--json").json["search"]["seconds"]
    assert found["epochs"] == 100
    assert 0 < found["ending"] < found["searching"]
    assert found["training"] == 0
    assert re.search(r"\n  time: about \d", cli("doctor", *SPIRALS, *small, "--time").out)
    assert "seconds" not in json.loads(cli("doctor", *SPIRALS, *small, "--json").out)["search"]


def test_reading_that_takes_long_is_said(monkeypatch):
    monkeypatch.setattr(waiting, "MOMENT", 0.05)
    screen = io.StringIO()
    monkeypatch.setattr("sys.stderr", screen)
    with waiting.waiting("search: reading own.csv"):
        deadline = time.monotonic() + 10
        while not screen.getvalue() and time.monotonic() < deadline:
            time.sleep(0.01)
    assert screen.getvalue() == "search: reading own.csv\n"
    monkeypatch.setattr(waiting, "MOMENT", 60)
    before = threading.active_count()
    with pytest.raises(pa.PolyarchError), waiting.waiting("search: reading none.csv"):
        pa.data.load("none.csv")
    assert screen.getvalue().count("\n") == 1
    assert threading.active_count() <= before + 1


def test_what_is_large_is_known_before_it_is_read(tmp_path):
    table, folder = tmp_path / "own.csv", tmp_path / "images"
    table.write_bytes(b"")
    (folder / "cats").mkdir(parents=True)
    assert not any(waiting.is_large(str(path)) for path in (table, folder, tmp_path / "none", "digits"))
    with table.open("r+b") as file:
        file.truncate(waiting.LARGE + 1)
    for k in range(waiting.MANY + 1):
        (folder / "cats" / f"{k}.png").touch()
    assert waiting.is_large(str(table))
    assert waiting.is_large(str(folder))
