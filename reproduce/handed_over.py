"""Whether the network that a search hands over is as good as `polyarch train` makes the same architecture.

    python -m reproduce.handed_over                     # what is not there yet: half an hour of one core
    python -m reproduce.handed_over --cases own-darts   # some of it
    python -m reproduce.handed_over --table             # what was found, as Markdown

A search by a method's defaults selects a network and trains it alone (`pa.train_selected`), as `polyarch search` does.
Beside it the same architecture is trained by the defaults of `polyarch train`, on the same data and from the same seed.
All are judged on test data that none has seen. A third network is trained with the rate, the batches and the number of
epochs that the search has by default for shared weights.

Spaces: cells of NAS-Bench-201, four channels wide, one to a stage, on images of digits; and a network of one's own that
reads the same digits as texts of sixteen words, each how much ink there is in a square of four pixels.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

import polyarch as pa
from reproduce.showing import RESULTS, Part, Row, Section, chosen, keep, mean_table, page, parser_of

SEEDS = 3
INK, WORDS, WIDTH = 17, 16, 24
"""Different words, words of a text, and numbers that a word becomes."""


class Recurrent(nn.Module):
    """What a state knows that has read up to a word."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRU(WIDTH, WIDTH, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        """The input, and the state after every word."""
        return x + self.cell(x)[0]


class Attention(nn.Module):
    """What every word asks of all words."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.heads = nn.LayerNorm(WIDTH), nn.MultiheadAttention(WIDTH, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        """The input, and what is read where."""
        asked = self.norm(x)
        return x + self.heads(asked, asked, asked, need_weights=False)[0]


class Neighbours(nn.Module):
    """Of a word and the words beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.conv = nn.LayerNorm(WIDTH), nn.Conv1d(WIDTH, WIDTH, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """The input, and what surrounds it."""
        return x + self.conv(self.norm(x).mT).relu().mT


class Average(nn.Module):
    """Of all words alike."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """The input, and what all have in common."""
        return x + self.layer(x.mean(1, keepdim=True)).relu()


class Reader(nn.Module):
    """Two layers, each of which mixes words in one of four ways; [batch, words] -> [batch, 10]."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(INK, WIDTH), nn.Parameter(0.1 * torch.randn(WORDS, WIDTH))
        self.layers = nn.Sequential(*(self._layer(name) for name in ("first", "second")))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 10)

    def _layer(self, name: str) -> nn.Module:
        options = {"gru": Recurrent(), "attention": Attention(), "conv": Neighbours(), "average": Average()}
        return pa.Choice(name, options)

    def forward(self, text: Tensor) -> Tensor:
        """Logits of a text's digit."""
        return self.head(self.norm(self.layers(self.words(text) + self.places).mean(1)))


def texts() -> tuple[np.ndarray, np.ndarray]:
    """Digits, row by row: the ink of every square of two by two pixels, rounded to one of 17 words."""
    found = load_digits()
    squares = found.images.reshape(-1, 4, 2, 4, 2).mean((2, 4))
    return squares.round().astype(np.int64).reshape(-1, WORDS), found.target


# ---------------------------------------------------------------------------------------------------------------------
# What is run.

CASES = {
    "cells-darts": ("nasbench201", "darts"),
    "own-darts": ("own", "darts"),
    "own-gdas": ("own", "gdas"),
    "own-parsec": ("own", "parsec"),
    "own-single-path": ("own", "single-path"),
}
SPACES: dict[str, Callable[[], pa.Space]] = {
    "nasbench201": lambda: pa.spaces.NasBench201(channels=4, cells=1),
    "own": lambda: pa.ModuleSpace(Reader),
}
DATA: dict[str, Callable[[], pa.data.Task]] = {
    "nasbench201": lambda: pa.data.load("digits"),
    "own": lambda: pa.data.load(texts()),
}


def row(space: str, method: str, seed: int) -> Row:
    """A search, and its architecture trained in three ways: what each is worth on test data."""
    task, how, cpu = DATA[space](), pa.methods.named(method), pa.Compute("cpu")
    with tempfile.TemporaryDirectory() as folder:
        home, runs, seconds, start = Path(folder), {}, {}, time.perf_counter()
        searched = pa.search(SPACES[space](), task, how, out=home / "search", seed=seed, compute=cpu)
        alone = pa.methods.Standalone(architecture=str(searched.architecture))
        alike = replace(alone, weights=how.weights, batch_size=how.batch_size, epochs=how.epochs)
        for name, train in (
            ("shared", lambda: searched),
            ("handed over", lambda: pa.train_selected(searched)),
            ("train", lambda: pa.search(searched.space, task, alone, out=home / "train", seed=seed, compute=cpu)),
            ("alike", lambda: pa.search(searched.space, task, alike, out=home / "alike", seed=seed, compute=cpu)),
        ):
            runs[name] = train()
            seconds[name], start = round(time.perf_counter() - start, 1), time.perf_counter()
        found = {name: run.result["metrics"]["test"] for name, run in runs.items()}
    return {
        "space": space,
        "method": method,
        "seed": seed,
        "architecture": str(searched.architecture),
        "test_examples": len(task.test),
        "accuracy": {name: metrics["accuracy"] for name, metrics in found.items()},
        "log_likelihood": {name: metrics["log_likelihood"] for name, metrics in found.items()},
        "seconds": seconds,
    }


# ---------------------------------------------------------------------------------------------------------------------
# What is shown.


def table(part: Part) -> str:
    """Every space and method: three accuracies, and how far the two networks that were trained alone are apart."""

    def accuracy(name: str) -> Callable[[Row], float]:
        return lambda row: row["accuracy"][name]

    columns = {
        "shared weights": (accuracy("shared"), 1, 100),
        "handed over": (accuracy("handed over"), 1, 100),
        "`polyarch train`": (accuracy("train"), 1, 100),
        "rate and epochs of the search": (accuracy("alike"), 1, 100),
        "handed over − train": (lambda row: row["accuracy"]["handed over"] - row["accuracy"]["train"], 1, 100),
        "search, s": (lambda row: row["seconds"]["shared"], 0),
        "handed over, s": (lambda row: row["seconds"]["handed over"], 0),
    }
    groups = {(*names, len(rows)): rows for names, rows in part.groups("space", "method").items()}
    return mean_table(["space", "method", "seeds"], groups, columns, left=2)


def shown(folder: Path) -> str:
    """The page's table, and where it comes from."""
    parts = tuple(f"{case}-{seed}" for case in CASES for seed in range(SEEDS))
    note = "Mean ± standard deviation; of one seed, its number."
    return page(folder, [Section("Test accuracy, %", parts, table, note)], seeds=False)


def main() -> None:
    """Runs what is not there yet, a file for every case and seed; or shows what there is."""
    parser = parser_of(__doc__)
    parser.add_argument("--cases", default="all", help="names, with commas between")
    parser.add_argument("--out", type=Path, default=RESULTS / "handed-over", help="folder")
    parser.add_argument("--table", action="store_true", help="show what there is, and stop")
    given = parser.parse_args()
    if given.table:
        print(shown(given.out), end="")
        return
    cases = chosen(parser, "case", given.cases, list(CASES))
    torch.set_num_threads(1)
    for seed in range(SEEDS):
        for case in cases:
            file = given.out / f"{case}-{seed}.json"
            if not file.exists():
                keep(file, [row(*CASES[case], seed)], "cases", say=json.dumps)


if __name__ == "__main__":
    main()
