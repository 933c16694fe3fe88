"""A NAS-Bench-201 cell with one operation on every edge, in torch for any device and precision; kernels must equal it.

Which operations these are is data: `operations` [edges], numbers of `nasbench201.OPERATIONS`. So a recorded step
can be replayed for any cell. Weights [edges, 10, inputs, outputs] are both kernels of every edge: the nine pixels of
the 3x3 kernel, row by row, and then the one of the 1x1 kernel.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from polyarch.spaces.layers import average_around
from polyarch.spaces.nasbench201 import EDGES, NODES, OPERATIONS
from polyarch.spaces.nasbench201_plain import edge, statistics

SKIP, SMALL, LARGE, POOL = (
    OPERATIONS.index(name) for name in ("skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3")
)


def cell(x: Tensor, weights: Tensor, operations: Tensor) -> tuple[Tensor, Tensor]:
    """The last node, and what batch norm saw on every edge: mean, factor and variance, [3, edges, channels].

    x_t is the sum over earlier nodes s of x_s, pool(x_s) or (z_st - mean) factor, where z_st is convolved from the
    positive part of x_s, and zeros where no convolution is chosen.
    """
    values, seen = [x], x.new_empty(3, len(EDGES), x.shape[1])
    for target in range(1, NODES):
        node = torch.zeros_like(x)
        for source, value in enumerate(values):
            here = edge(target, source)
            z = F.conv2d(value.relu(), _kernel(weights[here], operations[here]), padding=1)
            found = statistics(z)
            seen[:, here] = torch.stack(found).detach()
            mean, factor = (part.view(1, -1, 1, 1) for part in found[:2])
            convolved = (operations[here] == SMALL) | (operations[here] == LARGE)
            node = node + (operations[here] == SKIP) * value + (operations[here] == POOL) * average_around(value)
            node = node + convolved * (z - mean) * factor
        values.append(node)
    return values[-1], seen


def _kernel(weights: Tensor, operation: Tensor) -> Tensor:
    """What is chosen on an edge as a 3x3 kernel, [outputs, inputs, 3, 3]; zeros where that is no convolution."""
    small = F.pad(weights[9:], (0, 0, 0, 0, 4, 4))
    taps = weights[:9] * (operation == LARGE) + small * (operation == SMALL)
    return taps.permute(2, 1, 0).unflatten(-1, (3, 3))
