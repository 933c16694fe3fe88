"""The operations of `nasbench1shot1_merged` written out in torch, for any device and precision.

Kernels must equal them.

Images are [batch, channels, h, w]. Values of nodes have C channels, everything that was convolved has several blocks of
C. Nodes are counted from 1, and their lists from 0. Weights `added` [nodes + 1, nodes] are of what a vertex adds as it
is: in row t - 1 and column s - 1 stands that of node s in the sum of vertex t, the output being the last vertex. No
node is its own parent: on the diagonal stands the weight of the node's own maxima.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor

from polyarch.spaces.nasbench201_plain import statistics

__all__ = [
    "Blocks",
    "block_gradient",
    "block_sums",
    "joined",
    "mixed",
    "node_gradient",
    "statistics",
    "taken",
    "value_gradient",
]


@final
@dataclass(frozen=True)
class Blocks:
    """What was convolved, and how every block of it is normalised, scaled, shifted, cut off at 0 and weighted."""

    convolved: Tensor
    """[batch, blocks * C, h, w]."""
    mean: Tensor
    """[blocks * C]."""
    factor: Tensor
    """1 / sqrt(variance + epsilon), [blocks * C]."""
    affine: Tensor
    """Scale and shift, [2, blocks, C]."""
    weights: Tensor
    """Of every block in the sum that it stands in, [blocks]."""

    def __len__(self) -> int:
        return len(self.weights)

    def normalised(self, block: int) -> tuple[Tensor, Tensor]:
        """A block after normalisation, and after scale and shift."""
        channels = self.affine.shape[2]
        own = slice(block * channels, (block + 1) * channels)
        mean, factor, scale, shift = (
            row.view(1, -1, 1, 1) for row in (self.mean[own], self.factor[own], *self.affine[:, block])
        )
        z = (self.convolved[:, own] - mean) * factor
        return z, z * scale + shift

    def weighted(self, block: int) -> Tensor:
        """What a block adds to its sum."""
        return self.weights[block] * self.normalised(block)[1].relu()


def taken(node: int, projected: Blocks, values: Sequence[Tensor], added: Tensor) -> Tensor:
    """What a node takes: v_t = w a(p_t) + sum_s w_s u_s, of the values u_s of the nodes before it."""
    return sum(
        (added[node - 1, source] * value for source, value in enumerate(values)), start=projected.weighted(node - 1)
    )


def mixed(node: int, value: Tensor, convolved: Blocks, added: Tensor) -> tuple[Tensor, Tensor]:
    """A node: u_t = w_max max(v_t) + sum_k w_k a(z_tk).

    With it, where the maximum around every pixel stands, from 0 to 8 row by row. Among equals it is the first.
    """
    height, width = value.shape[2:]
    maxima, places = F.max_pool2d(value, 3, 1, 1, return_indices=True)
    down = places // width - torch.arange(height, device=value.device).view(-1, 1)
    right = places % width - torch.arange(width, device=value.device)
    found = added[node - 1, node - 1] * maxima
    for kind in range(len(convolved)):
        found = found + convolved.weighted(kind)
    return found, (3 * (down + 1) + right + 1).to(torch.int8)


def joined(projected: Blocks, values: Sequence[Tensor], added: Tensor) -> Tensor:
    """The cell's output: side by side for every node w_t u_t + w_0 a(p_{N+t})."""
    nodes = len(values)
    parts = [added[nodes, t] * value + projected.weighted(nodes + t) for t, value in enumerate(values)]
    return torch.cat(parts, 1)


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
    """The gradient g_t of what a node made, and sums over examples and pixels [rows, C].

    The first rows are the node's `block_sums`. Where they are asked for, as many rows follow as `added` has, whose sums
    over channels are the gradient of the node's column there: of a later vertex the sum of its gradient times what the
    node made, of the node itself that of g_t times its maxima.

    Args:
        node: which.
        gradients: of what the vertices after it take, the last being the output's own part.
        value: what the node took.
        place: where the maxima of `value` stand; see `mixed`.
        made: what the node made.
        convolved: its convolutions.
        added: see above.
        of_added: whether the gradient of `added` is asked for.
    """
    found = sum(added[node + k, node - 1] * gradient for k, gradient in enumerate(gradients))
    assert isinstance(found, Tensor)
    rows = block_sums(convolved, [found] * len(convolved), of_added).flatten(0, 1)
    if of_added:
        own = [found * _at(value, place), *(gradient * made for gradient in gradients)]
        rows = torch.cat([rows, rows.new_zeros(node - 1, rows.shape[1]), torch.stack([_over_pixels(o) for o in own])])
    return found, rows


def block_sums(blocks: Blocks, gradients: Sequence[Tensor], of_weights: bool) -> Tensor:
    """Sums over examples and pixels [2, blocks, C] of g m z^ and of g m, where m is 1 where a block is not cut off.

    Args:
        blocks: to be summed over.
        gradients: of the sum that each block stands in.
        of_weights: whether the gradient of the blocks' weights is asked for; else those of weight 0 have sums of 0.
    """
    rows: tuple[list[Tensor], list[Tensor]] = ([], [])
    for block, gradient in enumerate(gradients):
        z, before = blocks.normalised(block)
        passed = gradient * (before > 0)
        rows[0].append(_over_pixels(passed * z))
        rows[1].append(_over_pixels(passed))
    sums = torch.stack([torch.stack(part) for part in rows])
    return sums if of_weights else sums.where(blocks.weights.view(-1, 1) != 0, 0)


def block_gradient(blocks: Blocks, gradients: Sequence[Tensor], sums: Tensor) -> Tensor:
    """The gradient of what was convolved: w scale factor (g m - mean of g m - z^ mean of g m z^)."""
    parts = []
    for block, gradient in enumerate(gradients):
        channels, count = gradient.shape[1], gradient.numel() // gradient.shape[1]
        z, before = blocks.normalised(block)
        factor = blocks.factor[block * channels : (block + 1) * channels]
        slope = (blocks.weights[block] * blocks.affine[0, block] * factor).view(1, -1, 1, 1)
        by_z, by_one = (row.view(1, -1, 1, 1) / count for row in sums[:, block])
        parts.append(slope * (gradient * (before > 0) - by_one - z * by_z))
    return torch.cat(parts, 1)


def value_gradient(node: int, gradient: Tensor, place: Tensor, by_convolutions: Tensor, added: Tensor) -> Tensor:
    """The gradient of what a node took: through its convolutions, and of every maximum to where it stands."""
    height, width = gradient.shape[2:]
    found = by_convolutions
    for k in range(9):
        own = F.pad(gradient * (place == k), (1, 1, 1, 1))
        top, left = 2 - k // 3, 2 - k % 3
        found = found + added[node - 1, node - 1] * own[..., top : top + height, left : left + width]
    return found


def _at(value: Tensor, place: Tensor) -> Tensor:
    """Of every pixel, the neighbour that stands at a place from 0 to 8."""
    height, width = value.shape[2:]
    around = F.pad(value, (1, 1, 1, 1))
    shifted = [around[..., k // 3 : k // 3 + height, k % 3 : k % 3 + width] for k in range(9)]
    return torch.stack(shifted).gather(0, place.long().unsqueeze(0)).squeeze(0)


def _over_pixels(image: Tensor) -> Tensor:
    return image.sum((0, 2, 3))
