"""How long `polyarch --help` takes, beside a Python that does nothing.

    python -m bench.startup [--rounds 5]

Prints one JSON line: median seconds of both, and their ratio. The goal is under a second: torch must not be imported.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path


def seconds(command: list[str]) -> float:
    """Wall-clock time of a command."""
    start = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    commands = {
        "polyarch_help": [str(Path(sys.executable).with_name("polyarch")), "--help"],
        "python_pass": [sys.executable, "-c", "pass"],
    }
    taken: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(rounds):  # in turn, so that a busy moment hits both alike
        for name, command in commands.items():
            taken[name].append(seconds(command))
    medians = {name: statistics.median(values) for name, values in taken.items()}
    ratio = medians["polyarch_help"] / medians["python_pass"]
    print(json.dumps({**{f"{n}_seconds": round(v, 4) for n, v in medians.items()}, "ratio": round(ratio, 2)}))


if __name__ == "__main__":
    main()
