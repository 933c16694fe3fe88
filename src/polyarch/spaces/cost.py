"""What one network costs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Cost:
    """Parameters, and multiply-accumulates of convolutions and linear layers for one example."""

    parameters: int
    macs: int


def cost_of(module: nn.Module, input_shape: tuple[int, ...]) -> Cost:
    """Counts by running `module` once on its own device (the meta device does, and holds no memory)."""
    macs = 0

    def count(layer: nn.Module, _: tuple[Tensor, ...], output: Tensor) -> None:
        nonlocal macs
        if isinstance(layer, nn.Conv2d):
            macs += output[0].numel() * layer.weight[0].numel()
        elif isinstance(layer, nn.Linear):
            macs += output[0].numel() * layer.in_features

    hooks = [m.register_forward_hook(count) for m in module.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    parameters = list(module.parameters())
    device = parameters[0].device if parameters else torch.device("cpu")
    training = module.training
    try:
        with torch.no_grad():
            module.eval()(torch.empty(1, *input_shape, device=device))
    finally:
        module.train(training)
        for hook in hooks:
            hook.remove()
    return Cost(sum(p.numel() for p in parameters), macs)
