"""Optimiser updates on plain tensors, in place, with learning rates as tensors so that a step can be captured."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from polyarch.errors import PolyarchError


def momentum_buffers(**groups: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Zero momentum for every parameter of every group, made before the first step, under `GROUP.PARAMETER`."""
    return {
        f"{group}.{name}": torch.zeros_like(value, requires_grad=False)
        for group, parameters in groups.items()
        for name, value in parameters.items()
    }


@torch.no_grad()
def sgd(
    parameters: list[Tensor],
    gradients: list[Tensor],
    momenta: list[Tensor],
    *,
    rate: Tensor,
    momentum: float,
    nesterov: bool = False,
    weight_decay: float = 0.0,
) -> None:
    """Momentum SGD: g <- g + weight_decay p, v <- momentum v + g, p <- p - rate v; v starts at 0.

    With `nesterov`, p <- p - rate (g + momentum v). This is torch.optim.SGD without dampening.
    """
    if weight_decay:
        gradients = list(torch._foreach_add(gradients, parameters, alpha=weight_decay))
    torch._foreach_mul_(momenta, momentum)
    torch._foreach_add_(momenta, gradients)
    steps = torch._foreach_add(gradients, momenta, alpha=momentum) if nesterov else momenta
    torch._foreach_sub_(parameters, torch._foreach_mul(steps, rate))


def adam_buffers(**groups: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Both moments of every parameter, and how many steps were made; under `GROUP.PARAMETER.first` and so on."""
    found: dict[str, Tensor] = {}
    for group, parameters in groups.items():
        for name, value in parameters.items():
            for moment in ("first", "second"):
                found[f"{group}.{name}.{moment}"] = torch.zeros_like(value, requires_grad=False)
        repeats = next(iter(parameters.values()))
        # In double precision, since 1 - 0.999 ** steps loses four digits in single.
        found[f"{group}.steps"] = torch.zeros(len(repeats), dtype=torch.float64, device=repeats.device)
    return found


@torch.no_grad()
def adam(
    parameters: list[Tensor],
    gradients: list[Tensor],
    buffers: Mapping[str, Tensor],
    group: str,
    *,
    rate: Tensor,
    betas: tuple[float, float] = (0.5, 0.999),
    weight_decay: float = 0.0,
) -> None:
    """Adam with its usual bias correction (torch.optim.Adam, epsilon 1e-8), on `adam_buffers` of a group.

    The default betas are those of DARTS and PARSEC for architecture parameters.
    """
    buffers[f"{group}.steps"].add_(1)
    names = [name for name in buffers if name.startswith(f"{group}.") and name.endswith(".first")]
    for parameter, gradient, name in zip(parameters, gradients, names, strict=True):
        first, second = buffers[name], buffers[f"{name.removesuffix('first')}second"]
        steps = buffers[f"{group}.steps"].view(-1, *[1] * (parameter.dim() - 1))
        corrections = [(1 - beta**steps).to(parameter.dtype) for beta in betas]
        gradient = gradient + weight_decay * parameter if weight_decay else gradient
        first.lerp_(gradient, 1 - betas[0])
        second.mul_(betas[1]).addcmul_(gradient, gradient, value=1 - betas[1])
        deviation = (second / corrections[1]).sqrt() + 1e-8
        parameter.sub_(rate * first / corrections[0] / deviation)


@torch.no_grad()
def clip(gradients: list[Tensor], most: float) -> None:
    """Scales each repeat's gradients, in place, down to the norm `most` over all of them."""
    squares = torch.stack([g.flatten(1).square().sum(1) if g.dim() > 1 else g.square() for g in gradients])
    scale = (most / (squares.sum(0).sqrt() + 1e-6)).clamp_max(1)
    for gradient in gradients:
        gradient.mul_(scale.view(-1, *[1] * (gradient.dim() - 1)))


def cosine(rate: float, epoch: int, epochs: int, last: float = 0.0) -> float:
    """The rate of an epoch that falls from `rate` to `last` along half a cosine."""
    return last + (rate - last) * (1 + math.cos(math.pi * epoch / epochs)) / 2


def check_sgd(rate: float, momentum: float, drop_after: int) -> None:
    """Raises on settings of SGD that make no sense."""
    if not rate > 0:
        raise PolyarchError(f"rate must be positive, not {rate}")
    if not 0 <= momentum < 1:
        raise PolyarchError(f"momentum must be at least 0 and below 1, not {momentum}")
    if drop_after < 0:
        raise PolyarchError(f"drop_after must be 0 (never) or a number of epochs, not {drop_after}")


def dropped(rate: float, drop_after: int, epoch: int) -> float:
    """The rate of an epoch that falls to a tenth after `drop_after` epochs (0: never)."""
    return rate * 0.1 if drop_after and epoch >= drop_after else rate
