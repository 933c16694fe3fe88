"""The operations of `nasbench201_merged` written out in torch, for any device and precision; kernels must equal them.

Images are [batch, channels, h, w]. Convolutions Z_s of a node s have a block of C channels for every edge that leaves it
and both kernel sizes: block 2 (t - s - 1) for the 1x1 convolution of the edge to node t, and the next for its 3x3 one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

SKIP, CONVOLUTIONS, POOL = 1, (2, 3), 4
"""Options of an edge; option 0 is nothing."""
EPSILON = 1e-5


def edge(target: int, source: int) -> int:
    """The row of an edge in the weights of a mixture."""
    return target * (target - 1) // 2 + source


def block(convolved: Tensor, channels: int, target: int, source: int, k: int) -> Tensor:
    """What one convolution of an edge made."""
    first = (2 * (target - source - 1) + k) * channels
    return convolved[:, first : first + channels]


def pooled(x: Tensor) -> Tensor:
    """The mean over 3x3 pixels, of those that there are."""
    return F.avg_pool2d(x, 3, 1, 1, count_include_pad=False)


def statistics(convolved: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, 1 / sqrt(variance + epsilon) and unbiased variance of every channel."""
    variance, mean = torch.var_mean(convolved, (0, 2, 3), correction=0)
    count = convolved.numel() // convolved.shape[1]
    return mean, (variance + EPSILON).rsqrt(), variance * (count / max(count - 1, 1))


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
        found = found + own[SKIP] * value + own[POOL] * pooled(value)
        for k, option in enumerate(CONVOLUTIONS):
            found = found + own[option] * _normalised(convolved, means, factors, channels, target, source, k)
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
    rows = [gradient]
    for source in range(target):
        rows += [gradient * _normalised(convolved, means, factors, channels, target, source, k) for k in range(2)]
    if of_values:
        rows += [gradient * part for value in values for part in (value, pooled(value))]
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
        for k, option in enumerate(CONVOLUTIONS):
            own = [block(part, channels, target, source, k) for part in (convolved, mean[None], factor[None])]
            z, m, f = own[0], *(part.view(1, -1, 1, 1) for part in own[1:])
            mean_g, mean_gz = (row.view(1, -1, 1, 1) / count for row in summed[target][[0, 1 + 2 * source + k]])
            parts.append(weights[edge(target, source), option] * f * (gradient - mean_g - (z - m) * f * mean_gz))
    return torch.cat(parts, 1)


def value_gradient(
    source: int, value: Tensor, by_convolutions: Tensor, gradients: Mapping[int, Tensor], weights: Tensor
) -> Tensor:
    """The gradient of x_s: through the convolutions of its positive part, and through skips and pooling."""
    found = by_convolutions * (value > 0)
    counts = pooled_counts(value)
    for target, gradient in gradients.items():
        own = weights[edge(target, source)]
        spread = 9 * F.avg_pool2d(gradient / counts, 3, 1, 1)  # zeros around count: a plain sum over neighbours
        found = found + own[SKIP] * gradient + own[POOL] * spread
    return found


def pooled_counts(x: Tensor) -> Tensor:
    """How many pixels each mean of `pooled` is of, [h, w]."""
    height, width = (
        torch.full((size,), 3.0, dtype=x.dtype, device=x.device).index_add(
            0, torch.tensor([0, size - 1], device=x.device), torch.full((2,), -1.0, dtype=x.dtype, device=x.device)
        )
        for size in x.shape[2:]
    )
    return height[:, None] * width


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
