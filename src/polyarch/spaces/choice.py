"""Choice points of a network: where one of several modules runs, and who selects which."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from polyarch import distributed
from polyarch.errors import PolyarchError

SparseSelection = tuple[tuple[int, float], ...]
"""Options and their weights."""


@dataclass(frozen=True)
class SelectionPerRepeat:
    """A sparse selection for every repeat, known to the host."""

    own: tuple[SparseSelection, ...]
    weights: Tensor
    """The same as dense weights [options, repeats, 1]."""
    order: Tensor
    """Repeats [repeats] of the first option, then those of the next, and so on, where every one has a single option."""
    back: Tensor
    """Where each repeat stands in that order."""

    @classmethod
    def of(cls, own: tuple[SparseSelection, ...], options: int, like: Tensor) -> SelectionPerRepeat:
        """Of the selections of all repeats at one point; weights have the type of `like`, all lies where it does."""
        rows = [[dict(selection).get(option, 0.0) for selection in own] for option in range(options)]
        order = sorted(range(len(own)), key=lambda repeat: own[repeat])
        back = sorted(range(len(own)), key=lambda position: order[position])
        weights = torch.tensor(rows, dtype=like.dtype, device=like.device).unsqueeze(-1)
        return cls(own, weights, *(torch.tensor(positions, device=like.device) for positions in (order, back)))

    @property
    def used(self) -> list[int]:
        """The options that one repeat at least has, in order."""
        return sorted({option for selection in self.own for option, _ in selection})

    @property
    def single(self) -> tuple[int, ...]:
        """The option of every repeat; nothing where one has several, none, or one by a weight other than 1."""
        plain = all(len(selection) == 1 and selection[0][1] == 1 for selection in self.own)
        return tuple(selection[0][0] for selection in self.own) if plain else ()


Selection = SparseSelection | Tensor | SelectionPerRepeat
"""What runs at a choice point. *Sparse*: the options that run and their weights, known to the host. *Dense*: weights
[options, repeats, batch or 1], as data; every option runs. *Per repeat*: every repeat has its own sparse one; an option
that none has does not run."""

FIRST: SparseSelection = ((0, 1.0),)


class ChoicePoint(nn.Module, ABC):
    """A place that a decision is about. The supernet sets `selection` before it runs."""

    def __init__(self, name: str) -> None:
        """`name` is the decision's, or the simplex's where a space mixes others than it decides."""
        super().__init__()
        self.name = name
        self.selection: Selection = FIRST
        self.running: frozenset[int] | None = None
        """Under a dense selection, the options that run; the others must have weight 0. None is all."""

    def weighted(self, calls: Sequence[Callable[[], Tensor]]) -> list[Tensor | None]:
        """The value of each option's call times its weight; None for one that does not run."""
        parts: list[Tensor | None] = [None] * len(calls)
        if isinstance(self.selection, SelectionPerRepeat):
            for option in self.selection.used:
                parts[option] = scaled(calls[option](), self.selection.weights[option])
        elif isinstance(self.selection, Tensor):
            for option in range(len(calls)) if self.running is None else self.running:
                parts[option] = scaled(calls[option](), self.selection[option])
        else:
            for option, weight in self.selection:
                value = calls[option]()
                parts[option] = value if weight == 1 else value * weight
        return parts


def check_name(whose: str, text: object) -> None:
    """Raises for what cannot name a decision or an option, since texts of architectures are made of names."""
    if not isinstance(text, str) or not text or set(text) & set(",= \t\n"):
        raise PolyarchError(f"{whose}: {text!r} cannot be a name; use text without spaces, commas and equals signs")


class Choice(ChoicePoint):
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
            check_name(f"Choice {name!r}", text)
        for option, module in options.items():
            if not isinstance(module, nn.Module):
                raise PolyarchError(
                    f"Choice {name!r}: option {option!r} is {type(module).__name__}, not an nn.Module; wrap it in one"
                )
        self.labels = tuple(options)
        self.options = nn.ModuleList(options.values())
        # Choice points inside are told of all repeats: an option with some cannot be run for a few repeats alone.
        self._has_points = any(isinstance(module, ChoicePoint) for module in self.options.modules())

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """Runs what is picked."""
        alone = len(inputs) == 1 and isinstance(inputs[0], Tensor) and not self._has_points
        if isinstance(self.selection, SelectionPerRepeat) and self.selection.single and alone:
            return self._each(inputs[0], self.selection)
        return total(self.weighted([partial(option, *inputs, **named) for option in self.options]))

    def chosen(self, option: int) -> nn.Module:
        """What stands here in the network of an option."""
        return self.options[option]

    def _each(self, x: Tensor, selection: SelectionPerRepeat) -> Tensor:
        """Runs every option on the repeats that have it: these are brought side by side, and back afterwards."""
        counts = [selection.single.count(option) for option in selection.used]
        parts = _Moved.apply(x.unflatten(1, (len(selection.own), -1)), selection.order, selection.back).split(counts, 1)
        rows = selection.order.split(counts)
        found = [
            _of_repeats(self.options[option], own, part.flatten(1, 2)).unflatten(1, (len(own), -1))
            for option, own, part in zip(selection.used, rows, parts, strict=True)
        ]
        moved: Tensor = _Moved.apply(torch.cat(found, 1), selection.back, selection.order)
        return moved.flatten(1, 2)


class _Moved(torch.autograd.Function):
    """Another order along the second axis. Its gradient is read in order too, not added up place by place."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, order: Tensor, back: Tensor) -> Tensor:
        ctx.save_for_backward(order, back)
        return x.index_select(1, order)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        order, back = ctx.saved_tensors
        return _Moved.apply(gradient, back, order), None, None


def _of_repeats(module: nn.Module, rows: Tensor, x: Tensor) -> Tensor:
    """What some of the repeats of a module make of their own input, [batch, rows * channels, ...]."""
    own = {name: t.index_select(0, rows) for name, t in (*module.named_parameters(), *module.named_buffers())}
    found: Tensor = functional_call(module, own, (x,))
    if any(part.training for part in module.modules()):  # batch norm alone, where it is measured anew
        for name, buffer in module.named_buffers():
            buffer.index_copy_(0, rows, own[name])
    return found


class DropPath(ChoicePoint):
    """A value that training leaves out now and then, example by example; otherwise it does nothing.

    It draws nothing itself: whoever trains passes weights for every name, 0 or 1 / (1 - rate), to `Supernet.outputs`.
    Points of one name are left out together.
    """

    def forward(self, x: Tensor) -> Tensor:
        """The value times its weight."""
        [part] = self.weighted([lambda: x])
        assert part is not None
        return part


class Dropout(ChoicePoint):
    """A value of which training sets elements to 0 at random and scales up the others; otherwise it does nothing.

    Whoever trains passes, for the point's name, the rate and a seed below 2^31 per repeat, [repeats, 2], to
    `Supernet.outputs`. Which elements go follows from the seed by arithmetic: a step that is captured, ranks and
    batched repeats all leave out the same.
    """

    def __init__(self, name: str, salt: int) -> None:
        """`salt` is the point's own number: with one seed, every point leaves out other elements."""
        super().__init__(name)
        self.salt = salt

    def forward(self, x: Tensor) -> Tensor:
        """[batch, repeats * channels, ...], with holes."""
        if not isinstance(self.selection, Tensor):
            return x
        rate, seed = self.selection[0].unbind(-1)
        parts = x.unflatten(1, (len(rate), -1))
        along = (1, -1, *[1] * (parts.dim() - 2))
        first = distributed.rank() * parts[:, 0].numel()
        number = first + torch.arange(parts[:, 0].numel(), device=x.device).view_as(parts[:, 0]).unsqueeze(1)
        kept = uniform(number ^ scrambled(seed.long() + self.salt * 0x9E3779B1).view(along)) >= rate.view(along)
        return (parts * (kept / (1 - rate).view(along)).to(x.dtype)).flatten(1, 2)


def scrambled(numbers: Tensor) -> Tensor:
    """Integers of 32 bits in no order that shows, one for each of as many (two rounds of multiply, xor and shift)."""
    numbers = numbers & 0xFFFFFFFF
    for factor in (0x7FEB352D, 0x846CA68B):
        numbers = ((numbers ^ (numbers >> 16)) * factor) & 0xFFFFFFFF
    return numbers ^ (numbers >> 16)


def uniform(numbers: Tensor) -> Tensor:
    """A number from 0 to below 1 for every integer."""
    return scrambled(numbers).double() / 2**32


def scaled(value: Tensor, weight: Tensor) -> Tensor:
    """[batch, repeats * channels, ...] times [repeats, batch or 1]."""
    repeats = len(weight)
    if repeats == 1:
        return value * weight.view(-1, *[1] * (value.dim() - 1))
    parts = value.unflatten(1, (repeats, -1))
    return (parts * weight.T.reshape(-1, repeats, *[1] * (parts.dim() - 2))).flatten(1, 2)


def total(parts: Sequence[Tensor | None]) -> Tensor | None:
    """The sum of the parts that are there."""
    found: Tensor | None = None
    for part in parts:
        if part is not None:
            found = part if found is None else found + part
    return found


class Mixed(nn.Module):
    """Several modules on the same input, added by weight: what a point becomes where two decisions meet in it."""

    def __init__(self, parts: Sequence[nn.Module], weights: Sequence[float]) -> None:
        """Takes the modules over."""
        super().__init__()
        self.parts = nn.ModuleList(parts)
        self.weights = tuple(weights)

    def forward(self, x: Tensor) -> Tensor:
        """Sum of weight times part."""
        return sum(weight * part(x) for weight, part in zip(self.weights, self.parts, strict=True))


ChoicePoints = dict[str, ChoicePoint]
"""Every choice point of a network, by its path."""


def choice_points(network: nn.Module) -> ChoicePoints:
    """The choice points of a network, in the order of its modules."""
    modules = network.named_modules(remove_duplicate=False)
    return {path: module for path, module in modules if isinstance(module, ChoicePoint)}


def owners(name: str, points: ChoicePoints) -> list[tuple[str, int]]:
    """Every option that a parameter, buffer or module lies in, by its path: the point's name and the option.

    The outermost comes first; a path leads through POINT.options.K.
    """
    parts, found = name.split("."), []
    for k, part in enumerate(parts[:-1]):
        path = ".".join(parts[:k])
        if part == "options" and path in points:
            found.append((points[path].name, int(parts[k + 1])))
    return found


@contextmanager
def selecting(points: ChoicePoints, selections: Mapping[str, Selection]) -> Iterator[None]:
    """Sets every point to its name's selection, for one pass; a value is left out only where that is asked for."""
    for point in points.values():
        optional = isinstance(point, DropPath | Dropout)
        point.selection = selections.get(point.name, FIRST) if optional else selections[point.name]
    try:
        yield
    finally:
        for point in points.values():
            point.selection = FIRST


def keep_running(points: ChoicePoints, options: Mapping[str, Collection[int]]) -> None:
    """Lets only these options run at the points of each name; a point of another name is left as it is."""
    for point in points.values():
        if point.name in options:
            point.running = frozenset(options[point.name])
