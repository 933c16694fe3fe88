"""Batch-norm statistics measured anew for one network, such as one cut out of a supernet."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from polyarch.errors import PolyarchError
from polyarch.settings import at_least
from polyarch.spaces.layers import BatchNorm
from polyarch.trees import called, leaves, tree_map

_Norm = BatchNorm | _BatchNorm


@torch.no_grad()
def recalibrate(network: nn.Module, batches: Iterable[Any]) -> None:
    """Sets the running statistics of every batch norm, torch's and the library's, to their average over `batches`.

    The averages are of batch means and of batch variances (unbiased, as torch keeps them); every batch counts the same,
    so give batches of equal size. Batch norms alone are in training mode meanwhile: dropout does not act. Weights and
    modes are afterwards as they were. A batch norm that no batch reaches (one of an auxiliary head that evaluation
    leaves out) keeps its statistics, and a network without running statistics is not run at all.

    Args:
        network: anything that takes a batch.
        batches: inputs, each [examples, ...] on the network's device.
    """
    norms: list[_Norm] = [m for m in network.modules() if isinstance(m, _Norm) and _keeps_statistics(m)]
    if not norms:
        return
    remaining = iter(batches)
    first = next(remaining, None)
    if first is None:
        raise PolyarchError("no batch to recalibrate batch norm on; give one or more, each of at least two examples")
    before = [{name: value.clone() for name, value in norm.named_buffers()} for norm in norms]
    with _averaging(network, norms) as passes:
        for batch in chain([first], remaining):
            called(network, batch)
    for norm, statistics in zip(norms, before, strict=True):
        if not passes[norm]:
            for name, value in statistics.items():
                norm.get_buffer(name).copy_(value)


def statistics_of(network: nn.Module) -> dict[str, Tensor]:
    """Copies of the running statistics that `recalibrate` sets, by their names in the network's state."""
    return {
        f"{path}.{name}" if path else name: value.detach().clone()
        for path, norm in network.named_modules()
        if isinstance(norm, _Norm) and _keeps_statistics(norm)
        for name, value in norm.named_buffers()
    }


def _keeps_statistics(norm: _Norm) -> bool:
    return isinstance(norm, BatchNorm) or norm.track_running_stats


@contextmanager
def _averaging(network: nn.Module, norms: Sequence[_Norm]) -> Iterator[Counter[nn.Module]]:
    """Everything in evaluation mode but batch norms, which average over all batches they see; gives how many that is.

    The k-th batch has the share 1 / k: what came before is so the mean of k - 1.
    """
    passes: Counter[nn.Module] = Counter()

    def share(norm: nn.Module, _: object) -> None:
        passes[norm] += 1
        assert isinstance(norm, _Norm)
        norm.momentum = 1 / passes[norm]

    modes = {module: module.training for module in network.modules()}
    momenta = [norm.momentum for norm in norms]
    network.eval()
    hooks = [norm.register_forward_pre_hook(share) for norm in norms]
    for norm in norms:
        norm.train()
        if isinstance(norm, _BatchNorm):
            norm.reset_running_stats()  # torch counts batches
    try:
        yield passes
    finally:
        for module, training in modes.items():
            module.training = training
        for norm, hook, momentum in zip(norms, hooks, momenta, strict=True):
            hook.remove()
            norm.momentum = momentum


def calibration_batches(x: Any, size: int = 512, most: int = 8, seed: int = 0) -> list[Any]:
    """Batches for `recalibrate`, in random order, since data sorted by class would bias the statistics of a batch.

    Args:
        x: [n, ...], inputs as the network takes them; where it takes several, all of them.
        size: examples per batch, at most.
        most: how many batches, at most.
        seed: of the order; which examples are taken depends on nothing else.

    Returns:
        `most` batches of `size` where there are as many examples. Fewer examples are all used, in batches whose sizes
        differ by at most one, as every batch counts the same; a batch of one, which has no variance, is left out.
    """
    at_least("size", size, 2)
    at_least("most", most, 1)
    first = next(leaves(x))
    order = torch.randperm(len(first), generator=torch.Generator().manual_seed(seed))[: most * size].to(first.device)
    parts = order.tensor_split(math.ceil(len(order) / size)) if len(order) else ()
    return [tree_map(itemgetter(part), x) for part in parts if len(part) > 1]
