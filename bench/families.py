"""Every family of methods to its end on a device: two repeats at once, a search that is interrupted and resumed.

    python -m bench.families [--device cuda] [--only NAME,...]

Small networks on digits, by the command line, all in one process. Prints what every command prints, and after it one
line of JSON: the command, its exit code and its seconds. Exits with 1 where one failed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
import time
from pathlib import Path
from unittest.mock import patch

import torch

import polyarch as pa
from polyarch.callbacks import Checkpoints
from polyarch.cli.main import run
from polyarch.runs.run import WEIGHTS
from polyarch.testing.callbacks import InterruptAfter
from polyarch.training import checkpoints

CELLS = ("--space", "nasbench201", "--set", "channels=4", "--set", "cells=1")
DARTS = ("--space", "darts", "--set", "channels=4", "--set", "layers=3")
SHORT = ("--set", "epochs=2", "--set", "method.batch_size=32", "--repeats", "2")
WIRED = ("--set", "stages=2", "--set", "nodes=4", "--set", "channels=8", "--set", "crop=1")
FAMILIES: dict[str, tuple[str, ...]] = {
    "variational-depth": ("--space", "depth", "--set", "max_depth=5"),
    "fixed-depth": ("--space", "depth", "--set", "max_depth=5", "--method", "fixed-depth"),
    "darts": (*CELLS, "--method", "darts"),
    "darts, exact": (*CELLS, "--method", "darts", "--set", "objective.order=exact"),
    "darts, second order": (*CELLS, "--method", "darts", "--set", "objective.order=second"),
    "gdas": (*CELLS, "--method", "gdas"),
    "drnas": (*CELLS, "--method", "drnas"),
    "balenas": (*CELLS, "--method", "balenas"),
    "sotl-darts": (*CELLS, "--method", "sotl-darts", "--set", "steps=10"),
    "sovl-darts": (*CELLS, "--method", "sovl-darts", "--set", "steps=10"),
    "sotl-drnas": (*CELLS, "--method", "sotl-drnas", "--set", "steps=10"),
    "sotl-darts-exact": (*CELLS, "--method", "sotl-darts-exact", "--set", "steps=3"),
    "pdarts": (
        *("--space", "darts", "--set", "channels=4", "--method", "pdarts"),
        *("--set", "plan.stages=3:8:0.1,4:4:0.4", "--set", "warmup_epochs=1"),
    ),
    "parsec": (*CELLS, "--method", "parsec", "--set", "samples=3"),
    "parsec, dense": (*DARTS, "--method", "parsec", "--set", "samples=3", "--set", "form=dense"),
    "single-path": (*CELLS, "--method", "single-path"),
    "single-path, dense": (*CELLS, "--method", "single-path", "--set", "form=dense"),
    "fairnas, dense": (*CELLS, "--method", "fairnas", "--set", "form=dense"),
    "multipath, dense": (*CELLS, "--method", "multipath", "--set", "form=dense"),
    "multipath-metaprox, dense": (*CELLS, "--method", "multipath-metaprox", "--set", "form=dense"),
    "reptile, dense": (*CELLS, "--method", "reptile", "--set", "form=dense"),
    "stochastic-architectures": ("--space", "wiring-own", "--method", "stochastic-architectures", *WIRED),
    "stochastic-architectures-batch": (
        *("--space", "wiring", "--set", "listed=5", "--method", "stochastic-architectures-batch", *WIRED),
    ),
    "semi-supervised": (
        *("--space", "wiring-own", "--method", "semi-supervised", "--set", "labels=100", *WIRED),
        *("--set", "consistency=3"),
    ),
}
RESUMED = ("variational-depth", "darts", "sotl-darts", "parsec, dense", "stochastic-architectures")


def called(*words: str) -> int:
    """One command; its exit code."""
    print(f"$ polyarch {' '.join(words)}", flush=True)
    began, code = time.monotonic(), 0
    with patch.object(sys, "argv", ["polyarch", *words]):
        try:
            run()
        except SystemExit as ended:
            code = int(ended.code or 0)
        except Exception as error:  # a fault of ours: the others are still run
            print(f"{type(error).__name__}: {error}", flush=True)
            code = 1
    sys.stderr.flush()
    print(json.dumps({"code": code, "seconds": round(time.monotonic() - began, 1)}), flush=True)
    return code


def interrupted(name: str, words: tuple[str, ...], folder: Path, device: str) -> int:
    """A search that ends after its first evaluation and is resumed, beside two that went through."""
    from polyarch.cli.choices import asked, choose

    pairs = dict(zip(words[::2], words[1::2], strict=True))
    settings = [value for flag, value in zip(words[::2], words[1::2], strict=True) if flag == "--set"]
    names = asked(None, pairs.get("--space"), pairs.get("--method"), None)
    chosen = choose(names.space, names.method, "digits", [*settings, "epochs=3", "method.batch_size=32"])
    task, compute = chosen.source.task(), pa.Compute(device)
    whole, again, broken = folder / "whole", folder / "again", folder / "broken"
    for out in (whole, again):
        pa.search(chosen.space, task, chosen.method, out=out, compute=compute)
    try:
        stop = [Checkpoints(seconds=0), InterruptAfter(1)]
        pa.search(chosen.space, task, chosen.method, out=broken, compute=compute, callbacks=stop)
    except KeyboardInterrupt:
        print(f"{name}: interrupted after one epoch of three", flush=True)
    code = called("search", "--resume", "--no-train", "--out", str(broken))
    off = {"resumed": apart(whole, broken), "made again": apart(whole, again)}
    print(json.dumps({"search": name, "relative distance from one that went through": off}), flush=True)
    return code


def apart(one: Path, other: Path) -> dict[str, float]:
    """How far what two runs kept is apart, over its length: of weights, statistics and belief."""
    ours, theirs = (checkpoints.load(path / WEIGHTS)[0] for path in (one, other))
    found = {}
    for group in ("weights", "buffers", "belief"):
        names = [name for name in ours if name.startswith(f"{group}/") and ours[name].is_floating_point()]
        rows = [[own[name].double().flatten() for name in names] or [torch.zeros(1)] for own in (ours, theirs)]
        a, b = (torch.cat(own) for own in rows)
        # Where nothing is mixed, belief has minus infinities.
        a, b = a.nan_to_num(neginf=0), b.nan_to_num(neginf=0)
        found[group] = float((a - b).norm() / a.norm().clamp_min(1e-30))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--only", default=";".join(FAMILIES), help="names between semicolons")
    parser.add_argument("--resumed", action="store_true", help="only the searches that are resumed")
    parser.add_argument("--deterministic", action="store_true", help="with CUBLAS_WORKSPACE_CONFIG=:4096:8")
    given = parser.parse_args()
    torch.use_deterministic_algorithms(given.deterministic, warn_only=True)
    torch.set_num_threads(min(torch.get_num_threads(), 4))
    failed = []
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for number, name in enumerate(given.only.split(";")):
            home = Path(f"runs/{number}")
            words = ("search", "--data", "digits", "--no-train", "--device", given.device, *FAMILIES[name], *SHORT)
            if not given.resumed:
                failed += [name] if called(*words, "--out", str(home / "both")) else []
            if name in RESUMED:
                code = interrupted(name, FAMILIES[name], home, given.device)
                failed += [f"{name}, resumed"] if code else []
    print(json.dumps({"failed": failed}), flush=True)
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
