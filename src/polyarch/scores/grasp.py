"""GraSP: how much each weight does for the flow of gradients."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from typing_extensions import override

from polyarch.scores.base import Candidate, Need, Score
from polyarch.scores.saliency import counted_weights, evaluated, total


@dataclass(frozen=True, kw_only=True)
class Grasp(Score):
    """The sum of -w * Hg, g being the gradient and H the Hessian of the loss in the weights."""

    name: ClassVar[str] = "grasp"
    larger_is_better: ClassVar[bool] = True
    meaning: ClassVar[str] = (
        "Sum over weights of -w (Hg) on one batch at initialisation: half of what the squared norm of the gradient "
        "would gain, to first order, if the weights were taken away."
    )
    cost: ClassVar[str] = "A forward and two backward passes of one batch."
    needs: ClassVar[frozenset[Need]] = frozenset({"data"})

    @override
    def __call__(self, candidates: Sequence[Candidate], generator: torch.Generator) -> Tensor:
        return evaluated(candidates, generator, lambda candidate, network: grasp(network, candidate.loss))


def grasp(network: nn.Module, loss: Callable[[nn.Module], Tensor]) -> Tensor:
    """GraSP of any network, in training mode; the network itself stays as it is.

    Args:
        network: with weights of convolutions and linear layers to sum over.
        loss: of the copy that it is called with, a scalar that can be differentiated twice.

    Returns:
        A scalar, float64; higher is better, so the sign is that of the zero-cost proxies.
    """
    network = copy.deepcopy(network).train().requires_grad_()
    weights = counted_weights(network)
    with sdpa_kernel(SDPBackend.MATH):  # faster kinds of attention have no second derivative
        gradients = torch.autograd.grad(loss(network), weights, create_graph=True, materialize_grads=True)
        flow = torch.stack([(g.detach() * g).sum() for g in gradients]).sum()
        curved = torch.autograd.grad(flow, weights, materialize_grads=True)  # H g, the detached g being a constant
    return total(-w * h for w, h in zip(weights, curved, strict=True)).detach()
