"""How deep a residual network should be (LDN section 2, Fig. 1, appendix B).

a_0 = f_0(x); a_i = a_{i-1} + f_i(a_{i-1}); the network of depth d answers f_{D+1}(a_d), with one output block f_{D+1}
for all depths. Depth is a nested decision: one pass through all D blocks gives every depth's answer.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F  # noqa: N812
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

    max_depth: int = 20
    """D, the deepest network considered (LDN Fig. 3 uses 20, Figs. 2 and 4 use 50)."""
    width: int = 0
    """Features of a block, or channels of a convolutional one; 0 is the paper's: 20 (section 3.1) or 64 (appendix B)."""
    block: Literal["auto", "linear", "conv"] = "auto"
    """`linear` (Linear, ReLU, batch norm), `conv` (pre-activation bottleneck, half the width inside), or by the input."""
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


def _linear_block(width: int) -> Residual:
    return Residual(nn.Linear(width, width), nn.ReLU(), nn.BatchNorm1d(width))


def _conv_block(width: int) -> Residual:
    inner = width // 2
    return Residual(
        nn.BatchNorm2d(width), nn.ReLU(), nn.Conv2d(width, inner, 1),
        nn.BatchNorm2d(inner), nn.ReLU(), nn.Conv2d(inner, inner, 3, padding=1),
        nn.BatchNorm2d(inner), nn.ReLU(), nn.Conv2d(inner, width, 1),
    )  # fmt: skip


def _linear_network(space: ResidualDepth, depth: int, shape: TaskShape) -> nn.Sequential:
    features = torch.Size(shape.input).numel()
    stem = nn.Sequential(nn.Flatten(), nn.Linear(features, space.width))
    blocks = nn.Sequential(*(_linear_block(space.width) for _ in range(depth)))
    return nn.Sequential(stem, blocks, nn.Sequential(nn.Linear(space.width, shape.outputs)))


def _conv_network(space: ResidualDepth, depth: int, shape: TaskShape) -> nn.Sequential:
    stem = nn.Sequential(nn.Conv2d(shape.input[0], space.width, space.stem_kernel), nn.AvgPool2d(2))
    blocks = nn.Sequential(*(_conv_block(space.width) for _ in range(depth)))
    pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
    head = nn.Sequential(pool, _linear_block(space.width), nn.Linear(space.width, shape.outputs))
    return nn.Sequential(stem, blocks, head)


# ---------------------------------------------------------------------------------------------------------------------
# All depths at once, for any number of repeats.


class LinearBlock(nn.Module):
    """Linear, ReLU, batch norm on [repeats, width, batch]; the caller adds the input."""

    def __init__(self, repeats: int, width: int) -> None:
        """One of f_1 ... f_D."""
        super().__init__()
        self.linear = Linear(repeats, width, width)
        self.norm = BatchNorm(repeats, width)

    def forward(self, x: Tensor) -> Tensor:
        """[repeats, width, batch] -> the same."""
        return self.norm(F.relu(self.linear(x)))

    def plain(self) -> list[nn.Module]:
        """The layers, in the order in which the plain block has them (ReLUs left out)."""
        return [self.linear, self.norm]


class ConvBlock(nn.Module):
    """Pre-activation bottleneck on [batch, repeats * width, h, w]; the caller adds the input."""

    def __init__(self, repeats: int, width: int) -> None:
        """One of f_1 ... f_D."""
        super().__init__()
        inner = width // 2
        self.norms = nn.ModuleList(BatchNorm(repeats, c) for c in (width, inner, inner))
        self.convs = nn.ModuleList(
            (
                Conv2d(repeats, width, inner, 1),
                Conv2d(repeats, inner, inner, 3, padding=1),
                Conv2d(repeats, inner, width, 1),
            )
        )

    def forward(self, x: Tensor) -> Tensor:
        """[batch, repeats * width, h, w] -> the same."""
        for norm, conv in zip(self.norms, self.convs, strict=True):
            x = conv(F.relu(norm(x)))
        return x

    def plain(self) -> list[nn.Module]:
        """The layers, in the order in which the plain block has them (ReLUs left out)."""
        return [layer for pair in zip(self.norms, self.convs, strict=True) for layer in pair]


class DepthSupernet(Supernet):
    """Weights of all depths; the output block answers for all of them in one batched call."""

    views: ClassVar[frozenset[type]] = frozenset({Hard, PerExample, All})

    def __init__(self, space: ResidualDepth, shape: TaskShape, repeats: int) -> None:
        """Makes room for the weights; `reset` draws them."""
        super().__init__()
        self.space: ResidualDepth = space.sized(shape)  # type: ignore[assignment]
        self.shape, self.repeats = shape, repeats
        width, depths = self.space.width, space.max_depth + 1
        self.convolutional = self.space.block == "conv"
        self.stem: Conv2d | Linear
        if self.convolutional:
            self.stem = Conv2d(repeats, shape.input[0], width, space.stem_kernel)
            self.blocks = nn.ModuleList(ConvBlock(repeats, width) for _ in range(space.max_depth))
            self.head_linear: Linear | None = Linear(repeats, width, width)
            self.head_norm: BatchNorm | None = BatchNorm(repeats, width, depths, space.head_statistics == "shared")
        else:
            self.stem = Linear(repeats, torch.Size(shape.input).numel(), width)
            self.blocks = nn.ModuleList(LinearBlock(repeats, width) for _ in range(space.max_depth))
            self.head_linear = self.head_norm = None
        self.output = Linear(repeats, width, shape.outputs)

    def forward(self, x: Tensor, view: View) -> Tensor:
        """See `Supernet.forward`."""
        if isinstance(view, Hard) and isinstance(view.choices, tuple):
            return self._one_depth(x, view.choices[0])
        answers = self._all_depths(x)
        if isinstance(view, All):
            return answers
        if isinstance(view, Hard):
            chosen = view.choices.view(-1, 1, 1, 1)  # type: ignore[union-attr]
        elif isinstance(view, PerExample):
            chosen = view.choices.transpose(1, 2).unsqueeze(-1)
        else:
            raise PolyarchError("the depth space has no soft mixture of depths; run it under All and mix the answers")
        shape = (answers.shape[0], 1, answers.shape[2], answers.shape[3])
        return answers.gather(1, chosen.expand(shape)).squeeze(1)

    def _one_depth(self, x: Tensor, depth: int) -> Tensor:
        *_, last = self._activations(x, depth)
        features = self._features(last)
        if self.head_linear is not None and self.head_norm is not None:
            features = features + self.head_norm.option(F.relu(self.head_linear(features)), depth)
        return self.output(features).transpose(1, 2)

    def _all_depths(self, x: Tensor) -> Tensor:
        """[repeats, batch, ...] -> [repeats, depths, batch, outputs]."""
        # One matrix [repeats, width, depths * batch]: the output block sees depths as more examples.
        features = torch.cat([self._features(a) for a in self._activations(x, self.space.max_depth)], -1)
        depths = self.space.max_depth + 1
        if self.head_linear is not None and self.head_norm is not None:
            hidden = F.relu(self.head_linear(features)).unflatten(-1, (depths, -1))
            features = features + self.head_norm.all_options(hidden).flatten(2)
        return self.output(features).unflatten(-1, (depths, -1)).permute(0, 2, 3, 1)

    def _activations(self, x: Tensor, depth: int) -> Iterable[Tensor]:
        """a_0 ... a_depth, each handed on as soon as it is there."""
        if self.convolutional:
            a = F.avg_pool2d(self.stem(x.transpose(0, 1).flatten(1, 2)), 2)
        else:
            a = self.stem(x.flatten(2).transpose(1, 2))
        yield a
        for block in self.blocks[:depth]:
            a = a + block(a)
            yield a

    def _features(self, a: Tensor) -> Tensor:
        """What the output block reads of an activation: [repeats, width, batch]."""
        if not self.convolutional:
            return a
        return a.mean((2, 3)).unflatten(1, (self.repeats, -1)).permute(1, 2, 0)

    def member_state(self, architecture: Architecture, repeat: int) -> dict[str, Tensor]:
        """See `Supernet.member_state`."""
        depth = architecture.choices[0]
        state = _plain_layer("0.0" if self.convolutional else "0.1", self.stem, repeat)
        for k, block in enumerate(self.blocks[:depth]):
            positions = (0, 2, 3, 5, 6, 8) if self.convolutional else (0, 2)
            for position, layer in zip(positions, block.plain(), strict=True):  # type: ignore[operator, union-attr]
                state |= _plain_layer(f"1.{k}.{position}", layer, repeat)
        if self.head_linear is not None and self.head_norm is not None:
            state |= _plain_layer("2.1.0", self.head_linear, repeat)
            state |= _plain_layer("2.1.2", self.head_norm, repeat, depth)
        return state | _plain_layer("2.2" if self.convolutional else "2.0", self.output, repeat)

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


def _plain_layer(prefix: str, layer: nn.Module, repeat: int, option: int | None = None) -> dict[str, Tensor]:
    """One repeat's parameters of a layer, under the names of torch.nn."""
    state = {f"{prefix}.{name}": value[repeat] for name, value in layer.state_dict().items()}
    if isinstance(layer, BatchNorm):
        if layer.options and not layer.shared_statistics and option is not None:
            for name in ("running_mean", "running_var"):
                state[f"{prefix}.{name}"] = state[f"{prefix}.{name}"][..., option]
        state[f"{prefix}.num_batches_tracked"] = torch.tensor(0)
    return state
