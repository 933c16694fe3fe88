"""Many runs in one folder: which there are, how far each is, and which of them somebody is at work on."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, final

from polyarch.files import is_locked, read_json
from polyarch.runs.config import CONFIG, Config
from polyarch.runs.examples import COMPARISON
from polyarch.runs.grid import RUNS, Grid, failed
from polyarch.runs.run import METRICS, RESULT, TRAINED
from polyarch.runs.standings import handed_over

DEEPEST = 3
"""So many folders beneath the one that is looked at may lie above a run."""
TAIL = 2**16
"""Bytes at the end of `metrics.jsonl` that hold its last line, or else nothing is told of it."""


@final
@dataclass(frozen=True)
class State:
    """A run, finished or not; of one that has not begun, no more than its name."""

    name: str
    """Its folder, beneath the one that was looked at."""
    state: Literal["finished", "live", "interrupted", "failed", "waiting"]
    space: str = ""
    method: str = ""
    data: str = ""
    seed: int | None = None
    repeats: int = 1
    epoch: int | None = None
    """Of the search, the last that was evaluated."""
    epochs: int | None = None
    """Of one stage."""
    split: str = ""
    """What the metric is about: of a finished run test data where there is some, else what decides in the search."""
    metric: str = ""
    value: float | None = None
    """Of several repeats the mean."""


def holds_many(folder: Path) -> bool:
    """Whether a folder is none of a run, and holds some."""
    return not (folder / CONFIG).exists() and (
        (folder / COMPARISON).exists() or next(run_folders(folder), None) is not None
    )


def run_folders(folder: Path) -> Iterator[Path]:
    """The runs beneath a folder, those beneath another run left out."""
    for place, inner, files in os.walk(folder):
        inner.sort()
        if CONFIG in files:
            inner.clear()
            yield Path(place)
        elif len(Path(place).relative_to(folder).parts) >= DEEPEST:
            inner.clear()


def states(folder: Path) -> list[State]:
    """Of all runs in a folder; those of a comparison in its order, also where they have not begun."""
    found = {home: _state(home, str(home.relative_to(folder))) for home in run_folders(folder)}
    if not (folder / COMPARISON).exists():
        return list(found.values())
    grid, every = Grid.read(folder), []
    for run in grid.runs:
        home = folder / RUNS / run.name
        if home not in found:
            state: Literal["failed", "waiting"] = "failed" if failed(folder, run) else "waiting"
            entrant = grid.entrants[run.entrant]
            every.append(State(f"{RUNS}/{run.name}", state, entrant.space, entrant.name, grid.data["name"], run.seed))
        elif found[home].state == "finished" and not grid.finished(folder, run):
            every.append(_state(home, found[home].name, trains=True))
        else:
            every.append(found[home])
    return every


def _state(home: Path, name: str, trains: bool = False) -> State:
    """Of one run; `trains`: whether what it selected is still to be trained alone."""
    config = Config.read(home)
    told = (config.space_name, config.method["name"], config.data["name"], config.seed, config.repeats)
    line, epochs = _last_line(home / METRICS), config.method["settings"].get("epochs")
    epoch = line.get("epoch")
    if (home / RESULT).exists() and not trains:
        split, metric, value = _worth(home)
        return State(name, "finished", *told, epoch, epochs, split, metric, value)
    live = is_locked(home) or is_locked(home / TRAINED)
    split = next((split for split in ("select", "train") if split in line), "")
    wanted = config.likelihood().metric
    value = _mean(line[split][wanted]) if split and wanted in line[split] else None
    state: Literal["live", "failed", "interrupted"] = "live" if live else "interrupted"
    if not live and (home / "failed.json").exists():
        state = "failed"
    return State(name, state, *told, epoch, epochs, split, wanted if value is not None else "", value)


def _worth(home: Path) -> tuple[str, str, float | None]:
    """What a finished run hands over is worth: on which split, by which metric."""
    result = read_json(home / RESULT)
    every = result.get("runs", [result])
    if (home / TRAINED / RESULT).exists():
        alone = read_json(home / TRAINED / RESULT)["metrics"]
        every = [{"metrics": every[0]["metrics"] | {f"{split}_trained": own for split, own in alone.items()}}]
    for split in ("test", "select"):
        found = [handed_over(one["metrics"], split) for one in every]
        if all(found):
            metric = next(iter(found[0] or {}))
            return split, metric, _mean([(own or {})[metric] for own in found])
    return "", "", None


def _mean(value: Any) -> float:
    return float(sum(value) / len(value)) if isinstance(value, list) else float(value)


def _last_line(path: Path) -> Mapping[str, Any]:
    """The last whole line of metrics; nothing where there is none."""
    if not path.exists():
        return {}
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - TAIL))
        lines = file.read().splitlines()
    for line in reversed(lines):
        try:
            found = json.loads(line)
        except ValueError:  # being written, or cut at the front
            continue
        return found if isinstance(found, dict) else {}
    return {}
