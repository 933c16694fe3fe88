"""One search of each family on CIFAR-10, from command to report, as a user types it: timings and peak memory.

    python -m bench.cifar --images FOLDER --table nasbench201 [--methods darts,drnas] [--epochs 3] [--out FOLDER]

NAS-Bench-201 at its full size (C=16, N=5) by the published presets, halves of the data, every method in a process of
its own. Prints one JSON line per method: seconds from the command to the first epoch's end, of the first epoch and of
every later one, from the last one to the report, and in all; the most memory that the device held; what was selected,
and what the table has for it. With --out, what the command printed is kept there as NAME.log, each line with the
seconds since the start.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

from bench.whole import heard

PRESETS: dict[str, tuple[str, ...]] = {
    "darts": ("--preset", "darts-nasbench201-cifar10"),
    "sotl-darts": ("--preset", "sotl-darts-nasbench201-cifar10"),
    "drnas": ("--preset", "drnas-nasbench201-cifar10"),
    "single-path": ("--preset", "single-path-nasbench201-cifar10", "--set", "form=dense"),
    # No paper has PARSEC here; K = 16 would take a quarter of an hour an epoch.
    "parsec": ("--preset", "darts-nasbench201-cifar10", "--method", "parsec", "--set", "samples=2"),
}
CHILD = """
import sys, torch
from polyarch.cli.main import run
try:
    run()
finally:
    held = torch.cuda.max_memory_reserved() if torch.cuda.is_available() else 0
    print(f"PEAK {held}", file=sys.stderr, flush=True)
"""


def searched(name: str, given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """One search in a process of its own."""
    words = [*PRESETS[name], "--set", f"folder={given.images}", "--set", f"epochs={given.epochs}", "--repeats", "1"]
    words += ["--table", given.table, "--column", "cifar10_valid_acc_200", "--no-train", "--out", str(folder / "run")]
    words += ["--device", given.device, *(word for text in given.set for word in ("--set", text))]
    private = {str(folder): "runs", str(given.images): "FOLDER", str(given.table): Path(given.table).stem}
    lines, ended, held = [f"$ polyarch search {' '.join(words)}"], 0.0, 0
    *said, (whole, failure) = heard([sys.executable, "-c", CHILD, "search", *words])
    for now, line in said:
        if line.startswith("PEAK "):
            held = int(line.split()[1])
            continue
        lines.append(f"{now:7.1f}  {line}")
        if f"epoch {given.epochs}/" in line:
            ended = now
    if given.out:
        given.out.mkdir(parents=True, exist_ok=True)
        text = "\n".join(lines) + "\n"
        for path, shown in private.items():
            text = text.replace(path, shown)
        (given.out / f"{name}.log").write_text(text, encoding="utf-8")
    if failure:
        return {"method": name, "failed": lines[-1]}
    metrics = [json.loads(text) for text in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    result = json.loads((folder / "run" / "result.json").read_text())
    seconds = [line["seconds"] for line in metrics]
    return {
        "method": name,
        "first": round(ended - (seconds[-1] - seconds[0]), 1),
        "epochs": [round(after - before, 1) for before, after in pairwise(seconds)],
        "first_epoch": round(seconds[0], 1),
        "ending": round(whole - ended, 1),
        "seconds": round(whole, 1),
        "gib": round(held / 2**30, 2),
        "architecture": result["architecture"],
        "truth": result["truth"]["selected"],
        "supernet_accuracy": metrics[-1]["select"].get("supernet_accuracy"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", required=True)
    parser.add_argument("--table", required=True)
    parser.add_argument("--methods", default=",".join(PRESETS))
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--set", action="append", default=[], help="other settings, such as limit=500")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    for name in given.methods.split(","):
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(searched(name, given, Path(folder))), flush=True)


if __name__ == "__main__":
    main()
