"""A NAS-Bench-201 cell with one operation on every edge, as data; on a CUDA device it costs what these do."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from polyarch.spaces import nasbench201_chosen_plain


def chosen_cell(x: Tensor, weights: Tensor, operations: Tensor) -> tuple[Tensor, Tensor]:
    """See `nasbench201_chosen_plain.cell`. Double precision is for checking, and has no kernels."""
    if not x.is_cuda or x.dtype == torch.float64:
        return nasbench201_chosen_plain.cell(x, weights, operations)
    value, statistics = ChosenCell.apply(x, weights, operations)
    return value, statistics


class ChosenCell(torch.autograd.Function):
    """The same by kernels."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weights: Tensor, operations: Tensor) -> tuple[Tensor, Tensor]:
        """The last node, and the statistics of every edge."""
        from polyarch.spaces import nasbench201_chosen_triton as kernels

        values, convolved, statistics = kernels.cell(
            x.contiguous(memory_format=torch.channels_last), weights, operations
        )
        ctx.save_for_backward(x, weights, operations, convolved, statistics, *values[:-1])
        # A pass that asks for no gradient of weights makes none.
        ctx.weights_from = weights.grad_fn if weights.requires_grad else None
        ctx.mark_non_differentiable(statistics)
        ctx.set_materialize_grads(False)
        return values[-1], statistics

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: None) -> tuple[Tensor | None, ...]:
        """From the last node to the first."""
        from polyarch.spaces import nasbench201_chosen_triton as kernels

        x, weights, operations, convolved, statistics, *values = ctx.saved_tensors
        if torch.is_grad_enabled():  # this gradient is to be differentiated itself
            return *_differentiable_gradient(x, weights, operations, gradient), None
        of_weights = ctx.needs_input_grad[1]
        if ctx.weights_from is not None:
            of_weights = torch._C._will_engine_execute_node(ctx.weights_from)
        gradient = gradient.contiguous(memory_format=torch.channels_last)
        saved = values, convolved, statistics, weights, operations
        return *kernels.cell_gradient(gradient, *saved, of_weights), None


def _differentiable_gradient(
    x: Tensor, weights: Tensor, operations: Tensor, gradient: Tensor
) -> tuple[Tensor | None, Tensor | None]:
    """What `ChosenCell.backward` gives, by torch's own gradients."""
    # Others of their own, so that what x has from the weights of earlier cells is not followed.
    x, weights = x.view_as(x), weights.view_as(weights)
    value, _ = nasbench201_chosen_plain.cell(x, weights, operations)
    inputs = [part for part in (x, weights) if part.requires_grad]
    slopes = iter(torch.autograd.grad(value, inputs, gradient, create_graph=True, materialize_grads=True))
    by_x, by_weights = (next(slopes) if part.requires_grad else None for part in (x, weights))
    return by_x, by_weights
