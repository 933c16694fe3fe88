"""How a supernet is run to be looked at: weights, statistics and modes are afterwards what they were, to the bit."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from polyarch.errors import PolyarchError
from polyarch.spaces.base import Supernet
from polyarch.spaces.layers import BatchNorm, Statistics
from polyarch.spaces.views import Sparse
from polyarch.training.snapshots import Snapshot
from polyarch.uncertainty.calibration import accuracy, log_likelihood

Norm = BatchNorm | _BatchNorm


@final
@dataclass(frozen=True)
class Evaluation:
    """What architectures are worth, each by itself."""

    accuracy: list[float]
    log_likelihood: list[float]
    """Mean log-probability of the true class, in nats."""


def check_single(supernet: Supernet) -> None:
    """Raises for a supernet of several repeats."""
    if supernet.repeats != 1:
        raise PolyarchError(f"this supernet holds {supernet.repeats} repeats; give that of one, as Run.supernet does")


def views_of(supernet: Supernet, choices: Tensor) -> list[Sparse]:
    """A view for each of choices [n, decisions] with n > 0."""
    decisions = len(supernet.space.decisions)
    if choices.dim() != 2 or choices.shape[1] != decisions or len(choices) == 0:
        raise PolyarchError(
            f"choices must be [n, {decisions}] with n > 0, one number per decision of the space "
            f"{supernet.space.name!r}, got {list(choices.shape)}"
        )
    return [Sparse(tuple(row)) for row in choices.tolist()]


def batch_norms(network: nn.Module) -> dict[str, Norm]:
    """Every batch norm that keeps running statistics, by its path; raises where there is none."""
    found = {
        path: module
        for path, module in network.named_modules()
        if isinstance(module, BatchNorm) or (isinstance(module, _BatchNorm) and module.track_running_stats)
    }
    if not found:
        raise PolyarchError("no batch norm with running statistics in this network; there is nothing to compare")
    return found


@contextmanager
def evaluation_mode(network: nn.Module) -> Iterator[None]:
    """Everything in evaluation mode; afterwards each module in its own again."""
    modes = {module: module.training for module in network.modules()}
    network.eval()
    try:
        yield
    finally:
        for module, training in modes.items():
            module.training = training


@contextmanager
def normalising(network: nn.Module, by: Statistics) -> Iterator[None]:
    """Batch norms use the statistics of the batch, or their running ones, whatever their own rule is.

    All else is in evaluation mode: dropout does not act, auxiliary classifiers do not run.
    """
    norms = batch_norms(network).values()
    rules = {norm: norm.statistics for norm in norms if isinstance(norm, BatchNorm)}
    kept = Snapshot(network.buffers())
    with evaluation_mode(network):
        for norm in norms:
            norm.train(by == "batch")
        for norm in rules:
            norm.statistics = "running"  # in evaluation mode; training mode goes by the batch in any case
        try:
            yield
        finally:
            kept.restore()
            for norm, rule in rules.items():
                norm.statistics = rule


def shuffled(x: Tensor, y: Tensor, size: int, seed: int) -> tuple[list[Tensor], Tensor]:
    """All examples in random order, since data sorted by class would bias the statistics of a batch.

    Args:
        x: [n, ...].
        y: [n].
        size: examples per batch, at most.
        seed: of the order.

    Returns:
        Batches whose sizes differ by at most one, and all targets in their order.
    """
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    parts = order.to(x.device).tensor_split(math.ceil(len(order) / size))
    return [x[part] for part in parts], y[order.to(y.device)]


@torch.no_grad()
def log_probs(supernet: Supernet, view: Sparse, batches: Sequence[Tensor]) -> Tensor:
    """Log-probabilities [n, classes] of all examples, in double precision on the CPU.

    Args:
        supernet: of one repeat, in the mode that is wanted.
        view: the architecture.
        batches: standardised inputs, [examples, ...] each.
    """
    outputs = [supernet(batch.unsqueeze(0), view).squeeze(0) for batch in batches]
    return torch.cat(outputs).cpu().double().log_softmax(-1)


def evaluate(supernet: Supernet, views: Sequence[Sparse], batches: Sequence[Tensor], y: Tensor) -> Evaluation:
    """What architectures are worth on examples, with the supernet in the mode that is wanted."""
    said = Evaluation([], [])
    for view in views:
        answer = log_probs(supernet, view, batches)
        said.accuracy.append(accuracy(answer, y))
        said.log_likelihood.append(log_likelihood(answer, y))
    return said
