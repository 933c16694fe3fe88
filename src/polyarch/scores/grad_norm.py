"""The size of the gradient before training."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from typing_extensions import override

from polyarch.scores.base import Candidate, Need, Score
from polyarch.scores.saliency import counted_weights, evaluated


@dataclass(frozen=True, kw_only=True)
class GradNorm(Score):
    """The Euclidean norm of the loss's gradient in every layer's weight, added up over layers."""

    name: ClassVar[str] = "grad-norm"
    larger_is_better: ClassVar[bool] = True
    meaning: ClassVar[str] = (
        "Sum over layers of the Euclidean norm of dL/dw on one batch at initialisation: how steep the loss is at first."
    )
    cost: ClassVar[str] = "A forward and a backward pass of one batch."
    needs: ClassVar[frozenset[Need]] = frozenset({"data"})

    @override
    def __call__(self, candidates: Sequence[Candidate], generator: torch.Generator) -> Tensor:
        return evaluated(candidates, generator, lambda candidate, network: grad_norm(network, candidate.loss))


def grad_norm(network: nn.Module, loss: Callable[[nn.Module], Tensor]) -> Tensor:
    """The gradient norm of any network, in training mode; the network itself stays as it is.

    Args:
        network: with weights of convolutions and linear layers, biases and batch norm left out.
        loss: of the copy that it is called with, a scalar.

    Returns:
        A scalar, float64.
    """
    network = copy.deepcopy(network).train().requires_grad_()
    weights = counted_weights(network)
    gradients = torch.autograd.grad(loss(network), weights, materialize_grads=True)
    return torch.stack([g.double().norm() for g in gradients]).sum()
