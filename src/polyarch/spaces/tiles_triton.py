"""What kernels of cell networks have in common: tiles of images, their statistics, and sums of many tiles.

Channels lie last in memory, so that an image is rows of pixels with their channels side by side. A program has a tile
of pixels. Sums are in single precision, also where images are not, and in a fixed order: every program writes those of
its tile, and another kernel adds them up.
"""

from __future__ import annotations

from functools import partial

import torch
import triton
import triton.language as tl
from torch import Tensor

from polyarch.spaces.layers import BatchNorm

ELEMENTS = 2048
"""Of a tile."""
TILES = 256
"""That a sum is made of, where there are enough pixels."""
# Batches of other sizes, and weights that lie anywhere, are not worth kernels of their own.
kernel = partial(
    triton.jit,
    do_not_specialize=["pixels", "height", "width", "count"],
    do_not_specialize_on_alignment=["weights", "operations"],
)


@triton.jit
def tile(pixels, C: tl.constexpr, CHANNELS: tl.constexpr, TILE: tl.constexpr):
    """Where the program's tile begins; its pixels, their channels and which of them there are; offsets from there."""
    start = tl.program_id(0) * TILE
    pixel = tl.arange(0, TILE)
    c = tl.arange(0, CHANNELS)
    left = (pixels - start).to(tl.int32)
    there = (pixel[:, None] < left) & (c[None, :] < C)
    return start, pixel, c, left, there


@triton.jit
def used_of(pixel, c, left, weight, C: tl.constexpr):
    """Which pixels and channels of a tile must be loaded: none where the weight is 0."""
    return (pixel[:, None] < tl.where(weight == 0, 0, left)) & (c[None, :] < C)


@triton.jit
def _share(row, column, height, width):
    """One over how many pixels there are around one, itself among them."""
    rows = tl.minimum(row + 1, height - 1) - tl.maximum(row - 1, 0) + 1
    columns = tl.minimum(column + 1, width - 1) - tl.maximum(column - 1, 0) + 1
    return 1.0 / tl.maximum(rows * columns, 1).to(tl.float32)


@triton.jit
def around(x, start, pixel, c, used, height, width, C: tl.constexpr, BACK: tl.constexpr):
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


@kernel
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
def sum_of_tiles(tiles, column, there, count, COLUMNS, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """The sums of all tiles, added up for some columns."""
    total = tl.zeros([ROWS, WIDTH], tl.float32)
    first = 0
    while first < count:
        row = first + tl.arange(0, ROWS)
        place = tiles + row[:, None] * COLUMNS + column[None, :]
        total += tl.load(place, mask=(row[:, None] < count) & there[None, :], other=0)
        first += ROWS
    return tl.sum(total, 0)


@kernel
def _statistics(
    out, tiles, z, count, pixels, K, EPSILON: tl.constexpr, ROWS: tl.constexpr, CHANNELS: tl.constexpr
):  # fmt: skip
    c = tl.program_id(0) * CHANNELS + tl.arange(0, CHANNELS)
    off = sum_of_tiles(tiles, c, c < K, count, 2 * K, ROWS, CHANNELS) / pixels
    squares = sum_of_tiles(tiles + K, c, c < K, count, 2 * K, ROWS, CHANNELS) / pixels
    var = tl.maximum(squares - off * off, 0.0)
    first = tl.load(z + c, mask=c < K, other=0).to(tl.float32)
    tl.store(out + c, first + off, mask=c < K)
    tl.store(out + K + c, 1 / tl.sqrt(var + EPSILON), mask=c < K)
    tl.store(out + 2 * K + c, var * (pixels / tl.maximum(pixels - 1, 1)), mask=c < K)


@kernel
def _sums(out, tiles, count, COLUMNS, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    column = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    there = column < COLUMNS
    tl.store(out + column, sum_of_tiles(tiles, column, there, count, COLUMNS, ROWS, WIDTH), mask=there)


def statistics(convolved: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """See `nasbench201_plain.statistics`."""
    channels = convolved.shape[1]
    pixels, width = convolved.numel() // channels, 32
    size = tile_of(pixels, width)
    count, blocks = triton.cdiv(pixels, size), triton.cdiv(channels, width)
    tiles, found = room(convolved, count, 2, channels), room(convolved, 3, channels)
    _tile_statistics[(count, blocks)](tiles, convolved, pixels, channels, TILE=size, CHANNELS=width)
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


def added_up(tiles: Tensor) -> Tensor:
    """The sums of all tiles [tiles, rows, channels], added up."""
    count, rows, channels = tiles.shape
    found = room(tiles, rows, channels)
    _sums[(triton.cdiv(rows * channels, 16),)](found, tiles, count, rows * channels, ROWS=TILES, WIDTH=16, num_warps=8)
    return found


def room(images: Tensor, *shape: int) -> Tensor:
    """For sums, beside images."""
    return torch.empty(shape, dtype=torch.float32, device=images.device)


def tile_of(pixels: int, channels: int) -> int:
    """Pixels of a tile that is summed over, so that there are not many more tiles than `TILES`."""
    least, most = max(ELEMENTS // 2 // channels, 1), 4 * ELEMENTS // channels
    return min(max(triton.next_power_of_2(triton.cdiv(pixels, TILES)), least), most)


def tiled(image: Tensor) -> tuple[tuple[int], tuple[int, int, int], dict[str, int]]:
    """Programs, (pixels, height, width), and the sizes of a tile."""
    _, channels, height, width = image.shape
    pixels, padded = image.numel() // channels, triton.next_power_of_2(channels)
    size = max(ELEMENTS // padded, 1)
    return (triton.cdiv(pixels, size),), (pixels, height, width), {"C": channels, "CHANNELS": padded, "TILE": size}
