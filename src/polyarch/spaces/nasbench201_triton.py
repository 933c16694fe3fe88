"""The operations of `nasbench201_merged` as kernels for a CUDA device.

Channels lie last in memory, so that an image is rows of pixels with their channels side by side. A program has a tile
of pixels and the C channels of a node (for statistics, some of the channels that were convolved). What has weight 0 is
not loaded. Sums are in single precision, also where images are not, and in a fixed order: every program writes those of
its tile, and another kernel adds them up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import torch
import triton
import triton.language as tl
from torch import Tensor

from polyarch.spaces.layers import BatchNorm
from polyarch.spaces.nasbench201_plain import kinds_of

ELEMENTS = 2048
"""Of a tile."""
TILES = 256
"""That a sum is made of, where there are enough pixels."""
LAST = tl.constexpr(3)
"""The last node."""
# Batches of other sizes, and weights that lie anywhere, are not worth kernels of their own.
_kernel = partial(
    triton.jit,
    do_not_specialize=["pixels", "height", "width", "count"],
    do_not_specialize_on_alignment=["weights"],
)


@triton.jit
def _tile(pixels, C: tl.constexpr, CHANNELS: tl.constexpr, TILE: tl.constexpr):
    """Where the program's tile begins; its pixels, their channels and which of them there are; offsets from there."""
    start = tl.program_id(0) * TILE
    pixel = tl.arange(0, TILE)
    c = tl.arange(0, CHANNELS)
    left = (pixels - start).to(tl.int32)
    there = (pixel[:, None] < left) & (c[None, :] < C)
    return start, pixel, c, left, there


@triton.jit
def _used(pixel, c, left, weight, C: tl.constexpr):
    """Which pixels and channels of a tile must be loaded: none where the weight is 0."""
    return (pixel[:, None] < tl.where(weight == 0, 0, left)) & (c[None, :] < C)


@triton.jit
def _share(row, column, height, width):
    """One over how many pixels there are around one, itself among them."""
    rows = tl.minimum(row + 1, height - 1) - tl.maximum(row - 1, 0) + 1
    columns = tl.minimum(column + 1, width - 1) - tl.maximum(column - 1, 0) + 1
    return 1.0 / tl.maximum(rows * columns, 1).to(tl.float32)


@triton.jit
def _around(x, start, pixel, c, used, height, width, C: tl.constexpr, BACK: tl.constexpr):
    """The mean over 3x3 pixels, of those that there are; or what the means around hand back to a pixel."""
    p = start + pixel
    column, row = p % width, (p // width) % height
    total = tl.zeros(used.shape, tl.float32)
    own = x + start.to(tl.int64) * C
    for k in tl.static_range(9):
        down, right = k // 3 - 1, k % 3 - 1
        y, at = row + down, column + right
        inside = (y >= 0) & (y < height) & (at >= 0) & (at < width)
        offset = (pixel + down * width + right)[:, None] * C + c[None, :]
        value = tl.load(own + offset, mask=used & inside[:, None], other=0).to(tl.float32)
        total += value * _share(y, at, height, width)[:, None] if BACK else value
    return total if BACK else total * _share(row, column, height, width)[:, None]


@_kernel
def _tile_statistics(out, z, pixels, K, TILE: tl.constexpr, CHANNELS: tl.constexpr):
    start = tl.program_id(0) * TILE
    pixel = tl.arange(0, TILE)
    c = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    there = (pixel[:, None] < (pixels - start).to(tl.int32)) & (c[None, :] < K)
    first = tl.load(z + c, mask=c < K, other=0).to(tl.float32)  # near the mean, so that squares stay small
    value = tl.load(z + start.to(tl.int64) * K + pixel[:, None] * K + c[None, :], mask=there, other=0).to(tl.float32)
    off = tl.where(there, value - first[None, :], 0.0)
    own = out + tl.program_id(0) * 2 * K + c
    tl.store(own, tl.sum(off, 0), mask=c < K)
    tl.store(own + K, tl.sum(off * off, 0), mask=c < K)


@triton.jit
def _sum_of_tiles(tiles, column, there, count, COLUMNS, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """The sums of all tiles, added up for some columns."""
    total = tl.zeros([ROWS, WIDTH], tl.float32)
    first = 0
    while first < count:
        row = first + tl.arange(0, ROWS)
        place = tiles + row[:, None] * COLUMNS + column[None, :]
        total += tl.load(place, mask=(row[:, None] < count) & there[None, :], other=0)
        first += ROWS
    return tl.sum(total, 0)


@_kernel
def _statistics(
    out, tiles, z, count, pixels, K, EPSILON: tl.constexpr, ROWS: tl.constexpr, CHANNELS: tl.constexpr
):  # fmt: skip
    c = tl.program_id(0) * CHANNELS + tl.arange(0, CHANNELS)
    off = _sum_of_tiles(tiles, c, c < K, count, 2 * K, ROWS, CHANNELS) / pixels
    squares = _sum_of_tiles(tiles + K, c, c < K, count, 2 * K, ROWS, CHANNELS) / pixels
    var = tl.maximum(squares - off * off, 0.0)
    first = tl.load(z + c, mask=c < K, other=0).to(tl.float32)
    tl.store(out + c, first + off, mask=c < K)
    tl.store(out + K + c, 1 / tl.sqrt(var + EPSILON), mask=c < K)
    tl.store(out + 2 * K + c, var * (pixels / tl.maximum(pixels - 1, 1)), mask=c < K)


@_kernel
def _sums(out, tiles, count, COLUMNS, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    column = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    there = column < COLUMNS
    tl.store(out + column, _sum_of_tiles(tiles, column, there, count, COLUMNS, ROWS, WIDTH), mask=there)


@_kernel
def _node(
    out, positive, values, convolved, means, factors, weights, pixels, height, width,
    T: tl.constexpr, KINDS: tl.constexpr, C: tl.constexpr, CHANNELS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    start, pixel, c, left, there = _tile(pixels, C, CHANNELS, TILE)
    begin = start.to(tl.int64) * C
    place = pixel[:, None] * C + c[None, :]
    total = tl.zeros([TILE, CHANNELS], tl.float32)
    for s in tl.static_range(T):
        own = weights + (T * (T - 1) // 2 + s) * (3 + KINDS)
        skip, pool = tl.load(own + 1), tl.load(own + 2 + KINDS)
        for k in tl.static_range(KINDS):
            weight = tl.load(own + 2 + k)
            at = (KINDS * (T - s - 1) + k) * C + c
            m = tl.load(means[s] + at, mask=c < C, other=0)
            f = tl.load(factors[s] + at, mask=c < C, other=0) * weight
            wide = KINDS * (LAST - s)
            z = convolved[s] + begin * wide + pixel[:, None] * (wide * C) + at[None, :]
            total += f[None, :] * (
                tl.load(z, mask=_used(pixel, c, left, weight, C), other=0).to(tl.float32) - m[None, :]
            )
        x = tl.load(values[s] + begin + place, mask=_used(pixel, c, left, skip, C), other=0).to(tl.float32)
        used = _used(pixel, c, left, pool, C)
        total += skip * x + pool * _around(values[s], start, pixel, c, used, height, width, C, False)
    tl.store(out + begin + place, total, mask=there)
    tl.store(positive + begin + place, tl.where(total < 0, 0.0, total), mask=there)  # what is no number stays none


@_kernel
def _tile_sums(
    out, gradient, values, convolved, means, factors, pixels, height, width,
    T: tl.constexpr, KINDS: tl.constexpr, OF_VALUES: tl.constexpr,
    C: tl.constexpr, CHANNELS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    start, pixel, c, _, there = _tile(pixels, C, CHANNELS, TILE)
    begin = start.to(tl.int64) * C
    place = pixel[:, None] * C + c[None, :]
    rows: tl.constexpr = 1 + KINDS * T + 2 * T * OF_VALUES
    own = out + tl.program_id(0) * rows * C + c
    g = tl.load(gradient + begin + place, mask=there, other=0).to(tl.float32)
    tl.store(own, tl.sum(g, 0), mask=c < C)
    for s in tl.static_range(T):
        for k in tl.static_range(KINDS):
            at = (KINDS * (T - s - 1) + k) * C + c
            m = tl.load(means[s] + at, mask=c < C, other=0)
            f = tl.load(factors[s] + at, mask=c < C, other=0)
            wide = KINDS * (LAST - s)
            z = convolved[s] + begin * wide + pixel[:, None] * (wide * C) + at[None, :]
            found = tl.sum(g * (tl.load(z, mask=there, other=0).to(tl.float32) - m[None, :]), 0)
            tl.store(own + (1 + KINDS * s + k) * C, f * found, mask=c < C)
        if OF_VALUES:
            x = tl.load(values[s] + begin + place, mask=there, other=0).to(tl.float32)
            pooled = _around(values[s], start, pixel, c, there, height, width, C, False)
            tl.store(own + (1 + KINDS * T + 2 * s) * C, tl.sum(g * x, 0), mask=c < C)
            tl.store(own + (2 + KINDS * T + 2 * s) * C, tl.sum(g * pooled, 0), mask=c < C)


@_kernel
def _convolved_gradient(
    out, z, mean, factor, gradients, summed, weights, pixels,
    S: tl.constexpr, KINDS: tl.constexpr, C: tl.constexpr, CHANNELS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    start, pixel, c, left, there = _tile(pixels, C, CHANNELS, TILE)
    begin = start.to(tl.int64) * C
    wide = KINDS * (LAST - S)
    for later in tl.static_range(LAST - S):
        T = S + 1 + later
        g = tl.load(gradients[later] + begin + pixel[:, None] * C + c[None, :], mask=there, other=0).to(tl.float32)
        g -= (tl.load(summed[later] + c, mask=c < C, other=0) / pixels)[None, :]
        for k in tl.static_range(KINDS):
            weight = tl.load(weights + (T * (T - 1) // 2 + S) * (3 + KINDS) + 2 + k)
            at = (KINDS * later + k) * C + c
            m = tl.load(mean + at, mask=c < C, other=0)
            f = tl.load(factor + at, mask=c < C, other=0)
            mean_gz = tl.load(summed[later] + (1 + KINDS * S + k) * C + c, mask=c < C, other=0) / pixels
            place = begin * wide + pixel[:, None] * (wide * C) + at[None, :]
            value = tl.load(z + place, mask=_used(pixel, c, left, weight, C), other=0).to(tl.float32)
            found = (weight * f)[None, :] * (g - (value - m[None, :]) * (f * mean_gz)[None, :])
            tl.store(out + place, found, mask=there)


@_kernel
def _value_gradient(
    out, value, by_convolutions, gradients, weights, pixels, height, width,
    S: tl.constexpr, KINDS: tl.constexpr, C: tl.constexpr, CHANNELS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    start, pixel, c, left, there = _tile(pixels, C, CHANNELS, TILE)
    begin = start.to(tl.int64) * C
    place = begin + pixel[:, None] * C + c[None, :]
    positive = tl.load(value + place, mask=there, other=0) > 0
    total = tl.load(by_convolutions + place, mask=there & positive, other=0).to(tl.float32)
    for later in tl.static_range(LAST - S):
        T = S + 1 + later
        own = weights + (T * (T - 1) // 2 + S) * (3 + KINDS)
        skip, pool = tl.load(own + 1), tl.load(own + 2 + KINDS)
        g = tl.load(gradients[later] + place, mask=_used(pixel, c, left, skip, C), other=0).to(tl.float32)
        used = _used(pixel, c, left, pool, C)
        total += skip * g + pool * _around(gradients[later], start, pixel, c, used, height, width, C, True)
    tl.store(out + place, total, mask=there)


def statistics(convolved: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """See `nasbench201_plain.statistics`."""
    channels = convolved.shape[1]
    pixels, width = convolved.numel() // channels, 32
    tile = _tile_of(pixels, width)
    count, blocks = triton.cdiv(pixels, tile), triton.cdiv(channels, width)
    tiles, found = _single(convolved, count, 2, channels), _single(convolved, 3, channels)
    _tile_statistics[(count, blocks)](tiles, convolved, pixels, channels, TILE=tile, CHANNELS=width)
    _statistics[(triton.cdiv(channels, 16),)](
        found,
        tiles,
        convolved,
        count,
        pixels,
        channels,
        EPSILON=BatchNorm.epsilon,
        ROWS=TILES,
        CHANNELS=16,
        num_warps=8,
    )
    mean, factor, variance = found.unbind()
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
    images = tuple(values), tuple(convolved), tuple(means), tuple(factors)
    _node[grid](out, positive, *images, weights, *sizes, T=len(values), KINDS=kinds_of(weights), **blocks)
    return out, positive


def sums(
    gradient: Tensor,
    values: Sequence[Tensor],
    convolved: Sequence[Tensor],
    means: Sequence[Tensor],
    factors: Sequence[Tensor],
    kinds: int,
    of_values: bool,
) -> Tensor:
    """See `nasbench201_plain.sums`."""
    target, channels = len(values), gradient.shape[1]
    _, sizes, blocks = _tiled(gradient)
    tile = _tile_of(sizes[0], blocks["CHANNELS"])
    count, rows = triton.cdiv(sizes[0], tile), 1 + kinds * target + 2 * target * of_values
    tiles, found = _single(gradient, count, rows * channels), _single(gradient, rows, channels)
    images = gradient, tuple(values), tuple(convolved), tuple(means), tuple(factors)
    blocks |= {"TILE": tile}
    _tile_sums[(count,)](tiles, *images, *sizes, T=target, KINDS=kinds, OF_VALUES=of_values, **blocks)
    _sums[(triton.cdiv(rows * channels, 16),)](found, tiles, count, rows * channels, ROWS=TILES, WIDTH=16, num_warps=8)
    return found


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
    given = tuple(gradients[target] for target in later), tuple(summed[target] for target in later)
    _convolved_gradient[grid](
        out, convolved, mean, factor, *given, weights, sizes[0], S=source, KINDS=kinds_of(weights), **blocks
    )
    return out


def value_gradient(
    source: int, value: Tensor, by_convolutions: Tensor, gradients: Mapping[int, Tensor], weights: Tensor
) -> Tensor:
    """See `nasbench201_plain.value_gradient`."""
    out, later = torch.empty_like(value), tuple(gradients[target] for target in sorted(gradients))
    grid, sizes, blocks = _tiled(value)
    by_convolutions = by_convolutions.contiguous(memory_format=torch.channels_last)
    _value_gradient[grid](
        out, value, by_convolutions, later, weights, *sizes, S=source, KINDS=kinds_of(weights), **blocks
    )
    return out


def _single(images: Tensor, *shape: int) -> Tensor:
    return torch.empty(shape, dtype=torch.float32, device=images.device)


def _tile_of(pixels: int, channels: int) -> int:
    """Pixels of a tile that is summed over, so that there are not many more tiles than `TILES`."""
    least, most = max(ELEMENTS // 2 // channels, 1), 4 * ELEMENTS // channels
    return min(max(triton.next_power_of_2(triton.cdiv(pixels, TILES)), least), most)


def _tiled(image: Tensor) -> tuple[tuple[int], tuple[int, int, int], dict[str, int]]:
    """Programs, (pixels, height, width), and the sizes of a tile."""
    _, channels, height, width = image.shape
    pixels, padded = image.numel() // channels, triton.next_power_of_2(channels)
    tile = max(ELEMENTS // padded, 1)
    return (triton.cdiv(pixels, tile),), (pixels, height, width), {"C": channels, "CHANNELS": padded, "TILE": tile}
