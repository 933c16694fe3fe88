"""polyarch: learn a distribution over neural architectures in one training run, then use it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from polyarch.version import __version__

if TYPE_CHECKING:
    from polyarch import (
        blackbox,
        callbacks,
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
    from polyarch.callbacks import Callback
    from polyarch.errors import PolyarchError
    from polyarch.runs.options import Compute, Start
    from polyarch.runs.plain import fit_plain_models
    from polyarch.runs.run import Run, open_best, open_run
    from polyarch.runs.search import resume, search
    from polyarch.runs.table_truth import TableTruth
    from polyarch.runs.trained import train_members, train_selected
    from polyarch.spaces.choice import Choice
    from polyarch.spaces.module import ModuleSpace
    from polyarch.spaces.own_depth import Depth

__all__ = [
    "Architecture",
    "Callback",
    "Choice",
    "Compute",
    "Decision",
    "Depth",
    "ModuleSpace",
    "PolyarchError",
    "Run",
    "Start",
    "TableTruth",
    "__version__",
    "blackbox",
    "callbacks",
    "data",
    "diagnostics",
    "distributions",
    "fit_plain_models",
    "methods",
    "open_best",
    "open_run",
    "ranking",
    "resume",
    "scores",
    "search",
    "spaces",
    "tables",
    "train_members",
    "train_selected",
    "uncertainty",
]

_HOMES = {
    "Architecture": "polyarch.architecture",
    "Callback": "polyarch.callbacks",
    "Choice": "polyarch.spaces.choice",
    "Compute": "polyarch.runs.options",
    "Decision": "polyarch.architecture",
    "Depth": "polyarch.spaces.own_depth",
    "ModuleSpace": "polyarch.spaces.module",
    "PolyarchError": "polyarch.errors",
    "Run": "polyarch.runs.run",
    "Start": "polyarch.runs.options",
    "TableTruth": "polyarch.runs.table_truth",
    "fit_plain_models": "polyarch.runs.plain",
    "open_best": "polyarch.runs.run",
    "open_run": "polyarch.runs.run",
    "resume": "polyarch.runs.search",
    "search": "polyarch.runs.search",
    "train_members": "polyarch.runs.trained",
    "train_selected": "polyarch.runs.trained",
}


def __getattr__(name: str) -> Any:
    # Loaded on first use: importing torch takes seconds, and `polyarch --help` needs none of it.
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name in __all__:
        return import_module(f"polyarch.{name}")
    raise AttributeError(f"module 'polyarch' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
