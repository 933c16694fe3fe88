"""Supernets that need no training to say different things."""

import torch

from polyarch.data.task import TaskShape
from polyarch.spaces import Sparse
from polyarch.spaces.layers import FoldedLinear
from polyarch.testing.spaces import make_supernet

SHAPE = TaskShape((1, 6, 6), 3)


def examples(count=50):
    chance = torch.Generator().manual_seed(0)
    x = torch.randn(count, *SHAPE.input, generator=chance, dtype=torch.float64)
    return x, torch.randint(3, (count,), generator=chance)


@torch.no_grad()
def lively(space):
    """Running statistics of some architectures, and a head that prefers no class, so that all are named."""
    supernet, (x, _) = make_supernet(space, SHAPE, (0,)).train(), examples(64)
    views = [Sparse(tuple(row)) for row in space.random().sample(30, torch.Generator().manual_seed(1)).tolist()]
    for view in views:
        supernet(x[None], view)
    outputs = supernet.eval()(x[None], views[0])
    [head] = [module for module in supernet.modules() if isinstance(module, FoldedLinear)]
    head.bias -= outputs.mean(1)
    head.weight *= 20
    head.bias *= 20
    return supernet
