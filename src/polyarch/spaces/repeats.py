"""How the repeats of a search run through one network: all in one pass, or one after another.

This is the one place that knows, beside `branches.py` for networks that run fused on a CUDA device. A supernet has one
of these, and says by `how` which; everybody else sees tensors with a leading axis of repeats.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any, ClassVar, Literal, final

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm
from typing_extensions import override

from polyarch import distributed
from polyarch.spaces.choice import ChoicePoints, Selection, SelectionPerRepeat, choice_points, selecting
from polyarch.spaces.layers import ResetsParameters, normalise_across_ranks
from polyarch.trees import called, tree_map

How = Literal["batched", "in turn"]


class Repeats(ABC):
    """A network with choice points, and how its repeats run."""

    how: ClassVar[How]
    network: nn.Module
    """Its parameters and buffers have a leading axis of repeats."""
    points: ChoicePoints

    @abstractmethod
    def run(
        self, x: Any, selections: Mapping[str, Selection], training: bool, mixed: bool = False
    ) -> tuple[Tensor, ...]:
        """What the network gives for [repeats, batch, ...], under selections: tensors [repeats, batch, outputs].

        `x` is a tensor, or, where a network takes several inputs, a tuple or mapping of them. `mixed` says that
        selections are of a mixture, in which every option has some weight.
        """

    @abstractmethod
    def reset_parameters(self, generators: Sequence[torch.Generator]) -> None:
        """Draws first weights, one generator per repeat."""

    def draw_from(self, generators: Sequence[torch.Generator]) -> None:
        """Says where modules that draw by themselves while training draw from, one generator per repeat."""


@final
class Batched(Repeats):
    """All at once: repeats are folded into channels. For networks that are built with `BatchedLayers`."""

    how: ClassVar[How] = "batched"

    def __init__(self, network: nn.Module, repeats: int) -> None:
        """Takes the network over."""
        self.network, self._repeats = network, repeats
        self.points = choice_points(network)

    @override
    def run(
        self, x: Any, selections: Mapping[str, Selection], training: bool, mixed: bool = False
    ) -> tuple[Tensor, ...]:
        folded = tree_map(lambda part: part.transpose(0, 1).flatten(1, 2), x)
        folded = tree_map(laid_out, folded) if mixed else folded
        with selecting(self.points, selections):
            found = called(self.network, folded)
        return tuple(y.unflatten(1, (self._repeats, -1)).transpose(0, 1) for y in _several(found))

    @override
    def reset_parameters(self, generators: Sequence[torch.Generator]) -> None:
        for module in self.network.modules():
            if isinstance(module, ResetsParameters):
                module.reset_parameters(generators)


@final
class InTurn(Repeats):
    """One after another: any module, with its weights stacked over repeats."""

    how: ClassVar[How] = "in turn"

    def __init__(self, make: Callable[[], nn.Module], repeats: int) -> None:
        """Makes room for the weights.

        Args:
            make: makes the module, its first weights drawn from torch's own chance.
            repeats: how many.
        """
        self._make, self._repeats = make, repeats
        self._generators: Sequence[torch.Generator] | None = None
        # Made where there is memory, also for the meta device: what the user writes may read values back.
        with torch.random.fork_rng(devices=[]), torch.device("cpu"):
            self.network = make()
        _stack(self.network, repeats, torch.get_default_device())
        _normalise_over_ranks(self.network)
        self.points = choice_points(self.network)

    @override
    def run(
        self, x: Any, selections: Mapping[str, Selection], training: bool, mixed: bool = False
    ) -> tuple[Tensor, ...]:
        tensors = _tensors(self.network)
        found = []
        for repeat in range(self._repeats):
            own = {name: _own(selection, repeat) for name, selection in selections.items()}
            chance = _chance(self._generators[repeat]) if self._generators and training else nullcontext()
            inputs = tree_map(lambda part, repeat=repeat: part[repeat], x)
            with selecting(self.points, own), chance:
                weights = {name: value[repeat] for name, value in tensors.items()}
                found.append(_several(called(partial(_with_weights, self.network, weights), inputs)))
        return tuple(torch.stack(parts) for parts in zip(*found, strict=True))

    @override
    def reset_parameters(self, generators: Sequence[torch.Generator]) -> None:
        """Makes the module anew for each repeat, with the repeat's generator in the place of torch's own chance."""
        own = _tensors(self.network)
        for repeat, generator in enumerate(generators):
            with _chance(generator), torch.device("cpu"):
                fresh = _tensors(self._make())
            with torch.no_grad():
                for name, value in fresh.items():
                    own[name][repeat].copy_(value)

    @override
    def draw_from(self, generators: Sequence[torch.Generator]) -> None:
        """On a CUDA device, dropout draws from that device's own chance instead."""
        self._generators = generators


def laid_out(x: Tensor) -> Tensor:
    """Images on a CPU with channels last in memory: its convolutions, and what follows them, are quicker so.

    But batch norm of what is constant, such as nothing and a bias, is not exactly 0 then, and one batch norm after
    another makes much of that; in mixtures nothing is constant.
    """
    is_image = x.dim() == 4 and x.device.type == "cpu"
    return x.contiguous(memory_format=torch.channels_last) if is_image else x


def _with_weights(network: nn.Module, weights: dict[str, Tensor], *inputs: Any, **named: Any) -> Any:
    return functional_call(network, weights, inputs, named, tie_weights=False)


@contextmanager
def _chance(generator: torch.Generator) -> Iterator[None]:
    """Puts a generator in the place of torch's own chance, for modules that take none."""
    with torch.random.fork_rng(devices=[]):
        torch.set_rng_state(generator.get_state())
        yield
        generator.set_state(torch.get_rng_state())


def _tensors(network: nn.Module) -> dict[str, Tensor]:
    """Every parameter and buffer by its path; a module in two places has one path, tied weights have two.

    So `functional_call` sets every one once: what it sets twice it does not put back.
    """
    return {
        f"{path}.{name}" if path else name: value
        for path, module in network.named_modules()
        for named in (module.named_parameters, module.named_buffers)
        for name, value in named(recurse=False, remove_duplicate=False)
    }


def _stack(network: nn.Module, repeats: int, device: torch.device) -> None:
    """Gives every parameter and buffer an axis of repeats, on a device; what is tied stays tied.

    Parameters that are not trained become buffers, and all buffers are kept with the weights.
    """
    stacks: dict[Tensor, Tensor] = {}
    for path, value in _tensors(network).items():
        parent, _, name = path.rpartition(".")
        module = network.get_submodule(parent)
        if value not in stacks:
            stack = torch.stack([value.detach().to(device)] * repeats)
            stacks[value] = nn.Parameter(stack) if value.requires_grad else stack
        if value.requires_grad:
            setattr(module, name, stacks[value])
        else:
            delattr(module, name)
            module.register_buffer(name, stacks[value])


def _normalise_over_ranks(network: nn.Module) -> None:
    """On many ranks, has every batch norm of torch.nn use the global batch, as the library's own does."""
    if distributed.size() == 1:
        return
    for norm in network.modules():
        if isinstance(norm, _BatchNorm):
            norm.forward = partial(_normalised, norm)  # type: ignore[method-assign]


def _normalised(norm: _BatchNorm, x: Tensor) -> Tensor:
    """`norm.forward`, in training by the statistics of the global batch."""
    if not norm.training:
        return type(norm).forward(norm, x)
    momentum = norm.momentum
    if norm.num_batches_tracked is not None:
        norm.num_batches_tracked.add_(1)
        momentum = 1 / float(norm.num_batches_tracked) if momentum is None else momentum
    kept = (norm.running_mean, norm.running_var)
    return normalise_across_ranks(x, *kept, norm.weight, norm.bias, momentum or 0.0, norm.eps)


def _own(selection: Selection, repeat: int) -> Selection:
    """One repeat's part of a selection."""
    if isinstance(selection, SelectionPerRepeat):
        return selection.own[repeat]
    return selection[:, repeat : repeat + 1] if isinstance(selection, Tensor) else selection


def _several(output: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return output if isinstance(output, tuple) else (output,)
