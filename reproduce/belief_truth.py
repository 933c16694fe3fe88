"""Two small spaces, every architecture of which is trained alone over many seeds: what belief is scored against.

    python -m reproduce.belief_truth --out runs/belief-truth       # 20 minutes of one core; killed, it goes on
    python -m reproduce.belief_truth --gather runs/belief-truth    # writes the tables that the library comes with

`depth-spirals`: the depths 0 to 15 of one network on 200 noisy points of two spirals, of which the shallow are bad and
the others hard to tell apart. `digits-network`: the 64 architectures of a small network of our own on 600 images of
digits, most of which can be told apart. Weights are trained for a fixed number of epochs and the last state is kept:
nothing is chosen by any data. Seeds differ from those of the searches.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import polyarch as pa
from polyarch.architecture import Architecture
from polyarch.core import LAST, Evaluating, Method
from polyarch.files import write_whole
from polyarch.spaces.base import Space
from polyarch.tables.columns import DESCRIPTION
from polyarch.training.optimisers import Schedule, Sgd
from reproduce.showing import parser_of

TABLES = Path(pa.__file__).parent / "tables"
FIRST_SEED = 100
SPLITS = {"select": "valid", "test": "test"}


@dataclass(frozen=True)
class Benchmark:
    """A space, its data, and how one of its architectures is trained alone."""

    table: str
    space: Space
    data: str
    settings: dict[str, Any]
    alone: Callable[[Architecture], Method]
    seeds: int

    @property
    def file(self) -> Path:
        """Where the table is."""
        return TABLES / f"{self.table}.npz"

    def task(self) -> pa.data.Task:
        """The data."""
        return pa.data.load(self.data, **self.settings)

    @property
    def architectures(self) -> list[Architecture]:
        """All of them."""
        return self.space.decode(self.space.random().support())


DEPTH = Sgd(lr=0.1, momentum=0.5)
"""As the depth paper trains weights on spirals."""
NETWORK = Sgd(lr=0.05, schedule=Schedule(kind="cosine"))
DEPTH_EPOCHS, NETWORK_EPOCHS = 2000, 40


def depth_alone(architecture: Architecture) -> Method:
    """One depth."""
    [depth] = architecture.choices
    every = Evaluating(every=DEPTH_EPOCHS)
    return pa.methods.FixedDepth(depth=depth, epochs=DEPTH_EPOCHS, weights=DEPTH, stopping=LAST, evaluation=every)


def network_alone(architecture: Architecture) -> Method:
    """One small network."""
    every = Evaluating(every=NETWORK_EPOCHS)
    return pa.methods.Standalone(
        architecture=str(architecture), epochs=NETWORK_EPOCHS, weights=NETWORK, stopping=LAST, evaluation=every
    )


BENCHMARKS = (
    Benchmark(
        "depth-spirals",
        pa.spaces.ResidualDepth(max_depth=15),
        "spirals",
        {"points": 600, "noise": 0.5, "select": 400},
        depth_alone,
        seeds=16,
    ),
    Benchmark(
        "digits-network",
        pa.spaces.ModuleSpace("polyarch.testing.digits_network:DigitsNetwork"),
        "digits",
        {"test": 797, "select": 400},
        network_alone,
        seeds=8,
    ),
)


def trained(benchmark: Benchmark, architecture: Architecture) -> dict[str, Any]:
    """What every seed of an architecture is worth on validation and on test data."""
    with TemporaryDirectory() as folder:
        runs = pa.search(
            benchmark.space,
            benchmark.task(),
            benchmark.alone(architecture),
            out=Path(folder) / "run",
            seed=FIRST_SEED,
            repeats=benchmark.seeds,
        )
        assert isinstance(runs, list)
        results = [run.result for run in runs]
    found: dict[str, Any] = {"arch": str(architecture), "parameters": results[0]["cost"]["selected"]["parameters"]}
    for split, name in SPLITS.items():
        for metric in ("log_likelihood", "accuracy"):
            found[f"{name}_{metric}_seeds"] = [result["metrics"][split][metric] for result in results]
    return found


def train_all(benchmark: Benchmark, folder: Path) -> None:
    """Every architecture that is not there yet, each in a file of its own."""
    for place, architecture in enumerate(benchmark.architectures):
        path = folder / benchmark.table / f"{place}.json"
        if not path.exists():
            begun = time.monotonic()
            found = trained(benchmark, architecture)
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, json.dumps(found).encode())
            worth = np.mean(found["test_log_likelihood_seeds"])
            print(f"{benchmark.table} {architecture}: {worth:.3f} in {time.monotonic() - begun:.1f} s", flush=True)


def gathered(benchmark: Benchmark, folder: Path) -> dict[str, np.ndarray]:
    """The table of all architectures: means over seeds, and every seed's own."""
    names = list(map(str, benchmark.architectures))
    files = [folder / benchmark.table / f"{place}.json" for place in range(len(names))]
    if lacking := [file.name for file in files if not file.exists()]:
        raise SystemExit(f"{benchmark.table} lacks {len(lacking)} of {len(files)} architectures: train the rest")
    rows = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    if [row["arch"] for row in rows] != names:
        raise SystemExit(f"{folder / benchmark.table} has the architectures of another space: train them anew")
    arrays = {"arch": np.array(names), "parameters": np.array([row["parameters"] for row in rows])}
    said = {}
    for split in SPLITS.values():
        for metric, about in (("log_likelihood", "mean log p(y | x), in nats"), ("accuracy", "in %")):
            column, times = f"{split}_{metric}", 100 if metric == "accuracy" else 1
            seeds = times * np.array([row[f"{column}_seeds"] for row in rows])
            arrays |= {column: seeds.mean(1), f"{column}_seeds": seeds.astype(np.float32)}
            how = {"split": split, "better": "higher"}
            said[column] = how | {"about": f"{about}, mean over {benchmark.seeds} seeds"}
            said[f"{column}_seeds"] = how | {"about": f"{about}, seed by seed"}
    return arrays | {DESCRIPTION: np.array(json.dumps(said))}


def main() -> None:
    """Trains what is not there yet, or writes the tables."""
    parser = parser_of(__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/belief-truth"), help="folder of the parts")
    parser.add_argument("--gather", type=Path, help="join the parts in this folder into the library's tables, and stop")
    given = parser.parse_args()
    for benchmark in reversed(BENCHMARKS):
        if given.gather:
            np.savez_compressed(benchmark.file, **gathered(benchmark, given.gather))
        else:
            train_all(benchmark, given.out)


if __name__ == "__main__":
    main()
