"""The operations of `nasbench1shot1_merged` as kernels for a CUDA device.

As in `nasbench201_triton`, channels lie last in memory, a program has a tile of pixels and the C channels of a node,
what has weight 0 is not loaded, and sums are in single precision and in a fixed order.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
import triton
import triton.language as tl
from torch import Tensor

from polyarch.spaces.nasbench1shot1_plain import Blocks
from polyarch.spaces.tiles_triton import added_up, room, statistics, tile, tile_of, tiled, used_of

__all__ = ["block_gradient", "block_sums", "joined", "mixed", "node_gradient", "statistics", "taken", "value_gradient"]

# Batches of other sizes, and rows that lie anywhere, are not worth kernels of their own.
_kernel = partial(
    triton.jit,
    do_not_specialize=["pixels", "height", "width"],
    do_not_specialize_on_alignment=["mean", "factor", "scale", "shift", "weights", "added", "sums"],
)


@triton.jit
def _normalised(
    z, mean, factor, scale, shift, start, pixel, c, used,
    BLOCK: tl.constexpr, BLOCKS: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """A block of a tile after normalisation, and after scale and shift."""
    at = BLOCK * C + c
    m = tl.load(mean + at, mask=c < C, other=0)
    f = tl.load(factor + at, mask=c < C, other=0)
    by = tl.load(scale + at, mask=c < C, other=0)
    plus = tl.load(shift + at, mask=c < C, other=0)
    place = start.to(tl.int64) * (BLOCKS * C) + pixel[:, None] * (BLOCKS * C) + at[None, :]
    value = (tl.load(z + place, mask=used, other=0).to(tl.float32) - m[None, :]) * f[None, :]
    return value, value * by[None, :] + plus[None, :]


@triton.jit
def _weighted(
    z, mean, factor, scale, shift, weights, start, pixel, c, left,
    BLOCK: tl.constexpr, BLOCKS: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """What a block adds to its sum."""
    weight = tl.load(weights + BLOCK)
    used = used_of(pixel, c, left, weight, C)
    _, before = _normalised(z, mean, factor, scale, shift, start, pixel, c, used, BLOCK, BLOCKS, C)
    return weight * tl.where(before < 0, 0.0, before)  # what is no number stays none


@triton.jit
def _maxima(x, start, pixel, c, used, height, width, C: tl.constexpr):
    """The maximum over 3x3 pixels, of those that there are, and where it stands from 0 to 8: among equals, the first.

    As torch has it, what is no number is larger than all before it.
    """
    p = start + pixel
    column, row = p % width, (p // width) % height
    own = x + start.to(tl.int64) * C
    best = tl.full(used.shape, float("-inf"), tl.float32)
    place = tl.zeros(used.shape, tl.int32) + (tl.where(row > 0, 0, 3) + tl.where(column > 0, 0, 1))[:, None]
    for k in tl.static_range(9):
        down, right = k // 3 - 1, k % 3 - 1
        y, at = row + down, column + right
        inside = (y >= 0) & (y < height) & (at >= 0) & (at < width)
        offset = (pixel + down * width + right)[:, None] * C + c[None, :]
        value = tl.load(own + offset, mask=used & inside[:, None], other=float("-inf")).to(tl.float32)
        better = (value > best) | (value != value)
        best = tl.where(better, value, best)
        place = tl.where(better, k, place)
    return tl.where(used, best, 0.0), place


@_kernel
def _taken(
    out, sources, mean, factor, scale, shift, weights, added, pixels,
    NODE: tl.constexpr, NODES: tl.constexpr, C: tl.constexpr, CHANNELS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    start, pixel, c, left, there = tile(pixels, C, CHANNELS, TILE)
    place = start.to(tl.int64) * C + pixel[:, None] * C + c[None, :]
    total = _weighted(
        sources[0], mean, factor, scale, shift, weights, start, pixel, c, left, NODE - 1, 2 * NODES, C
    )  # fmt: skip
    for s in tl.static_range(1, NODE):
        weight = tl.load(added + (NODE - 1) * NODES + s - 1)
        used = used_of(pixel, c, left, weight, C)
        total += weight * tl.load(sources[s] + place, mask=used, other=0).to(tl.float32)
    tl.store(out + place, total, mask=there)


@_kernel
def _mixed(
    out, places, value, z, mean, factor, scale, shift, weights, added, pixels, height, width,
    KINDS: tl.constexpr, C: tl.constexpr, CHANNELS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    start, pixel, c, left, there = tile(pixels, C, CHANNELS, TILE)
    own = start.to(tl.int64) * C + pixel[:, None] * C + c[None, :]
    weight = tl.load(added)
    best, place = _maxima(value, start, pixel, c, used_of(pixel, c, left, weight, C), height, width, C)
    total = weight * best
    for k in tl.static_range(KINDS):
        total += _weighted(z, mean, factor, scale, shift, weights, start, pixel, c, left, k, KINDS, C)
    tl.store(out + own, total, mask=there)
    tl.store(places + own, place.to(tl.int8), mask=there)


@_kernel
def _joined(
    out, z, values, mean, factor, scale, shift, weights, added, pixels,
    NODES: tl.constexpr, C: tl.constexpr, CHANNELS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    start, pixel, c, left, there = tile(pixels, C, CHANNELS, TILE)
    begin = start.to(tl.int64) * C
    for t in tl.static_range(NODES):
        weight = tl.load(added + NODES * NODES + t)
        used = used_of(pixel, c, left, weight, C)
        value = tl.load(values[t] + begin + pixel[:, None] * C + c[None, :], mask=used, other=0).to(tl.float32)
        found = weight * value + _weighted(
            z, mean, factor, scale, shift, weights, start, pixel, c, left, NODES + t, 2 * NODES, C
        )
        tl.store(out + begin * NODES + pixel[:, None] * (NODES * C) + (t * C + c)[None, :], found, mask=there)


@triton.jit
def _store_block_sums(
    own, g, z, mean, factor, scale, shift, start, pixel, c, used,
    BLOCK: tl.constexpr, BLOCKS: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Writes a tile's sums of g m z^ and of g m for one block."""
    value, before = _normalised(z, mean, factor, scale, shift, start, pixel, c, used, BLOCK, BLOCKS, C)
    passed = tl.where(used & (before > 0), g, 0.0)
    tl.store(own + BLOCK * C, tl.sum(passed * value, 0), mask=c < C)
    tl.store(own + (BLOCKS + BLOCK) * C, tl.sum(passed, 0), mask=c < C)


@_kernel
def _node_gradient(
    out, tiles, gradients, value, places, made, z, mean, factor, scale, shift, weights, added, pixels, width,
    NODE: tl.constexpr, NODES: tl.constexpr, KINDS: tl.constexpr, OF_ADDED: tl.constexpr,
    C: tl.constexpr, CHANNELS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    start, pixel, c, left, there = tile(pixels, C, CHANNELS, TILE)
    begin = start.to(tl.int64) * C
    place = pixel[:, None] * C + c[None, :]
    rows: tl.constexpr = 2 * KINDS + (NODES + 1) * OF_ADDED
    own = tiles + tl.program_id(0) * rows * C + c
    later = own + 2 * KINDS * C
    g = tl.zeros([TILE, CHANNELS], tl.float32)
    if OF_ADDED:
        u = tl.load(made + begin + place, mask=there, other=0).to(tl.float32)
    for k in tl.static_range(NODES - NODE + 1):
        weight = tl.load(added + (NODE + k) * NODES + NODE - 1)
        wide = C if NODE + k < NODES else NODES * C  # the last is a part of the output's
        used = there if OF_ADDED else used_of(pixel, c, left, weight, C)
        at = start.to(tl.int64) * wide + pixel[:, None] * wide + c[None, :]
        part = tl.load(gradients[k] + at, mask=used, other=0).to(tl.float32)
        g += weight * part
        if OF_ADDED:
            tl.store(later + (NODE + k) * C, tl.sum(part * u, 0), mask=c < C)
    tl.store(out + begin + place, g, mask=there)
    for k in tl.static_range(KINDS):
        used = there if OF_ADDED else used_of(pixel, c, left, tl.load(weights + k), C)
        _store_block_sums(own, g, z, mean, factor, scale, shift, start, pixel, c, used, k, KINDS, C)
    if OF_ADDED:
        stands = tl.load(places + begin + place, mask=there, other=4).to(tl.int32)
        offset = ((stands // 3 - 1) * width + stands % 3 - 1) * C
        best = tl.load(value + begin + place + offset, mask=there, other=0).to(tl.float32)
        tl.store(later + (NODE - 1) * C, tl.sum(g * best, 0), mask=c < C)
        for before in tl.static_range(NODE - 1):
            tl.store(later + before * C, tl.zeros([CHANNELS], tl.float32), mask=c < C)


@_kernel
def _block_sums(
    tiles, gradients, z, mean, factor, scale, shift, weights, pixels,
    OWN: tl.constexpr, BLOCKS: tl.constexpr, OF_WEIGHTS: tl.constexpr,
    C: tl.constexpr, CHANNELS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    start, pixel, c, left, there = tile(pixels, C, CHANNELS, TILE)
    own = tiles + tl.program_id(0) * 2 * BLOCKS * C + c
    for block in tl.static_range(BLOCKS):
        wide = C if block < OWN else (BLOCKS - OWN) * C
        at = start.to(tl.int64) * wide + pixel[:, None] * wide + c[None, :]
        used = there if OF_WEIGHTS else used_of(pixel, c, left, tl.load(weights + block), C)
        g = tl.load(gradients[block] + at, mask=used, other=0).to(tl.float32)
        _store_block_sums(own, g, z, mean, factor, scale, shift, start, pixel, c, used, block, BLOCKS, C)


@_kernel
def _block_gradient(
    out, gradients, sums, z, mean, factor, scale, shift, weights, pixels,
    OWN: tl.constexpr, BLOCKS: tl.constexpr, C: tl.constexpr, CHANNELS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    start, pixel, c, left, there = tile(pixels, C, CHANNELS, TILE)
    for block in tl.static_range(BLOCKS):
        weight = tl.load(weights + block)
        used = used_of(pixel, c, left, weight, C)
        at = block * C + c
        slope = weight * tl.load(scale + at, mask=c < C, other=0) * tl.load(factor + at, mask=c < C, other=0)
        by_z = tl.load(sums + at, mask=c < C, other=0) / pixels
        by_one = tl.load(sums + BLOCKS * C + at, mask=c < C, other=0) / pixels
        wide = C if block < OWN else (BLOCKS - OWN) * C
        own = start.to(tl.int64) * wide + pixel[:, None] * wide + c[None, :]
        g = tl.load(gradients[block] + own, mask=used, other=0).to(tl.float32)
        value, before = _normalised(z, mean, factor, scale, shift, start, pixel, c, used, block, BLOCKS, C)
        found = slope[None, :] * (tl.where(before > 0, g, 0.0) - by_one[None, :] - value * by_z[None, :])
        place = start.to(tl.int64) * (BLOCKS * C) + pixel[:, None] * (BLOCKS * C) + at[None, :]
        tl.store(out + place, found, mask=there)


@_kernel
def _value_gradient(
    out, gradient, places, by_convolutions, added, pixels, height, width,
    C: tl.constexpr, CHANNELS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    start, pixel, c, left, there = tile(pixels, C, CHANNELS, TILE)
    begin = start.to(tl.int64) * C
    own = pixel[:, None] * C + c[None, :]
    weight = tl.load(added)
    used = used_of(pixel, c, left, weight, C)
    p = start + pixel
    column, row = p % width, (p // width) % height
    total = tl.zeros([TILE, CHANNELS], tl.float32)
    for k in tl.static_range(9):
        down, right = k // 3 - 1, k % 3 - 1
        y, at = row + down, column + right
        inside = used & ((y >= 0) & (y < height) & (at >= 0) & (at < width))[:, None]
        offset = begin + (pixel + down * width + right)[:, None] * C + c[None, :]
        here = tl.load(places + offset, mask=inside, other=-1) == 8 - k  # its maximum is this pixel
        total += tl.load(gradient + offset, mask=inside & here, other=0).to(tl.float32)
    total = weight * total + tl.load(by_convolutions + begin + own, mask=there, other=0).to(tl.float32)
    tl.store(out + begin + own, total, mask=there)


def taken(node: int, projected: Blocks, values: Sequence[Tensor], added: Tensor) -> Tensor:
    """See `nasbench1shot1_plain.taken`."""
    out = _image(projected)
    grid, sizes, blocks = tiled(out)
    z, *norm = _given(projected)
    _taken[grid](out, (z, *values), *norm, added, sizes[0], NODE=node, NODES=added.shape[1], **blocks)
    return out


def mixed(node: int, value: Tensor, convolved: Blocks, added: Tensor) -> tuple[Tensor, Tensor]:
    """See `nasbench1shot1_plain.mixed`."""
    out, places = torch.empty_like(value), torch.empty_like(value, dtype=torch.int8)
    grid, sizes, blocks = tiled(out)
    pool = added[node - 1, node - 1]
    _mixed[grid](out, places, value, *_given(convolved), pool, *sizes, KINDS=len(convolved), **blocks)
    return out, places


def joined(projected: Blocks, values: Sequence[Tensor], added: Tensor) -> Tensor:
    """See `nasbench1shot1_plain.joined`."""
    out = _image(projected, len(values))
    grid, sizes, blocks = tiled(values[0])
    z, *norm = _given(projected)
    _joined[grid](out, z, tuple(values), *norm, added, sizes[0], NODES=len(values), **blocks)
    return out


def node_gradient(
    node: int,
    gradients: Sequence[Tensor],
    value: Tensor,
    place: Tensor,
    made: Tensor,
    convolved: Blocks,
    added: Tensor,
    of_added: bool,
) -> tuple[Tensor, Tensor]:
    """See `nasbench1shot1_plain.node_gradient`."""
    out, nodes, kinds = torch.empty_like(value), added.shape[1], len(convolved)
    count, (pixels, _, width), blocks, tiles = _summed(value, 2 * kinds + (nodes + 1) * of_added)
    images = tuple(gradients), value, place, made
    _node_gradient[(count,)](
        out, tiles, *images, *_given(convolved), added, pixels, width,
        NODE=node, NODES=nodes, KINDS=kinds, OF_ADDED=of_added, **blocks,
    )  # fmt: skip
    return out, added_up(tiles)


def block_sums(blocks: Blocks, gradients: Sequence[Tensor], of_weights: bool) -> Tensor:
    """See `nasbench1shot1_plain.block_sums`."""
    count, (pixels, *_), sizes, tiles = _summed(gradients[0], 2 * len(blocks))
    given = {"OWN": _own(gradients), "BLOCKS": len(blocks), "OF_WEIGHTS": of_weights}
    _block_sums[(count,)](tiles, tuple(gradients), *_given(blocks), pixels, **given, **sizes)
    return added_up(tiles).unflatten(0, (2, -1))


def block_gradient(blocks: Blocks, gradients: Sequence[Tensor], sums: Tensor) -> Tensor:
    """See `nasbench1shot1_plain.block_gradient`."""
    out = torch.empty_like(blocks.convolved)
    grid, sizes, tile = tiled(gradients[0])
    given = {"OWN": _own(gradients), "BLOCKS": len(blocks)}
    _block_gradient[grid](out, tuple(gradients), sums, *_given(blocks), sizes[0], **given, **tile)
    return out


def value_gradient(node: int, gradient: Tensor, place: Tensor, by_convolutions: Tensor, added: Tensor) -> Tensor:
    """See `nasbench1shot1_plain.value_gradient`."""
    out, pool = torch.empty_like(gradient), added[node - 1, node - 1]
    grid, sizes, blocks = tiled(gradient)
    _value_gradient[grid](out, gradient, place, by_convolutions, pool, *sizes, **blocks)
    return out


def _given(blocks: Blocks) -> tuple[Tensor, ...]:
    """As kernels take them."""
    return blocks.convolved, blocks.mean, blocks.factor, *blocks.affine.unbind(), blocks.weights


def _image(blocks: Blocks, parts: int = 1) -> Tensor:
    """Room for as many channels as some blocks have."""
    batch, _, *sides = blocks.convolved.shape
    return blocks.convolved.new_empty(batch, *sides, parts * blocks.affine.shape[2]).permute(0, 3, 1, 2)


def _own(gradients: Sequence[Tensor]) -> int:
    """How many of them, the first, have memory of their own; the others are parts that make up one image."""
    return sum(gradient.is_contiguous(memory_format=torch.channels_last) for gradient in gradients)


def _summed(image: Tensor, rows: int) -> tuple[int, tuple[int, int, int], dict[str, int], Tensor]:
    """Programs, (pixels, height, width), the sizes of a tile that is summed over, and room for the sums of all."""
    _, sizes, blocks = tiled(image)
    size = tile_of(sizes[0], blocks["CHANNELS"])
    count = triton.cdiv(sizes[0], size)
    warps = 4 if size * blocks["CHANNELS"] <= 4096 else 8
    return count, sizes, blocks | {"TILE": size, "num_warps": warps}, room(image, count, rows, blocks["C"])
