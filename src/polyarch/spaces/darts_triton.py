"""The operations of `darts_merged` as kernels for a CUDA device.

A program has a tile of pixels with their channels, of one block: an edge that leaves a value, and one kind of
convolutions on it. Of one architecture, programs whose block has weight 0 do nothing. Sums are in single precision,
also where images are not, and in a fixed order: every program writes those of its pixels, and they are added up
afterwards. Which kinds there are is one number, `KINDS`, of two bits each; `INNER` of them, the first, have a second
convolution.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
import triton
import triton.language as tl
from torch import Tensor

from polyarch.spaces.darts_plain import FIRST, INPUTS, NODES, Leaving, Made, dilation_of, size_of
from polyarch.spaces.layers import BatchNorm
from polyarch.spaces.tiles_triton import room

ELEMENTS = 2048
"""Of a tile."""
CHUNK = 16384
"""Elements of what a program goes over again and again: few enough to stay near it."""
# Batches and images of other sizes, and weights that lie anywhere, are not worth kernels of their own.
_kernel = partial(
    triton.jit,
    do_not_specialize=["pixels", "height", "width", "out_height", "out_width", "targets", "source", "count"],
    do_not_specialize_on_alignment=["weights", "mixture"],
)
_NODES = tl.constexpr(NODES)
_INPUTS = tl.constexpr(INPUTS)
_COLUMNS = tl.constexpr(FIRST)


@triton.jit
def _at(start, pixels, height, width, TILE: tl.constexpr):
    """Pixels of a tile: their numbers, which of them there are, and each one's image, row and column."""
    p = start + tl.arange(0, TILE)
    return p, p < pixels, p // (height * width), (p // width) % height, p % width


@triton.jit
def _used(p, pixels, weight):
    """Which pixels must be loaded: none where the weight is 0."""
    return p < tl.where(weight == 0, 0, pixels)


_size_of, _dilation_of = triton.constexpr_function(size_of), triton.constexpr_function(dilation_of)


@triton.constexpr_function
def _size(kinds, k):
    return _size_of(kinds >> (2 * k) & 3)


@triton.constexpr_function
def _dilation(kinds, k):
    return _dilation_of(kinds >> (2 * k) & 3)


@triton.constexpr_function
def _targets(source):
    return NODES - max(0, source - 1)


@triton.jit
def _row(mixture, source, t, columns):
    """Weights of the edge to the t-th node that a value leads to."""
    node = t + tl.maximum(source - 1, 0)
    return mixture + (node * (node + 3) // 2 + source) * columns


@triton.jit
def _depthwise(
    x, mean, factor, weights, image, row, column, there, c, height, width,
    SIZE: tl.constexpr, DILATION: tl.constexpr, STRIDE: tl.constexpr, NORMALISED: tl.constexpr,
    C: tl.constexpr, CHANNELS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """A depthwise convolution of the positive part of an image, normalised or as it is."""
    total = tl.zeros([TILE, CHANNELS], tl.float32)
    for down in range(SIZE):
        y = row * STRIDE + (down - SIZE // 2) * DILATION
        line = (image * height + y) * width
        in_row = there & (y >= 0) & (y < height)
        for right in tl.static_range(SIZE):
            at = column * STRIDE + (right - SIZE // 2) * DILATION
            inside = (in_row & (at >= 0) & (at < width))[:, None] & (c < C)[None, :]
            value = tl.load(x + (line + at)[:, None] * C + c[None, :], mask=inside, other=0).to(tl.float32)
            if NORMALISED:
                value = tl.where(inside, (value - mean[None, :]) * factor[None, :], 0.0)
            value = tl.where(value < 0, 0.0, value)  # what is no number stays none
            total += value * tl.load(weights + (c * SIZE + down) * SIZE + right, mask=c < C, other=0)[None, :]
    return total


@triton.jit
def _spread(
    g, weights, image, row, column, there, c, height, width,
    SIZE: tl.constexpr, DILATION: tl.constexpr, STRIDE: tl.constexpr,
    C: tl.constexpr, CHANNELS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """What a depthwise convolution with a result of this height and width hands back to pixels of its input."""
    total = tl.zeros([TILE, CHANNELS], tl.float32)
    for down in range(SIZE):
        y = row - (down - SIZE // 2) * DILATION
        in_row = there & (y >= 0) & (y % STRIDE == 0) & (y // STRIDE < height)
        line = (image * height + y // STRIDE) * width
        for right in tl.static_range(SIZE):
            at = column - (right - SIZE // 2) * DILATION
            inside = in_row & (at >= 0) & (at % STRIDE == 0) & (at // STRIDE < width)
            place = (line + at // STRIDE)[:, None] * C + c[None, :]
            value = tl.load(g + place, mask=inside[:, None] & (c < C)[None, :], other=0).to(tl.float32)
            total += value * tl.load(weights + (c * SIZE + down) * SIZE + right, mask=c < C, other=0)[None, :]
    return total


@triton.jit
def _store_statistics(own, value, there, c, C: tl.constexpr):
    """Mean, and sum of squares around it, of the pixels of a tile."""
    count = tl.maximum(tl.sum(there.to(tl.float32), 0), 1.0)
    mean = tl.sum(tl.where(there[:, None], value, 0.0), 0) / count
    off = tl.where(there[:, None], value - mean[None, :], 0.0)
    tl.store(own + c, mean, mask=c < C)
    tl.store(own + C + c, tl.sum(off * off, 0), mask=c < C)


@_kernel
def _separable(
    between, convolved, tiles, x, given, weights, mixture,
    source, targets, pixels, height, width, out_height, out_width,
    KINDS: tl.constexpr, COUNT: tl.constexpr, BEFORE: tl.constexpr, ALL: tl.constexpr, STRIDE: tl.constexpr,
    NORMALISED: tl.constexpr, CHOSEN: tl.constexpr, PRECISION: tl.constexpr,
    C: tl.constexpr, CHANNELS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    block = tl.program_id(1)
    kind, t = block // targets, block % targets
    p, there, image, row, column = _at(tl.program_id(0) * TILE, pixels, out_height, out_width, TILE)
    c = tl.arange(0, CHANNELS)
    runs = True
    if CHOSEN:
        runs = tl.load(_row(mixture, source, t, _COLUMNS + ALL) + _COLUMNS + kind) != 0
    own = tiles + (tl.program_id(0) * COUNT * targets + block) * 2 * C
    if runs:
        mean, factor = c * 0.0, c * 0.0
        if NORMALISED:
            x += block.to(tl.int64) * pixels * C
            mean = tl.load(given + block * C + c, mask=c < C, other=0)
            factor = tl.load(given + (BEFORE * targets + block) * C + c, mask=c < C, other=0)
        total = tl.zeros([TILE, CHANNELS], tl.float32)
        start = 0
        for k in tl.static_range(COUNT):
            each = C * _size(KINDS, k) * _size(KINDS, k)
            if kind == k:
                total = _depthwise(
                    x, mean, factor, weights + start + t * each, image, row, column, there, c, height, width,
                    _size(KINDS, k), _dilation(KINDS, k), STRIDE, NORMALISED, C, CHANNELS, TILE,
                )  # fmt: skip
            start += targets * each
        known = (c < C)[:, None] & (c < C)[None, :]
        pointwise = tl.load(weights + start + block * C * C + c[None, :] * C + c[:, None], mask=known, other=0)
        place = block.to(tl.int64) * pixels * C + p[:, None] * C + c[None, :]
        mask = there[:, None] & (c < C)[None, :]
        total = total.to(between.dtype.element_ty)
        tl.store(between + place, total, mask=mask)
        z = tl.dot(total, pointwise.to(between.dtype.element_ty), input_precision=PRECISION)
        tl.store(convolved + place, z, mask=mask)
        _store_statistics(own, z, there, c, C)
    else:
        tl.store(own + c, c * 0.0, mask=c < C)
        tl.store(own + C + c, c * 0.0, mask=c < C)


@_kernel
def _combined(
    out, tiles, count, pixels, EPSILON: tl.constexpr, TILE: tl.constexpr,
    C: tl.constexpr, CHANNELS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Statistics of all pixels of a block, from those of its tiles."""
    block, blocks = tl.program_id(0), tl.num_programs(0)
    c = tl.arange(0, CHANNELS)
    own = tiles + block * 2 * C + c
    total = tl.zeros([ROWS, CHANNELS], tl.float32)
    first = 0
    while first < count:
        tile = first + tl.arange(0, ROWS)
        mask = (tile < count)[:, None] & (c < C)[None, :]
        each = tl.minimum(pixels - tile * TILE, TILE).to(tl.float32)
        total += each[:, None] * tl.load(own[None, :] + tile[:, None] * blocks * 2 * C, mask=mask, other=0)
        first += ROWS
    mean = tl.sum(total, 0) / pixels
    total = tl.zeros([ROWS, CHANNELS], tl.float32)
    first = 0
    while first < count:
        tile = first + tl.arange(0, ROWS)
        mask = (tile < count)[:, None] & (c < C)[None, :]
        place = own[None, :] + tile[:, None] * blocks * 2 * C
        each = tl.minimum(pixels - tile * TILE, TILE).to(tl.float32)
        off = tl.where(mask, tl.load(place, mask=mask, other=0) - mean[None, :], 0.0)
        total += tl.load(place + C, mask=mask, other=0) + each[:, None] * off * off
        first += ROWS
    var = tl.sum(total, 0) / pixels
    place = out + block * C + c
    tl.store(place, mean, mask=c < C)
    tl.store(place + blocks * C, 1 / tl.sqrt(var + EPSILON), mask=c < C)
    tl.store(place + 2 * blocks * C, var * (pixels / tl.maximum(pixels - 1, 1)), mask=c < C)


@_kernel
def _pooled(
    out, places, tiles, x, pixels, height, width, out_height, out_width,
    STRIDE: tl.constexpr, C: tl.constexpr, CHANNELS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    p, there, image, row, column = _at(tl.program_id(0) * TILE, pixels, out_height, out_width, TILE)
    c = tl.arange(0, CHANNELS)
    largest = tl.full([TILE, CHANNELS], float("-inf"), tl.float32)
    total = tl.zeros([TILE, CHANNELS], tl.float32)
    which = tl.zeros([TILE, CHANNELS], tl.int32)
    number = tl.zeros([TILE], tl.float32)
    for k in tl.static_range(9):
        y, at = row * STRIDE + k // 3 - 1, column * STRIDE + k % 3 - 1
        inside = there & (y >= 0) & (y < height) & (at >= 0) & (at < width)
        mask = inside[:, None] & (c < C)[None, :]
        value = tl.load(x + ((image * height + y) * width + at)[:, None] * C + c[None, :], mask=mask, other=0)
        value = value.to(tl.float32)
        larger = mask & ((value > largest) | (value != value))  # of equals the first, as torch has it
        largest, which = tl.where(larger, value, largest), tl.where(larger, k, which)
        total += value
        number += inside.to(tl.float32)
    mean = total / tl.maximum(number, 1.0)[:, None]
    mask = there[:, None] & (c < C)[None, :]
    place = p[:, None] * C + c[None, :]
    tl.store(out + place, largest, mask=mask)
    tl.store(out + tl.cast(pixels, tl.int64) * C + place, mean, mask=mask)
    tl.store(places + place, which.to(tl.int8), mask=mask)
    own = tiles + tl.program_id(0) * 4 * C
    _store_statistics(own, largest, there, c, C)
    _store_statistics(own + 2 * C, mean, there, c, C)


@triton.jit
def _normalised(images, known, block, blocks, pixels, p, used, c, C: tl.constexpr):
    """Some pixels of a block, by its statistics."""
    mean = tl.load(known + block * C + c, mask=c < C, other=0)
    factor = tl.load(known + (blocks + block) * C + c, mask=c < C, other=0)
    place = images + tl.cast(block, tl.int64) * pixels * C + p[:, None] * C + c[None, :]
    value = tl.load(place, mask=used[:, None] & (c < C)[None, :], other=0).to(tl.float32)
    return (value - mean[None, :]) * factor[None, :]


@_kernel
def _node(
    out, skips, pooled, of_pooled, first, of_first, second, of_second, mixture, pixels,
    NODE: tl.constexpr, KINDS: tl.constexpr, COUNT: tl.constexpr, INNER: tl.constexpr, HALVED: tl.constexpr,
    C: tl.constexpr, CHANNELS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    p = tl.program_id(0) * TILE + tl.arange(0, TILE)
    there = p < pixels
    c = tl.arange(0, CHANNELS)
    place = p[:, None] * C + c[None, :]
    total = tl.zeros([TILE, CHANNELS], tl.float32)
    for s in tl.static_range(NODE + _INPUTS):
        t = NODE - _NODES + _targets(s)
        own = mixture + (NODE * (NODE + 3) // 2 + s) * (_COLUMNS + COUNT)
        for column in tl.static_range(2):
            w = tl.load(own + column)
            total += w * _normalised(pooled[s], of_pooled[s], column, 2, pixels, p, _used(p, pixels, w), c, C)
        w = tl.load(own + 2)
        used = _used(p, pixels, w)[:, None] & (c < C)[None, :]
        skip = skips[s]
        if HALVED and s < _INPUTS:
            skip += tl.cast(t, tl.int64) * pixels * C
        total += w * tl.load(skip + place, mask=used, other=0).to(tl.float32)
        for k in tl.static_range(COUNT):
            w = tl.load(own + _COLUMNS + k)
            if k < INNER:
                images, known, blocks = second[s], of_second[s], INNER * _targets(s)
            else:
                images, known, blocks = first[s], of_first[s], COUNT * _targets(s)
            used = _used(p, pixels, w)
            total += w * _normalised(images, known, k * _targets(s) + t, blocks, pixels, p, used, c, C)
    tl.store(out + place, total, mask=there[:, None] & (c < C)[None, :])


@_kernel
def _sums(
    out, gradients, skip, pooled, of_pooled, first, of_first, second, of_second, source, targets, pixels,
    COUNT: tl.constexpr, INNER: tl.constexpr, HALVED: tl.constexpr, OF_SKIP: tl.constexpr,
    C: tl.constexpr, CHANNELS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    t = tl.program_id(1)
    p = tl.program_id(0) * TILE + tl.arange(0, TILE)
    there = p < pixels
    c = tl.arange(0, CHANNELS)
    mask = there[:, None] & (c < C)[None, :]
    node = t + tl.maximum(source - 1, 0)
    own = out + (tl.program_id(0) * targets + t) * (1 + _COLUMNS + COUNT) * C + c
    g = tl.load(gradients + (p[:, None] * _NODES + node) * C + c[None, :], mask=mask, other=0).to(tl.float32)
    tl.store(own, tl.sum(g, 0), mask=c < C)
    for column in tl.static_range(2):
        arriving = _normalised(pooled, of_pooled, column, 2, pixels, p, there, c, C)
        tl.store(own + (1 + column) * C, tl.sum(g * arriving, 0), mask=c < C)
    if OF_SKIP:
        if HALVED:
            skip += t.to(tl.int64) * pixels * C
        arriving = tl.load(skip + p[:, None] * C + c[None, :], mask=mask, other=0).to(tl.float32)
        tl.store(own + _COLUMNS * C, tl.sum(g * arriving, 0), mask=c < C)
    else:
        tl.store(own + _COLUMNS * C, c * 0.0, mask=c < C)
    for k in tl.static_range(COUNT):
        block = k * targets + t
        if k < INNER:
            arriving = _normalised(second, of_second, block, INNER * targets, pixels, p, there, c, C)
        else:
            arriving = _normalised(first, of_first, block, COUNT * targets, pixels, p, there, c, C)
        tl.store(own + (1 + _COLUMNS + k) * C, tl.sum(g * arriving, 0), mask=c < C)


@_kernel
def _pointwise_gradient(
    out, by_weights, convolved, known, between, gradients, summed, within, of_within, weights, mixture,
    source, targets, pixels, count,
    COUNT: tl.constexpr, INNER: tl.constexpr, ALL: tl.constexpr, START: tl.constexpr, OF_WEIGHTS: tl.constexpr,
    CHOSEN: tl.constexpr, PRECISION: tl.constexpr, C: tl.constexpr, CHANNELS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """The first `INNER` kinds have their gradient `within`, all others that of a node."""
    block = tl.program_id(1)
    kind, t = block // targets, block % targets
    c = tl.arange(0, CHANNELS)
    square = (c < C)[:, None] & (c < C)[None, :]
    weight = tl.load(_row(mixture, source, t, _COLUMNS + ALL) + _COLUMNS + kind)
    total = tl.zeros([CHANNELS, CHANNELS], tl.float32)
    runs = True
    if CHOSEN:
        runs = weight != 0
    if runs:
        inner = kind < INNER
        node = t + tl.maximum(source - 1, 0)
        rows = summed + t * (1 + _COLUMNS + ALL) * C + c
        of_node = (c < C) & (kind >= INNER)
        sum_g = tl.load(rows, mask=of_node, other=0)
        sum_gz = tl.load(rows + (1 + _COLUMNS + kind) * C, mask=of_node, other=0)
        if INNER > 0:
            sum_g += tl.load(of_within + block * 2 * C + c, mask=(c < C) & inner, other=0)
            sum_gz += tl.load(of_within + (block * 2 + 1) * C + c, mask=(c < C) & inner, other=0)
        mean = tl.load(known + block * C + c, mask=c < C, other=0)
        factor = tl.load(known + (COUNT * targets + block) * C + c, mask=c < C, other=0)
        scale = factor * tl.where(inner, 1.0, weight)
        start = targets * START + block * C * C
        pointwise = tl.load(weights + start + c[:, None] * C + c[None, :], mask=square, other=0)
        pointwise = pointwise.to(out.dtype.element_ty)
        begin = block.to(tl.int64) * pixels * C
        tile = tl.program_id(0) * count
        last = tile + count
        while tile < last:
            p = tile * TILE + tl.arange(0, TILE)
            mask = (p < pixels)[:, None] & (c < C)[None, :]
            place = begin + p[:, None] * C + c[None, :]
            z = (tl.load(convolved + place, mask=mask, other=0).to(tl.float32) - mean[None, :]) * factor[None, :]
            at = gradients + (p[:, None] * _NODES + node) * C + c[None, :]
            g = tl.load(at, mask=mask & (kind >= INNER), other=0).to(tl.float32)
            if INNER > 0:
                g += tl.load(within + place, mask=mask & inner, other=0).to(tl.float32)
            found = scale[None, :] * (g - (sum_g / pixels)[None, :] - z * (sum_gz / pixels)[None, :])
            found = tl.where(mask, found, 0.0).to(out.dtype.element_ty)
            tl.store(out + place, tl.dot(found, pointwise, input_precision=PRECISION), mask=mask)
            if OF_WEIGHTS:
                d = tl.load(between + place, mask=mask, other=0)
                total += tl.dot(tl.trans(found), d, input_precision=PRECISION)
            tile += 1
    if OF_WEIGHTS:
        own = by_weights + (tl.program_id(0) * COUNT * targets + block) * C * C
        tl.store(own + c[:, None] * C + c[None, :], total, mask=square)


@_kernel
def _inner_gradient(
    out, tiles, by_depthwise, convolved, known, weights, mixture, source, targets, pixels, height, width,
    KINDS: tl.constexpr, COUNT: tl.constexpr, BEFORE: tl.constexpr, CHOSEN: tl.constexpr,
    C: tl.constexpr, CHANNELS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    block = tl.program_id(1)
    kind, t = block // targets, block % targets
    p, there, image, row, column = _at(tl.program_id(0) * TILE, pixels, height, width, TILE)
    c = tl.arange(0, CHANNELS)
    runs = True
    if CHOSEN:
        runs = tl.load(_row(mixture, source, t, _COLUMNS + BEFORE) + _COLUMNS + kind) != 0
    own = tiles + (tl.program_id(0) * COUNT * targets + block) * 2 * C + c
    sum_g, sum_gz = c * 0.0, c * 0.0
    if runs:
        total = tl.zeros([TILE, CHANNELS], tl.float32)
        begin = block.to(tl.int64) * pixels * C
        start = 0
        for k in tl.static_range(COUNT):
            each = C * _size(KINDS, k) * _size(KINDS, k)
            if kind == k:
                total = _spread(
                    by_depthwise + begin, weights + start + t * each, image, row, column, there, c,
                    height, width, _size(KINDS, k), 1, 1, C, CHANNELS, TILE,
                )  # fmt: skip
            start += targets * each
        z = _normalised(convolved, known, block, BEFORE * targets, pixels, p, there, c, C)
        mask = there[:, None] & (c < C)[None, :]
        total = tl.where(mask & (z > 0), total, 0.0)
        tl.store(out + begin + p[:, None] * C + c[None, :], total, mask=mask)
        sum_g, sum_gz = tl.sum(total, 0), tl.sum(total * z, 0)
    tl.store(own, sum_g, mask=c < C)
    tl.store(own + C, sum_gz, mask=c < C)


@_kernel
def _depthwise_weight_gradient(
    out, x, given, by_depthwise, mixture, source, targets, pixels, height, width, out_height, out_width, count,
    KINDS: tl.constexpr, COUNT: tl.constexpr, BEFORE: tl.constexpr, ALL: tl.constexpr, STRIDE: tl.constexpr,
    NORMALISED: tl.constexpr, LENGTH: tl.constexpr, CHOSEN: tl.constexpr,
    C: tl.constexpr, CHANNELS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """One weight after another of every channel; the pixels of a program are few enough to stay near it."""
    block = tl.program_id(1)
    kind, t = block // targets, block % targets
    c = tl.arange(0, CHANNELS)
    tiles = count
    if CHOSEN:
        tiles = tl.where(tl.load(_row(mixture, source, t, _COLUMNS + ALL) + _COLUMNS + kind) != 0, count, 0)
    begin = block.to(tl.int64) * pixels * C
    mean, factor = c * 0.0, c * 0.0
    if NORMALISED:
        x += begin
        mean = tl.load(given + block * C + c, mask=c < C, other=0)
        factor = tl.load(given + (BEFORE * targets + block) * C + c, mask=c < C, other=0)
    own = out + tl.program_id(0) * targets * LENGTH
    for k in tl.static_range(COUNT):
        if kind == k:
            _each_weight(
                own, x, mean, factor, by_depthwise + begin, t, tiles, count, c, pixels, height, width, out_height,
                out_width, _size(KINDS, k), _dilation(KINDS, k), STRIDE, NORMALISED, C, CHANNELS, TILE,
            )  # fmt: skip
        own += targets * C * _size(KINDS, k) * _size(KINDS, k)


@triton.jit
def _each_weight(
    out, x, mean, factor, by_depthwise, t, tiles, count, c, pixels, height, width, out_height, out_width,
    SIZE: tl.constexpr, DILATION: tl.constexpr, STRIDE: tl.constexpr, NORMALISED: tl.constexpr,
    C: tl.constexpr, CHANNELS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    for tap in range(SIZE * SIZE):
        down, right = (tap // SIZE - SIZE // 2) * DILATION, (tap % SIZE - SIZE // 2) * DILATION
        total = tl.zeros([TILE, CHANNELS], tl.float32)
        tile = 0
        while tile < tiles:
            start = (tl.program_id(0) * count + tile) * TILE
            p, there, image, row, column = _at(start, pixels, out_height, out_width, TILE)
            y, at = row * STRIDE + down, column * STRIDE + right
            inside = there & (y >= 0) & (y < height) & (at >= 0) & (at < width)
            mask = inside[:, None] & (c < C)[None, :]
            place = ((image * height + y) * width + at)[:, None] * C + c[None, :]
            value = tl.load(x + place, mask=mask, other=0).to(tl.float32)
            if NORMALISED:
                value = (value - mean[None, :]) * factor[None, :]
            g = tl.load(by_depthwise + p[:, None] * C + c[None, :], mask=mask, other=0)
            total += tl.where(value < 0, 0.0, value) * g.to(tl.float32)
            tile += 1
        tl.store(out + (t * C + c) * SIZE * SIZE + tap, tl.sum(total, 0), mask=c < C)


@_kernel
def _pool_gradient(
    out, gradients, pooled, of_pooled, summed, mixture, source, targets, pixels,
    COUNT: tl.constexpr, C: tl.constexpr, CHANNELS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    p = tl.program_id(0) * TILE + tl.arange(0, TILE)
    there = p < pixels
    c = tl.arange(0, CHANNELS)
    mask = there[:, None] & (c < C)[None, :]
    begin = tl.maximum(source - 1, 0)
    for column in tl.static_range(2):
        z = _normalised(pooled, of_pooled, column, 2, pixels, p, there, c, C)
        total = tl.zeros([TILE, CHANNELS], tl.float32)
        t = 0
        while t < targets:
            w = tl.load(_row(mixture, source, t, _COLUMNS + COUNT) + column)
            used = _used(p, pixels, w)[:, None] & (c < C)[None, :]
            g = tl.load(gradients + (p[:, None] * _NODES + begin + t) * C + c[None, :], mask=used, other=0)
            rows = summed + t * (1 + _COLUMNS + COUNT) * C + c
            sum_g = tl.load(rows, mask=c < C, other=0) / pixels
            sum_gz = tl.load(rows + (1 + column) * C, mask=c < C, other=0) / pixels
            total += w * (g.to(tl.float32) - sum_g[None, :] - z * sum_gz[None, :])
            t += 1
        factor = tl.load(of_pooled + (2 + column) * C + c, mask=c < C, other=0)
        place = tl.cast(pixels, tl.int64) * C * column + p[:, None] * C + c[None, :]
        tl.store(out + place, factor[None, :] * total, mask=mask)


@_kernel
def _value_gradient(
    into, x, by_depthwise, by_pooled, places, gradients, weights, mixture,
    source, targets, pixels, height, width, out_height, out_width,
    KINDS: tl.constexpr, COUNT: tl.constexpr, STRIDE: tl.constexpr, OF_NODE: tl.constexpr, CHOSEN: tl.constexpr,
    C: tl.constexpr, CHANNELS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    p, there, image, row, column = _at(tl.program_id(0) * TILE, pixels, height, width, TILE)
    c = tl.arange(0, CHANNELS)
    mask = there[:, None] & (c < C)[None, :]
    images = pixels // (height * width)
    total = tl.zeros([TILE, CHANNELS], tl.float32)
    g = by_depthwise
    for k in tl.static_range(COUNT):
        t = 0
        while t < targets:
            runs = True
            if CHOSEN:
                runs = tl.load(_row(mixture, source, t, _COLUMNS + COUNT) + _COLUMNS + k) != 0
            if runs:
                total += _spread(
                    g, weights, image, row, column, there, c, out_height, out_width,
                    _size(KINDS, k), _dilation(KINDS, k), STRIDE, C, CHANNELS, TILE,
                )  # fmt: skip
            g += tl.cast(images, tl.int64) * out_height * out_width * C
            weights += C * _size(KINDS, k) * _size(KINDS, k)
            t += 1
    total = tl.where(tl.load(x + p[:, None] * C + c[None, :], mask=mask, other=0) > 0, total, 0.0)
    for k in tl.static_range(9):
        y, at = row - (k // 3 - 1), column - (k % 3 - 1)
        inside = there & (y >= 0) & (at >= 0) & (y % STRIDE == 0) & (at % STRIDE == 0)
        inside = inside & (y // STRIDE < out_height) & (at // STRIDE < out_width)
        used = inside[:, None] & (c < C)[None, :]
        place = ((image * out_height + y // STRIDE) * out_width + at // STRIDE)[:, None] * C + c[None, :]
        was = tl.load(places + place, mask=used, other=-1) == k
        total += tl.load(by_pooled + place, mask=used & was, other=0).to(tl.float32)
        rows = tl.minimum(y + 1, height - 1) - tl.maximum(y - 1, 0) + 1
        columns = tl.minimum(at + 1, width - 1) - tl.maximum(at - 1, 0) + 1
        share = 1.0 / tl.maximum(rows * columns, 1).to(tl.float32)
        means = by_pooled + tl.cast(images, tl.int64) * out_height * out_width * C
        total += share[:, None] * tl.load(means + place, mask=used, other=0).to(tl.float32)
    if STRIDE == 1:
        begin = tl.maximum(source - 1, 0)
        t = 0
        while t < targets:
            w = tl.load(_row(mixture, source, t, _COLUMNS + COUNT) + 2)
            place = (p[:, None] * _NODES + begin + t) * C + c[None, :]
            used = _used(p, pixels, w)[:, None] & (c < C)[None, :]
            total += w * tl.load(gradients + place, mask=used, other=0).to(tl.float32)
            t += 1
    if OF_NODE:
        own = into + p[:, None] * (_NODES * C) + c[None, :]
        total += tl.load(own, mask=mask, other=0).to(tl.float32)
        tl.store(own, total, mask=mask)
    else:
        tl.store(into + p[:, None] * C + c[None, :], total, mask=mask)


# ---------------------------------------------------------------------------------------------------------------------
# The same names as in `darts_plain`.


def separable(
    x: Tensor, given: Tensor | None, weights: Tensor, mixture: Tensor | None, leaving: Leaving
) -> tuple[Tensor, Tensor, Tensor]:
    """See `darts_plain.separable`."""
    second = given is not None
    kinds, stride = leaving.stage(second), leaving.strided(second)
    size, halved = x.shape[-4:], [-(-side // stride) for side in x.shape[-3:-1]]
    shape = (leaving.targets * len(kinds), size[0], *halved, size[-1])
    between, convolved = (x.new_empty(shape) for _ in range(2))
    if not kinds:
        return between, convolved, room(x, 3, 0, size[-1])
    pixels, blocks = _pixels(between), _blocks(size[-1])
    tiles = triton.cdiv(pixels, blocks["TILE"])
    partial_statistics = room(x, tiles, shape[0], 2, size[-1])
    _separable[(tiles, shape[0])](
        between, convolved, partial_statistics, x, x if given is None else given, weights,
        x if mixture is None else mixture, leaving.source, leaving.targets, pixels, *size[1:3], *halved,
        KINDS=_code(kinds), COUNT=len(kinds), BEFORE=len(leaving.kinds), ALL=len(leaving.kinds), STRIDE=stride,
        NORMALISED=second, CHOSEN=mixture is not None, PRECISION=_precision(), **blocks,
    )  # fmt: skip
    return between, convolved, _statistics(partial_statistics, pixels, blocks)


def pooled(x: Tensor, stride: int) -> tuple[Tensor, Tensor, Tensor]:
    """See `darts_plain.pooled`."""
    batch, *sides, channels = x.shape
    halved = [-(-side // stride) for side in sides]
    both = x.new_empty(2, batch, *halved, channels)
    places = torch.empty(both.shape[1:], dtype=torch.int8, device=x.device)
    pixels, blocks = _pixels(both), _blocks(channels)
    tiles = triton.cdiv(pixels, blocks["TILE"])
    partial_statistics = room(x, tiles, 2, 2, channels)
    _pooled[(tiles,)](both, places, partial_statistics, x, pixels, *sides, *halved, STRIDE=stride, **blocks)
    return both, places, _statistics(partial_statistics, pixels, blocks)


def node(number: int, made: Sequence[Made], mixture: Tensor) -> Tensor:
    """See `darts_plain.node`."""
    out = torch.empty_like(made[-1].pooled[0])
    pixels, blocks = out.numel() // out.shape[-1], _blocks(out.shape[-1])
    images = [
        [own.skip for own in made], [own.pooled for own in made], [own.pooled_statistics for own in made],
        [own.convolved[0] for own in made], [own.statistics[0] for own in made],
        [own.convolved[1] for own in made], [own.statistics[1] for own in made],
    ]  # fmt: skip
    leaving = made[0].leaving
    _node[(triton.cdiv(pixels, blocks["TILE"]),)](
        out, *(tuple(part) for part in images), mixture, pixels, NODE=number, HALVED=leaving.stride == 2,
        KINDS=_code(leaving.kinds), COUNT=len(leaving.kinds), INNER=len(leaving.inner), **blocks,
    )  # fmt: skip
    return out


def sums(made: Made, gradients: Tensor, mixture: Tensor | None, of_mixture: bool) -> Tensor:
    """See `darts_plain.sums`."""
    leaving, channels = made.leaving, gradients.shape[-1]
    pixels, blocks = _pixels(made.pooled), _blocks(channels, 2 * ELEMENTS)
    tiles = triton.cdiv(pixels, blocks["TILE"])
    out = room(gradients, tiles, leaving.targets, 1 + FIRST + len(leaving.kinds), channels)
    _sums[(tiles, leaving.targets)](
        out, gradients, made.skip, made.pooled, made.pooled_statistics, made.convolved[0], made.statistics[0],
        made.convolved[1], made.statistics[1], leaving.source, leaving.targets, pixels, COUNT=len(leaving.kinds),
        INNER=len(leaving.inner), HALVED=leaving.stride == 2, OF_SKIP=of_mixture, **blocks,
    )  # fmt: skip
    return out.sum(0)


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
    """See `darts_plain.pointwise_gradient`."""
    leaving, between = made.leaving, made.depthwise[second]
    kinds, channels = leaving.stage(second), gradients.shape[-1]
    out = torch.empty_like(between)
    if not kinds:
        return out, room(out, 0) if of_weights else None
    pixels, blocks = _pixels(out), _blocks(channels)
    chunks, count = _chunks(pixels, channels, len(out), blocks["TILE"])
    by_weights = room(out, chunks if of_weights else 0, len(out), channels, channels)
    inner, of_inner = within if within is not None and len(within[0]) else (out, summed)
    *depthwise, _ = leaving.sizes(second, channels)
    _pointwise_gradient[(chunks, len(out))](
        out, by_weights, made.convolved[second], made.statistics[second], between, gradients, summed, inner, of_inner,
        weights, mixture, leaving.source, leaving.targets, pixels, count, COUNT=len(kinds),
        INNER=0 if second else len(leaving.inner), ALL=len(leaving.kinds), START=sum(depthwise) // leaving.targets,
        OF_WEIGHTS=of_weights, CHOSEN=chosen, PRECISION=_precision(), **blocks,
    )  # fmt: skip
    return out, by_weights.sum(0).flatten() if of_weights else None


def depthwise_weight_gradient(made: Made, second: bool, by_depthwise: Tensor, mixture: Tensor, chosen: bool) -> Tensor:
    """See `darts_plain.depthwise_weight_gradient`."""
    leaving = made.leaving
    kinds, channels = leaving.stage(second), by_depthwise.shape[-1]
    if not kinds:
        return room(by_depthwise, 0)
    x, known = (made.convolved[0], made.statistics[0]) if second else (made.value, made.statistics[0])
    pixels, blocks = _pixels(by_depthwise), _blocks(channels)
    chunks, count = _chunks(pixels, channels, len(by_depthwise), blocks["TILE"])
    *depthwise, _ = leaving.sizes(second, channels)
    out = room(by_depthwise, chunks, sum(depthwise))
    _depthwise_weight_gradient[(chunks, len(by_depthwise))](
        out, x, known, by_depthwise, mixture, leaving.source, leaving.targets, pixels,
        *x.shape[-3:-1], *by_depthwise.shape[-3:-1], count,
        KINDS=_code(kinds), COUNT=len(kinds), BEFORE=len(leaving.kinds), ALL=len(leaving.kinds),
        STRIDE=leaving.strided(second), NORMALISED=second, LENGTH=sum(depthwise) // leaving.targets, CHOSEN=chosen,
        **blocks,
    )  # fmt: skip
    return out.sum(0)


def inner_gradient(
    made: Made, by_depthwise: Tensor, weights: Tensor, mixture: Tensor, chosen: bool
) -> tuple[Tensor, Tensor]:
    """See `darts_plain.inner_gradient`."""
    leaving, channels = made.leaving, by_depthwise.shape[-1]
    out = torch.empty_like(by_depthwise)
    if not leaving.inner:
        return out, room(out, 0, 2, channels)
    pixels, blocks = _pixels(out), _blocks(channels)
    tiles = triton.cdiv(pixels, blocks["TILE"])
    summed = room(out, tiles, len(out), 2, channels)
    _inner_gradient[(tiles, len(out))](
        out, summed, by_depthwise, made.convolved[0], made.statistics[0], weights, mixture, leaving.source,
        leaving.targets, pixels, *out.shape[-3:-1], KINDS=_code(leaving.inner), COUNT=len(leaving.inner),
        BEFORE=len(leaving.kinds), CHOSEN=chosen, **blocks,
    )  # fmt: skip
    return out, summed.sum(0)


def pool_gradient(made: Made, gradients: Tensor, summed: Tensor, mixture: Tensor) -> Tensor:
    """See `darts_plain.pool_gradient`."""
    out, leaving = torch.empty_like(made.pooled), made.leaving
    pixels, blocks = _pixels(out), _blocks(out.shape[-1])
    _pool_gradient[(triton.cdiv(pixels, blocks["TILE"]),)](
        out, gradients, made.pooled, made.pooled_statistics, summed, mixture, leaving.source, leaving.targets, pixels,
        COUNT=len(leaving.kinds), **blocks,
    )  # fmt: skip
    return out


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
    """See `darts_plain.value_gradient`."""
    leaving, (*_, height, width, channels) = made.leaving, made.value.shape
    pixels, blocks = made.value.numel() // channels, _blocks(channels)
    _value_gradient[(triton.cdiv(pixels, blocks["TILE"]),)](
        into, made.value, by_depthwise, by_pooled, made.places, gradients, weights, mixture, leaving.source,
        leaving.targets, pixels, height, width, *by_pooled.shape[-3:-1], KINDS=_code(leaving.kinds),
        COUNT=len(leaving.kinds), STRIDE=leaving.stride, OF_NODE=leaving.source >= INPUTS, CHOSEN=chosen, **blocks,
    )  # fmt: skip


def _statistics(tiles: Tensor, pixels: int, blocks: dict[str, int]) -> Tensor:
    """[3, blocks, channels], from those of tiles [tiles, blocks, 2, channels]."""
    count, number, _, channels = tiles.shape
    out = room(tiles, 3, number, channels)
    rows = max(2 * ELEMENTS // blocks["CHANNELS"], 1)
    sizes = {"TILE": blocks["TILE"], "C": channels, "CHANNELS": blocks["CHANNELS"], "ROWS": rows}
    _combined[(number,)](out, tiles, count, pixels, EPSILON=BatchNorm.epsilon, **sizes, num_warps=8)
    return out


def _pixels(stacked: Tensor) -> int:
    """Of one of several images."""
    return stacked[0].numel() // stacked.shape[-1] if len(stacked) else 0


def _code(kinds: Sequence[int]) -> int:
    return sum(kind << (2 * k) for k, kind in enumerate(kinds))


def _precision() -> str:
    return "tf32" if torch.backends.cudnn.allow_tf32 else "ieee"


def _chunks(pixels: int, channels: int, blocks: int, tile: int) -> tuple[int, int]:
    """Into how many parts pixels are divided, and tiles of each: as many as fill a device, and as stay near."""
    tiles = triton.cdiv(pixels, tile)
    chunks = min(tiles, max(triton.cdiv(pixels * channels, CHUNK), triton.cdiv(256, blocks)))
    count = triton.cdiv(tiles, chunks)
    return triton.cdiv(tiles, count), count


def _blocks(channels: int, elements: int = ELEMENTS) -> dict[str, int]:
    """The sizes of a tile; products of matrices take no fewer than 16 of anything."""
    padded = max(triton.next_power_of_2(channels), 16)
    return {"C": channels, "CHANNELS": padded, "TILE": max(elements // padded, 16)}
