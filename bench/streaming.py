"""What it costs that images stay on the disk: a search on a folder of 50,000 of them, beside the same in memory.

    python -m bench.streaming [--images 50000] [--rounds 5] [--steps 10] [--folder FOLDER]

Prints one JSON line. Speed: `--steps` steps of darts on nasbench201 (C = 8, N = 1, images of 32 pixels, batch 64) from
memory and from disk in turn, in one process, for so many rounds; the ratio of the medians. Memory: a whole command,
one epoch of that search from disk, with its evaluation and results: the most proportional set size of all its processes
at once (`/proc`, Linux). The images are noise, made in a folder that is removed at the end, or kept as FOLDER.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import numpy as np
from PIL import Image

import polyarch as pa
from polyarch.core import Info
from polyarch.runs.preparing import first_stage
from polyarch.runs.search import configured

SIDE, CLASSES = 32, 10
SPACE = pa.spaces.NasBench201(channels=8, cells=1)


def main() -> None:
    """Measures, and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--folder", type=Path, default=None)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = given.folder or Path(place) / "images"
        make(folder, given.images)
        print(json.dumps({**memory(folder, Path(place) / "run"), **speed(folder, given.rounds, given.steps)}))


def make(folder: Path, count: int) -> None:
    """So many images, each a file of its own, unless they are there."""
    random = np.random.default_rng(0)
    for k in range(count):
        file = folder / str(k % CLASSES) / f"{k:06}.png"
        if k < CLASSES:
            file.parent.mkdir(parents=True, exist_ok=True)
        if not file.exists():
            Image.fromarray(random.integers(0, 256, (SIDE, SIDE, 3), np.uint8)).save(file, compress_level=1)


def speed(folder: Path, rounds: int, steps: int) -> dict[str, float]:
    """Seconds of a step from memory and from disk, and of reading all once."""
    going: dict[str, Iterator[Info]] = {}
    took: dict[str, list[float]] = {"memory": [], "disk": []}
    read = {}
    for keep in took:
        begun = time.monotonic()
        task = pa.data.load(folder, keep=keep)
        read[f"reading_from_{keep}"] = round(time.monotonic() - begun, 2)
        config = configured(SPACE, task, pa.methods.Darts(batch_size=64), compute=pa.Compute("cpu"))
        going[keep] = first_stage(config, task, allow_changed=False).steps()
        next(going[keep])  # what comes but once
    for _ in range(rounds):
        for keep, loop in going.items():
            begun = time.monotonic()
            for _ in range(steps):
                next(loop)
            took[keep].append((time.monotonic() - begun) / steps)
    found = {f"step_from_{keep}": round(median(own), 4) for keep, own in took.items()}
    return {**read, **found, "speed_of_disk": round(found["step_from_memory"] / found["step_from_disk"], 3)}


def memory(folder: Path, out: Path) -> dict[str, float]:
    """The most that all processes of a command hold, in GiB, and its seconds."""
    words = ["search", "--data", str(folder), "--space", "nasbench201", "--method", "darts", "--out", str(out)]
    words += ["--no-plain", "--no-train", "--device", "cpu"]
    for setting in ("keep=disk", "channels=8", "cells=1", "method.epochs=1", "batch_size=64"):
        words += ["--set", setting]
    begun, most = time.monotonic(), 0
    command = subprocess.Popen([sys.executable, "-m", "polyarch", *words], stderr=subprocess.DEVNULL)
    while command.poll() is None:
        most = max(most, sum(map(proportional, family(command.pid))))
        time.sleep(0.2)
    if command.returncode:
        raise SystemExit(f"the search ended with {command.returncode}")
    return {"most_gib": round(most / 2**30, 3), "seconds": round(time.monotonic() - begun)}


def family(pid: int) -> list[int]:
    """A process and all below it."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split()
    except OSError:
        return []
    return [pid, *(own for child in children for own in family(int(child)))]


def proportional(pid: int) -> int:
    """Bytes that a process holds, what it shares counted in part; 0 where it has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:"))


if __name__ == "__main__":
    main()
