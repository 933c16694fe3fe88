"""The operations of `reading` as torch has them, for any device."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def read_row(values: Sequence[Tensor], weights: Tensor, row: int) -> Tensor:
    """ReLU of the weighted sum of values."""
    return _weighted(values, [weights[:, :, row, k] for k in range(row + 1)]).relu_()


def value_gradient(
    upstream: Tensor, out: Tensor, gradients: Sequence[Tensor | None], weights: Tensor, row: int
) -> tuple[Tensor, Tensor]:
    """The gradient of the row's sum, and that of the value that came before it."""
    own = upstream * (out > 0)
    later = {row: own} | {k: g for k, g in enumerate(gradients) if g is not None and k > row}
    return own, _weighted(list(later.values()), [weights[:, :, k, row] for k in later])


def weight_gradient(own: Tensor, values: Sequence[Tensor], weights: Tensor, row: int) -> Tensor:
    """[batch, repeats, values]."""
    repeats = weights.shape[1]
    found = torch.zeros_like(weights[:, :, row])
    for k in range(row + 1):
        found[:, :, k] = (own * values[k]).unflatten(1, (repeats, -1)).sum((2, 3, 4), dtype=weights.dtype)
    return found


def _weighted(values: Sequence[Tensor], weights: Sequence[Tensor]) -> Tensor:
    """The sum of values [batch, repeats * channels, h, w] by weights [batch, repeats], in the values' own type."""
    parts = [value.unflatten(1, (weights[0].shape[1], -1)) for value in values]
    shares = [weight.to(values[0].dtype)[..., None, None, None] for weight in weights]
    found = parts[0] * shares[0]
    for part, share in zip(parts[1:], shares[1:], strict=True):
        found.addcmul_(part, share)
    return found.flatten(1, 2)
