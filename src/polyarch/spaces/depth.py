"""How deep a residual network should be (Antorán et al. 2020, section 2, Fig. 1, appendix B).

a_0 = f_0(x); a_i = a_{i-1} + f_i(a_{i-1}); the network of depth d answers f_{D+1}(a_d), with one output block f_{D+1}
for all depths. Depth is a nested decision: one pass through all D blocks gives every depth's answer.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import islice
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor, nn
from typing_extensions import override

from polyarch.architecture import Architecture, Decision
from polyarch.data.task import TaskShape
from polyarch.distributions.base import Distribution
from polyarch.errors import PolyarchError
from polyarch.settings import TakesMemory, at_least
from polyarch.spaces.base import Space, Supernet
from polyarch.spaces.layer_factories import BatchedLayers, LayerFactory, PlainLayers
from polyarch.spaces.layers import BatchNorm
from polyarch.spaces.stepwise import Stepwise
from polyarch.spaces.views import All, Dense, PerExample, Sparse, View

DEEPEST = 1000
"""Blocks of a network at most: a digit too many would take hours before anything is said."""


@dataclass(frozen=True, kw_only=True)
class ResidualDepth(Space):
    """Depths 0 to `max_depth` of a residual network; fully connected for vectors, convolutional for images."""

    name: ClassVar[str] = "depth"
    nested: ClassVar[bool] = True

    max_depth: Annotated[int, TakesMemory()] = 20
    """D, the deepest network considered (Antorán et al. 2020: 20 in Fig. 3, 50 in Figs. 2 and 4)."""
    width: Annotated[int, TakesMemory()] = 0
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
        if self.max_depth > DEEPEST:
            raise PolyarchError(f"max_depth is {self.max_depth}; no network of more than {DEEPEST} blocks is made here")
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
        """Raises for tokens, and when an image is too small for the input block."""
        super().check(shape)
        if shape.tokens:
            raise PolyarchError(
                "inputs are whole numbers, which are tokens, and the space 'depth' has no embedding for them; save "
                "numbers as float32, or search a module of your own that begins with an nn.Embedding"
            )
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

    @override
    def supernet(self, shape: TaskShape, repeats: int = 1) -> DepthSupernet:
        return DepthSupernet(self, shape, repeats)

    @override
    def build(self, architecture: Architecture, shape: TaskShape) -> nn.Module:
        stem, blocks, head = _network(self.sized(shape), architecture.choices[0], shape, PlainLayers())
        return nn.Sequential(_named(stem=stem, blocks=blocks, head=head))

    def pruned(self, architecture: Architecture) -> ResidualDepth:
        """The space that ends at an architecture's depth."""
        return replace(self, max_depth=architecture.choices[0])


# ---------------------------------------------------------------------------------------------------------------------
# The network, from a layer factory: one of a given depth, or that of all depths for any number of repeats.


class Residual(nn.Sequential):
    """x + f(x), f being the layers in order."""

    def forward(self, x: Tensor) -> Tensor:
        """Adds what the layers make of x to x."""
        return x + super().forward(x)


Parts = tuple[nn.Sequential, nn.Sequential, nn.Sequential]
"""The stem f_0, the blocks f_1, f_2, ..., and the head f_{D+1}."""


def _network(space: ResidualDepth, depth: int, shape: TaskShape, factory: LayerFactory) -> Parts:
    """The network of a depth; the space is `sized`."""
    made = _conv_network if space.block == "conv" else _linear_network
    return made(space, depth, shape, factory)


def _named(**layers: nn.Module) -> OrderedDict[str, nn.Module]:
    return OrderedDict(layers)


def _linear_block(factory: LayerFactory, width: int, norm: nn.Module) -> Residual:
    """Linear, ReLU, batch norm."""
    return Residual(_named(linear=factory.vector_linear(width, width), relu=nn.ReLU(), norm=norm))


def _conv_block(factory: LayerFactory, width: int) -> Residual:
    """Pre-activation bottleneck: batch norm, ReLU, convolution, three times."""
    inner = width // 2
    layers = _named(
        norm1=factory.norm(width), relu1=nn.ReLU(), conv1=factory.conv(width, inner, 1, bias=True),
        norm2=factory.norm(inner), relu2=nn.ReLU(), conv2=factory.conv(inner, inner, 3, padding=1, bias=True),
        norm3=factory.norm(inner), relu3=nn.ReLU(), conv3=factory.conv(inner, width, 1, bias=True),
    )  # fmt: skip
    return Residual(layers)


def _linear_network(space: ResidualDepth, depth: int, shape: TaskShape, factory: LayerFactory) -> Parts:
    """For vectors: f_0 and f_{D+1} are linear layers."""
    width, features = space.width, torch.Size(shape.input).numel()
    stem = nn.Sequential(_named(flatten=factory.to_vectors(), linear=factory.vector_linear(features, width)))
    blocks = nn.Sequential(*(_linear_block(factory, width, factory.vector_norm(width)) for _ in range(depth)))
    head = nn.Sequential(_named(pool=nn.Identity(), output=factory.vector_linear(width, shape.outputs)))
    return stem, blocks, head


def _conv_network(space: ResidualDepth, depth: int, shape: TaskShape, factory: LayerFactory) -> Parts:
    """For images: f_0 is an unpadded convolution and pooling, f_{D+1} pooling, a linear block and a linear layer."""
    width = space.width
    convolution = factory.conv(shape.input[0], width, space.stem_kernel, bias=True)
    stem = nn.Sequential(_named(conv=convolution, pool=nn.AvgPool2d(2)))
    blocks = nn.Sequential(*(_conv_block(factory, width) for _ in range(depth)))
    pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), factory.to_vectors())
    output = factory.vector_linear(width, shape.outputs)
    norm = factory.vector_norm(width, depth + 1, space.head_statistics == "shared")
    head = nn.Sequential(_named(pool=pool, residual=_linear_block(factory, width, norm), output=output))
    return stem, blocks, head


class DepthSupernet(Supernet):
    """Weights of all depths, under the plain network's names; the head answers for all of them in one batched call."""

    views: frozenset[type] = frozenset({Sparse, Dense, PerExample, All})
    space: ResidualDepth

    def __init__(self, space: ResidualDepth, shape: TaskShape, repeats: int) -> None:
        """Makes room for the weights; `reset_parameters` draws them."""
        super().__init__()
        self.space, self.shape, self.repeats = space.sized(shape), shape, repeats
        self.depths = space.max_depth + 1
        self.stem, self.blocks, self.head = _network(self.space, space.max_depth, shape, BatchedLayers(repeats))
        self._head_norms = [module for module in self.head.modules() if isinstance(module, BatchNorm)]

    @override
    def forward(self, x: Tensor, view: View) -> Tensor:
        if isinstance(view, All):
            return self._all_depths(x)
        if isinstance(view, Sparse):
            return self._one_depth(x, view.choices[0])
        if isinstance(view, Dense):
            return self._chosen(x, view.choices.unsqueeze(1))
        if isinstance(view, PerExample):
            return self._chosen(x, view.choices)
        raise PolyarchError(
            f"the depth space does not run under {type(view).__name__}; run it under All and mix the answers"
        )

    def _one_depth(self, x: Tensor, depth: int) -> Tensor:
        *_, last = self._activations(x, depth)
        return self._answers(self._pooled(last), depth).transpose(1, 2)

    def _all_depths(self, x: Tensor) -> Tensor:
        """[repeats, batch, ...] -> [repeats, depths, batch, outputs]."""
        # One matrix [repeats, width, depths * batch]: the head sees depths as more examples.
        features = torch.cat([self._pooled(a) for a in self._activations(x, self.depths - 1)], -1)
        return self._answers(features, None).unflatten(-1, (self.depths, -1)).permute(0, 2, 3, 1)

    def _pooled(self, a: Tensor) -> Tensor:
        """What the head reads of an activation: [repeats, width, batch]."""
        pooled: Tensor = self.head[0](a)
        return pooled

    def _answers(self, pooled: Tensor, depth: int | None) -> Tensor:
        """What the rest of the head makes of one depth's features, or of all depths' side by side."""
        for norm in self._head_norms:
            norm.at = depth
        for layer in islice(self.head, 1, None):
            pooled = layer(pooled)
        return pooled

    def _chosen(self, x: Tensor, choices: Tensor) -> Tensor:
        """The answers of chosen depths: choices are [repeats, batch or 1, 1]."""
        answers = self._all_depths(x)
        index = choices.unsqueeze(1).expand(-1, 1, *answers.shape[2:])
        return answers.gather(1, index).squeeze(1)

    def _activations(self, x: Tensor, depth: int) -> Iterable[Tensor]:
        """a_0 ... a_depth, each handed on as soon as it is there."""
        a = self.stem(x.transpose(0, 1).flatten(1, 2))
        yield a
        for block in islice(self.blocks, depth):
            a = block(a)
            yield a

    @override
    def member_state(self, architecture: Architecture, repeat: int) -> dict[str, Tensor]:
        own = self.state_dict()
        with torch.device("meta"):
            wanted = self.space.build(architecture, self.shape).state_dict()
        [depth] = architecture.choices
        return {name: _of_member(own.get(name), value, repeat, depth) for name, value in wanted.items()}

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

    @override
    def stepwise(self, architecture: Architecture) -> nn.Module:
        stem, blocks, last = self.extract(architecture).children()
        own, heads = self.state_dict(), [copy.deepcopy(last) for _ in range(architecture.choices[0] + 1)]
        for depth, head in enumerate(heads):  # which differ in their statistics alone
            state = head.state_dict()
            head.load_state_dict({n: _of_member(own.get(f"head.{n}"), value, 0, depth) for n, value in state.items()})
        return nn.Sequential(stem, Stepwise(blocks.children(), heads))


def _of_member(own: Tensor | None, like: Tensor, repeat: int, depth: int) -> Tensor:
    """What the network of a depth has of one of the supernet's tensors, shaped as `like`."""
    if own is None:  # torch.nn counts batches, our batch norm does not need to
        return torch.tensor(0)
    if own.dim() == like.dim() + 2:  # statistics of the output block, kept per depth
        return own[repeat][..., depth]
    return own[repeat]


def prune(probs: Tensor, depth: int) -> Tensor:
    """Belief [..., depths] after blocks beyond `depth` are dropped: [..., depth + 1], their mass moved onto `depth`."""
    return torch.cat([probs[..., :depth], probs[..., depth:].sum(-1, keepdim=True)], -1)
