"""Ten epochs of every method on a small cell space, what they select, and what that is worth trained alone.

    python -m bench.searches [--epochs 10] [--train 12] [--random 5] [--seeds 1]

NAS-Bench-201 at C=8, N=1 on digits. Prints one JSON line per method: seconds of the search, the selected cell, its
share of skips, and its test accuracy after being trained alone; the last line has random cells trained the same way,
mean and deviation. The goal is under 90 s per search on two cores.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

import torch

import polyarch as pa
from polyarch.catalogue import find
from polyarch.distributions import uniform
from polyarch.settings import make
from polyarch.spaces.cells import collapse

SPACE = pa.spaces.NasBench201(channels=8, cells=1)
METHODS = (
    "darts", "gdas", "drnas", "balenas", "parsec-8", "sotl-darts", "sovl-darts", "sotl-drnas", "sotl-darts-exact",
)  # fmt: skip


def trained(architecture: str, task: pa.data.Task, epochs: int, seed: int) -> float:
    """Test accuracy of one cell trained alone."""
    method = pa.methods.Standalone(architecture=architecture, epochs=epochs)
    with tempfile.TemporaryDirectory() as folder:
        run = pa.search(SPACE, task, method, out=Path(folder) / "run", seed=seed)
        assert isinstance(run, pa.Run)
        return float(run.result["metrics"]["test"]["accuracy"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--train", type=int, default=12)
    parser.add_argument("--random", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=1)
    arguments = parser.parse_args()
    task = pa.data.load("digits", select=0.3)
    for name in METHODS:
        cls, preset = find("method", name)
        for seed in range(arguments.seeds):
            method = make(cls, {**preset, "epochs": arguments.epochs})
            with tempfile.TemporaryDirectory() as folder:
                start = time.monotonic()
                run = pa.search(SPACE, task, method, out=Path(folder) / "run", seed=seed)
                seconds = time.monotonic() - start
                assert isinstance(run, pa.Run)
                mode = run.architecture
            row = {
                "method": name,
                "seed": seed,
                "seconds": round(seconds, 1),
                "architecture": str(mode),
                "skip_share": round(collapse(SPACE, SPACE.parse(str(mode)))["skip_share"], 2),
                "accuracy": round(trained(str(mode), task, arguments.train, seed), 4),
            }
            print(json.dumps(row), flush=True)
    cells = SPACE.decode(uniform(SPACE.decisions).sample(arguments.random, torch.Generator().manual_seed(0)))
    found = [trained(str(cell), task, arguments.train, seed) for seed, cell in enumerate(cells)]
    spread = statistics.stdev(found) if len(found) > 1 else 0.0
    print(json.dumps({"random cells": len(found), "mean": round(statistics.fmean(found), 4), "std": round(spread, 4)}))


if __name__ == "__main__":
    main()
