"""The operations of `darts_merged` written out in torch, for any device and precision; kernels must equal them.

Images have their channels last, [batch, height, width, channels], and several of a size are stacked before them. What
leaves a value is made edge by edge and kind by kind of convolution: block k L + t is of kind k on the way to the t-th
of its L nodes. Weights of a mixture are [edges, columns]: of the largest and of the mean of 3x3 pixels, of a skip, and
of every kind of convolutions. Statistics are [3, blocks, channels]: mean, 1 / sqrt(variance + epsilon) and unbiased
variance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from polyarch.spaces.layers import BatchNorm, average_around

SEPARABLE, DILATED = (0, 1), (2, 3)
"""Kinds of convolutions: 3x3 and 5x5 each. Separable ones have a second convolution behind the first."""
INPUTS, NODES = 2, 4
MAX, MEAN, SKIP, FIRST = 0, 1, 2, 3
"""Columns of weights; `FIRST` is of the first kind of convolutions. In sums the row of the gradient stands before."""


def size_of(kind: int) -> int:
    """Pixels on a side of its kernel."""
    return 3 + 2 * (kind % 2)


def dilation_of(kind: int) -> int:
    """How far pixels under its kernel are apart."""
    return 1 + kind // 2


def edge(node: int, source: int) -> int:
    """The row of an edge in the weights of a mixture."""
    return node * (node + 3) // 2 + source


@dataclass(frozen=True)
class Leaving:
    """The edges that leave one value of a cell: an input (0 or 1), or a node (from 2 on)."""

    source: int
    stride: int
    kinds: tuple[int, ...]
    """Of the convolutions on every edge, in order."""

    @property
    def first(self) -> int:
        """The first node that it leads to; it leads to all later ones, too."""
        return max(0, self.source - 1)

    @property
    def targets(self) -> int:
        """How many nodes it leads to."""
        return NODES - self.first

    @cached_property
    def inner(self) -> tuple[int, ...]:
        """Kinds that have a second convolution; they come first."""
        return tuple(kind for kind in self.kinds if kind in SEPARABLE)

    def stage(self, second: bool) -> tuple[int, ...]:
        """Kinds of the first, or of the second convolutions."""
        return self.inner if second else self.kinds

    def sizes(self, second: bool, channels: int) -> list[int]:
        """How many weights a stage has: depthwise ones of every kind, and all pointwise ones."""
        kinds = self.stage(second)
        depthwise = [self.targets * channels * size_of(kind) ** 2 for kind in kinds]
        return [*depthwise, self.targets * len(kinds) * channels**2]

    def strided(self, second: bool) -> int:
        """The stride of a stage."""
        return 1 if second else self.stride


@dataclass(frozen=True)
class Made:
    """What was made of one value, on its way to all nodes that it leads to."""

    leaving: Leaving
    value: Tensor
    """[batch, height, width, channels]."""
    skip: Tensor
    """What skips hand on: the value itself, or one of half its size for every target, [1 or targets, ...]."""
    pooled: Tensor
    """The largest and the mean of 3x3 pixels, [2, ...]."""
    places: Tensor
    """Which of the nine was the largest."""
    pooled_statistics: Tensor
    depthwise: tuple[Tensor, Tensor]
    """What the depthwise convolutions of the first and of the second stage made, [blocks, ...]."""
    convolved: tuple[Tensor, Tensor]
    """The same after the pointwise ones, before batch norm."""
    statistics: tuple[Tensor, Tensor]

    def tensors(self) -> tuple[Tensor, ...]:
        """All of them, in the order of the fields."""
        first = (self.value, self.skip, self.pooled, self.places, self.pooled_statistics)
        return (*first, *self.depthwise, *self.convolved, *self.statistics)

    @classmethod
    def of(cls, leaving: Leaving, tensors: Sequence[Tensor]) -> Made:
        """Of `tensors`."""
        pairs = ((tensors[k], tensors[k + 1]) for k in range(5, len(tensors), 2))
        return cls(leaving, *tensors[:5], *pairs)  # type: ignore[arg-type]


def weights_of(weights: Tensor, leaving: Leaving, second: bool, channels: int) -> tuple[list[Tensor], list[Tensor]]:
    """Depthwise [channels, 1, size, size] and pointwise [channels, channels, 1, 1] weights of a stage's blocks."""
    *depthwise, pointwise = weights.split(leaving.sizes(second, channels))
    kinds = leaving.stage(second)
    each = [part.view(-1, channels, 1, size_of(k), size_of(k)) for part, k in zip(depthwise, kinds, strict=True)]
    return [own for part in each for own in part], list(pointwise.view(-1, channels, channels, 1, 1))


def separable(
    x: Tensor, given: Tensor | None, weights: Tensor, mixture: Tensor | None, leaving: Leaving
) -> tuple[Tensor, Tensor, Tensor]:
    """ReLU, depthwise and pointwise convolutions of a stage: what they made, and the statistics of the latter.

    The second stage takes what the first has convolved, a block each, and the statistics `given` to normalise it. Of a
    `mixture` that is one architecture, kernels leave out what has weight 0; there, it is not made.
    """
    second = given is not None
    x = x if second else x[None]
    depthwise, pointwise = weights_of(weights, leaving, second, x.shape[-1])
    made, kinds = [], leaving.stage(second)
    for block, (d, p) in enumerate(zip(depthwise, pointwise, strict=True)):
        kind = kinds[block // leaving.targets]
        value = _first(positive(x, given, block if second else 0))
        between = F.conv2d(value, d, **_geometry(kind, leaving.strided(second)), groups=len(d))
        made.append((_last(between), _last(F.conv2d(between, p))))
    if not made:
        nothing = x.new_zeros(0, *x.shape[1:])
        return nothing, nothing, statistics(nothing)
    between, convolved = (torch.stack(parts) for parts in zip(*made, strict=True))
    return between, convolved, statistics(convolved)


def pooled(x: Tensor, stride: int) -> tuple[Tensor, Tensor, Tensor]:
    """The largest and the mean of 3x3 pixels of those that there are; which was the largest; the statistics of both."""
    images = _first(x)
    largest, numbers = F.max_pool2d(images, 3, stride, 1, return_indices=True)
    mean = average_around(images, stride)
    height, width = images.shape[2:]
    rows = numbers // width - torch.arange(0, height, stride, device=x.device)[:, None] + 1
    columns = numbers % width - torch.arange(0, width, stride, device=x.device) + 1
    both = torch.stack([_last(largest), _last(mean)])
    return both, _last(rows * 3 + columns).to(torch.int8), statistics(both)


def statistics(images: Tensor) -> Tensor:
    """Of every block's channels."""
    if not len(images):
        return images.new_zeros(3, 0, images.shape[-1])
    variance, mean = torch.var_mean(images, (1, 2, 3), correction=0)
    count = images[0].numel() // images.shape[-1]
    return torch.stack([mean, (variance + BatchNorm.epsilon).rsqrt(), variance * (count / max(count - 1, 1))])


def node(number: int, made: Sequence[Made], mixture: Tensor) -> Tensor:
    """A node: of every value before it, what the edge from there makes of it, by weight."""
    found = None
    for own in made:
        weights, t = mixture[edge(number, own.leaving.source)], number - own.leaving.first
        for column, part in enumerate(_arriving(own, t)):
            found = weights[column] * part if found is None else found + weights[column] * part
    assert found is not None
    return found


def sums(made: Made, gradients: Tensor, mixture: Tensor | None, of_mixture: bool) -> Tensor:
    """Sums over examples and pixels that the gradients of edges are made from, [targets, 1 + columns, channels].

    Of the gradient g of the node that an edge leads to, and of g times what arrives there, column by column. Where the
    gradient of the mixture is not asked for, kernels leave out the row of skips; of one architecture (`mixture`), what
    has weight 0.
    """
    rows = []
    for t in range(made.leaving.targets):
        g = gradients[..., made.leaving.first + t, :]
        rows.append(torch.stack([g.sum((0, 1, 2)), *((g * part).sum((0, 1, 2)) for part in _arriving(made, t))]))
    return torch.stack(rows)


def pointwise_gradient(
    made: Made,
    second: bool,
    gradients: Tensor,
    summed: Tensor,
    within: tuple[Tensor, Tensor] | None,
    weights: Tensor,
    mixture: Tensor,
    of_weights: bool,
    chosen: bool,
) -> tuple[Tensor, Tensor | None]:
    """Gradients of what the depthwise convolutions of a stage made, and of the pointwise weights.

    Through batch norm: w f (g - mean of g - z^ mean of g z^). What a second convolution follows has its gradient, and
    the sums of that, `within`; all else has that of a node.
    """
    leaving, channels = made.leaving, made.value.shape[-1]
    between, convolved, known = made.depthwise[second], made.convolved[second], made.statistics[second]
    _, pointwise = weights_of(weights, leaving, second, channels)
    found, by_weights = [], []
    for block, p in enumerate(pointwise):
        k, t = divmod(block, leaving.targets)
        if not second and leaving.kinds[k] in SEPARABLE:
            assert within is not None
            g, scale, (sum_g, sum_gz) = within[0][block], weights.new_ones(()), within[1][block]
        else:
            node, column = leaving.first + t, FIRST + k
            g, scale = gradients[..., node, :], mixture[edge(node, leaving.source), column]
            sum_g, sum_gz = summed[t, 0], summed[t, 1 + column]
        count = g.numel() // channels
        z = normalised(convolved, known, block)
        by_convolved = scale * known[1, block] * (g - sum_g / count - z * sum_gz / count)
        found.append(by_convolved @ p[..., 0, 0])
        by_weights.append(by_convolved.flatten(0, 2).T @ between[block].flatten(0, 2))
    if not found:
        return torch.zeros_like(between), weights.new_zeros(0) if of_weights else None
    return torch.stack(found), torch.stack(by_weights).flatten() if of_weights else None


def depthwise_weight_gradient(made: Made, second: bool, by_depthwise: Tensor, mixture: Tensor, chosen: bool) -> Tensor:
    """The gradient of the depthwise weights of a stage, one after another."""
    x, known = (made.convolved[0], made.statistics[0]) if second else (made.value[None], None)
    found, leaving = [], made.leaving
    for block, g in enumerate(by_depthwise):
        kind = leaving.stage(second)[block // leaving.targets]
        value = _first(positive(x, known, block if second else 0))
        weight = value.new_zeros(value.shape[1], 1, size_of(kind), size_of(kind))
        found.append(_depthwise_back(g, value, weight, kind, leaving.strided(second), 1).flatten())
    return torch.cat(found) if found else by_depthwise.new_zeros(0)


def inner_gradient(
    made: Made, by_depthwise: Tensor, weights: Tensor, mixture: Tensor, chosen: bool
) -> tuple[Tensor, Tensor]:
    """Gradients of what the first of two convolutions made, normalised, and their sums [blocks, 2, channels].

    The sums are of the gradient g and of g times what was normalised.
    """
    found, rows, known = [], [], made.statistics[0]
    depthwise, _ = weights_of(weights, made.leaving, True, made.value.shape[-1])
    for block, (g, d) in enumerate(zip(by_depthwise, depthwise, strict=True)):
        kind = made.leaving.inner[block // made.leaving.targets]
        z = normalised(made.convolved[0], known, block)
        own = _last(_depthwise_back(g, _first(z), d, kind, 1, 0)) * (z > 0)
        found.append(own)
        rows.append(torch.stack([own.sum((0, 1, 2)), (own * z).sum((0, 1, 2))]))
    if not found:
        return torch.zeros_like(by_depthwise), made.value.new_zeros(0, 2, made.value.shape[-1])
    return torch.stack(found), torch.stack(rows)


def pool_gradient(made: Made, gradients: Tensor, summed: Tensor, mixture: Tensor) -> Tensor:
    """Gradients of both pooled images, through batch norm, from all nodes."""
    found, leaving, count = [], made.leaving, made.pooled[0].numel() // made.pooled.shape[-1]
    for column in (MAX, MEAN):
        z, total = normalised(made.pooled, made.pooled_statistics, column), torch.zeros_like(made.pooled[0])
        for t in range(leaving.targets):
            node = leaving.first + t
            g = gradients[..., node, :]
            centred = g - summed[t, 0] / count - z * summed[t, 1 + column] / count
            total = total + mixture[edge(node, leaving.source), column] * centred
        found.append(made.pooled_statistics[1, column] * total)
    return torch.stack(found)


def value_gradient(
    made: Made,
    by_depthwise: Tensor,
    by_pooled: Tensor,
    gradients: Tensor,
    weights: Tensor,
    mixture: Tensor,
    chosen: bool,
    into: Tensor,
) -> None:
    """The gradient of a value: through convolutions of its positive part, pooling and skips.

    It is written `into` an image, of nodes on top of what stands there. Of skips that halve an image it is made
    elsewhere.
    """
    leaving, x = made.leaving, made.value
    depthwise, _ = weights_of(weights, leaving, False, x.shape[-1])
    images, found = _first(x), torch.zeros_like(x)
    for block, (g, d) in enumerate(zip(by_depthwise, depthwise, strict=True)):
        kind = leaving.kinds[block // leaving.targets]
        found = found + _last(_depthwise_back(g, images, d, kind, leaving.stride, 0))
    found = found * (x > 0)
    with torch.enable_grad():
        again = images.detach().requires_grad_()
        mean = average_around(again, leaving.stride)
        largest = F.max_pool2d(again, 3, leaving.stride, 1)
        [spread] = torch.autograd.grad([largest, mean], again, [_first(part) for part in by_pooled])
    found = found + _last(spread)
    if leaving.stride == 1:
        for t in range(leaving.targets):
            node = leaving.first + t
            found = found + mixture[edge(node, leaving.source), SKIP] * gradients[..., node, :]
    into.copy_(found + into if leaving.source >= INPUTS else found)


def positive(x: Tensor, given: Tensor | None, block: int) -> Tensor:
    """What a stage convolves: the positive part of a block, normalised where statistics are given."""
    return (x[block] if given is None else normalised(x, given, block)).relu()


def normalised(images: Tensor, known: Tensor, block: int) -> Tensor:
    """A block by its own statistics."""
    return (images[block] - known[0, block]) * known[1, block]


def _arriving(made: Made, t: int) -> list[Tensor]:
    """What arrives at the t-th node, in the order of columns."""
    leaving = made.leaving
    found = [normalised(made.pooled, made.pooled_statistics, column) for column in (MAX, MEAN)]
    found.append(made.skip[t if len(made.skip) > 1 else 0])
    for k in range(len(leaving.kinds)):
        second = leaving.kinds[k] in SEPARABLE
        found.append(normalised(made.convolved[second], made.statistics[second], k * leaving.targets + t))
    return found


def _depthwise_back(g: Tensor, x: Tensor, weight: Tensor, kind: int, stride: int, of: int) -> Tensor:
    """The gradient of the input (0) or of the weights (1) of a depthwise convolution."""
    pads = [dilation_of(kind) * (size_of(kind) // 2)] * 2
    asked = [of == 0, of == 1, False]
    found = torch.ops.aten.convolution_backward(
        _first(g), x, weight, None, [stride] * 2, pads, [dilation_of(kind)] * 2, False, [0, 0], len(weight), asked
    )
    own: Tensor = found[of]
    return own


def _geometry(kind: int, stride: int) -> dict[str, Any]:
    dilation = dilation_of(kind)
    return {"stride": stride, "padding": dilation * (size_of(kind) // 2), "dilation": dilation}


def _first(x: Tensor) -> Tensor:
    """Channels before pixels, as torch wants them."""
    return x.permute(0, 3, 1, 2)


def _last(x: Tensor) -> Tensor:
    return x.permute(0, 2, 3, 1)
