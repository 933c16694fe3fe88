"""Whether seeds agree: in what they select, beside what chance gives, and in what they believe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean
from typing import Any, final

import torch
from torch import Tensor

from polyarch.distributions.distances import Probs, total_variation
from polyarch.runs.run import Run


@final
@dataclass(frozen=True)
class Agreement:
    """How far the searches of several seeds came to the same."""

    seeds: int
    distinct: int
    """How many different architectures they selected."""
    same: float
    """The share of decisions in which two seeds selected the same option, mean over pairs."""
    chance: float
    """The same of two random architectures of the space."""
    apart: float | None
    """Total variation between the beliefs of two seeds, mean over pairs and over what belief is about: the share of its
    mass that one would have to move to become the other. None where belief is not learnt."""

    @property
    def beyond_chance(self) -> float:
        """The share of the agreement that chance leaves open, as in Cohen's kappa: 0 is chance, 1 is always."""
        return (self.same - self.chance) / (1 - self.chance)

    def sentence(self, nested: bool) -> str:
        """What a person should know of it.

        Args:
            nested: whether the space has one decision whose options have an order, such as a depth. Neighbours are then
                nearly alike, so that beliefs are compared alone.
        """
        chose = f"chose {self.distinct} different architectures"
        chose = "chose the same architecture" if self.distinct == 1 else chose
        chose = "each chose another architecture" if self.distinct == self.seeds else chose
        told = [f"{self.seeds} seeds {chose}"]
        if not nested:
            told.append(f"on a decision two of them agree in {self.same:.0%} of cases, by chance in {self.chance:.0%}")
        if self.apart is not None:
            told.append(f"two of their beliefs have {1 - self.apart:.0%} of their mass in common")
        if nested or self.distinct == 1:
            return f"{'; '.join(told)}."
        verdict = "tells more about the seed than about the data"
        if self.beyond_chance >= 0.5:
            # Seeds may agree because of the data, or because the method prefers some operations on any data.
            verdict = "tells about the data or the method, more than about the seed"
        return f"{'; '.join(told)}: what is selected {verdict}."


def agreement_of(runs: Sequence[Run]) -> Agreement | None:
    """How far the runs of several seeds agree; None for a single run, and where there was nothing to select."""
    first = runs[0]
    learnt = first.meaning.kind != "fixed"
    if len(runs) < 2 or not (learnt or first.distribution.entropy().item()):
        return None
    results = [run.result for run in runs]
    chosen = [list(result["selected"].values()) for result in results]
    beliefs = [_probs(result) for result in results] if learnt else []
    pairs = [total_variation(one, other).item() for one, other in combinations(beliefs, 2)]
    return Agreement(
        seeds=len(runs),
        distinct=len({tuple(own) for own in chosen}),
        same=same_options(chosen),
        chance=chance_of(first.space.random().probs()),
        apart=fmean(pairs) if pairs else None,
    )


def same_options(chosen: Sequence[Sequence[Any]]) -> float:
    """The share of decisions in which two architectures have the same option, mean over all pairs."""
    return fmean(a == b for one, other in combinations(chosen, 2) for a, b in zip(one, other, strict=True))


def chance_of(probs: Probs) -> float:
    """The same, expected of two independent draws: whatever their decisions have to do with each other."""
    return fmean(p.square().sum(-1).item() for p in probs.values())


def _probs(result: Mapping[str, Any]) -> dict[str, Tensor]:
    """A belief, as a result tells it."""
    told = result["distribution"]["probs"]
    return {name: torch.tensor(values, dtype=torch.float64) for name, values in told.items()}
