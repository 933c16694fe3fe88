"""Data-parallel efficiency: steps of one process, and of several that torchrun starts, on the same global batch.

    python -m bench.ranks [--processes 2] [--rounds 3] [--steps 10] [--method darts] [--space nasbench201]
        [--set cells=1]

Every process has one thread, so give it as many idle cores as there are processes. Prints one JSON line: median seconds
of a step at the space's published size (batch 64, random images of 32 pixels a side), `speedup` over one process, and
`efficiency`, the speedup as a share of the number of processes. Of `alone`, every process makes the steps of its share
of the batch by itself: what the cores of this machine give where nothing is exchanged. `work` is the efficiency by the
time that processes compute, waiting left out: about the same however busy the machine is, and a bound.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time

import torch
import torch.distributed as dist

from bench.measuring import problem_of
from polyarch import catalogue
from polyarch.cli.choices import make_space
from polyarch.core import Method
from polyarch.settings import updated
from polyarch.streams import Streams
from polyarch.training.loop import Loop, Progress


def timed(given: argparse.Namespace) -> tuple[float, float]:
    """Median seconds of a step in this process, by the clock and of computing."""
    method: Method = catalogue.named("method", given.method, Method)
    method = updated(method, {"batch_size": given.batch})
    streams = [Streams(0)]
    problem = problem_of(make_space(given.space, given.set), 1, "float32", False, "cpu")
    loop = Loop(method, problem, method.init(problem, streams, None), streams, Progress(), method.epochs)
    steps, taken = loop.steps(), []
    for k in range(given.steps + 2):  # two warm up
        start, worked = time.perf_counter(), time.process_time()
        next(steps)
        if k > 1:
            taken.append((time.perf_counter() - start, time.process_time() - worked))
    clock, work = zip(*taken, strict=True)
    return statistics.median(clock), statistics.median(work)


def started(processes: int, batch: int, given: argparse.Namespace, *, together: bool) -> list[float]:
    """The same in so many processes: of each the seconds of the slowest."""
    own = ["-m", "bench.ranks", "--worker", "--method", given.method, "--space", given.space]
    own += [f"--steps={given.steps}", f"--batch={batch}", *(f"--set={one}" for one in given.set)]
    if together:
        count = ["--standalone", "--nproc-per-node", str(processes)]
        command = [sys.executable, "-m", "torch.distributed.run", *count, *own]
        said = [subprocess.run(command, check=True, capture_output=True, text=True).stdout]
    else:
        command = [sys.executable, *own]
        running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(processes)]
        said = [process.communicate()[0] for process in running]
    rows = [tuple(map(float, line.split())) for text in said for line in text.splitlines()]
    return [max(column) for column in zip(*rows, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--method", default="darts")
    parser.add_argument("--space", default="nasbench201")
    parser.add_argument("--set", action="append", default=[], help="other settings of the space, such as cells=1")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        torch.set_num_threads(1)
        if dist.is_torchelastic_launched():
            dist.init_process_group("gloo")
        clock, work = timed(given)
        sys.stdout.write(f"{clock} {work}\n")  # at once: others write to the same pipe
        if dist.is_initialized():
            dist.destroy_process_group()
        return
    count, taken = given.processes, {"one": [], "together": [], "alone": []}
    for _ in range(given.rounds):  # in turn, so that a busy moment hits all alike
        taken["one"].append(started(1, given.batch, given, together=False))
        taken["together"].append(started(count, given.batch, given, together=True))
        taken["alone"].append(started(count, given.batch // count, given, together=False))
    seconds, work = (
        {name: statistics.median(values) for name, values in zip(taken, column, strict=True)}
        for column in zip(*(zip(*rows, strict=True) for rows in taken.values()), strict=True)
    )
    speedup = {name: seconds["one"] / value for name, value in seconds.items() if name != "one"}
    told = {
        "space": given.space,
        "method": given.method,
        "processes": count,
        "seconds": {name: round(value, 4) for name, value in seconds.items()},
        "speedup": {name: round(value, 3) for name, value in speedup.items()},
        "efficiency": {name: round(value / count, 3) for name, value in speedup.items()},
        "work": {name: round(work["one"] / value / count, 3) for name, value in work.items() if name != "one"},
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
