"""Kills searches at random moments, goes on with them, and checks that they end as if nothing had happened.

    python -m bench.faults [--kills 300] [--seed 0] [--only NAME,...]

Small searches of every family of methods, one that trains alone what it selected, and a comparison of many runs; all
save a checkpoint after every epoch. Each is killed by SIGKILL after a random delay and gone on with, until it finishes;
then its weights, belief and metrics must be bit-equal to those of one that was never killed, and of a comparison no run
may have been claimed more often than once and once for every kill. Prints one JSON line; exits with 1 where anything
was lost.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch._dynamo  # the children's cost count needs it, and would spend most of their time importing it

import polyarch as pa
from polyarch.callbacks import Checkpoints
from polyarch.catalogue import named
from polyarch.core import Method
from polyarch.runs.compare import begin
from polyarch.runs.grid import CLAIMS, COMPARISON, Entry, Grid, Question
from polyarch.runs.run import METRICS, RESULT, WEIGHTS, read_history
from polyarch.runs.search import resume, search
from polyarch.runs.trained import train_selected
from polyarch.runs.workers import work as work_on_runs
from polyarch.spaces import Space
from polyarch.training import checkpoints

EPOCHS = 20
SHARE = 8
"""So often a run is killed at most: then it is another family's turn."""


class Family(NamedTuple):
    """What is searched, how, and by how many repeats as one."""

    method: Callable[[], Method]
    space: Callable[[], Space]
    data: Callable[[], pa.data.Task]
    repeats: int = 1


def spirals() -> pa.data.Task:
    return pa.data.load("spirals", points=40, test_points=40)


def images(**settings: Any) -> pa.data.Task:
    chance = np.random.default_rng(0)
    x = chance.normal(size=(90, 1, 4, 4)).astype(np.float32)
    return pa.data.load((x, np.arange(90) % 3), **{"select": 0.2, **settings})


def depth() -> Space:
    return pa.spaces.ResidualDepth(max_depth=2, width=4)


def cells() -> Space:
    return pa.spaces.NasBench201(channels=2, cells=1)


def darts() -> Space:
    return pa.spaces.Darts(channels=2, layers=1, operations=("none", "skip_connect", "dil_conv_3x3"))


def wiring(own: bool) -> Space:
    return pa.spaces.Wiring(stages=1, nodes=3, channels=4, width=1, listed=3, own_aggregation=own, own_affine=own)


def of(name: str, **settings: Any) -> Callable[[], Method]:
    """A method of the catalogue, made short."""
    return lambda: named("method", name, Method, {"epochs": 3, "batch_size": 16, **settings})


_DEPTH = of("variational-depth", epochs=EPOCHS, batch_size=20)
_STAGES = {"plan.stages": ((1, 3, 0.1), (2, 3, 0.4)), "warmup_epochs": 1}
FAMILIES = {
    "variational-depth": Family(_DEPTH, depth, spirals),
    "variational-depth-two-seeds": Family(_DEPTH, depth, spirals, 2),
    "fixed-depth": Family(of("fixed-depth", epochs=EPOCHS, batch_size=20), depth, spirals),
    **{name: Family(of(name), cells, images) for name in ("darts", "gdas", "drnas", "balenas")},
    "parsec": Family(of("parsec", samples=2), cells, images),
    "sotl-darts": Family(of("sotl-darts", **{"objective.steps": 2}), cells, images),
    "pdarts": Family(of("pdarts", **_STAGES), darts, images),
    **{name: Family(of(name), cells, images) for name in ("single-path", "fairnas", "multipath-metaprox")},
    "stochastic-architectures": Family(of("stochastic-architectures"), lambda: wiring(own=True), images),
    "semi-supervised": Family(of("semi-supervised"), lambda: wiring(own=True), lambda: images(labels=30)),
}
TRAINED, COMPARED = "single-path-and-training", "comparison"
KINDS = (*FAMILIES, TRAINED, COMPARED)


def work(folder: Path, kind: str) -> None:
    """Begins what is in a folder or goes on with it, whichever is due."""
    callbacks = [Checkpoints(seconds=0)]
    if kind == COMPARED:
        if not (folder / COMPARISON).exists():
            entries = (Entry("mine", "depth", depth(), _DEPTH()),)
            begin(folder, Question(entries, (0, 1)), spirals, "spirals")
        work_on_runs(folder, callbacks)
        return
    family = FAMILIES["single-path" if kind == TRAINED else kind]
    if (folder / "config.json").exists():
        run = resume(folder, callbacks=callbacks)
    else:
        run = search(
            family.space(),
            family.data(),
            family.method(),
            out=folder,
            repeats=family.repeats,
            compute=pa.Compute("cpu"),
            callbacks=callbacks,
        )
    if kind == TRAINED:
        assert isinstance(run, pa.Run)
        train_selected(run, callbacks=callbacks)


def start(folder: Path, kind: str) -> int:
    """A child process at work; forked, since starting Python and importing torch would take most of the time."""
    child = os.fork()
    if child:
        return child
    try:
        work(folder, kind)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def outcome(folder: Path) -> dict[str, Any]:
    """All that must be equal: weights and belief, metrics but for times, results but for times and places."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob(METRICS)):
        lines = [{k: v for k, v in line.items() if k != "seconds"} for line in read_history(path.parent)]
        found[str(path.relative_to(folder))] = [lines, len(path.read_text().splitlines())]
    for path in sorted(folder.rglob(WEIGHTS)):
        tensors, numbers = checkpoints.load(path)
        found[str(path.relative_to(folder))] = [numbers, {name: t.numpy().tobytes() for name, t in tensors.items()}]
    for path in sorted(folder.rglob(RESULT)):
        result = json.loads(path.read_text())
        told = ("architecture", "distribution", "metrics", "budget", "best")
        found[str(path.relative_to(folder))] = {name: result[name] for name in told if name in result}
    return found


def claims(folder: Path) -> int:
    """Of a comparison, how often runs were claimed."""
    return len(list((folder / CLAIMS).glob("*-*")))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default=",".join(KINDS))
    arguments = parser.parse_args()
    kinds = arguments.only.split(",")
    logging.getLogger("polyarch").setLevel("ERROR")  # so few epochs are no good to anybody, and each search says so
    torch.set_num_threads(1)  # and nothing computed here: a child of fork inherits no threads
    chance = random.Random(arguments.seed)
    home = Path(tempfile.mkdtemp(prefix="polyarch-faults-"))
    began = time.monotonic()

    expected, lasted = dict[str, Any](), dict[str, float]()
    for kind in kinds:
        before, folder = time.monotonic(), home / f"undisturbed {kind}"
        if os.waitpid(start(folder, kind), 0)[1]:
            sys.exit(f"the undisturbed {kind} failed")
        lasted[kind], expected[kind] = time.monotonic() - before, outcome(folder)

    counts = {"kills": 0, "kills_while_writing": 0, "kills_before_config": 0, "completed": 0, "lost": 0}
    kills = dict.fromkeys(kinds, 0)
    run = 0
    while counts["kills"] < arguments.kills or run < len(kinds):
        kind = kinds[run % len(kinds)]
        run += 1
        folder, own, status = home / f"run-{run}", 0, None
        while status is None:
            child = start(folder, kind)
            # Once a run had its share, or all kills are spent, it is let to its end.
            goes_on = own < SHARE and counts["kills"] < arguments.kills
            patience = chance.uniform(0, lasted[kind]) if goes_on else 600
            status = ended(child, patience)
            if status is None:
                own += 1
                counts["kills"] += 1
                counts["kills_before_config"] += not any((folder / n).exists() for n in ("config.json", COMPARISON))
                counts["kills_while_writing"] += any(folder.rglob(".*.part"))
        kills[kind] += own
        whole = status == 0 and outcome(folder) == expected[kind]
        if kind == COMPARED:  # a run that is killed before its claim is seen leaves none
            whole = whole and claims(folder) <= len(Grid.read(folder).runs) + own
        counts["completed" if whole else "lost"] += 1
        if whole:
            shutil.rmtree(folder)
        else:
            print(f"lost: {folder}", file=sys.stderr)
    if not counts["lost"]:
        shutil.rmtree(home)
    print(json.dumps({**counts, "kills_by_family": kills, "seconds": round(time.monotonic() - began, 1)}))
    sys.exit(bool(counts["lost"]))


def ended(child: int, patience: float) -> int | None:
    """The exit status of a child that ends in time; None for one that had to be killed."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return status
        time.sleep(0.001)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return None if os.WIFSIGNALED(status) else status


if __name__ == "__main__":
    main()
