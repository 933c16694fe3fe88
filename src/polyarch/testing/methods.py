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

from polyarch.data.task import Task
from polyarch.methods.base import Method
from polyarch.runs.run import WEIGHTS, read_history, repeat_folder
from polyarch.runs.search import resume, search
from polyarch.spaces.base import Space
from polyarch.training import checkpoints
from polyarch.training.rehearsal import prepare, rehearse, standardised

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
    chance = torch.get_rng_state()
    search(space, task, method, out=folder / "plain", seed=1, device="cpu")
    assert torch.equal(chance, torch.get_rng_state()), "a method must draw from its streams alone"
    check_resume(method, space, task, folder)
    check_repeats(method, space, task, folder)
    if ranks:
        check_ranks(method, space, task, folder)


def check_groups(method: Method, space: Space, task: Task) -> None:
    """Weights and belief must be disjoint and complete, and a step must change tensors in place."""
    problem, state, feed = prepare(method, space, task, standardised(task), repeats=2)
    assert set(state.weights) == {n for n, _ in problem.supernet.named_parameters()}, "weights must be all parameters"
    places = {name: value.data_ptr() for name, value in state.tensors().items()}
    owned = [value.data_ptr() for value in (*state.weights.values(), *state.belief.values())]
    assert len(set(owned)) == len(owned), "weights and belief must not share memory"
    for name, value in state.tensors().items():
        assert value.shape[:1] == (2,), f"every tensor of a state needs a leading axis of repeats: {name}"
    info = method.step(problem, state, feed)
    assert places == {name: value.data_ptr() for name, value in state.tensors().items()}, (
        "a step must change the tensors of the state in place, and make no new ones"
    )
    assert all(value.shape == (2,) for value in info.metrics.values()), "metrics of a step must be [repeats]"
    assert info.forward > 0, "a step must count the examples it passed forward"


def check_capture(method: Method, space: Space, task: Task) -> None:
    """A step on fake tensors: fails where a value is read back to the host or a shape depends on data."""
    assert rehearse(method, space, task).activations >= 0


def check_resume(method: Method, space: Space, task: Task, folder: Path) -> None:
    """Interrupted after its first evaluation and resumed, a run must end bit-equal to one that was not."""

    def interrupt(_: dict[str, Any]) -> None:
        raise KeyboardInterrupt

    try:
        search(
            space,
            task,
            method,
            out=folder / "resumed",
            seed=1,
            device="cpu",
            checkpoint_seconds=0,
            watch=interrupt,
        )
    except KeyboardInterrupt:
        pass
    else:
        raise AssertionError("the method made no evaluation to interrupt")
    resume(folder / "resumed", task=task)
    for name, value in _weights(folder / "plain").items():
        assert torch.equal(value, _weights(folder / "resumed")[name]), f"resuming changed {name}"
    assert _timeless(folder / "plain") == _timeless(folder / "resumed"), "resuming changed the metrics"


def check_repeats(method: Method, space: Space, task: Task, folder: Path) -> None:
    """The second of two batched repeats must equal its single run, to tolerance."""
    search(space, task, method, out=folder / "repeats", seed=0, repeats=2, device="cpu")
    _assert_close(_weights(folder / "plain"), _weights(repeat_folder(folder / "repeats", 1)), "a batched repeat")


def check_ranks(method: Method, space: Space, task: Task, folder: Path) -> None:
    """Two ranks must compute what one does, to tolerance."""
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
        "-m", "polyarch.testing.ranks", str(folder / "plain"), str(folder / "ranks"),
    ]  # fmt: skip
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"two ranks failed: {done.stderr[-2000:]}"
    _assert_close(_weights(folder / "plain"), _weights(folder / "ranks"), "two ranks")
    for one, two in zip(_timeless(folder / "plain"), _timeless(folder / "ranks"), strict=True):
        for name, value in one["step"].items():
            assert math.isclose(value, two["step"][name], rel_tol=1e-2, abs_tol=1e-3), (
                f"two ranks report another {name} than one: reduce over examples with world.mean"
            )


def _weights(folder: Path) -> dict[str, Tensor]:
    tensors, _ = checkpoints.load(folder / WEIGHTS)
    return tensors


def _timeless(folder: Path) -> list[dict[str, Any]]:
    return [{k: v for k, v in line.items() if k != "seconds"} for line in read_history(folder)]


def _assert_close(expected: dict[str, Tensor], found: dict[str, Tensor], what: str) -> None:
    assert expected.keys() == found.keys(), f"{what} kept other tensors than a plain run"
    for name, value in expected.items():
        if name.startswith("statistics/"):  # they follow from the weights, and in a dead cell rounding grows in them
            continue
        assert torch.allclose(value, found[name], rtol=RELATIVE, atol=ABSOLUTE), (
            f"{what} differs from a plain run in {name} by {(value - found[name]).abs().max().item():.2g}"
        )
