"""Open places inside a network: where one of several modules runs, and who decides which."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from torch import Tensor, nn

from polyarch.errors import PolyarchError

Pick = tuple[tuple[int, float], ...] | Tensor
"""What runs at an open place. *Sparse*: the options that run and their weights, known to the host. *Dense*: weights
[options, repeats, batch or 1], as data; every option runs."""

FIRST: Pick = ((0, 1.0),)


class Open(nn.Module, ABC):
    """A place that a decision is about. The supernet sets `pick` before it runs."""

    def __init__(self, name: str) -> None:
        """`name` is the decision's, or the simplex's where a space mixes others than it decides."""
        super().__init__()
        self.name = name
        self.pick: Pick = FIRST


class Choice(Open):
    """One of several modules, anywhere inside an ordinary `nn.Module`; the same name twice is the same decision.

    All options take the same inputs, leave them as they are, and give one tensor of one shape, [batch, ...]. On its
    own, outside a search, it runs the first.

        self.activation = pa.Choice("activation", {"relu": nn.ReLU(), "tanh": nn.Tanh()})
    """

    def __init__(self, name: str, options: Mapping[str, nn.Module]) -> None:
        """Takes the modules over.

        Args:
            name: of the decision.
            options: the modules, by the names of the options.
        """
        super().__init__(name)
        if not isinstance(options, Mapping | nn.ModuleDict):
            raise PolyarchError(f"Choice {name!r}: options are {type(options).__name__}; give a dictionary of modules")
        if not options:
            raise PolyarchError(f"Choice {name!r} has no options; give a dictionary of at least one module")
        for text in (name, *options):
            if not isinstance(text, str) or not text or set(text) & set(",= \t\n"):
                raise PolyarchError(
                    f"Choice {name!r}: {text!r} cannot be a name; use text without spaces, commas and equals signs"
                )
        for option, module in options.items():
            if not isinstance(module, nn.Module):
                raise PolyarchError(
                    f"Choice {name!r}: option {option!r} is {type(module).__name__}, not an nn.Module; wrap it in one"
                )
        self.labels = tuple(options)
        self.options = nn.ModuleList(options.values())

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """Runs what is picked."""
        return combined([partial(option, *inputs, **named) for option in self.options], self.pick)


class Gate(Open):
    """Which of several values go in: a choice whose options have no weights of their own."""

    def weighted(self, calls: Sequence[Callable[[], Tensor]]) -> list[Tensor | None]:
        """The value of each call times its weight; None where it does not run."""
        return weighted(calls, self.pick)


class DropPath(Open):
    """A value that training leaves out now and then, example by example; otherwise it does nothing.

    It draws nothing itself: whoever trains passes weights a place, 0 or 1 / (1 - rate), to `Supernet.outputs`.
    Places of one name are left out together.
    """

    def forward(self, x: Tensor) -> Tensor:
        """The value times its weight."""
        [part] = weighted([lambda: x], self.pick)
        assert part is not None
        return part


def weighted(calls: Sequence[Callable[[], Tensor]], pick: Pick) -> list[Tensor | None]:
    """The options' values times their weights; None for one that does not run."""
    if isinstance(pick, Tensor):
        return [_scaled(call(), weight) for call, weight in zip(calls, pick, strict=True)]
    parts: list[Tensor | None] = [None] * len(calls)
    for option, weight in pick:
        value = calls[option]()
        parts[option] = value if weight == 1 else value * weight
    return parts


def _scaled(value: Tensor, weight: Tensor) -> Tensor:
    """[batch, repeats * channels, ...] times [repeats, batch or 1]."""
    repeats = len(weight)
    if repeats == 1:
        return value * weight.view(-1, *[1] * (value.dim() - 1))
    parts = value.unflatten(1, (repeats, -1))
    return (parts * weight.T.reshape(-1, repeats, *[1] * (parts.dim() - 2))).flatten(1, 2)


def combined(calls: Sequence[Callable[[], Tensor]], pick: Pick) -> Tensor | None:
    """The sum of what runs; None where nothing does."""
    return total(weighted(calls, pick))


def total(parts: Sequence[Tensor | None]) -> Tensor | None:
    """The sum of the parts that are there."""
    found: Tensor | None = None
    for part in parts:
        if part is not None:
            found = part if found is None else found + part
    return found


class Mixed(nn.Module):
    """Several modules on the same input, added by weight: what a place becomes where two decisions meet in it."""

    def __init__(self, parts: Sequence[nn.Module], weights: Sequence[float]) -> None:
        """Takes the modules over."""
        super().__init__()
        self.parts = nn.ModuleList(parts)
        self.weights = tuple(weights)

    def forward(self, x: Tensor) -> Tensor:
        """Sum of weight times part."""
        return sum(weight * part(x) for weight, part in zip(self.weights, self.parts, strict=True))


Places = dict[str, Open]
"""Every open place of a network, by its path."""


def places(network: nn.Module) -> Places:
    """The open places of a network, in the order of its modules."""
    return {path: module for path, module in network.named_modules(remove_duplicate=False) if isinstance(module, Open)}


@contextmanager
def picking(found: Places, picks: Mapping[str, Pick]) -> Iterator[None]:
    """Opens every place as its name's pick says, for one pass; a value is left out only where that is asked for."""
    for place in found.values():
        place.pick = picks.get(place.name, FIRST) if isinstance(place, DropPath) else picks[place.name]
    try:
        yield
    finally:
        for place in found.values():
            place.pick = FIRST
