"""polyarch: learn a distribution over neural architectures in one training run, then use it.

    import polyarch as pa

    task = pa.data.load("digits")
    run = pa.search("depth", task, "variational-depth", out="runs/digits")
    run.predict(task.test.x).probs

Searching
    search            learns a distribution over the architectures of a space, and the weights that go with it
    resume            goes on with a search that was interrupted
    Select            how one architecture is taken from belief, and what it may cost
    Start             what a search starts from: a prior, a price on cost, belief or weights of other runs
    Compute           where a search computes, and how precisely
    compare           compares methods in spaces, over seeds and at equal budget, by many workers
    Workers           who makes the runs of a comparison
    Callback          is told how a search goes; may add to what it says, or end it
    TableTruth        watches a search by a benchmark's table
    train_selected    trains the selected network alone
    train_members     trains networks that belief draws, each alone, as an ensemble
    fit_plain_models  fits linear models, boosted trees and small networks to the same data

What was found
    Run               a finished search: belief, the selected architecture, networks with trained weights
    open_run          opens a run's folder
    open_best         opens the best of a run's repeats
    Architecture      the option chosen for each decision of a space
    Decision          what is chosen: a name, and the names of its options

Choices in a network of your own
    Choice            several modules, of which one runs
    Depth             blocks, of which as many run as are chosen
    ModuleSpace       makes a space of a network with these in it

Targets of your own
    Likelihood        what outputs say of a target, to subclass; for labels and counts there are two

Parts, each a package with a docstring of its own
    data              a name, a file, arrays, a data frame or a torch Dataset becomes a Task
    spaces            what may be chosen
    methods           how belief is learnt
    distributions     belief over architectures
    callbacks         what may look on while a search runs
    uncertainty       how sure predictions are, and whether that can be trusted
    scores            one number for each candidate architecture
    ranking           how far scores and belief can be trusted
    blackbox          searches without belief: random, evolution, local
    tables            ground truth of benchmarks
    diagnostics       what shared weights do
    sklearn           searches as scikit-learn's estimators

PolyarchError is what all errors are that say what to do. Numpy arrays are taken wherever tensors are. In `docs/` of the
repository are pages on all of this.
"""

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
        sklearn,
        spaces,
        tables,
        uncertainty,
    )
    from polyarch.architecture import Architecture, Decision
    from polyarch.callbacks import Callback
    from polyarch.data.likelihood import Likelihood
    from polyarch.errors import PolyarchError
    from polyarch.runs.compare import compare
    from polyarch.runs.options import Compute, Select, Start, Workers
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
    "Likelihood",
    "ModuleSpace",
    "PolyarchError",
    "Run",
    "Select",
    "Start",
    "TableTruth",
    "Workers",
    "__version__",
    "blackbox",
    "callbacks",
    "compare",
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
    "sklearn",
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
    "Likelihood": "polyarch.data.likelihood",
    "ModuleSpace": "polyarch.spaces.module",
    "PolyarchError": "polyarch.errors",
    "Run": "polyarch.runs.run",
    "Select": "polyarch.runs.options",
    "Start": "polyarch.runs.options",
    "TableTruth": "polyarch.runs.table_truth",
    "Workers": "polyarch.runs.options",
    "compare": "polyarch.runs.compare",
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
