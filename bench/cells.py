"""Every cell of NAS-Bench-201: parameters and multiply-accumulates of its network against the benchmark's own figures.

    python -m bench.cells [--table nasbench201] [--every 1]

Builds each network without memory for its weights and prints one JSON line: how many agree, to the last parameter. All
15,625 take some minutes; `--every 100` takes seconds. The table is found by path or in POLYARCH_TABLES.
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np

from polyarch.data.task import TaskShape
from polyarch.spaces import NasBench201
from polyarch.tables import open_table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", default="nasbench201")
    parser.add_argument("--every", type=int, default=1)
    arguments = parser.parse_args()
    table, space, shape = open_table(arguments.table), NasBench201(), TaskShape((3, 32, 32), 10)
    parameters, macs = table.whole("cifar10_params_analytic_M"), table.whole("cifar10_flops_M")
    texts = table.architectures[:: arguments.every]
    start = time.perf_counter()
    costs = [space.cost(space.parse(text), shape) for text in texts]
    seconds = time.perf_counter() - start
    wanted = np.round(parameters[:: arguments.every] * 1e6)
    found = {
        "cells": len(texts),
        "texts_agree": sum(str(space.parse(text)) == text for text in texts),
        "parameters_agree": int((wanted == [c.parameters for c in costs]).sum()),
        # The table holds millions in single precision.
        "macs_agree": sum(
            np.float32(c.macs / 1e6) == np.float32(m) for c, m in zip(costs, macs[:: arguments.every], strict=True)
        ),
        "distinct": len({space.canonical(space.parse(text)) for text in texts}),
        "milliseconds_a_cell": round(1000 * seconds / len(texts), 1),
    }
    print(json.dumps(found, default=int))


if __name__ == "__main__":
    main()
