"""The operations of `nasbench201_merged` written out in torch, for any device and precision; kernels must equal them.

Images are [batch, channels, h, w]. Weights of a mixture are [edges, options]: of nothing, of a skip, of both kinds of
convolutions, and of pooling. Convolutions Z_s of a node s have a block of C channels for every edge that leaves it
and both kinds: block 2 (t - s - 1) + k is of kind k on the edge to node t.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from polyarch.spaces.layers import BatchNorm, average_around

SKIP, FIRST, POOL = 1, 2, 4
"""Columns of weights; `FIRST` is of the first kind of convolutions."""
KINDS = 2
"""Of convolutions: 1x1 and 3x3."""


def edge(target: int, source: int) -> int:
    """The row of an edge in the weights of a mixture."""
    return target * (target - 1) // 2 + source


def block(convolved: Tensor, channels: int, target: int, source: int, k: int) -> Tensor:
    """What one convolution of an edge made."""
    first = (KINDS * (target - source - 1) + k) * channels
    return convolved[:, first : first + channels]


def statistics(convolved: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, 1 / sqrt(variance + epsilon) and unbiased variance of every channel."""
    variance, mean = torch.var_mean(convolved, (0, 2, 3), correction=0)
    count = convolved.numel() // convolved.shape[1]
    return mean, (variance + BatchNorm.epsilon).rsqrt(), variance * (count / max(count - 1, 1))


def node(
    values: Sequence[Tensor],
    convolved: Sequence[Tensor],
    means: Sequence[Tensor],
    factors: Sequence[Tensor],
    weights: Tensor,
) -> tuple[Tensor, Tensor]:
    """The next node, and its positive part; everything else is of the nodes so far.

    x_t = sum_s w_skip x_s + w_pool pool(x_s) + sum_k w_k (z_sk - mean) factor
    """
    target, channels = len(values), values[0].shape[1]
    found = torch.zeros_like(values[0])
    for source, value in enumerate(values):
        own = weights[edge(target, source)]
        found = found + own[SKIP] * value + own[POOL] * average_around(value)
        for k in range(KINDS):
            z = _normalised(convolved, means, factors, channels, target, source, k)
            found = found + own[FIRST + k] * z
    return found, found.relu()


def sums(
    gradient: Tensor,
    values: Sequence[Tensor],
    convolved: Sequence[Tensor],
    means: Sequence[Tensor],
    factors: Sequence[Tensor],
    of_values: bool,
) -> Tensor:
    """Sums over examples and pixels [rows, channels] that the gradients of a node are made from.

    The first row is of the gradient g itself; then for every source of g times what its convolutions made, normalised;
    then, where they are asked for, for every source of g times its value and times its pooled value.
    """
    target, channels = len(values), values[0].shape[1]
    made = [
        _normalised(convolved, means, factors, channels, target, source, k)
        for source in range(target)
        for k in range(KINDS)
    ]
    rows = [gradient, *(gradient * z for z in made)]
    if of_values:
        rows += [gradient * part for value in values for part in (value, average_around(value))]
    return torch.stack([row.sum((0, 2, 3)) for row in rows])


def convolved_gradient(
    source: int,
    convolved: Tensor,
    mean: Tensor,
    factor: Tensor,
    gradients: Mapping[int, Tensor],
    summed: Mapping[int, Tensor],
    weights: Tensor,
) -> Tensor:
    """The gradient of Z_s, through batch norm: w factor (g - mean of g - z^ mean of g z^)."""
    parts = []
    for target, gradient in sorted(gradients.items()):
        channels, count = gradient.shape[1], gradient.numel() // gradient.shape[1]
        for k in range(KINDS):
            own = [block(part, channels, target, source, k) for part in (convolved, mean[None], factor[None])]
            z, m, f = own[0], *(part.view(1, -1, 1, 1) for part in own[1:])
            mean_g, mean_gz = (row.view(1, -1, 1, 1) / count for row in summed[target][[0, 1 + KINDS * source + k]])
            weight = weights[edge(target, source), FIRST + k]
            parts.append(weight * f * (gradient - mean_g - (z - m) * f * mean_gz))
    return torch.cat(parts, 1)


def value_gradient(
    source: int, value: Tensor, by_convolutions: Tensor, gradients: Mapping[int, Tensor], weights: Tensor
) -> Tensor:
    """The gradient of x_s: through the convolutions of its positive part, and through skips and pooling."""
    found = by_convolutions * (value > 0)
    counts = _added_around(torch.ones_like(value[:1, :1]))  # how many pixels each mean of `average_around` is of
    for target, gradient in gradients.items():
        own = weights[edge(target, source)]
        spread = _added_around(gradient / counts)
        found = found + own[SKIP] * gradient + own[POOL] * spread
    return found


def _added_around(x: Tensor) -> Tensor:
    """The sum over 3x3 pixels."""
    return F.avg_pool2d(x, 3, 1, 1, divisor_override=1)


def _normalised(
    convolved: Sequence[Tensor],
    means: Sequence[Tensor],
    factors: Sequence[Tensor],
    channels: int,
    target: int,
    source: int,
    k: int,
) -> Tensor:
    own = (part[source] for part in (convolved, [m[None] for m in means], [f[None] for f in factors]))
    z, m, f = (block(part, channels, target, source, k) for part in own)
    return (z - m.view(1, -1, 1, 1)) * f.view(1, -1, 1, 1)
