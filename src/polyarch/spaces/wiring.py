"""Networks whose modules are fixed and whose wiring is not (Deng et al. 2020): every choice is whether a link is there.

A stage is a row of equal modules (ReLU, 3x3 convolution, batch norm), the *nodes*. Each reads the sum or the mean of
some earlier values: the stage's input, which is value 0, or what the nodes before it gave, values 1, 2, ... The last
row of links makes the stage's output in the same way. The link from each node to the next is always there, all others
are decisions: C(nodes + 1, 2) of them per stage. Every node is computed under every wiring, so that wirings share all
weights, and that every example of a batch has its own costs no more than weights of links.

Residual networks are members, in which every other value is linked to every other later row.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import ClassVar, Literal

import torch
from torch import nn
from typing_extensions import override

from polyarch.architecture import Architecture, Decision
from polyarch.data.task import TaskShape
from polyarch.distributions.base import Distribution
from polyarch.distributions.categorical import Categorical
from polyarch.distributions.listed import Listed
from polyarch.errors import PolyarchError
from polyarch.settings import Size, at_least
from polyarch.spaces.base import Space
from polyarch.spaces.cost import Cost, CostTable
from polyarch.spaces.graph import Edge, Graph, Node, Probabilities
from polyarch.spaces.wired import Wired, WiringSupernet

Link = tuple[int, int, int]
"""A stage, a row that reads, and the value that it reads; all from 0. Row r makes value r + 1, the last row the output.

Texts and pictures have one number for a node, that of its value: what row r reads is written as read by r + 1."""


@dataclass(frozen=True, kw_only=True)
class Wiring(Space):
    """Stages of nodes; a text names the links of every stage beside the chain."""

    name: ClassVar[str] = "wiring"

    stages: Size = 3
    """Of equal image size; between them it halves, and channels double (the paper: 3)."""
    nodes: Size = 8
    """Modules of a stage (the paper: 8)."""
    channels: Size = 16
    """Of the first stage, times `width` (the paper: 16)."""
    width: Size = 1
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
    wirings: str = ""
    """Instead of random ones, a list of these: their texts, between spaces; `residual` is the residual network."""
    link_probability: float = 0.3
    """Of a link in a random wiring (the paper: 0.3)."""
    list_seed: int = 0
    """Of the list."""
    own_aggregation: bool = False
    """Whether every listed wiring has its own weights of links, learnt between 0 and 1 (NSA-id)."""
    own_affine: bool = False
    """Whether every listed wiring has its own scale and shift in batch norm (NSA-id)."""
    dropout: float = 0.0
    """Of what the convolutions of nodes give; predictions of a search then draw it too (MC dropout, the paper's
    baseline: 0.2). On a CUDA device a killed search goes on with other draws."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least("listed", self.listed, 0)
        if self.auxiliary and self.stages == 1:
            raise PolyarchError("an auxiliary classifier stands before the last of several stages; set stages above 1")
        if not 0 < self.link_probability < 1:
            raise PolyarchError(f"link_probability must be between 0 and 1, not {self.link_probability}")
        if not 0 <= self.dropout < 1:
            raise PolyarchError(f"dropout must be 0 or more and below 1, not {self.dropout}")
        if self.listed and self.wirings:
            raise PolyarchError("either so many random wirings or given ones; leave listed or wirings out")
        if not self.members and self.has_own:  # what is no list shows here
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
        return tuple(Decision(f"{stage}.{row + 1}<-{value}", ("off", "on")) for stage, row, value in self.links)

    @cached_property
    def members(self) -> tuple[Architecture, ...]:
        """The list; empty where all wirings are possible.

        Every random one is a graph of Erdős and Rényi per stage, on the stage's input and its nodes: a pair that is
        joined is a link from the earlier value to the row of the later one.
        """
        given = [self.residual if text == "residual" else self.parse(text) for text in self.wirings.split()]
        if len(set(given)) < len(given):
            raise PolyarchError("a wiring is given twice; write every one once")
        if given:
            return tuple(given)
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

    @property
    @override
    def listed_only(self) -> bool:
        return self.has_own

    @property
    @override
    def has_dropout(self) -> bool:
        return self.dropout > 0

    @cached_property
    def residual(self) -> Architecture:
        """The residual network: values 0, 2, 4, ... are what blocks of two nodes have added up."""
        return self.architecture([int(row % 2 == 0 and value % 2 == 0) for _, row, value in self.links])

    @override
    def random(self) -> Distribution:
        """The list, all of it as likely; without one, every link by its probability."""
        if self.members:
            choices = torch.tensor([member.choices for member in self.members])
            return Listed(self.decisions, choices, torch.zeros(len(self.members)))
        on = torch.tensor(self.link_probability)
        return Categorical(self.decisions, torch.stack([1 - on, on]).log().expand(len(self.links), 2))

    def check(self, shape: TaskShape) -> None:
        """Raises for inputs that are no images."""
        super().check(shape)
        if len(shape.input) != 3:
            raise PolyarchError(
                f"the space 'wiring' needs images [channels, height, width], not inputs of shape {shape.input}"
            )

    # -- texts and pictures --------------------------------------------------------------------------------------------

    def format(self, choices: Sequence[int]) -> str:
        """The links of every stage, such as 3<-0,6<-1|-|4<-0 where the second stage is a chain."""
        on = [link for link, choice in zip(self.links, choices, strict=True) if choice]
        stages = (
            ",".join(f"{row + 1}<-{value}" for at, row, value in on if at == stage) or "-"
            for stage in range(self.stages)
        )
        return "|".join(stages)

    def parse(self, text: str) -> Architecture:
        """Reads such a text; links may stand in any order."""
        stages = text.replace(" ", "").split("|")
        if len(stages) != self.stages:
            raise PolyarchError(
                f"{text!r} has {len(stages)} stages, this space has {self.stages}; write them between | (in a list of "
                "wirings, residual is one too)"
            )
        on: set[Link] = set()
        for stage, part in enumerate(stages):
            for link in part.split(",") if part != "-" else ():
                match = re.fullmatch(r"(\d+)<-(\d+)", link)
                found = (stage, int(match[1]) - 1, int(match[2])) if match else None
                if found is None or found not in self.links:
                    raise PolyarchError(
                        f"{text!r}: {link!r} is no link of a stage of {self.nodes} nodes; write NODE<-VALUE with "
                        f"a NODE up to {self.nodes + 1}, the output, and a VALUE below NODE - 1, from 0, the input"
                    )
                on.add(found)
        return self.architecture([int(link in on) for link in self.links])

    def graphs(self, probs: Probabilities) -> tuple[Graph, ...]:
        """One picture per stage: how probable every link is, beside the chain."""
        labels = ["0: input", *(str(node) for node in range(1, self.nodes + 1)), f"{self.nodes + 1}: output"]
        found = []
        for stage in range(self.stages):
            edges = [Edge(str(row), str(row + 1), "", 1.0) for row in range(self.nodes + 1)]
            edges += [
                Edge(str(value), str(row + 1), "", float(probs[f"{at}.{row + 1}<-{value}"][1]))
                for at, row, value in self.links
                if at == stage and probs[f"{at}.{row + 1}<-{value}"][1] > 0
            ]
            nodes = tuple(Node(str(k), label) for k, label in enumerate(labels))
            found.append(Graph(f"stage {stage}", nodes, tuple(edges)))
        return tuple(found)

    # -- networks ------------------------------------------------------------------------------------------------------

    @override
    def supernet(self, shape: TaskShape, repeats: int = 1) -> WiringSupernet:
        return WiringSupernet(self, shape, repeats)

    @override
    def build(self, architecture: Architecture, shape: TaskShape) -> nn.Module:
        return Wired(self, shape, architecture)

    def cost_table(self, shape: TaskShape) -> CostTable:
        """Links cost nothing that is counted: every wiring has the same modules."""
        chain = self.members[0] if self.members else self.architecture([0] * len(self.links))
        return CostTable(self.cost(chain, shape), {d.name: [Cost(0, 0), Cost(0, 0)] for d in self.decisions})
