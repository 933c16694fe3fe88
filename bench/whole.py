"""A whole search from command to report, as a user types it, and where its seconds go; its start with cold caches.

    python -m bench.whole --images FOLDER [--runs cold,warm,whole] [--epochs 50] [--precision bfloat16] [--out FILE]

The command:

    polyarch search --preset darts-nasbench201-cifar10 --repeats 1 --precision bfloat16 --device cuda
                    --set folder=FOLDER --set epochs=50 --out RUN

That is DARTS of first order on NAS-Bench-201 (C=16, N=5, batch 64), 25,000 images for weights and 25,000 for belief;
every epoch is evaluated, the selected network is not trained, and a report is written.

    cold     the first use ever: two epochs with empty caches of kernels (Triton's and CUDA's)
    warm     the same once more, with the caches that `cold` left, or where that is not run, your own
    whole    all epochs, with warm caches

Prints one JSON line a run, in seconds from the command on: `begun`, when data was read and the network built; `start`,
to the end of the first step, which compiles and records; `epoch`, the median of an epoch after the first, with its
evaluation; `trained`, to the end of the last one; `ending`, from there to the report, and what was done in it; `all`.
The first step has what the first epoch took longer than the others. With --log all that was printed is kept, each line
with its time. `--device cpu --precision float32 --set limit=300 --set cells=1 --set channels=4` tries this out.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from bench.gpu import commit

START_EPOCHS = 2
"""As many as tell the first step from the others."""
PRESET = "darts-nasbench201-cifar10"


def heard(command: Sequence[str], environment: Mapping[str, str] | None = None) -> Iterator[tuple[float, str]]:
    """Every line that a command prints, with the seconds since it began; at last, without a line, its exit status."""
    began = time.monotonic()
    child = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, **(environment or {})}
    )
    assert child.stdout is not None
    for line in child.stdout:
        yield time.monotonic() - began, line.rstrip()
    status = child.wait()
    yield time.monotonic() - began, "" if status == 0 else f"exit status {status}"


def words_of(given: argparse.Namespace, epochs: int, out: str) -> list[str]:
    """What is typed after `polyarch`."""
    settings = [f"folder={given.images}", f"epochs={epochs}", *given.set]
    words = ["search", "--preset", PRESET, "--repeats", "1", "--precision", given.precision, "--device", given.device]
    return [*words, "--no-train", *(word for text in settings for word in ("--set", text)), "--out", out]


def timed(given: argparse.Namespace, epochs: int, caches: Mapping[str, str]) -> tuple[dict[str, Any], list[str]]:
    """One search in a process of its own: its seconds, and what it printed."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        command = [sys.executable, "-m", "polyarch", *words_of(given, epochs, str(run))]
        *lines, (whole, failure) = heard(command, caches)
        log = [f"{now:8.2f}  {line.replace(folder, 'FOLDER')}" for now, line in lines]
        if failure:
            return {"failed": failure}, log
        ended = [json.loads(text)["seconds"] for text in (run / "metrics.jsonl").read_text().splitlines()]
        architecture = json.loads((run / "result.json").read_text())["architecture"]
    begun = next(now for now, line in lines if line.startswith("search: ") and line.endswith(" examples"))
    later = [after - before for before, after in pairwise(ended)]
    epoch = statistics.median(later) if later else None
    trained = begun + ended[-1]
    doing = [(now, line.removeprefix("search: ")) for now, line in lines if now > trained and "search: " in line]
    until = [*(now for now, _ in doing[1:]), whole]
    found = {
        "begun": begun,
        "first_epoch": ended[0],
        "start": None if epoch is None else begun + ended[0] - epoch,
        "epoch": epoch,
        "trained": trained,
        "ending": whole - trained,
        "all": whole,
    }
    rounded = {name: None if value is None else round(value, 2) for name, value in found.items()}
    steps = {what: round(end - now, 2) for (now, what), end in zip(doing, until, strict=True) if "epoch " not in what}
    return {**rounded, "in_the_ending": steps, "epochs": len(ended), "architecture": architecture}, log


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", required=True, help="the folder of CIFAR-10")
    parser.add_argument("--runs", default="cold,warm,whole")
    parser.add_argument("--epochs", type=int, default=50)
    parser.add_argument("--precision", default="bfloat16")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--set", action="append", default=[], help="other settings, such as fast=false")
    parser.add_argument("--log", type=Path, help="a folder for what the commands print")
    parser.add_argument("--out", type=Path, help="a file that JSON lines are added to")
    given = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as fresh:
        runs = given.runs.split(",")
        caches = {"TRITON_CACHE_DIR": f"{fresh}/triton", "CUDA_CACHE_PATH": f"{fresh}/cuda"} if "cold" in runs else {}
        for name in runs:
            epochs = given.epochs if name == "whole" else START_EPOCHS
            found, log = timed(given, epochs, caches)
            shown = " ".join(["polyarch", *words_of(given, epochs, "RUN")]).replace(given.images, "FOLDER")
            row = json.dumps({"run": name, "command": shown, "commit": commit(), **found})
            print(row, flush=True)
            if "failed" in found:
                print("\n".join(log[-20:]), file=sys.stderr)
            if given.out:
                given.out.parent.mkdir(parents=True, exist_ok=True)
                with given.out.open("a", encoding="utf-8") as file:
                    file.write(row + "\n")
            if given.log:
                given.log.mkdir(parents=True, exist_ok=True)
                (given.log / f"{name}.log").write_text("\n".join(log).replace(given.images, "FOLDER") + "\n")


if __name__ == "__main__":
    main()
