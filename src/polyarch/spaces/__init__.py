"""What may be chosen."""

from typing import Any

from polyarch import catalogue
from polyarch.spaces.base import Space, Supernet
from polyarch.spaces.choice import Choice
from polyarch.spaces.cost import Cost, expected_cost
from polyarch.spaces.darts import Darts
from polyarch.spaces.depth import ResidualDepth
from polyarch.spaces.fourier import Fourier
from polyarch.spaces.module import ModuleSpace
from polyarch.spaces.nasbench1shot1 import NasBench1Shot1
from polyarch.spaces.nasbench201 import NasBench201
from polyarch.spaces.own_depth import Depth
from polyarch.spaces.sub_spaces import Listed, Restricted
from polyarch.spaces.views import All, Dense, PerExample, Soft, Sparse, SparsePerRepeat, View
from polyarch.spaces.wiring import Wiring

__all__ = [
    "All",
    "Choice",
    "Cost",
    "Darts",
    "Dense",
    "Depth",
    "Fourier",
    "Listed",
    "ModuleSpace",
    "NasBench1Shot1",
    "NasBench201",
    "PerExample",
    "ResidualDepth",
    "Restricted",
    "Soft",
    "Space",
    "Sparse",
    "SparsePerRepeat",
    "Supernet",
    "View",
    "Wiring",
    "expected_cost",
    "named",
]


def named(name: str, **settings: Any) -> Space:
    """The space of a name (see `polyarch list`, or `package.module:Class`), with these settings beside its own."""
    space: Space = catalogue.named("space", name, Space, settings)
    return space
