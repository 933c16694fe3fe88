"""The operations that may stand on an edge of a DARTS cell, and the layers around them, made from a layer factory."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from polyarch.spaces.layer_factories import LayerFactory
from polyarch.spaces.layers import Once, Statistics

OPERATIONS = (
    "none", "max_pool_3x3", "avg_pool_3x3", "skip_connect",
    "sep_conv_3x3", "sep_conv_5x5", "dil_conv_3x3", "dil_conv_5x5",
)  # fmt: skip


@dataclass(frozen=True)
class Style:
    """How all cells of a network are made.

    Those of a `search` have batch norm without scale and shift, and one after every pooling.
    """

    factory: LayerFactory
    search: bool
    statistics: Statistics

    def norm(self, channels: int) -> nn.Module:
        """A batch norm in a cell."""
        return self.factory.norm(channels, affine=not self.search, statistics=self.statistics)


class Beginnings:
    """What operations begin with and have no weights for: ReLU and pooling.

    Edges of a supernet that leave the same node with the same stride have the same, so that it is made once; a network
    that a user is handed has its own everywhere.
    """

    def __init__(self, stride: int, shared: bool) -> None:
        """Nothing is made yet."""
        self.stride, self._shared = stride, shared
        self._made: dict[str, nn.Module] = {}

    def _of(self, kind: str, module: nn.Module) -> nn.Module:
        return self._made.setdefault(kind, Once(module)) if self._shared else module

    def relu(self) -> nn.Module:
        """ReLU."""
        return self._of("relu", nn.ReLU())

    def pool(self, kind: str) -> nn.Module:
        """The largest, or the mean, of 3x3 pixels, of those that there are."""
        if kind == "max":
            return self._of(kind, nn.MaxPool2d(3, self.stride, padding=1))
        return self._of(kind, nn.AvgPool2d(3, self.stride, padding=1, count_include_pad=False))


def operation(style: Style, name: str, channels: int, begin: Beginnings) -> nn.Module:
    """The module behind a name: [batch, channels, h, w] -> [batch, channels, h / stride, w / stride], rounded up."""
    stride = begin.stride
    if name == "none":
        return Zero(stride)
    if name == "skip_connect":
        return nn.Identity() if stride == 1 else FactorizedReduce(style, channels, channels, begin.relu())
    if name in ("max_pool_3x3", "avg_pool_3x3"):
        return _pooled(style, channels, begin.pool(name[:3]))
    kernel = int(name[-1])
    if name.startswith("dil_conv"):
        return _separable(style, channels, kernel, stride, begin.relu(), dilation=2)
    first = _separable(style, channels, kernel, stride, begin.relu())
    return nn.Sequential(OrderedDict(first=first, second=_separable(style, channels, kernel, 1, nn.ReLU())))


def _pooled(style: Style, channels: int, pool: nn.Module) -> nn.Module:
    return nn.Sequential(OrderedDict(pool=pool, norm=style.norm(channels))) if style.search else pool


def _separable(
    style: Style, channels: int, kernel: int, stride: int, relu: nn.Module, dilation: int = 1
) -> nn.Sequential:
    """ReLU, a convolution of each channel by itself, one across channels, batch norm."""
    padding = dilation * (kernel // 2)
    depthwise = style.factory.conv(
        channels, channels, kernel, stride=stride, padding=padding, dilation=dilation, groups=channels
    )
    pointwise = style.factory.conv(channels, channels, 1)
    return nn.Sequential(OrderedDict(relu=relu, depthwise=depthwise, pointwise=pointwise, norm=style.norm(channels)))


def relu_conv_norm(style: Style, inputs: int, outputs: int) -> nn.Sequential:
    """ReLU, a 1x1 convolution, batch norm: what brings a cell's input to its channels."""
    return nn.Sequential(
        OrderedDict(relu=nn.ReLU(), conv=style.factory.conv(inputs, outputs, 1), norm=style.norm(outputs))
    )


class Zero(nn.Module):
    """Nothing: zeros, with a gradient of zeros."""

    def __init__(self, stride: int) -> None:
        """`stride` says how much smaller they are than the input."""
        super().__init__()
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        """Zeros in the shape of every `stride`-th pixel of x."""
        return x[:, :, :: self.stride, :: self.stride] * 0


class FactorizedReduce(nn.Module):
    """Half the height and width: half of the channels from every second pixel, half from those between."""

    def __init__(self, style: Style, inputs: int, outputs: int, relu: nn.Module | None = None) -> None:
        """`outputs` is even; `relu` may be one that others have too."""
        super().__init__()
        self.channels = outputs // 2
        self.relu = relu or nn.ReLU()
        self.even = style.factory.conv(inputs, outputs // 2, 1, stride=2)
        self.odd = style.factory.conv(inputs, outputs // 2, 1, stride=2)
        self.norm = style.norm(outputs)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, inputs, h, w] -> [batch, outputs, h / 2, w / 2], rounded up."""
        x = self.relu(x)
        shifted = self.shifted(x)
        # Side by side within each repeat; of how many repeats, it is not told.
        halves = [part.unflatten(1, (-1, self.channels)) for part in (self.even(x), self.odd(shifted))]
        answer: Tensor = self.norm(torch.cat(halves, 2).flatten(1, 2))
        return answer

    @staticmethod
    def shifted(x: Tensor) -> Tensor:
        """The image from its second pixel on, so that every second of these lies between those of the image."""
        height, width = x.shape[2:]
        # An odd side has one pixel fewer between than it has every second.
        return F.pad(x[:, :, 1:, 1:], (0, width % 2, 0, height % 2)) if height % 2 or width % 2 else x[:, :, 1:, 1:]


class Auxiliary(nn.Module):
    """A second classifier on the features of a middle layer, for training alone."""

    def __init__(self, factory: LayerFactory, channels: int, outputs: int) -> None:
        """Two convolutions and a linear layer."""
        super().__init__()
        self.features = nn.Sequential(
            OrderedDict(
                conv1=factory.conv(channels, 128, 1), norm1=factory.norm(128), relu1=nn.ReLU(),
                conv2=factory.conv(128, 768, 2), norm2=factory.norm(768), relu2=nn.ReLU(),
            )
        )  # fmt: skip
        self.head = factory.linear(768, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, channels, height, width] -> [batch, outputs]."""
        x = F.relu(x)
        # DARTS's own windows overlap, and are made for images of 32 pixels a side; other sizes get as many.
        x = F.avg_pool2d(x, 5, stride=3) if x.shape[2:] == (8, 8) else F.adaptive_avg_pool2d(x, 2)
        answer: Tensor = self.head(self.features(x).flatten(1))
        return answer
