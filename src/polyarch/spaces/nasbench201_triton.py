"""The operations of `nasbench201_merged` as kernels for a CUDA device.

A program has a tile of pixels and the C channels of a node. What has weight 0 is not loaded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from polyarch.spaces import nasbench201_plain
from polyarch.spaces.tiles_triton import added_up, around, kernel, room, statistics, tile, tile_of, tiled, used_of

__all__ = ["convolved_gradient", "node", "statistics", "sums", "value_gradient"]

LAST = tl.constexpr(3)
"""The last node."""
KINDS = tl.constexpr(nasbench201_plain.KINDS)


@kernel
def _node(
    out, positive, values, convolved, means, factors, weights, pixels, height, width,
    T: tl.constexpr, C: tl.constexpr, CHANNELS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    start, pixel, c, left, there = tile(pixels, C, CHANNELS, TILE)
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
                tl.load(z, mask=used_of(pixel, c, left, weight, C), other=0).to(tl.float32) - m[None, :]
            )
        x = tl.load(values[s] + begin + place, mask=used_of(pixel, c, left, skip, C), other=0).to(tl.float32)
        used = used_of(pixel, c, left, pool, C)
        total += skip * x + pool * around(values[s], start, pixel, c, used, height, width, C, False)
    tl.store(out + begin + place, total, mask=there)
    tl.store(positive + begin + place, tl.where(total < 0, 0.0, total), mask=there)  # what is no number stays none


@kernel
def _tile_sums(
    out, gradient, values, convolved, means, factors, pixels, height, width,
    T: tl.constexpr, OF_VALUES: tl.constexpr,
    C: tl.constexpr, CHANNELS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    start, pixel, c, _, there = tile(pixels, C, CHANNELS, TILE)
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
            pooled = around(values[s], start, pixel, c, there, height, width, C, False)
            tl.store(own + (1 + KINDS * T + 2 * s) * C, tl.sum(g * x, 0), mask=c < C)
            tl.store(own + (2 + KINDS * T + 2 * s) * C, tl.sum(g * pooled, 0), mask=c < C)


@kernel
def _convolved_gradient(
    out, z, mean, factor, gradients, summed, weights, pixels,
    S: tl.constexpr, C: tl.constexpr, CHANNELS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    start, pixel, c, left, there = tile(pixels, C, CHANNELS, TILE)
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
            value = tl.load(z + place, mask=used_of(pixel, c, left, weight, C), other=0).to(tl.float32)
            found = (weight * f)[None, :] * (g - (value - m[None, :]) * (f * mean_gz)[None, :])
            tl.store(out + place, found, mask=there)


@kernel
def _value_gradient(
    out, value, by_convolutions, gradients, weights, pixels, height, width,
    S: tl.constexpr, C: tl.constexpr, CHANNELS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    start, pixel, c, left, there = tile(pixels, C, CHANNELS, TILE)
    begin = start.to(tl.int64) * C
    place = begin + pixel[:, None] * C + c[None, :]
    positive = tl.load(value + place, mask=there, other=0) > 0
    total = tl.load(by_convolutions + place, mask=there & positive, other=0).to(tl.float32)
    for later in tl.static_range(LAST - S):
        T = S + 1 + later
        own = weights + (T * (T - 1) // 2 + S) * (3 + KINDS)
        skip, pool = tl.load(own + 1), tl.load(own + 2 + KINDS)
        g = tl.load(gradients[later] + place, mask=used_of(pixel, c, left, skip, C), other=0).to(tl.float32)
        used = used_of(pixel, c, left, pool, C)
        total += skip * g + pool * around(gradients[later], start, pixel, c, used, height, width, C, True)
    tl.store(out + place, total, mask=there)


def node(
    values: Sequence[Tensor],
    convolved: Sequence[Tensor],
    means: Sequence[Tensor],
    factors: Sequence[Tensor],
    weights: Tensor,
) -> tuple[Tensor, Tensor]:
    """See `nasbench201_plain.node`."""
    out, positive = torch.empty_like(values[0]), torch.empty_like(values[0])
    grid, sizes, blocks = tiled(out)
    images = tuple(values), tuple(convolved), tuple(means), tuple(factors)
    _node[grid](out, positive, *images, weights, *sizes, T=len(values), **blocks)
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
    target, channels = len(values), gradient.shape[1]
    _, sizes, blocks = tiled(gradient)
    size = tile_of(sizes[0], blocks["CHANNELS"])
    count, rows = triton.cdiv(sizes[0], size), 1 + KINDS.value * target + 2 * target * of_values
    tiles = room(gradient, count, rows, channels)
    images = gradient, tuple(values), tuple(convolved), tuple(means), tuple(factors)
    blocks |= {"TILE": size}
    _tile_sums[(count,)](tiles, *images, *sizes, T=target, OF_VALUES=of_values, **blocks)
    return added_up(tiles)


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
    grid, sizes, blocks = tiled(gradients[later[0]])
    given = tuple(gradients[target] for target in later), tuple(summed[target] for target in later)
    _convolved_gradient[grid](out, convolved, mean, factor, *given, weights, sizes[0], S=source, **blocks)
    return out


def value_gradient(
    source: int, value: Tensor, by_convolutions: Tensor, gradients: Mapping[int, Tensor], weights: Tensor
) -> Tensor:
    """See `nasbench201_plain.value_gradient`."""
    out, later = torch.empty_like(value), tuple(gradients[target] for target in sorted(gradients))
    grid, sizes, blocks = tiled(value)
    by_convolutions = by_convolutions.contiguous(memory_format=torch.channels_last)
    _value_gradient[grid](out, value, by_convolutions, later, weights, *sizes, S=source, **blocks)
    return out
