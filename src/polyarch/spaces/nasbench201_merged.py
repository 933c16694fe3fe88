"""A NAS-Bench-201 search network in few kernels: its cells run node by node, not operation by operation.

Batch norm in cells of a search has neither scale nor shift, so that a node is one weighted sum:

    x_t = sum_{s < t} w_skip x_s + w_pool pool(x_s) + sum_k w_k (z_stk - mean_stk) / sqrt(var_stk + epsilon)

where z_stk are convolutions of the positive part of x_s, for every node t that s leads to and both kernel sizes k. All
of a node s are one convolution Z_s, the 1x1 kernels standing in the middle of 3x3 ones. So a node takes one
convolution, one pass for its statistics and one for the sum, and the same backwards. Where one operation is chosen on
every edge, Z_s has the chosen kernel alone, or zeros where none is. A bias before batch norm does nothing but to shift
the running mean, and is added there.

With g_t = dL/dx_t, a gradient of the mixture is a sum over examples and pixels, and batch norm's own is made from the
same sums, n being the number of examples and pixels:

    dL/dw_k = sum g_t z^_stk,    dL/dw_skip = sum g_t x_s,    dL/dw_pool = sum g_t pool(x_s)
    dL/dz_stk = w_k (g_t - sum g_t / n - z^_stk sum g_t z^_stk / n) / sqrt(var_stk + epsilon)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
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
from polyarch.spaces.nasbench201_plain import edge, kinds_of

SOURCES = range(NODES - 1)
NONE, SKIP, POOL = (OPERATIONS.index(name) for name in ("none", "skip_connect", "avg_pool_3x3"))
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
        mixture = rows.permute(2, 0, 1).to(torch.promote_types(like.dtype, torch.float32))  # [repeats, edges, options]
        if chosen:
            small, large = (mixture[..., option] for option in CONVOLUTIONS)
            columns = (mixture[..., NONE], mixture[..., SKIP], small + large, mixture[..., POOL])
            mixture = torch.stack(columns, -1)
        places = {
            width: _all_places(width, self.repeats, like.device).of(rows if chosen else None)
            for width in dict.fromkeys(cell.channels for cell in self._cells.values())
        }
        convolutions = {k: cell.packed(places[cell.channels], like.dtype) for k, cell in self._cells.items()}
        others = {k: repeat_of(block) for k, block in enumerate(self._blocks) if k not in self._cells}
        ends = [repeat_of(module) for module in self._ends]
        return mixture.contiguous(), convolutions, others, ends

    @override
    def run(self, prepared: tuple[Any, ...], x: Tensor, repeat: int) -> Tensor:
        mixture, convolutions, others, (stem, last, head) = prepared
        x = stem(x.contiguous(memory_format=torch.channels_last), repeat)
        positive, seen = None, []
        for k in range(len(self._blocks)):
            if k in self._cells:
                positive = x.relu() if positive is None else positive
                x, positive, *found = _MixedCell.apply(x, positive, mixture[repeat], *convolutions[k][repeat])
                seen.append((self._cells[k], *found))
            else:
                x, positive = others[k](x, repeat), None
        if self.network.training:
            _move_statistics(seen, repeat)
        answer: Tensor = head(last(x, repeat).mean((2, 3)), repeat)
        return answer


@final
class _MergedCell:
    """The layers of a cell's convolutions, in the order of edges and kernel sizes."""

    def __init__(self, cell: Cell) -> None:
        choices = [cast(Choice, cell.edges[edge_name(*pair)]) for pair in EDGES]
        options = [cast(nn.Sequential, choice.options[option]) for choice in choices for option in CONVOLUTIONS]
        self.convolutions = [cast(Conv2d, option.conv) for option in options]
        self.norms = [cast(BatchNorm, option.norm) for option in options]
        self.channels = self.convolutions[0].weight.shape[1]

    def packed(self, places: _Places, dtype: torch.dtype) -> list[tuple[Tensor, ...]]:
        """For every repeat the weights of all nodes, [outputs, channels, 3, 3]."""
        found = _Packed.apply(places, dtype, *(conv.weight for conv in self.convolutions))
        count = len(SOURCES)
        return [found[start : start + count] for start in range(0, len(found), count)]


@torch.no_grad()
def _move_statistics(seen: Sequence[tuple[_MergedCell, Tensor, Tensor]], repeat: int) -> None:
    """Moves the running statistics of all cells towards those of the batch.

    Where one kernel is chosen on an edge, both of the edge are moved; who passes such cells keeps what is not chosen.
    """
    means, biases, variances = [], [], []
    kept: tuple[list[Tensor], list[Tensor]] = ([], [])
    for cell, mean, variance in seen:
        kinds = len(mean) // (len(EDGES) * cell.channels)
        blocks = [(target, source) for source in SOURCES for target in range(source + 1, NODES)]
        for k, (own_mean, own_variance) in enumerate(
            zip(mean.split(cell.channels), variance.split(cell.channels), strict=True)
        ):
            first = 2 * edge(*blocks[k // kinds])
            for place in (first + k % kinds,) if kinds == 2 else (first, first + 1):
                means.append(own_mean)
                variances.append(own_variance)
                biases.append(cast(Tensor, cell.convolutions[place].bias)[repeat])
                kept[0].append(cell.norms[place].running_mean[repeat])
                kept[1].append(cell.norms[place].running_var[repeat])
    torch._foreach_lerp_(kept[0], torch._foreach_add(means, biases), BatchNorm.momentum)
    torch._foreach_lerp_(kept[1], variances, BatchNorm.momentum)


# ---------------------------------------------------------------------------------------------------------------------
# Weights of many convolutions as those of one per node.


@final
@dataclass(frozen=True)
class _Places:
    """Where the weights of a cell's convolutions stand in those of its nodes, for all repeats.

    One after another, the weights of convolutions are `flat`, with a zero behind them; so are those of nodes, each in
    the order [repeats, outputs, height, width, inputs].
    """

    index: Tensor
    """Of every weight of the nodes, where it stands in `flat`."""
    back: Tensor
    """Of every weight in `flat`, where it stands in the nodes."""
    kept: Tensor | None
    """Which weights in `flat` the nodes have; None is all."""
    shapes: tuple[torch.Size, ...]
    """Of the nodes."""

    def nodes(self, merged: Tensor) -> tuple[Tensor, ...]:
        """The weights of every repeat and node, [outputs, inputs, 3, 3], of all one after another."""
        parts = merged.split([shape.numel() for shape in self.shapes])
        each = [part.view(shape).permute(0, 1, 4, 2, 3) for part, shape in zip(parts, self.shapes, strict=True)]
        return tuple(node[repeat] for repeat in range(len(each[0])) for node in each)


@final
class _AllPlaces:
    """`_Places` of mixtures, and of cells with one operation on every edge."""

    def __init__(self, channels: int, repeats: int, device: torch.device) -> None:
        own, sizes = {}, (1, 3)
        start = 0
        for pair in EDGES:
            for k, size in enumerate(sizes):
                shape = (repeats, channels, channels, size, size)
                count = torch.Size(shape).numel()
                own[(*pair, k)] = torch.arange(start, start + count).view(shape)
                start += count
        nothing = torch.full((repeats, channels, channels, 3, 3), start)
        small, large = {}, {}
        for pair in EDGES:
            small[pair], large[pair] = nothing.clone(), own[(*pair, 1)]
            small[pair][..., 1, 1] = own[(*pair, 0)][..., 0, 0]

        def laid_out(*by_edge: Mapping[tuple[int, int], Tensor]) -> list[Tensor]:
            """The blocks of every node, in the order of memory."""
            return [
                torch.cat([part[target, s] for target in range(s + 1, NODES) for part in by_edge], 1)
                .permute(0, 1, 3, 4, 2)
                .contiguous()
                for s in SOURCES
            ]

        def flat(parts: Sequence[Tensor]) -> Tensor:
            return torch.cat([part.reshape(-1) for part in parts])

        def inverse(*indices: Tensor) -> Tensor:
            found = torch.zeros(start + 1, dtype=torch.int64)
            for index in indices:
                found[index] = torch.arange(len(index))
            return found[:-1].to(device)

        both = laid_out(small, large)
        index = flat(both)
        self.mixed = _Places(index.to(device), inverse(index), None, tuple(part.shape for part in both))
        one = laid_out(large)
        self._shapes = tuple(part.shape for part in one)
        kinds = [flat(laid_out(part)) for part in (dict.fromkeys(EDGES, nothing), small, large)]
        self._kinds, self._back = torch.stack(kinds).to(device), inverse(*kinds[1:])
        # Repeat and edge of every weight, numbered through, and in `flat` its kernel too.
        numbers = torch.arange(repeats).view(-1, 1, 1, 1, 1) * len(EDGES)
        owner = {pair: (numbers + e).expand(nothing.shape) for e, pair in enumerate(EDGES)}
        self._owner = flat(laid_out(owner)).to(device)
        in_flat = [(numbers + EDGES.index(pair)).expand(own[(*pair, k)].shape) for pair in EDGES for k in range(2)]
        self._owner_in_flat = flat(in_flat).to(device)
        self._kernel = flat([torch.full_like(own[(*pair, k)], 1 + k) for pair in EDGES for k in range(2)]).to(device)

    def of(self, chosen: Tensor | None) -> _Places:
        """Of mixtures, or of the operations that were chosen [edges, options, repeats], 1 for each and 0 for others."""
        if chosen is None:
            return self.mixed
        small, large = (chosen[:, option] != 0 for option in CONVOLUTIONS)
        kernel = (small.long() + 2 * large.long()).T.reshape(-1)  # [repeats * edges]: 0 is none
        index = self._kinds.gather(0, kernel[self._owner].unsqueeze(0)).squeeze(0)
        return _Places(index, self._back, kernel[self._owner_in_flat] == self._kernel, self._shapes)


@cache
def _all_places(channels: int, repeats: int, device: torch.device) -> _AllPlaces:
    # Once for all cells as wide: a step that is being captured can make no tensors out of what the host knows.
    return _AllPlaces(channels, repeats, device)


class _Packed(torch.autograd.Function):
    """Weights of nodes from those of convolutions."""

    @staticmethod
    def forward(ctx: Any, places: _Places, dtype: torch.dtype, *weights: Tensor) -> tuple[Tensor, ...]:
        """See `_MergedCell.packed`."""
        ctx.places, ctx.shapes, ctx.dtype = places, [weight.shape for weight in weights], weights[0].dtype
        flat = torch.cat([*(weight.reshape(-1) for weight in weights), weights[0].new_zeros(1)]).to(dtype)
        return places.nodes(flat.index_select(0, places.index))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Every weight's own place; what stands around 1x1 kernels is left out."""
        places, sources = ctx.places, len(SOURCES)
        parts = [
            gradients[repeat * sources + source].permute(0, 2, 3, 1).reshape(-1)
            for source in SOURCES
            for repeat in range(len(gradients) // sources)
        ]
        flat = torch.cat(parts).index_select(0, places.back).to(ctx.dtype)
        if places.kept is not None:
            flat = flat.where(places.kept, 0)
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
            summed[target] = operations.sums(gradients[target], *before, kinds_of(mixture), of_mixture)
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
    """Of every edge and option, which of the sums of all nodes it is; the last, behind them, where it is nothing.

    Of mixtures alone: what is chosen has no gradient.
    """
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
