"""SynFlow: how much passes through a network's weights, without data."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from typing_extensions import override

from polyarch.scores.base import Candidate, Score, answer
from polyarch.scores.saliency import counted_weights, evaluated, total


@dataclass(frozen=True, kw_only=True)
class SynFlow(Score):
    """The sum of |w dR/dw|, R being the sum of outputs for an input of ones once every weight is made positive."""

    name: ClassVar[str] = "synflow"
    larger_is_better: ClassVar[bool] = True
    meaning: ClassVar[str] = (
        "Sum over weights of |w dR/dw| at initialisation, with absolute weights, an input of ones and no batch norm: "
        "what flows along all paths. Values span many orders of magnitude: compare ranks or logarithms."
    )
    cost: ClassVar[str] = "A forward and a backward pass of one input, in double precision."

    @override
    def __call__(self, candidates: Sequence[Candidate], generator: torch.Generator) -> Tensor:
        def evaluate(candidate: Candidate, network: nn.Module) -> Tensor:
            candidate.check_numbers(self.name)
            return synflow(network, candidate.shape.input)

        return evaluated(candidates, generator, evaluate)


def synflow(network: nn.Module, input_shape: tuple[int, ...]) -> Tensor:
    """SynFlow of any network, without its batch norms and in training mode; the network itself stays as it is.

    Args:
        network: with weights of convolutions and linear layers to sum over.
        input_shape: of one input, which will be ones.

    Returns:
        A scalar, float64; values span many orders of magnitude.
    """
    network = without_batch_norm(network).train().requires_grad_().double()
    weights = counted_weights(network)
    with torch.no_grad():
        for value in network.state_dict().values():
            if value.is_floating_point():
                value.abs_()
    flow = answer(network, torch.ones(1, *input_shape, dtype=torch.float64, device=weights[0].device)).sum()
    gradients = torch.autograd.grad(flow, weights, materialize_grads=True)
    return total((w * g).abs() for w, g in zip(weights, gradients, strict=True)).detach()


def without_batch_norm(module: nn.Module) -> nn.Module:
    """A copy of any module in which every batch norm of `torch.nn` does nothing."""
    bare = copy.deepcopy(module)
    if isinstance(bare, _BatchNorm):
        return nn.Identity()
    for path, part in list(bare.named_modules(remove_duplicate=False)):  # one that stands in two places goes from both
        if isinstance(part, _BatchNorm):
            bare.set_submodule(path, nn.Identity())
    return bare
