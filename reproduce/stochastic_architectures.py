"""Networks with stochastic architectures (Deng et al. 2020): what holds of the paper's tables and figures.

    python -m reproduce.stochastic_architectures train fashion --folder IMAGES --seeds 3 --runs runs/fashion
    python -m reproduce.stochastic_architectures measure fashion --folder IMAGES --seeds 3 --runs runs/fashion

    python -m reproduce.stochastic_architectures train cifar --folder IMAGES --device cuda --runs runs/cifar
    python -m reproduce.stochastic_architectures measure cifar --folder IMAGES --device cuda --runs runs/cifar

    python -m reproduce.stochastic_architectures show        # tables, as Markdown
    python -m reproduce.stochastic_architectures figures     # figures as PNG

`fashion` is small: Fashion-MNIST at 14 x 14, 10,000 training images, 8 channels, 10 epochs, three quarters of an hour a
seed on one CPU core and longer to measure; `fashion-long` is the same for 40 epochs. `cifar` is CIFAR-10 at width 4, 40
epochs, on a GPU. All networks of a setup are trained alike. Killed, training goes on with those that are not there yet;
`--networks` trains some alone.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path

import torch

from reproduce import stochastic_shown as shown
from reproduce.showing import RESULTS, Row, draw, keep, parser_of
from reproduce.stochastic_measures import MEASURES, Bench, measured
from reproduce.stochastic_networks import SETUPS, Setup, file_of, networks, task_of, train

OUTSIDE = 2_000
"""Inputs of another kind that are looked at."""


def train_all(given: argparse.Namespace, setup: Setup, device: torch.device) -> None:
    """Networks that are not there yet, seed by seed, until the time is up."""
    started = time.monotonic()
    given.runs.mkdir(parents=True, exist_ok=True)
    task = task_of(setup.data, given.folder, setup)
    for seed in range(given.first, given.seeds):
        for name in given.networks or networks(setup):
            path = file_of(given.runs, name, seed)
            if path.exists() or time.monotonic() - started > given.seconds:
                continue
            unfinished = path.with_suffix(".tmp")
            torch.save(train(setup, name, seed, task, device, given.every), unfinished)
            unfinished.rename(path)


def measure_all(given: argparse.Namespace, setup: Setup, device: torch.device) -> Iterator[Row]:
    """All that can be measured on what is there."""
    task = task_of(setup.data, given.folder, setup)
    outside = task_of(setup.outside, given.folder, setup).test if setup.outside else None
    for seed in range(given.first, given.seeds):
        bench = Bench(setup, given.runs, seed, task, None if outside is None else outside.x[:OUTSIDE], device)
        yield from measured(bench, given.measures or tuple(MEASURES))


def said(row: Row) -> str:
    """A row in short."""
    plain = {name: value for name, value in row.items() if not isinstance(value, list | dict)}
    return json.dumps({name: round(v, 4) if isinstance(v, float) else v for name, v in plain.items()})


def main() -> None:
    """Trains, measures, or shows what there is."""
    parser, results = parser_of(__doc__), RESULTS / "stochastic-architectures"
    verbs = parser.add_subparsers(dest="verb", required=True)
    for name in ("train", "measure"):
        verb = verbs.add_parser(name)
        verb.add_argument("setup", choices=list(SETUPS))
        verb.add_argument("--folder", default="", help="where images lie")
        verb.add_argument("--seeds", type=int, default=1)
        verb.add_argument("--first", type=int, default=0, help="seed to begin with")
        verb.add_argument("--device", default="cpu")
        verb.add_argument("--runs", type=Path, required=True, help="folder of trained networks")
    verbs.choices["train"].add_argument("--networks", nargs="+", default=[])
    verbs.choices["train"].add_argument("--every", type=int, default=1, help="epochs between two looks at test data")
    verbs.choices["train"].add_argument("--seconds", type=float, default=1e9, help="begin nothing after so long")
    verbs.choices["measure"].add_argument("--measures", nargs="+", default=[], choices=list(MEASURES))
    verbs.choices["measure"].add_argument("--suffix", default="", help="of the file of results")
    for name in ("show", "figures"):
        verbs.add_parser(name)
    for verb in verbs.choices.values():
        verb.add_argument("--out", type=Path, default=results, help="default: docs/results/stochastic-architectures")
    given = parser.parse_args()
    if given.verb == "show":
        print(shown.markdown(given.out), end="")
        return
    if given.verb == "figures":
        draw(given.out, shown.DRAWINGS, "png")
        return
    setup, device = SETUPS[given.setup], torch.device(given.device)
    torch.backends.cudnn.benchmark = True  # few shapes, many steps
    if given.verb == "train":
        train_all(given, setup, device)
    else:
        file, rows = given.out / f"{given.setup}{given.suffix}.json", measure_all(given, setup, device)
        keep(file, rows, "folder", "runs", "seconds", "first", device=given.device, say=said)


if __name__ == "__main__":
    main()
