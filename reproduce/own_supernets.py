"""Supernets of our own small benchmark, and what fine-tuning its cells from their weights shows (SoTL thesis, 4.2).

    python -m reproduce.own_supernets train --folder IMAGES --device cuda --out runs/own-supernets
    python -m reproduce.own_supernets tune --folder IMAGES --device cuda --out runs/own-supernets
    python -m reproduce.one_shot supernets --raw runs/own-supernets      # what follows from it

Data and networks are those of `reproduce.own_truth`. Five supernets, every seed a repeat, are trained by the recipe of
the thesis's Table B.1 for fewer epochs. Then cells of the table are fine-tuned from each, at two rates: for every
cell and minibatch its loss and the size of its gradients, and looks at validation data on the way. From the
single-path supernet cells are fine-tuned with larger batches as well. Killed, both go on.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

import polyarch as pa
from polyarch import catalogue
from polyarch.data.task import Task
from polyarch.methods.one_shot import OneShot
from polyarch.scores import Candidate, Curve, Look, Tuning, fine_tuned
from polyarch.settings import make
from polyarch.streams import Streams
from polyarch.tables.truth import find_truth
from polyarch.training.capture import captured_form
from reproduce.own_truth import SPACE, halved, learnt, problem_of
from reproduce.showing import parser_of

METHODS = ("single-path", "fairnas", "multipath", "reptile", "metaprox")
RATES = (0.01, 0.001)
BATCHES = (64, 128, 256)
LOOKED = (0, 10, 30, 100, 200, 300)
"""Steps after which validation data is looked at."""
MINIBATCH = 64
Weights = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Pass:
    """One supernet's cells, fine-tuned by one recipe."""

    method: str
    seed: int
    tuning: Tuning
    steps: int

    @property
    def file(self) -> str:
        """Its name in the folder."""
        return f"{self.method}-{self.seed}-{self.tuning.lr}-{self.tuning.batch_size}.npz"

    @property
    def looks(self) -> tuple[Look, ...]:
        """At everything and at one minibatch; before the first step also with the supernet's own statistics.

        Only with the thesis's own rate and batch, since looking takes longer than learning.
        """
        if self.tuning != Tuning(lr=rates_of(self.method)[0], batch_size=BATCHES[0]):
            return ()
        looked = [step for step in LOOKED if step <= self.steps]
        own = tuple(Look(step=step, examples=examples) for step in looked for examples in (0, MINIBATCH))
        return (*own, Look(step=0, recalibrate=False))


def train(name: str, task: Task, seeds: Sequence[int], epochs: int, device: torch.device) -> dict[int, Weights]:
    """Every seed's weights after training on all training images; seeds are trained as repeats, side by side."""
    cls, settings = catalogue.find("method", name)
    method = make(cls, {**settings, "epochs": epochs, "evaluation.every": epochs})
    assert isinstance(method, OneShot)
    if device.type == "cuda":
        method = captured_form(method)
    problem = problem_of(task, SPACE, len(seeds), device)
    streams = [Streams(seed) for seed in seeds]
    *_, line = learnt(method, problem, streams)[1]
    print(json.dumps({"method": name, "seeds": seeds, "train": line["step"], "valid": line["select"]}), flush=True)
    found = problem.supernet.state_dict().items()
    return {seed: {key: value[k : k + 1].cpu().clone() for key, value in found} for k, seed in enumerate(seeds)}


def train_all(given: argparse.Namespace, task: Task, device: torch.device) -> None:
    """Supernets that are not there yet: a GPU takes all seeds of a method at once, a CPU one after another."""
    every = [list(range(given.seeds))] if device.type == "cuda" else [[seed] for seed in range(given.seeds)]
    for seeds in every:
        for name in given.methods:
            lacking = [seed for seed in seeds if not (given.out / f"{name}-{seed}.pt").exists()]
            if lacking:
                begun = time.monotonic()
                for seed, weights in train(name, task, lacking, given.epochs, device).items():
                    torch.save(weights, given.out / f"{name}-{seed}.pt")
                print(json.dumps({"method": name, "seconds": round(time.monotonic() - begun, 1)}), flush=True)


def rates_of(method: str) -> tuple[float, ...]:
    """The thesis's own rate first, which is 0.01 for single-path alone."""
    return RATES if method == METHODS[0] else RATES[::-1]


def passes(seeds: int, steps: int, wide_steps: int) -> Iterator[Pass]:
    """What matters most comes first: every supernet at its own rate, then at the other, then other batches."""
    for place in range(len(RATES)):
        for seed in range(seeds):
            for method in METHODS:
                yield Pass(method, seed, Tuning(lr=rates_of(method)[place], batch_size=BATCHES[0]), steps)
    for seed in range(seeds):
        for rate in RATES:
            for batch in BATCHES[1:]:
                yield Pass(METHODS[0], seed, Tuning(lr=rate, batch_size=batch), wide_steps)


def tune(found: Pass, candidates: list[Candidate], side: int) -> dict[str, np.ndarray]:
    """Curves [cells, steps] of every cell, and its looks [cells]."""
    curves: list[Curve] = []
    for first in range(0, len(candidates), side):
        some = candidates[first : first + side]
        curves += fine_tuned(some, found.steps, found.tuning, torch.Generator(), looks=found.looks, gradients=True)
    arrays = {
        "losses": np.stack([curve.losses for curve in curves]),
        "gradient_norms": np.stack([curve.gradient_norms for curve in curves]),  # type: ignore[misc]
        "gradient_sums": np.stack([curve.gradient_sums for curve in curves]),  # type: ignore[misc]
        "step_seconds": np.array([curve.step_seconds for curve in curves]),
    }
    for look in found.looks:
        name = f"{look.step}-{look.examples}-{'recalibrated' if look.recalibrate else 'shared'}"
        arrays[f"valid-loss-{name}"] = np.array([curve.looks[look].loss for curve in curves])
        arrays[f"valid-accuracy-{name}"] = np.array([curve.looks[look].metric for curve in curves])
        arrays[f"seconds-{name}"] = np.array([curve.looks[look].seconds for curve in curves])
    return {name: value.astype(np.float32) for name, value in arrays.items()}


def candidates_of(one: Pass, count: int, task: Task, folder: Path, device: torch.device) -> list[Candidate]:
    """Cells of the table, with one seed's weights."""
    problem = problem_of(task, SPACE, 1, device)
    problem.supernet.load_state_dict(torch.load(folder / f"{one.method}-{one.seed}.pt", weights_only=True))
    given = Candidate(
        SPACE.architecture([0] * len(SPACE.decisions)),
        SPACE,
        problem.supernet.shape,
        problem.supernet,
        likelihood=problem.likelihood,
        train=problem.data["train"],
        select=problem.data["select"],
        order=one.seed,
    )
    return [replace(given, architecture=cell) for cell in find_truth(SPACE).draw(count, seed=0)]


def main() -> None:
    """Trains supernets, or fine-tunes cells, until all is there or the time is up."""
    parser = parser_of(__doc__)
    parser.add_argument("verb", choices=["train", "tune"])
    parser.add_argument("--folder", default="")
    parser.add_argument("--methods", nargs="+", default=METHODS, choices=METHODS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=25, help="of a supernet (the thesis: 100)")
    parser.add_argument("--cells", type=int, default=200, help="candidates, of the table (the thesis: 200)")
    parser.add_argument("--steps", type=int, default=300, help="minibatches of fine-tuning")
    parser.add_argument("--wide-steps", type=int, default=150, help="the same with larger batches")
    parser.add_argument("--side", type=int, default=200, help="cells fine-tuned at once")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin nothing further after so long")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=Path("own_supernets"))
    given = parser.parse_args()
    started, device = time.monotonic(), torch.device(given.device)
    given.out.mkdir(parents=True, exist_ok=True)
    task = halved(pa.data.load("fashion-mnist", select=0, folder=given.folder))
    if given.verb == "train":
        train_all(given, task, device)
        return
    for one in passes(given.seeds, given.steps, given.wide_steps):
        path, begun = given.out / one.file, time.monotonic()
        if path.exists() or begun - started > given.seconds or one.method not in given.methods:
            continue
        candidates = candidates_of(one, given.cells, task, given.out, device)
        found = tune(one, candidates, given.side)
        np.savez_compressed(path, cells=np.array([str(c.architecture) for c in candidates]), **found)
        print(json.dumps({"pass": one.file, "seconds": round(time.monotonic() - begun, 1)}), flush=True)


if __name__ == "__main__":
    main()
