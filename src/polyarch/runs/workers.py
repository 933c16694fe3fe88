"""Workers of a comparison: each takes one run after another, until all have their results.

A worker knows nothing but the comparison's folder, so that it is the same in a process beside this one and on another
machine. What is finished is skipped; what somebody who lives has claimed is left to them; what one who died has left is
gone on with from its checkpoint.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from typing_extensions import override

from polyarch.callbacks import Callback
from polyarch.data.task import Task
from polyarch.errors import PolyarchError
from polyarch.files import make_folder, write_json
from polyarch.runs.claims import Claims
from polyarch.runs.config import CONFIG, Config
from polyarch.runs.grid import CLAIMS, FAILED, RUNS, Grid, Planned
from polyarch.runs.options import Compute, Start
from polyarch.runs.run import Run
from polyarch.runs.search import resume, search
from polyarch.runs.trained import train_selected

LOOKS, REST = 0.2, 10
"""Seconds from one look at runs that others make to the next; and at least so many times what a look took, so that many
who wait for many runs leave a file server to those who work."""
UNABLE, LOST = 2, 3
"""Exit statuses: of a worker that cannot go on, such as on a full disk, and says why; and of one whose run somebody
else took over, since it did not seem to live."""


def work(folder: Path, callbacks: Sequence[Callback] = ()) -> int:
    """Makes runs of a comparison until none is left, also of those that others have claimed; says how many it made.

    Raises:
        PolyarchError: the folder cannot be written to. Of a run that fails by itself, such as one that diverges, the
            folder says why, and the others are made.
    """
    grid = Grid.read(folder)
    torch.set_num_threads(grid.threads)
    grid.check_code()
    claims, made = Claims(folder / CLAIMS), 0
    task: Task | None = None
    begun = time.monotonic()
    while open_runs := [run for run in grid.runs if not _over(grid, folder, run)]:
        for run in open_runs:
            claim = None if _over(grid, folder, run) else claims.take(run.name)
            if claim is None:
                continue
            with claim.held(lost=lambda: os._exit(LOST)):
                _look_anew(folder / RUNS / run.name)
                if not _over(grid, folder, run):  # by who held it before
                    task = task or grid.task(folder)
                    _make(folder / RUNS / run.name, grid.config(run), task, callbacks)
                    made += 1
            break
        else:
            # Others are at work on all that is left; should they die, it is taken over.
            time.sleep(max(LOOKS, REST * (time.monotonic() - begun)))
        begun = time.monotonic()
    return made


def _over(grid: Grid, folder: Path, run: Planned) -> bool:
    return grid.finished(folder, run) or (folder / RUNS / run.name / FAILED).exists()


def _look_anew(home: Path) -> None:
    """Reads a folder, so that what a file server's client remembers of it is what is there now."""
    if home.parent.exists():
        os.listdir(home.parent)
    if home.exists():
        os.listdir(home)


def _make(home: Path, config: Config, task: Task, callbacks: Sequence[Callback]) -> None:
    """Makes a run or goes on with it; what goes wrong with the run itself is written into its folder."""
    try:
        make_run(home, config, task, callbacks)
    except PolyarchError as error:
        if isinstance(error.__cause__, OSError):  # it would be the same with every other run
            raise
        make_folder(home)
        write_json(home / FAILED, {"error": str(error)})


def make_run(home: Path, config: Config, task: Task, callbacks: Sequence[Callback] = ()) -> Run:
    """A run of a comparison in its folder, with the training of what it selected; goes on with what was begun."""
    if (home / CONFIG).exists():
        run = resume(home, task=task, callbacks=callbacks)
    else:
        run = search(
            config.make_space(),
            task,
            config.make_method(),
            out=home,
            seed=config.seed,
            select=config.select,
            start=Start(
                prior=config.prior if isinstance(config.prior, str) else config.make_prior(config.make_space())
            ),
            compute=Compute(config.device, config.precision, config.fast),
            callbacks=callbacks,
        )
    assert isinstance(run, Run)
    if run.shares_weights:
        train_selected(run, callbacks=callbacks)
    return run


def main() -> None:
    """What a worker's process runs: its argument is the folder; when its input ends, so does it.

    Its standard output is for one line: why it cannot go on. Whatever else is printed goes to standard error.
    """
    said = os.dup(1)
    os.dup2(2, 1)
    threading.Thread(target=_end_with_input, daemon=True).start()
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("polyarch: %(message)s"))
    handler.addFilter(_Once())
    logging.getLogger("polyarch").addHandler(handler)
    try:
        work(Path(sys.argv[1]))
    except PolyarchError as error:
        os.write(said, str(error).encode())
        os._exit(UNABLE)
    os._exit(0)


class _Once(logging.Filter):
    """Lets every message through once: the runs of a method have the same to say."""

    def __init__(self) -> None:
        super().__init__()
        self._told = set[str]()

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        new = text not in self._told
        self._told.add(text)
        return new


def _end_with_input() -> None:
    sys.stdin.buffer.read()
    os._exit(1)
