"""The operations of `reading` as kernels for a CUDA device.

A program has a part of one example of one repeat, whose memory lies in one piece, whatever the order of its pixels and
channels. All values of a stage are given to every kernel, and those of weight 0, as all are that a row comes before,
are not loaded. Sums are in single precision, also where values are not.
"""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

PART = 2048
"""Elements of a program."""


@triton.jit
def _row(out, values, weights, size, row, ROWS: tl.constexpr, PART: tl.constexpr):
    example = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * PART + tl.arange(0, PART)
    place = example * size + at
    found = tl.zeros([PART], tl.float32)
    for k in tl.static_range(ROWS):
        weight = tl.load(weights + (example * ROWS + row) * ROWS + k)
        read = tl.load(values[k] + place, mask=(at < size) & (weight != 0), other=0)
        found += weight * read.to(tl.float32)
    tl.store(out + place, tl.where(found < 0, 0.0, found), mask=at < size)  # what is no number stays none


@triton.jit
def _value_gradient(
    own,
    found,
    upstream,
    out,
    gradients,
    weights,
    size,
    row,
    ROWS: tl.constexpr,
    PART: tl.constexpr,
):
    example = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * PART + tl.arange(0, PART)
    place = example * size + at
    positive = tl.load(out + place, mask=at < size, other=0) > 0
    gradient = tl.load(upstream + place, mask=(at < size) & positive, other=0)
    tl.store(own + place, gradient, mask=at < size)
    total = tl.load(weights + (example * ROWS + row) * ROWS + row) * gradient.to(tl.float32)
    for later in tl.static_range(ROWS):
        weight = tl.load(weights + (example * ROWS + later) * ROWS + row)
        reads = (weight != 0) & (later != row)  # the row's own is in `gradient`
        read = tl.load(gradients[later] + place, mask=(at < size) & reads, other=0)
        total += tl.where(reads, weight, 0.0) * read.to(tl.float32)
    tl.store(found + place, total, mask=at < size)


@triton.jit
def _weight_gradient(found, own, values, weights, size, row, ROWS: tl.constexpr, PART: tl.constexpr):
    example, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    at = part * PART + tl.arange(0, PART)
    place = example * size + at
    gradient = tl.load(own + place, mask=at < size, other=0).to(tl.float32)
    for k in tl.static_range(ROWS):
        weight = tl.load(weights + (example * ROWS + row) * ROWS + k)
        read = tl.load(values[k] + place, mask=(at < size) & (weight != 0), other=0)
        tl.store(found + (example * tl.num_programs(1) + part) * ROWS + k, tl.sum(gradient * read.to(tl.float32), 0))


def read_row(values: Sequence[Tensor], weights: Tensor, row: int) -> Tensor:
    """See `reading_plain.read_row`."""
    same = _laid_out_like(values[0], values)
    out = torch.empty_like(same[0])
    grid, size = _grid(out, weights)
    _row[grid](out, _all(same, weights), weights, size, row, ROWS=weights.shape[-1], PART=PART)
    return out


def value_gradient(
    upstream: Tensor, out: Tensor, gradients: Sequence[Tensor | None], weights: Tensor, row: int
) -> tuple[Tensor, Tensor]:
    """See `reading_plain.value_gradient`."""
    [upstream] = _laid_out_like(out, [upstream])
    own, found = torch.empty_like(out), torch.empty_like(out)
    later = tuple(upstream if gradient is None else gradient for gradient in gradients)
    grid, size = _grid(out, weights)
    _value_gradient[grid](own, found, upstream, out, later, weights, size, row, ROWS=weights.shape[-1], PART=PART)
    return own, found


def weight_gradient(own: Tensor, values: Sequence[Tensor], weights: Tensor, row: int) -> Tensor:
    """See `reading_plain.weight_gradient`; 0 where a link is off, which has no weight to learn."""
    grid, size = _grid(own, weights)
    parts = weights.new_empty(*weights.shape[:2], grid[1], weights.shape[-1])
    same = _all(_laid_out_like(own, values), weights)
    _weight_gradient[grid](parts, own, same, weights, size, row, ROWS=weights.shape[-1], PART=PART)
    return parts.sum(2)


def _grid(value: Tensor, weights: Tensor) -> tuple[tuple[int, int], int]:
    """Programs: an example of a repeat, and a part of it; and how many elements such an example has."""
    examples = weights.shape[0] * weights.shape[1]
    size = value.numel() // examples
    return (examples, triton.cdiv(size, PART)), size


def _all(values: Sequence[Tensor], weights: Tensor) -> tuple[Tensor, ...]:
    """As many as a stage has; what is not there yet has weight 0, and anything stands for it."""
    return (*values, *[values[0]] * (weights.shape[-1] - len(values)))


def _laid_out_like(like: Tensor, values: Sequence[Tensor]) -> list[Tensor]:
    """The values with the strides of another, copied where they have others."""
    return [
        value if value.stride() == like.stride() else torch.empty_like(like, dtype=value.dtype).copy_(value)
        for value in values
    ]
