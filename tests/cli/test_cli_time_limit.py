"""`--time-limit` is for all that a command does, and a run keeps it."""

import json
import time

import pytest
from commandline import SPIRALS, TINY, cli, files, refused

from polyarch.cli.time_limit import REPORT, TimeLimit
from polyarch.methods import Darts, VariationalDepth
from polyarch.spaces import NasBench201, ResidualDepth

LONG = (*SPIRALS, "--device", "cpu", "--set", "max_depth=2", "--set", "width=4", "--set", "batch_size=8")


def config(folder):
    return json.loads((folder / "config.json").read_text())


@pytest.mark.parametrize("text", ["soon", "0", "-5m", "5 minutes", "1d", ""])
def test_a_text_that_is_no_time(tmp_path, text):
    refused("search", *TINY, "--out", tmp_path / "run", "--time-limit", text, says="write seconds, minutes or hours")
    assert not (tmp_path / "run").exists()


def test_a_limit_that_leaves_no_time(tmp_path):
    refused("search", *TINY, "--out", tmp_path / "run", "--time-limit", "1s", says="over before the search begins")
    refused(
        *("search", *TINY, "--out", tmp_path / "run", "--time-limit", "9s", "--baselines", "1"),
        says="--baselines are others",
    )
    assert not (tmp_path / "run").exists()


def test_what_is_left_for_a_search_where_other_things_follow():
    """Training alone takes half as long as a search with cells, for every seed; plain models a tenth; a report."""
    ends = time.monotonic() + 163 + REPORT

    def left(space, method, repeats=1, **followed):
        return TimeLimit("5m", ends, **followed).for_search(space, method, repeats)

    cells, depths = (NasBench201(), Darts()), (ResidualDepth(), VariationalDepth())
    assert left(*cells) == pytest.approx(163, abs=1)
    assert left(*cells, plain=True, trains=True) == pytest.approx(163 / 1.6, abs=1)
    assert left(*cells, 3, plain=True, trains=True) == pytest.approx(163 / 2.6, abs=1)
    assert left(*depths, plain=True, trains=True) == pytest.approx(163 / 1.1, abs=1)


def test_a_search_ends_in_time_with_all_that_follows_and_a_resumed_one_keeps_its_limit(tmp_path):
    """A million epochs would take an hour."""
    out = tmp_path / "run"
    begun = time.monotonic()
    said = cli("search", *LONG, "--set", "epochs=1000000", "--out", out, "--time-limit", "10s")
    assert said.code == 0, said.err
    assert time.monotonic() - begun < 40
    assert "of 1000000 epochs" in said.err
    kept = config(out)
    assert 4 < kept["time_limit"] < 7
    assert 1 <= kept["method"]["settings"]["epochs"] < 500_000
    before = files(out)
    for repeated in ("10s", "1h"):
        refused(
            *("search", "--resume", "--out", out, "--time-limit", repeated),
            says=("--time-limit is for a new run", "which keeps its own"),
        )
    assert files(out) == before
    assert cli("search", "--resume", "--out", out).code == 0
    assert config(out) == kept


def test_training_one_network_takes_a_limit_as_well(tmp_path):
    cells = ("--space", "polyarch.testing.digits_network:DigitsNetwork", "--data", "digits", "--device", "cpu")
    arch = ("--arch", "activation=relu,first=skip,second=skip")
    said = cli("train", *cells, *arch, "--out", tmp_path / "run", "--set", "epochs=100000", "--time-limit", "6s")
    assert said.code == 0, said.err
    assert 1 <= config(tmp_path / "run")["method"]["settings"]["epochs"] < 10_000


def test_what_a_limited_search_selects_is_trained_in_half_its_time(tmp_path):
    cells = ("--space", "polyarch.testing.digits_network:DigitsNetwork", "--data", "digits", "--device", "cpu")
    settings = ("--method", "single-path", "--set", "epochs=100000", "--no-plain")
    said = cli("search", *cells, *settings, "--out", tmp_path / "run", "--time-limit", "9s")
    assert said.code == 0, said.err
    limit = config(tmp_path / "run")["time_limit"]
    assert config(tmp_path / "run" / "trained")["time_limit"] == limit / 2
