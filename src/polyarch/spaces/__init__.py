"""What may be chosen."""

from polyarch.spaces.base import All, Hard, PerExample, Soft, Space, Supernet, View
from polyarch.spaces.choice import Choice
from polyarch.spaces.cost import Cost, expected_cost
from polyarch.spaces.depth import ResidualDepth
from polyarch.spaces.module import ModuleSpace
from polyarch.spaces.nasbench201 import NasBench201

__all__ = [
    "All",
    "Choice",
    "Cost",
    "Hard",
    "ModuleSpace",
    "NasBench201",
    "PerExample",
    "ResidualDepth",
    "Soft",
    "Space",
    "Supernet",
    "View",
    "expected_cost",
]
