"""Updates of a Gaussian belief over parameters, in place: BaLeNAS's Eqs. 7 and 13 to 18.

The loss is a mean over N examples, and its gradients g are taken at draws mean + deviation * noise. The prior is
N(0, 1 / delta). The paper writes variances by s, a running estimate of the loss's diagonal curvature:

    deviation^2 = 1 / (N s + delta)

What is kept here is the whole precision N s + delta, in double precision: N s may be far below delta, yet decides how
far the mean moves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from polyarch.settings import NonNegative, Share


@dataclass(frozen=True, kw_only=True)
class NaturalGradient:
    """How belief moves."""

    update: Literal["vadam", "printed", "bayes-by-backprop", "von", "vprop"] = "vadam"
    """Variational Adam as in its library (`vadam`) or as `printed` (Eqs. 17 and 18), Eq. 7 (`bayes-by-backprop`),
    Eqs. 13 and 14 (`von`), or Eqs. 13 and 15 (`vprop`)."""
    lr: NonNegative = 3e-4
    """Learning rate of the mean; as printed also that of the curvature s, and of `bayes-by-backprop` that of both
    parameters (the paper's code)."""
    beta1: Share = 0.5
    """Of `vadam` the decay of the mean gradient, of `printed` the momentum gamma (the paper's code)."""
    beta2: Share = 0.999
    """Of `vadam`, the decay of the curvature s (the paper's code)."""


@dataclass(frozen=True)
class Posterior:
    """The tensors that an update moves, [repeats, ...] each, and the two numbers that belong to them."""

    mean: Tensor
    precision: Tensor
    """N s + delta, in double precision."""
    data_size: float
    """N."""
    prior_precision: float
    """delta."""

    def curvature(self) -> Tensor:
        """The paper's s."""
        return (self.precision - self.prior_precision) / self.data_size

    def learn_curvature(self, estimate: Tensor, share: float | Tensor) -> None:
        """Moves s by a `share` of the way to an estimate of it."""
        self.precision.lerp_(self.data_size * estimate.double() + self.prior_precision, share)


def deviation(precision: Tensor) -> Tensor:
    """1 / sqrt(N s + delta), in single precision."""
    return precision.rsqrt().float()


@torch.no_grad()
def vadam(
    belief: Posterior, gradients: Tensor, first: Tensor, steps: Tensor, *, lr: Tensor, betas: tuple[float, float]
) -> None:
    """Variational Adam as its authors' library has it.

        m <- b1 m + (1 - b1) (mean g + delta/N mean),    s <- b2 s + (1 - b2) mean g^2
        mean <- mean - lr m / (1 - b1^t) / (sqrt(s / (1 - b2^t)) + delta/N)

    Args:
        belief: what moves; its deviation is of s without the correction.
        gradients: one per draw, [draws, repeats, ...].
        first: m, [repeats, ...].
        steps: t, the updates made before, [repeats], in double precision.
        lr: of the mean.
        betas: b1 and b2.
    """
    pull = belief.prior_precision / belief.data_size
    steps.add_(1)
    corrections = [1 - beta ** steps.view(-1, *[1] * (first.dim() - 1)) for beta in betas]
    first.lerp_(gradients.mean(0) + pull * belief.mean, 1 - betas[0])
    belief.learn_curvature(gradients.square().mean(0), 1 - betas[1])
    scale = (belief.curvature() / corrections[1]).sqrt() + pull
    belief.mean.sub_(lr * first / corrections[0] / scale)


@torch.no_grad()
def newton(belief: Posterior, gradient: Tensor, estimate: Tensor, *, lr: Tensor) -> None:
    """A step of variational online Newton (Eqs. 13 and 14), given an estimate of the diagonal curvature.

        s <- (1 - lr) s + lr * estimate,    mean <- mean - lr (g + delta/N mean) / (s + delta/N)

    With `curvature_by_noise` this is VON, with the square of the gradient Vprop (Eq. 15).
    """
    belief.learn_curvature(estimate, lr.double())
    # Where a loss is not convex, an estimate may be negative; belief is kept from being wider than the prior.
    belief.precision.clamp_min_(belief.prior_precision)
    slope = belief.data_size * gradient + belief.prior_precision * belief.mean
    belief.mean.sub_(lr * slope / belief.precision)


@torch.no_grad()
def vadam_printed(belief: Posterior, gradient: Tensor, change: Tensor, *, lr: Tensor, momentum: float) -> None:
    """Variational Adam as printed (Eqs. 17 and 18): a step of Vprop and, on top, momentum times the last change.

    The change counts by (s + delta/N) before over after the step. No root, no correction: where gradients are small,
    steps are far longer than those of `vadam`.
    """
    mean, precision = belief.mean.clone(), belief.precision.clone()
    newton(belief, gradient, gradient.square(), lr=lr)
    belief.mean.add_(momentum * precision / belief.precision * change)
    change.copy_(belief.mean - mean)


@torch.no_grad()
def bayes_by_backprop(belief: Posterior, gradients: Tensor, noise: Tensor, *, lr: Tensor) -> None:
    """Plain gradient descent on N times the loss plus KL(belief | prior) (Eqs. 6 and 7).

    What is moved beside the mean is the logarithm of the deviation, which keeps that positive. Its gradient needs no
    backward pass of its own, since a draw changes with the deviation by its noise. `gradients` and `noise` are
    [draws, repeats, ...].
    """
    n, delta, width = belief.data_size, belief.prior_precision, belief.precision.rsqrt()
    slope = n * gradients.mean(0) + delta * belief.mean
    log_slope = n * width * (gradients * noise).mean(0) + delta * width.square() - 1
    belief.mean.sub_(lr * slope)
    belief.precision.mul_((2 * lr * log_slope).exp())


def curvature_by_noise(gradients: Tensor, noise: Tensor, precision: Tensor) -> Tensor:
    """The mean over draws of g * noise / deviation: on average the loss's diagonal curvature under belief.

    Integration by parts: E[g(mean + deviation noise) noise] = deviation E[g'].
    """
    return (gradients * noise).mean(0) * precision.sqrt()
