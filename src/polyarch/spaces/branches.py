"""Networks that run in a form of their own, fused for speed: each repeat by itself, on a CUDA device all side by side.

A `Merged` form gives what the network gives, with the same weights and statistics, but for rounding. Repeats are
branches: on a CUDA device each has a stream of its own, so that a step that is captured is a graph of parallel
branches, which fill the device better than one network with channels in groups.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.func import functional_call

from polyarch.spaces.choice import Selection


class Merged(ABC):
    """Another form of a network with choice points."""

    network: nn.Module
    """Whose parameters and buffers it uses, with a leading axis of repeats."""
    repeats: int

    @abstractmethod
    def prepare(self, selections: Mapping[str, Selection], chosen: bool, like: Tensor) -> Any:
        """What all repeats need: weights as the form has them, with the type of `like`, and those of the mixture.

        `chosen` says that these are of one architecture, so that what they leave out need not run.
        """

    @abstractmethod
    def run(self, prepared: Any, x: Tensor, repeat: int) -> Tensor:
        """One repeat's outputs [batch, outputs] for its inputs."""

    def __call__(self, x: Tensor, selections: Mapping[str, Selection], chosen: bool) -> Tensor:
        """Outputs [repeats, batch, outputs] for [repeats, batch, ...] under dense selections; see `prepare`."""
        dtype = torch.get_autocast_dtype("cuda") if x.is_cuda and torch.is_autocast_enabled("cuda") else x.dtype
        x = x.to(dtype)
        prepared = self.prepare(selections, chosen, x)
        if self.repeats == 1 or not x.is_cuda:
            return torch.stack([self.run(prepared, x[repeat], repeat) for repeat in range(self.repeats)])
        here, found = torch.cuda.current_stream(), []
        for repeat, side in enumerate(_streams(x.device, self.repeats)):
            side.wait_stream(here)
            with torch.cuda.stream(side), _kept_for(side):
                found.append(self.run(prepared, x[repeat], repeat))
        for side in _streams(x.device, self.repeats):
            here.wait_stream(side)
        return torch.stack(found)


def _kept_for(side: torch.cuda.Stream) -> saved_tensors_hooks:
    """What a branch reads again on its way back keeps its memory until it has.

    Weights that `prepare` made belong to the stream that it ran on. Once the last branch has begun its way back nobody
    holds them any more, and the next gradient that is put together on that stream would be written over them, while
    branches still read.
    """

    def keep(saved: Tensor) -> Tensor:
        if saved.is_cuda:
            saved.record_stream(side)
        return saved.detach()  # a node that kept its own output by a hook would keep itself, and all before it

    return saved_tensors_hooks(keep, lambda kept: kept)


_SIDES: dict[torch.device, list[torch.cuda.Stream]] = {}


def _streams(device: torch.device, count: int) -> list[torch.cuda.Stream]:
    """As many streams of a device, always the same."""
    sides = _SIDES.setdefault(device, [])
    sides += [torch.cuda.Stream(device) for _ in range(count - len(sides))]
    return sides[:count]


def repeat_of(module: nn.Module) -> Callable[[Tensor, int], Tensor]:
    """A part of the network that runs as it is, for one repeat at a time: (its input, the repeat) -> its output."""
    named = dict(module.named_parameters())
    buffers = dict(module.named_buffers())
    repeats = len(next(iter(named.values())))
    # `split` at once for all repeats: its gradient is put together once, not padded with zeros for each.
    parts = {name: value.split(1) if repeats > 1 else (value,) for name, value in (named | buffers).items()}

    def run(x: Tensor, repeat: int) -> Tensor:
        found: Tensor = functional_call(module, {name: own[repeat] for name, own in parts.items()}, (x,))
        return found

    return run
