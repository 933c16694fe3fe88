"""Jacobian covariance: whether an untrained network tells inputs apart (Mellor et al., 2020, first version)."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from typing_extensions import override

from polyarch.scores.base import Candidate, Need, Score, answer
from polyarch.scores.saliency import evaluated

FLOOR = 1e-5
"""Added to eigenvalues (the paper's k)."""


@dataclass(frozen=True, kw_only=True)
class JacobCov(Score):
    """-sum(log(v + k) + 1 / (v + k)) over eigenvalues v of the correlation of the inputs' Jacobians, k = 1e-5."""

    name: ClassVar[str] = "jacob-cov"
    larger_is_better: ClassVar[bool] = True
    meaning: ClassVar[str] = (
        "How little the gradients of the summed outputs in the inputs of one batch are correlated at initialisation: "
        "large where different inputs are treated differently."
    )
    cost: ClassVar[str] = "A forward and a backward pass of one batch, and the eigenvalues of a matrix of its size."
    needs: ClassVar[frozenset[Need]] = frozenset({"data"})

    @override
    def __call__(self, candidates: Sequence[Candidate], generator: torch.Generator) -> Tensor:
        def evaluate(candidate: Candidate, network: nn.Module) -> Tensor:
            candidate.check("data")
            assert candidate.data is not None
            candidate.check_numbers(self.name)
            return jacob_cov(network, candidate.data.x)

        return evaluated(candidates, generator, evaluate)


def jacob_cov(network: nn.Module, x: Tensor) -> Tensor:
    """The score of any network, in training mode; network and inputs stay as they are.

    Args:
        network: any.
        x: inputs [n, ...].

    Returns:
        A scalar, float64.
    """
    network = copy.deepcopy(network).train()
    x = x.detach().clone().requires_grad_()
    [jacobian] = torch.autograd.grad(answer(network, x).sum(), [x], materialize_grads=True)
    values = torch.linalg.eigvalsh(_correlation(jacobian.flatten(1).double())) + FLOOR
    return -(values.log() + 1 / values).sum()


def _correlation(rows: Tensor) -> Tensor:
    """Pearson's correlation of rows [n, k] with each other, [n, n].

    Rows without any variance are taken to be correlated with each other and with no other row. So a network that passes
    nothing on, whose Jacobians are all zero, scores lowest, where the published code finds no number.
    """
    centred = rows - rows.mean(1, keepdim=True)
    size = centred.norm(dim=1, keepdim=True)
    flat = size <= 1e-12 * rows.norm(dim=1, keepdim=True)
    units = torch.cat([(centred / size).masked_fill(flat, 0), flat.double()], 1)
    return units @ units.T
