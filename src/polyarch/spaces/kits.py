"""Two kits of layers to build a network with: `Plain` for one network, `Batched` for many repeats of one at once.

A network on images that takes all its weights from a kit is written once. Under `Batched` repeats are folded into
channels, [batch, repeats * channels, height, width], so activations and pooling need no kit: torch.nn's own serve.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from polyarch.spaces.layers import BatchNorm, Conv2d, Dropout, FoldedLinear, Statistics


@dataclass(frozen=True)
class Plain:
    """torch.nn's layers: what a user is handed."""

    def conv(
        self,
        inputs: int,
        outputs: int,
        kernel: int,
        *,
        stride: int = 1,
        padding: int = 0,
        dilation: int = 1,
        groups: int = 1,
        bias: bool = False,
    ) -> nn.Module:
        """A convolution."""
        return nn.Conv2d(inputs, outputs, kernel, stride, padding, dilation, groups, bias)

    def norm(self, channels: int, *, affine: bool = True, statistics: Statistics = "running") -> nn.Module:
        """A batch norm. It keeps running statistics in any case: a single input must have an answer."""
        return nn.BatchNorm2d(channels, affine=affine)

    def linear(self, inputs: int, outputs: int) -> nn.Module:
        """A linear layer on [batch, inputs]."""
        return nn.Linear(inputs, outputs)

    def dropout(self, rate: float) -> nn.Module:
        """Dropout of single features."""
        return nn.Dropout(rate)

    def cat(self, parts: Sequence[Tensor]) -> Tensor:
        """Channels side by side."""
        return torch.cat(list(parts), 1)


@dataclass(frozen=True)
class Batched:
    """The same layers with an axis of repeats before every parameter."""

    repeats: int

    def conv(
        self,
        inputs: int,
        outputs: int,
        kernel: int,
        *,
        stride: int = 1,
        padding: int = 0,
        dilation: int = 1,
        groups: int = 1,
        bias: bool = False,
    ) -> nn.Module:
        """See `Plain.conv`."""
        return Conv2d(
            self.repeats, inputs, outputs, kernel,
            stride=stride, padding=padding, dilation=dilation, groups=groups, bias=bias,
        )  # fmt: skip

    def norm(self, channels: int, *, affine: bool = True, statistics: Statistics = "running") -> nn.Module:
        """See `Plain.norm`; with the policy of a supernet."""
        return BatchNorm(self.repeats, channels, affine=affine, statistics=statistics)

    def linear(self, inputs: int, outputs: int) -> nn.Module:
        """See `Plain.linear`."""
        return FoldedLinear(self.repeats, inputs, outputs)

    def dropout(self, rate: float) -> nn.Module:
        """See `Plain.dropout`; every repeat draws its own."""
        return Dropout(rate)

    def cat(self, parts: Sequence[Tensor]) -> Tensor:
        """See `Plain.cat`; within each repeat."""
        return torch.cat([part.unflatten(1, (self.repeats, -1)) for part in parts], 2).flatten(1, 2)


Kit = Plain | Batched
