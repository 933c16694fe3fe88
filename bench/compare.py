"""What `polyarch compare` costs beside making the same runs by hand, and what a second worker gains.

    python -m bench.compare [--epochs 40] [--data digits] [--rounds 1]

Twelve runs, a depth search and the three baselines with three seeds, are made in a row in one Python process (by
hand), by `polyarch compare` with one worker, and with two. All compute with one thread. Prints one JSON line: seconds
of each from start to end, and of processors; `overhead` is what one worker takes longer than by hand, planning, its
start, table and page included, and `ratio` is how much longer one worker takes than two. Of several rounds the least
counts: on a machine that does other things as well, what is more is theirs.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

BY_HAND = """
import sys
from pathlib import Path
import torch
from polyarch.runs.grid import RUNS, Grid
from polyarch.runs.workers import make_run
given, out = map(Path, sys.argv[1:])
grid = Grid.read(given)
torch.set_num_threads(grid.threads)
task = grid.task(given)
for run in grid.runs:
    make_run(out / RUNS / run.name, grid.config(run), task)
"""


def timed(*command: object) -> dict[str, float]:
    """Seconds of a command, and of the processors that it and what it started took."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, *map(str, command)], check=True, env=environment, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processors = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"seconds": round(time.monotonic() - began, 2), "processors": round(processors, 2)}


def _round(asked: Sequence[str]) -> dict[str, dict[str, float]]:
    """All three, one after another."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        found = {"two": timed(*asked, "--workers", 2, "--out", home / "two")}
        found["one"] = timed(*asked, "--workers", 1, "--out", home / "one")
        found["by_hand"] = timed("-c", BY_HAND, home / "one", home / "by_hand")
        assert len(list((home / "by_hand").glob("runs/*/result.json"))) == 12
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--data", default="digits")
    parser.add_argument("--rounds", type=int, default=1)
    arguments = parser.parse_args()
    asked = ("-m", "polyarch", "compare", "--methods", "variational-depth", "--data", arguments.data, "--seeds", "0..2")
    asked += ("--device", "cpu", "--set", f"epochs={arguments.epochs}", "--set", "stopping.split=never")
    rounds = [_round(asked) for _ in range(arguments.rounds)]
    found = {
        name: {what: min(own[name][what] for own in rounds) for what in ("seconds", "processors")} for name in rounds[0]
    }
    overhead = {
        f"overhead_{what}": round(found["one"][what] / found["by_hand"][what] - 1, 4)
        for what in ("seconds", "processors")
    }
    ratio = round(found["one"]["seconds"] / found["two"]["seconds"], 3)
    print(json.dumps({"epochs": arguments.epochs, **found, **overhead, "ratio": ratio}))


if __name__ == "__main__":
    main()
