"""The one place where a batch is reduced, so that many ranks compute what one would.

Convention: every rank holds the same weights and belief and a slice of the global batch. `mean` returns the global
mean, with the gradient of the local one; `average` then averages gradients over ranks. A term that is equal on all
ranks (a KL, say) comes through unchanged, and a mean over examples gets its exact global gradient.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor

from polyarch.errors import PolyarchError


class Lost(PolyarchError):
    """Another of the processes that work together has ended."""


def size() -> int:
    """How many ranks work together; 1 without torch.distributed."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """This process's number among them; 0 writes the files."""
    return dist.get_rank() if size() > 1 else 0


def barrier() -> None:
    """Waits until every rank is here."""
    if size() > 1:
        with _in_touch():
            dist.barrier()


def from_first_rank(decision: bool, device: torch.device) -> bool:
    """What rank 0 decided, on every rank; waits for it. `device` is where the ranks compute."""
    if size() == 1:
        return decision
    said = torch.tensor([decision], dtype=torch.int32, device=device)
    with _in_touch():
        dist.broadcast(said, 0)
    return bool(said.item())


def mean(values: Tensor) -> Tensor:
    """Mean over the last axis and all ranks; see the module's convention for its gradient."""
    local = values.mean(-1)
    if size() == 1:
        return local
    total = _summed(local.detach().clone())
    return local + (total / size() - local).detach()


def gathered(value: Tensor) -> Tensor:
    """What every rank has, [ranks, ...]; gradients of all ranks reach it, as statistics of a batch need."""
    if size() == 1:
        return value.unsqueeze(0)
    return _Gathered.apply(value)


def average(gradients: Sequence[Tensor]) -> None:
    """Averages gradients over ranks, in place and in one message."""
    if size() == 1:
        return
    flat = _summed(torch.cat([g.reshape(-1) for g in gradients]))
    flat /= size()
    for gradient, part in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
        gradient.copy_(part.view_as(gradient))


def share(batch: Tensor, axis: int) -> Tensor:
    """This rank's slice of a global batch; the axis must divide by the number of ranks."""
    return batch.chunk(size(), axis)[rank()] if size() > 1 else batch


class _Gathered(torch.autograd.Function):
    @staticmethod
    def forward(value: Tensor) -> Tensor:
        places = value.new_zeros(size(), *value.shape)
        places[rank()] = value
        return _summed(places)

    @staticmethod
    def setup_context(ctx: object, inputs: tuple[Tensor], output: Tensor) -> None:
        """Nothing to keep."""

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> Tensor:
        return _summed(gradient.contiguous().clone())[rank()]


def _summed(values: Tensor) -> Tensor:
    """Sums over ranks, in place."""
    with _in_touch():
        dist.all_reduce(values)
    return values


@contextmanager
def _in_touch() -> Iterator[None]:
    """Says in words that another rank has ended; what torch says of it differs from backend to backend."""
    try:
        yield
    except RuntimeError as error:
        raise Lost("another process of this command has ended, or no longer answers") from error
