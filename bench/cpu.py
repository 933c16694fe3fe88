"""What a step costs on a CPU beside a plainer one: channels first in memory, and nothing made once for several edges.

    python -m bench.cpu [--space nasbench201] [--rounds 3] [--set cells=1]

Prints one JSON line: seconds of a step of DARTS on the space at its published size (batch 64, images of 32 pixels a
side; random ones, for what is in them does not change the time), as it is and as it was, taken in turn in one process,
and their ratio.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import torch

from bench.measuring import problem_of
from polyarch.cli.choices import make_space
from polyarch.methods import Darts
from polyarch.spaces import repeats
from polyarch.spaces.layers import Once
from polyarch.streams import Streams
from polyarch.training.loop import Loop, Progress


@contextmanager
def plainer(active: bool) -> Iterator[None]:
    """Steps as they were."""
    if not active:
        yield
        return
    with patch.object(repeats, "laid_out", lambda x: x), patch.object(Once, "forward", lambda own, x: own.module(x)):
        yield


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--space", default="nasbench201")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--set", action="append", default=[], help="other settings of the space, such as cells=1")
    given = parser.parse_args()
    space, method, streams = make_space(given.space, given.set), Darts(), [Streams(0)]
    steps, taken = {}, {}
    for name in ("now", "plainer"):
        problem = problem_of(space, 1, "float32", False, "cpu")
        loop = Loop(method, problem, method.init(problem, streams, None), streams, Progress(), method.epochs)
        steps[name], taken[name] = loop.steps(), []
    for k in range(given.rounds + 1):  # the first warms up; in turn, so that a busy moment hits both alike
        for name, own in steps.items():
            with plainer(name == "plainer"):
                start = time.perf_counter()
                next(own)
                if k:
                    taken[name].append(time.perf_counter() - start)
    median = {name: round(statistics.median(values), 3) for name, values in taken.items()}
    about = {"space": given.space, "set": given.set, "threads": torch.get_num_threads()}
    print(json.dumps({**about, **median, "ratio": round(median["now"] / median["plainer"], 3)}))


if __name__ == "__main__":
    main()
