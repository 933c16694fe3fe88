"""Repeats a run on several ranks: `torchrun --standalone --nproc-per-node 2 -m polyarch.testing.ranks RUN OUT`."""

from __future__ import annotations

import sys

import torch.distributed as dist

from polyarch.runs.options import Compute
from polyarch.runs.run import Run
from polyarch.runs.search import search


def main(folder: str, out: str) -> None:
    """Runs the search that made the run in `folder` again, into `out`."""
    dist.init_process_group("gloo")
    run = Run(folder)
    config = run.config
    search(
        config.make_space(),
        run.task(),
        config.make_method(),
        out=out,
        seed=config.seed,
        compute=Compute("cpu"),
    )
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
