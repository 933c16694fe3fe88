"""What every belief over architectures must satisfy."""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor

from polyarch.distributions.base import Distribution
from polyarch.distributions.priors import exponential
from polyarch.errors import PolyarchError

ENUMERABLE = 20_000
SAMPLES = 4_000


def check_distribution(belief: Distribution) -> None:
    """Checks a belief without leading axes against enumeration, where the space is small, and its own samples.

    Belief that is not `exact` owes no probabilities of architectures, and must say so.
    """
    probs = belief.probs()
    assert list(probs) == [factor.name for factor in belief.factors], "probs must speak of the factors"
    for name, row in probs.items():
        assert row.dim() == 1, f"probs of {name} must be [options]"
        _check_sums(row, f"probs of {name}")
    _check_soft(belief)
    _check_mode(belief)
    sampled = _check_samples(belief)
    if belief.exact:
        _check_marginals(belief, sampled)
        _check_enumerated(belief)
    else:
        _check_refuses(belief, sampled)


def _check_sums(weights: Tensor, what: str) -> None:
    total = weights.sum(-1)
    assert torch.allclose(total, torch.ones_like(total), atol=1e-5), f"{what} must sum to 1"


def _check_soft(belief: Distribution) -> None:
    """Mean weights and relaxed draws are weights of the factors."""
    sizes = [len(row) for row in belief.probs().values()]
    mean = belief.mean_weights()
    assert [tuple(w.shape) for w in mean] == [(size,) for size in sizes], (
        "mean_weights() must give [options] per factor"
    )
    relaxed = belief.relax(5, torch.Generator().manual_seed(0), 1.0)
    assert [tuple(w.shape) for w in relaxed] == [(5, size) for size in sizes], "relax(n) must give [n, options] each"
    for weights in (*mean, *relaxed):
        _check_sums(weights, "soft weights")


def _check_mode(belief: Distribution) -> None:
    mode = belief.mode()
    assert mode.shape == (len(belief.decisions),), "mode() must be [decisions]"
    assert mode.dtype == torch.int64, "choices must be int64"
    assert all(0 <= c < len(d) for c, d in zip(mode.tolist(), belief.decisions, strict=True)), "the mode must exist"


def _check_samples(belief: Distribution) -> Tensor:
    sampled = belief.sample(SAMPLES, torch.Generator().manual_seed(0))
    assert sampled.shape == (SAMPLES, len(belief.decisions)), "sample(n) must be [n, decisions]"
    assert sampled.dtype == torch.int64, "choices must be int64"
    for k, decision in enumerate(belief.decisions):
        assert bool(((sampled[:, k] >= 0) & (sampled[:, k] < len(decision))).all()), (
            f"sampled options of {decision.name} must exist"
        )
    again = belief.sample(SAMPLES, torch.Generator().manual_seed(0))
    assert torch.equal(sampled, again), "sample must draw from the given generator alone"
    return sampled


def _check_marginals(belief: Distribution, sampled: Tensor) -> None:
    for k, decision in enumerate(belief.decisions):
        row = belief.probs()[decision.name]
        assert len(row) == len(decision), f"probs of {decision.name} must be [options]"
        counted = torch.bincount(sampled[:, k], minlength=len(decision)) / SAMPLES
        spread = (row * (1 - row) / SAMPLES).sqrt()
        assert bool(((counted - row).abs() <= 5 * spread + 1e-6).all()), (
            f"samples of {decision.name} must have the probabilities of probs()"
        )
        assert torch.allclose(belief.mean_weights()[k][belief.mode()[k]], belief.mean_weights()[k].max(), atol=1e-5), (
            f"mode() must have the largest mean weight of {decision.name}"
        )


def _check_enumerated(belief: Distribution) -> None:
    if math.prod(len(d) for d in belief.decisions) > ENUMERABLE:
        return
    choices = torch.tensor(list(itertools.product(*(range(len(d)) for d in belief.decisions))))
    log_prob = belief.log_prob(choices).double()
    assert torch.allclose(log_prob.exp().sum(), torch.ones((), dtype=torch.float64), atol=1e-4), (
        "probabilities of all architectures must sum to 1"
    )
    entropy = torch.special.entr(log_prob.exp()).sum()
    assert torch.allclose(belief.entropy().double(), entropy, atol=1e-3), "entropy() must equal enumeration"
    prior = exponential(belief.decisions)
    divergence = -entropy - (log_prob.exp() * prior.log_prob(choices)).sum()
    assert torch.allclose(belief.kl(prior).double(), divergence, atol=1e-3), "kl() must equal enumeration"


def _check_refuses(belief: Distribution, sampled: Tensor) -> None:
    for what, ask in (("log_prob", lambda: belief.log_prob(sampled)), ("kl", lambda: belief.kl(belief))):
        try:
            ask()
        except PolyarchError:
            continue
        raise AssertionError(f"{what} must raise a PolyarchError where belief is not exact")
