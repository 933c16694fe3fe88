"""A comparison that takes seconds, and what its runs must be equal in."""

import json
from pathlib import Path

import polyarch as pa
from polyarch.files import make_folder
from polyarch.runs import compare as comparing
from polyarch.runs import grid as grids
from polyarch.runs.grid import RUNS, Entry, Grid, Question
from polyarch.runs.run import METRICS, TRAINED, WEIGHTS, read_history
from polyarch.training import checkpoints

SPACE = pa.spaces.ResidualDepth(max_depth=2, width=4)


def method(**settings):
    return pa.methods.VariationalDepth(**{"epochs": 4, "batch_size": 20, "stopping": {"split": "never"}, **settings})


def data():
    return pa.data.load("spirals", points=60, test_points=40, select=0.3)


def begun(folder: Path, *, seeds=(0, 1), methods=None, space=SPACE, task=None, **asked) -> Grid:
    """A comparison that is planned and of which nothing is made: depth search and three baselines."""
    task = task or data()
    entries = [Entry(name, "space", space, own) for name, own in (methods or {"mine": method()}).items()]
    comparing.begin(folder, Question(tuple(entries), tuple(seeds), **asked), lambda: task, task.fingerprint)
    return Grid.read(folder)


def outcome(home: Path) -> list:
    """All of a run that must be equal however it was made: weights and belief, metrics and results but for times."""
    found = []
    for place in (home, *([home / TRAINED] if (home / TRAINED).exists() else [])):
        history = read_history(place)
        assert len(history) == len((place / METRICS).read_text().splitlines())
        found.append([{name: v for name, v in line.items() if name != "seconds"} for line in history])
        tensors, numbers = checkpoints.load(place / WEIGHTS)
        found.append({name: value.numpy().tobytes() for name, value in tensors.items()})
        result = json.loads((place / "result.json").read_text())
        found.append([numbers, {name: result[name] for name in ("architecture", "distribution", "metrics", "budget")}])
    return found


def outcomes(folder: Path) -> dict[str, list]:
    """Of all runs of a comparison."""
    return {run.name: outcome(folder / RUNS / run.name) for run in Grid.read(folder).runs}


def claimed(folder: Path) -> dict[str, int]:
    """How many times every run was claimed."""
    claims = grids.Path(folder) / grids.CLAIMS
    make_folder(claims)
    return {run.name: len(list(claims.glob(f"{run.name}-*"))) for run in Grid.read(folder).runs}
