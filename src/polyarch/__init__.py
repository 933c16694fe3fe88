"""polyarch: learn a distribution over neural architectures in one training run, then use it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from polyarch.version import __version__

if TYPE_CHECKING:
    from polyarch import (
        blackbox,
        data,
        diagnostics,
        distributions,
        methods,
        ranking,
        scores,
        spaces,
        tables,
        uncertainty,
    )
    from polyarch.architecture import Architecture, Decision
    from polyarch.errors import PolyarchError
    from polyarch.runs.run import Run, open_best, open_run
    from polyarch.runs.search import search
    from polyarch.spaces.choice import Choice
    from polyarch.spaces.module import ModuleSpace

__all__ = [
    "Architecture",
    "Choice",
    "Decision",
    "ModuleSpace",
    "PolyarchError",
    "Run",
    "__version__",
    "blackbox",
    "data",
    "diagnostics",
    "distributions",
    "methods",
    "open_best",
    "open_run",
    "ranking",
    "scores",
    "search",
    "spaces",
    "tables",
    "uncertainty",
]

_HOMES = {
    "Architecture": "polyarch.architecture",
    "Choice": "polyarch.spaces.choice",
    "Decision": "polyarch.architecture",
    "ModuleSpace": "polyarch.spaces.module",
    "PolyarchError": "polyarch.errors",
    "Run": "polyarch.runs.run",
    "open_best": "polyarch.runs.run",
    "open_run": "polyarch.runs.run",
    "search": "polyarch.runs.search",
}


def __getattr__(name: str) -> Any:
    # Loaded on first use: importing torch takes seconds, and `polyarch --help` needs none of it.
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name in __all__:
        return import_module(f"polyarch.{name}")
    raise AttributeError(f"module 'polyarch' has no attribute {name!r}")
