"""What a step of each method costs, beside first-order DARTS, in one process.

    python -m bench.methods [--rounds 15]

Prints one JSON line: milliseconds of a step on NAS-Bench-201 (C=8, N=1, digits, batch 64), and as ratios to DARTS in
first order: balenas, and one weight update of sotl-darts. The goals are 1.05 and 1.1.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time

import polyarch as pa
from polyarch.core import Method
from polyarch.training.dry_run import one_step, prepare

STEPS = 10
METHODS: dict[str, Method] = {
    "darts": pa.methods.Darts(),
    "darts, second order": pa.methods.Darts(objective={"order": "second"}),
    "sotl-darts": pa.methods.Darts(objective={"loss": "sotl", "steps": STEPS}, weights={"grad_clip": 0.0}),
    "gdas": pa.methods.Gdas(),
    "drnas": pa.methods.Drnas(),
    "balenas": pa.methods.Balenas(),
    "parsec, K = 4": pa.methods.Parsec(samples=4),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    task, space = pa.data.load("digits"), pa.spaces.NasBench201(channels=8, cells=1)
    ready = {name: prepare(method, space, task, task.seen(task.train), repeats=1) for name, method in METHODS.items()}
    taken: dict[str, list[float]] = {name: [] for name in METHODS}
    for k in range(rounds + 2):  # the first two warm up; in turn, so that a busy moment hits all alike
        for name, method in METHODS.items():
            start = time.perf_counter()
            one_step(method, *ready[name])
            if k >= 2:
                taken[name].append(time.perf_counter() - start)
    median = {name: statistics.median(values) for name, values in taken.items()}
    median["sotl-darts"] /= STEPS  # a weight update
    print(
        json.dumps(
            {
                "milliseconds": {name: round(1000 * seconds, 2) for name, seconds in median.items()},
                "over_darts": {name: round(seconds / median["darts"], 3) for name, seconds in median.items()},
            }
        )
    )


if __name__ == "__main__":
    main()
