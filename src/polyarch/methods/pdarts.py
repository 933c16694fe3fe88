"""P-DARTS: a search in stages, each with a deeper network and fewer operations an edge, that holds skips back.

What is read out of a search network of 8 cells is used in one of 20. P-DARTS closes the gap step by step: from stage to
stage the network grows while the least likely operations of every edge are left out, and fresh weights and belief are
learnt for the rest. Skips win easily in a young network, so their values pass through dropout that fades; belief rests
while the weights of a stage settle; and of the cell that is read out in the end, surplus skips are taken back.

These are the rules; `Bilevel` follows them where its setting `progressive` asks for it, whatever its belief is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from torch import Tensor

from polyarch.errors import PolyarchError
from polyarch.spaces.base import Space
from polyarch.spaces.darts import Darts

PAPER = "5:8:0.1,11:5:0.4,17:3:0.7"
"""Layers, operations and first dropout of skips in three stages, as the authors' documented command has them."""
FADING = 0.2
"""How fast dropout fades once belief moves: by exp(-0.2) an epoch (the authors' code)."""


@dataclass(frozen=True)
class Part:
    """One stage: the cells of the network, the operations left on an edge, and the first rate of dropout on skips."""

    layers: int
    operations: int
    dropout: float


def parts(text: str) -> tuple[Part, ...]:
    """The stages that a setting names: LAYERS:OPERATIONS:DROPOUT, separated by commas."""
    found = []
    for one in text.split(","):
        try:
            layers, operations, dropout = one.split(":")
            part = Part(int(layers), int(operations), float(dropout))
        except ValueError:
            said = f"progressive has {one!r}; write LAYERS:OPERATIONS:DROPOUT,..., such as {PAPER}"
            raise PolyarchError(said) from None
        # Of three operations, one at least is neither `none` nor a skip.
        if part.layers < 1 or part.operations < 3 or not 0 <= part.dropout < 1:
            raise PolyarchError(
                f"progressive has {one!r}; a stage needs a layer, three operations an edge, and dropout from 0 to 1"
            )
        found.append(part)
    if any(after.layers <= before.layers for before, after in pairwise(found)):
        raise PolyarchError(f"progressive is {text!r}; networks must grow from stage to stage, such as {PAPER}")
    return tuple(found)


def spaces(text: str, space: Darts, skips: int) -> tuple[Darts, ...]:
    """The space of every stage; cells that are read out of any of them have at most so many skips."""
    return tuple(replace(space, layers=part.layers, skip_limit=min(skips, space.skip_limit)) for part in parts(text))


def part_of(text: str, space: Space) -> Part:
    """The stage that a space belongs to: networks differ in their layers."""
    assert isinstance(space, Darts)
    [found] = [part for part in parts(text) if part.layers == space.layers]
    return found


def survivors(weights: Sequence[Tensor], still_open: Tensor, keep: int) -> Tensor:
    """Which options of every simplex go on to the next stage: the `keep` likeliest of those still open.

    Args:
        weights: the mixture that was learnt, [repeats, options] for every simplex.
        still_open: bool [repeats, simplices, longest].
        keep: how many.
    """
    found = torch.zeros_like(still_open)
    for k, own in enumerate(weights):
        # Options that are left out stay behind those that are not, also where these have come down to 0.
        among = own.detach().masked_fill(~still_open[:, k, : own.shape[1]], -1)
        ranked = among.argsort(dim=-1, descending=True, stable=True)
        found[:, k].scatter_(1, ranked[:, :keep], True)
    return found & still_open


def fading(epoch: int, epochs: int, weights_only: int) -> float:
    """The share of a stage's first dropout that is left in an epoch (from 0).

    It falls linearly while belief rests; then it starts anew from the whole and falls exponentially.
    """
    if epoch < weights_only:
        return (epochs - epoch - 1) / epochs
    return math.exp(-FADING * (epoch - weights_only))
