"""Do networks trained here reach what NAS-Bench-201 recorded? Cells of its table, trained by its short recipe.

    python -m reproduce.train_cells --images FOLDER --table nasbench201 [--cells 8] [--device cuda]
    python -m reproduce.train_cells --report                # what was found, as Markdown

Trains cells spread over the table's quality (12 epochs, all 50,000 training images, one seed) and writes
docs/results/cells/train_cells.json: our test accuracy beside the table's after 12 epochs, and their rank correlation.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import spearmanr

import polyarch as pa
from polyarch.catalogue import find
from polyarch.tables import open_table

OUT = Path(__file__).parent.parent / "docs" / "results" / "cells" / "train_cells.json"
KNOWN = (
    "|skip_connect~0|+|skip_connect~0|skip_connect~1|+|skip_connect~0|skip_connect~1|skip_connect~2|",
    "|nor_conv_3x3~0|+|nor_conv_3x3~0|nor_conv_3x3~1|+|nor_conv_3x3~0|nor_conv_3x3~1|nor_conv_3x3~2|",
    "|nor_conv_3x3~0|+|nor_conv_3x3~0|nor_conv_3x3~1|+|skip_connect~0|nor_conv_3x3~1|nor_conv_3x3~2|",
)
"""All skips, all 3x3 convolutions, and the best cell on CIFAR-100."""
COLUMN = "cifar10_test_acc_12"


def spread(table: pa.tables.Table, cells: int) -> list[str]:
    """The known cells, and others at even ranks of the table's accuracy."""
    order = np.argsort(table.whole(COLUMN))
    more = [table.architectures[order[k]] for k in np.linspace(1000, len(order) - 1, cells - len(KNOWN)).astype(int)]
    return [*KNOWN, *more]


def trained(text: str, task: pa.data.Task, device: str, epochs: int) -> dict[str, Any]:
    """One cell by the short recipe."""
    cls, recipe = find("method", "standalone-nasbench201-12")
    method = cls(**{**recipe, "architecture": text, "epochs": epochs, "evaluate_every": epochs})
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        run = pa.search(pa.spaces.NasBench201(), task, method, out=Path(folder) / "run", compute=pa.Compute(device))
        assert isinstance(run, pa.Run)
        found = run.result
    return {
        "architecture": text,
        "accuracy": 100 * found["metrics"]["test"]["accuracy"],
        "parameters": found["cost"]["selected"]["parameters"],
        "seconds": round(time.monotonic() - start, 1),
    }


def main() -> None:
    """Trains the cells, or prints what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", default="")
    parser.add_argument("--table", default="nasbench201")
    parser.add_argument("--cells", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--report", action="store_true")
    arguments = parser.parse_args()
    if arguments.report:
        print(markdown(json.loads(arguments.out.read_text())))
        return
    table = open_table(arguments.table)
    task = pa.data.load("cifar10", select=0, **({"folder": arguments.images} if arguments.images else {}))
    rows: list[dict[str, Any]] = []
    for text in spread(table, arguments.cells):
        row = trained(text, task, arguments.device, arguments.epochs)
        row["table"] = float(table.look_up(COLUMN, [text])[0])
        rows.append(row)
        print(json.dumps(row), file=sys.stderr, flush=True)
        machine = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.processor()
        write(arguments.out, rows, arguments, machine)


def write(out: Path, rows: list[dict[str, Any]], arguments: argparse.Namespace, machine: str) -> None:
    """Everything so far, after every cell."""
    ours, theirs = [row["accuracy"] for row in rows], [row["table"] for row in rows]
    found = {
        "command": f"python -m reproduce.train_cells --cells {arguments.cells} --epochs {arguments.epochs}",
        "seeds": 1,
        "machine": machine,
        "torch": torch.__version__,
        "spearman": float(spearmanr(ours, theirs).statistic) if len(rows) > 2 else None,
        "rows": rows,
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(found, indent=1) + "\n")


def markdown(found: dict[str, Any]) -> str:
    """A table of the rows."""
    lines = [
        f"| `{row['architecture'].replace('|', chr(92) + '|')}` | {row['parameters']:,} | {row['accuracy']:.2f} | "
        f"{row['table']:.2f} | {row['accuracy'] - row['table']:+.2f} |"
        for row in found["rows"]
    ]
    return "\n".join(["| cell | parameters | ours, % | table, % | difference |", "|---|---|---|---|---|", *lines])


if __name__ == "__main__":
    main()
