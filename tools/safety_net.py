"""What every method does in a tiny search, recorded to the last bit: a net under a change that must not change that.

    python tools/safety_net.py record FILE        # before
    python tools/safety_net.py compare FILE       # after: says what differs

Weights are recorded as digests of their values, whatever they are called.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor, nn

import polyarch as pa
from polyarch.callbacks import Checkpoints
from polyarch.methods import (
    Balenas,
    Darts,
    Drnas,
    FixedDepth,
    Gdas,
    OneShot,
    Parsec,
    SemiSupervised,
    Standalone,
    StochasticArchitectures,
    VariationalDepth,
)
from polyarch.runs import search as searching
from polyarch.runs.run import read_history
from polyarch.runs.search import resume
from polyarch.testing.callbacks import CopyAfterFirst
from polyarch.training import checkpoints

CPU = pa.Compute("cpu")
UNIFORM, FALLING = ({"start": pa.Start(prior=name)} for name in ("uniform", "exponential(0.5)"))
EPOCHS = {"epochs": 2}
SMALL = {**EPOCHS, "batch_size": 6}
LEARNS = {**SMALL, "arch": {"lr": 0.1}}


class Own(nn.Module):
    """A module of one's own, with a choice inside an option of another."""

    def __init__(self) -> None:
        super().__init__()
        inner = pa.Choice("inner", {"relu": nn.ReLU(), "tanh": nn.Tanh()})
        deep = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.BatchNorm2d(2), inner)
        self.block = pa.Choice("block", {"1x1": nn.Conv2d(1, 2, 1), "deep": deep, "3x3": nn.Conv2d(1, 2, 3, padding=1)})
        self.drop = nn.Dropout(0.1)
        self.head = nn.Linear(2, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.drop(self.block(x).mean((-1, -2))))


def images() -> Any:
    random = np.random.default_rng(0)
    return pa.data.load((random.integers(0, 256, (20, 1, 4, 4), np.uint8), np.arange(20) % 3), select=0.4, test=0)


def larger() -> Any:
    random = np.random.default_rng(0)
    return pa.data.load((random.integers(0, 256, (30, 1, 8, 8), np.uint8), np.arange(30) % 3), select=0.3, test=0)


TASKS: dict[str, Callable[[], Any]] = {
    "images": images,
    "larger": larger,
    "spirals": lambda: pa.data.load("spirals", points=120),
    "fourier": lambda: pa.data.load("fourier"),
}
SPACES: dict[str, Callable[[], Any]] = {
    "nasbench201": lambda: pa.spaces.NasBench201(channels=2, cells=1),
    "nasbench1shot1-1": lambda: pa.spaces.NasBench1Shot1(sub_space=1, channels=2, cells=1),
    "nasbench1shot1-2": lambda: pa.spaces.NasBench1Shot1(sub_space=2, channels=2, cells=1),
    "darts": lambda: pa.spaces.Darts(channels=2, layers=1, operations="none,skip_connect,dil_conv_3x3"),
    "module": lambda: pa.ModuleSpace(Own),
    "depth": lambda: pa.spaces.ResidualDepth(max_depth=3, width=4),
    "depth-conv": lambda: pa.spaces.ResidualDepth(max_depth=2, width=4),
    "fourier": lambda: pa.spaces.Fourier(),
    "wiring": lambda: pa.spaces.Wiring(stages=2, nodes=3, channels=2),
    "wiring-listed": lambda: pa.spaces.Wiring(stages=2, nodes=3, channels=2, listed=3),
    "wiring-own": lambda: pa.spaces.Wiring(
        stages=2, nodes=3, channels=2, listed=3, own_aggregation=True, own_affine=True
    ),
    "wiring-one": lambda: pa.spaces.Wiring(stages=2, nodes=3, channels=2, wirings="residual", dropout=0.1),
}
CELLS = ("nasbench201", "nasbench1shot1-1", "nasbench1shot1-2", "darts", "module")
STAGES = {"plan": {"stages": ((1, 3, 0.1), (3, 3, 0.4))}, "warmup_epochs": 1}
CELL = "|nor_conv_3x3~0|+|none~0|skip_connect~1|+|skip_connect~0|nor_conv_1x1~1|avg_pool_3x3~2|"


def searches() -> Iterator[tuple[str, str, str, Any, dict[str, Any]]]:
    """Name, task, space, method, and what else `search` is told."""
    yield "ldn", "spirals", "depth", VariationalDepth(**EPOCHS, batch_size=32), {}
    yield "ldn-em", "spirals", "depth", VariationalDepth(**EPOCHS, update="em"), {}
    yield (
        "ldn",
        "larger",
        "depth-conv",
        VariationalDepth(**SMALL, weights={"schedule": {"kind": "multistep", "milestones": (1,)}}, arch={"lr": 0.3}),
        {},
    )
    yield "ldn-uniform", "spirals", "depth", VariationalDepth(**EPOCHS), {**UNIFORM, "select": "expectation"}
    yield "ldn", "fourier", "fourier", VariationalDepth(**EPOCHS, weights={"lr": 0.01}), {}
    yield "darts", "fourier", "fourier", Darts(**EPOCHS, arch={"lr": 0.1}, weights={"lr": 0.001}), {}
    yield "fixed-depth", "spirals", "depth", FixedDepth(**EPOCHS, depth=2), {}
    yield "fixed-depth", "larger", "depth-conv", FixedDepth(**SMALL), {}
    for at in CELLS:
        yield "darts", "images", at, Darts(**LEARNS, augment={"crop": 1, "flip": True, "cutout": 1}), {}
        yield "gdas", "images", at, Gdas(**LEARNS), {}
        yield "drnas", "images", at, Drnas(**LEARNS), {}
        yield "balenas", "images", at, Balenas(**LEARNS, samples=2), {}
        yield "parsec", "images", at, Parsec(**LEARNS, samples=2), {}
        yield "single-path", "images", at, OneShot(**SMALL), {}
        yield "nsa", "images", at, StochasticArchitectures(**SMALL), {}
        yield "semi-supervised", "images", at, SemiSupervised(**SMALL), {"labels": 6}
    some = ("nasbench201", "darts")
    sotl = {"objective": {"loss": "sotl", "steps": 2}}
    for at in some:
        yield "darts-second", "images", at, Darts(**LEARNS, objective={"order": "second"}), {}
        yield "sotl-darts", "images", at, Darts(**LEARNS, **sotl, weights={"grad_clip": 0.0}), {}
        yield (
            "sotl-exact",
            "images",
            at,
            Darts(**LEARNS, objective={"loss": "sotl", "order": "exact", "steps": 2}, weights={"grad_clip": 0.0}),
            {},
        )
        yield "sovl-darts", "images", at, Darts(**LEARNS, objective={"loss": "sovl", "steps": 2, "restore": "all"}), {}
        yield "sotl-gdas", "images", at, Gdas(**LEARNS, **sotl), {}
        yield "sotl-drnas", "images", at, Drnas(**LEARNS, **sotl), {}
        yield "balenas-second", "images", at, Balenas(**LEARNS, objective={"order": "second"}), {}
        yield "parsec-dense", "images", at, Parsec(**LEARNS, samples=2, form="dense"), {}
        yield "fairnas", "images", at, OneShot(**SMALL, sampling="fair"), {}
        yield "multipath-metaprox", "images", at, OneShot(**SMALL, paths=2, inner_steps=2, proximal=1.0), {}
        yield "reptile", "images", at, OneShot(**SMALL, inner_steps=2, outer_lr=0.5, form="dense"), {}
        yield "nsa-batch", "images", at, StochasticArchitectures(**SMALL, per="batch"), {}
    yield "darts-curvature", "images", "nasbench201", Darts(**LEARNS, warmup_epochs=1, curvature=True), {}
    yield "darts-prior", "images", "nasbench201", Darts(**LEARNS), FALLING
    yield "parsec-prior", "images", "nasbench201", Parsec(**LEARNS, samples=2), FALLING
    for update in ("printed", "bayes-by-backprop", "von", "vprop"):
        yield f"balenas-{update}", "images", "nasbench201", Balenas(**SMALL, arch={"lr": 1e-3, "update": update}), {}
    yield "pdarts", "images", "darts", Darts(**LEARNS, **STAGES), {}
    yield "sotl-pdarts", "images", "darts", Darts(**LEARNS, **STAGES, **sotl), {}
    yield "balenas-pdarts", "images", "darts", Balenas(**LEARNS, **STAGES), {}
    for at in ("wiring", "wiring-listed", "wiring-own", "wiring-one"):
        yield "nsa", "larger", at, StochasticArchitectures(**SMALL, auxiliary=0.1), {}
        yield "semi-supervised", "larger", at, SemiSupervised(**SMALL), {"labels": 6}
    yield "single-path", "larger", "wiring", OneShot(**SMALL), {}
    yield "parsec", "larger", "wiring", Parsec(**LEARNS, samples=2), {}
    yield "labels-only", "larger", "wiring", SemiSupervised(**SMALL, consistency=0.0), {"labels": 6}
    genotype = str(SPACES["darts"]().architecture([1, 0, 2, 1] * 4))
    yield "standalone", "images", "nasbench201", Standalone(**SMALL, architecture=CELL, weights={"nesterov": True}), {}
    yield (
        "standalone",
        "images",
        "darts",
        Standalone(**SMALL, architecture=genotype, auxiliary=0.4, drop_path=0.2, augment={"crop": 1}),
        {},
    )
    yield "standalone-search", "images", "darts", Standalone(**SMALL, architecture=genotype, network="search"), {}
    yield "standalone", "images", "module", Standalone(**SMALL, architecture="block=deep,inner=tanh"), {}


RENAMED: dict[str, str] = {
    "valid": "select",
    "valid_ensemble": "select_ensemble",
    "valid_unpruned": "select_unpruned",
}
"""What a change calls otherwise: the old name in a line of metrics or of a result -> the new one."""


def digests(folder: Path) -> list[str]:
    """Of the weights, statistics and belief that a run kept, in the order of the digests."""
    tensors, _ = checkpoints.load(folder / "weights.safetensors")
    groups = ("weights/", "buffers/", "belief/", "statistics/")
    kept = [value for name, value in tensors.items() if name.startswith(groups)]
    return sorted(digest(value) for value in kept)


def told(folder: Path) -> dict[str, Any]:
    """What a run says, without times."""
    result = json.loads((folder / "result.json").read_text())
    result = {
        k: v for k, v in result.items() if k not in ("run", "forward_seconds", "digest", "space", "method", "selected")
    }
    history = [{k: v for k, v in line.items() if k != "seconds"} for line in read_history(folder)]
    return {"history": history, "result": result, "tensors": digests(folder)}


def newest(folder: Path) -> dict[str, str]:
    """Digests of all that the last checkpoint holds, the streams of chance among it."""
    tensors, _ = checkpoints.load(checkpoints.newest_first(folder)[0])
    return {name: digest(value) for name, value in tensors.items()}


def digest(value: Tensor) -> str:
    return hashlib.sha256(value.contiguous().view(-1).view(torch.uint8).numpy().tobytes()).hexdigest()[:12]


def one(case: tuple[str, str, str, Any, dict[str, Any]]) -> tuple[str, dict[str, Any]]:
    name, data, at, method, more = case
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    task, space, began = TASKS[data](), SPACES[at](), time.monotonic()
    task = task.resplit(labels=more.pop("labels", 0))
    with tempfile.TemporaryDirectory() as where:
        folder = Path(where)
        plain, killed = folder / "plain", folder / "killed"

        callbacks = [Checkpoints(seconds=0), CopyAfterFirst(plain, killed)]
        try:
            pa.search(space, task, method, out=plain, seed=1, compute=CPU, callbacks=callbacks, **more)
        except pa.PolyarchError as error:
            raise RuntimeError(f"{name} on {at}") from error
        found = told(plain)
        # What a search does at its end takes longer than such a search.
        with patch.object(searching, "finish", side_effect=KeyboardInterrupt):
            try:
                resume(killed, task=task)
            except KeyboardInterrupt:
                same = newest(killed) == newest(plain)
        pa.search(space, task, method, out=folder / "two", repeats=2, compute=CPU, **more)
        both = [told(folder / "two" / f"seed-{k}") for k in (0, 1)]
    print(f"{name} on {at}: {time.monotonic() - began:.1f} s", file=sys.stderr)
    return f"{name} on {at}", {"one": found, "resumed is equal": same, "two": both}


def after() -> dict[str, Any]:
    """What is done with a run: members of its mixture, scores, searches guided by them."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    found: dict[str, Any] = {}
    task = images()
    with tempfile.TemporaryDirectory() as where:
        for name, at, method in (
            ("darts", "nasbench201", Darts(**LEARNS)),
            ("darts", "darts", Darts(**LEARNS)),
            ("parsec", "module", Parsec(**LEARNS, samples=2)),
        ):
            run = pa.search(SPACES[at](), task, method, out=Path(where) / f"{name}-{at}", compute=CPU)
            said = run.ensemble(members=4)(task.select.x)
            found[f"ensemble {name} {at}"] = [said.log_probs.tolist(), said.mutual_information.tolist()]
    return found


def record() -> dict[str, Any]:
    cases = list(searches())
    with get_context("fork").Pool(2) as pool:
        rest = pool.apply_async(after)
        found = dict(pool.imap_unordered(one, cases, chunksize=1))
        found["after"] = rest.get()
    return json.loads(json.dumps(found))


def differences(old: Any, new: Any, at: str = "") -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        named = {RENAMED.get(key, key): value for key, value in old.items() if key != "selected_depth"}
        for key in sorted(named.keys() | new.keys()):
            if key not in named or key not in new:
                yield f"{at}/{key}: only in {'the new' if key in new else 'the old'}"
            else:
                yield from differences(named[key], new[key], f"{at}/{key}")
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for k, (a, b) in enumerate(zip(old, new, strict=True)):
            yield from differences(a, b, f"{at}[{k}]")
    elif old != new:
        yield f"{at}: {old!r} -> {new!r}"


if __name__ == "__main__":
    what, path = sys.argv[1], Path(sys.argv[2])
    found = record()
    if what == "record":
        path.write_text(json.dumps(found, sort_keys=True))
        sys.exit()
    said = list(differences(json.loads(path.read_text()), found))
    cases = {line.split("/")[1] for line in said}
    print(f"{len(said)} differences in {len(cases)} of {len(found)} cases", *said[:40], sep="\n")
    sys.exit(bool(said))
