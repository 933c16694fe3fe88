"""Networks of wirings: one plain network of each, and a supernet of all."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from typing_extensions import override

from polyarch.architecture import Architecture
from polyarch.data.task import TaskShape
from polyarch.errors import PolyarchError
from polyarch.spaces.base import Supernet
from polyarch.spaces.darts_operations import Auxiliary
from polyarch.spaces.layer_factories import BatchedLayers, LayerFactory, PlainLayers
from polyarch.spaces.layers import BatchNorm, Dropout, ResetsParameters
from polyarch.spaces.reading import DrawnRows, KnownRows, Link
from polyarch.spaces.views import Dense, PerExample, Sparse, View

if TYPE_CHECKING:
    from polyarch.spaces.wiring import Wiring

Rows = Sequence[Sequence[Link]] | Tensor
"""Of a stage: for every row the values that it reads and their weights; or all weights, [batch or 1, repeats, rows,
values]."""


Which = int | Tensor | None
"""The place of a wiring in the list: a number, or one-hot [repeats, batch or 1, listed]; None where nobody asks."""


class OwnAffine(nn.Module, ResetsParameters):
    """Batch norm with a scale and a shift for every listed wiring, and statistics that all share."""

    def __init__(self, repeats: int, listed: int, channels: int) -> None:
        """Scales 1, shifts 0."""
        super().__init__()
        self.shared = BatchNorm(repeats, channels, affine=False)
        self.weight = nn.Parameter(torch.ones(repeats, listed, channels))
        self.bias = nn.Parameter(torch.zeros(repeats, listed, channels))

    @override
    def reset_parameters(self, generators: Sequence[torch.Generator]) -> None:
        """Back to scale 1, shift 0; nothing here is random."""
        with torch.no_grad():
            self.weight.fill_(1)
            self.bias.fill_(0)

    def forward(self, x: Tensor, which: Which) -> Tensor:
        """[batch, repeats * channels, h, w], under the wiring of all or of each example."""
        with torch.autocast("cuda", enabled=False):  # what is small stays in single precision
            scale, shift = (self._of(values, which) for values in (self.weight, self.bias))
        answer: Tensor = self.shared(x, scale, shift)
        return answer

    def _of(self, values: Tensor, which: Which) -> Tensor:
        """[repeats * channels] for all, or [batch, repeats * channels]."""
        if not isinstance(which, Tensor):
            assert which is not None
            return values[:, which].flatten()
        chosen = torch.einsum("rbs,rsc->brc", which.to(values.dtype), values).flatten(1)
        return chosen[0] if len(chosen) == 1 else chosen


class Normalised(nn.Module):
    """Modules and then a batch norm, which may be every wiring's own."""

    def __init__(self, before: Mapping[str, nn.Module], norm: nn.Module) -> None:
        """Takes them over."""
        super().__init__()
        self.before = nn.Sequential(OrderedDict(before))
        self.norm = norm

    def forward(self, x: Tensor, which: Which) -> Tensor:
        """All of them."""
        x = self.before(x)
        answer: Tensor = self.norm(x, which) if isinstance(self.norm, OwnAffine) else self.norm(x)
        return answer


class Network(nn.Module):
    """Stem, stages of nodes with a transition between two, and a linear layer on the mean over pixels."""

    def __init__(self, space: Wiring, shape: TaskShape, factory: LayerFactory) -> None:
        """Makes every layer."""
        super().__init__()

        def norm(channels: int) -> nn.Module:
            if space.own_affine and isinstance(factory, BatchedLayers):
                return OwnAffine(factory.repeats, len(space.members), channels)
            return factory.norm(channels)

        def node(channels: int) -> Normalised:
            layers = {"conv": factory.conv(channels, channels, 3, padding=1)}
            if space.dropout:
                layers["dropout"] = factory.dropout(space.dropout)
            return Normalised(layers, norm(channels))

        def transition(channels: int) -> Normalised:
            # Rounded up where a side is odd. The paper pools after the convolution: a mean over pixels and a sum over
            # channels may change places, and this way the convolution sees a quarter of the pixels.
            pool = nn.AvgPool2d(2, ceil_mode=True, count_include_pad=False)
            conv = factory.conv(channels, 2 * channels, 1)
            return Normalised({"pool": pool, "conv": conv}, norm(2 * channels))

        channels = space.channels * space.width
        self.stem = Normalised(_stem(space, shape.input[0], channels, factory), norm(channels))
        self.stages, self.transitions = nn.ModuleList(), nn.ModuleList()
        for stage in range(space.stages):
            if stage:
                self.transitions.append(transition(channels))
                channels *= 2
            self.stages.append(nn.ModuleList(node(channels) for _ in range(space.nodes)))
        self.head = factory.linear(channels, shape.outputs)

    def forward(self, x: Tensor, stages: Sequence[Rows], which: Which) -> tuple[Tensor, Tensor]:
        """[batch, channels, height, width] -> [batch, outputs], and what the last stage began with."""
        x = self.stem(x, which)
        for stage, (nodes, rows) in enumerate(zip(self.stages, stages, strict=True)):
            if stage:
                x = self.transitions[stage - 1](x, which)
            began = x
            read = DrawnRows(rows) if isinstance(rows, Tensor) else KnownRows(rows)
            assert isinstance(nodes, nn.ModuleList)
            for node in nodes:
                x = node(read(x), which)
            x = read(x)
        return self.head(x.mean((2, 3))), began


def _auxiliary(space: Wiring, shape: TaskShape, factory: LayerFactory) -> Auxiliary | None:
    channels = space.channels * space.width * 2 ** (space.stages - 1)
    return Auxiliary(factory, channels, shape.outputs) if space.auxiliary else None


def _stem(space: Wiring, inputs: int, channels: int, factory: LayerFactory) -> dict[str, nn.Module]:
    if space.stem == "small":
        return {"conv": factory.conv(inputs, channels, 3, padding=1)}
    half = max(1, channels // 2)
    return {
        "conv1": factory.conv(inputs, half, 3, stride=2, padding=1),
        "norm1": factory.norm(half),
        "relu1": nn.ReLU(),
        "conv2": factory.conv(half, channels, 3, stride=2, padding=1),
    }


def _host_rows(space: Wiring, choices: Sequence[int]) -> list[list[list[tuple[int, float]]]]:
    """For every stage and row, the values that a wiring reads and their weights."""
    on = {link for link, choice in zip(space.links, choices, strict=True) if choice}
    found = []
    for stage in range(space.stages):
        read = [
            [*(v for v in range(row) if (stage, row, v) in on), row]  # the last is the chain's
            for row in range(space.nodes + 1)
        ]
        found.append([[(v, 1 / len(row) if space.aggregation == "mean" else 1.0) for v in row] for row in read])
    return found


class Wired(nn.Module):
    """The network of one wiring."""

    def __init__(self, space: Wiring, shape: TaskShape, architecture: Architecture) -> None:
        """Makes every layer."""
        super().__init__()
        self.network = Network(space, shape, PlainLayers())
        self.rows = _host_rows(space, architecture.choices)
        size = space.nodes + 1
        self.own = nn.ParameterList(torch.ones(size, size) for _ in self.rows if space.own_aggregation)
        self.auxiliary = _auxiliary(space, shape, PlainLayers())

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        """[batch, channels, height, width] -> [batch, outputs]; in training with what the auxiliary classifier says."""
        rows: Sequence[Rows] = self.rows
        if len(self.own):
            gates = [torch.sigmoid(own) for own in self.own]
            rows = [
                [[(v, w * gate[r, v].view(1, 1)) for v, w in row] for r, row in enumerate(stage)]
                for stage, gate in zip(self.rows, gates, strict=True)
            ]
        answer, features = self.network(x, rows, None)
        return (answer, self.auxiliary(features)) if self.training and self.auxiliary is not None else answer


class WiringSupernet(Supernet):
    """One set of modules for all wirings, repeats folded into channels."""

    views: frozenset[type] = frozenset({Sparse, Dense, PerExample})
    # Batch-norm statistics are of many wirings too, but networks are used with them, as the paper does: how well that
    # goes is what tells instance-wise from batch-wise training.
    table: Tensor

    def __init__(self, space: Wiring, shape: TaskShape, repeats: int) -> None:
        """Makes room for the weights; `reset_parameters` draws them."""
        super().__init__()
        self.space: Wiring = space
        self.shape, self.repeats = shape, repeats
        self.network = Network(space, shape, BatchedLayers(repeats))
        self.auxiliary = _auxiliary(space, shape, BatchedLayers(repeats))
        size = space.nodes + 1
        shapes = [(repeats, len(space.members), size, size)] * space.stages if space.own_aggregation else []
        self.own = nn.ParameterList(torch.ones(shape) for shape in shapes)
        # The list is kept with the weights: what draws it may change, a run may not. The same for every repeat.
        listed = torch.tensor([member.choices for member in space.members]).reshape(-1, len(space.links))
        self.register_buffer("table", listed.to(torch.int8).expand(repeats, -1, -1).clone())
        self._places: dict[tuple[int, ...], int] = {}
        self.register_load_state_dict_pre_hook(lambda supernet, *_: supernet._places.clear())

    @override
    def draw_from(self, generators: Sequence[torch.Generator]) -> None:
        """On a CUDA device, dropout draws from that device's own chance instead."""
        for module in self.modules():
            if isinstance(module, Dropout):
                module.generators = generators

    @override
    def reset_parameters(self, generators: Sequence[torch.Generator]) -> None:
        super().reset_parameters(generators)
        with torch.no_grad():
            for own in self.own:
                own.fill_(1)  # the released code's: links begin with sigmoid(1) = 0.73

    @override
    def forward(self, x: Tensor, view: View) -> Tensor:
        return self.outputs(x, view)[0]

    @override
    def outputs(self, x: Tensor, view: View, kept: Mapping[str, Tensor] | None = None) -> tuple[Tensor, ...]:
        if isinstance(view, Sparse):
            stages, which = self._sparse(view.choices)
        elif isinstance(view, Dense | PerExample):
            stages, which = self._dense(view.choices, x.dtype)
        else:
            raise PolyarchError(f"the space 'wiring' does not run under {type(view).__name__}")
        folded = x.transpose(0, 1).flatten(1, 2)
        if self.repeats == 1:
            folded = folded.contiguous(memory_format=torch.channels_last)  # what convolutions are quickest on
        answer, features = self.network(folded, stages, which)
        found = (answer, self.auxiliary(features)) if self.training and self.auxiliary is not None else (answer,)
        return tuple(y.unflatten(1, (self.repeats, -1)).transpose(0, 1) for y in found)

    def _sparse(self, choices: Sequence[int]) -> tuple[Sequence[Rows], Which]:
        """Rows and place of a wiring that the host knows."""
        rows: Sequence[Rows] = _host_rows(self.space, choices)
        place = self._place(choices)
        if len(self.own):
            gates = [torch.sigmoid(own[:, place]) for own in self.own]
            rows = [
                [[(v, (w * gate[:, r, v]).unsqueeze(1)) for v, w in row] for r, row in enumerate(stage)]
                for stage, gate in zip(rows, gates, strict=True)
            ]
        return rows, place

    def _place(self, choices: Sequence[int]) -> int | None:
        """Where a wiring stands in the list; None where wirings have nothing of their own."""
        if not self.space.has_own:
            return None
        known = tuple(choices)
        if known in self._places:  # where a program is made of it, no value can be read back
            return self._places[known]
        listed = [tuple(row) for row in self.table[0].tolist()]
        if known not in listed:
            raise PolyarchError(
                f"this wiring is none of the {len(listed)} listed ones, and weights of its own were not learnt for it; "
                "take one of the list, or a run without own_aggregation and own_affine"
            )
        self._places[known] = listed.index(known)
        return self._places[known]

    def _dense(self, choices: Tensor, dtype: torch.dtype) -> tuple[Sequence[Rows], Which]:
        """The same of wirings that are data: [repeats, decisions], or [repeats, batch, decisions]."""
        if choices.dim() == 2:
            choices = choices.unsqueeze(1)
        size, device = self.space.nodes + 1, choices.device
        # Made where it is used: a step that is being captured can copy nothing from the host.
        chain = torch.eye(size, dtype=dtype, device=device)
        weights = chain.expand(*choices.shape[:2], self.space.stages, size, size).clone()
        rows, values = torch.tril_indices(size, size, -1, device=device)  # the order of `Wiring.links`
        weights[..., rows, values] = choices.unflatten(-1, (self.space.stages, -1)).to(dtype)
        if self.space.aggregation == "mean":
            weights = weights / weights.sum(-1, keepdim=True)
        which = None
        if self.space.has_own:
            which = (choices.unsqueeze(2) == self.table.unsqueeze(1)).all(-1).to(dtype)
            # An unlisted wiring has no weights of its own. Data is not read back to refuse it, but gets no answer.
            which = which.masked_fill(which.sum(-1, keepdim=True) == 0, torch.nan)
        stages = list(weights.unbind(2))
        for stage, own in enumerate(self.own):
            assert which is not None
            stages[stage] = stages[stage] * torch.einsum("rbs,rsij->rbij", which, torch.sigmoid(own))
        return [weights.transpose(0, 1) for weights in stages], which

    @override
    def member_state(self, architecture: Architecture, repeat: int) -> dict[str, Tensor]:
        place = self._place(architecture.choices)
        listed = {f"network.{path}" for path, module in self.network.named_modules() if isinstance(module, OwnAffine)}
        state: dict[str, Tensor] = {}
        for name, value in self.state_dict().items():
            module, _, last = name.rpartition(".")
            if name == "table":
                continue
            if module in listed or module == "own":
                state[name] = value[repeat, place]
            else:
                state[name.replace(".shared.", ".")] = value[repeat]
            if last == "running_mean":
                state[f"{module.removesuffix('.shared')}.num_batches_tracked"] = torch.tensor(0)
        return state
