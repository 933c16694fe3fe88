"""A score to copy: how strongly the outputs of an untrained network react to its inputs.

`CHANGE` marks what is yours to write. Everything else every score needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from typing_extensions import override

from polyarch.scores.base import Candidate, Score
from polyarch.settings import Positive


@dataclass(frozen=True, kw_only=True)
class Sensitivity(Score):
    """Size of the gradient of an untrained network's outputs in its inputs."""

    name: ClassVar[str] = "sensitivity"  # CHANGE
    larger_is_better: ClassVar[bool] = True  # CHANGE
    # CHANGE: one sentence for a person.
    meaning: ClassVar[str] = "Root mean square of d(sum of outputs) / d(input) at initialisation, on random inputs."
    # CHANGE: another sentence, on what scoring one candidate takes.
    cost: ClassVar[str] = "A forward and a backward pass of a few inputs, a few times."
    # CHANGE: a score that asks for data or trained weights says so: needs = frozenset({"data", "weights"}).

    # CHANGE: a field is a setting, the text under it its help; its type says what it may be (`polyarch.settings`).
    inputs: Positive = 16
    """Random inputs a network is tried on."""
    draws: Positive = 4
    """Initialisations that are averaged."""

    @override
    def __call__(self, candidates: Sequence[Candidate], generator: torch.Generator) -> Tensor:
        # The same seeds for every candidate: they are compared on equal terms, and the order in which they come, or
        # which others come along, changes nothing. Draw from `generator` and from nothing else.
        seeds = torch.randint(2**62, (self.draws,), generator=generator).tolist()
        return torch.tensor([self._evaluate(candidate, seeds) for candidate in candidates], dtype=torch.float64)

    def _evaluate(self, candidate: Candidate, seeds: Sequence[int]) -> float:
        """CHANGE: one candidate's number; it must be finite.

        `candidate.fresh(generator)` is an untrained network; `candidate.cost()` has its parameters and
        multiply-accumulates. A score that needs weights calls `candidate.inherited()`, a copy with the supernet's; one
        that needs data has a batch in `candidate.data` and its loss by `candidate.loss(network)`. Networks are yours to
        change.
        """
        total = 0.0
        for seed in seeds:
            own = torch.Generator().manual_seed(seed)
            network = candidate.fresh(own).eval()
            x = torch.randn(self.inputs, *candidate.shape.input, generator=own, requires_grad=True)
            [gradient] = torch.autograd.grad(network(x).sum(), [x])
            total += gradient.double().square().mean().sqrt().item()
        return total / len(seeds)
