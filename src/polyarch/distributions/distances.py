"""How far two beliefs are apart, given as what `Distribution.probs` says of them."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

Probs = Mapping[str, Tensor]
"""By factor, the probabilities [..., options] of its options."""


def kl(belief: Probs, prior: Probs) -> Tensor:
    """KL(belief || prior) [...] in nats, of beliefs whose factors are independent; options without mass add nothing."""
    parts = [(p, prior[name].to(p)) for name, p in belief.items()]
    return torch.stack([(torch.xlogy(p, p) - torch.xlogy(p, q)).sum(-1) for p, q in parts]).sum(0)


def total_variation(one: Probs, other: Probs) -> Tensor:
    """The share of its mass that one belief would have to move to become the other, mean over factors: 0 to 1, [...].

    Unlike a KL it is finite where one of them has left options out, and the same both ways.
    """
    return torch.stack([(p - other[name]).abs().sum(-1) / 2 for name, p in one.items()]).mean(0)
