"""Optimisers: settings that a method has, and updates of plain tensors in place.

Learning rates are tensors, so that a step can be captured. All optimiser state is made before the first step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

import torch
from torch import Tensor

from polyarch.core import State
from polyarch.errors import PolyarchError
from polyarch.settings import Above, AtLeast, Below, InEpochs, settle


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """How a learning rate changes with epochs."""

    kind: Literal["constant", "cosine", "multistep"] = "constant"
    """`cosine` falls to `last_lr` along half a cosine, `multistep` by the factor `gamma` at every milestone."""
    last_lr: Annotated[float, AtLeast(0)] = 0.0
    """What `cosine` falls to."""
    milestones: Annotated[tuple[Annotated[float, AtLeast(0)], ...], InEpochs()] = ()
    """Of `multistep`: epochs, or, below 1, parts of all epochs."""
    gamma: Annotated[float, Above(0)] = 0.1
    """Of `multistep`: what the rate is multiplied by at every milestone."""

    def __post_init__(self) -> None:
        settle(self)
        if self.milestones and self.kind != "multistep":
            raise PolyarchError(f"schedule.milestones are of kind=multistep, not of {self.kind}; set schedule.kind too")

    def at(self, lr: float, epoch: int, epochs: int) -> float:
        """The rate of an epoch (from 0) of so many."""
        if self.kind == "cosine":
            return self.last_lr + (lr - self.last_lr) * (1 + math.cos(math.pi * epoch / epochs)) / 2
        if self.kind == "multistep":
            passed = sum(epoch >= (at if at >= 1 else at * epochs) for at in self.milestones)
            return lr * self.gamma**passed
        return lr


@dataclass(frozen=True, kw_only=True)
class Sgd:
    """SGD with momentum, as torch.optim.SGD has it without dampening."""

    lr: Annotated[float, Above(0)] = 0.025
    """First learning rate."""
    momentum: Annotated[float, AtLeast(0), Below(1)] = 0.9
    """What is kept of the step before."""
    nesterov: bool = False
    """Nesterov's momentum."""
    weight_decay: Annotated[float, AtLeast(0)] = 0.0
    """L2, on every weight."""
    grad_clip: Annotated[float, AtLeast(0)] = 0.0
    """Gradients are scaled down to this norm over all weights; 0 is never."""
    schedule: Schedule = field(default_factory=Schedule)
    """How the rate changes."""

    def __post_init__(self) -> None:
        settle(self)

    def lr_at(self, epoch: int, epochs: int) -> float:
        """The learning rate of an epoch (from 0) of so many."""
        return self.schedule.at(self.lr, epoch, epochs)

    def step(self, state: State, gradients: list[Tensor], lr: Tensor) -> None:
        """Moves the weights of a state, whose momenta `momentum_buffers(weights=...)` made."""
        if self.grad_clip:
            clip(gradients, self.grad_clip)
        sgd(
            list(state.weights.values()),
            gradients,
            [state.optimiser[f"weights.{name}"] for name in state.weights],
            lr=lr,
            momentum=self.momentum,
            nesterov=self.nesterov,
            weight_decay=self.weight_decay,
        )


@dataclass(frozen=True, kw_only=True)
class Adam:
    """Adam, as torch.optim.Adam has it."""

    lr: Annotated[float, AtLeast(0)] = 3e-4
    """Learning rate."""
    betas: tuple[Annotated[float, AtLeast(0), Below(1)], ...] = (0.5, 0.999)
    """Decay of both moments."""
    weight_decay: Annotated[float, AtLeast(0)] = 0.0
    """L2."""

    def __post_init__(self) -> None:
        settle(self)
        if len(self.betas) != 2:
            raise PolyarchError(f"betas are {self.betas}; give two, such as 0.5,0.999")

    def step(self, state: State, parameters: list[Tensor], gradients: Sequence[Tensor], lr: Tensor) -> None:
        """Moves belief's parameters, whose moments `adam_buffers(belief=...)` made."""
        first, second = self.betas
        adam(
            parameters,
            gradients,
            state.optimiser,
            "belief",
            lr=lr,
            betas=(first, second),
            weight_decay=self.weight_decay,
        )


DARTS_WEIGHTS = Sgd(
    lr=0.025, momentum=0.9, weight_decay=3e-4, grad_clip=5.0, schedule=Schedule(kind="cosine", last_lr=0.001)
)
"""How DARTS trains the weights of its supernet."""
DARTS_ARCH = Adam(lr=3e-4, betas=(0.5, 0.999), weight_decay=1e-3)
"""How DARTS trains architecture parameters."""


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
    lr: Tensor,
    momentum: float,
    nesterov: bool = False,
    weight_decay: float = 0.0,
) -> None:
    """Momentum SGD: g <- g + weight_decay p, v <- momentum v + g, p <- p - lr v; v starts at 0.

    With `nesterov`, p <- p - lr (g + momentum v). This is torch.optim.SGD without dampening.
    """
    if weight_decay:
        gradients = list(torch._foreach_add(gradients, parameters, alpha=weight_decay))
    torch._foreach_mul_(momenta, momentum)
    torch._foreach_add_(momenta, gradients)
    steps = torch._foreach_add(gradients, momenta, alpha=momentum) if nesterov else momenta
    torch._foreach_sub_(parameters, torch._foreach_mul(steps, lr))


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
    gradients: Sequence[Tensor],
    buffers: Mapping[str, Tensor],
    group: str,
    *,
    lr: Tensor,
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
        parameter.sub_(lr * first / corrections[0] / deviation)


@torch.no_grad()
def clip(gradients: list[Tensor], most: float) -> None:
    """Scales each repeat's gradients, in place, down to the norm `most` over all of them."""
    for own in zip(*(gradient.unbind() for gradient in gradients), strict=True):
        norm = torch.stack(torch._foreach_norm(own)).norm()
        torch._foreach_mul_(own, (most / (norm + 1e-6)).clamp_max(1))
