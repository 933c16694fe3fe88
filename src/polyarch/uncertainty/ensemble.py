"""Predicting with a whole distribution over architectures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from polyarch.data.likelihood import Classification, Gaussian, Likelihood
from polyarch.data.preprocess import InUnits, Preprocess
from polyarch.errors import PolyarchError
from polyarch.spaces.base import Supernet
from polyarch.spaces.layers import Dropout
from polyarch.spaces.views import All, Sparse
from polyarch.trees import called, leaves, tree_map
from polyarch.uncertainty.arrays import takes_arrays
from polyarch.uncertainty.gaussians import Gaussians
from polyarch.uncertainty.mixtures import Mixtures
from polyarch.uncertainty.predictive import Predictive

Said = Predictive | Gaussians | Mixtures
"""What is said of inputs: of their classes, of numbers, or of what any other likelihood is about."""
BATCH = 1024
"""So many inputs are asked about at a time."""


def _lean(network: Callable[..., Tensor], x: Any) -> Tensor:
    """A member's output; where gradients by `x` are wanted, what leads to it is computed again and not kept.

    So an attack through hundreds of members needs the memory of one.
    """
    if not (torch.is_grad_enabled() and any(part.requires_grad for part in leaves(x))):
        return network(x)
    output: Tensor = checkpoint(network, x, use_reentrant=False, preserve_rng_state=False)
    return output


def _of_one_repeat(x: Any) -> Any:
    """[n, ...] -> [1, n, ...], of several inputs each."""
    return tree_map(lambda part: part.unsqueeze(0), x)


def _drawn(chance: torch.Generator, kept: list[Tensor], shape: Sequence[int]) -> Tensor:
    """Numbers from 0 to 1, which are also kept."""
    kept.append(torch.rand(shape, generator=chance, device=chance.device))
    return kept[-1]


@final
class Nested(nn.Module):
    """Members that share one pass: the options of a nested decision."""

    def __init__(self, supernet: Supernet) -> None:
        """Takes a supernet of one repeat."""
        super().__init__()
        self.supernet = supernet

    def forward(self, x: Any) -> Tensor:
        """[n, ...] -> [members, n, outputs]."""
        outputs: Tensor = self.supernet(_of_one_repeat(x), All()).squeeze(0)
        return outputs


@final
class Within(nn.Module):
    """Members that run inside a supernet, one after the other, on its weights; nothing is copied."""

    def __init__(self, supernet: Supernet, choices: Tensor, seeds: Sequence[int] | None = None) -> None:
        """Takes a supernet of one repeat, and choices [members, decisions] of its space.

        Args:
            supernet: where they run.
            choices: their architectures.
            seeds: of their draws of dropout, where the space has any; by default 0, 1, ...
        """
        super().__init__()
        self.supernet = supernet
        self.views = [Sparse(tuple(row)) for row in choices.tolist()]
        self.seeds = range(len(self.views)) if seeds is None else seeds
        self._dropouts = [module for module in supernet.modules() if isinstance(module, Dropout)]
        self._drawn: list[list[Tensor]] = []

    def settle(self, x: Any) -> None:
        """Draws what dropout leaves out once and for all, by inputs [n, ...]: then a pass draws nothing.

        A program that is made of it would draw anew, and can read no value back: afterwards none needs to be.
        """
        drawn: list[list[Tensor]] = [[] for _ in self.views]
        for own, view, seed in zip(drawn, self.views, self.seeds, strict=True):
            chance = torch.Generator(next(leaves(x)).device).manual_seed(seed)
            self._thinned(partial(_drawn, chance, own), view, _of_one_repeat(x))
        self._drawn = drawn if self._dropouts else []

    def forward(self, x: Any) -> Tensor:
        """[n, ...] -> [members, n, outputs]."""
        repeat = _of_one_repeat(x)
        members = [partial(self._member, place) for place in range(len(self.views))]
        return torch.stack([_lean(member, repeat).squeeze(0) for member in members])

    def _member(self, place: int, x: Any) -> Tensor:
        """What one says; with dropout, as the one thinned network that its seed stands for.

        So it says the same of an input in any company, and the gradient of an attack is that of what is attacked.
        """
        if self._drawn:
            known = iter(self._drawn[place])
            return self._thinned(lambda shape: next(known), self.views[place], x)
        chance = torch.Generator(next(leaves(x)).device).manual_seed(self.seeds[place])
        return self._thinned(partial(_drawn, chance, []), self.views[place], x)

    def _thinned(self, drawn: Callable[[Sequence[int]], Tensor], view: Sparse, x: Any) -> Tensor:
        """What a member says where dropout goes by what is drawn."""
        try:
            for dropout in self._dropouts:
                dropout.thinned_by = drawn
            output: Tensor = self.supernet(x, view)
        finally:
            for dropout in self._dropouts:
                dropout.thinned_by = None
        return output


@final
class Apart(nn.Module):
    """Members that are networks of their own."""

    def __init__(self, networks: Sequence[nn.Module]) -> None:
        """Takes the networks over."""
        super().__init__()
        self.networks = nn.ModuleList(networks)

    def forward(self, x: Any) -> Tensor:
        """[n, ...] -> [members, n, outputs]."""
        return torch.stack([_lean(partial(called, network), x) for network in self.networks])


@final
class Ensemble(nn.Module):
    """The mixture sum_m weights[m] p(y | x, member m) on raw inputs."""

    weights: Tensor

    def __init__(
        self,
        preprocess: Preprocess,
        networks: Nested | Within | Apart,
        weights: Tensor,
        likelihood: Likelihood,
        units: InUnits | None = None,
    ) -> None:
        """Takes the members over.

        Args:
            preprocess: from raw inputs to what networks see.
            networks: the members.
            weights: theirs, [members].
            likelihood: what their outputs say of targets as they were read.
            units: in which these were, where networks have learnt them in others.
        """
        super().__init__()
        self.preprocess, self.units = preprocess, units
        self.networks = networks.requires_grad_(False)
        self.register_buffer("weights", weights)
        self.likelihood = likelihood.unweighted  # a mixture is of densities

    @takes_arrays
    def members(self, x: Tensor) -> Tensor:
        """Every member's output: [members, n, outputs]."""
        outputs: Tensor = self.networks(self.preprocess(x))
        return self.units(outputs) if self.units else outputs

    def output(self, x: Tensor) -> Tensor:
        """The mixture's output [n, outputs]: log-probabilities for classes, the mean for numbers."""
        return self.likelihood.mixture(self.members(x), self.weights)

    @takes_arrays
    def log_likelihood(self, x: Tensor, target: Tensor) -> Tensor:
        """Log sum_m w_m p(target | x, m), [n]."""
        fit = self.likelihood.log_likelihood(self.members(x), target)
        return (fit + self.weights.log()[:, None]).logsumexp(0)

    def forward(self, x: Tensor) -> Predictive:
        """Mean prediction, entropy and mutual information of a batch of raw inputs."""
        if not isinstance(self.likelihood, Classification):
            raise PolyarchError(
                f"this mixture predicts {self.likelihood.predicts}, not classes; use gaussians(x) for numbers, and "
                "run.predict(x) for all else"
            )
        with torch.no_grad():
            return Predictive.from_members(self.members(x).log_softmax(-1), self.weights)

    @torch.no_grad()
    def gaussians(self, x: Tensor) -> Gaussians:
        """What it says of the numbers to predict for a batch of raw inputs: mean, variance, quantiles."""
        if not isinstance(self.likelihood, Gaussian):
            raise PolyarchError(
                f"this mixture predicts {self.likelihood.predicts}, not a number; call it for probabilities of classes"
            )
        return Gaussians.of(self.members(x), self.weights, self.likelihood)

    def precisely(self, x: Tensor) -> Predictive:
        """The same in double precision: mutual information is a small difference of two entropies."""
        with torch.no_grad():
            return Predictive.from_members(self.members(x).double().log_softmax(-1), self.weights)


def predictive(ensemble: Ensemble, x: Tensor, device: torch.device) -> Predictive:
    """What a mixture of classifiers says about raw inputs [n, ...], batch by batch in double precision, on the CPU."""
    ensemble = ensemble.to(device)
    return Predictive.joined([ensemble.precisely(part.to(device)).cpu() for part in x.split(BATCH)])


def gaussians(ensemble: Ensemble, x: Tensor, device: torch.device) -> Gaussians:
    """What a mixture says about the numbers that belong to raw inputs [n, ...], batch by batch."""
    ensemble = ensemble.to(device)
    return Gaussians.joined([ensemble.gaussians(part.to(device)) for part in x.split(BATCH)])


def asked(ensemble: Ensemble, x: Tensor, device: torch.device) -> Said:
    """What a mixture says about raw inputs [n, ...], whatever its likelihood is about, batch by batch."""
    if isinstance(ensemble.likelihood, Classification):
        return predictive(ensemble, x, device)
    if isinstance(ensemble.likelihood, Gaussian):
        return gaussians(ensemble, x, device)
    ensemble = ensemble.to(device)
    with torch.no_grad():
        outputs = torch.cat([ensemble.members(part.to(device)).cpu() for part in x.split(BATCH)], 1)
    return Mixtures.of(outputs, ensemble.weights, ensemble.likelihood)


def said_by(outputs: Tensor, weights: Tensor, likelihood: Likelihood) -> Said:
    """What outputs [members, n, outputs] say under a likelihood."""
    if isinstance(likelihood, Classification):
        return Predictive.from_members(outputs.log_softmax(-1).double(), weights)
    if isinstance(likelihood, Gaussian):
        return Gaussians.of(outputs, weights, likelihood)
    return Mixtures.of(outputs, weights, likelihood)
