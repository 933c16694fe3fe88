"""Which architectures take part in a mixture, and with which weights.

How members run (`ensemble.Nested`, `Within`, `Apart`) and how they are combined (`Ensemble`: probabilities are mixed)
are choices of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from polyarch.distributions.base import Distribution
from polyarch.distributions.listed import Listed
from polyarch.errors import PolyarchError
from polyarch.settings import at_least
from polyarch.spaces.base import Space

FEW = 20
"""How many members there are unless told; all architectures where there are no more."""


@final
@dataclass(frozen=True, eq=False)
class Members:
    """Architectures and their weights."""

    choices: Tensor
    """[members, decisions] int64."""
    weights: Tensor
    """[members], summing to 1."""
    seeds: tuple[int, ...] | None = None
    """Of their draws of dropout, where the space has any."""


def members_of(space: Space, belief: Distribution, count: int | None, generator: torch.Generator) -> Members:
    """The members that stand for a belief: everything where that is asked for, else draws.

    Args:
        space: of the architectures.
        belief: about them, of one repeat.
        count: how many; by default `FEW`, or all where there are fewer. With dropout there are always as many as asked
            for, since every draw of it is another member.
        generator: of the draws.
    """
    if space.has_dropout:
        count = FEW if count is None else count
        at_least("members", count, 1)
        seeds = torch.randint(2**62, (count,), generator=generator)
        return Members(belief.sample(count, generator), torch.full((count,), 1 / count), tuple(seeds.tolist()))
    there_are = belief.architectures
    if count is not None:
        at_least("members", count, 1)
        if count > there_are:
            raise PolyarchError(
                f"{count} members of {there_are} architectures; ask for {there_are} or fewer, or leave members out"
            )
    count = count or min(FEW, there_are)
    if isinstance(belief, Listed):
        return of_list(belief, count, generator)
    if count < there_are or not belief.exact:
        return drawn(belief, count, generator)
    return every(belief)


def every(belief: Distribution) -> Members:
    """All architectures, by their probability."""
    choices = belief.support()
    return Members(choices, belief.log_prob(choices).exp())


def drawn(belief: Distribution, count: int, generator: torch.Generator) -> Members:
    """So many draws from belief; what is drawn several times is one member of that weight."""
    choices, counts = belief.sample(count, generator).unique(dim=0, return_counts=True)
    return Members(choices, counts / count)


def of_list(belief: Listed, count: int, generator: torch.Generator) -> Members:
    """So many different architectures of a list, drawn by their probability, which is also what they weigh.

    So the mixture becomes that of the whole list as the count grows to its length.
    """
    probs = belief.logits.softmax(-1).cpu()
    places = torch.multinomial(probs, count, generator=generator).sort().values
    return Members(belief.choices.cpu()[places], probs[places] / probs[places].sum())
