"""How much the means that batch norm subtracts differ from batch to batch (Deng et al. 2020, section 3).

Of one channel, with h_i what batch norm is given for example i of B (of an image, its mean over pixels):

    mu = (1/B) sum_i h_i,    var(mu) = (1/B^2) (sum_i var(h_i) + sum_{i != j} cov(h_i, h_j))

Everything is over draws of the batch and of the architectures, at fixed weights. One architecture for the whole batch
shifts all of it, which is the second sum; with an architecture for every example little is left of that. Evaluation
subtracts a constant instead of mu, so that var(mu) is how far training and evaluation are apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Literal, final

import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from polyarch.diagnostics.running import Norm, batch_norms, check_single, normalising
from polyarch.distributions.base import Distribution
from polyarch.errors import PolyarchError
from polyarch.settings import at_least
from polyarch.spaces.base import Supernet
from polyarch.spaces.layers import BatchNorm
from polyarch.spaces.views import Dense, PerExample, View
from polyarch.streams import Streams

Per = Literal["batch", "instance"]


@final
@dataclass(frozen=True)
class Spread:
    """Variances divided by that of the features, averaged over channels; one that never varies counts as 0."""

    total: float
    """var(mu)."""
    own: float
    """Of it (1/B^2) sum_i var(h_i): what is left of single examples."""
    shared: float
    """The rest, (1/B^2) sum_{i != j} cov(h_i, h_j): what moves a whole batch."""
    architectures: float
    """Of var(mu), what is due to architectures alone: the mean of its variance on one batch of examples."""


@final
@dataclass(frozen=True)
class BatchMeans:
    """The spread of batch means in every batch norm of a supernet."""

    overall: Spread
    """Averaged over layers."""
    names: list[str]
    """Paths of the batch norms, in the order in which they run."""
    layers: list[Spread]


@final
@dataclass(frozen=True, eq=False)
class Variances:
    """Variances of a layer's channels, [channels] each; see `Spread`."""

    feature: Tensor
    """Of the features: over draws, examples and pixels."""
    total: Tensor
    own: Tensor
    shared: Tensor
    architectures: Tensor

    def spread(self) -> Spread:
        """Shares of the features' variance."""

        def share(part: Tensor) -> float:
            return torch.where(self.feature > 0, part / self.feature, 0.0).mean().item()

        return Spread(share(self.total), share(self.own), share(self.shared), share(self.architectures))


def moments_of_pass(features: Tensor) -> Tensor:
    """What is kept of one pass: mu, the variance of all features about it, and that of the examples' means.

    Args:
        features: [batch, channels, pixels].

    Returns:
        [3, channels], in double precision. Variances are divided by how many there are, as batch norm's is (Eq. 2).
    """
    variance, mean = torch.var_mean(features, (0, 2), correction=0)
    return torch.stack([mean, variance, features.mean(2).var(0, correction=0)]).double()


@final
class Moments:
    """Running sums of what one batch norm is given; no features are kept.

    Every batch of examples is passed K times, under architectures drawn anew. With M the mean of mu over the passes of
    a batch, W its variance over them (divided by K - 1), and averages over batches in brackets,

        var(mu) = var(M) + (1 - 1/K) <W>,    architectures = <W>,    var(feature) = <sigma^2> + var(mu),
        own = (<variance of the examples' means> + var(mu)) / B,    shared = var(mu) - own.

    All are unbiased where batches are drawn independently.
    """

    def __init__(self, batch_size: int, draws: int) -> None:
        """Takes B and K."""
        self.batch_size, self.draws, self.batches = batch_size, draws, 0
        self._average = torch.zeros((), dtype=torch.float64)
        self._squares = torch.zeros((), dtype=torch.float64)

    def add(self, passes: Tensor) -> None:
        """Takes `moments_of_pass` of the passes of one batch of examples, [K, 3, channels]."""
        means, variances, examples = passes.unbind(1)
        found = torch.stack([means.mean(0), means.var(0), variances.mean(0), examples.mean(0)])
        # Welford's: deviations are squared from the average so far, so that a large mean costs no digits.
        self.batches += 1
        before = found - self._average
        self._average = self._average + before / self.batches
        self._squares = self._squares + (before * (found - self._average))[0]

    def variances(self) -> Variances:
        """The estimates, of two batches or more."""
        _, architectures, variance, examples = self._average
        total = self._squares / (self.batches - 1) + (1 - 1 / self.draws) * architectures
        own = (examples + total) / self.batch_size
        return Variances(variance + total, total, own, total - own, architectures)


@torch.no_grad()
def spread_of_means(
    supernet: Supernet,
    x: Tensor,
    belief: Distribution,
    *,
    per: Per,
    batch_size: int = 128,
    batches: int = 50,
    draws: int = 2,
    seed: int = 0,
) -> BatchMeans:
    """Var(mu) / var(feature) in every batch norm, as training sees it; see `Moments` for the estimates.

    Batch norms alone are in training mode. Batches are drawn without replacement, as in training; the same seed draws
    the same ones for both values of `per`. Every option of a choice runs, also where its weight is 0. A batch norm that
    is not run as a module of its own (that of depth's output block) is left out.

    Args:
        supernet: of one repeat; nothing of it is different afterwards.
        x: [n, ...], standardised inputs on its device.
        belief: what architectures are drawn from, such as `Run.distribution`.
        per: one architecture for every batch (NSA), or one for every example (NSA-i).
        batch_size: B, at least 2.
        batches: of examples, at least 2.
        draws: K, passes of each with architectures drawn anew, at least 2.
        seed: of batches and architectures.
    """
    check_single(supernet)
    for name, value in (("batch_size", batch_size), ("batches", batches), ("draws", draws)):
        at_least(name, value, 2)
    if batch_size > len(x):
        raise PolyarchError(f"batches of {batch_size} out of {len(x)} examples; set a batch_size of {len(x)} or less")
    if per == "instance" and PerExample not in supernet.views:
        raise PolyarchError(f"networks of the space {supernet.space.name!r} run no batch of several; take per='batch'")
    streams, norms = Streams(seed), batch_norms(supernet)
    layers: list[tuple[str, Moments]] = []
    with normalising(supernet, "batch"):
        for _ in range(batches):
            chosen = torch.randperm(len(x), generator=streams["data"])[:batch_size].to(x.device)
            views = [_drawn(belief, per, batch_size, x.device, streams) for _ in range(draws)]
            passes = [_heard(supernet, norms, x[chosen], view) for view in views]
            layers = layers or [(name, Moments(batch_size, draws)) for name, _ in passes[0]]
            for (_, layer), same in zip(layers, zip(*passes, strict=True), strict=True):
                layer.add(torch.stack([moments for _, moments in same]))
    spreads = [layer.variances().spread() for _, layer in layers]
    return BatchMeans(_average(spreads), [name for name, _ in layers], spreads)


def _drawn(belief: Distribution, per: Per, batch_size: int, device: torch.device, streams: Streams) -> View:
    """Choices as data: where the host knew them, options that are not chosen would not run."""
    if per == "batch":
        return Dense(belief.sample(1, streams["architecture"]).to(device))
    return PerExample(belief.sample(batch_size, streams["architecture"]).to(device).unsqueeze(0))


def _heard(supernet: Supernet, norms: Mapping[str, Norm], batch: Tensor, view: View) -> list[tuple[str, Tensor]]:
    """Paths and `moments_of_pass` of all batch norms that a pass runs, in their order; one may run several times."""
    heard: list[tuple[str, Tensor]] = []

    def listen(name: str, norm: Norm) -> RemovableHandle:
        return norm.register_forward_pre_hook(
            lambda _, inputs: heard.append((name, moments_of_pass(_by_example(norm, inputs[0]))))
        )

    hooks = [listen(name, norm) for name, norm in norms.items()]
    try:
        supernet(batch.unsqueeze(0), view)
    finally:
        for hook in hooks:
            hook.remove()
    return heard


def _by_example(norm: Norm, x: Tensor) -> Tensor:
    """What a batch norm of one repeat is given, as [batch, channels, pixels]."""
    if isinstance(norm, BatchNorm) and x.dim() == 3:  # vectors travel features-first
        return x.permute(2, 1, 0)
    return x.flatten(2) if x.dim() > 2 else x.unsqueeze(2)


def _average(spreads: Sequence[Spread]) -> Spread:
    parts = {field.name: [getattr(spread, field.name) for spread in spreads] for field in fields(Spread)}
    return Spread(**{name: sum(values) / len(values) for name, values in parts.items()})
