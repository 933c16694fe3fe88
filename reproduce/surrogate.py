"""What the surrogate of NAS-Bench-301 predicts for published cells of DARTS, for plain ones and for random ones.

    python -m reproduce.surrogate --table nasbench301 [--seeds 5] [--cells 10000]
    python -m reproduce.surrogate --report                # what was found, as Markdown

Nothing is trained: every number is a prediction. Writes docs/results/cells/surrogate.json: validation accuracy and run
time of each named cell, and the share of random cells that it is predicted to beat; mean, deviation and best of so many
random cells for each seed; and how many cells are predicted a second.
"""

from __future__ import annotations

import json
import statistics
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from polyarch.architecture import Architecture
from polyarch.errors import PolyarchError
from polyarch.spaces import Darts
from polyarch.streams import Streams
from polyarch.tables import Surrogate, open_table
from reproduce.showing import RESULTS, Part, Row, as_table, keep, mean_sd, parser_of, read

SPACE = Darts()
ACCURACY, TIME = "val_accuracy", "runtime"


def genotype(normal: str, reduce: str) -> str:
    """The text of two cells, each eight words OPERATION~INPUT."""
    pairs = (
        [(name, int(source)) for name, source in (word.split("~") for word in cell.split())]
        for cell in (normal, reduce)
    )
    one, other = pairs
    return f"Genotype(normal={one}, normal_concat=[2, 3, 4, 5], reduce={other}, reduce_concat=[2, 3, 4, 5])"


def plain(name: str) -> str:
    """One operation everywhere, on both inputs of the cell."""
    cell = f"{name}~0 {name}~1 " * 4
    return genotype(cell, cell)


CELLS = {
    "DARTS, first order (Liu et al. 2019)": genotype(
        "sep_conv_3x3~1 sep_conv_3x3~0 skip_connect~0 sep_conv_3x3~1 "
        "skip_connect~0 sep_conv_3x3~1 sep_conv_3x3~0 skip_connect~2",
        "max_pool_3x3~0 max_pool_3x3~1 skip_connect~2 max_pool_3x3~0 "
        "max_pool_3x3~0 skip_connect~2 skip_connect~2 avg_pool_3x3~0",
    ),
    "DARTS, second order (Liu et al. 2019)": genotype(
        "sep_conv_3x3~0 sep_conv_3x3~1 sep_conv_3x3~0 sep_conv_3x3~1 "
        "sep_conv_3x3~1 skip_connect~0 skip_connect~0 dil_conv_3x3~2",
        "max_pool_3x3~0 max_pool_3x3~1 skip_connect~2 max_pool_3x3~1 "
        "max_pool_3x3~0 skip_connect~2 skip_connect~2 max_pool_3x3~1",
    ),
    "P-DARTS (Chen et al. 2019)": genotype(
        "skip_connect~0 dil_conv_3x3~1 skip_connect~0 sep_conv_3x3~1 "
        "sep_conv_3x3~1 sep_conv_3x3~3 sep_conv_3x3~0 dil_conv_5x5~4",
        "avg_pool_3x3~0 sep_conv_5x5~1 sep_conv_3x3~0 dil_conv_5x5~2 "
        "max_pool_3x3~0 dil_conv_3x3~1 dil_conv_3x3~1 dil_conv_5x5~3",
    ),
    "PC-DARTS (Xu et al. 2020)": genotype(
        "sep_conv_3x3~1 skip_connect~0 sep_conv_3x3~0 dil_conv_3x3~1 "
        "sep_conv_5x5~0 sep_conv_3x3~1 avg_pool_3x3~0 dil_conv_3x3~1",
        "sep_conv_5x5~1 max_pool_3x3~0 sep_conv_5x5~1 sep_conv_5x5~2 "
        "sep_conv_3x3~0 sep_conv_3x3~3 sep_conv_3x3~1 sep_conv_3x3~2",
    ),
    "all `sep_conv_3x3`": plain("sep_conv_3x3"),
    "all `max_pool_3x3`": plain("max_pool_3x3"),
    "all `skip_connect`": plain("skip_connect"),
}
"""Published cells as their authors wrote them; and plain ones, whose nodes all take the two inputs of the cell."""


def rows(given: Namespace) -> Iterator[Row]:
    """Random cells of every seed, named cells, and how fast all this is."""
    table = open_table(given.table)
    if not isinstance(table, Surrogate):
        raise PolyarchError(f"{table.where}: it has been measured; name the surrogate")
    drawn: list[float] = []
    for seed in range(given.seeds):
        cells = table.draw(SPACE, given.cells, Streams(seed)["architecture"])
        found = predicted(table, ACCURACY, cells)
        drawn += found
        spread = {"mean": statistics.fmean(found), "sd": statistics.stdev(found), "best": max(found)}
        yield {"kind": "random", "seed": seed, "cells": len(cells), **spread}
    for name, text in CELLS.items():
        [accuracy], [seconds] = (predicted(table, column, [SPACE.parse(text)]) for column in (ACCURACY, TIME))
        beaten = sum(other < accuracy for other in drawn) / len(drawn)
        yield {"kind": "cell", "cell": name, ACCURACY: accuracy, TIME: seconds, "beats": beaten, "architecture": text}
    choices = torch.tensor([cell.choices for cell in cells])
    yield {
        "kind": "speed",
        "at_once": len(choices) / seconds_of(lambda: table.values(ACCURACY, SPACE, choices)),
        "one_by_one": 100 / seconds_of(lambda: [table.values(ACCURACY, SPACE, one) for one in choices[:100].split(1)]),
    }


def predicted(table: Surrogate, column: str, cells: list[Architecture]) -> list[float]:
    """The numbers of some cells."""
    found: list[float] = table.values(column, SPACE, torch.tensor([cell.choices for cell in cells])).tolist()
    return found


def seconds_of(job: Callable[[], object], rounds: int = 5) -> float:
    """The median time of a job, once it has been done."""
    job()
    found = []
    for _ in range(rounds):
        start = time.perf_counter()
        job()
        found.append(time.perf_counter() - start)
    return statistics.median(found)


def markdown(part: Part) -> str:
    """Named cells from the best to the worst, and random ones below."""
    cells = sorted(part.having(kind="cell"), key=lambda row: row[ACCURACY], reverse=True)
    lines = [
        [row["cell"], f"{row[ACCURACY]:.2f}", f"{row[TIME] / 3600:.2f}", f"{100 * row['beats']:.2f}"] for row in cells
    ]
    random, [speed] = part.having(kind="random"), part.having(kind="speed")
    told = {name: mean_sd([row[name] for row in random], 3) for name in ("mean", "sd", "best")}
    return (
        f"{as_table(['cell', 'predicted accuracy, %', 'predicted run time, h', 'random cells beaten, %'], lines)}\n\n"
        f"Random cells, {random[0]['cells']:,} for each of {len(random)} seeds: mean {told['mean']}, deviation between "
        f"cells {told['sd']}, best {told['best']}\n"
        f"Cells a second: {speed['at_once']:,.0f} at once, {speed['one_by_one']:,.0f} one by one"
    )


def main() -> None:
    """Asks the surrogate, or prints what was found."""
    parser = parser_of(__doc__)
    parser.add_argument("--table", default="nasbench301")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--cells", type=int, default=10_000)
    parser.add_argument("--out", type=Path, default=RESULTS / "cells", help="folder; default: docs/results/cells")
    parser.add_argument("--report", action="store_true")
    given = parser.parse_args()
    if given.report:
        part = read(given.out, "surrogate")
        print(markdown(part) if part else "(not run)")
    else:
        keep(given.out / "surrogate.json", rows(given), say=json.dumps)


if __name__ == "__main__":
    main()
