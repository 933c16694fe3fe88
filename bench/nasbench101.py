"""Every cell of a NAS-Bench-101 table: its module hash and its parameters beside those on record.

    python -m bench.nasbench101 [--table nasbench101_sample] [--every 1]

Building a network takes some 20 ms; `--every 100` builds those of every hundredth cell. Prints one JSON line, and fails
where a cell disagrees.
"""

from __future__ import annotations

import argparse
import json
import sys
import time

import numpy as np
import torch

from polyarch.spaces.nasbench101 import Graph101, network
from polyarch.tables.finding import find_table


def cells(table: np.lib.npyio.NpzFile) -> list[Graph101]:
    """The cells of all rows."""
    vertices, adjacency, ops, names = (table[name] for name in ("n_vertices", "adjacency", "ops", "op_names"))
    return [
        Graph101(adjacency[row, :n, :n], ("input", *names[ops[row, : n - 2]], "output"))
        for row, n in enumerate(vertices)
    ]


def parameters(cell: Graph101) -> int:
    """How many the benchmark's network has, counted without memory for them."""
    with torch.device("meta"):
        return sum(p.numel() for p in network(cell).parameters())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", default="nasbench101_sample", help="a path, or a name in POLYARCH_TABLES")
    parser.add_argument("--every", type=int, default=1, help="build the network of every n-th cell alone")
    arguments = parser.parse_args()
    with np.load(find_table(arguments.table)) as table:
        graphs, hashes, recorded = cells(table), table["module_hash"], table["params"]
    start = time.perf_counter()
    hashed = sum(graph.module_hash() == str(known) for graph, known in zip(graphs, hashes, strict=True))
    seconds = time.perf_counter() - start
    built = range(0, len(graphs), arguments.every)
    counted = sum(parameters(graphs[row]) == int(recorded[row]) for row in built)
    found = {"cells": len(graphs), "hashes_agree": hashed, "networks": len(built), "parameters_agree": counted}
    print(json.dumps({**found, "microseconds_a_hash": round(1e6 * seconds / len(graphs))}))
    if hashed < len(graphs) or counted < len(built):
        sys.exit("some cells disagree with the record")


if __name__ == "__main__":
    main()
