"""A NAS-Bench-201 search network in few kernels: its cells run node by node, not operation by operation.

Batch norm in cells of a search has neither scale nor shift, so that a node is one weighted sum:

    x_t = sum_{s < t} w_skip x_s + w_pool pool(x_s) + sum_k w_k (z_stk - mean_stk) / sqrt(var_stk + epsilon)

where z_stk are convolutions of the positive part of x_s, for every node t that s leads to and both kernel sizes k. All of a
node s are one convolution Z_s, the 1x1 kernels standing in the middle of 3x3 ones. So a node takes one convolution, one
pass for its statistics and one for the sum, and the same backwards. A bias before batch norm does nothing but to shift the
running mean, and is added there.

With g_t = dL/dx_t, a gradient of the mixture is a sum over examples and pixels, and batch norm's own is made from the same
sums, n being the number of examples and pixels:

    dL/dw_k = sum g_t z^_stk,    dL/dw_skip = sum g_t x_s,    dL/dw_pool = sum g_t pool(x_s)
    dL/dz_stk = w_k (g_t - sum g_t / n - z^_stk sum g_t z^_stk / n) / sqrt(var_stk + epsilon)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from types import ModuleType
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from typing_extensions import override

from polyarch.spaces import nasbench201_plain
from polyarch.spaces.branches import Merged, repeat_of
from polyarch.spaces.choice import Choice, Selection
from polyarch.spaces.layers import BatchNorm, Conv2d
from polyarch.spaces.nasbench201 import EDGES, NODES, OPERATIONS, Cell, Network, edge_name
from polyarch.spaces.nasbench201_plain import CONVOLUTIONS, POOL, SKIP, edge

SOURCES = range(NODES - 1)


@final
class MergedNasBench201(Merged):
    """The network of a supernet, cell by cell."""

    def __init__(self, network: Network, repeats: int) -> None:
        """Looks up the layers; the network stays as it is."""
        self.network, self.repeats = network, repeats
        self._cells = {
            k: _MergedCell(block, repeats) for k, block in enumerate(network.blocks) if isinstance(block, Cell)
        }
        self._others = [("stem", network.stem), ("last", network.last), ("head", network.head)]
        self._others += [(f"blocks.{k}", block) for k, block in enumerate(network.blocks) if k not in self._cells]

    @override
    def prepare(self, selections: Mapping[str, Selection], like: Tensor) -> tuple[Any, ...]:
        weights = [selections[edge_name(*pair)] for pair in EDGES]
        mixture = torch.stack([row[..., 0] for row in weights if isinstance(row, Tensor)])  # [edges, options, repeats]
        convolutions = {k: cell.packed(like) for k, cell in self._cells.items()}
        mixture = mixture.permute(2, 0, 1).to(torch.promote_types(like.dtype, torch.float32))
        return mixture, convolutions, {path: repeat_of(m) for path, m in self._others}

    @override
    def run(self, prepared: tuple[Any, ...], x: Tensor, repeat: int) -> Tensor:
        mixture, convolutions, others = prepared
        own = mixture[repeat]
        x = others["stem"](x, repeat)
        positive, seen = None, []
        for k in range(len(self.network.blocks)):
            if k in self._cells:
                x, positive, mean, variance = _MixedCell.apply(
                    x, x.relu() if positive is None else positive, own, *convolutions[k][repeat]
                )
                seen.append((self._cells[k], mean, variance))
            else:
                x, positive = others[f"blocks.{k}"](x, repeat), None
        if self.network.training:
            _move_statistics(seen, repeat)
        answer: Tensor = others["head"](others["last"](x, repeat).mean((2, 3)), repeat)
        return answer


@final
class _MergedCell:
    """The layers of a cell's convolutions, in the order of edges and kernel sizes."""

    def __init__(self, cell: Cell, repeats: int) -> None:
        options = [
            choice.options[option]
            for pair in EDGES
            for choice in [cell.edges[edge_name(*pair)]]
            if isinstance(choice, Choice)
            for option in CONVOLUTIONS
        ]
        self.convolutions: list[Conv2d] = [option.conv for option in options]  # type: ignore[union-attr, misc]
        self.norms: list[BatchNorm] = [option.norm for option in options]  # type: ignore[union-attr, misc]
        self.repeats, self.channels = repeats, self.convolutions[0].weight.shape[1]

    def packed(self, like: Tensor) -> list[tuple[Tensor, ...]]:
        """For every repeat the weights of all nodes, [outputs, channels, 3, 3], with the type of `like`."""
        weights = [conv.weight for conv in self.convolutions]
        found = _Packed.apply(_packing(self.channels, self.repeats, like.device), like.dtype, *weights)
        return [found[repeat * len(SOURCES) : (repeat + 1) * len(SOURCES)] for repeat in range(self.repeats)]

    @cached_property
    def order(self) -> list[int]:
        """For the blocks of Z_0, Z_1 and Z_2 one after another, which of the convolutions each is."""
        return [
            2 * edge(target, source) + k for source in SOURCES for target in range(source + 1, NODES) for k in range(2)
        ]


@torch.no_grad()
def _move_statistics(seen: Sequence[tuple[_MergedCell, Tensor, Tensor]], repeat: int) -> None:
    """Moves the running statistics of all cells towards those of the batch."""
    means, variances, biases, kept = [], [], [], ([], [])
    for cell, mean, variance in seen:
        means += mean.split(cell.channels)
        variances += variance.split(cell.channels)
        for k in cell.order:
            biases.append(cell.convolutions[k].bias[repeat])  # type: ignore[index]
            kept[0].append(cell.norms[k].running_mean[repeat])
            kept[1].append(cell.norms[k].running_var[repeat])
    torch._foreach_lerp_(kept[0], torch._foreach_add(means, biases), BatchNorm.momentum)
    torch._foreach_lerp_(kept[1], variances, BatchNorm.momentum)


# ---------------------------------------------------------------------------------------------------------------------
# Weights of many convolutions as those of one per node.


@final
class _Packing:
    """Where the weights of a cell's convolutions stand in those of its nodes, for all repeats.

    One after another, the weights of convolutions are `flat`, with a zero behind them; nodes have theirs in the order
    [repeats, outputs, height, width, inputs].
    """

    def __init__(self, channels: int, repeats: int, device: torch.device) -> None:
        c, places, start = channels, {}, 0
        for pair in EDGES:
            for k, size in enumerate((1, 3)):
                count = repeats * c * c * size * size
                own = torch.arange(start, start + count).view(repeats, c, c, size, size)
                places[(*pair, k)], start = own, start + count
        self.shapes, parts = [], []
        for source in SOURCES:
            blocks = []
            for target in range(source + 1, NODES):
                small = torch.full((repeats, c, c, 3, 3), start)  # the zero
                small[..., 1, 1] = places[target, source, 0][..., 0, 0]
                blocks += [small, places[target, source, 1]]
            own = torch.cat(blocks, 1).permute(0, 1, 3, 4, 2)
            self.shapes.append(own.shape)
            parts.append(own.reshape(-1))
        index = torch.cat(parts)
        back = torch.empty(start + 1, dtype=torch.int64).index_copy(0, index, torch.arange(len(index)))
        self.index, self.back = index.to(device), back[:-1].to(device)

    def nodes(self, merged: Tensor) -> tuple[Tensor, ...]:
        """The weights of every repeat and node, [outputs, inputs, 3, 3], of all one after another."""
        parts = merged.split([shape.numel() for shape in self.shapes])
        each = [part.view(shape).permute(0, 1, 4, 2, 3) for part, shape in zip(parts, self.shapes, strict=True)]
        return tuple(node[repeat] for repeat in range(len(each[0])) for node in each)


@cache
def _packing(channels: int, repeats: int, device: torch.device) -> _Packing:
    # Once for all cells as wide: a step that is being captured can make no tensors out of what the host knows.
    return _Packing(channels, repeats, device)


class _Packed(torch.autograd.Function):
    """Weights of nodes from those of convolutions."""

    @staticmethod
    def forward(ctx: Any, packing: _Packing, dtype: torch.dtype, *weights: Tensor) -> tuple[Tensor, ...]:
        """See `_MergedCell.packed`."""
        ctx.packing, ctx.shapes, ctx.dtype = packing, [weight.shape for weight in weights], weights[0].dtype
        flat = torch.cat([*(weight.reshape(-1) for weight in weights), weights[0].new_zeros(1)]).to(dtype)
        return packing.nodes(flat.index_select(0, packing.index))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Every weight's own place; what stands around 1x1 kernels is left out."""
        sources = len(SOURCES)
        parts = [
            gradients[repeat * sources + source].permute(0, 2, 3, 1).reshape(-1)
            for source in SOURCES
            for repeat in range(len(gradients) // sources)
        ]
        flat = torch.cat(parts).index_select(0, ctx.packing.back).to(ctx.dtype)
        found = flat.split([shape.numel() for shape in ctx.shapes])
        return None, None, *(part.view(shape) for part, shape in zip(found, ctx.shapes, strict=True))


# ---------------------------------------------------------------------------------------------------------------------
# A cell, with its gradient by hand.


class _MixedCell(torch.autograd.Function):
    """A cell as a function of its input, of the mixture's weights [edges, options] and of its nodes' weights."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, positive: Tensor, mixture: Tensor, *weights: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The last node, its positive part, and the mean and variance of all that was convolved."""
        operations = operations_of(x)
        x, positive = (part.contiguous(memory_format=torch.channels_last) for part in (x, positive))
        values, positives = [x], [positive]
        convolved, means, factors, variances = [], [], [], []
        for weight in weights:
            convolved.append(torch.conv2d(positives[-1], weight, padding=1))
            mean, factor, variance = operations.statistics(convolved[-1])
            means.append(mean)
            factors.append(factor)
            variances.append(variance)
            value, positive = operations.node(values, convolved, means, factors, mixture)
            values.append(value)
            positives.append(positive)
        ctx.save_for_backward(mixture, *weights, *values[:-1], *positives[:-1], *convolved, *means, *factors)
        # In a pass that asks for the gradient of the mixture alone, none of the weights is made.
        ctx.weights_from = next((weight.grad_fn for weight in weights if weight.requires_grad), None)
        found = values[-1], positives[-1], torch.cat(means), torch.cat(variances)
        ctx.mark_non_differentiable(*found[1:])
        ctx.set_materialize_grads(False)
        return found

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, *_: None) -> tuple[Tensor | None, ...]:
        """From the last node to the first."""
        mixture, *saved = ctx.saved_tensors
        count = len(SOURCES)
        weights, values, positives, convolved, means, factors = (
            saved[k * count : (k + 1) * count] for k in range(len(saved) // count)
        )
        operations = operations_of(gradient)
        of_mixture = ctx.needs_input_grad[2]
        of_weights = ctx.weights_from is not None and torch._C._will_engine_execute_node(ctx.weights_from)
        gradient = gradient.contiguous(memory_format=torch.channels_last)
        gradients, summed, found = {NODES - 1: gradient}, {}, [None] * count
        for source in reversed(SOURCES):
            target = source + 1
            before = (part[:target] for part in (values, convolved, means, factors))
            summed[target] = operations.sums(gradients[target], *before, of_mixture)
            by_convolved = operations.convolved_gradient(
                source, convolved[source], means[source], factors[source], gradients, summed, mixture
            )
            by_convolutions, found[source], _ = torch.ops.aten.convolution_backward(
                by_convolved, positives[source], weights[source], None,
                [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True, of_weights, False],
            )  # fmt: skip
            gradients[source] = operations.value_gradient(source, values[source], by_convolutions, gradients, mixture)
        by_mixture = _mixture_gradient(summed) if of_mixture else None
        return gradients[0], None, by_mixture, *found


def _mixture_gradient(summed: Mapping[int, Tensor]) -> Tensor:
    """The gradient of weights [edges, options] from the sums of every node."""
    rows = torch.cat([summed[target] for target in range(1, NODES)]).sum(1)
    return nn.functional.pad(rows, (0, 1))[_rows_of_options(rows.device)]


@cache
def _rows_of_options(device: torch.device) -> Tensor:
    """Of every edge and option, which of the sums of all nodes it is; the last, behind them, where it is nothing."""
    first, found = 0, torch.full((len(EDGES), len(OPERATIONS)), -1)
    for target in range(1, NODES):
        for source in range(target):
            own = found[edge(target, source)]
            for k, option in enumerate(CONVOLUTIONS):
                own[option] = first + 1 + 2 * source + k
            own[SKIP] = first + 1 + 2 * target + 2 * source
            own[POOL] = own[SKIP] + 1
        first += 1 + 4 * target
    return torch.where(found < 0, first, found).to(device)


def operations_of(like: Tensor) -> ModuleType:
    """Those of a device, alike but for their speed; double precision is for checking, and has no kernels."""
    if not like.is_cuda or like.dtype == torch.float64:
        return nasbench201_plain
    from polyarch.spaces import nasbench201_triton

    return nasbench201_triton
