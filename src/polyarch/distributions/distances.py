"""How far two beliefs are apart, given as what `Distribution.probs` says of them."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from polyarch.distributions.categorical import Categorical

Probs = Mapping[str, Tensor]
"""By factor, the probabilities [..., options] of its options."""


def kl(belief: Probs, prior: Categorical) -> Tensor:
    """KL(belief || prior) [...] in nats, of beliefs whose factors are independent; options without mass add nothing."""
    # By logarithms: probabilities of a narrow prior round to 0.
    logs = {d.name: prior.log_probs[k, : len(d)] for k, d in enumerate(prior.decisions)}
    return torch.stack(
        [(torch.xlogy(p, p) - (p * logs[name].to(p)).masked_fill(p == 0, 0)).sum(-1) for name, p in belief.items()]
    ).sum(0)


def total_variation(one: Probs, other: Probs) -> Tensor:
    """The share of its mass that one belief would have to move to become the other, mean over factors: 0 to 1, [...].

    Unlike a KL it is finite where one of them has left options out, and the same both ways.
    """
    return torch.stack([(p - other[name]).abs().sum(-1) / 2 for name, p in one.items()]).mean(0)
