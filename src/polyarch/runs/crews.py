"""Who works on a comparison: processes of this machine, or whatever else starts the same workers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import final

import joblib
import torch
from typing_extensions import override

from polyarch.runs.claims import holders
from polyarch.runs.grid import CLAIMS, Grid
from polyarch.runs.options import Workers
from polyarch.runs.workers import LOST, UNABLE

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""By which libraries that torch does not speak for are told how many threads to compute with."""


@final
@dataclass(frozen=True)
class Ending:
    """That a worker ended before all was done."""

    why: str
    """In a line; nothing of one that may be replaced without a word."""
    unable: bool = False
    """Whether others would end like it, as on a full disk."""


class Crew(ABC):
    """Workers on a comparison."""

    @abstractmethod
    def fill(self) -> None:
        """Starts workers in the place of those that are not there."""

    @abstractmethod
    def endings(self) -> list[Ending]:
        """Of those that ended since it was asked last, unless they had done all there was to do."""

    @abstractmethod
    def end(self) -> None:
        """Ends all of them."""

    @property
    @abstractmethod
    def words(self) -> str:
        """Who it is."""


@final
class Processes(Crew):
    """Processes of this machine, which end when this one does."""

    def __init__(self, folder: Path, grid: Grid, workers: Workers, left: int) -> None:
        """Starts nothing yet."""
        self._folder, self._threads = folder, str(grid.threads)
        gpus = gpus_of(grid, workers)
        self._gpus = torch.cuda.device_count() if gpus else 0
        self._each = max(1, int(1 / gpus)) if gpus else 0
        fitting = fitting_workers(grid, self._gpus * self._each if self._gpus else None)
        self._places: list[subprocess.Popen[bytes] | None] = [None] * max(1, min(left, workers.count or fitting))

    @property
    @override
    def words(self) -> str:
        count = len(self._places)
        return f"{count} worker{'s' if count > 1 else ''}"

    @override
    def fill(self) -> None:
        for place, process in enumerate(self._places):
            if process is None:
                self._places[place] = self._started(place)

    def _started(self, place: int) -> subprocess.Popen[bytes]:
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        environment |= dict.fromkeys(THREADS, self._threads)
        if self._gpus:
            environment |= {"CUDA_VISIBLE_DEVICES": str(place // self._each % self._gpus)}
        return subprocess.Popen(
            [sys.executable, "-c", "from polyarch.runs.workers import main; main()", str(self._folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            start_new_session=True,  # Ctrl-C is for this process, which ends them then
        )

    @override
    def endings(self) -> list[Ending]:
        found = []
        for place, process in enumerate(self._places):
            if process is None or process.poll() is None or process.returncode == 0:
                continue
            self._places[place] = None
            said = process.communicate()[0].decode(errors="replace").strip()
            if process.returncode == UNABLE:
                found.append(Ending(said, unable=True))
                continue
            held = ", ".join(holders(self._folder / CLAIMS, process.pid))
            how = f"was killed by {_signal(-process.returncode)}" if process.returncode < 0 else "failed"
            at = f" while it made {held}, which another goes on with from its checkpoint" if held else ""
            found.append(Ending("" if process.returncode == LOST else f"a worker {how}{at}"))
        return found

    @override
    def end(self) -> None:
        for process in filter(None, self._places):
            process.kill()
            with suppress(OSError):
                process.communicate()


def gpus_of(grid: Grid, workers: Workers) -> float:
    """GPUs of a run, or the share of one."""
    on_cuda = grid.config_of(grid.entrants[0]).device.startswith("cuda")
    return float(on_cuda) if workers.gpus is None else workers.gpus


def fitting_workers(grid: Grid, gpus: int | None = None) -> int:
    """How many there are processors, memory and, where these are shared out, GPUs for."""
    fits = max(1, joblib.cpu_count() // grid.threads)
    if (available := available_memory()) is not None:
        fits = min(fits, max(1, available // max(1, grid.memory)))
    return fits if gpus is None else min(fits, gpus)


def available_memory() -> int | None:
    """Bytes that new processes may take without others having to give any back; None where that is not known."""
    with suppress(OSError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return None


def _signal(number: int) -> str:
    with suppress(ValueError):
        return signal.Signals(number).name
    return f"signal {number}"
