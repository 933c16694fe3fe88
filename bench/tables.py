"""How soon a table is read, what memory it takes, and how fast it answers.

    python -m bench.tables --table FILE [--space nasbench201] [--column NAME] [--queries 1000000] [--rounds 5]

Prints one JSON line. The goals for the table of NAS-Bench-201: under 0.5 s, under 100 MB, at least 1,000,000 answers
per second in bulk. The index from choices to rows is made as it is asked: `first_thousand` are answers without it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

from polyarch.cli.choices import find
from polyarch.tables import open_table


def seconds(job: Callable[[], object]) -> float:
    """Wall-clock time of a job."""
    start = time.perf_counter()
    job()
    return time.perf_counter() - start


def resident_mb() -> float:
    """Memory of this process that is in RAM (Linux)."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", required=True)
    parser.add_argument("--space", default="nasbench201")
    parser.add_argument("--column", default="cifar10_test_acc_200")
    parser.add_argument("--queries", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    column, queries, rounds = arguments.column, arguments.queries, arguments.rounds
    cls, preset = find("space", arguments.space)
    space = cls(**preset)

    before, start = resident_mb(), time.perf_counter()
    table = open_table(arguments.table)
    load = time.perf_counter() - start
    loaded = resident_mb()

    some = torch.stack([torch.randint(len(d), (1000,)) for d in space.decisions], -1)
    first = seconds(lambda: table.values(column, space, some))
    table.coverage(space)  # fills the whole index
    indexed = resident_mb()

    choices = torch.stack([torch.randint(len(d), (queries,)) for d in space.decisions], -1)
    names = [table.architectures[row] for row in torch.randint(len(table), (queries,)).tolist()]
    by_choices = [seconds(lambda: table.values(column, space, choices)) for _ in range(rounds)]
    by_text = [seconds(lambda: table.look_up(column, names)) for _ in range(rounds)]
    found = {
        "rows": len(table),
        "load_seconds": round(load, 4),
        "loaded_mb": round(loaded - before, 1),
        "indexed_mb": round(indexed - before, 1),
        "first_thousand_seconds": round(first, 4),
        "queries_a_second_by_choices": round(queries / statistics.median(by_choices)),
        "queries_a_second_by_text": round(queries / statistics.median(by_text)),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
