"""The curvature of a loss in a few parameters: how sharp the minimum is that a search has found."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def hessian(loss: Callable[[Tensor], Tensor], at: Tensor) -> Tensor:
    """Second derivatives of losses [repeats], each of its own parameters [repeats, ...]: [repeats, n, n].

    By one Hessian-vector product a parameter, for all repeats at once: repeats do not touch each other.
    """
    point = at.detach().clone().requires_grad_()
    [slope] = torch.autograd.grad(loss(point).sum(), point, create_graph=True)
    columns = []
    for k in range(point[0].numel()):
        direction = torch.zeros_like(slope).flatten(1)
        direction[:, k] = 1
        along = direction.view_as(slope)
        [column] = torch.autograd.grad(slope, point, along, retain_graph=True, materialize_grads=True)
        columns.append(column.flatten(1))
    found = torch.stack(columns, -1)
    return (found + found.transpose(1, 2)) / 2  # equal but for rounding
