"""Tensors put aside, and put back: for steps that are tried and undone."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor


class Snapshot:
    """The values that tensors had when it was taken."""

    def __init__(self, tensors: Iterable[Tensor]) -> None:
        """Copies them."""
        self._tensors = list(tensors)
        self.values = [tensor.detach().clone() for tensor in self._tensors]

    @torch.no_grad()
    def restore(self) -> None:
        """Puts the values back, in place."""
        if self._tensors:  # torch copies no empty list
            torch._foreach_copy_(self._tensors, self.values)
