"""What every method must satisfy: resume, capture, repeats, ranks."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from polyarch.callbacks import Checkpoints
from polyarch.core import Method, State
from polyarch.data.task import Task
from polyarch.runs.options import Compute
from polyarch.runs.run import WEIGHTS, read_history, repeat_folder
from polyarch.runs.search import resume, search
from polyarch.spaces.base import Space
from polyarch.testing.callbacks import CopyAfterFirst
from polyarch.training import checkpoints
from polyarch.training.dry_run import dry_run, one_step, prepare

RELATIVE, ABSOLUTE = 1e-3, 1e-4
"""Between batched and single runs, or two ranks and one: sums are taken in another order, and steps amplify it."""


def check_method(method: Method, space: Space, task: Task, folder: Path, *, ranks: bool = True) -> None:
    """Runs a method on a small task in every way that it must be able to run.

    Args:
        method: with settings that make it short: two or three epochs, evaluated after each.
        space: small.
        task: small, and loaded from a name or file, so that other processes can load it too.
        folder: an empty folder for the runs.
        ranks: whether to run on two ranks as well; starts two processes.
    """
    check_groups(method, space, task)
    check_capture(method, space, task)
    run_plain(method, space, task, folder)
    check_resume(task, folder)
    check_repeats(method, space, task, folder)
    if ranks:
        check_ranks(folder)


def check_groups(method: Method, space: Space, task: Task) -> None:
    """Weights and belief must be disjoint and complete, and a step must change tensors in place."""
    problem, state, feed = prepare(method, space, task, task.seen(task.train), repeats=2)
    assert set(state.weights) == {n for n, _ in problem.supernet.named_parameters()}, "weights must be all parameters"
    places = _places(state)
    owned = [value.data_ptr() for value in (*state.weights.values(), *state.belief.values())]
    assert len(set(owned)) == len(owned), "weights and belief must not share memory"
    for name, value in state.tensors().items():
        assert value.shape[:1] == (2,), f"every tensor of a state needs a leading axis of repeats: {name}"
    info = one_step(method, problem, state, feed)
    assert places == _places(state), "a step must change the tensors of the state in place, and make no new ones"
    assert all(value.shape == (2,) for value in info.metrics.values()), "metrics of a step must be [repeats]"
    assert info.forward > 0, "a step must count the examples it passed forward"


def _places(state: State) -> dict[str, int]:
    """Where its tensors are; those of `scratch` lie still, too, since recordings share the memory of all else."""
    scratch = {f"scratch/{name}": value for name, value in state.scratch.items()}
    return {name: value.data_ptr() for name, value in {**state.tensors(), **scratch}.items()}


def check_capture(method: Method, space: Space, task: Task) -> None:
    """A step on fake tensors: fails where a value is read back to the host or a shape depends on data."""
    assert dry_run(method, space, task).step > 0


def run_plain(method: Method, space: Space, task: Task, folder: Path) -> None:
    """A search in `plain`, and in `killed` what there was of it on the disk after its first evaluation."""
    plain = folder / "plain"
    callbacks = [Checkpoints(seconds=0), CopyAfterFirst(plain, folder / "killed")]
    chance = torch.get_rng_state()
    search(space, task, method, out=plain, seed=1, compute=Compute("cpu"), callbacks=callbacks)
    assert torch.equal(chance, torch.get_rng_state()), "a method must draw from its streams alone"
    assert (folder / "killed").exists(), "the method must be evaluated before its end"


def check_resume(task: Task, folder: Path) -> None:
    """Resumed, the run that `run_plain` left as if killed must end bit-equal to the one that was not."""
    resume(folder / "killed", task=task)
    resumed = _weights(folder / "killed")
    for name, value in _weights(folder / "plain").items():
        assert torch.equal(value, resumed[name]), f"resuming changed {name}"
    assert _timeless(folder / "plain") == _timeless(folder / "killed"), "resuming changed the metrics"


def check_repeats(method: Method, space: Space, task: Task, folder: Path) -> None:
    """The second of two batched repeats must equal its single run, to tolerance."""
    search(space, task, method, out=folder / "repeats", seed=0, repeats=2, compute=Compute("cpu"))
    own = repeat_folder(folder / "repeats", 1)
    # Statistics of batch norm may be of operations that only the other repeat runs; what they lead to is compared.
    plain, found = ({n: v for n, v in _weights(f).items() if "buffers/" not in n} for f in (folder / "plain", own))
    _assert_close(plain, found, "a batched repeat")
    _assert_alike(_timeless(folder / "plain"), _timeless(own), "a batched repeat reports")


def check_ranks(*folders: Path) -> None:
    """Two ranks must compute, to tolerance, what one did where `run_plain` has run; all in one start of processes."""
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
        "-m", "polyarch.testing.ranks", *map(str, folders),
    ]  # fmt: skip
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"two ranks failed: {done.stderr[-2000:]}"
    for folder in folders:
        plain, ranks = folder / "plain", folder / "ranks"
        _assert_close(_weights(plain), _weights(ranks), f"{folder.name}: two ranks")
        said = f"{folder.name}: two ranks report, unless they reduce over examples with distributed.mean,"
        _assert_alike(_timeless(plain), _timeless(ranks), said)


def _weights(folder: Path) -> dict[str, Tensor]:
    tensors, _ = checkpoints.load(folder / WEIGHTS)
    return tensors


def _timeless(folder: Path) -> list[dict[str, Any]]:
    return [{k: v for k, v in line.items() if k != "seconds"} for line in read_history(folder)]


def _assert_alike(expected: list[dict[str, Any]], found: list[dict[str, Any]], who: str) -> None:
    for one, other in zip(expected, found, strict=True):
        for name, value in one["step"].items():
            assert math.isclose(value, other["step"][name], rel_tol=1e-2, abs_tol=1e-3), f"{who} another {name}"


def _assert_close(expected: dict[str, Tensor], found: dict[str, Tensor], what: str) -> None:
    assert expected.keys() == found.keys(), f"{what} kept other tensors than a plain run"
    for name, value in expected.items():
        if name.startswith("statistics/"):  # they follow from the weights, and in a dead cell rounding grows in them
            continue
        assert torch.allclose(value, found[name], rtol=RELATIVE, atol=ABSOLUTE), (
            f"{what} differs from a plain run in {name} by {(value - found[name]).abs().max().item():.2g}"
        )
