"""Side by side in one process: what variational depth costs over fixed depth, and what batching repeats gains.

    python -m bench.depth [--device cuda] [--rounds 30]

Prints medians and ratios, and one JSON line at the end.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Mapping

import torch

import polyarch as pa
from polyarch.core import Feed, Problem
from polyarch.data.task import Split, Task
from polyarch.distributions import make_prior
from polyarch.methods import FixedDepth, Method, VariationalDepth
from polyarch.streams import Streams
from polyarch.training.capture import CapturedStep


def stepper(method: Method, task: Task, depth: int, repeats: int, device: torch.device) -> Callable[[], object]:
    """One training step of `method` on fixed data, captured on a CUDA device."""
    space = pa.spaces.ResidualDepth(max_depth=depth)
    data = {"train": Split(task.preprocess(task.train.x).to(device), task.train.y.to(device))}
    with torch.device(device):
        supernet = space.supernet(task.shape, repeats)
        prior = make_prior("exponential", space.decisions)
    prior = type(prior)(prior.decisions, prior.logits.to(device))
    problem = Problem(space, supernet, task.likelihood, prior, data)
    state = method.init(problem, [Streams(k) for k in range(repeats)], None)
    batches = {"train": [problem.some("train", method.feeds(problem)["train"].size)]}
    schedule = {name: torch.tensor(value, device=device) for name, value in method.schedule(0).items()}
    feed = Feed(batches, {}, schedule)
    return CapturedStep(lambda: method.step(problem, state, feed), state.tensors(), device.type == "cuda")


def image_task(examples: int = 128) -> Task:
    """Digits enlarged to 28x28, the paper's image size: a batch of them that two cores can take."""
    digits = pa.data.load("digits", select=0)
    x = torch.nn.functional.interpolate(digits.train.x[:examples].float(), (28, 28), mode="bilinear")
    return pa.data.load((x.numpy(), digits.train.y[:examples].numpy()), select=0, test=0)


def medians(jobs: Mapping[str, Callable[[], object]], rounds: int, device: torch.device) -> dict[str, float]:
    """Median milliseconds of each job, and as `ratio` the median over rounds of first over second.

    Jobs are taken in turn, so that a busy moment hits all alike; a ratio of one round is less noisy than its times.
    """
    taken: dict[str, list[float]] = {name: [] for name in jobs}
    for k in range(rounds + 3):
        for name, job in jobs.items():
            _wait(device)
            start = time.perf_counter()
            job()
            _wait(device)
            if k >= 3:
                taken[name].append((time.perf_counter() - start) * 1e3)
    first, second = taken.values()
    ratio = statistics.median(a / b for a, b in zip(first, second, strict=True))
    return {name: statistics.median(values) for name, values in taken.items()} | {"ratio": ratio}


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--rounds", type=int, default=30)
    arguments = parser.parse_args()
    device, rounds = torch.device(arguments.device), arguments.rounds
    spirals, images = pa.data.load("spirals"), image_task()
    found: dict[str, float] = {}

    for kind, task in (("linear", spirals), ("conv", images)):
        pair = {
            "variational": stepper(VariationalDepth(), task, 50, 1, device),
            "fixed": stepper(FixedDepth(), task, 50, 1, device),
        }
        ms = medians(pair, 10 * rounds if kind == "linear" else rounds, device)  # small steps are noisy
        found[f"{kind}_variational_over_fixed"] = ms["ratio"]
        print(f"{kind}, D=50: variational {ms['variational']:.2f} ms, fixed {ms['fixed']:.2f} ms per step, "
              f"ratio {ms['ratio']:.3f}")  # fmt: skip

    for depth in (20, 50):
        both = {
            "single": stepper(VariationalDepth(), spirals, depth, 1, device),
            "six": stepper(VariationalDepth(), spirals, depth, 6, device),
        }
        ms = medians(both, rounds, device)
        found[f"six_repeats_speedup_D{depth}"] = 6 * ms["ratio"]
        print(f"six repeats, D={depth}: batched {ms['six']:.2f} ms, one after another {6 * ms['single']:.2f} ms, "
              f"throughput {6 * ms['ratio']:.2f}x")  # fmt: skip
    print(json.dumps({"device": str(device), "threads": torch.get_num_threads(), **found}))


if __name__ == "__main__":
    main()
