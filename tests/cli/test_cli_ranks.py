"""One search in several processes that torchrun starts: what one process would find, said and written once."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from commandline import TINY, assert_same_run, cli, files, refused

from polyarch.runs.run import WEIGHTS, read_history
from polyarch.training import checkpoints

TOGETHER = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "polyarch"]
DIGITS = ("--data", "digits", "--device", "cpu", "--no-plain", "--set", "labels=256", "--set", "batch_size=64")
CELLS = ("--space", "nasbench201", "--set", "channels=2", "--set", "cells=1", *DIGITS, "--set", "weights.lr=0.001")
"""At a small rate: what differs by rounding after one step grows with every other."""


def in_two(*arguments, environment=()) -> subprocess.CompletedProcess:
    """A command in two processes of torchrun."""
    command = [*TOGETHER, *map(str, arguments)]
    return subprocess.run(command, env=os.environ | dict(environment), capture_output=True, text=True, check=False)


def said_by_polyarch(err: str) -> list[str]:
    """The lines that polyarch itself says when it ends: torchrun has a report of its own on what it started."""
    return [line for line in err.splitlines() if line.startswith("polyarch: ")]


def own_part(err: str) -> str:
    """What stands before the report of torchrun, which has a traceback of torchrun."""
    return err.partition("torch/distributed/elastic/multiprocessing/api.py")[0]


def lasting(folder: Path) -> set[str]:
    """The names of its files, but for checkpoints, of which a slower search writes more."""
    return {name for name in files(folder) if "checkpoint" not in name}


def assert_equal_to(alone: Path, together: Path):
    """Weights, belief and what was selected; to 1e-5, since sums are taken in another order."""
    ours, theirs = (checkpoints.load(folder / WEIGHTS)[0] for folder in (alone, together))
    for name, value in ours.items():
        torch.testing.assert_close(theirs[name], value, rtol=1e-5, atol=1e-5, msg=lambda text, n=name: f"{n}: {text}")
    assert (alone / "architecture.json").read_text() == (together / "architecture.json").read_text()
    for one, other in zip(read_history(alone), read_history(together), strict=True):
        assert (one["epoch"], one["forward"], one["backward"]) == (other["epoch"], other["forward"], other["backward"])


def test_two_processes_go_on_where_one_was_interrupted_and_speak_as_one(interrupted, finished):
    done = in_two("search", "--resume", "--out", interrupted, "--no-plain", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["architecture"] == cli("show", finished, "--json").json["architecture"]
    lines = [line for line in done.stderr.splitlines() if line.startswith("search: ")]
    assert lines
    assert len(set(lines)) == len(lines)
    assert_equal_to(finished, interrupted)
    assert not list(interrupted.rglob(".*"))
    assert (interrupted / "report.html").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "search",
    [
        pytest.param((*CELLS, "--method", "darts", "--set", "epochs=1"), id="differentiable"),
        pytest.param((*CELLS, "--method", "parsec", "--set", "epochs=1", "--no-train"), id="sampled"),
    ],
)
def test_two_processes_find_what_one_does(tmp_path, search):
    """Also the network that is trained after the search, of DARTS; the depth method is in the test above."""
    alone, together = tmp_path / "alone", tmp_path / "together"
    assert cli("search", *search, "--out", alone).code == 0
    done = in_two("search", *search, "--out", together, "--quiet")
    assert done.returncode == 0, done.stderr
    assert lasting(alone) == lasting(together)
    homes = [path.parent.relative_to(alone) for path in alone.rglob(WEIGHTS)]
    assert len(homes) == 2 - ("--no-train" in search)
    for home in homes:
        assert_equal_to(alone / home, together / home)


@pytest.mark.slow
def test_a_process_that_dies_ends_the_others_with_one_line_and_the_run_goes_on_to_the_same_end(tmp_path):
    search = (*TINY, "--set", "epochs=150", "--set", "stopping.split=never", "--no-plain")
    undisturbed, killed = tmp_path / "undisturbed", tmp_path / "killed"
    assert in_two("search", *search, "--out", undisturbed).returncode == 0
    command = [*TOGETHER, "search", *search, "--out", str(killed)]
    launcher = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while len(read_history(killed)) < 10:
        assert launcher.poll() is None
        time.sleep(0.01)
    children = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()
    os.kill(int(children[-1]), signal.SIGKILL)
    out, err = launcher.communicate(timeout=60)
    assert (launcher.returncode, out) == (1, "")
    [line] = said_by_polyarch(err)
    assert "another process" in line
    assert f"go on with `polyarch search --resume --out {killed} --no-plain`" in line
    assert "Traceback" not in own_part(err)
    assert in_two("search", "--resume", "--out", killed, "--no-plain").returncode == 0
    assert_same_run(undisturbed, killed)


@pytest.mark.slow
def test_what_is_refused_is_said_once(own_copy):
    done = in_two("search", *TINY, "--out", own_copy)
    assert done.returncode == 1
    [line] = said_by_polyarch(done.stderr)
    assert "already holds a run" in line
    assert "Traceback" not in own_part(done.stderr)


def test_what_several_processes_cannot_do_is_said(monkeypatch, own_copy, tmp_path):
    before = files(own_copy)
    monkeypatch.setenv("WORLD_SIZE", "2")
    refused("evaluate", own_copy, says="evaluate works in one process, and WORLD_SIZE is 2")
    refused("search", *TINY, "--out", tmp_path / "run", says=("RANK is not set", "unset WORLD_SIZE"))
    for name, value in {"RANK": "0", "LOCAL_RANK": "0", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("polyarch.cli.ranks.SECONDS", 0.1)
    refused("search", *TINY, "--device", "cuda:1", "--out", tmp_path / "run", says="the device of its number")
    refused("train", own_copy, "--members", "2", says="without torchrun")
    assert files(own_copy) == before
    assert not (tmp_path / "run").exists()
