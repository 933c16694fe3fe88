"""A NAS-Bench-201 search network in few kernels: its cells run node by node, not operation by operation.

Batch norm in cells of a search has neither scale nor shift, so that a node is one weighted sum:

    x_t = sum_{s < t} w_skip x_s + w_pool pool(x_s) + sum_k w_k (z_stk - mean_stk) / sqrt(var_stk + epsilon)

where z_stk are convolutions of the positive part of x_s, for every node t that s leads to and both kernel sizes k. All
of a node s are one convolution Z_s, the 1x1 kernels standing in the middle of 3x3 ones. So a node takes one
convolution, one pass for its statistics and one for the sum, and the same backwards. Where one operation is chosen on
every edge, `nasbench201_chosen` has the cell. A bias before batch norm does nothing but to shift the running mean, and
is added there.

With g_t = dL/dx_t, a gradient of the mixture is a sum over examples and pixels, and batch norm's own is made from the
same sums, n being the number of examples and pixels:

    dL/dw_k = sum g_t z^_stk,    dL/dw_skip = sum g_t x_s,    dL/dw_pool = sum g_t pool(x_s)
    dL/dz_stk = w_k (g_t - sum g_t / n - z^_stk sum g_t z^_stk / n) / sqrt(var_stk + epsilon)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from types import ModuleType
from typing import Any, cast, final

import torch
from torch import Tensor, nn
from typing_extensions import override

from polyarch.spaces import nasbench201_plain
from polyarch.spaces.branches import Merged, repeat_of
from polyarch.spaces.choice import Choice, Selection
from polyarch.spaces.layers import BatchNorm, Conv2d
from polyarch.spaces.nasbench201 import EDGES, NODES, OPERATIONS, Cell, Network, edge_name
from polyarch.spaces.nasbench201_chosen import chosen_cell
from polyarch.spaces.nasbench201_plain import edge

SOURCES = range(NODES - 1)
LEAVING = tuple(tuple((target, source) for target in range(source + 1, NODES)) for source in SOURCES)
"""The edges that leave a node, in the order of its convolutions."""
SKIP, POOL = (OPERATIONS.index(name) for name in ("skip_connect", "avg_pool_3x3"))
CONVOLUTIONS = tuple(OPERATIONS.index(name) for name in ("nor_conv_1x1", "nor_conv_3x3"))
"""Options of an edge."""


@final
class MergedNasBench201(Merged):
    """The network of a supernet, cell by cell."""

    def __init__(self, network: Network, repeats: int) -> None:
        """Looks up the layers; the network stays as it is."""
        self.network, self.repeats = network, repeats
        self._blocks: list[nn.Module] = list(network.blocks)
        self._ends: tuple[nn.Module, ...] = (network.stem, network.last, network.head)
        self._cells = {k: _MergedCell(block) for k, block in enumerate(self._blocks) if isinstance(block, Cell)}

    @override
    def prepare(self, selections: Mapping[str, Selection], chosen: bool, like: Tensor) -> tuple[Any, ...]:
        rows = torch.stack([cast(Tensor, selections[edge_name(*pair)])[..., 0] for pair in EDGES])
        mixture = rows.permute(2, 0, 1)  # [repeats, edges, options]
        run: Callable[..., tuple[Tensor, Tensor | None, Seen]]
        if chosen:
            run = partial(_chosen_cell, mixture.argmax(-1).to(torch.int32))
        else:
            run = partial(_mixed_cell, mixture.to(torch.promote_types(like.dtype, torch.float32)).contiguous())
        places = _places(tuple(cell.channels for cell in self._cells.values()), self.repeats, chosen, like.device)
        parts = [conv.weight for cell in self._cells.values() for conv in cell.convolutions]
        packed = iter(_Packed.apply(places, like.dtype, *parts))
        each = 1 if chosen else len(SOURCES)
        weights = [{k: [next(packed) for _ in range(each)] for k in self._cells} for _ in range(self.repeats)]
        others = {k: repeat_of(block) for k, block in enumerate(self._blocks) if k not in self._cells}
        ends = [repeat_of(module) for module in self._ends]
        return run, weights, others, ends

    @override
    def run(self, prepared: tuple[Any, ...], x: Tensor, repeat: int) -> Tensor:
        run, weights, others, (stem, last, head) = prepared
        x = stem(x.contiguous(memory_format=torch.channels_last), repeat)
        positive, seen = None, []
        for k in range(len(self._blocks)):
            if k in self._cells:
                x, positive, found = run(repeat, x, positive, weights[repeat][k])
                seen += [(self._cells[k], *own) for own in found]
            else:
                x, positive = others[k](x, repeat), None
        if self.network.training:
            _move_statistics(seen, repeat)
        answer: Tensor = head(last(x, repeat).mean((2, 3)), repeat)
        return answer


Seen = list[tuple[int, Tensor, Tensor]]
"""Which convolution of a cell, in the order of edges and kernel sizes, with the mean and variance of what it made."""


def _mixed_cell(
    mixture: Tensor, repeat: int, x: Tensor, positive: Tensor | None, weights: Sequence[Tensor]
) -> tuple[Tensor, Tensor, Seen]:
    """The last node, its positive part, and statistics; of x, the positive part may be known."""
    positive = x.relu() if positive is None else positive
    x, positive, *statistics = _MixedCell.apply(x, positive, mixture[repeat], *weights)
    places = [2 * edge(*pair) + k for source in SOURCES for pair in LEAVING[source] for k in range(2)]
    return x, positive, list(zip(places, *(part.split(x.shape[1]) for part in statistics), strict=True))


def _chosen_cell(
    operations: Tensor, repeat: int, x: Tensor, positive: None, weights: Sequence[Tensor]
) -> tuple[Tensor, None, Seen]:
    """The last node, and statistics: of an edge for both kernel sizes; who chooses keeps what is not chosen."""
    x, (mean, _, variance) = chosen_cell(x, weights[0], operations[repeat])
    return x, positive, [(2 * e + k, mean[e], variance[e]) for e in range(len(EDGES)) for k in range(2)]


@final
class _MergedCell:
    """The layers of a cell's convolutions, in the order of edges and kernel sizes."""

    def __init__(self, cell: Cell) -> None:
        choices = [cast(Choice, cell.edges[edge_name(*pair)]) for pair in EDGES]
        options = [cast(nn.Sequential, choice.options[option]) for choice in choices for option in CONVOLUTIONS]
        self.convolutions = [cast(Conv2d, option.conv) for option in options]
        self.norms = [cast(BatchNorm, option.norm) for option in options]
        self.channels = self.convolutions[0].weight.shape[1]


@torch.no_grad()
def _move_statistics(seen: Sequence[tuple[_MergedCell, int, Tensor, Tensor]], repeat: int) -> None:
    """Moves the running statistics of all cells towards those of the batch."""
    norms = [cell.norms[place] for cell, place, _, _ in seen]
    biases = [cast(Tensor, cell.convolutions[place].bias)[repeat] for cell, place, _, _ in seen]
    means = torch._foreach_add([mean for _, _, mean, _ in seen], biases)
    torch._foreach_lerp_([norm.running_mean[repeat] for norm in norms], means, BatchNorm.momentum)
    variances = [variance for _, _, _, variance in seen]
    torch._foreach_lerp_([norm.running_var[repeat] for norm in norms], variances, BatchNorm.momentum)


# ---------------------------------------------------------------------------------------------------------------------
# Weights of many convolutions as those of few.


@final
@dataclass(frozen=True)
class _Places:
    """Where the weights of all convolutions stand in those of the parts that are passed.

    One after another, the weights of convolutions are `flat`, with a zero behind them; so are those of parts, for every
    repeat and cell: where one operation is chosen those of the cell, else those of every node.
    """

    index: Tensor
    """Of every weight of the parts, where it stands in `flat`."""
    back: Tensor
    """Of every weight in `flat`, where it stands in the parts."""
    shapes: tuple[torch.Size, ...]
    """Of the parts, as they lie in memory."""
    order: tuple[int, ...]
    """Their axes, as they are used, among those in memory."""

    def parts(self, merged: Tensor) -> tuple[Tensor, ...]:
        """Of all one after another."""
        each = merged.split([shape.numel() for shape in self.shapes])
        return tuple(part.view(shape).permute(self.order) for part, shape in zip(each, self.shapes, strict=True))

    def merged(self, parts: Sequence[Tensor]) -> Tensor:
        """All one after another."""
        in_memory = [self.order.index(axis) for axis in range(len(self.order))]
        return torch.cat([part.permute(in_memory).reshape(-1) for part in parts])


@cache
def _places(widths: tuple[int, ...], repeats: int, chosen: bool, device: torch.device) -> _Places:
    """Of cells so wide.

    Made once: a step that is being captured can make no tensors out of what the host knows.
    """
    in_flat: list[dict[tuple[int, int], tuple[Tensor, Tensor]]] = []
    """Of every cell and edge the 1x1 and the 3x3 kernel, [repeats, outputs, inputs, height, width]."""
    start = 0
    for channels in widths:
        in_flat.append({})
        for pair in EDGES:
            sizes = [torch.Size((repeats, channels, channels, side, side)) for side in (1, 3)]
            middle, end = start + sizes[0].numel(), start + sizes[0].numel() + sizes[1].numel()
            in_flat[-1][pair] = (
                torch.arange(start, middle).view(sizes[0]),
                torch.arange(middle, end).view(sizes[1]),
            )
            start = end
    if chosen:
        each = [_of_cell([own[pair] for pair in EDGES]) for own in in_flat]
    else:
        each = [_of_node([own[pair] for pair in LEAVING[source]], start) for own in in_flat for source in SOURCES]
    parts = [part[repeat] for repeat in range(repeats) for part in each]
    index = torch.cat([part.reshape(-1) for part in parts])
    back = torch.zeros(start + 1, dtype=torch.int64)
    back[index] = torch.arange(len(index))
    order = (0, 1, 2, 3) if chosen else (0, 3, 1, 2)
    return _Places(index.to(device), back[:-1].to(device), tuple(part.shape for part in parts), order)


def _of_cell(kernels: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """Both kernels of every edge as `nasbench201_chosen_plain` has them: [repeats, edges, 10, inputs, outputs]."""
    pixels = [torch.cat([large.flatten(3), small.flatten(3)], -1) for small, large in kernels]
    return torch.stack(pixels, 1).permute(0, 1, 4, 3, 2)


def _of_node(kernels: Sequence[tuple[Tensor, Tensor]], nothing: int) -> Tensor:
    """Both kernels of every edge as outputs of one 3x3 kernel: [repeats, outputs, 3, 3, inputs]."""
    pairs = [(nn.functional.pad(small, (1, 1, 1, 1), value=nothing), large) for small, large in kernels]
    return torch.cat([kernel for pair in pairs for kernel in pair], 1).permute(0, 1, 3, 4, 2)


class _Packed(torch.autograd.Function):
    """Weights of parts from those of convolutions, for the whole network at once."""

    @staticmethod
    def forward(ctx: Any, places: _Places, dtype: torch.dtype, *weights: Tensor) -> tuple[Tensor, ...]:
        """For every repeat and cell."""
        ctx.places, ctx.shapes, ctx.dtype = places, [weight.shape for weight in weights], weights[0].dtype
        flat = torch.cat([*(weight.reshape(-1) for weight in weights), weights[0].new_zeros(1)]).to(dtype)
        return places.parts(flat.index_select(0, places.index))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Every weight's own place; what stands around 1x1 kernels is left out."""
        flat = ctx.places.merged(gradients).index_select(0, ctx.places.back).to(ctx.dtype)
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
        operations, given = operations_of(x), x
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
        ctx.save_for_backward(given, mixture, *weights, *values[:-1], *positives[:-1], *convolved, *means, *factors)
        # In a pass that asks for the gradient of the mixture alone, none of the weights is made.
        ctx.weights_from = next((weight.grad_fn for weight in weights if weight.requires_grad), None)
        found = values[-1], positives[-1], torch.cat(means), torch.cat(variances)
        ctx.mark_non_differentiable(*found[1:])
        ctx.set_materialize_grads(False)
        return found

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, *_: None) -> tuple[Tensor | None, ...]:
        """From the last node to the first."""
        x, mixture, *saved = ctx.saved_tensors
        count = len(SOURCES)
        if torch.is_grad_enabled():  # this gradient is to be differentiated itself
            return _differentiable_gradient(x, mixture, saved[:count], gradient)
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


def _differentiable_gradient(
    x: Tensor, mixture: Tensor, weights: Sequence[Tensor], gradient: Tensor
) -> tuple[Tensor | None, ...]:
    """What `_MixedCell.backward` gives, by torch's own gradients of the same sums."""
    # Others of their own, so that what x has from the mixture and the weights of earlier cells is not followed.
    x, mixture, *weights = (part.view_as(part) for part in (x, mixture, *weights))
    values, convolved, means, factors = [x], [], [], []
    for weight in weights:
        convolved.append(torch.conv2d(values[-1].relu(), weight, padding=1))
        mean, factor, _ = nasbench201_plain.statistics(convolved[-1])
        means.append(mean)
        factors.append(factor)
        values.append(nasbench201_plain.node(values, convolved, means, factors, mixture)[0])
    inputs = [part for part in (x, mixture, *weights) if part.requires_grad]
    found = iter(torch.autograd.grad(values[-1], inputs, gradient, create_graph=True))
    by_x, by_mixture, *by_weights = (next(found) if p.requires_grad else None for p in (x, mixture, *weights))
    return by_x, None, by_mixture, *by_weights


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
