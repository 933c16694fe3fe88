"""The operations of `nasbench201_merged` as kernels for a CUDA device.

Channels lie last in memory, so that an image is rows of pixels with their channels side by side. A program has a tile of
pixels and the C channels of a node (for statistics, some of the channels that were convolved). What has weight 0 is not
loaded. Sums are in single precision, also where images are not, and in a fixed order: every program writes those of its
tile, and what follows adds them up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from polyarch.spaces.nasbench201_plain import EPSILON

ELEMENTS = 2048
"""Of a tile."""
ROWS = 64
"""Of tiles' sums that are added at once."""
LAST: tl.constexpr = tl.constexpr(3)
"""The last node."""


@triton.jit
def _place(pixels, C: tl.constexpr, CHANNELS: tl.constexpr, TILE: tl.constexpr):
    """Pixels of the program's tile, channels, and which of them there are."""
    p = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    c = tl.arange(0, CHANNELS)
    return p, c, (p[:, None] < pixels) & (c[None, :] < C)


@triton.jit
def _where_used(p, c, weight, pixels, C: tl.constexpr):
    """Which pixels and channels of a tile must be loaded: none where the weight is 0."""
    return (p[:, None] < tl.where(weight == 0, 0, pixels)) & (c[None, :] < C)


@triton.jit
def _neighbours(x, p, c, there, height, width, C: tl.constexpr, OF_MEANS: tl.constexpr):
    """The mean over 3x3 pixels of those that there are; or, `OF_MEANS`, what such means around hand back to a pixel."""
    column, row = p % width, (p // width) % height
    total = tl.zeros(there.shape, tl.float32)
    for k in tl.static_range(9):
        down, right = k // 3 - 1, k % 3 - 1
        y, at = row + down, column + right
        inside = (y >= 0) & (y < height) & (at >= 0) & (at < width)
        value = tl.load(
            x + (p + down * width + right)[:, None] * C + c[None, :], mask=there & inside[:, None], other=0
        ).to(tl.float32)
        if OF_MEANS:
            value = value / _count(y, at, height, width)[:, None]
        total += value
    if not OF_MEANS:
        total = total / _count(row, column, height, width)[:, None]
    return total


@triton.jit
def _count(row, column, height, width):
    """How many pixels there are around one, itself among them."""
    rows = tl.minimum(row + 1, height - 1) - tl.maximum(row - 1, 0) + 1
    columns = tl.minimum(column + 1, width - 1) - tl.maximum(column - 1, 0) + 1
    return tl.maximum(rows * columns, 1).to(tl.float32)


@triton.jit
def _tile_statistics(out, z, pixels, K, TILE: tl.constexpr, CHANNELS: tl.constexpr):
    p = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    c = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    there = (p[:, None] < pixels) & (c[None, :] < K)
    first = tl.load(z + c, mask=c < K, other=0).to(tl.float32)  # near the mean, so that squares stay small
    value = tl.load(z + p[:, None] * K + c[None, :], mask=there, other=0).to(tl.float32)
    off = tl.where(there, value - first[None, :], 0.0)
    own = out + tl.program_id(0) * 2 * K + c
    tl.store(own, tl.sum(off, 0), mask=c < K)
    tl.store(own + K, tl.sum(off * off, 0), mask=c < K)


@triton.jit
def _statistics(
    mean,
    factor,
    variance,
    tiles,
    z,
    count,
    pixels,
    K,
    EPSILON: tl.constexpr,
    ROWS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    c = tl.program_id(0) * CHANNELS + tl.arange(0, CHANNELS)
    total = tl.zeros([ROWS, CHANNELS], tl.float32)
    squares = tl.zeros([ROWS, CHANNELS], tl.float32)
    start = 0
    while start < count:
        row = start + tl.arange(0, ROWS)
        own = tiles + row[:, None] * 2 * K + c[None, :]
        there = (row[:, None] < count) & (c[None, :] < K)
        total += tl.load(own, mask=there, other=0)
        squares += tl.load(own + K, mask=there, other=0)
        start += ROWS
    off = tl.sum(total, 0) / pixels
    var = tl.maximum(tl.sum(squares, 0) / pixels - off * off, 0.0)
    first = tl.load(z + c, mask=c < K, other=0).to(tl.float32)
    tl.store(mean + c, first + off, mask=c < K)
    tl.store(factor + c, 1 / tl.sqrt(var + EPSILON), mask=c < K)
    tl.store(variance + c, var * (pixels / tl.maximum(pixels - 1, 1)), mask=c < K)


@triton.jit
def _node(
    out,
    positive,
    values,
    convolved,
    means,
    factors,
    weights,
    pixels,
    height,
    width,
    T: tl.constexpr,
    C: tl.constexpr,
    CHANNELS: tl.constexpr,
    TILE: tl.constexpr,
):
    p, c, there = _place(pixels, C, CHANNELS, TILE)
    total = tl.zeros([TILE, CHANNELS], tl.float32)
    for s in tl.static_range(T):
        own = weights + (T * (T - 1) // 2 + s) * 5
        for k in tl.static_range(2):
            weight = tl.load(own + 2 + k)
            at = (2 * (T - s - 1) + k) * C + c
            m = tl.load(means[s] + at, mask=c < C, other=0)
            f = tl.load(factors[s] + at, mask=c < C, other=0)
            place = convolved[s] + p[:, None] * (2 * (LAST - s) * C) + at[None, :]
            z = tl.load(place, mask=_where_used(p, c, weight, pixels, C), other=0).to(tl.float32)
            total += (weight * f)[None, :] * (z - m[None, :])
        skip, pool = tl.load(own + 1), tl.load(own + 4)
        skipped, around = _where_used(p, c, skip, pixels, C), _where_used(p, c, pool, pixels, C)
        x = tl.load(values[s] + p[:, None] * C + c[None, :], mask=skipped, other=0).to(tl.float32)
        total += skip * x + pool * _neighbours(values[s], p, c, around, height, width, C, False)
    place = p[:, None] * C + c[None, :]
    tl.store(out + place, total, mask=there)
    tl.store(positive + place, tl.where(total < 0, 0.0, total), mask=there)  # what is no number stays none


@triton.jit
def _tile_sums(
    out,
    gradient,
    values,
    convolved,
    means,
    factors,
    pixels,
    height,
    width,
    T: tl.constexpr,
    OF_VALUES: tl.constexpr,
    C: tl.constexpr,
    CHANNELS: tl.constexpr,
    TILE: tl.constexpr,
):
    p, c, there = _place(pixels, C, CHANNELS, TILE)
    rows: tl.constexpr = 1 + 2 * T + 2 * T * OF_VALUES
    own = out + tl.program_id(0) * rows * C + c
    place = p[:, None] * C + c[None, :]
    g = tl.load(gradient + place, mask=there, other=0).to(tl.float32)
    tl.store(own, tl.sum(g, 0), mask=c < C)
    for s in tl.static_range(T):
        for k in tl.static_range(2):
            at = (2 * (T - s - 1) + k) * C + c
            m = tl.load(means[s] + at, mask=c < C, other=0)
            f = tl.load(factors[s] + at, mask=c < C, other=0)
            z = tl.load(convolved[s] + p[:, None] * (2 * (LAST - s) * C) + at[None, :], mask=there, other=0)
            found = f * tl.sum(g * (z.to(tl.float32) - m[None, :]), 0)
            tl.store(own + (1 + 2 * s + k) * C, found, mask=c < C)
        if OF_VALUES:
            x = tl.load(values[s] + place, mask=there, other=0).to(tl.float32)
            around = _neighbours(values[s], p, c, there, height, width, C, False)
            tl.store(own + (1 + 2 * T + 2 * s) * C, tl.sum(g * x, 0), mask=c < C)
            tl.store(own + (2 + 2 * T + 2 * s) * C, tl.sum(g * around, 0), mask=c < C)


@triton.jit
def _convolved_gradient(
    out,
    z,
    mean,
    factor,
    gradients,
    summed,
    weights,
    pixels,
    S: tl.constexpr,
    C: tl.constexpr,
    CHANNELS: tl.constexpr,
    TILE: tl.constexpr,
):
    p, c, there = _place(pixels, C, CHANNELS, TILE)
    for later in tl.static_range(LAST - S):
        T = S + 1 + later
        g = tl.load(gradients[later] + p[:, None] * C + c[None, :], mask=there, other=0).to(tl.float32)
        g -= (tl.load(summed[later] + c, mask=c < C, other=0) / pixels)[None, :]
        for k in tl.static_range(2):
            weight = tl.load(weights + (T * (T - 1) // 2 + S) * 5 + 2 + k)
            at = (2 * later + k) * C + c
            m = tl.load(mean + at, mask=c < C, other=0)
            f = tl.load(factor + at, mask=c < C, other=0)
            mean_gz = tl.load(summed[later] + (1 + 2 * S + k) * C + c, mask=c < C, other=0) / pixels
            place = p[:, None] * (2 * (LAST - S) * C) + at[None, :]
            value = tl.load(z + place, mask=_where_used(p, c, weight, pixels, C), other=0).to(tl.float32)
            found = (weight * f)[None, :] * (g - (value - m[None, :]) * (f * mean_gz)[None, :])
            tl.store(out + place, found, mask=there)


@triton.jit
def _value_gradient(
    out,
    value,
    by_convolutions,
    gradients,
    weights,
    pixels,
    height,
    width,
    S: tl.constexpr,
    C: tl.constexpr,
    CHANNELS: tl.constexpr,
    TILE: tl.constexpr,
):
    p, c, there = _place(pixels, C, CHANNELS, TILE)
    place = p[:, None] * C + c[None, :]
    positive = tl.load(value + place, mask=there, other=0) > 0
    total = tl.load(by_convolutions + place, mask=there & positive, other=0).to(tl.float32)
    for later in tl.static_range(LAST - S):
        T = S + 1 + later
        own = weights + (T * (T - 1) // 2 + S) * 5
        skip, pool = tl.load(own + 1), tl.load(own + 4)
        skipped, around = _where_used(p, c, skip, pixels, C), _where_used(p, c, pool, pixels, C)
        g = tl.load(gradients[later] + place, mask=skipped, other=0).to(tl.float32)
        total += skip * g + pool * _neighbours(gradients[later], p, c, around, height, width, C, True)
    tl.store(out + place, total, mask=there)


def statistics(convolved: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """See `nasbench201_plain.statistics`."""
    pixels, channels = convolved.numel() // convolved.shape[1], convolved.shape[1]
    width = 32
    tile = ELEMENTS // width
    count = triton.cdiv(pixels, tile)
    tiles, found = _sums_like(convolved, count, 2, channels), _sums_like(convolved, 3, channels)
    blocks = triton.cdiv(channels, width)
    _tile_statistics[(count, blocks)](tiles, convolved, pixels, channels, TILE=tile, CHANNELS=width)
    mean, factor, variance = found.unbind()
    _statistics[(blocks,)](
        mean, factor, variance, tiles, convolved, count, pixels, channels, EPSILON=EPSILON, ROWS=ROWS, CHANNELS=width
    )
    return mean, factor, variance


def node(
    values: Sequence[Tensor],
    convolved: Sequence[Tensor],
    means: Sequence[Tensor],
    factors: Sequence[Tensor],
    weights: Tensor,
) -> tuple[Tensor, Tensor]:
    """See `nasbench201_plain.node`."""
    out, positive = torch.empty_like(values[0]), torch.empty_like(values[0])
    grid, sizes, blocks = _tiled(out)
    _node[grid](
        *(out, positive, tuple(values), tuple(convolved), tuple(means), tuple(factors), weights, *sizes),
        T=len(values),
        **blocks,
    )
    return out, positive


def sums(
    gradient: Tensor,
    values: Sequence[Tensor],
    convolved: Sequence[Tensor],
    means: Sequence[Tensor],
    factors: Sequence[Tensor],
    of_values: bool,
) -> Tensor:
    """See `nasbench201_plain.sums`."""
    grid, sizes, blocks = _tiled(gradient)
    target = len(values)
    tiles = _sums_like(gradient, *grid, 1 + 2 * target + 2 * target * of_values, gradient.shape[1])
    _tile_sums[grid](
        *(tiles, gradient, tuple(values), tuple(convolved), tuple(means), tuple(factors), *sizes),
        T=target,
        OF_VALUES=of_values,
        **blocks,
    )
    return tiles.sum(0)


def convolved_gradient(
    source: int,
    convolved: Tensor,
    mean: Tensor,
    factor: Tensor,
    gradients: Mapping[int, Tensor],
    summed: Mapping[int, Tensor],
    weights: Tensor,
) -> Tensor:
    """See `nasbench201_plain.convolved_gradient`."""
    out, later = torch.empty_like(convolved), sorted(gradients)
    grid, sizes, blocks = _tiled(gradients[later[0]])
    rows = tuple(summed[target] for target in later)
    _convolved_gradient[grid](
        *(out, convolved, mean, factor, tuple(gradients[target] for target in later), rows, weights, sizes[0]),
        S=source,
        **blocks,
    )
    return out


def value_gradient(
    source: int, value: Tensor, by_convolutions: Tensor, gradients: Mapping[int, Tensor], weights: Tensor
) -> Tensor:
    """See `nasbench201_plain.value_gradient`."""
    out, later = torch.empty_like(value), tuple(gradients[target] for target in sorted(gradients))
    grid, sizes, blocks = _tiled(value)
    by_convolutions = by_convolutions.contiguous(memory_format=torch.channels_last)
    _value_gradient[grid](*(out, value, by_convolutions, later, weights, *sizes), S=source, **blocks)
    return out


def _sums_like(images: Tensor, *shape: int) -> Tensor:
    return torch.empty(shape, dtype=torch.float32, device=images.device)


def _tiled(image: Tensor) -> tuple[tuple[int], tuple[int, int, int], dict[str, int]]:
    """Programs, (pixels, height, width), and the sizes of a tile."""
    _, channels, height, width = image.shape
    pixels, padded = image.numel() // channels, triton.next_power_of_2(channels)
    tile = max(ELEMENTS // padded, 1)
    return (triton.cdiv(pixels, tile),), (pixels, height, width), {"C": channels, "CHANNELS": padded, "TILE": tile}
