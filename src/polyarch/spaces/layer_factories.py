"""Two makers of layers: `PlainLayers` for one network, `BatchedLayers` for many repeats of one at once.

A network that takes all its weights from a factory is written once. Under `BatchedLayers` images have repeats folded
into channels, [batch, repeats * channels, height, width], so activations and pooling need no factory: torch.nn's own
serve. Vectors are folded likewise, [batch, repeats * features], behind a network of images; a network on vectors takes
the layers named `vector_...`, between which they travel features-first, [repeats, features, batch], which is quicker.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn
from typing_extensions import override

from polyarch.spaces.layers import BatchNorm, Conv2d, Dropout, FeaturesFirst, FoldedLinear, Linear, Statistics


class LayerFactory(ABC):
    """What a network is built from."""

    @abstractmethod
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

    @abstractmethod
    def norm(self, channels: int, *, affine: bool = True, statistics: Statistics = "running") -> nn.Module:
        """A batch norm on images; `statistics` are a supernet's: a plain network keeps running ones in any case."""

    @abstractmethod
    def linear(self, inputs: int, outputs: int) -> nn.Module:
        """A linear layer on [batch, inputs]."""

    @abstractmethod
    def dropout(self, rate: float) -> nn.Module:
        """Dropout of single features; every repeat draws its own."""

    @abstractmethod
    def cat(self, parts: Sequence[Tensor]) -> Tensor:
        """Channels side by side, within each repeat."""

    @abstractmethod
    def to_vectors(self) -> nn.Module:
        """From inputs of any shape to vectors."""

    @abstractmethod
    def vector_linear(self, inputs: int, outputs: int) -> nn.Module:
        """A linear layer on vectors."""

    @abstractmethod
    def vector_norm(self, features: int, options: int = 0, shared_statistics: bool = False) -> nn.Module:
        """A batch norm on vectors; `options` and `shared_statistics` are a supernet's (`layers.BatchNorm`)."""


@final
@dataclass(frozen=True)
class PlainLayers(LayerFactory):
    """torch.nn's layers: what a user is handed."""

    @override
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
        return nn.Conv2d(inputs, outputs, kernel, stride, padding, dilation, groups, bias)

    @override
    def norm(self, channels: int, *, affine: bool = True, statistics: Statistics = "running") -> nn.Module:
        return nn.BatchNorm2d(channels, affine=affine)  # with running statistics: a single input must have an answer

    @override
    def linear(self, inputs: int, outputs: int) -> nn.Module:
        return nn.Linear(inputs, outputs)

    @override
    def dropout(self, rate: float) -> nn.Module:
        return nn.Dropout(rate)

    @override
    def cat(self, parts: Sequence[Tensor]) -> Tensor:
        return torch.cat(list(parts), 1)

    @override
    def to_vectors(self) -> nn.Module:
        return nn.Flatten()

    @override
    def vector_linear(self, inputs: int, outputs: int) -> nn.Module:
        return nn.Linear(inputs, outputs)

    @override
    def vector_norm(self, features: int, options: int = 0, shared_statistics: bool = False) -> nn.Module:
        return nn.BatchNorm1d(features)


@final
@dataclass(frozen=True)
class BatchedLayers(LayerFactory):
    """The same layers with an axis of repeats before every parameter."""

    repeats: int

    @override
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
        return Conv2d(
            self.repeats, inputs, outputs, kernel,
            stride=stride, padding=padding, dilation=dilation, groups=groups, bias=bias,
        )  # fmt: skip

    @override
    def norm(self, channels: int, *, affine: bool = True, statistics: Statistics = "running") -> nn.Module:
        return BatchNorm(self.repeats, channels, affine=affine, statistics=statistics)

    @override
    def linear(self, inputs: int, outputs: int) -> nn.Module:
        return FoldedLinear(self.repeats, inputs, outputs)

    @override
    def dropout(self, rate: float) -> nn.Module:
        return Dropout(rate)

    @override
    def cat(self, parts: Sequence[Tensor]) -> Tensor:
        return torch.cat([part.unflatten(1, (self.repeats, -1)) for part in parts], 2).flatten(1, 2)

    @override
    def to_vectors(self) -> nn.Module:
        return FeaturesFirst(self.repeats)

    @override
    def vector_linear(self, inputs: int, outputs: int) -> nn.Module:
        return Linear(self.repeats, inputs, outputs)

    @override
    def vector_norm(self, features: int, options: int = 0, shared_statistics: bool = False) -> nn.Module:
        return BatchNorm(self.repeats, features, options, shared_statistics)
