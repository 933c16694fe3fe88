"""What may be chosen."""

from polyarch.spaces.base import All, Hard, PerExample, Soft, Space, Supernet, View
from polyarch.spaces.cost import Cost
from polyarch.spaces.depth import ResidualDepth

__all__ = ["All", "Cost", "Hard", "PerExample", "ResidualDepth", "Soft", "Space", "Supernet", "View"]
