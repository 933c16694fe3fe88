"""Batch norm under a scale and a shift of every example's own, as kernels for a CUDA device.

    y = s_e x^ + t_e,    x^ = (x - mean) / sqrt(var + epsilon)

Two sums over the pixels of every example e are the gradients of s_e and t_e, and batch norm's own gradient is made from
the same sums, so that such a layer moves no more memory than plain batch norm does:

    dL/ds_e = sum g x^,    dL/dt_e = sum g
    dL/dx = (s_e g - mean of s_e g - x^ mean of s_e g x^) / sqrt(var + epsilon)
    n mean of s_e g = sum_e s_e dL/dt_e,    n mean of s_e g x^ = sum_e s_e dL/ds_e    (n examples times pixels)

A program has some channels of one example: some of their pixels, or, where it adds, all; and one for some channels adds
over examples. Memory may have channels first or last. Sums are in single precision, also where images are not.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

PIXELS, CHANNELS = 64, 64
"""Of a program."""
EXAMPLES = 64
"""That are added at once."""


@triton.jit
def _normalise(
    out,
    x,
    scale,
    shift,
    mean,
    factor,
    pixels,
    channels,
    by_pixel,
    by_channel,
    PIXELS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    example = tl.program_id(0).to(tl.int64)
    c = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    p = tl.program_id(2) * PIXELS + tl.arange(0, PIXELS)
    place = example * pixels * channels + p[:, None] * by_pixel + c[None, :] * by_channel
    there = (p[:, None] < pixels) & (c[None, :] < channels)
    own = example * channels + c
    s = tl.load(scale + own, mask=c < channels) * tl.load(factor + c, mask=c < channels)
    t = tl.load(shift + own, mask=c < channels)
    m = tl.load(mean + c, mask=c < channels)
    value = tl.load(x + place, mask=there).to(tl.float32)
    tl.store(out + place, (value - m[None, :]) * s[None, :] + t[None, :], mask=there)


@triton.jit
def _sums(
    by_scale,
    by_shift,
    upstream,
    x,
    mean,
    factor,
    pixels,
    channels,
    by_pixel,
    by_channel,
    PIXELS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    example = tl.program_id(0).to(tl.int64)
    c = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    m = tl.load(mean + c, mask=c < channels)
    f = tl.load(factor + c, mask=c < channels)
    total = tl.zeros([PIXELS, CHANNELS], tl.float32)
    weighted = tl.zeros([PIXELS, CHANNELS], tl.float32)
    for start in range(0, pixels, PIXELS):
        p = start + tl.arange(0, PIXELS)
        place = example * pixels * channels + p[:, None] * by_pixel + c[None, :] * by_channel
        there = (p[:, None] < pixels) & (c[None, :] < channels)
        gradient = tl.load(upstream + place, mask=there, other=0).to(tl.float32)
        value = tl.load(x + place, mask=there, other=0).to(tl.float32)
        total += gradient
        weighted += gradient * (value - m[None, :])
    own = example * channels + c
    tl.store(by_scale + own, tl.sum(weighted, 0) * f, mask=c < channels)
    tl.store(by_shift + own, tl.sum(total, 0), mask=c < channels)


@triton.jit
def _means(
    mean_g,
    mean_gx,
    scale,
    by_scale,
    by_shift,
    examples,
    channels,
    count,
    EXAMPLES: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    c = tl.program_id(0) * CHANNELS + tl.arange(0, CHANNELS)
    g = tl.zeros([EXAMPLES, CHANNELS], tl.float32)
    gx = tl.zeros([EXAMPLES, CHANNELS], tl.float32)
    for start in range(0, examples, EXAMPLES):
        e = start + tl.arange(0, EXAMPLES)
        own = e[:, None] * channels + c[None, :]
        there = (e[:, None] < examples) & (c[None, :] < channels)
        s = tl.load(scale + own, mask=there, other=0)
        g += s * tl.load(by_shift + own, mask=there, other=0)
        gx += s * tl.load(by_scale + own, mask=there, other=0)
    tl.store(mean_g + c, tl.sum(g, 0) / count, mask=c < channels)
    tl.store(mean_gx + c, tl.sum(gx, 0) / count, mask=c < channels)


@triton.jit
def _input_gradient(
    found,
    upstream,
    x,
    scale,
    mean,
    factor,
    mean_g,
    mean_gx,
    pixels,
    channels,
    by_pixel,
    by_channel,
    OF_BATCH: tl.constexpr,
    PIXELS: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    example = tl.program_id(0).to(tl.int64)
    c = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    p = tl.program_id(2) * PIXELS + tl.arange(0, PIXELS)
    place = example * pixels * channels + p[:, None] * by_pixel + c[None, :] * by_channel
    there = (p[:, None] < pixels) & (c[None, :] < channels)
    f = tl.load(factor + c, mask=c < channels)
    s = tl.load(scale + example * channels + c, mask=c < channels)
    gradient = tl.load(upstream + place, mask=there).to(tl.float32) * s[None, :]
    if OF_BATCH:
        m = tl.load(mean + c, mask=c < channels)
        g = tl.load(mean_g + c, mask=c < channels)
        gx = tl.load(mean_gx + c, mask=c < channels)
        normalised = (tl.load(x + place, mask=there).to(tl.float32) - m[None, :]) * f[None, :]
        gradient -= g[None, :] + normalised * gx[None, :]
    tl.store(found + place, gradient * f[None, :], mask=there)


def normalised(x: Tensor, scale: Tensor, shift: Tensor, mean: Tensor, factor: Tensor, of_batch: bool) -> Tensor:
    """(x - mean) * factor, under a scale and a shift of every example's own.

    Args:
        x: [batch, channels, h, w].
        scale: [batch, channels].
        shift: [batch, channels].
        mean: [channels].
        factor: 1 / sqrt(var + epsilon), [channels].
        of_batch: whether both are of this batch, so that gradients go through them.
    """
    # Kernels go by examples and then channels, whatever made these.
    found: Tensor = _Normalised.apply(x, scale.contiguous(), shift.contiguous(), mean, factor, of_batch)
    return found


class _Normalised(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, scale: Tensor, shift: Tensor, mean: Tensor, factor: Tensor, of_batch: bool
    ) -> Tensor:
        """See `normalised`."""
        x = _laid_out(x)
        out = torch.empty_like(x)
        _normalise[_tiles(x)](out, x, scale, shift, mean, factor, *_extent(x), PIXELS=PIXELS, CHANNELS=CHANNELS)
        ctx.save_for_backward(x, scale, mean, factor)
        ctx.of_batch = of_batch
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None, None]:
        """Sums of every example first; what the batch's statistics add is made from them."""
        x, scale, mean, factor = ctx.saved_tensors
        if upstream.stride() != x.stride():
            upstream = torch.empty_like(x).copy_(upstream)
        by_scale, by_shift = torch.empty_like(scale), torch.empty_like(scale)
        tiles, extent = _tiles(x), _extent(x)
        _sums[tiles[:2]](by_scale, by_shift, upstream, x, mean, factor, *extent, PIXELS=PIXELS, CHANNELS=CHANNELS)
        mean_g, mean_gx = torch.empty_like(mean), torch.empty_like(mean)
        if ctx.of_batch:
            sizes = len(x), x.shape[1], float(x.numel() // x.shape[1])
            _means[tiles[1:2]](mean_g, mean_gx, scale, by_scale, by_shift, *sizes, EXAMPLES=EXAMPLES, CHANNELS=CHANNELS)
        found = torch.empty_like(x)
        _input_gradient[tiles](
            found,
            upstream,
            x,
            scale,
            mean,
            factor,
            mean_g,
            mean_gx,
            *extent,
            OF_BATCH=ctx.of_batch,
            PIXELS=PIXELS,
            CHANNELS=CHANNELS,
        )
        return found, by_scale, by_shift, None, None, None


def _laid_out(x: Tensor) -> Tensor:
    """Pixels of an example at equal distances, whether channels come first or last."""
    if x.is_contiguous() or x.is_contiguous(memory_format=torch.channels_last):
        return x
    return x.contiguous()


def _extent(x: Tensor) -> tuple[int, int, int, int]:
    """Pixels, channels, and the distances from one to the next."""
    pixels, channels = x.shape[2] * x.shape[3], x.shape[1]
    return (pixels, channels, 1, pixels) if x.is_contiguous() else (pixels, channels, channels, 1)


def _tiles(x: Tensor) -> tuple[int, int, int]:
    """Programs: an example, some of its channels, some of its pixels."""
    return len(x), triton.cdiv(x.shape[1], CHANNELS), triton.cdiv(x.shape[2] * x.shape[3], PIXELS)
