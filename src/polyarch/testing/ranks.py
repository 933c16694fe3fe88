"""Repeats runs on several ranks: `torchrun --standalone --nproc-per-node 2 -m polyarch.testing.ranks FOLDER...`."""

from __future__ import annotations

import sys
from pathlib import Path

import torch.distributed as dist

from polyarch.runs.options import Compute
from polyarch.runs.run import Run
from polyarch.runs.search import search


def main(*folders: str) -> None:
    """Runs the search that made the run in `FOLDER/plain` again, into `FOLDER/ranks`, for every folder."""
    dist.init_process_group("gloo")
    for folder in map(Path, folders):
        run = Run(folder / "plain")
        config = run.config
        search(
            config.make_space(),
            run.task(),
            config.make_method(),
            out=folder / "ranks",
            seed=config.seed,
            compute=Compute("cpu"),
        )
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
