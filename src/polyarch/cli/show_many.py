"""`polyarch show` of a folder that holds many runs: a line for each, those that somebody is at work on among them."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from polyarch.runs.folders import State


def show_many(folder: Path, as_json: bool) -> None:
    """Prints a table of all runs in a folder."""
    from polyarch.cli.metrics import print_table
    from polyarch.runs.folders import states

    found = states(folder)
    if as_json:
        print(json.dumps({"folder": str(folder), "runs": [asdict(one) for one in found]}))
        return
    columns: dict[str, list[str]] = {
        "state": [one.state for one in found],
        "epoch": [_epoch(one) for one in found],
        "worth": [_worth(one) for one in found],
        "method": [one.method for one in found],
        "space": [one.space for one in found],
        "data": [one.data for one in found],
        "seed": [_seed(one) for one in found],
    }
    lines = [(one.name, [column[k] for column in columns.values()]) for k, one in enumerate(found)]
    print_table("run", list(columns), lines)
    counts = Counter(one.state for one in found)
    print(f"\n{len(found)} runs: {', '.join(f'{count} {state}' for state, count in counts.items())}")


def _epoch(one: State) -> str:
    if one.epoch is None:
        return ""
    return f"{one.epoch}/{one.epochs}" if one.epochs else str(one.epoch)


def _worth(one: State) -> str:
    if one.value is None:
        return ""
    split = {"test": "test", "select": "validation", "train": "training"}[one.split]
    return f"{split} {one.metric.replace('_', ' ')} {one.value:.4g}"


def _seed(one: State) -> str:
    if one.seed is None:
        return ""
    return str(one.seed) if one.repeats == 1 else f"{one.seed}..{one.seed + one.repeats - 1}"
