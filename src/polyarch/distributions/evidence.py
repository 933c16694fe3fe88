"""What data says of the options of a nested decision, such as a depth, under weights that have been learnt.

Both are conditional on weights of maximum likelihood. By training data, which those weights were fitted to, larger
options are favoured: nothing is taken off for what the weights could adapt to (no Occam factor), and the data is used
twice. Held-out data has no part in the weights, but there is less of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

import torch
from torch import Tensor

from polyarch.distributions.base import Distribution
from polyarch.distributions.categorical import Categorical
from polyarch.errors import PolyarchError

RULED_OUT = 0.1
"""An option is ruled out with less than this share of the largest probability."""


@final
@dataclass(frozen=True, eq=False)
class Evidence:
    """Of one run."""

    train: Tensor
    """log p(Y | X, d) of all training data, [options], as learning counts examples."""
    held_out: Tensor
    """log p(y_n | x_n, d) of every validation example, [options, n]; there may be none."""
    counts: Tensor = field(default_factory=lambda: torch.ones(1))
    """How much each of them counts in learning, [n]: 1, or the weight of its class."""

    def by_split(self) -> dict[str, Tensor]:
        """Log p(Y | X, d) of whole splits, [options], as learning counts examples."""
        held_out = (self.held_out * self.counts).sum(-1, dtype=torch.float64)
        return {"train": self.train} | ({"select": held_out} if self.held_out.shape[-1] else {})


def posterior(log_likelihoods: Tensor, prior: Distribution) -> Categorical:
    """p(d | Y, X), proportional to p(d) p(Y | X, d): Antorán et al. 2020, Eq. 5.

    Args:
        log_likelihoods: log p(Y | X, d) of all data, [..., options].
        prior: p(d).
    """
    if not isinstance(prior, Categorical):
        raise PolyarchError("the posterior over depth is exact only for a categorical prior")
    joint = log_likelihoods + prior.log_probs.squeeze(-2)
    return Categorical(prior.decisions, joint.log_softmax(-1).unsqueeze(-2))


def ruled_out(belief: Distribution) -> Tensor:
    """Which options of its one decision a belief rules out: [..., options]."""
    [probs] = belief.probs().values()
    return probs < RULED_OUT * probs.amax(-1, keepdim=True)


def pruned_mixtures(belief: Distribution, held_out: Tensor) -> Tensor:
    """Log-likelihood of every example under the mixture pruned at every option: [options, n].

    Pruned at d, later options' mass is d's (Eq. 3): log [sum_{i<d} q(i) p(y_n | x_n, i) + q(i>=d) p(y_n | x_n, d)].
    """
    [probs] = belief.probs().values()
    log_q = probs.double().log()
    after = log_q.flip(-1).logcumsumexp(-1).flip(-1)  # log q(i >= d)
    nothing = torch.full_like(held_out[:1], -torch.inf, dtype=torch.float64)
    before = torch.cat([nothing, (log_q[:, None] + held_out).logcumsumexp(0)[:-1]])
    return torch.logaddexp(before, after[:, None] + held_out)


def sufficient(log_likelihoods: Tensor) -> int:
    """The smallest option that is not worse than the best by more than one standard error.

    A rule of parsimony (that of Breiman et al. 1984 for trees), not of probability. The standard error is of the mean
    paired difference; the bootstrap's, which for a mean is known without drawing. It is large where few examples make
    up the difference.

    Args:
        log_likelihoods: of held-out examples, [options, n].
    """
    mean = log_likelihoods.mean(-1)
    return int((mean.max() - mean <= paired_errors(log_likelihoods)).nonzero()[0])


def paired_errors(log_likelihoods: Tensor) -> Tensor:
    """The standard error of the mean difference from the best option, example by example: [options].

    Args:
        log_likelihoods: of held-out examples, [options, n].
    """
    lost = log_likelihoods[log_likelihoods.mean(-1).argmax()] - log_likelihoods
    return lost.std(-1, correction=0) / lost.shape[-1] ** 0.5
