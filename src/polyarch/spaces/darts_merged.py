"""A DARTS search network in few kernels: its cells run value by value, not operation by operation.

Batch norm in cells of a search has neither scale nor shift, so that a node is one weighted sum over the edges from
earlier values x_s, and over what stands on each:

    x_t = sum_s w_max max^(x_s) + w_mean mean^(x_s) + w_skip skip(x_s) + sum_k w_k z^_stk

where ^ is batch norm. A convolution z_stk = P (D relu(x_s)) is depthwise and then pointwise; a separable one has a
second of these behind it, of relu(z^_stk). All that leaves x_s is made at once: its pooled images, once for all edges;
all first convolutions with their statistics; all second ones. Skips that halve an image are convolutions, too; those
that leave x_s are merged, and run as torch has them.

With g_t = dL/dx_t, gradients are made from sums over examples and pixels, n being their number:

    dL/dw = sum g_t (what arrives at t)
    dL/dz_stk = w_k (g_t - sum g_t / n - z^_stk sum g_t z^_stk / n) / sqrt(var_stk + epsilon)

and from there through P and D to x_s, by way of the first convolution where there are two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import accumulate
from types import ModuleType
from typing import Any, NamedTuple, cast, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from typing_extensions import override

from polyarch.spaces import darts_plain
from polyarch.spaces.branches import Merged, repeat_of
from polyarch.spaces.choice import Choice, Selection
from polyarch.spaces.darts import CELLS, EDGES, Cell, Darts, Network, edge_name
from polyarch.spaces.darts_operations import FactorizedReduce
from polyarch.spaces.darts_plain import INPUTS, NODES, SEPARABLE, SKIP, Leaving, Made, edge
from polyarch.spaces.layers import BatchNorm

WITHOUT_WEIGHTS = ("max_pool_3x3", "avg_pool_3x3", "skip_connect")
CONVOLUTIONS = ("sep_conv_3x3", "sep_conv_5x5", "dil_conv_3x3", "dil_conv_5x5")
"""Operations in the order of columns, and of kinds."""
SOURCES = range(INPUTS + NODES - 1)


@final
class MergedDarts(Merged):
    """The network of a supernet, cell by cell."""

    def __init__(self, space: Darts, network: Network, repeats: int) -> None:
        """Looks up the layers; the network stays as it is."""
        self.network, self.repeats, self._operations = network, repeats, space.operations
        self._ends: tuple[nn.Module, nn.Module] = network.stem, network.head
        self._cells = [
            _MergedCell(cast(Cell, cell), space.operations, layer in space.reductions)
            for layer, cell in enumerate(network.cells)
        ]

    @override
    def prepare(self, selections: Mapping[str, Selection], chosen: bool, like: Tensor) -> tuple[Any, ...]:
        mixtures = [self._mixture(selections, cell, like) for cell in CELLS]
        weights = _packed([cell.weights for cell in self._cells])
        beginnings = [cell.beginning() for cell in self._cells]
        return mixtures, weights, beginnings, [repeat_of(module) for module in self._ends], chosen

    def _mixture(self, selections: Mapping[str, Selection], cell: str, like: Tensor) -> Tensor:
        """Weights [repeats, edges, columns] of a cell; 0 for an operation without weights that the space has not."""
        rows = torch.stack([cast(Tensor, selections[f"{cell}.{edge_name(*pair)}"])[..., 0] for pair in EDGES])
        nothing = torch.zeros_like(rows[:, 0])
        kept = [*WITHOUT_WEIGHTS, *(name for name in CONVOLUTIONS if name in self._operations)]
        columns = [rows[:, self._operations.index(name)] if name in self._operations else nothing for name in kept]
        return torch.stack(columns).permute(2, 1, 0).to(torch.promote_types(like.dtype, torch.float32)).contiguous()

    @override
    def run(self, prepared: tuple[Any, ...], x: Tensor, repeat: int) -> Tensor:
        mixtures, weights, beginnings, (stem, head), chosen = prepared
        before = last = stem(x.contiguous(memory_format=torch.channels_last), repeat)
        seen = []
        for cell, own, begin in zip(self._cells, weights[repeat], beginnings, strict=True):
            begun = begin(before, last, repeat)
            nodes, *known = _MixedCell.apply(
                cell.leaving, chosen, mixtures[cell.reduces][repeat], own, *begun.values, *begun.skips
            )
            seen.append((cell, known, begun.skip_statistics))
            before, last = last, nodes.flatten(3).permute(0, 3, 1, 2)
        if self.network.training:
            _move_statistics(seen, repeat)
        answer: Tensor = head(last.mean((2, 3)), repeat)
        return answer


class _Begun(NamedTuple):
    """What a cell begins with."""

    values: list[Tensor]
    """Its inputs, [batch, channels, height, width]."""
    skips: list[Tensor]
    """Of a cell that halves the image: what skips make of its inputs, [targets, batch, height, width, channels]."""
    skip_statistics: list[tuple[Tensor, ...]]
    """Mean and variance of that before batch norm, [targets, channels] each."""


@final
class _MergedCell:
    """The layers of a cell, in the order in which they are run."""

    def __init__(self, cell: Cell, operations: Sequence[str], reduces: bool) -> None:
        self._cell, self._operations, self.reduces = cell, operations, reduces
        kinds = tuple(k for k, name in enumerate(CONVOLUTIONS) if name in operations)
        self.leaving = tuple(Leaving(s, 2 if reduces and s < INPUTS else 1, kinds) for s in SOURCES)
        stages = [self._blocks(own, second) for own in self.leaving for second in (False, True)]
        self.weights = [
            cast(Tensor, getattr(block, part).weight)
            for blocks in stages
            for part in ("depthwise", "pointwise")
            for block in blocks
        ]
        """Of all convolutions on edges, in the order of `darts_plain.weights_of`, stage by stage."""

    def _options(self, leaving: Leaving, name: str) -> list[nn.Module]:
        """An operation on all edges that leave a value."""
        if name not in self._operations:
            return []
        edges = [self._cell.edges[edge_name(node, leaving.source)] for node in range(leaving.first, NODES)]
        return [cast(Choice, own).options[self._operations.index(name)] for own in edges]

    def _blocks(self, leaving: Leaving, second: bool) -> list[nn.Module]:
        """ReLU, depthwise and pointwise convolution and batch norm of every block of a stage."""
        found: list[nn.Module] = []
        for kind in leaving.stage(second):
            options = self._options(leaving, CONVOLUTIONS[kind])
            part = "second" if second else "first"
            found += [getattr(own, part) for own in options] if kind in SEPARABLE else options
        return found

    def moved(self, known: Sequence[Tensor], of_skips: Sequence[tuple[Tensor, ...]]) -> list[tuple[Any, ...]]:
        """Batch norms, each with the mean and the variance that a pass has found."""
        found: list[tuple[Any, ...]] = []
        for k, own in enumerate(self.leaving):
            pooled, *stages = known[3 * k : 3 * k + 3]
            for column, name in enumerate(WITHOUT_WEIGHTS[:SKIP]):
                found += [(option.norm, pooled[0, column], pooled[2, column]) for option in self._options(own, name)]
            for second, statistics in enumerate(stages):
                blocks = self._blocks(own, bool(second))
                found += zip((b.norm for b in blocks), *(statistics[row].unbind() for row in (0, 2)), strict=True)
        for own, of_skip in zip(self.leaving, of_skips, strict=False):
            norms = [option.norm for option in self._options(own, "skip_connect")]
            found += zip(norms, *(part.unbind() for part in of_skip), strict=True)
        return found

    def beginning(self) -> Callable[[Tensor, Tensor, int], _Begun]:
        """Brings the outputs of the two cells before to this one's channels and size."""
        prepare = [repeat_of(module) for module in self._cell.prepare]
        skips = [_halving(self._options(own, "skip_connect")) for own in self.leaving if own.stride == 2]

        def begin(before: Tensor, last: Tensor, repeat: int) -> _Begun:
            values = [own(x, repeat) for own, x in zip(prepare, (before, last), strict=True)]
            made = [skip(x, repeat) for skip, x in zip(skips, values, strict=False)]
            return _Begun(values, [value for value, _ in made], [statistics for _, statistics in made if statistics])

        return begin


Halved = tuple[Tensor, tuple[Tensor, ...]]


def _halving(skips: Sequence[nn.Module]) -> Callable[[Tensor, int], Halved]:
    """All `FactorizedReduce` that leave an input as two convolutions, and batch norm without running statistics."""
    kernels = [
        torch.cat([cast(Any, getattr(skip, part)).weight for skip in skips], 1).unbind() if skips else ()
        for part in ("even", "odd")
    ]

    def run(x: Tensor, repeat: int) -> Halved:
        if not skips:  # a space without them: they have weight 0
            size = [(side + 1) // 2 for side in x.shape[2:]]
            return x.new_zeros(NODES, len(x), *size, x.shape[1]), ()
        value, (even, odd) = x.relu(), (own[repeat] for own in kernels)
        halves = F.conv2d(value, even, stride=2), F.conv2d(FactorizedReduce.shifted(value), odd, stride=2)
        both = torch.cat([half.unflatten(1, (len(skips), -1)) for half in halves], 2).flatten(1, 2)
        mean, variance = torch.zeros(2, both.shape[1], dtype=kernels[0][0].dtype, device=x.device)
        found = F.batch_norm(both, mean, variance, training=True, momentum=1.0, eps=BatchNorm.epsilon)
        blocks = found.unflatten(1, (len(skips), -1)).permute(1, 0, 3, 4, 2)
        return blocks, (mean.view(len(skips), -1), variance.view(len(skips), -1))

    return run


@torch.no_grad()
def _move_statistics(seen: Sequence[tuple[_MergedCell, Sequence[Tensor], Any]], repeat: int) -> None:
    """Moves the running statistics of all cells towards those of the batch."""
    norms, means, variances = zip(
        *(one for cell, known, skips in seen for one in cell.moved(known, skips)), strict=True
    )
    torch._foreach_lerp_([norm.running_mean[repeat] for norm in norms], list(means), BatchNorm.momentum)
    torch._foreach_lerp_([norm.running_var[repeat] for norm in norms], list(variances), BatchNorm.momentum)


# ---------------------------------------------------------------------------------------------------------------------
# Weights of all cells one after another.


def _packed(cells: Sequence[Sequence[Tensor]]) -> list[tuple[Tensor, ...]]:
    """For every repeat the weights of every cell, one after another."""
    lengths = tuple(sum(weight[0].numel() for weight in cell) for cell in cells)
    found = _Packed.apply(lengths, *(weight for cell in cells for weight in cell))
    return [found[start : start + len(cells)] for start in range(0, len(found), len(cells))]


class _Packed(torch.autograd.Function):
    """Many weights as few, and gradients back: a kernel for each of a thousand would take longer than a step should."""

    @staticmethod
    def forward(ctx: Any, lengths: tuple[int, ...], *weights: Tensor) -> tuple[Tensor, ...]:
        """See `_packed`."""
        ctx.shapes = tuple(weight.shape for weight in weights)
        rows = torch.cat([weight.flatten(1) for weight in weights], 1)
        return tuple(part for row in rows for part in row.split(lengths))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Every weight's own place, all repeats of a weight together."""
        flat, repeats = torch.cat(gradients), ctx.shapes[0][0]
        if repeats > 1:
            flat = flat.index_select(0, _by_weight(ctx.shapes, flat.device))
        parts = flat.split([shape.numel() for shape in ctx.shapes])
        return None, *(part.view(shape) for part, shape in zip(parts, ctx.shapes, strict=True))


@cache
def _by_weight(shapes: tuple[torch.Size, ...], device: torch.device) -> Tensor:
    """Where weight after weight, each with all its repeats, stands among repeat after repeat with all its weights."""
    repeats, sizes = shapes[0][0], [shape[1:].numel() for shape in shapes]
    ends = list(accumulate(sizes))
    rows = [torch.arange(end - size, end) for size, end in zip(sizes, ends, strict=True)]
    parts = [(torch.arange(repeats)[:, None] * ends[-1] + row).flatten() for row in rows]
    return torch.cat(parts).to(device)


# ---------------------------------------------------------------------------------------------------------------------
# A cell, with its gradient by hand.


class _MixedCell(torch.autograd.Function):
    """A cell as a function of the mixture's weights [edges, columns], of its weights and of what it begins with."""

    @staticmethod
    def forward(
        ctx: Any, leaving: tuple[Leaving, ...], chosen: bool, mixture: Tensor, weights: Tensor, *begun: Tensor
    ) -> tuple[Tensor, ...]:
        """Its nodes [batch, height, width, nodes, channels], and the statistics of all that was normalised."""
        operations = operations_of(begun[0])
        values = [x.permute(0, 2, 3, 1).contiguous() for x in begun[:INPUTS]]
        skips = [skip.contiguous() for skip in begun[INPUTS:]]
        nodes, made = _passed(operations, leaving, chosen, mixture, weights, values, skips)
        ctx.leaving, ctx.chosen = leaving, chosen
        ctx.save_for_backward(mixture, weights, *begun, *(part for own in made for part in own.tensors()))
        # In a pass that asks for the gradient of the mixture alone, none of the weights is made.
        ctx.weights_from = weights.grad_fn if weights.requires_grad else None
        known = [part for own in made for part in (own.pooled_statistics, *own.statistics)]
        ctx.mark_non_differentiable(*known)
        ctx.set_materialize_grads(False)
        return nodes, *known

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, *_: None) -> tuple[Tensor | None, ...]:
        """From the last value to the first."""
        mixture, weights, *saved = ctx.saved_tensors
        inputs = INPUTS * (2 if ctx.leaving[0].stride == 2 else 1)
        begun, saved = saved[:inputs], saved[inputs:]
        if torch.is_grad_enabled():  # this gradient is to be differentiated itself
            return None, None, *_differentiable_gradient(ctx.leaving, mixture, weights, begun, gradient)
        operations, count = operations_of(begun[0]), len(saved) // len(ctx.leaving)
        of_mixture = ctx.needs_input_grad[2]
        of_weights = ctx.weights_from is not None and torch._C._will_engine_execute_node(ctx.weights_from)
        gradients = gradient.clone(memory_format=torch.contiguous_format)
        channels = gradients.shape[-1]
        parts = weights.split([sum(own.sizes(s, channels)) for own in ctx.leaving for s in (False, True)])
        by_mixture, by_weights, by_values = [], [], {}
        for k in reversed(SOURCES):
            leaving = ctx.leaving[k]
            made = Made.of(leaving, saved[k * count : (k + 1) * count])
            first, second = parts[2 * k : 2 * k + 2]
            summed = operations.sums(made, gradients, mixture if ctx.chosen else None, of_mixture)
            by_mixture.append(summed[:, 1:].sum(-1))
            behind, by_second = operations.pointwise_gradient(
                made, True, gradients, summed, None, second, mixture, of_weights, ctx.chosen
            )
            within = operations.inner_gradient(made, behind, second, mixture, ctx.chosen)
            between, by_first = operations.pointwise_gradient(
                made, False, gradients, summed, within, first, mixture, of_weights, ctx.chosen
            )
            if of_weights:
                for stage, own, pointwise in ((True, behind, by_second), (False, between, by_first)):
                    depthwise = operations.depthwise_weight_gradient(made, stage, own, mixture, ctx.chosen)
                    by_weights += [pointwise, depthwise]
            by_pooled = operations.pool_gradient(made, gradients, summed, mixture)
            into = gradients[..., k - INPUTS, :] if k >= INPUTS else torch.empty_like(made.value)
            operations.value_gradient(made, between, by_pooled, gradients, first, mixture, ctx.chosen, into)
            by_values[k] = into.permute(0, 3, 1, 2)
        found = [by_values[k] for k in range(INPUTS)]
        if ctx.leaving[0].stride == 2:
            spread, rows = gradients.permute(3, 0, 1, 2, 4), _by_input(mixture.device)
            found += [(own.view(-1, 1, 1, 1, 1) * spread).to(spread.dtype) for own in mixture[rows, SKIP]]
        for_mixture = torch.cat(by_mixture[::-1])[_by_edge(mixture.device)] if of_mixture else None
        return None, None, for_mixture, torch.cat(by_weights[::-1]) if of_weights else None, *found


def _passed(
    operations: ModuleType,
    leaving: Sequence[Leaving],
    chosen: bool,
    mixture: Tensor,
    weights: Tensor,
    values: Sequence[Tensor],
    skips: Sequence[Tensor],
) -> tuple[Tensor, list[Made]]:
    """The nodes of a cell, and all that was made on the way there."""
    channels, only = values[0].shape[-1], mixture if chosen else None
    parts = weights.split([sum(own.sizes(s, channels)) for own in leaving for s in (False, True)])
    made: list[Made] = []
    nodes: list[Tensor] = []
    for k, own in enumerate(leaving):
        value = values[k] if k < INPUTS else nodes[-1]
        both, places, of_pooled = operations.pooled(value, own.stride)
        first = operations.separable(value, None, parts[2 * k], only, own)
        second = operations.separable(first[1], first[2], parts[2 * k + 1], only, own)
        skip = skips[k] if own.stride == 2 else value[None]
        made.append(Made(own, value, skip, both, places, of_pooled, *zip(first, second, strict=True)))
        if k >= INPUTS - 1:
            nodes.append(operations.node(len(nodes), made, mixture))
    return torch.stack(nodes, 3), made


def _differentiable_gradient(
    leaving: Sequence[Leaving], mixture: Tensor, weights: Tensor, begun: Sequence[Tensor], gradient: Tensor
) -> tuple[Tensor | None, ...]:
    """What `_MixedCell.backward` gives, by torch's own gradients of the same sums."""
    # Others of their own, so that what they have from the mixture and the weights of earlier cells is not followed.
    given = [part.view_as(part) for part in (mixture, weights, *begun)]
    values = [x.permute(0, 2, 3, 1) for x in given[2 : 2 + INPUTS]]
    own = given[0], given[1].to(values[0].dtype)
    nodes, _ = _passed(darts_plain, leaving, False, *own, values, given[2 + INPUTS :])
    inputs = [part for part in given if part.requires_grad]
    found = iter(torch.autograd.grad(nodes, inputs, gradient, create_graph=True))
    return tuple(next(found) if part.requires_grad else None for part in given)


@cache
def _by_edge(device: torch.device) -> Tensor:
    """Of every edge, where it stands among those that leave value after value."""
    order = [edge(node, source) for source in SOURCES for node in range(max(0, source - 1), NODES)]
    return torch.tensor([order.index(row) for row in range(len(order))], device=device)


@cache
def _by_input(device: torch.device) -> Tensor:
    """Rows of the edges that leave an input, [inputs, nodes]."""
    return torch.tensor([[edge(node, source) for node in range(NODES)] for source in range(INPUTS)], device=device)


def operations_of(like: Tensor) -> ModuleType:
    """Those of a device, alike but for their speed; double precision is for checking, and has no kernels."""
    if not like.is_cuda or like.dtype == torch.float64:
        return darts_plain
    from polyarch.spaces import darts_triton

    return darts_triton
