"""Networks whose modules are fixed and whose wiring is not (seed 001): every choice is whether a link is there.

A stage is a row of equal modules (ReLU, 3x3 convolution, batch norm), the *nodes*. Each reads the sum or the mean of
some earlier values: the stage's input, which is value 0, or what the nodes before it gave, values 1, 2, ... The last
row of links makes the stage's output in the same way. The link from each node to the next is always there, all others
are decisions: C(nodes + 1, 2) of them a stage. Every node is computed under every wiring, so that wirings share all
weights, and that every example of a batch has its own costs no more than weights of links.

Residual networks are members, in which every other value is linked to every other later row.
"""

from __future__ import annotations

import random
import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from polyarch.architecture import Architecture, Decision
from polyarch.data.task import TaskShape
from polyarch.distributions.base import Distribution
from polyarch.distributions.categorical import Categorical
from polyarch.distributions.listed import Listed
from polyarch.errors import PolyarchError
from polyarch.settings import at_least, positive
from polyarch.spaces.base import Hard, PerExample, Space, Supernet, View
from polyarch.spaces.choice import scaled, total
from polyarch.spaces.cost import Cost, CostTable
from polyarch.spaces.darts_operations import Auxiliary
from polyarch.spaces.graph import Edge, Graph, Node
from polyarch.spaces.kits import Batched, Kit, Plain
from polyarch.spaces.layers import BatchNorm

Link = tuple[int, int, int]
"""A stage, a row that reads, and the value that it reads; all from 0. Row r is node r's; the last makes the output."""


@dataclass(frozen=True, kw_only=True)
class Wiring(Space):
    """Stages of nodes; a text names the links of every stage beside the chain."""

    name: ClassVar[str] = "wiring"

    stages: int = 3
    """Of equal image size; between them it halves, and channels double (the paper: 3)."""
    nodes: int = 8
    """Modules of a stage (the paper: 8)."""
    channels: int = 16
    """Of the first stage, times `width` (the paper: 16)."""
    width: int = 1
    """How many times wider everything is (the paper: 10)."""
    stem: Literal["small", "large"] = "small"
    """`small`: one 3x3 convolution; `large`: two of stride 2, for images of 100 pixels a side or more."""
    auxiliary: bool = False
    """Whether a second classifier helps training, on what the last stage begins with (the paper: yes)."""
    aggregation: Literal["mean", "sum"] = "mean"
    """What a row makes of the values it reads: their mean (the released code) or their sum (the paper's words)."""
    listed: int = 0
    """S, how many wirings there are: so many random ones, listed in the order in which they are drawn. 0 is all that
    are possible (the paper: 5 to 50,000)."""
    link_probability: float = 0.3
    """Of a link in a random wiring (the paper: 0.3)."""
    list_seed: int = 0
    """Of the list."""
    own_aggregation: bool = False
    """Whether every listed wiring has its own weights of links, learnt between 0 and 1 (NSA-id)."""
    own_affine: bool = False
    """Whether every listed wiring has its own scale and shift in batch norm (NSA-id)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(self, "stages", "nodes", "channels", "width")
        at_least("listed", self.listed, 0)
        if self.auxiliary and self.stages == 1:
            raise PolyarchError("an auxiliary classifier stands before the last of several stages; set stages above 1")
        if not 0 < self.link_probability < 1:
            raise PolyarchError(f"link_probability must be between 0 and 1, not {self.link_probability}")
        if self.has_own and not self.listed:
            raise PolyarchError("own_aggregation and own_affine need a list of wirings; set listed, such as listed=5")

    # -- what may be chosen --------------------------------------------------------------------------------------------

    @cached_property
    def links(self) -> tuple[Link, ...]:
        """All that may be there or not."""
        pairs = sorted((row, value) for value, row in combinations(range(self.nodes + 1), 2))
        return tuple((stage, row, value) for stage in range(self.stages) for row, value in pairs)

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """Whether each link is there."""
        return tuple(Decision(f"{stage}.{row}<-{value}", ("off", "on")) for stage, row, value in self.links)

    @cached_property
    def members(self) -> tuple[Architecture, ...]:
        """The list; empty where all wirings are possible.

        Every one is a random graph of Erdős and Rényi a stage, on the stage's input and its nodes: a pair that is
        joined is a link from the earlier value to the row of the later one.
        """
        found: dict[tuple[int, ...], None] = {}
        for number in range(100 * self.listed):
            found[self.random_choices(f"{self.list_seed}:{number}")] = None
            if len(found) == self.listed:
                break
        if len(found) < self.listed:
            raise PolyarchError(f"there are not {self.listed} different wirings of {self.nodes} nodes; list fewer")
        return tuple(self.architecture(choices) for choices in found)

    def random_choices(self, seed: str) -> tuple[int, ...]:
        """A random wiring, whatever the list."""
        import networkx

        on = set()
        for stage in range(self.stages):
            graph = networkx.gnp_random_graph(self.nodes + 1, self.link_probability, random.Random(f"{seed}:{stage}"))
            on |= {(stage, max(pair), min(pair)) for pair in graph.edges}
        return tuple(int(link in on) for link in self.links)

    @property
    def has_own(self) -> bool:
        """Whether wirings have weights of their own."""
        return self.own_aggregation or self.own_affine

    @cached_property
    def residual(self) -> Architecture:
        """The residual network: values 0, 2, 4, ... are what blocks of two nodes have added up."""
        return self.architecture([int(row % 2 == 0 and value % 2 == 0) for _, row, value in self.links])

    def drawn_from(self) -> Distribution:
        """The list, all of it as likely; without one, every link by its probability."""
        if self.listed:
            choices = torch.tensor([member.choices for member in self.members])
            return Listed(self.decisions, choices, torch.zeros(self.listed))
        on = torch.tensor(self.link_probability)
        return Categorical(self.decisions, torch.stack([1 - on, on]).log().expand(len(self.links), 2))

    def check(self, shape: TaskShape) -> None:
        """Raises for inputs that are no images."""
        if len(shape.input) != 3:
            raise PolyarchError(
                f"the space 'wiring' needs images [channels, height, width], not inputs of shape {shape.input}"
            )

    # -- texts and pictures --------------------------------------------------------------------------------------------

    def format(self, choices: Sequence[int]) -> str:
        """The links of every stage, such as 2<-0,5<-1|-|3<-0 where the second stage is a chain."""
        on = [link for link, choice in zip(self.links, choices, strict=True) if choice]
        stages = (
            ",".join(f"{row}<-{value}" for at, row, value in on if at == stage) or "-" for stage in range(self.stages)
        )
        return "|".join(stages)

    def parse(self, text: str) -> Architecture:
        """Reads such a text; links may stand in any order."""
        stages = text.replace(" ", "").split("|")
        if len(stages) != self.stages:
            raise PolyarchError(
                f"{text!r} has {len(stages)} stages, this space has {self.stages}; write them between |"
            )
        on: set[Link] = set()
        for stage, part in enumerate(stages):
            for link in part.split(",") if part != "-" else ():
                match = re.fullmatch(r"(\d+)<-(\d+)", link)
                found = (stage, int(match[1]), int(match[2])) if match else None
                if found is None or found not in self.links:
                    raise PolyarchError(
                        f"{text!r}: {link!r} is no link of a stage of {self.nodes} nodes; write ROW<-VALUE with a "
                        f"VALUE below ROW and a ROW up to {self.nodes}"
                    )
                on.add(found)
        return self.architecture([int(link in on) for link in self.links])

    def graphs(self, probs: Mapping[str, Sequence[float]]) -> tuple[Graph, ...]:
        """A picture a stage: how probable every link is, beside the chain."""
        labels = ["input", *(str(node) for node in range(1, self.nodes + 1)), "output"]
        found = []
        for stage in range(self.stages):
            edges = [Edge(str(row), str(row + 1), "", 1.0) for row in range(self.nodes + 1)]
            edges += [
                Edge(str(value), str(row + 1), "", float(probs[f"{at}.{row}<-{value}"][1]))
                for at, row, value in self.links
                if at == stage and probs[f"{at}.{row}<-{value}"][1] > 0
            ]
            nodes = tuple(Node(str(k), label) for k, label in enumerate(labels))
            found.append(Graph(f"stage {stage}", nodes, tuple(edges)))
        return tuple(found)

    # -- networks ------------------------------------------------------------------------------------------------------

    def supernet(self, shape: TaskShape, repeats: int = 1) -> WiringSupernet:
        """See `Space.supernet`."""
        return WiringSupernet(self, shape, repeats)

    def build(self, architecture: Architecture, shape: TaskShape) -> nn.Module:
        """See `Space.build`."""
        return Wired(self, shape, architecture)

    def cost_table(self, shape: TaskShape) -> CostTable:
        """Links cost nothing that is counted: every wiring has the same modules."""
        chain = self.members[0] if self.members else self.architecture([0] * len(self.links))
        return CostTable(self.cost(chain, shape), {d.name: [Cost(0, 0), Cost(0, 0)] for d in self.decisions})


# ---------------------------------------------------------------------------------------------------------------------
# The network.

Weight = float | Tensor
"""Of a value in a row: a number, or [repeats, batch or 1]."""
Rows = Sequence[Sequence[tuple[int, Weight]]]
"""Of a stage: for every row, the values that it reads and their weights."""
Which = int | Tensor | None
"""The place of a wiring in the list: a number, or one-hot [repeats, batch or 1, listed]; None where nobody asks."""


class OwnAffine(nn.Module):
    """Batch norm with a scale and a shift for every listed wiring, and statistics that all share."""

    def __init__(self, repeats: int, listed: int, channels: int) -> None:
        """Scales 1, shifts 0."""
        super().__init__()
        self.shared = BatchNorm(repeats, channels, affine=False)
        self.weight = nn.Parameter(torch.ones(repeats, listed, channels))
        self.bias = nn.Parameter(torch.zeros(repeats, listed, channels))

    def draw(self, generators: Sequence[torch.Generator]) -> None:
        """Back to scale 1, shift 0; nothing here is random."""
        with torch.no_grad():
            self.weight.fill_(1)
            self.bias.fill_(0)

    def forward(self, x: Tensor, which: Which) -> Tensor:
        """[batch, repeats * channels, h, w], under the wiring of all or of each example."""
        x = self.shared(x).unflatten(1, (len(self.weight), -1))
        scale, shift = (self._of(values, which) for values in (self.weight, self.bias))
        return torch.addcmul(shift, x, scale).flatten(1, 2)

    def _of(self, values: Tensor, which: Which) -> Tensor:
        """[batch or 1, repeats, channels, 1, 1]."""
        if isinstance(which, Tensor):
            chosen = torch.einsum("rbs,rsc->brc", which.to(values.dtype), values)
        else:
            assert which is not None
            chosen = values[None, :, which]
        return chosen[..., None, None]


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

    def __init__(self, space: Wiring, shape: TaskShape, kit: Kit) -> None:
        """Makes every layer."""
        super().__init__()

        def norm(channels: int) -> nn.Module:
            if space.own_affine and isinstance(kit, Batched):
                return OwnAffine(kit.repeats, space.listed, channels)
            return kit.norm(channels)

        def node(channels: int) -> Normalised:
            conv = kit.conv(channels, channels, 3, padding=1)
            return Normalised({"relu": nn.ReLU(), "conv": conv}, norm(channels))

        def transition(channels: int) -> Normalised:
            # Rounded up where a side is odd.
            pool = nn.AvgPool2d(2, ceil_mode=True, count_include_pad=False)
            conv = kit.conv(channels, 2 * channels, 1)
            return Normalised({"relu": nn.ReLU(), "conv": conv, "pool": pool}, norm(2 * channels))

        channels = space.channels * space.width
        self.stem = Normalised(_stem(space, shape.input[0], channels, kit), norm(channels))
        self.stages, self.transitions = nn.ModuleList(), nn.ModuleList()
        for stage in range(space.stages):
            if stage:
                self.transitions.append(transition(channels))
                channels *= 2
            self.stages.append(nn.ModuleList(node(channels) for _ in range(space.nodes)))
        self.head = kit.linear(channels, shape.outputs)

    def forward(self, x: Tensor, stages: Sequence[Rows], which: Which) -> tuple[Tensor, Tensor]:
        """[batch, channels, height, width] -> [batch, outputs], and what the last stage began with."""
        x = self.stem(x, which)
        for stage, (nodes, rows) in enumerate(zip(self.stages, stages, strict=True)):
            if stage:
                x = self.transitions[stage - 1](x, which)
            values = [x]
            assert isinstance(nodes, nn.ModuleList)
            for node, row in zip(nodes, rows[:-1], strict=True):  # the last row has no node
                values.append(node(_read(values, row), which))
            x = _read(values, rows[-1])
        return self.head(torch.relu(x).mean((2, 3))), values[0]


def _auxiliary(space: Wiring, shape: TaskShape, kit: Kit) -> Auxiliary | None:
    channels = space.channels * space.width * 2 ** (space.stages - 1)
    return Auxiliary(kit, channels, shape.outputs) if space.auxiliary else None


def _stem(space: Wiring, inputs: int, channels: int, kit: Kit) -> dict[str, nn.Module]:
    if space.stem == "small":
        return {"conv": kit.conv(inputs, channels, 3, padding=1)}
    half = max(1, channels // 2)
    return {
        "conv1": kit.conv(inputs, half, 3, stride=2, padding=1),
        "norm1": kit.norm(half),
        "relu1": nn.ReLU(),
        "conv2": kit.conv(half, channels, 3, stride=2, padding=1),
    }


def _read(values: Sequence[Tensor], row: Sequence[tuple[int, Weight]]) -> Tensor:
    """The weighted sum of the values that a row reads."""
    parts = [scaled(values[k], w) if isinstance(w, Tensor) else values[k] if w == 1 else w * values[k] for k, w in row]
    found = total(parts)
    assert found is not None
    return found


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
        self.network = Network(space, shape, Plain())
        self.rows = _host_rows(space, architecture.choices)
        size = space.nodes + 1
        self.own = nn.ParameterList(torch.ones(size, size) for _ in self.rows if space.own_aggregation)
        self.auxiliary = _auxiliary(space, shape, Plain())

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

    views: ClassVar[frozenset[type]] = frozenset({Hard, PerExample})
    # Batch-norm statistics are of many wirings too, but networks are used with them, as the paper does: how well that
    # goes is what tells instance-wise from batch-wise training.
    table: Tensor

    def __init__(self, space: Wiring, shape: TaskShape, repeats: int) -> None:
        """Makes room for the weights; `reset` draws them."""
        super().__init__()
        self.space: Wiring = space
        self.shape, self.repeats = shape, repeats
        self.network = Network(space, shape, Batched(repeats))
        self.auxiliary = _auxiliary(space, shape, Batched(repeats))
        size = space.nodes + 1
        shapes = [(repeats, space.listed, size, size)] * space.stages if space.own_aggregation else []
        self.own = nn.ParameterList(torch.ones(shape) for shape in shapes)
        # The list is kept with the weights: what draws it may change, a run may not. The same for every repeat.
        listed = torch.tensor([member.choices for member in space.members]).reshape(-1, len(space.links))
        self.register_buffer("table", listed.to(torch.int8).expand(repeats, -1, -1).clone())
        self._places = _places(space)

    def reset(self, generators: Sequence[torch.Generator]) -> None:
        """See `Supernet.reset`."""
        super().reset(generators)
        with torch.no_grad():
            for own in self.own:
                own.fill_(1)  # the released code's: links begin with sigmoid(1) = 0.73

    def forward(self, x: Tensor, view: View) -> Tensor:
        """See `Supernet.forward`."""
        return self.outputs(x, view)[0]

    def outputs(self, x: Tensor, view: View, kept: Mapping[str, Tensor] | None = None) -> tuple[Tensor, ...]:
        """See `Supernet.outputs`."""
        if not isinstance(view, Hard | PerExample):
            raise PolyarchError(f"the space 'wiring' is not nested: it does not run under {type(view).__name__}")
        if isinstance(view.choices, tuple):
            stages, which = self._sparse(view.choices)
        else:
            stages, which = self._dense(view.choices, x.dtype)
        answer, features = self.network(x.transpose(0, 1).flatten(1, 2), stages, which)
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
        listed = [tuple(row) for row in self.table[0].tolist()]
        if tuple(choices) not in listed:
            raise PolyarchError(
                f"this wiring is none of the {len(listed)} listed ones, and weights of its own were not learnt for it; "
                "take one of the list, or a run without own_aggregation and own_affine"
            )
        return listed.index(tuple(choices))

    def _dense(self, choices: Tensor, dtype: torch.dtype) -> tuple[Sequence[Rows], Which]:
        """The same of wirings that are data: [repeats, decisions], or [repeats, batch, decisions]."""
        if choices.dim() == 2:
            choices = choices.unsqueeze(1)
        constants = choices.new_tensor([0, 1]).expand(*choices.shape[:2], 2)
        size = self.space.nodes + 1
        wired = torch.cat([constants, choices], -1)[..., self._places.to(choices.device)]
        weights = wired.unflatten(-1, (self.space.stages, size, size)).to(
            dtype
        )  # [repeats, batch or 1, stage, row, value]
        if self.space.aggregation == "mean":
            weights = weights / weights.sum(-1, keepdim=True)
        which = None
        if self.space.has_own:
            which = (choices.unsqueeze(2) == self.table.unsqueeze(1)).all(-1)
        stages = list(weights.unbind(2))
        for stage, own in enumerate(self.own):
            assert which is not None
            stages[stage] = stages[stage] * torch.einsum("rbs,rsij->rbij", which.to(dtype), torch.sigmoid(own))
        rows = [[[(v, weights[:, :, row, v]) for v in range(row + 1)] for row in range(size)] for weights in stages]
        return rows, which

    def member_state(self, architecture: Architecture, repeat: int) -> dict[str, Tensor]:
        """See `Supernet.member_state`."""
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


def _places(space: Wiring) -> Tensor:
    """For every stage, row and value, where [0, 1, choices...] says whether it is read; flat."""
    numbers = {link: 2 + k for k, link in enumerate(space.links)}
    rows = range(space.nodes + 1)
    return torch.tensor(
        [
            1 if value == row else numbers.get((stage, row, value), 0)
            for stage in range(space.stages)
            for row in rows
            for value in rows
        ]
    )
