"""How belief is learnt: one paper, one file."""

from typing import Any

from polyarch import catalogue
from polyarch.core import Batch, Feed, Info, Method, Problem, Stage, State
from polyarch.methods.balenas import Balenas
from polyarch.methods.darts import Darts
from polyarch.methods.drnas import Drnas
from polyarch.methods.fixed_depth import FixedDepth
from polyarch.methods.gdas import Gdas
from polyarch.methods.one_shot import OneShot
from polyarch.methods.parsec import Parsec
from polyarch.methods.semi_supervised import SemiSupervised
from polyarch.methods.standalone import Standalone
from polyarch.methods.stochastic import StochasticArchitectures
from polyarch.methods.variational_depth import VariationalDepth

__all__ = [
    "Balenas",
    "Batch",
    "Darts",
    "Drnas",
    "Feed",
    "FixedDepth",
    "Gdas",
    "Info",
    "Method",
    "OneShot",
    "Parsec",
    "Problem",
    "SemiSupervised",
    "Stage",
    "Standalone",
    "State",
    "StochasticArchitectures",
    "VariationalDepth",
    "named",
]


def named(name: str, **settings: Any) -> Method:
    """The method of a name (see `polyarch list`, or `package.module:Class`), with these settings beside its own.

    Those of a part are given as a mapping, `named("darts", arch={"lr": 0.01})`.
    """
    method: Method = catalogue.named("method", name, Method, settings)
    return method
