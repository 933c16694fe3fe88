"""Do networks trained here reach what NAS-Bench-201 recorded? Cells of its table, trained by its short recipe.

    python -m reproduce.train_cells --images FOLDER --table nasbench201 [--cells 8] [--device cuda]
    python -m reproduce.train_cells --report                # what was found, as Markdown

Trains cells spread over the table's quality (12 epochs, all 50,000 training images, one seed) and writes
docs/results/cells/train_cells.json: our test accuracy beside the table's after 12 epochs.
"""

from __future__ import annotations

import json
import tempfile
import time
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

import polyarch as pa
from polyarch.catalogue import find
from polyarch.ranking.statistics import spearman
from polyarch.settings import make
from polyarch.tables import Table, open_table
from reproduce.showing import RESULTS, Part, Row, as_table, keep, mean_sd, parser_of, read

KNOWN = (
    "|skip_connect~0|+|skip_connect~0|skip_connect~1|+|skip_connect~0|skip_connect~1|skip_connect~2|",
    "|nor_conv_3x3~0|+|nor_conv_3x3~0|nor_conv_3x3~1|+|nor_conv_3x3~0|nor_conv_3x3~1|nor_conv_3x3~2|",
    "|nor_conv_3x3~0|+|nor_conv_3x3~0|nor_conv_3x3~1|+|skip_connect~0|nor_conv_3x3~1|nor_conv_3x3~2|",
)
"""All skips, all 3x3 convolutions, and the best cell on CIFAR-100."""
COLUMN = "cifar10_test_acc_12"


def spread(table: Table, cells: int) -> list[str]:
    """The known cells, and others at even ranks of the table's accuracy."""
    order = np.argsort(table.whole(COLUMN))
    more = [table.architectures[order[k]] for k in np.linspace(1000, len(order) - 1, cells - len(KNOWN)).astype(int)]
    return [*KNOWN, *more]


def trained(text: str, task: pa.data.Task, device: str, epochs: int) -> Row:
    """One cell by the short recipe."""
    cls, recipe = find("method", "standalone-nasbench201-12")
    method = make(cls, {**recipe, "architecture": text, "epochs": epochs, "evaluation.every": epochs})
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


def rows(given: Namespace) -> Iterator[Row]:
    """Every cell, and what the table knows of it."""
    table = open_table(given.table)
    task = pa.data.load("cifar10", select=0, folder=given.images)
    for text in spread(table, given.cells):
        found = trained(text, task, given.device, given.epochs)
        yield found | {"table": float(table.look_up(COLUMN, [text])[0])}


def markdown(part: Part) -> str:
    """All cells, and how well both agree on their order."""
    lines = []
    for row in part.rows:
        ours, theirs = row["accuracy"], row["table"]
        cell = f"`{row['architecture'].replace('|', chr(92) + '|')}`"
        lines.append([cell, f"{row['parameters']:,}", f"{ours:.2f}", f"{theirs:.2f}", f"{ours - theirs:+.2f}"])
    correlation = spearman([row["accuracy"] for row in part.rows], [row["table"] for row in part.rows])
    table = as_table(["cell", "parameters", "ours, %", "table, %", "difference"], lines)
    return f"{table}\n\nSpearman: {mean_sd([correlation], 3)}"


def main() -> None:
    """Trains the cells, or prints what was found."""
    parser = parser_of(__doc__)
    parser.add_argument("--images", default="")
    parser.add_argument("--table", default="nasbench201")
    parser.add_argument("--cells", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, default=RESULTS / "cells", help="folder; default: docs/results/cells")
    parser.add_argument("--report", action="store_true")
    given = parser.parse_args()
    if given.report:
        part = read(given.out, "train_cells")
        print(markdown(part) if part else "(not run)")
    else:
        keep(given.out / "train_cells.json", rows(given), device=given.device, say=json.dumps)


if __name__ == "__main__":
    main()
