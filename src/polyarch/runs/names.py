"""What a search is told by name: spaces, methods, data and runs, which may be given as objects as well."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import Any

from torch.utils.data import Dataset

from polyarch import catalogue
from polyarch.core import Method
from polyarch.data.loading import load, source_of
from polyarch.data.task import Task
from polyarch.errors import PolyarchError
from polyarch.runs.defaults import prepared, suited
from polyarch.runs.run import Run, open_run
from polyarch.spaces.base import Space

logger = logging.getLogger("polyarch")

Data = Task | str | os.PathLike[str] | Sequence[Any] | Dataset[Any]
"""A task, or what `polyarch.data.load` makes one of: a name, a path, arrays (x, y), a torch Dataset."""


def resolve(space: Space | str, data: Data, method: Method | str) -> tuple[Space, Task, Method]:
    """What to search, on what and how, each given as itself or by name.

    What a name leaves open goes by the data, unless it is that of a published search.
    """
    left = left_open(space, method)
    space, method = as_space(space), as_method(method)
    if isinstance(data, Task):
        task, space, method, chosen = suited(data, space, method, left)
    else:
        task, space, method, chosen = prepared(source_of(data), space, method, {**left, "data": ()} if left else {})
    if chosen:
        logger.info("%s", chosen)
    return space, task, method


def left_open(space: Space | str, method: Method | str) -> dict[str, tuple[str, ...]]:
    """By `space` and `method`, whichever is a name, that nothing of it was told."""
    named = {kind: given for kind, given in (("space", space), ("method", method)) if isinstance(given, str)}
    published = "method" in named and catalogue.find("method", named["method"])[1]
    return {} if published else dict.fromkeys(named, ())


def as_space(space: Space | str) -> Space:
    """A space, or the one of a name: of the catalogue, or `package.module:Class`."""
    found: Space = _as("space", space, Space)
    return found


def as_method(method: Method | str) -> Method:
    """A method, or the one of a name: of the catalogue, or `package.module:Class`."""
    found: Method = _as("method", method, Method)
    return found


def as_task(data: Data) -> Task:
    """A task, or what is loaded with default settings; for others, load it first."""
    return data if isinstance(data, Task) else load(data)


def as_run(run: Run | str | os.PathLike[str]) -> Run:
    """A run, or the finished one of a folder."""
    return run if isinstance(run, Run) else open_run(os.fspath(run))


def _as(kind: str, given: Any, wanted: type[Any]) -> Any:
    if isinstance(given, str):
        return catalogue.named(kind, given, wanted)
    if isinstance(given, type):
        raise PolyarchError(f"the {kind} is a class, {given.__name__}; make one of it: {given.__name__}()")
    if not isinstance(given, wanted):
        raise PolyarchError(f"the {kind} is of type {type(given).__name__}; give a {wanted.__name__}, or a name")
    return given
