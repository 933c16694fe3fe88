"""A search network of NAS-Bench-1Shot1 in few kernels: its cells run node by node, not operation by operation.

With a(z) = max(gamma z^ + beta, 0) and z^ = (z - mean) / sqrt(var + epsilon), a convolution with what follows it, a
cell of N nodes with input x is

    v_t = w_t0 a(p_t) + sum_{0 < s < t} w_ts u_s           what node t takes
    u_t = w_max max(v_t) + sum_k w_k a(z_tk)               what it makes: maxima over 3x3 pixels, both kernel sizes k
    y_t = w_o0 a(p_{N+t}) + w_ot u_t                       the output's channels for node t

where p_1 to p_2N are 1x1 convolutions of x: every node's own, and the output's in N blocks. They are one convolution
with one pass for its statistics; so are the z_tk of a node, the 1x1 kernel standing in the middle of a 3x3 one. Where
one operation is chosen for every node, z_t has one kernel alone: the 3x3 one if that is chosen, else the 1x1 one.

Backwards, all gradients of a block of channels, p_t or z_tk, are made from two sums over examples and pixels. With w
its weight, g the gradient of the sum v_t, u_t or y_t that it stands in, m = 1 where it is not cut off, else 0, and n
the number of examples and pixels:

    dL/dgamma = w sum g m z^,    dL/dbeta = w sum g m,    dL/dw = sum over channels (gamma sum g m z^ + beta sum g m)
    dL/dz = w gamma (g m - sum g m / n - z^ sum g m z^ / n) / sqrt(var + epsilon)

and between blocks

    dL/du_t = w_ot dL/dy_t + sum_{s > t} w_st dL/dv_s,     dL/dw_st = sum dL/dv_s u_t,    dL/dw_ot = sum dL/dy_t u_t
    dL/dv_t = w_max dL/du_t, each to where its maximum stood, and what the convolutions hand back

A maximum's gradient goes where torch's goes: among equals to the first, row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, cast, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from typing_extensions import override

from polyarch.spaces import nasbench1shot1_plain
from polyarch.spaces.branches import Merged, repeat_of
from polyarch.spaces.choice import Choice, Selection
from polyarch.spaces.layers import BatchNorm, Conv2d
from polyarch.spaces.nasbench1shot1 import Cell, NasBench1Shot1, Network, Parent
from polyarch.spaces.nasbench1shot1_plain import Blocks
from polyarch.spaces.nasbench101 import OPERATIONS

LARGE, SMALL, POOL = (OPERATIONS.index(name) for name in ("conv3x3-bn-relu", "conv1x1-bn-relu", "maxpool3x3"))
"""Options of a node."""


@final
class MergedNasBench1Shot1(Merged):
    """The network of a supernet, cell by cell."""

    def __init__(self, space: NasBench1Shot1, network: Network, repeats: int) -> None:
        """Looks up the layers; the network stays as it is."""
        self.network, self.repeats, self._space = network, repeats, space
        self._halved_before = network.halved_before
        self._ends: tuple[nn.Module, ...] = (network.stem, network.last, network.head)
        self._cells = [_MergedCell(cast(Cell, cell)) for cell in network.cells]
        self._orders: dict[torch.device, tuple[_Order, _Order]] = {}

    @override
    def prepare(self, selections: Mapping[str, Selection], chosen: bool, like: Tensor) -> tuple[Any, ...]:
        exact = torch.promote_types(like.dtype, torch.float32)
        rows = [cast(Tensor, selections[f"op{node}"])[..., 0] for node in self._space.nodes]
        operations = torch.stack(rows).permute(2, 0, 1)  # [repeats, nodes, options]
        added, weights = (part.to(exact).unbind() for part in self._mixture(selections, operations, chosen))
        if like.device not in self._orders:  # once: a captured step can make no tensors out of what the host knows
            self._orders[like.device] = self._ordered(like.device)
        large = operations[..., LARGE] != 0 if chosen else None
        order, order_of_norms = self._orders[like.device]
        convolutions = order.of([conv.weight for cell in self._cells for conv in cell.convolutions], like.dtype, large)
        affine = order_of_norms.of([part for cell in self._cells for part in cell.affine], exact, large)
        count = 1 + len(rows)
        cells = [
            (affine[k], *(part.permute(0, 3, 1, 2) for part in convolutions[k * count : (k + 1) * count]))
            for k in range(len(affine))
        ]  # of every cell and repeat
        return added, weights, cells, [repeat_of(module) for module in self._ends]

    @override
    def run(self, prepared: tuple[Any, ...], x: Tensor, repeat: int) -> Tensor:
        added, weights, cells, (stem, last, head) = prepared
        x = stem(x.contiguous(memory_format=torch.channels_last), repeat)
        seen = []
        for k, cell in enumerate(self._cells):
            if k in self._halved_before:
                x = F.max_pool2d(x, 2, padding=1)
            x, *found = _MixedCell.apply(x, added[repeat], weights[repeat], *cells[k * self.repeats + repeat])
            seen.append((cell, *found))
        if self.network.training:
            _move_statistics(seen, repeat)
        answer: Tensor = head(last(x, repeat).mean((2, 3)), repeat)
        return answer

    def _mixture(self, selections: Mapping[str, Selection], operations: Tensor, chosen: bool) -> tuple[Tensor, Tensor]:
        """For every repeat the weights of what is `added` as it is (see `nasbench1shot1_plain`), and of all blocks.

        Blocks are p_1 to p_2N, then the kernels of every node: the larger and the smaller, or the one that is chosen.
        """
        nodes = operations.shape[1]
        parents = [
            cast(Tensor, selections[self._space.inputs_name(vertex)])[..., 0].T
            if vertex in self._space.ways
            else operations.new_ones(self.repeats, vertex)  # it takes all
            for vertex in range(1, nodes + 2)
        ]
        pools = [*operations[..., POOL:].unbind(1), operations.new_empty(self.repeats, 0)]  # the output has none
        rows = [torch.cat([row[:, 1:], pool], 1) for row, pool in zip(parents, pools, strict=True)]
        added = torch.stack([F.pad(row, (0, nodes - row.shape[1])) for row in rows], 1)
        large, small = operations[..., LARGE], operations[..., SMALL]
        kinds = large + small if chosen else torch.stack([large, small], -1).flatten(1)
        of_input = torch.stack([row[:, 0] for row in parents], 1)
        return added, torch.cat([of_input, of_input[:, -1:].expand(-1, nodes - 1), kinds], 1)

    def _ordered(self, device: torch.device) -> tuple[_Order, _Order]:
        """How the weights of convolutions lie in memory, and how scales and shifts."""
        weights = [conv.weight.shape for cell in self._cells for conv in cell.convolutions]
        norms = [part.shape for cell in self._cells for part in cell.affine]
        nodes = len(self._space.nodes)
        owners = [owner for _ in self._cells for owner in (*[0] * (nodes + 1), *(k // 2 for k in range(2 * nodes)))]
        return (
            _Order(weights, owners, nodes, _arranged_weights, device),
            _Order(norms, [owner for owner in owners for _ in range(2)], nodes, _arranged_affine, device),
        )


@final
class _MergedCell:
    """The layers of a cell: those that its input passes, the output's last, then both kernels of every node."""

    def __init__(self, cell: Cell) -> None:
        takers = [part for taker in (*cell.inputs.values(), cell.output) for part in taker.modules()]
        projections = [part.layers for part in takers if isinstance(part, Parent) and part.vertex == 0]
        points = [cast(Choice, point) for point in cell.operations.values()]
        layers = [*projections, *(point.options[option] for point in points for option in (LARGE, SMALL))]
        self.convolutions = [cast(Conv2d, cast(nn.Sequential, layer).conv) for layer in layers]
        self.norms = [cast(BatchNorm, cast(nn.Sequential, layer).norm) for layer in layers]
        self.nodes = len(points)

    @property
    def affine(self) -> list[Tensor]:
        """Scale and shift of every norm."""
        return [cast(Tensor, part) for norm in self.norms for part in (norm.weight, norm.bias)]


@torch.no_grad()
def _move_statistics(seen: Sequence[tuple[_MergedCell, Tensor, Tensor]], repeat: int) -> None:
    """Moves the running statistics of all cells towards those of the batch.

    Where one kernel of a node is chosen, both are moved; who passes such cells keeps what is not chosen.
    """
    found: tuple[list[Tensor], list[Tensor]] = ([], [])
    kept: tuple[list[Tensor], list[Tensor]] = ([], [])
    for cell, *both in seen:
        sizes = [norm.running_mean.shape[1] for norm in cell.norms]
        one = sum(sizes) > len(both[0])
        if one:
            del sizes[-cell.nodes :]
        for parts, statistics in zip(found, both, strict=True):
            *before, last = statistics.split([*sizes[: cell.nodes + 1], sum(sizes[cell.nodes + 1 :])])
            of_nodes = last.split(sizes[0])
            parts += [*before, *(part for part in of_nodes for _ in range(1 + one))]
        kept[0].extend(norm.running_mean[repeat] for norm in cell.norms)
        kept[1].extend(norm.running_var[repeat] for norm in cell.norms)
    for parts, own in zip(found, kept, strict=True):
        torch._foreach_lerp_(own, parts, BatchNorm.momentum)


# ---------------------------------------------------------------------------------------------------------------------
# Weights of many layers as those of few.

Arranged = Callable[[Sequence[Tensor], int, Sequence[int], int], list[Tensor]]
"""From the tensors of all layers, how many nodes there are, which kernels each has, and what stands for nothing."""


def _arranged_weights(parts: Sequence[Tensor], nodes: int, kinds: Sequence[int], nothing: int) -> list[Tensor]:
    """For every cell and repeat the convolutions of its input and of its nodes, [outputs, height, width, inputs]."""
    found = []
    for own in _by_cell(parts, 3 * nodes + 1):
        kernels = [own[nodes + 1 + 2 * node : nodes + 3 + 2 * node] for node in range(nodes)]
        centred = [(large, F.pad(small, (1, 1, 1, 1), value=nothing)) for large, small in kernels]
        merged = [torch.cat([*own[: nodes + 1]], 1), *(torch.cat([both[k] for k in kinds], 1) for both in centred)]
        in_memory = [part.permute(0, 1, 3, 4, 2) for part in merged]
        found += [part[repeat] for repeat in range(len(own[0])) for part in in_memory]
    return found


def _arranged_affine(parts: Sequence[Tensor], nodes: int, kinds: Sequence[int], nothing: int) -> list[Tensor]:
    """For every cell and repeat scale and shift of all blocks, [2, blocks, channels]."""
    found = []
    for own in _by_cell(parts, 2 * (3 * nodes + 1)):
        channels = own[0].shape[1]
        rows = []
        for each in (own[::2], own[1::2]):
            of_nodes = [each[nodes + 1 + 2 * node + k] for node in range(nodes) for k in kinds]
            rows.append(torch.cat([*each[: nodes + 1], *of_nodes], 1).unflatten(1, (-1, channels)))
        found += list(torch.stack(rows, 1))
    return found


def _by_cell(parts: Sequence[Tensor], count: int) -> list[Sequence[Tensor]]:
    return [parts[first : first + count] for first in range(0, len(parts), count)]


@final
class _Order:
    """Where the elements of many tensors stand in others that are made of them, one after another in memory.

    Of both kernels of a node these have one, where it is chosen, or both.
    """

    def __init__(
        self, shapes: Sequence[torch.Size], owners: Sequence[int], nodes: int, arranged: Arranged, device: torch.device
    ) -> None:
        """Finds the order by arranging numbers.

        Args:
            shapes: of the tensors, the first axis being repeats.
            owners: the node whose choice each tensor depends on; any where it depends on none.
            nodes: how many.
            arranged: makes the others.
            device: where the tensors lie.
        """
        counts = [shape.numel() for shape in shapes]
        total = sum(counts)
        numbers = [part.view(shape) for part, shape in zip(torch.arange(total).split(counts), shapes, strict=True)]
        chooser = [
            (torch.arange(shape[0]) * nodes + owner).view(-1, *[1] * (len(shape) - 1)).expand(shape)
            for shape, owner in zip(shapes, owners, strict=True)
        ]
        made = {kinds: arranged(numbers, nodes, kinds, total) for kinds in ((0, 1), (0,), (1,))}
        both, *ways = (_flat(parts) for parts in made.values())
        self._shapes = [[part.shape for part in made[kinds]] for kinds in ((0, 1), (0,))]
        self._both, self._back = both.to(device), _inverse([both], total).to(device)
        self._ways, self._back_of_one = torch.stack(ways).to(device), _inverse(ways, total).to(device)
        self._chooser = _flat(arranged(chooser, nodes, (0,), 0)).to(device)
        # Of every element: who chooses whether it is there, and in which of the ways it is; 2 is in both.
        self._chooser_of = torch.cat([_flat(chooser), torch.zeros(1, dtype=torch.int64)]).to(device)
        way = torch.full((total + 1,), 2)
        for k, other in ((0, 1), (1, 0)):
            way[ways[k][~torch.isin(ways[k], ways[other])]] = k
        self._way = way.to(device)

    def of(self, tensors: Sequence[Tensor], dtype: torch.dtype, large: Tensor | None) -> list[Tensor]:
        """The others, of this type; with one kernel a node, the larger one where `large` [repeats, nodes] says so."""
        flat = torch.cat([*(tensor.reshape(-1) for tensor in tensors), tensors[0].new_zeros(1)]).to(dtype)
        if large is None:
            moved, shapes = _Moved.apply(flat, self._both, self._back, None), self._shapes[0]
        else:
            way = (~large).long().flatten()
            index = self._ways.gather(0, way[self._chooser].unsqueeze(0)).squeeze(0)
            kept = (self._way == 2) | (self._way == way[self._chooser_of])
            moved, shapes = _Moved.apply(flat, index, self._back_of_one, kept), self._shapes[1]
        # `split` at once for all: its gradient is put together once.
        parts = moved.split([shape.numel() for shape in shapes])
        return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]


def _flat(parts: Sequence[Tensor]) -> Tensor:
    return torch.cat([part.reshape(-1) for part in parts])


def _inverse(indices: Sequence[Tensor], total: int) -> Tensor:
    """Where each of as many elements, and nothing, stands among those that are picked."""
    found = torch.zeros(total + 1, dtype=torch.int64)
    for index in indices:
        found[index] = torch.arange(len(index))
    return found


class _Moved(torch.autograd.Function):
    """Elements in another order. Each stands in one place, so that its gradient is read from there."""

    @staticmethod
    def forward(ctx: Any, flat: Tensor, index: Tensor, back: Tensor, kept: Tensor | None) -> Tensor:
        """What `index` picks; `back` is where each then stands, and `kept` says which are there, None being all."""
        ctx.back, ctx.kept = back, kept
        return flat.index_select(0, index)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Every element's own place."""
        flat = gradient.index_select(0, ctx.back)
        return flat if ctx.kept is None else flat.where(ctx.kept, 0), None, None, None


# ---------------------------------------------------------------------------------------------------------------------
# A cell, with its gradient by hand.


@final
@dataclass(frozen=True)
class _Pass:
    """What a pass through a cell makes; lists are of nodes."""

    projected: Blocks
    convolved: list[Blocks]
    taken: list[Tensor]
    places: list[Tensor]
    made: list[Tensor]
    output: Tensor
    variances: list[Tensor]
    """Of the projected input and of what nodes convolved."""


def _passed(
    operations: ModuleType,
    x: Tensor,
    added: Tensor,
    weights: Tensor,
    affine: Tensor,
    projection: Tensor,
    kernels: Sequence[Tensor],
) -> _Pass:
    """Runs a cell; see `_MixedCell`."""
    variances = []
    of_input, *of_nodes = _split(weights, affine, len(kernels))

    def convolved(image: Tensor, weight: Tensor, own: tuple[Tensor, Tensor]) -> Blocks:
        z = torch.conv2d(image, weight, padding=weight.shape[-1] // 2)
        z = z.contiguous(memory_format=torch.channels_last)
        mean, factor, variance = operations.statistics(z)
        variances.append(variance)
        return Blocks(z, mean, factor, *own)

    projected = convolved(x, projection, of_input)
    found = _Pass(projected, [], [], [], [], x, variances)
    for node, (kernel, own) in enumerate(zip(kernels, of_nodes, strict=True), start=1):
        found.taken.append(operations.taken(node, projected, found.made, added))
        found.convolved.append(convolved(found.taken[-1], kernel, own))
        value, place = operations.mixed(node, found.taken[-1], found.convolved[-1], added)
        found.made.append(value)
        found.places.append(place)
    return replace(found, output=operations.joined(projected, found.made, added))


def _split(weights: Tensor, affine: Tensor, nodes: int) -> list[tuple[Tensor, Tensor]]:
    """Those of the projected input's blocks, and of every node's: scale and shift, and weights."""
    sizes = [2 * nodes, *[len(weights) // nodes - 2] * nodes]
    return list(zip(affine.split(sizes, 1), weights.split(sizes), strict=True))


class _MixedCell(torch.autograd.Function):
    """A cell as a function of its input, its mixture and its weights.

    The mixture is what is `added` [nodes + 1, nodes] and the `weights` of all blocks. These are scaled and shifted by
    `affine` [2, blocks, C]. `projection` is the convolution of the input, `kernels` are those of nodes.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, added: Tensor, weights: Tensor, affine: Tensor, projection: Tensor, *kernels: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The output, and the mean and variance of all that was convolved."""
        given = (x, added, weights, affine, projection, *kernels)
        x = x.contiguous(memory_format=torch.channels_last)
        found = _passed(operations_of(x), x, added, weights, affine, projection, kernels)
        blocks = [found.projected, *found.convolved]
        of_blocks = [part for own in blocks for part in (own.convolved, own.mean, own.factor)]
        ctx.save_for_backward(*given, x, *found.taken, *found.places, *found.made, *of_blocks)
        # A pass that asks for the gradient of the mixture alone makes none of weights, nor of the first cell's input.
        ctx.made_by = [part.grad_fn for part in given]
        means = torch.cat([own.mean for own in blocks])
        variances = torch.cat(found.variances)
        ctx.mark_non_differentiable(means, variances)
        ctx.set_materialize_grads(False)
        return found.output, means, variances

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, *_: None) -> tuple[Tensor | None, ...]:
        """From the output to the first node, and through the convolution of the input."""
        saved = list(ctx.saved_tensors)
        nodes = saved[1].shape[1]
        given, saved = saved[: 5 + nodes], saved[5 + nodes :]
        if torch.is_grad_enabled():  # this gradient is to be differentiated itself
            return _differentiable_gradient(given, gradient)
        (_, added, weights, affine, projection, *kernels), (x, *saved) = given, saved
        taken, places, made = (saved[k * nodes : (k + 1) * nodes] for k in range(3))
        of_blocks = zip(*(saved[3 * nodes + k :: 3] for k in range(3)), strict=True)
        split = _split(weights, affine, nodes)
        projected, *convolved = (
            Blocks(z, mean, factor, *own) for (z, mean, factor), own in zip(of_blocks, split, strict=True)
        )
        operations = operations_of(x)
        asked = [_is_asked(*pair) for pair in zip(ctx.needs_input_grad, ctx.made_by, strict=True)]
        of_mixture = asked[1] or asked[2]
        gradient = gradient.contiguous(memory_format=torch.channels_last)
        by_output = list(gradient.split(gradient.shape[1] // nodes, 1))
        by_taken: list[Tensor] = []  # of the nodes after this one
        by_kernels: list[Tensor | None] = []
        summed: list[Tensor] = []
        for k in reversed(range(nodes)):
            by_made, sums = operations.node_gradient(
                k + 1, [*by_taken, by_output[k]], taken[k], places[k], made[k], convolved[k], added, of_mixture
            )
            kinds = len(convolved[k])
            of_own = sums[: 2 * kinds].unflatten(0, (2, kinds))
            by_convolved = operations.block_gradient(convolved[k], [by_made] * kinds, of_own)
            by_value, by_kernel = _convolution_gradient(by_convolved, taken[k], kernels[k], True, asked[5 + k])
            by_taken.insert(0, operations.value_gradient(k + 1, by_made, places[k], by_value, added))
            by_kernels.insert(0, by_kernel)
            summed.insert(0, sums)
        of_input = operations.block_sums(projected, [*by_taken, *by_output], of_mixture)
        by_x = by_projection = None
        if asked[0] or asked[4]:
            by_projected = operations.block_gradient(projected, [*by_taken, *by_output], of_input)
            by_x, by_projection = _convolution_gradient(by_projected, x, projection, asked[0], asked[4])
        rows = torch.stack(summed)  # [nodes, rows, C]
        of_nodes = rows[:, : 2 * kinds].unflatten(1, (2, kinds)).transpose(0, 1).flatten(1, 2)
        sums = torch.cat([of_input, of_nodes], 1)
        by_affine = weights.unsqueeze(1) * sums
        by_added = rows[:, 2 * kinds :].sum(2).T if of_mixture else None
        by_weights = (affine * sums).sum((0, 2)) if of_mixture else None
        return by_x, by_added, by_weights, by_affine, by_projection, *by_kernels


def _is_asked(needed: bool, made_by: Any) -> bool:
    """Whether the gradient of an input is asked for in this pass."""
    return needed and (made_by is None or torch._C._will_engine_execute_node(made_by))


def _convolution_gradient(
    gradient: Tensor, image: Tensor, weight: Tensor, of_image: bool, of_weight: bool
) -> tuple[Tensor | None, Tensor | None]:
    """Of what was convolved, and of the weights."""
    padding = weight.shape[-1] // 2
    by_image, by_weight, _ = torch.ops.aten.convolution_backward(
        gradient, image, weight, None,
        [1, 1], [padding, padding], [1, 1], False, [0, 0], 1, [of_image, of_weight, False],
    )  # fmt: skip
    return by_image.contiguous(memory_format=torch.channels_last) if of_image else None, by_weight


def _differentiable_gradient(given: Sequence[Tensor], gradient: Tensor) -> tuple[Tensor | None, ...]:
    """What `_MixedCell.backward` gives, by torch's own gradients of the same sums."""
    # Others of their own, so that what x has from the mixture and the weights of earlier cells is not followed.
    x, added, weights, affine, projection, *kernels = own = [part.view_as(part) for part in given]
    output = _passed(nasbench1shot1_plain, x, added, weights, affine, projection, kernels).output
    inputs = [part for part in own if part.requires_grad]
    found = iter(torch.autograd.grad(output, inputs, gradient, create_graph=True))
    return tuple(next(found) if part.requires_grad else None for part in own)


def operations_of(like: Tensor) -> ModuleType:
    """Those of a device, alike but for their speed; double precision is for checking, and has no kernels."""
    if not like.is_cuda or like.dtype == torch.float64:
        return nasbench1shot1_plain
    from polyarch.spaces import nasbench1shot1_triton

    return nasbench1shot1_triton
