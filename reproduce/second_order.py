"""How good the central difference is that second-order DARTS stands on (Liu et al. 2019), and what exactness costs.

    python -m reproduce.second_order --quick                                      # a minute: small cells on digits
    python -m reproduce.second_order --full                                       # the same with more seeds
    python -m reproduce.second_order --full --images FOLDER --device cuda         # cells of full size on CIFAR-10
    python -m reproduce.second_order --table                                      # what was found, as Markdown

Belief's gradient of the validation loss after one step of the weights has a direct part and a mixed one,
-lr d2 L / d alpha d w times a direction in w. The authors take the difference of two gradients of alpha at
w +- 0.01 direction / |direction|; `objective.order=exact` differentiates twice. Both are measured at the same weights,
at initialisation and after some epochs of first-order DARTS, with ReLU as the cells have it and with SiLU in its place,
which has no kinks.

Writes docs/results/cells/second-order-NAME.json (rows, the command, seeds, machine).
"""

from __future__ import annotations

import statistics
import time
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor, nn

import polyarch as pa
from polyarch.core import Batch, Problem, State, gradients
from polyarch.data.task import Split, Task
from polyarch.distributions import uniform
from polyarch.methods.bilevel import moving
from polyarch.streams import Streams
from polyarch.training.hypergradients import exact_mixed_product, mixed_product
from polyarch.training.loop import Loop, Progress
from polyarch.training.snapshots import Snapshot
from reproduce.showing import Columns, Part, Row, grouped, keep, mean_table, read, sized_parser

LR = pa.methods.Darts().weights.lr
BATCHES = 4
"""Pairs of batches that are looked at, at every state."""


def problem_of(space: pa.spaces.NasBench201, task: Task, device: torch.device, smooth: bool) -> Problem:
    """Halves of the data; with `smooth`, networks whose ReLU is SiLU."""
    assert task.select is not None
    with device:
        supernet = space.supernet(task.shape)
    for parent in list(supernet.modules()):
        for name, module in parent.named_children():
            if smooth and isinstance(module, nn.ReLU):
                setattr(parent, name, nn.SiLU())
    train, search = (Split(task.preprocess(s.x).to(device), s.y.to(device)) for s in (task.train, task.select))
    data = {"train": train, "search": search, "select": search}
    prior = uniform(space.decisions)
    on_device = replace(prior, logits=prior.logits.to(device))
    return Problem(space, supernet, task.likelihood, on_device, data)


def compared(problem: Problem, method: pa.methods.Darts, state: State, loop: Loop) -> Row:
    """Both products beside each other, as means over some batches; weights and statistics are afterwards as before."""
    rows = []
    for step in range(BATCHES):
        batches = loop.batches.every(step)
        [train], [search] = batches["train"], batches["search"]
        weights, [alpha] = list(state.weights.values()), moving(state)
        kept = Snapshot([*weights, *state.buffers.values()])
        problem.supernet.train()

        def loss(batch: Batch) -> Tensor:
            view = method.mixture(problem.space, state.belief, {}, {})
            return -problem.log_likelihood(problem.supernet(batch.x, view), batch)

        slopes = gradients(loss(train), weights)
        with torch.no_grad():
            torch._foreach_add_(weights, slopes, alpha=-LR)
        direct, *direction = gradients(loss(search), [alpha, *weights])
        kept.restore()
        [exact] = exact_mixed_product(loss(train), [alpha], weights, direction)
        kept.restore()
        [difference] = mixed_product(lambda: gradients(loss(train), [alpha]), weights, direction)  # noqa: B023
        kept.restore()
        first, second, wanted = (direct, direct - LR * difference, direct - LR * exact)
        rows.append(
            {
                "size": (LR * exact.norm() / direct.norm()).item(),
                "off": ((difference - exact).norm() / exact.norm()).item(),
                "cosine": torch.cosine_similarity(difference.flatten(), exact.flatten(), 0).item(),
                "first": torch.cosine_similarity(first.flatten(), wanted.flatten(), 0).item(),
                "second": torch.cosine_similarity(second.flatten(), wanted.flatten(), 0).item(),
            }
        )
    return {name: statistics.fmean(row[name] for row in rows) for name in rows[0]}


def seconds_of(problem: Problem, order: str, seed: int, rounds: int = 12) -> tuple[float, int]:
    """Median time of a step, captured where it can be, and the most memory that a CUDA device held meanwhile."""
    on_cuda = problem.device.type == "cuda"
    if on_cuda:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    loop = _loop(pa.methods.Darts(objective={"order": order}), problem, seed)
    taken, last = [], time.perf_counter()
    for _, _ in zip(range(rounds), loop.steps(), strict=False):
        if on_cuda:
            torch.cuda.synchronize()
        taken.append(time.perf_counter() - last)
        last = time.perf_counter()
    return statistics.median(taken[2:]), torch.cuda.max_memory_reserved() if on_cuda else 0


def _loop(method: pa.methods.Darts, problem: Problem, seed: int) -> Loop:
    streams = [Streams(seed)]
    return Loop(method, problem, method.init(problem, streams, None), streams, Progress(), method.epochs)


def measurements(given: Namespace) -> Iterator[Row]:
    """Every activation, seed and number of epochs; and for one seed what a step costs."""
    device = torch.device(given.device)
    if given.images:
        task = pa.data.load("cifar10", folder=given.images, select=0.5)
    else:
        task = pa.data.load("digits", select=0.5)
    space = pa.spaces.NasBench201(channels=given.channels, cells=given.cells)
    for smooth in (False, True):
        for seed in range(given.seeds):
            problem, method = problem_of(space, task, device, smooth), pa.methods.Darts(epochs=max(given.epochs, 1))
            loop = _loop(method, problem, seed)
            for epochs in sorted({0, given.epochs}):
                while loop.progress.epoch < epochs:
                    for _ in loop.steps():
                        pass
                    loop.progress.epoch += 1
                loop.batches.shuffle([Streams(seed + 1000)])
                about = {"kind": "product", "activation": "silu" if smooth else "relu", "epochs": epochs, "seed": seed}
                yield about | compared(problem, method, loop.state, loop)
    for order in ("first", "second", "exact"):
        seconds, held = seconds_of(problem_of(space, task, device, smooth=False), order, 0)
        yield {"kind": "step", "order": order, "seed": 0, "seconds": seconds, "bytes": held}


COLUMNS: Columns = {
    "mixed over direct part": ("size", 3), "off by": ("off", 2), "cosine with the exact product": ("cosine", 3),
    "whole gradient, first order": ("first", 4), "second order": ("second", 4),
}  # fmt: skip


def markdown(part: Part) -> str:
    """Mean and standard deviation over seeds."""
    rows = grouped(part.having(kind="product"), "activation", "epochs")
    steps = part.having(kind="step")
    first = next(row["seconds"] for row in steps if row["order"] == "first")
    costs = ", ".join(f"{row['order']} {row['seconds'] / first:.2f}" for row in steps)
    table = mean_table(["activation", "epochs"], rows, COLUMNS)
    return f"{table}\n\nTime of a step over first order: {costs}.\n"


def main() -> None:
    """Runs it, or shows what there is."""
    parser = sized_parser(__doc__, "cells", "table", seeds=(1, 4), epochs=(1, 3), channels=(4, 16), cells=(1, 5))
    parser.add_argument("--images", default="", help="folder of CIFAR-10; without it, digits")
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    name = "cifar10" if given.images else "digits"
    file = given.out / f"second-order-{name}.json"
    if given.table:
        for path in sorted(given.out.glob("second-order-*.json")):
            if part := read(given.out, path.stem):
                print(f"### {path.stem.removeprefix('second-order-')}\n\n{markdown(part)}")
        return
    sizes = {"channels": given.channels, "cells": given.cells, "batch": pa.methods.Darts().batch_size}
    keep(file, measurements(given), device=given.device, say=str, **sizes)


if __name__ == "__main__":
    main()
