"""A small benchmark of our own: cells of NAS-Bench-201 trained from scratch on a small image set.

    python -m reproduce.own_truth --folder IMAGES --cells 768 --side 256 --seeds 3 --device cuda --out runs/own-truth
    python -m reproduce.own_truth --gather runs/own-truth     # writes the table that the library comes with

Every cell is the whole network of C = 8, N = 1 on Fashion-MNIST at 14 x 14 pixels (the mean of each 2 x 2), 10,000
training images, trained by one recipe: 12 epochs, batch 128, SGD with Nesterov's momentum 0.9 from rate 0.1 along a
cosine, weight decay 5e-4, no augmentation. Written per cell: mean training loss of every epoch (what the SoTL is made
of), validation loss and accuracy after every epoch (5,000 images), and at the end test accuracy and loss (10,000
images), for every seed. Cells are drawn without repetition from those that differ as networks. Killed, it goes on.
"""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import polyarch as pa
from polyarch.architecture import Architecture
from polyarch.core import EarlyStopping, Method, Problem, State
from polyarch.data.task import Split, Task
from polyarch.distributions import uniform
from polyarch.spaces import NasBench201
from polyarch.streams import Streams
from polyarch.testing.toy import every_choice
from polyarch.training.loop import Loop, Progress
from polyarch.training.side_by_side import SideBySide
from reproduce.showing import parser_of

TRAIN, VALID = 10_000, 5_000
SPACE = NasBench201(channels=8, cells=1)
TABLE = Path(pa.__file__).parent / "tables" / "nasbench201-fashion14.npz"


def halved(task: Task) -> Task:
    """The task with images of half the side: the mean of every 2 x 2 pixels."""

    def pooled(x: Tensor) -> Tensor:
        return torch.nn.functional.avg_pool2d(x.float(), 2)

    assert task.test is not None
    train = replace(task.train, x=pooled(task.train.x))
    return replace(task, splits={"train": train, "test": replace(task.test, x=pooled(task.test.x))})


def distinct_cells(seed: int) -> list[Architecture]:
    """One cell of every network, in a random order."""
    found: dict[str, Architecture] = {}
    for cell in SPACE.decode(every_choice(SPACE)):
        found.setdefault(SPACE.canonical(cell), cell)
    cells = list(found.values())
    return [cells[k] for k in torch.randperm(len(cells), generator=torch.Generator().manual_seed(seed)).tolist()]


def problem_of(task: Task, space: NasBench201, repeats: int, device: torch.device) -> Problem:
    """The data of the benchmark, standardised by the training images, and a supernet."""
    assert task.test is not None
    x, y = task.train.x, task.train.y
    mean, std = x[:TRAIN].mean(), x[:TRAIN].std()
    splits = {
        "train": (x[:TRAIN], y[:TRAIN]),
        "select": (x[TRAIN : TRAIN + VALID], y[TRAIN : TRAIN + VALID]),
        "test": (task.test.x, task.test.y),
    }
    with torch.device(device):
        supernet = space.supernet(replace(task.shape, input=tuple(x.shape[1:])), repeats)
    prior = uniform(space.decisions)
    return Problem(
        space,
        supernet,
        task.likelihood,
        replace(prior, logits=prior.logits.to(device)),
        {name: Split(((a - mean) / std).to(device), b.to(device)) for name, (a, b) in splits.items()},
    )


def learnt(method: Method, problem: Problem, streams: list[Streams]) -> tuple[State, list[dict[str, Any]]]:
    """Trains for all epochs: the state at the end, and the lines of all evaluations."""
    loop = Loop(method, problem, method.init(problem, streams, None), streams, Progress(), method.epochs)
    lines = [loop.epoch() for _ in range(method.epochs)]
    return loop.state, [line for line in lines if line is not None]


def trained(cells: list[Architecture], task: Task, seed: int, device: torch.device) -> dict[str, np.ndarray]:
    """Curves [cells, epochs] and final test figures [cells] of one seed."""
    method = SideBySide(tuple(cells), stopping=EarlyStopping(split="select"))
    problem = problem_of(task, SPACE.evaluated(), len(cells), device)
    streams = [Streams(1000 * seed + k) for k in range(len(cells))]
    state, lines = learnt(method, problem, streams)
    curves = {
        "train_loss": -np.array([line["step"]["log_likelihood"] for line in lines]).T,
        "valid_loss": -np.array([line["select"]["log_likelihood"] for line in lines]).T,
        "valid_accuracy": np.array([line["select"]["accuracy"] for line in lines]).T,
    }
    test = method.evaluate(problem, state, "test")
    ends = {"test_accuracy": test["accuracy"], "test_loss": -test["log_likelihood"]}
    return curves | {name: value.cpu().numpy() for name, value in ends.items()}


def gathered(folder: Path) -> dict[str, np.ndarray]:
    """One table of all parts: means over seeds, and every seed's test accuracy."""
    seeds: dict[str, list[dict[str, np.ndarray]]] = {}
    for path in sorted(folder.glob("seed-*.npz"), key=lambda path: (path.name.split("-")[1], path.name)):
        with np.load(path) as part:
            for k, cell in enumerate(part["cells"]):
                seeds.setdefault(str(cell), []).append({name: part[name][k] for name in part.files if name != "cells"})
    if len({len(own) for own in seeds.values()}) != 1:
        raise SystemExit("some cells have more seeds than others: run the rest, or remove a seed's parts")
    cells = sorted(seeds)
    mean = {name: np.array([np.mean([s[name] for s in seeds[c]], 0) for c in cells]) for name in seeds[cells[0]][0]}
    columns = {
        "test_accuracy": 100 * mean["test_accuracy"],
        "test_accuracy_seeds": np.array([[100 * s["test_accuracy"] for s in seeds[c]] for c in cells]),
        "test_loss": mean["test_loss"],
        "valid_accuracy": 100 * mean["valid_accuracy"][:, -1],
        "valid_accuracy_epochs": 100 * mean["valid_accuracy"],
        "valid_loss_epochs": mean["valid_loss"],
        "train_loss_epochs": mean["train_loss"],
    }
    return {"arch": np.array(cells), **{name: value.astype(np.float32) for name, value in columns.items()}}


def main() -> None:
    """Trains batches of cells until all are there, or the time is up."""
    parser = parser_of(__doc__)
    parser.add_argument("--folder", default="")
    parser.add_argument("--cells", type=int, default=64)
    parser.add_argument("--side", type=int, default=16, help="cells trained at once")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no further batch of cells after so long")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=Path("own_truth"))
    parser.add_argument("--gather", type=Path, help="join the parts in this folder into the library's table, and stop")
    given = parser.parse_args()
    if given.gather:
        np.savez_compressed(TABLE, **gathered(given.gather))
        return
    started = time.monotonic()
    given.out.mkdir(parents=True, exist_ok=True)
    task = halved(pa.data.load("fashion-mnist", select=0, folder=given.folder))
    # Sorted, so that cells that are trained at once have operations in common, which makes larger pieces of work.
    cells = sorted(distinct_cells(seed=0)[: given.cells], key=lambda cell: cell.choices)
    for seed in range(given.seeds):
        for first in range(0, len(cells), given.side):
            path = given.out / f"seed-{seed}-cells-{first}.npz"
            if path.exists() or time.monotonic() - started > given.seconds:
                continue
            begun = time.monotonic()
            some = cells[first : first + given.side]
            found = trained(some, task, seed, torch.device(given.device))
            np.savez_compressed(path, cells=np.array([str(cell) for cell in some]), **found)
            said = {"seed": seed, "first": first, "seconds": round(time.monotonic() - begun, 1)}
            print(json.dumps(said | {"test_accuracy": round(float(found["test_accuracy"].mean()), 4)}), flush=True)


if __name__ == "__main__":
    main()
