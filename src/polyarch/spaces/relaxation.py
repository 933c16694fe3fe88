"""How the options of a space are mixed by weights, and how architectures are read out of such weights.

What is mixed need not be what an architecture decides: DARTS mixes one operation per edge, where an architecture has
two edges per node. So a mixture has *simplices*, each a set of options with weights; `uses` leads from decisions to
them, `discretize` back.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import final

import torch
from torch import Tensor
from typing_extensions import override

from polyarch.architecture import Decision
from polyarch.distributions.base import Distribution
from polyarch.distributions.discretized import Discretized
from polyarch.spaces.views import one_hot


@dataclass(frozen=True)
class Relaxation(ABC):
    """The mixture of a space's options; `decisions` are the space's."""

    decisions: tuple[Decision, ...]

    @property
    @abstractmethod
    def simplices(self) -> tuple[Decision, ...]:
        """What a `Soft` run takes weights for."""

    @abstractmethod
    def uses(self, decision: int, option: int) -> tuple[tuple[int, int], ...]:
        """Which options of which simplices a decision's option switches on."""

    @abstractmethod
    def discretize(self, weights: Sequence[Tensor]) -> Tensor:
        """From weights [n, options], one tensor per simplex, to choices [n, decisions]."""

    def belief(self, simplices: Distribution) -> Distribution:
        """Belief over architectures, from belief about the simplices."""
        return Discretized(self.decisions, simplices, self.discretize)

    def mix(self, choices: Tensor) -> tuple[Tensor, ...]:
        """The weights of choices [n, decisions], one tensor [n, options] per simplex: how often each option is used."""
        hot = [one_hot(choices[:, k], len(d)) for k, d in enumerate(self.decisions)]
        return tuple(
            torch.stack([_added([hot[k][:, o] for k, o in users], choices[:, 0]) for users in simplex], -1)
            for simplex in self._users
        )

    def usage(self, probs: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        """How probable it is that each option of a simplex is used, given the decisions' probabilities [..., options].

        Decisions are independent: an option stays unused where none of them takes what switches it on.
        """
        rows = [probs[d.name] for d in self.decisions]

        def used(users: list[tuple[int, int]]) -> Tensor:
            unused = torch.ones_like(rows[0][..., 0])
            for k in {k for k, _ in users}:
                unused = unused * (1 - _added([rows[k][..., o] for j, o in users if j == k], rows[0][..., 0]))
            return 1 - unused

        return tuple(torch.stack([used(users) for users in simplex], -1) for simplex in self._users)

    @cached_property
    def _users(self) -> list[list[list[tuple[int, int]]]]:
        """For every simplex and option of it, the (decision, option) pairs that switch it on."""
        users: list[list[list[tuple[int, int]]]] = [[[] for _ in simplex.options] for simplex in self.simplices]
        for k, decision in enumerate(self.decisions):
            for o in range(len(decision)):
                for simplex, option in self.uses(k, o):
                    users[simplex][option].append((k, o))
        return users


@final
@dataclass(frozen=True)
class SimplexPerDecision(Relaxation):
    """Every decision is a simplex, and its largest weight is what an architecture has."""

    @property
    @override
    def simplices(self) -> tuple[Decision, ...]:
        return self.decisions

    @override
    def uses(self, decision: int, option: int) -> tuple[tuple[int, int], ...]:
        return ((decision, option),)

    @override
    def discretize(self, weights: Sequence[Tensor]) -> Tensor:
        return torch.stack([w.argmax(-1) for w in weights], -1)

    @override
    def belief(self, simplices: Distribution) -> Distribution:
        """The same: nothing is read out."""
        return simplices


def _added(parts: list[Tensor], like: Tensor) -> Tensor:
    """The sum of tensors shaped like `like`; zeros where there are none."""
    return torch.stack(parts).sum(0) if parts else torch.zeros_like(like)
