"""What may be chosen."""

from polyarch.spaces.base import All, Hard, PerExample, Soft, Space, Supernet, View
from polyarch.spaces.choice import Choice
from polyarch.spaces.cost import Cost, expected_cost
from polyarch.spaces.darts import Darts
from polyarch.spaces.depth import ResidualDepth
from polyarch.spaces.fourier import Fourier
from polyarch.spaces.module import ModuleSpace
from polyarch.spaces.nasbench1shot1 import NasBench1Shot1
from polyarch.spaces.nasbench201 import NasBench201
from polyarch.spaces.wiring import Wiring

__all__ = [
    "All",
    "Choice",
    "Cost",
    "Darts",
    "Fourier",
    "Hard",
    "ModuleSpace",
    "NasBench1Shot1",
    "NasBench201",
    "PerExample",
    "ResidualDepth",
    "Soft",
    "Space",
    "Supernet",
    "View",
    "Wiring",
    "expected_cost",
]
