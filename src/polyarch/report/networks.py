"""The networks of a run, and what they answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from polyarch.report.beliefs import is_point
from polyarch.runs.results import largest
from polyarch.runs.run import Run
from polyarch.uncertainty.ensemble import BATCH, Ensemble
from polyarch.uncertainty.predictive import Predictive


def has_mixture(run: Run) -> bool:
    """Whether more than one network answers for a run: several architectures, or one thinned by dropout."""
    return not is_point(run) or run.space.has_dropout


@dataclass(frozen=True)
class Networks:
    """The networks of a run, on the device that the run was made on."""

    selected: nn.Module
    mixture: Ensemble | None
    """Pruned, where the space is nested; None where there is one network alone, or where that was trained alone."""
    unpruned: Ensemble | None
    """The mixture before pruning; None where nothing was pruned."""
    device: torch.device

    @classmethod
    def of(cls, run: Run) -> Networks:
        """Loads them."""
        is_pruned = run.space.nested and run.architecture != largest(run)
        return cls(
            selected=run.model().to(run.device),
            mixture=run.ensemble().to(run.device) if has_mixture(run) and not run.trained else None,
            unpruned=run.ensemble(largest(run)).to(run.device) if is_pruned else None,
            device=run.device,
        )

    def log_probs(self, network: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """Class probabilities [n, classes] that one of these gives raw inputs, as logarithms."""
        return self.outputs(network, x).log_softmax(-1)

    @torch.no_grad()
    def outputs(self, network: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """What one of these answers to raw inputs [n, ...], batch by batch along the last but one axis."""
        return torch.cat([network(part.to(self.device)).cpu() for part in x.split(BATCH)], -2)


def predictive_of_all(networks: Sequence[Networks], x: Tensor) -> Predictive:
    """What the mixture over the members of all mixtures predicts; each of these has the same weight."""
    mixtures = [(own, own.mixture) for own in networks if own.mixture is not None]
    weights = torch.cat([mixture.weights.cpu() for _, mixture in mixtures]) / len(mixtures)
    parts = []
    for part in x.split(BATCH):
        members = torch.cat([own.outputs(mixture.members, part) for own, mixture in mixtures])
        parts.append(Predictive.from_members(members.log_softmax(-1), weights))
    return Predictive.joined(parts)
