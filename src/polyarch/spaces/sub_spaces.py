"""Sub-spaces are spaces: some architectures of another space, listed one by one or left by restricting its options."""

from __future__ import annotations

from abc import ABC
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Protocol, cast, final, runtime_checkable

import torch
from torch import Tensor, nn
from typing_extensions import override

from polyarch.architecture import Architecture, Decision
from polyarch.catalogue import load
from polyarch.data.task import TaskShape
from polyarch.distributions import listed
from polyarch.distributions.base import Distribution
from polyarch.distributions.categorical import Categorical, pad
from polyarch.errors import PolyarchError, unknown
from polyarch.settings import make
from polyarch.spaces.base import Space, Supernet
from polyarch.spaces.cost import Cost
from polyarch.spaces.graph import Graph, Probabilities, pictures
from polyarch.spaces.relaxation import Relaxation, SimplexPerDecision
from polyarch.spaces.repeats import InTurn
from polyarch.spaces.supernets import ChoiceSupernet
from polyarch.spaces.views import All, Dense, PerExample, Soft, Sparse, SparsePerRepeat, View


@dataclass(frozen=True, kw_only=True)
class SubSpace(Space, ABC):
    """Some architectures of another space."""

    space: Space = field(kw_only=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "space", _made(self.space))

    @override
    def check(self, shape: TaskShape) -> None:
        self.space.check(shape)


@runtime_checkable
class HasMembers(Protocol):
    """A space that draws random architectures from a list, which the host knows without reading a tensor."""

    @property
    def members(self) -> tuple[Architecture, ...]:
        """The list; empty where it has none."""


@final
@dataclass(frozen=True, kw_only=True)
class Listed(SubSpace):
    """Some architectures of a space, named one by one; they have its texts, its choices and its supernet."""

    name: ClassVar[str] = "listed"

    architectures: Sequence[Architecture | str] = field(kw_only=False)
    """Their values, or their texts."""

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "architectures", tuple(self.space.parse(str(a)) for a in self.architectures))
        if not self.members:
            raise PolyarchError("a list of architectures is empty; give one at least")
        if len(set(self.members)) < len(self.members):
            raise PolyarchError("an architecture is listed twice; write every one once")
        unlisted = self.space.random().log_prob(self._choices) == -torch.inf if self.space.listed_only else None
        if unlisted is not None and unlisted.any():
            [first, *_] = self.space.decode(self._choices[unlisted])
            raise PolyarchError(f"{first} is not listed in the space {self.space.name!r}, which has listed ones alone")

    @property
    def members(self) -> tuple[Architecture, ...]:
        """The list, as values."""
        return cast(tuple[Architecture, ...], self.architectures)

    @property
    def _choices(self) -> Tensor:
        """[listed, decisions]."""
        return torch.tensor([member.choices for member in self.members])

    @property
    @override
    def decisions(self) -> tuple[Decision, ...]:
        return self.space.decisions

    @override
    def random(self) -> Distribution:
        """All of the list as likely."""
        return listed.Listed(self.decisions, self._choices, torch.zeros(len(self.members)))

    @property
    @override
    def listed_only(self) -> bool:
        """Yes: others are not of this space."""
        return True

    @property
    @override
    def has_dropout(self) -> bool:
        return self.space.has_dropout

    @override
    def supernet(self, shape: TaskShape, repeats: int = 1) -> Supernet:
        return self.space.supernet(shape, repeats)

    @override
    def build(self, architecture: Architecture, shape: TaskShape) -> nn.Module:
        return self.space.build(architecture, shape)

    @override
    def evaluated(self) -> Listed:
        return replace(self, space=self.space.evaluated())

    @override
    def cost(self, architecture: Architecture, shape: TaskShape) -> Cost:
        return self.space.cost(architecture, shape)

    @override
    def count(self) -> int:
        return len(self.members)

    @override
    def format(self, choices: Sequence[int]) -> str:
        return self.space.format(choices)

    @override
    def parse(self, text: str) -> Architecture:
        """Reads a text of the space; raises where it is not listed."""
        found = self.space.parse(text)
        if found not in self.members:
            raise PolyarchError(f"{found} is none of the {len(self.members)} listed architectures; take one of those")
        return found

    @override
    def canonical(self, architecture: Architecture) -> str:
        return self.space.canonical(architecture)

    @override
    def key(self, architecture: Architecture) -> str:
        return self.space.key(architecture)

    def graphs(self, probs: Probabilities) -> tuple[Graph, ...]:
        """Those of the space."""
        return pictures(self.space, probs)

    @override
    def settings(self) -> dict[str, Any]:
        return {"space": _described(self.space), "architectures": [member.text for member in self.members]}


@final
@dataclass(frozen=True, kw_only=True)
class Restricted(SubSpace):
    """A space with fewer options; what is left has the space's texts.

    One architecture alone is the network that the space builds of it. Several are run in the space's supernet, whose
    other options do not run.
    """

    name: ClassVar[str] = "restricted"

    options: Mapping[str, Collection[str]] = field(kw_only=False, hash=False)
    """Those left of a decision, by its name; a decision that is not named keeps all."""

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "options", {name: tuple(left) for name, left in self.options.items()})
        decisions = {d.name: d for d in self.space.decisions}
        for name, left in self.options.items():
            if name not in decisions:
                raise unknown("decision", name, list(decisions))
            for option in left:
                if option not in decisions[name].options:
                    raise unknown(f"option of {name}", option, decisions[name].options)
            if not left:
                raise PolyarchError(f"no option of {name} is left; leave one at least")
        if self.space.listed_only and self.count() > 1:
            raise PolyarchError(
                f"the space {self.space.name!r} has listed architectures alone, which no choice of options stands for; "
                "list those you want: Listed(space, architectures)"
            )

    @classmethod
    def to(cls, space: Space, architecture: Architecture) -> Restricted:
        """One architecture of a space, alone: what is left to search once it is chosen, which is nothing."""
        pairs = zip(space.decisions, architecture.choices, strict=True)
        return cls(space, {d.name: (d.options[choice],) for d, choice in pairs})

    @cached_property
    def left(self) -> tuple[tuple[int, ...], ...]:
        """For every decision the space's numbers of the options that are left, in order."""
        return tuple(
            tuple(k for k, option in enumerate(d.options) if option in self.options.get(d.name, d.options))
            for d in self.space.decisions
        )

    @cached_property
    def decisions(self) -> tuple[Decision, ...]:
        """Those of the space, each with the options that are left."""
        pairs = zip(self.space.decisions, self.left, strict=True)
        return tuple(Decision(d.name, tuple(d.options[k] for k in own)) for d, own in pairs)

    def inner(self, choices: Sequence[int]) -> tuple[int, ...]:
        """The space's choices of an architecture."""
        return tuple(own[choice] for own, choice in zip(self.left, choices, strict=True))

    def _inner(self, architecture: Architecture) -> Architecture:
        return self.space.architecture(self.inner(architecture.choices))

    @property
    @override
    def relaxation(self) -> Relaxation | None:
        """None where architectures are read out of other simplices than decisions: one that is not left might be."""
        mixes = isinstance(self.space.relaxation, SimplexPerDecision) or self.count() == 1
        return SimplexPerDecision(self.decisions) if mixes else None

    @override
    def random(self) -> Distribution:
        """What the space draws from, given what is left of it."""
        drawn = self.space.random()
        if self.count() == 1 or not isinstance(drawn, Categorical):
            return super().random()
        return Categorical(self.decisions, pad([drawn.logits[k, list(own)] for k, own in enumerate(self.left)]))

    @property
    @override
    def has_dropout(self) -> bool:
        return self.count() > 1 and self.space.has_dropout

    @override
    def supernet(self, shape: TaskShape, repeats: int = 1) -> Supernet:
        if self.count() == 1:
            only = self._inner(self.architecture([0] * len(self.decisions)))
            return ChoiceSupernet(self, shape, repeats, InTurn(lambda: self.space.build(only, shape), repeats))
        return RestrictedSupernet(self, self.space.supernet(shape, repeats))

    @override
    def build(self, architecture: Architecture, shape: TaskShape) -> nn.Module:
        return self.space.build(self._inner(architecture), shape)

    @override
    def evaluated(self) -> Restricted:
        """One architecture alone is trained as it is."""
        return self if self.count() == 1 else replace(self, space=self.space.evaluated())

    @override
    def format(self, choices: Sequence[int]) -> str:
        return self.space.format(self.inner(choices))

    @override
    def parse(self, text: str) -> Architecture:
        """Reads a text of the space; raises where what it names is not left."""
        found = self.space.parse(text)
        for decision, own, choice in zip(self.space.decisions, self.left, found.choices, strict=True):
            if choice not in own:
                if self.count() == 1:
                    raise PolyarchError(f"this is about {self.format([0] * len(self.left))} alone, not about {text}")
                left = ", ".join(decision.options[k] for k in own)
                raise PolyarchError(f"{text}: of {decision.name}, {decision.options[choice]} is not left; use {left}")
        return self.architecture([own.index(choice) for own, choice in zip(self.left, found.choices, strict=True)])

    @override
    def canonical(self, architecture: Architecture) -> str:
        return self.space.canonical(self._inner(architecture))

    @override
    def key(self, architecture: Architecture) -> str:
        return self.space.key(self._inner(architecture))

    def graphs(self, probs: Probabilities) -> tuple[Graph, ...]:
        """Those of the space, where what is not left has no probability."""
        given = {}
        for decision, own in zip(self.space.decisions, self.left, strict=True):
            known = dict(zip(own, probs[decision.name], strict=True))
            given[decision.name] = [known.get(option, 0.0) for option in range(len(decision))]
        return pictures(self.space, given)

    @override
    def settings(self) -> dict[str, Any]:
        options = {name: list(left) for name, left in self.options.items()}
        return {"space": _described(self.space), "options": options}


@final
class RestrictedSupernet(Supernet):
    """The supernet of a space, told choices of what is left of it; options that are not left do not run."""

    space: Restricted

    def __init__(self, space: Restricted, supernet: Supernet) -> None:
        """Takes the supernet of `space.space` over."""
        super().__init__()
        self.space, self.shape, self.repeats = space, supernet.shape, supernet.repeats
        self.supernet = supernet
        self.views = supernet.views - {All} - ({Soft} if space.relaxation is None else set())
        self.shares_statistics, self.repeats_run = supernet.shares_statistics, supernet.repeats_run
        self.drop_paths = supernet.drop_paths
        supernet.keep_running(_running(space))

    @override
    def forward(self, x: Tensor, view: View) -> Tensor:
        return self.outputs(x, view)[0]

    @override
    def outputs(self, x: Tensor, view: View, kept: Mapping[str, Tensor] | None = None) -> tuple[Tensor, ...]:
        return self.supernet.outputs(x, self._told(view), kept)

    def _told(self, view: View) -> View:
        """The view in the space's own choices."""
        if isinstance(view, Sparse):
            return Sparse(self.space.inner(view.choices))
        if isinstance(view, SparsePerRepeat):
            return SparsePerRepeat(tuple(self.space.inner(own) for own in view.choices))
        if isinstance(view, Dense):
            return Dense(self._translated(view.choices))
        if isinstance(view, PerExample):
            return PerExample(self._translated(view.choices))
        if isinstance(view, Soft) and Soft in self.views:
            return Soft(tuple(self._widened(weights, k) for k, weights in enumerate(view.weights)))
        raise PolyarchError(f"a restricted space does not run under {type(view).__name__}")

    def _translated(self, choices: Tensor) -> Tensor:
        """[..., decisions], in numbers of the space's options."""
        # By arithmetic: a table would have to be copied to the device, which no captured step may.
        columns = [
            torch.stack([(column == k) * option for k, option in enumerate(own)]).sum(0)
            for column, own in zip(choices.unbind(-1), self.space.left, strict=True)
        ]
        return torch.stack(columns, -1)

    def _widened(self, weights: Tensor, decision: int) -> Tensor:
        """Weights [repeats, options left] with zeros for the options that are not."""
        columns = dict(zip(self.space.left[decision], weights.unbind(-1), strict=True))
        nothing = torch.zeros_like(weights[:, 0])
        return torch.stack([columns.get(k, nothing) for k in range(len(self.space.space.decisions[decision]))], -1)

    @override
    def keep_running(self, options: Mapping[str, Collection[int]]) -> None:
        """Of the options that are left, by their numbers among those."""
        left = dict(zip((d.name for d in self.space.decisions), self.space.left, strict=True))
        self.supernet.keep_running({name: [left[name][k] for k in own] for name, own in options.items()})

    @override
    def draw_from(self, generators: Sequence[torch.Generator]) -> None:
        self.supernet.draw_from(generators)

    @override
    def allow_fast(self, allowed: bool) -> str:
        return self.supernet.allow_fast(allowed)

    @override
    def reset_parameters(self, generators: Sequence[torch.Generator]) -> None:
        self.supernet.reset_parameters(generators)

    @override
    def member_state(self, architecture: Architecture, repeat: int) -> dict[str, Tensor]:
        inner = self.space.space.architecture(self.space.inner(architecture.choices))
        return self.supernet.member_state(inner, repeat)


def _running(space: Restricted) -> dict[str, set[int]]:
    """The options of the inner space's simplices that what is left uses; empty where nothing is mixed."""
    relaxation = space.space.relaxation
    if relaxation is None:
        return {}
    used: dict[str, set[int]] = {simplex.name: set() for simplex in relaxation.simplices}
    for decision, left in enumerate(space.left):
        for simplex, option in (pair for choice in left for pair in relaxation.uses(decision, choice)):
            used[relaxation.simplices[simplex].name].add(option)
    return used


def _described(space: Space) -> dict[str, Any]:
    """A space as plain values."""
    return {"class": f"{type(space).__module__}:{type(space).__qualname__}", "settings": space.settings()}


def _made(space: Space | Mapping[str, Any]) -> Space:
    """The space itself, also where it comes as the plain values of `_described`, as from a run's config."""
    if isinstance(space, Space):
        return space
    cls: type[Space] = load(space["class"], "space")
    return make(cls, space["settings"])
