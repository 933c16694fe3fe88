"""What every belief over architectures must satisfy."""

from __future__ import annotations

import itertools

import torch

from polyarch.distributions.base import Distribution

ENUMERABLE = 20_000
SAMPLES = 4_000


def check_distribution(belief: Distribution) -> None:
    """Checks a belief without leading axes against enumeration, where the space is small, and its own samples."""
    probs = belief.probs()
    assert list(probs) == [d.name for d in belief.decisions], "probs() must name every decision, in order"
    for decision in belief.decisions:
        row = probs[decision.name]
        assert row.shape == (len(decision),), f"probs of {decision.name} must be [options]"
        assert torch.allclose(row.sum(), torch.ones_like(row.sum()), atol=1e-5), (
            f"probs of {decision.name} must sum to 1"
        )

    assert belief.kl(belief).abs() < 1e-5, "KL of a belief to itself must be 0"
    size = 1
    for decision in belief.decisions:
        size *= len(decision)
    if size <= ENUMERABLE:
        choices = torch.tensor(list(itertools.product(*(range(len(d)) for d in belief.decisions))))
        log_prob = belief.log_prob(choices).double()
        assert torch.allclose(log_prob.exp().sum(), torch.ones((), dtype=torch.float64), atol=1e-4), (
            "probabilities of all architectures must sum to 1"
        )
        entropy = torch.special.entr(log_prob.exp()).sum()
        assert torch.allclose(belief.entropy().double(), entropy, atol=1e-3), "entropy() must equal enumeration"
        mode = belief.log_prob(belief.mode().unsqueeze(0)).double()
        assert torch.allclose(mode, log_prob.max(), atol=1e-5), "mode() must have the largest probability"

    generator = torch.Generator().manual_seed(0)
    sampled = belief.sample(SAMPLES, generator)
    assert sampled.shape == (SAMPLES, len(belief.decisions)), "sample(n) must be [n, decisions]"
    assert sampled.dtype == torch.int64, "choices must be int64"
    for k, decision in enumerate(belief.decisions):
        counted = torch.bincount(sampled[:, k], minlength=len(decision)) / SAMPLES
        assert len(counted) == len(decision), f"sampled options of {decision.name} must exist"
        spread = (probs[decision.name] * (1 - probs[decision.name]) / SAMPLES).sqrt()
        assert bool(((counted - probs[decision.name]).abs() <= 5 * spread + 1e-6).all()), (
            f"samples of {decision.name} must have the probabilities of probs()"
        )
    again = belief.sample(SAMPLES, torch.Generator().manual_seed(0))
    assert torch.equal(sampled, again), "sample must draw from the given generator alone"

    for decision, soft in zip(belief.decisions, belief.relax(5, generator, 1.0), strict=True):
        assert soft.shape == (5, len(decision)), "relax(n) must give [n, options] a decision"
        assert torch.allclose(soft.sum(-1), torch.ones(5), atol=1e-5), "soft weights must sum to 1"
