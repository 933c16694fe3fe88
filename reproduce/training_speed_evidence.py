"""Bayesian linear regression, where the sum over training losses bounds the evidence (SoTL thesis, section 3.1).

Everything is known in closed form: the evidence, its chain of predictions, and the bound that training losses give.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

NOISE, PRIOR = 0.25, 1.0
"""Variances of the targets' noise and of the weights' prior, both known to the model."""


def log_evidence(phi: Tensor, y: Tensor) -> float:
    """The closed form of log P(D): y ~ N(0, noise I + prior Phi Phi^T), Eq. 3.2. Phi [n, d], y [n]."""
    covariance = NOISE * torch.eye(len(y), dtype=y.dtype) + PRIOR * phi @ phi.mT
    return torch.distributions.MultivariateNormal(torch.zeros_like(y), covariance).log_prob(y).item()


def posterior(phi: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Mean [d] and covariance [d, d] of the weights given data, which may be none."""
    covariance = torch.linalg.inv(phi.mT @ phi / NOISE + torch.eye(phi.shape[1], dtype=phi.dtype) / PRIOR)
    return covariance @ phi.mT @ y / NOISE, covariance


def sample_then_optimise(phi: Tensor, y: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Weights [count, d] from the exact posterior: drawn from the prior, then fitted to targets with fresh noise.

    The fit minimises |y + e - Phi w|^2 / noise + |w - w_0|^2 / prior. It is taken at its optimum, to which gradient
    descent converges.
    """
    start = math.sqrt(PRIOR) * torch.randn(count, phi.shape[1], generator=generator, dtype=phi.dtype)
    targets = y + math.sqrt(NOISE) * torch.randn(count, len(y), generator=generator, dtype=phi.dtype)
    precision = phi.mT @ phi / NOISE + torch.eye(phi.shape[1], dtype=phi.dtype) / PRIOR
    return torch.linalg.solve(precision, (targets @ phi / NOISE + start / PRIOR).mT).mT


def log_normal(y: Tensor, mean: Tensor, variance: Tensor | float) -> Tensor:
    """Elementwise log N(y; mean, variance)."""
    variance = torch.as_tensor(variance, dtype=y.dtype)
    return -0.5 * ((y - mean).square() / variance + (2 * math.pi * variance).log())


def judged(phi: Tensor, y: Tensor, counts: Sequence[int], generator: torch.Generator) -> dict[str, Any]:
    """Log evidence of a feature set, and every sum over training losses, the points in the order given.

    Returns:
        `evidence`, closed form; `chain`, sum_i log P(D_i | D_<i) (Eq. 3.4); `bound`, the right side of Eq. 3.5, in
        closed form; by number of samples k, `sotl`, its estimate (Eq. 3.6), and `inside`, the mean inside the log.
    """
    chain = bound = 0.0
    sotl, inside = dict.fromkeys(counts, 0.0), dict.fromkeys(counts, 0.0)
    for i in range(len(y)):
        mean, covariance = posterior(phi[:i], y[:i])
        spread = phi[i] @ covariance @ phi[i]
        chain += log_normal(y[i], phi[i] @ mean, NOISE + spread).item()
        bound += (log_normal(y[i], phi[i] @ mean, NOISE) - spread / (2 * NOISE)).item()
        for k in counts:
            fits = log_normal(y[i], sample_then_optimise(phi[:i], y[:i], k, generator) @ phi[i], NOISE)
            sotl[k] += fits.mean().item()
            inside[k] += fits.logsumexp(0).item() - math.log(k)
    return {"evidence": log_evidence(phi, y), "chain": chain, "bound": bound, "sotl": sotl, "inside": inside}
