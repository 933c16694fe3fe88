"""What the rows of a stage read: ReLU of a weighted sum of the values so far, every example by its own weights.

Row r reads values 0 to r, so a stage alternates: a value comes in, a row goes out, a node turns it into the next value.

    z_r = sum_{k <= r} w_{r,k} v_k,    row_r = ReLU(z_r)

Written out in torch, this moves much memory: for every pair (r, k) a product, and in the backward pass another, and a
sum of gradients. Here each row is one pass over memory, and so is each value's gradient, for which all rows that read
it have come by then, since the chain runs through all of them:

    dL/dv_k = sum_{r >= k} w_{r,k} dL/dz_r

On a CUDA device both are kernels that do not load what has weight 0, so that links that are off cost nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any, final

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from polyarch.spaces import reading_plain
from polyarch.spaces.choice import scaled

Link = tuple[int, float | Tensor]
"""A value that a row reads, and its weight: a number, the same for all of the row, or [repeats, 1]."""


@final
class KnownRows:
    """Rows of a wiring that the host knows, the same for every example: only what they read is added."""

    def __init__(self, rows: Sequence[Sequence[Link]]) -> None:
        """Takes for every row the values that it reads and their weights."""
        self.rows = rows
        self.values: list[Tensor] = []

    def __call__(self, value: Tensor) -> Tensor:
        """The next row, now that the value before it is there: [batch, repeats * channels, h, w]."""
        self.values.append(value)
        row = self.rows[len(self.values) - 1]
        return torch.relu(_added([self.values[k] for k, _ in row], [weight for _, weight in row]))


def _added(values: Sequence[Tensor], weights: Sequence[float | Tensor]) -> Tensor:
    """The sum of values by weights; a weight that all share is applied once."""
    first = weights[0]
    if isinstance(first, Tensor):
        values = [scaled(value, weight) for value, weight in zip(values, weights, strict=True)]  # type: ignore[arg-type]
    found = values[0]
    for value in values[1:]:
        found = found + value
    return found if isinstance(first, Tensor) or first == 1 else found * first


@final
class DrawnRows:
    """Rows of wirings that are data, each example's own."""

    def __init__(self, weights: Tensor) -> None:
        """Takes [batch or 1, repeats, rows, values], lower triangular."""
        self.weights = weights
        self.values: list[Tensor] = []
        self.gradients: list[Tensor | None] = [None] * weights.shape[-1]

    def __call__(self, value: Tensor) -> Tensor:
        """The next row, now that the value before it is there: [batch, repeats * channels, h, w]."""
        if not self.values:
            self.weights = self.weights.expand(len(value), -1, -1, -1).contiguous()
        row: Tensor = _Row.apply(value, self.weights[:, :, len(self.values)], self)
        if len(self.values) == self.weights.shape[-1] and not self.weights.requires_grad:
            self.values.clear()  # the backward pass needs them for the gradients of weights alone
        return row


class _Row(torch.autograd.Function):
    """A row as a function of the newest value and the row's weights.

    Gradients of older values are not returned from here: those values have rows of their own, which come later in the
    backward pass and collect them from `DrawnRows.gradients`.
    """

    @staticmethod
    def forward(ctx: Any, value: Tensor, weights: Tensor, stage: DrawnRows) -> Tensor:
        """See `DrawnRows`; weights [batch, repeats, values]."""
        ctx.stage, ctx.row = stage, len(stage.values)
        stage.values.append(value.detach())
        out = _operations(value).read_row(stage.values, stage.weights, ctx.row)
        # The value too where it is needed: `stage` has it, but what is saved here is counted as memory of the step.
        ctx.save_for_backward(out, value if ctx.needs_input_grad[1] else None)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, Tensor | None, None]:
        """Of the newest value, from all rows that read it; of the weights, by the values."""
        out, _ = ctx.saved_tensors
        stage, row = ctx.stage, ctx.row
        operations = _operations(out)
        own, gradient = operations.value_gradient(upstream, out, stage.gradients, stage.weights, row)
        stage.gradients[row] = own
        learnt = operations.weight_gradient(own, stage.values, stage.weights, row) if ctx.needs_input_grad[1] else None
        if row == 0:
            stage.gradients = [None] * len(stage.gradients)
        return gradient, learnt, None


def _operations(like: Tensor) -> ModuleType:
    """The three of a device, alike but for their speed; double precision is for checking, and has no kernels."""
    if not like.is_cuda or like.dtype == torch.float64:
        return reading_plain
    from polyarch.spaces import reading_triton

    return reading_triton
