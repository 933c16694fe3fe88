"""What channels last in memory save on a CPU: a step of DARTS, beside one whose images have channels first.

    python -m bench.cpu [--space nasbench201] [--rounds 3] [--set cells=1]

Prints one JSON line: seconds of a step on the space at its published size (batch 64, images of 32 pixels a side; random
ones, for what is in them does not change the time), in both layouts, taken in turn in one process, and their ratio.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from unittest.mock import patch

import torch

from bench.steps import problem_of
from polyarch.cli.choices import make_space
from polyarch.methods import Darts
from polyarch.spaces import repeats
from polyarch.streams import Streams
from polyarch.training.loop import Loop, Progress


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--space", default="nasbench201")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--set", action="append", default=[], help="other settings of the space, such as cells=1")
    given = parser.parse_args()
    space, method, streams = make_space(given.space, given.set), Darts(), [Streams(0)]
    layouts = {"channels last": repeats.laid_out, "channels first": lambda x: x}
    loops, taken = {}, {name: [] for name in layouts}
    for name in layouts:
        problem = problem_of(space, 1, "float32", False, "cpu")
        loops[name] = Loop(method, problem, method.init(problem, streams, None), streams, Progress(), method.epochs)
    steps = {name: loop.steps() for name, loop in loops.items()}
    for k in range(given.rounds + 1):  # the first warms up; in turn, so that a busy moment hits both alike
        for name, layout in layouts.items():
            with patch.object(repeats, "laid_out", layout):
                start = time.perf_counter()
                next(steps[name])
                if k:
                    taken[name].append(time.perf_counter() - start)
    median = {name: round(statistics.median(values), 3) for name, values in taken.items()}
    ratio = round(median["channels last"] / median["channels first"], 3)
    print(
        json.dumps(
            {"space": given.space, "set": given.set, "threads": torch.get_num_threads(), **median, "ratio": ratio}
        )
    )


if __name__ == "__main__":
    main()
