"""How deep a residual network should be (LDN section 2, Fig. 1, appendix B).

a_0 = f_0(x); a_i = a_{i-1} + f_i(a_{i-1}); the network of depth d answers f_{D+1}(a_d), with one output block f_{D+1}
for all depths. Depth is a nested decision: one pass through all D blocks gives every depth's answer.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from polyarch.architecture import Architecture, Decision
from polyarch.data.task import TaskShape
from polyarch.distributions.base import Distribution
from polyarch.errors import PolyarchError
from polyarch.settings import at_least
from polyarch.spaces.base import All, Hard, PerExample, Space, Supernet, View
from polyarch.spaces.layers import BatchNorm, Conv2d, Linear


@dataclass(frozen=True, kw_only=True)
class ResidualDepth(Space):
    """Depths 0 to `max_depth` of a residual network; fully connected for vectors, convolutional for images."""

    name: ClassVar[str] = "depth"
    nested: ClassVar[bool] = True

    max_depth: int = 20
    """D, the deepest network considered (LDN Fig. 3 uses 20, Figs. 2 and 4 use 50)."""
    width: int = 0
    """Features of a block, or channels of a convolutional one; 0: the paper's, 20 (section 3.1) or 64 (appendix B)."""
    block: Literal["auto", "linear", "conv"] = "auto"
    """`linear` (Linear, ReLU, batch norm), `conv` (pre-activation bottleneck, half as wide inside), or by the input."""
    stem_kernel: int = 5
    """Kernel of the convolutional input block, unpadded, followed by 2x2 average pooling (appendix B)."""
    head_statistics: Literal["per-depth", "shared"] = "per-depth"
    """Batch-norm statistics of the convolutional output block: kept `per-depth`, or `shared` as in the released code,
    where they are mostly those of the deepest depths, so that shallow depths are mis-normalised at test time."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least("max_depth", self.max_depth, 0)
        at_least("stem_kernel", self.stem_kernel, 1)
        at_least("width", self.width, 0)
        if self.width == 1 and self.block == "conv":
            raise PolyarchError("width is 1; a convolutional block halves it inside, so it must be at least 2")

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """One: the depth."""
        return (Decision("depth", tuple(str(d) for d in range(self.max_depth + 1))),)

    def convolutional(self, shape: TaskShape) -> bool:
        """Whether networks for such inputs have convolutional blocks."""
        return self.block == "conv" or (self.block == "auto" and len(shape.input) == 3)

    def check(self, shape: TaskShape) -> None:
        """Raises when an image is too small for the input block."""
        if not self.convolutional(shape):
            return
        if len(shape.input) != 3:
            raise PolyarchError(f"block=conv needs images [channels, height, width], not inputs of shape {shape.input}")
        smallest = self.stem_kernel + 1
        if min(shape.input[1:]) < smallest:
            raise PolyarchError(
                f"images of {shape.input[1]}x{shape.input[2]} are too small for stem_kernel={self.stem_kernel}; "
                f"they need {smallest} pixels a side: set stem_kernel lower, or block=linear"
            )

    def sized(self, shape: TaskShape) -> ResidualDepth:
        """The same space with `block` and `width` spelt out for such inputs."""
        conv = self.convolutional(shape)
        return replace(self, block="conv" if conv else "linear", width=self.width or (64 if conv else 20))

    def supernet(self, shape: TaskShape, repeats: int = 1) -> DepthSupernet:
        """See `Space.supernet`."""
        return DepthSupernet(self, shape, repeats)

    def build(self, architecture: Architecture, shape: TaskShape) -> nn.Module:
        """See `Space.build`."""
        space, depth = self.sized(shape), architecture.choices[0]
        body = _conv_network if space.block == "conv" else _linear_network
        return body(space, depth, shape)

    def pruned(self, architecture: Architecture) -> ResidualDepth:
        """The space that ends at an architecture's depth."""
        return replace(self, max_depth=architecture.choices[0])


# ---------------------------------------------------------------------------------------------------------------------
# One network, written plainly: what a user gets.


class Residual(nn.Sequential):
    """x + f(x), f being the layers in order."""

    def forward(self, x: Tensor) -> Tensor:
        """Adds what the layers make of x to x."""
        return x + super().forward(x)


def _named(**layers: nn.Module) -> OrderedDict[str, nn.Module]:
    return OrderedDict(layers)


def _linear_block(width: int) -> Residual:
    return Residual(_named(linear=nn.Linear(width, width), relu=nn.ReLU(), norm=nn.BatchNorm1d(width)))


def _conv_block(width: int) -> Residual:
    inner = width // 2
    layers = _named(
        norm1=nn.BatchNorm2d(width), relu1=nn.ReLU(), conv1=nn.Conv2d(width, inner, 1),
        norm2=nn.BatchNorm2d(inner), relu2=nn.ReLU(), conv2=nn.Conv2d(inner, inner, 3, padding=1),
        norm3=nn.BatchNorm2d(inner), relu3=nn.ReLU(), conv3=nn.Conv2d(inner, width, 1),
    )  # fmt: skip
    return Residual(layers)


def _linear_network(space: ResidualDepth, depth: int, shape: TaskShape) -> nn.Sequential:
    features = torch.Size(shape.input).numel()
    stem = nn.Sequential(_named(flatten=nn.Flatten(), linear=nn.Linear(features, space.width)))
    blocks = nn.Sequential(*(_linear_block(space.width) for _ in range(depth)))
    head = nn.Sequential(_named(output=nn.Linear(space.width, shape.outputs)))
    return nn.Sequential(_named(stem=stem, blocks=blocks, head=head))


def _conv_network(space: ResidualDepth, depth: int, shape: TaskShape) -> nn.Sequential:
    convolution = nn.Conv2d(shape.input[0], space.width, space.stem_kernel)
    stem = nn.Sequential(_named(conv=convolution, pool=nn.AvgPool2d(2)))
    blocks = nn.Sequential(*(_conv_block(space.width) for _ in range(depth)))
    pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
    output = nn.Linear(space.width, shape.outputs)
    head = nn.Sequential(_named(pool=pool, residual=_linear_block(space.width), output=output))
    return nn.Sequential(_named(stem=stem, blocks=blocks, head=head))


# ---------------------------------------------------------------------------------------------------------------------
# All depths at once, for any number of repeats. Parameters have the names of the plain network's.


class LinearStem(nn.Module):
    """f_0 for vectors: [repeats, batch, ...] -> [repeats, width, batch]."""

    def __init__(self, repeats: int, inputs: int, width: int) -> None:
        """A linear layer."""
        super().__init__()
        self.linear = Linear(repeats, inputs, width)

    def forward(self, x: Tensor) -> Tensor:
        """Flattens each input."""
        return self.linear(x.flatten(2).transpose(1, 2))


class ConvStem(nn.Module):
    """f_0 for images: [repeats, batch, channels, h, w] -> [batch, repeats * width, h', w']."""

    def __init__(self, repeats: int, channels: int, width: int, kernel: int) -> None:
        """A convolution without padding, then pooling."""
        super().__init__()
        self.conv = Conv2d(repeats, channels, width, kernel)

    def forward(self, x: Tensor) -> Tensor:
        """Folds repeats into channels."""
        return F.avg_pool2d(self.conv(x.transpose(0, 1).flatten(1, 2)), 2)


class LinearBlock(nn.Module):
    """f_i on [repeats, width, batch]; the caller adds the input."""

    def __init__(self, repeats: int, width: int) -> None:
        """Linear, ReLU, batch norm."""
        super().__init__()
        self.linear = Linear(repeats, width, width)
        self.norm = BatchNorm(repeats, width)

    def forward(self, x: Tensor) -> Tensor:
        """[repeats, width, batch] -> the same."""
        return self.norm(F.relu(self.linear(x)))


class ConvBlock(nn.Module):
    """f_i on [batch, repeats * width, h, w]; the caller adds the input."""

    def __init__(self, repeats: int, width: int) -> None:
        """Pre-activation bottleneck: batch norm, ReLU, convolution, three times."""
        super().__init__()
        inner = width // 2
        self.norm1, self.conv1 = BatchNorm(repeats, width), Conv2d(repeats, width, inner, 1)
        self.norm2, self.conv2 = BatchNorm(repeats, inner), Conv2d(repeats, inner, inner, 3, padding=1)
        self.norm3, self.conv3 = BatchNorm(repeats, inner), Conv2d(repeats, inner, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, repeats * width, h, w] -> the same."""
        x = self.conv1(F.relu(self.norm1(x)))
        x = self.conv2(F.relu(self.norm2(x)))
        return self.conv3(F.relu(self.norm3(x)))


class LinearHead(nn.Module):
    """f_{D+1} for vectors: a linear layer."""

    def __init__(self, repeats: int, width: int, outputs: int) -> None:
        """Knows nothing of depth."""
        super().__init__()
        self.output = Linear(repeats, width, outputs)

    def features(self, a: Tensor) -> Tensor:
        """What is read of an activation: [repeats, width, batch]."""
        return a

    def one_depth(self, features: Tensor, depth: int) -> Tensor:
        """[repeats, width, batch] -> [repeats, outputs, batch]."""
        return self.output(features)

    def all_depths(self, features: Tensor, depths: int) -> Tensor:
        """[repeats, width, depths * batch] -> [repeats, outputs, depths * batch]."""
        return self.output(features)


class ConvHead(nn.Module):
    """f_{D+1} for images: global average pooling, one fully connected residual block, a linear layer."""

    def __init__(self, repeats: int, width: int, outputs: int, depths: int, shared_statistics: bool) -> None:
        """The block's batch norm normalises every depth by itself."""
        super().__init__()
        self.repeats = repeats
        self.residual = LinearBlock(repeats, width)
        self.residual.norm = BatchNorm(repeats, width, depths, shared_statistics)
        self.output = Linear(repeats, width, outputs)

    def features(self, a: Tensor) -> Tensor:
        """What is read of an activation, pooled: [repeats, width, batch]."""
        return a.mean((2, 3)).unflatten(1, (self.repeats, -1)).permute(1, 2, 0)

    def one_depth(self, features: Tensor, depth: int) -> Tensor:
        """[repeats, width, batch] -> [repeats, outputs, batch]."""
        hidden = F.relu(self.residual.linear(features))
        return self.output(features + self.residual.norm.option(hidden, depth))

    def all_depths(self, features: Tensor, depths: int) -> Tensor:
        """[repeats, width, depths * batch] -> [repeats, outputs, depths * batch]."""
        hidden = F.relu(self.residual.linear(features)).unflatten(-1, (depths, -1))
        return self.output(features + self.residual.norm.all_options(hidden).flatten(2))


class DepthSupernet(Supernet):
    """Weights of all depths; the output block answers for all of them in one batched call."""

    views: ClassVar[frozenset[type]] = frozenset({Hard, PerExample, All})
    space: ResidualDepth

    def __init__(self, space: ResidualDepth, shape: TaskShape, repeats: int) -> None:
        """Makes room for the weights; `reset` draws them."""
        super().__init__()
        space = space.sized(shape)
        self.space, self.shape, self.repeats = space, shape, repeats
        self.depths = space.max_depth + 1
        if space.block == "conv":
            self.stem: nn.Module = ConvStem(repeats, shape.input[0], space.width, space.stem_kernel)
            self.blocks = nn.ModuleList(ConvBlock(repeats, space.width) for _ in range(space.max_depth))
            shared = space.head_statistics == "shared"
            self.head: ConvHead | LinearHead = ConvHead(repeats, space.width, shape.outputs, self.depths, shared)
        else:
            self.stem = LinearStem(repeats, torch.Size(shape.input).numel(), space.width)
            self.blocks = nn.ModuleList(LinearBlock(repeats, space.width) for _ in range(space.max_depth))
            self.head = LinearHead(repeats, space.width, shape.outputs)

    def forward(self, x: Tensor, view: View) -> Tensor:
        """See `Supernet.forward`."""
        if isinstance(view, All):
            return self._all_depths(x)
        if isinstance(view, Hard):
            if isinstance(view.choices, tuple):
                return self._one_depth(x, view.choices[0])
            return self._chosen(x, view.choices.unsqueeze(1))
        if isinstance(view, PerExample):
            return self._chosen(x, view.choices)
        raise PolyarchError("the depth space has no soft mixture of depths; run it under All and mix the answers")

    def _one_depth(self, x: Tensor, depth: int) -> Tensor:
        *_, last = self._activations(x, depth)
        return self.head.one_depth(self.head.features(last), depth).transpose(1, 2)

    def _all_depths(self, x: Tensor) -> Tensor:
        """[repeats, batch, ...] -> [repeats, depths, batch, outputs]."""
        # One matrix [repeats, width, depths * batch]: the output block sees depths as more examples.
        features = torch.cat([self.head.features(a) for a in self._activations(x, self.depths - 1)], -1)
        return self.head.all_depths(features, self.depths).unflatten(-1, (self.depths, -1)).permute(0, 2, 3, 1)

    def _chosen(self, x: Tensor, choices: Tensor) -> Tensor:
        """The answers of chosen depths: choices are [repeats, batch or 1, 1]."""
        answers = self._all_depths(x)
        index = choices.unsqueeze(1).expand(-1, 1, *answers.shape[2:])
        return answers.gather(1, index).squeeze(1)

    def _activations(self, x: Tensor, depth: int) -> Iterable[Tensor]:
        """a_0 ... a_depth, each handed on as soon as it is there."""
        a = self.stem(x)
        yield a
        for block in self.blocks[:depth]:
            a = a + block(a)
            yield a

    def member_state(self, architecture: Architecture, repeat: int) -> dict[str, Tensor]:
        """See `Supernet.member_state`."""
        own = self.state_dict()
        with torch.device("meta"):
            wanted = self.space.build(architecture, self.shape).state_dict()
        state = {}
        for name, value in wanted.items():
            if name.endswith("num_batches_tracked"):  # torch.nn counts batches, our batch norm does not need to
                state[name] = torch.tensor(0)
            elif own[name].dim() == value.dim() + 2:  # statistics of the output block, kept per depth
                state[name] = own[name][repeat][..., architecture.choices[0]]
            else:
                state[name] = own[name][repeat]
        return state

    def nested_members(self, architecture: Architecture, belief: Distribution) -> tuple[DepthSupernet, Tensor]:
        """Depths 0 to the architecture's, with copies of their weights: deeper blocks are gone, their mass moved up."""
        depth = architecture.choices[0]
        small = self.space.pruned(architecture).supernet(self.shape)
        own = self.state_dict()
        state = {}
        for name, value in small.state_dict().items():  # per-depth statistics end with an axis of depths
            state[name] = own[name][..., : depth + 1] if own[name].shape != value.shape else own[name]
        small.load_state_dict(state)
        return small.eval(), prune(belief.probs()["depth"], depth)


def prune(probs: Tensor, depth: int) -> Tensor:
    """Belief [..., depths] after blocks beyond `depth` are dropped: [..., depth + 1], their mass moved onto `depth`."""
    return torch.cat([probs[..., :depth], probs[..., depth:].sum(-1, keepdim=True)], -1)
