"""Batch-norm statistics measured anew for one network, such as one cut out of a supernet."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from polyarch.errors import PolyarchError
from polyarch.settings import at_least


@torch.no_grad()
def recalibrate(network: nn.Module, batches: Iterable[Tensor]) -> None:
    """Sets the running statistics of every `torch.nn` batch norm to their average over `batches`, in place.

    The averages are of batch means and of batch variances (unbiased, as torch keeps them); every batch counts the same,
    so give batches of equal size. Batch norms alone are in training mode meanwhile: dropout does not act. Weights and
    modes are afterwards as they were. A batch norm that no batch reaches (one of an auxiliary head that evaluation
    leaves out) keeps its statistics, and a network without running statistics is not run at all.

    Args:
        network: a plain module.
        batches: inputs, each [examples, ...] on the network's device.
    """
    norms = [m for m in network.modules() if isinstance(m, _BatchNorm) and m.track_running_stats]
    if not norms:
        return
    remaining = iter(batches)
    first = next(remaining, None)
    if first is None:
        raise PolyarchError("no batch to recalibrate batch norm on; give one or more, each of at least two examples")
    before = [{name: value.clone() for name, value in norm.named_buffers()} for norm in norms]
    with _averaging(network, norms):
        for batch in chain([first], remaining):
            network(batch)
    for norm, statistics in zip(norms, before, strict=True):
        if norm.num_batches_tracked == 0:
            for name, value in statistics.items():
                norm.get_buffer(name).copy_(value)


@contextmanager
def _averaging(network: nn.Module, norms: Sequence[_BatchNorm]) -> Iterator[None]:
    """Everything in evaluation mode but batch norms, which start afresh and average over all batches they see."""
    modes = {module: module.training for module in network.modules()}
    momenta = [norm.momentum for norm in norms]
    network.eval()
    for norm in norms:
        norm.reset_running_stats()
        norm.train()
        norm.momentum = None
    try:
        yield
    finally:
        for module, training in modes.items():
            module.training = training
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum


def calibration_batches(x: Tensor, size: int = 128, most: int = 32, seed: int = 0) -> list[Tensor]:
    """Batches for `recalibrate`, in random order, since data sorted by class would bias the statistics of a batch.

    Args:
        x: [n, ...], inputs as the network takes them.
        size: examples a batch, at most.
        most: how many batches, at most.
        seed: of the order; which examples are taken depends on nothing else.

    Returns:
        `most` batches of `size` where there are as many examples. Fewer examples are all used, in batches whose sizes
        differ by at most one, as every batch counts the same; a batch of one, which has no variance, is left out.
    """
    at_least("size", size, 2)
    at_least("most", most, 1)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))[: most * size].to(x.device)
    parts = order.tensor_split(math.ceil(len(order) / size)) if len(order) else ()
    return [x[part] for part in parts if len(part) > 1]
