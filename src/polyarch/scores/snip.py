"""SNIP: how much the loss depends on whether each weight is there."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from typing_extensions import override

from polyarch.scores.base import Candidate, Need, Score
from polyarch.scores.saliency import counted_weights, evaluated, total


@dataclass(frozen=True, kw_only=True)
class Snip(Score):
    """The sum of |dL/dm| over masks m = 1 that multiply the weights."""

    name: ClassVar[str] = "snip"
    larger_is_better: ClassVar[bool] = True
    meaning: ClassVar[str] = (
        "Sum over weights of |w dL/dw| on one batch at initialisation: how strongly the loss depends on the weights."
    )
    cost: ClassVar[str] = "A forward and a backward pass of one batch."
    needs: ClassVar[frozenset[Need]] = frozenset({"data"})

    @override
    def __call__(self, candidates: Sequence[Candidate], generator: torch.Generator) -> Tensor:
        return evaluated(candidates, generator, lambda candidate, network: snip(network, candidate.loss))


def snip(network: nn.Module, loss: Callable[[nn.Module], Tensor]) -> Tensor:
    """SNIP of any network, in training mode; the network itself stays as it is.

    Args:
        network: with weights of convolutions and linear layers to sum over.
        loss: of the copy that it is called with, a scalar.

    Returns:
        A scalar, float64.
    """
    network = copy.deepcopy(network).train().requires_grad_()
    weights = counted_weights(network)
    gradients = torch.autograd.grad(loss(network), weights, materialize_grads=True)
    return total((w * g).abs() for w, g in zip(weights, gradients, strict=True)).detach()
