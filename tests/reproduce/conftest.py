"""What the tests of all experiments share."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

import polyarch as pa
from polyarch.data.task import Split

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def from_the_root(monkeypatch):
    monkeypatch.syspath_prepend(ROOT)


@pytest.fixture
def call(monkeypatch):
    """Runs a script as from the command line."""

    def run(script, *words):
        monkeypatch.setattr(sys, "argv", [script.__name__.removeprefix("reproduce."), *map(str, words)])
        script.main()

    return run


@pytest.fixture
def little_data(monkeypatch):
    """Data sets have 64 examples of every split at most."""
    load = pa.data.load

    def loaded(*source, **settings):
        task = load(*source, **settings)
        return replace(task, splits={name: Split(split.x[:64], split.y[:64]) for name, split in task.splits.items()})

    monkeypatch.setattr(pa.data, "load", loaded)
