"""What a search leaves behind at its end: weights, belief, the selected architecture, results; a folder per repeat."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from polyarch.callbacks import Callback, Ending, numbers, one_repeat
from polyarch.data.task import Task
from polyarch.distributions import selection
from polyarch.files import make_folder, write_json, write_whole
from polyarch.methods.variational_depth import evidence
from polyarch.runs.config import Config
from polyarch.runs.results import results
from polyarch.runs.run import (
    ARCHITECTURE,
    EVIDENCE,
    METRICS,
    METRICS_CSV,
    RESULT,
    WEIGHTS,
    Run,
    decided_by,
    merit,
    read_history,
    repeat_folder,
)
from polyarch.training import checkpoints
from polyarch.training.evaluation import MOST
from polyarch.training.loop import Loop, Progress, evaluated_splits


def finish(folder: Path, config: Config, task: Task, loop: Loop, callbacks: Sequence[Callback]) -> list[Run]:
    """Writes what a run leaves behind; result.json last, since its presence says that all is there.

    Gives the run of every repeat, which remembers what was asked of its networks.
    """

    def tell(doing: str) -> None:
        for callback in callbacks:
            callback.on_finishing(doing)

    space = loop.problem.space
    belief = loop.method.distribution(space, loop.state.belief)
    tell("evaluating what was kept")
    kept = loop.evaluate(evaluated_splits(loop.problem), most=MOST)
    worth = {split: {name: value.tolist() for name, value in values.items()} for split, values in kept.items()}
    preferred = loop.method.preferred(loop.problem, loop.state)
    known = evidence(loop.problem) if space.nested and space.count() > 1 else []
    bounds = loop.problem.bounds
    homes = [folder]
    if config.repeats > 1:
        homes = [repeat_folder(folder, config.seed + repeat) for repeat in range(config.repeats)]
    architectures, found, runs = [], [], []
    for repeat, home in enumerate(homes):
        if config.repeats > 1:
            make_folder(home)
            _write_own_metrics(folder, home, repeat, loop.progress)
            replace(config, seed=config.seed + repeat, repeats=1).write(home)
        tensors = {
            name: value[repeat : repeat + 1] for name, value in loop.state.tensors().items() if "optimiser/" not in name
        }
        _write_csv(home)
        one = belief.repeat(repeat)
        tensors |= {f"preprocess/{name}": value for name, value in task.preprocess.state_dict().items()}
        if known:
            checkpoints.save(home / EVIDENCE, vars(known[repeat]), {})
        choices = () if preferred is None else tuple(preferred[repeat].tolist())
        if not choices or not (bounds is None or bounds.allow(choices)):
            choices = selection.select(one, config.select, known[repeat] if known else None, bounds)
        architecture = space.architecture(choices)
        checkpoints.save(home / WEIGHTS, tensors, {"best_epoch": loop.progress.best_epoch[repeat]})
        selected = {"architecture": str(architecture), "select": config.select, "stage": loop.progress.stage}
        if bounds is not None:
            selected |= {"cost": bounds.costs(architecture), "measured": bounds.measured}
        write_json(home / ARCHITECTURE, selected)
        probs = {name: p.tolist() for name, p in one.probs().items()}
        write_json(home / "distribution.json", {"probs": probs})
        architectures.append(architecture)
        own = {"epoch": loop.progress.best_epoch[repeat], **one_repeat(worth, repeat)}
        runs.append(Run(home, task))
        found.append(results(runs[-1], task, tell) | {"kept": own})
    ending = Ending(space, architectures, found)
    for callback in callbacks:
        callback.on_end(ending)
    for home, result in zip(homes, found, strict=True):
        write_json(home / RESULT, result)
    if config.repeats > 1:
        best = best_seed(found, loop.progress.best, decided_by(config))
        write_json(folder / RESULT, {"run": str(folder), "runs": found, "best": best})
    return runs


def best_seed(found: Sequence[dict[str, Any]], objectives: Sequence[float], by: str = "accuracy") -> int:
    """The seed of the best repeat: its selected network is the most accurate on validation data.

    Log-likelihood decides between equals, and for regression alone. Without validation data the training objective of
    the kept state does.

    Args:
        found: every repeat's result.
        objectives: what every repeat reached on the data that its state was kept by.
        by: the accuracy that decides (`decided_by`).
    """

    def reached(repeat: int) -> tuple[float, ...]:
        measured = found[repeat]["metrics"].get("select")
        return merit(measured, by) if measured else (objectives[repeat],)

    seed: int = found[max(range(len(found)), key=reached)]["seed"]
    return seed


def _write_own_metrics(folder: Path, home: Path, repeat: int, progress: Progress) -> None:
    """One repeat's lines, in the last stage up to where it stopped."""
    stopped = progress.stopped_epoch[repeat]
    own = [
        json.dumps(one_repeat(line, repeat)) + "\n"
        for line in read_history(folder)
        if not stopped or line["stage"] < progress.stage or line["epoch"] <= stopped
    ]
    write_whole(home / METRICS, "".join(own).encode())


def _write_csv(home: Path) -> None:
    """The lines of a run as a table: a row for every evaluation, a column for every number of any of them."""
    rows = [dict(numbers(line)) for line in read_history(home)]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    table = csv.DictWriter(text, columns, lineterminator="\n")  # of a number that a row has not, it has an empty field
    table.writeheader()
    table.writerows(rows)
    write_whole(home / METRICS_CSV, text.getvalue().encode())
