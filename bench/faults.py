"""Kills searches at random moments, resumes them, and checks that they end as if nothing had happened.

    python -m bench.faults [--kills 200] [--seed 0]

Small searches on spirals, of one seed and of two at once, save a checkpoint after every epoch. Each is killed by
SIGKILL after a random delay and resumed, until it finishes; then its weights, belief and metrics must be bit-equal to
those of a search that was never killed. Prints one JSON line; exits with 1 where anything was lost.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # the children's cost count needs it, and would spend most of their time importing it

import polyarch as pa
from polyarch.callbacks import Checkpoints
from polyarch.methods import VariationalDepth
from polyarch.runs.run import METRICS, RESULT, WEIGHTS, read_history, repeat_folder
from polyarch.runs.search import resume, search
from polyarch.training import checkpoints

EPOCHS = 20
KINDS = (1, 2)
"""Repeats: a single run, and two trained as one."""


def work(folder: Path, repeats: int) -> None:
    """Begins the search in a folder or goes on with it, whichever is due."""
    if (folder / "config.json").exists():
        resume(folder, callbacks=[Checkpoints(seconds=0)])
        return
    task = pa.data.load("spirals", points=40, test_points=40)
    space = pa.spaces.ResidualDepth(max_depth=2, width=4)
    method = VariationalDepth(epochs=EPOCHS, batch_size=20)
    callbacks = [Checkpoints(seconds=0)]
    search(space, task, method, out=folder, repeats=repeats, compute=pa.Compute("cpu"), callbacks=callbacks)


def start(folder: Path, repeats: int) -> int:
    """A child process at work; forked, since starting Python and importing torch would take most of the time."""
    child = os.fork()
    if child:
        return child
    try:
        work(folder, repeats)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def outcome(folder: Path, repeats: int) -> list[Any]:
    """All that must be equal: weights and belief, metrics but for times, results but for times and places."""
    homes = [folder] if repeats == 1 else [folder, *(repeat_folder(folder, k) for k in range(repeats))]
    found: list[Any] = []
    for home in homes:
        found.append([{k: v for k, v in line.items() if k != "seconds"} for line in read_history(home)])
        found.append(len((home / METRICS).read_text().splitlines()))
    for home in homes[-repeats:]:
        tensors, numbers = checkpoints.load(home / WEIGHTS)
        found.append({name: value.numpy().tobytes() for name, value in tensors.items()})
        result = json.loads((home / RESULT).read_text())
        found.append([numbers, {k: result[k] for k in ("architecture", "distribution", "metrics", "budget")}])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # and nothing computed here: a child of fork inherits no threads
    chance = random.Random(arguments.seed)
    home = Path(tempfile.mkdtemp(prefix="polyarch-faults-"))
    began = time.monotonic()

    expected, lasted = {}, 0.0
    for repeats in KINDS:
        before = time.monotonic()
        if os.waitpid(start(home / f"undisturbed-{repeats}", repeats), 0)[1]:
            sys.exit("the undisturbed search failed")
        lasted = max(lasted, time.monotonic() - before)
        expected[repeats] = outcome(home / f"undisturbed-{repeats}", repeats)

    counts = {"kills": 0, "kills_while_writing": 0, "kills_before_config": 0, "completed": 0, "lost": 0}
    run = 0
    while counts["kills"] < arguments.kills:
        run += 1
        repeats, folder = KINDS[run % len(KINDS)], home / f"run-{run}"
        status = None
        while status is None:
            child = start(folder, repeats)
            # Once all kills are spent, the last run is let to its end.
            patience = chance.uniform(0, lasted / 2) if counts["kills"] < arguments.kills else 600
            status = ended(child, patience)
            if status is None:
                counts["kills"] += 1
                counts["kills_before_config"] += not (folder / "config.json").exists()
                counts["kills_while_writing"] += any(folder.rglob(".*.part"))
        whole = status == 0 and outcome(folder, repeats) == expected[repeats]
        counts["completed" if whole else "lost"] += 1
        if whole:
            shutil.rmtree(folder)
        else:
            print(f"lost: {folder}", file=sys.stderr)
    if not counts["lost"]:
        shutil.rmtree(home)
    print(json.dumps({**counts, "seconds": round(time.monotonic() - began, 1)}))
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
