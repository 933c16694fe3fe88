"""Priors over architectures, by name."""

from __future__ import annotations

import re
from collections.abc import Sequence

import torch

from polyarch.architecture import Decision
from polyarch.distributions.categorical import Categorical, pad
from polyarch.errors import PolyarchError, unknown

GAMMA = 0.85
"""Antorán et al. 2020, appendix B."""


def uniform(decisions: Sequence[Decision]) -> Categorical:
    """Every architecture alike."""
    return Categorical(tuple(decisions), pad([torch.zeros(len(d)) for d in decisions]))


def exponential(decisions: Sequence[Decision], gamma: float = GAMMA) -> Categorical:
    """Earlier options first: p(option i) is proportional to gamma^(1 + i) (appendix B); gamma 1 is uniform."""
    if not 0 < gamma <= 1:
        raise PolyarchError(f"the exponential prior needs 0 < gamma <= 1, not {gamma}")
    log_gamma = torch.tensor(gamma, dtype=torch.float64).log()
    rows = [((1 + torch.arange(len(d))) * log_gamma).log_softmax(-1).float() for d in decisions]
    return Categorical(tuple(decisions), pad(rows))


def priced(prior: Categorical, costs: Sequence[torch.Tensor]) -> Categorical:
    """A prior that also goes by cost: p(a) is proportional to prior(a) exp(-cost(a)), and stays a product.

    Args:
        prior: over the same decisions.
        costs: what every option of a decision adds to the cost, [options] for each, in nats.
    """
    nats = pad([-own.to(prior.logits.dtype) for own in costs]).to(prior.logits.device)
    return Categorical(prior.decisions, (prior.log_probs + nats).log_softmax(-1))


def make_prior(text: str, decisions: Sequence[Decision]) -> Categorical:
    """The prior that a text names: `uniform`, `exponential` or `exponential(GAMMA)`."""
    match = re.fullmatch(r"(\w+)(?:\(([^()]*)\))?", text.strip())
    name, argument = match.groups() if match else (text, None)
    if name == "uniform" and argument is None:
        return uniform(decisions)
    if name == "exponential":
        try:
            gamma = GAMMA if argument is None else float(argument)
        except ValueError:
            raise PolyarchError(f"prior {text!r}: gamma must be a number, as in exponential(0.85)") from None
        return exponential(decisions, gamma)
    raise unknown("prior", text, ["uniform", "exponential", "exponential(0.85)"])
