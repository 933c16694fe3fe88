"""`compare`: methods in spaces on one set of data, over seeds, at one budget, by any number of workers."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from polyarch import catalogue
from polyarch.core import Method
from polyarch.data.loading import source_of
from polyarch.data.source import Source
from polyarch.data.task import Task
from polyarch.errors import PolyarchError
from polyarch.runs import grid as grids
from polyarch.runs.crews import Crew, Processes
from polyarch.runs.defaults import read_suited
from polyarch.runs.examples import COMPARISON
from polyarch.runs.grid import FAILED, RUNS, Entry, Grid, Question, failed
from polyarch.runs.names import Data, as_method, as_space, left_open
from polyarch.runs.options import Compute, Workers
from polyarch.runs.standings import Comparison
from polyarch.settings import plain
from polyarch.spaces.base import Space

LOOKS = 0.5
"""Seconds from one look at runs and workers to the next."""
DEATHS = 3
"""Workers that may die in a row, and no run is finished meanwhile, before that is taken for the rule."""
Tell = Callable[[str], None]


def compare(
    methods: Sequence[Method | str] | Mapping[str, Method | str] = (),
    spaces: Sequence[Space | str] | Mapping[str, Space | str] = ("depth",),
    data: Data = "digits",
    *,
    out: str | Path,
    seeds: Sequence[int] = range(5),
    budget: float | None = None,
    select: str = "auto",
    prior: str | None = None,
    compute: Compute = Compute(),
    workers: Workers = Workers(),
    tell: Tell = lambda text: None,
) -> Comparison:
    """Compares methods in spaces, with every seed, at equal budget and beside networks that nobody searched for.

    Who compares the same in the same folder joins in, also from another machine; what is finished is not made again.

    Args:
        methods: the methods, or their names; under names of your own, a mapping. Without any, the comparison that is in
            `out` is gone on with.
        spaces: what they search, likewise.
        data: the data, as for `search`.
        out: a folder for the comparison.
        seeds: of the runs.
        budget: examples that every run may pass forward and backward, in the search and in training alone what it
            selects; by default what the method takes that asks for least. Every method gets as many epochs as that pays
            for.
        select: how one architecture is taken from belief.
        prior: over architectures; by default each method's own.
        compute: where to compute, and how precisely.
        workers: who makes the runs.
        tell: is told how it goes, in lines.

    Returns:
        The finished comparison.
    """
    folder = Path(out)
    if methods:
        entries = tuple(
            Entry(name, space_name, as_space(space), as_method(method), left_open(space, method))
            for space_name, space in _named("space", spaces).items()
            for name, method in _named("method", methods).items()
        )
        question = Question(entries, tuple(seeds), budget, select, prior, compute, workers.cpus)
        if isinstance(data, Task):
            begin(folder, question, lambda: data, data.fingerprint)
        else:
            source = source_of(data)
            begin(folder, question, lambda: read_suited(source, ())[0], told_of(source))
    return carry_on(folder, workers, tell)


def begin(folder: Path, question: Question, read: Callable[[], Task], data: Any) -> None:
    """Plans a comparison and writes it into its folder, unless it is there; refuses where another one is.

    Args:
        folder: for the comparison.
        question: what is compared.
        read: gives the data; not asked where the comparison is there.
        data: what tells the data from others; None: its fingerprint.
    """
    grids.check_free(folder)
    if (folder / COMPARISON).exists():
        grids.check_same(folder, Grid.read(folder), question.asked(read().fingerprint if data is None else data))
        return
    task = read()
    grids.begin(folder, grids.plan(question, task, question.asked(task.fingerprint if data is None else data)), task)


def told_of(source: Source) -> dict[str, Any] | None:
    """What tells a source from others before it is read; None for data in memory."""
    return {"data": source.text, **source.settings()} if source.text else None


def _named(kind: str, given: Any) -> dict[str, Any]:
    """Methods or spaces by what they are called: by their own names, or by what they have in the catalogue."""
    if isinstance(given, Mapping):
        return dict(given)
    found: dict[str, Any] = {}
    for one in given if isinstance(given, Sequence) and not isinstance(given, str) else [given]:
        name = one if isinstance(one, str) else catalogue.name_of(kind, type(one), plain(one))
        if name in found:
            raise PolyarchError(f"two {kind}s are called {name}; give a mapping with a name for each")
        found[name] = one
    return found


def carry_on(folder: Path, workers: Workers = Workers(), tell: Tell = lambda text: None) -> Comparison:
    """Makes all runs of a comparison that are not finished, those that failed among them, and gives what came out."""
    grid = Grid.read(folder)
    left = [run for run in grid.runs if not grid.finished(folder, run)]
    for run in left:
        (folder / RUNS / run.name / FAILED).unlink(missing_ok=True)
    if left:
        crew = _crew(folder, grid, workers, len(left))
        tell(
            f"{len(grid.runs)} runs of {len(grid.entrants)} methods and baselines, {len(grid.runs) - len(left)} "
            f"finished; a budget of {grid.budget:,.0f} examples each; {crew.words}"
        )
        try:
            _see_through(folder, grid, crew, tell)
        finally:
            crew.end()
    return Comparison(folder)


def _crew(folder: Path, grid: Grid, workers: Workers, left: int) -> Crew:
    if workers.ray is None:
        return Processes(folder, grid, workers, left)
    from polyarch.runs.on_ray import OnRay

    return OnRay(folder, grid, workers, left)


def _see_through(folder: Path, grid: Grid, crew: Crew, tell: Tell) -> None:
    """Replaces workers that die until every run is finished or has failed, and tells of each."""
    left = {run.name: run for run in grid.runs if not grid.finished(folder, run)}
    total, deaths = len(grid.runs), 0
    while left:
        crew.fill()
        time.sleep(LOOKS)
        for name, run in list(left.items()):
            why = failed(folder, run)
            if why or grid.finished(folder, run):
                del left[name]
                deaths = 0
                tell(f"{total - len(left)} of {total}: {name} {f'failed: {why}' if why else 'is finished'}")
        for ending in crew.endings() if left else ():
            if ending.unable:
                raise PolyarchError(f"{ending.why} (of a comparison, give the same command again: it goes on)")
            if ending.why:
                deaths += 1
                tell(ending.why)
        if deaths > DEATHS:
            raise PolyarchError(
                f"{deaths} workers in a row died before a run was finished; see what they said, or, where memory is "
                "short, take fewer by --workers; the same command goes on with what is there"
            )
