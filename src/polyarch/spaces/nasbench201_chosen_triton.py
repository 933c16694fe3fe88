"""A NAS-Bench-201 cell with one operation on every edge as kernels for a CUDA device; see `nasbench201_chosen_plain`.

A program looks up which operation is chosen on its edge, and does nothing more where it has nothing to do: the cost is
that of what is chosen, though the host does not know it. A convolution is a sum of products of matrices, one for each
of its *taps*: pixels that are so far down and to the right, by the weights for them. With g_t = dL/dx_t and sums over
all n examples and pixels, the gradient of what was convolved on an edge,

    dL/dz_st = factor (g_t - sum g_t / n - z^_st sum g_t z^_st / n),    z^_st = (z_st - mean) factor

is made where it is read and never stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from polyarch.spaces.layers import BatchNorm
from polyarch.spaces.nasbench201 import EDGES, NODES
from polyarch.spaces.nasbench201_chosen_plain import LARGE, POOL, SKIP, SMALL
from polyarch.spaces.tiles_triton import around, kernel, room, sum_of_tiles

ELEMENTS = 2048
"""Pixels by channels of a tile that is convolved or summed over."""
OUTPUTS = 32
"""Most channels of a tile that is convolved: of wide cells, which have few pixels, several programs share a tile."""
INPUTS = 64
"""Most channels that one product of matrices adds up."""
LEAST = 16
"""Fewest rows and columns of a matrix."""
CHUNKS = 2048
"""Sums that the gradient of a weight is made of, times channels: wider kernels are more work for each, and larger."""
ROWS = 256
"""Sums of tiles that are put together at a time."""

_SKIP, _SMALL, _LARGE, _POOL = (tl.constexpr(option) for option in (SKIP, SMALL, LARGE, POOL))
_EDGES, _LAST = tl.constexpr(len(EDGES)), tl.constexpr(NODES - 1)


@triton.jit
def _convolves(operation):
    return (operation == _SMALL) | (operation == _LARGE)


@triton.jit
def _inside(start, pixel, down, right, pixels, height, width):
    """Which pixels of a tile have a neighbour so far down and to the right."""
    p = start + pixel
    row, column = (p // width) % height + down, p % width + right
    return (p < pixels) & (row >= 0) & (row < height) & (column >= 0) & (column < width)


@triton.jit
def _positive(x, start, pixel, c, down, right, pixels, height, width, C: tl.constexpr):
    """The positive part of the pixels so far down and to the right of those of a tile; zeros where the image ends."""
    inside = _inside(start, pixel, down, right, pixels, height, width)
    place = x + start.to(tl.int64) * C + (pixel + down * width + right)[:, None] * C + c[None, :]
    value = tl.load(place, mask=inside[:, None] & (c[None, :] < C), other=0)
    return tl.where(value < 0, tl.zeros_like(value), value)  # what is no number stays none


@triton.jit
def _batch_norm(statistics, slopes, edge, c, C: tl.constexpr):
    """Of an edge: mean and factor, and what the gradient of what was convolved is off by, as `_slopes` has it."""
    own = edge * C + c
    mean = tl.load(statistics + own, mask=c < C, other=0)
    factor = tl.load(statistics + _EDGES * C + own, mask=c < C, other=0)
    off = tl.load(slopes + 2 * edge * C + c, mask=c < C, other=0)
    slope = tl.load(slopes + (2 * edge + 1) * C + c, mask=c < C, other=0)
    return mean, factor, off, slope


@triton.jit
def _by_convolved(
    gradient, z, norm, start, pixel, c, down, right, pixels, height, width, C: tl.constexpr
):  # fmt: skip
    """The gradient of what was convolved on an edge, so far down and to the right; zeros where the image ends."""
    mean, factor, off, slope = norm
    inside = _inside(start, pixel, down, right, pixels, height, width)[:, None] & (c[None, :] < C)
    place = start.to(tl.int64) * C + (pixel + down * width + right)[:, None] * C + c[None, :]
    g = tl.load(gradient + place, mask=inside, other=0).to(tl.float32)
    value = tl.load(z + place, mask=inside, other=0).to(tl.float32)
    found = factor[None, :] * g - off[None, :] - slope[None, :] * (value - mean[None, :])
    return tl.where(inside, found, 0.0).to(z.dtype.element_ty)


@triton.jit
def _matrix(weights, edge, tap, i, o, C: tl.constexpr):
    """The weights of a tap, from inputs to outputs."""
    place = weights + (edge * 10 + tap) * (C * C) + i[:, None] * C + o[None, :]
    return tl.load(place, mask=(i[:, None] < C) & (o[None, :] < C), other=0)


# -- forward -----------------------------------------------------------------------------------------------------------


@kernel
def _convolve(
    convolved, tiles, x, weights, operations, pixels, height, width,
    S: tl.constexpr, C: tl.constexpr, TILE: tl.constexpr, INPUTS: tl.constexpr, OUTPUTS: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    T = S + 1 + tl.program_id(1)
    edge = T * (T - 1) // 2 + S
    operation = tl.load(operations + edge)
    if _convolves(operation):
        start = tl.program_id(0) * TILE
        pixel = tl.arange(0, TILE)
        o = tl.program_id(2) * OUTPUTS + tl.arange(0, OUTPUTS)
        total = tl.zeros([TILE, OUTPUTS], tl.float32)
        for first in tl.static_range(0, C, INPUTS):
            i = first + tl.arange(0, INPUTS)
            if operation == _LARGE:
                for tap in range(9):
                    value = _positive(x, start, pixel, i, tap // 3 - 1, tap % 3 - 1, pixels, height, width, C)
                    total = tl.dot(value, _matrix(weights, edge, tap, i, o, C), total, input_precision=PRECISION)
            else:
                value = _positive(x, start, pixel, i, 0, 0, pixels, height, width, C)
                total = tl.dot(value, _matrix(weights, edge, 9, i, o, C), total, input_precision=PRECISION)
        left = (pixels - start).to(tl.int32)
        there = (pixel[:, None] < left) & (o[None, :] < C)
        found = total.to(convolved.dtype.element_ty)
        place = (edge.to(tl.int64) * pixels + start) * C + pixel[:, None] * C + o[None, :]
        tl.store(convolved + place, found, mask=there)
        # Of a tile its mean and squares around that, so that a mean far from zero costs no precision.
        value = found.to(tl.float32)
        mean = tl.sum(tl.where(there, value, 0.0), 0) / tl.minimum(left, TILE).to(tl.float32)
        off = tl.where(there, value - mean[None, :], 0.0)
        own = tiles + ((edge * tl.num_programs(0) + tl.program_id(0)) * 2) * C + o
        tl.store(own, mean, mask=o < C)
        tl.store(own + C, tl.sum(off * off, 0), mask=o < C)


@kernel
def _statistics(
    out, tiles, operations, count, pixels,
    S: tl.constexpr, C: tl.constexpr, TILE: tl.constexpr, EPSILON: tl.constexpr,
    ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Puts tiles together by Chan's formula: the mean of all, and squares of each and of how far it is off that."""
    T = S + 1 + tl.program_id(0)
    edge = T * (T - 1) // 2 + S
    c = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    rows = tl.where(_convolves(tl.load(operations + edge)), count, 0)
    own = tiles + edge * count * 2 * C + c[None, :]
    means = tl.zeros([ROWS, WIDTH], tl.float32)
    first = 0
    while first < rows:
        row = first + tl.arange(0, ROWS)[:, None]
        size = tl.minimum(pixels - row * TILE, TILE).to(tl.float32)
        used = (row < rows) & (c[None, :] < C)
        means += tl.where(used, tl.load(own + row * 2 * C, mask=used, other=0) * size, 0.0)
        first += ROWS
    mean = tl.sum(means, 0) / pixels
    squares = tl.zeros([ROWS, WIDTH], tl.float32)
    first = 0
    while first < rows:
        row = first + tl.arange(0, ROWS)[:, None]
        size = tl.minimum(pixels - row * TILE, TILE).to(tl.float32)
        used = (row < rows) & (c[None, :] < C)
        off = tl.load(own + row * 2 * C, mask=used, other=0) - mean[None, :]
        squares += tl.where(used, tl.load(own + (row * 2 + 1) * C, mask=used, other=0) + off * off * size, 0.0)
        first += ROWS
    variance = tl.sum(squares, 0)
    place = out + edge * C + c
    tl.store(place, mean, mask=c < C)
    tl.store(place + _EDGES * C, 1 / tl.sqrt(variance / pixels + EPSILON), mask=c < C)
    tl.store(place + 2 * _EDGES * C, variance / tl.maximum(pixels - 1, 1), mask=c < C)


@kernel
def _node(
    out, values, convolved, statistics, operations, pixels, height, width,
    T: tl.constexpr, C: tl.constexpr, TILE: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    start = tl.program_id(0) * TILE
    pixel = tl.arange(0, TILE)
    c = tl.arange(0, CHANNELS)
    there = (pixel[:, None] < (pixels - start).to(tl.int32)) & (c[None, :] < C)
    place = start.to(tl.int64) * C + pixel[:, None] * C + c[None, :]
    total = tl.zeros([TILE, CHANNELS], tl.float32)
    for s in tl.static_range(T):
        edge = T * (T - 1) // 2 + s
        operation = tl.load(operations + edge)
        if operation == _SKIP:
            total += tl.load(values[s] + place, mask=there, other=0).to(tl.float32)
        elif operation == _POOL:
            total += around(values[s], start, pixel, c, there, height, width, C, False)
        elif _convolves(operation):
            mean = tl.load(statistics + edge * C + c, mask=c < C, other=0)
            factor = tl.load(statistics + (_EDGES + edge) * C + c, mask=c < C, other=0)
            z = tl.load(convolved + pixels.to(tl.int64) * (edge * C) + place, mask=there, other=0).to(tl.float32)
            total += (z - mean[None, :]) * factor[None, :]
    tl.store(out + place, total, mask=there)


# -- backward ----------------------------------------------------------------------------------------------------------


@triton.jit
def _store_sums(
    tiles, g, convolved, statistics, operations, place, there, c, pixels, T: tl.constexpr, C: tl.constexpr
):  # fmt: skip
    """Of a tile the sum of g_t, and for every edge into t that convolves the sum of g_t z^_st."""
    own = tiles + tl.program_id(0) * ((1 + T) * C) + c
    tl.store(own, tl.sum(g, 0), mask=c < C)
    for s in tl.static_range(T):
        edge = T * (T - 1) // 2 + s
        if _convolves(tl.load(operations + edge)):
            mean = tl.load(statistics + edge * C + c, mask=c < C, other=0)
            factor = tl.load(statistics + (_EDGES + edge) * C + c, mask=c < C, other=0)
            z = tl.load(convolved + pixels.to(tl.int64) * (edge * C) + place, mask=there, other=0).to(tl.float32)
            off = tl.where(there, z - mean[None, :], 0.0)
            tl.store(own + (1 + s) * C, factor * tl.sum(g * off, 0), mask=c < C)


@kernel
def _tile_sums(
    tiles, gradient, convolved, statistics, operations, pixels,
    T: tl.constexpr, C: tl.constexpr, TILE: tl.constexpr, OUTPUTS: tl.constexpr,
):  # fmt: skip
    start = tl.program_id(0) * TILE
    pixel = tl.arange(0, TILE)
    c = tl.program_id(1) * OUTPUTS + tl.arange(0, OUTPUTS)
    there = (pixel[:, None] < (pixels - start).to(tl.int32)) & (c[None, :] < C)
    place = start.to(tl.int64) * C + pixel[:, None] * C + c[None, :]
    g = tl.load(gradient + place, mask=there, other=0).to(tl.float32)
    _store_sums(tiles, g, convolved, statistics, operations, place, there, c, pixels, T, C)


@kernel
def _slopes(
    out, tiles, statistics, operations, count, pixels,
    T: tl.constexpr, C: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Puts the sums of tiles together: for every edge into t factor sum g / n, and factor^2 sum g z^ / n."""
    s = tl.program_id(0)
    edge = T * (T - 1) // 2 + s
    if _convolves(tl.load(operations + edge)):
        c = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
        there = c < C
        mean_g = sum_of_tiles(tiles, c, there, count, (1 + T) * C, ROWS, WIDTH) / pixels
        mean_gz = sum_of_tiles(tiles + (1 + s) * C, c, there, count, (1 + T) * C, ROWS, WIDTH) / pixels
        factor = tl.load(statistics + (_EDGES + edge) * C + c, mask=there, other=0)
        tl.store(out + 2 * edge * C + c, factor * mean_g, mask=there)
        tl.store(out + (2 * edge + 1) * C + c, factor * factor * mean_gz, mask=there)


@kernel
def _value_gradient(
    out, tiles, x, gradients, convolved, statistics, slopes, weights, operations, pixels, height, width,
    S: tl.constexpr, C: tl.constexpr, TILE: tl.constexpr, INPUTS: tl.constexpr, OUTPUTS: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    start = tl.program_id(0) * TILE
    pixel = tl.arange(0, TILE)
    c = tl.program_id(1) * OUTPUTS + tl.arange(0, OUTPUTS)
    there = (pixel[:, None] < (pixels - start).to(tl.int32)) & (c[None, :] < C)
    place = start.to(tl.int64) * C + pixel[:, None] * C + c[None, :]
    total = tl.zeros([TILE, OUTPUTS], tl.float32)
    for later in tl.static_range(_LAST - S):
        edge = (S + 1 + later) * (S + later) // 2 + S
        operation = tl.load(operations + edge)
        if _convolves(operation):
            z = convolved + pixels.to(tl.int64) * (edge * C)
            for first in tl.static_range(0, C, INPUTS):
                o = first + tl.arange(0, INPUTS)
                norm = _batch_norm(statistics, slopes, edge, o, C)
                if operation == _LARGE:
                    for tap in range(9):
                        by_convolved = _by_convolved(
                            gradients[later], z, norm, start, pixel, o, 1 - tap // 3, 1 - tap % 3,
                            pixels, height, width, C,
                        )  # fmt: skip
                        back = tl.trans(_matrix(weights, edge, tap, c, o, C))
                        total = tl.dot(by_convolved, back, total, input_precision=PRECISION)
                else:
                    by_convolved = _by_convolved(
                        gradients[later], z, norm, start, pixel, o, 0, 0, pixels, height, width, C
                    )  # fmt: skip
                    back = tl.trans(_matrix(weights, edge, 9, c, o, C))
                    total = tl.dot(by_convolved, back, total, input_precision=PRECISION)
    total = tl.where(tl.load(x + place, mask=there, other=0) > 0, total, 0.0)
    for later in tl.static_range(_LAST - S):
        operation = tl.load(operations + (S + 1 + later) * (S + later) // 2 + S)
        if operation == _SKIP:
            total += tl.load(gradients[later] + place, mask=there, other=0).to(tl.float32)
        elif operation == _POOL:
            total += around(gradients[later], start, pixel, c, there, height, width, C, True)
    found = total.to(out.dtype.element_ty)
    tl.store(out + place, found, mask=there)
    if S > 0:  # the cell's input is the last node of the cell before, whose sums are not of this cell
        g = tl.where(there, found.to(tl.float32), 0.0)
        _store_sums(tiles, g, convolved, statistics, operations, place, there, c, pixels, S, C)


@kernel
def _chunk_weight_gradient(
    chunks, x, gradients, convolved, statistics, slopes, operations, pixels, height, width,
    C: tl.constexpr, COUNT: tl.constexpr, TILE: tl.constexpr, INPUTS: tl.constexpr, OUTPUTS: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    edge, row = tl.program_id(1) // 3, tl.program_id(1) % 3  # a program has three taps side by side
    operation = tl.load(operations + edge)
    if (operation == _LARGE) | ((operation == _SMALL) & (row == 1)):
        T = 1 + (edge >= 1).to(tl.int32) + (edge >= 3).to(tl.int32)
        s = edge - T * (T - 1) // 2
        value = x[0]
        if s == 1:
            value = x[1]
        if s == 2:
            value = x[2]
        gradient = gradients[0]
        if T == 2:
            gradient = gradients[1]
        if T == 3:
            gradient = gradients[2]
        z = convolved + edge.to(tl.int64) * pixels * C
        blocks: tl.constexpr = tl.cdiv(C, OUTPUTS)
        i = (tl.program_id(2) // blocks) * INPUTS + tl.arange(0, INPUTS)
        o = (tl.program_id(2) % blocks) * OUTPUTS + tl.arange(0, OUTPUTS)
        norm = _batch_norm(statistics, slopes, edge, o, C)
        pixel = tl.arange(0, TILE)
        begin = tl.program_id(0) * (COUNT * TILE)
        left = tl.zeros([INPUTS, OUTPUTS], tl.float32)
        middle = tl.zeros([INPUTS, OUTPUTS], tl.float32)
        right = tl.zeros([INPUTS, OUTPUTS], tl.float32)
        for k in range(COUNT):
            start = begin + k * TILE
            g = _by_convolved(gradient, z, norm, start, pixel, o, 0, 0, pixels, height, width, C)
            own = _positive(value, start, pixel, i, row - 1, 0, pixels, height, width, C)
            middle = tl.dot(tl.trans(own), g, middle, input_precision=PRECISION)
            # A 1x1 kernel has no neighbours, but a branch in here would cost more than they do.
            own = _positive(value, start, pixel, i, row - 1, -1, pixels, height, width, C)
            left = tl.dot(tl.trans(own), g, left, input_precision=PRECISION)
            own = _positive(value, start, pixel, i, row - 1, 1, pixels, height, width, C)
            right = tl.dot(tl.trans(own), g, right, input_precision=PRECISION)
        tap = tl.where(operation == _SMALL, 9, 3 * row + 1)
        there = (i[:, None] < C) & (o[None, :] < C)
        large = there & (operation == _LARGE)
        place = chunks + ((tl.program_id(0) * _EDGES + edge) * 10 + tap).to(tl.int64) * (C * C)
        place += i[:, None] * C + o[None, :]
        tl.store(place, middle, mask=there)
        tl.store(place - C * C, left, mask=large)
        tl.store(place + C * C, right, mask=large)


@kernel
def _weight_gradient(out, chunks, operations, count, C: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    operation, tap = tl.load(operations + tl.program_id(0) // 10), tl.program_id(0) % 10
    used = ((operation == _LARGE) & (tap < 9)) | ((operation == _SMALL) & (tap == 9))
    own = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    column = tl.program_id(0) * (C * C) + own
    there = own < C * C
    found = sum_of_tiles(chunks, column, there, tl.where(used, count, 0), _EDGES * 10 * C * C, ROWS, WIDTH)
    tl.store(out + column, found, mask=there)


# ---------------------------------------------------------------------------------------------------------------------


def cell(x: Tensor, weights: Tensor, operations: Tensor) -> tuple[list[Tensor], Tensor, Tensor]:
    """All nodes, what was convolved on every edge, and its statistics; see `nasbench201_chosen_plain.cell`.

    Where no convolution is chosen, what is convolved is not written.
    """
    sizes, blocks = _blocked(x)
    pixels, channels, tile = sizes[0], blocks["C"], blocks["TILE"]
    count, outputs = triton.cdiv(pixels, tile), triton.cdiv(channels, blocks["OUTPUTS"])
    convolved = torch.empty((len(EDGES), pixels, channels), dtype=x.dtype, device=x.device)
    tiles, statistics = room(x, len(EDGES), count, 2, channels), room(x, 3, len(EDGES), channels)
    padded = triton.next_power_of_2(channels)
    across = max(ELEMENTS // padded, 1)
    values = [x]
    for source in range(NODES - 1):
        leaving = NODES - 1 - source
        _convolve[(count, leaving, outputs)](
            convolved, tiles, values[-1], weights, operations, *sizes, S=source, **blocks, PRECISION=_precision()
        )
        merged = {"C": channels, "TILE": tile, "EPSILON": BatchNorm.epsilon, "ROWS": ROWS, "WIDTH": 16, "num_warps": 8}
        _statistics[(leaving, triton.cdiv(channels, 16))](
            statistics, tiles, operations, count, pixels, S=source, **merged
        )
        node = torch.empty_like(x)
        _node[(triton.cdiv(pixels, across),)](
            node, tuple(values), convolved, statistics, operations, *sizes,
            T=source + 1, C=channels, TILE=across, CHANNELS=padded,
        )  # fmt: skip
        values.append(node)
    return values, convolved, statistics


def cell_gradient(
    gradient: Tensor,
    values: Sequence[Tensor],
    convolved: Tensor,
    statistics: Tensor,
    weights: Tensor,
    operations: Tensor,
    of_weights: bool,
) -> tuple[Tensor, Tensor | None]:
    """The gradient of the cell's input, and where it is asked for that of weights, by that of the last node.

    `values` are the nodes before the last; weights that are not chosen have a gradient of zeros.
    """
    sizes, blocks = _blocked(gradient)
    pixels, channels = sizes[0], blocks["C"]
    count, outputs = triton.cdiv(pixels, blocks["TILE"]), triton.cdiv(channels, blocks["OUTPUTS"])
    slopes, last = room(gradient, len(EDGES), 2, channels), NODES - 1
    tiles = room(gradient, count, 1 + last, channels)
    summed = {name: blocks[name] for name in ("C", "TILE", "OUTPUTS")}
    _tile_sums[(count, outputs)](tiles, gradient, convolved, statistics, operations, pixels, T=last, **summed)
    gradients = {last: gradient}
    for source in reversed(range(last)):
        target = source + 1
        _slopes[(target, triton.cdiv(channels, 16))](
            slopes, tiles, statistics, operations, count, pixels,
            T=target, C=channels, ROWS=ROWS, WIDTH=16, num_warps=8,
        )  # fmt: skip
        tiles, gradients[source] = room(gradient, count, 1 + source, channels), torch.empty_like(gradient)
        later = tuple(gradients[target] for target in range(source + 1, NODES))
        _value_gradient[(count, outputs)](
            gradients[source], tiles, values[source], later, convolved, statistics, slopes, weights, operations,
            *sizes, S=source, **blocks, PRECISION=_precision(),
        )  # fmt: skip
    by_weights = None
    if of_weights:
        by_weights = _gradient_of_weights(values, gradients, convolved, statistics, slopes, weights, operations)
    return gradients[0], by_weights


def _gradient_of_weights(
    values: Sequence[Tensor],
    gradients: Mapping[int, Tensor],
    convolved: Tensor,
    statistics: Tensor,
    slopes: Tensor,
    weights: Tensor,
    operations: Tensor,
) -> Tensor:
    """Of all edges at once, when the gradients of all nodes are known."""
    sizes, blocks = _blocked(values[0])
    channels, tile = blocks["C"], blocks["TILE"]
    each = triton.cdiv(triton.cdiv(sizes[0], max(CHUNKS // channels, 1)), tile)
    count = triton.cdiv(sizes[0], each * tile)
    chunks = room(values[0], count, len(EDGES), 10, channels, channels)
    parts = triton.cdiv(channels, blocks["INPUTS"]) * triton.cdiv(channels, blocks["OUTPUTS"])
    into = tuple(gradients[target] for target in range(1, NODES))
    _chunk_weight_gradient[(count, 3 * len(EDGES), parts)](
        chunks, tuple(values), into, convolved, statistics, slopes, operations, *sizes,
        COUNT=each, **blocks, PRECISION=_precision(),
    )  # fmt: skip
    out = torch.empty_like(weights)
    rows = min(triton.next_power_of_2(count), ROWS)
    _weight_gradient[(10 * len(EDGES), triton.cdiv(channels * channels, 64))](
        out, chunks, operations, count, C=channels, ROWS=rows, WIDTH=64
    )
    return out


def _blocked(image: Tensor) -> tuple[tuple[int, int, int], dict[str, Any]]:
    """(pixels, height, width), and the sizes of the matrices that convolve an image."""
    batch, channels, height, width = image.shape
    padded = max(triton.next_power_of_2(channels), LEAST)
    inputs, outputs = min(padded, INPUTS), min(padded, OUTPUTS)
    tile = max(ELEMENTS // padded, LEAST)
    return (batch * height * width, height, width), {"C": channels, "TILE": tile, "INPUTS": inputs, "OUTPUTS": outputs}


def _precision() -> str:
    """Of products of matrices in single precision: as convolutions are made elsewhere."""
    return "tf32" if torch.backends.cudnn.allow_tf32 else "ieee"
