"""Workers on a Ray cluster: the same ones, started where there is room for what a run asks for.

Ray is told how many processors and GPUs a worker needs, and nothing else: claims, checkpoints and results are files, so
the comparison's folder must be one that all machines share. A node that leaves takes its workers with it, and those
that are left take over from their checkpoints.
"""

from __future__ import annotations

import importlib
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, final

from typing_extensions import override

from polyarch.errors import PolyarchError
from polyarch.runs.crews import Crew, Ending, gpus_of
from polyarch.runs.grid import Grid
from polyarch.runs.options import Workers


def work_there(folder: str, paths: list[str]) -> int:
    """What Ray runs on a node: a worker, which finds modules where this process does."""
    sys.path[:] = [*sys.path, *(path for path in paths if path not in sys.path)]
    from polyarch.runs.workers import work

    return work(Path(folder))


@final
class OnRay(Crew):
    """Workers on a Ray cluster, as many at once as it has room for."""

    def __init__(self, folder: Path, grid: Grid, workers: Workers, left: int) -> None:
        """Joins the cluster, or starts one; starts no worker yet."""
        try:
            self._ray: Any = importlib.import_module("ray")
        except ImportError:
            raise PolyarchError("there is no Ray here; install it with `pip install 'polyarch[ray]'`") from None
        self._own = not self._ray.is_initialized()
        if self._own:
            where = {"include_dashboard": False} if workers.ray == "local" else {"address": workers.ray}
            try:
                self._ray.init(**where, log_to_driver=False, logging_level="error")
            except (ConnectionError, ValueError, RuntimeError) as error:
                why = " ".join(str(error).split())
                raise PolyarchError(f"cannot join the Ray cluster at {workers.ray}: {why}") from None
        self._folder, self._count = folder.resolve(), min(left, workers.count or left)
        remote = self._ray.remote(num_cpus=grid.threads, num_gpus=gpus_of(grid, workers), max_retries=0, max_calls=1)
        self._task = remote(work_there)
        self._running: list[Any] = []
        wanted = {"CPU": grid.threads, "GPU": gpus_of(grid, workers)}
        rooms = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        self._fits = any(all(room.get(kind, 0) >= count for kind, count in wanted.items()) for room in rooms)

    @property
    @override
    def words(self) -> str:
        waits = "" if self._fits else ", which wait, since no node has the processors and GPUs that a run asks for"
        return f"up to {self._count} worker{'s' if self._count > 1 else ''} on Ray{waits}"

    @override
    def fill(self) -> None:
        while len(self._running) < self._count:
            self._running.append(self._task.remote(str(self._folder), [*filter(None, sys.path)]))

    @override
    def endings(self) -> list[Ending]:
        if not self._running:
            return []
        ended, self._running = self._ray.wait(self._running, num_returns=len(self._running), timeout=0)
        found = []
        for task in ended:
            try:
                self._ray.get(task)
                self._count -= 1  # all was done
            except self._ray.exceptions.RayTaskError as error:
                cause = error.cause
                if isinstance(cause, PolyarchError):
                    found.append(Ending(str(cause), unable=True))
                else:
                    found.append(Ending(f"a worker failed: {' '.join(str(cause).split())}"))
            except self._ray.exceptions.RayError as error:
                found.append(Ending(f"a worker was lost ({type(error).__name__}), and others take over what it made"))
        return found

    @override
    def end(self) -> None:
        for task in self._running:
            with suppress(Exception):
                self._ray.cancel(task, force=True)
        if self._own:
            self._ray.shutdown()
