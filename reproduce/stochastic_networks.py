"""The networks of `reproduce.stochastic_architectures`, and how they are trained: all of one setup alike."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

import polyarch as pa
from polyarch.core import Evaluating, Method, Problem
from polyarch.data.labels import HIDDEN, keep_labels
from polyarch.data.task import Split, Task
from polyarch.distributions import uniform
from polyarch.methods.semi_supervised import SemiSupervised
from polyarch.methods.stochastic import StochasticArchitectures
from polyarch.spaces import Wiring
from polyarch.spaces.base import Supernet
from polyarch.streams import Streams
from reproduce.own_truth import halved, learnt

LISTED = 5
"""S of the paper's NSA-id, and the members that are trained alone."""
MANY = 500
"""S where architectures are many (the paper: 500 to 50,000)."""
DROPOUT = 0.2


@dataclass(frozen=True)
class Setup:
    """Data, size and training that all networks of a table share."""

    data: str
    space: dict[str, Any]
    method: dict[str, Any]
    examples: int
    """Of training; 0 is all."""
    small: bool
    """Whether images have half their side, the mean of each 2 x 2."""
    watched: int
    """Test images by which training is watched; nothing is chosen by them."""
    judged: int
    """Test images on which hundreds of architectures are judged."""
    attacked: int
    """Test images that are attacked; 0 is no attack."""
    outside: str = ""
    """Data of another kind."""
    labels: int = 0
    """Labels that are left for semi-supervised learning; 0 is none of it."""


SETUPS = {
    "fashion": Setup(
        data="fashion-mnist", space={"channels": 8}, method={"epochs": 10}, examples=10_000, small=True,
        watched=1_000, judged=1_000, attacked=0, outside="mnist", labels=800,
    ),
    "cifar": Setup(
        data="cifar10", space={"width": 4, "auxiliary": True},
        method={"epochs": 40, "augment": {"crop": 4, "flip": True, "cutout": 16}}, examples=0, small=False,
        watched=10_000, judged=2_000, attacked=1_000, labels=4_000,
    ),
}  # fmt: skip
SETUPS["fashion-long"] = replace(SETUPS["fashion"], method={"epochs": 40})

Network = tuple[Wiring, Method]


def networks(setup: Setup) -> dict[str, Network]:
    """Every network that is trained, by name; what matters most comes first."""
    own = {"own_aggregation": True, "own_affine": True}
    found: dict[str, Network] = {
        "residual": _one(setup, wirings="residual"),
        "dropout": _one(setup, wirings="residual", dropout=DROPOUT),
        "nsa-id": _one(setup, listed=LISTED, **own),
    }
    for k, member in enumerate(Wiring(**setup.space, listed=LISTED).members):
        found[f"member-{k}"] = _one(setup, wirings=member.text)
    found[f"nsa-{MANY}"] = _one(setup, "batch", listed=MANY)
    for listed in (MANY, LISTED, 10 * LISTED):
        found[f"nsa-i-{listed}"] = _one(setup, listed=listed)
    found[f"nsa-id-aggregation-{MANY}"] = _one(setup, listed=MANY, own_aggregation=True)
    if setup.labels:
        space = {**setup.space, "auxiliary": False}
        found |= {
            "labels-nsa-id": (Wiring(**space, listed=LISTED, **own), _few(setup)),
            "labels-pi": (Wiring(**space, wirings="residual", dropout=DROPOUT), _few(setup)),
            "labels-only": (Wiring(**space, wirings="residual"), replace(_few(setup), consistency=0.0)),
        }
    return found


def _one(setup: Setup, per: Literal["instance", "batch"] = "instance", **settings: Any) -> Network:
    return Wiring(**setup.space, **settings), StochasticArchitectures(per=per, **setup.method)


def _few(setup: Setup) -> SemiSupervised:
    return SemiSupervised(**setup.method)


def task_of(name: str, folder: str, setup: Setup) -> Task:
    """Data as a setup takes them; the same preparation for data of another kind."""
    task = pa.data.load(name, select=0, **({"folder": folder} if folder else {}))
    task = halved(task) if setup.small else task
    if not setup.examples:
        return task
    train = Split(task.train.x[: setup.examples], task.train.y[: setup.examples])
    return replace(task, splits={**task.splits, "train": train})


def problem_of(setup: Setup, space: Wiring, task: Task, device: torch.device, *, few: bool = False) -> Problem:
    """Standardised data on a device, and a supernet."""
    assert task.test is not None
    watched = Split(task.test.x[: setup.watched], task.test.y[: setup.watched])
    splits = {"train": task.train, "select": watched}
    if few:
        x, y = task.train.x, task.train.y
        found = keep_labels(y.numpy(), setup.labels, classes=task.likelihood.outputs, seed=0, name=task.name)
        kept = torch.from_numpy(found)
        splits["train"] = Split(x[kept], y[kept])
        splits["unlabelled"] = Split(x[~kept], torch.full_like(y[~kept], HIDDEN))
    with device:
        supernet = space.supernet(task.shape)
    black = task.preprocess(torch.zeros(task.input_shape[0], 1, 1)).to(device)
    data = {name: Split(task.preprocess(s.x).to(device), s.y.to(device)) for name, s in splits.items()}
    precision = "bfloat16" if device.type == "cuda" else "float32"
    return Problem(space, supernet, task.likelihood, uniform(space.decisions), data, black, precision)


def train(setup: Setup, name: str, seed: int, task: Task, device: torch.device, every: int) -> dict[str, Any]:
    """Weights after the last epoch, and what was watched on the way, every so many epochs."""
    space, method = networks(setup)[name]
    method = replace(method, evaluation=Evaluating(every=every))
    problem = problem_of(setup, space, task, device, few=isinstance(method, SemiSupervised))
    streams = [Streams(seed)]
    begun = time.monotonic()
    _, lines = learnt(method, problem, streams)
    curve = [{"epoch": line["epoch"], **{k: v[0] for k, v in line["select"].items()}} for line in lines]
    seconds = round(time.monotonic() - begun, 1)
    print(json.dumps({"network": name, "seed": seed, "seconds": seconds, **curve[-1]}), flush=True)
    return {"weights": problem.supernet.state_dict(), "curve": curve, "seconds": seconds}


def file_of(folder: Path, name: str, seed: int) -> Path:
    """Where a trained network is kept."""
    return folder / f"{name}-{seed}.pt"


def opened(setup: Setup, folder: Path, name: str, seed: int, task: Task, device: torch.device) -> Supernet | None:
    """A trained network, in evaluation mode; None where there is none."""
    path = file_of(folder, name, seed)
    if not path.exists():
        return None
    space, _ = networks(setup)[name]
    with device:
        supernet = space.supernet(task.shape)
    weights: dict[str, Tensor] = torch.load(path, map_location=device, weights_only=True)["weights"]
    supernet.load_state_dict(weights)
    return supernet.eval().requires_grad_(False)
