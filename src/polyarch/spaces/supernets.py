"""Supernets of networks with choice points (`Choice`), under one rule for every view.

A choice point is named after a simplex of the space's relaxation. A view becomes a *selection* for every simplex, and
the network is run once. `Folded` is for networks built with a layer factory, all repeats in one pass; `Looped` is for
any `nn.Module`, one repeat after another.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm
from typing_extensions import override

from polyarch import distributed
from polyarch.architecture import Architecture
from polyarch.data.task import TaskShape
from polyarch.errors import PolyarchError
from polyarch.spaces.base import Space, Supernet, relaxation_of
from polyarch.spaces.choice import (
    ChoicePoints,
    DropPath,
    Mixed,
    Selection,
    SelectionPerRepeat,
    SparseSelection,
    choice_points,
    keep_running,
    selecting,
)
from polyarch.spaces.layers import normalise_across_ranks
from polyarch.spaces.relaxation import Relaxation
from polyarch.spaces.views import Dense, PerExample, Soft, Sparse, SparsePerRepeat, View

VIEWS = frozenset({Sparse, SparsePerRepeat, Dense, PerExample, Soft})


def sparse_selections(relaxation: Relaxation, choices: Sequence[int]) -> dict[str, SparseSelection]:
    """For every simplex the options that an architecture uses, with their weights; on the host alone."""
    used: list[dict[int, float]] = [{} for _ in relaxation.simplices]
    for decision, choice in enumerate(choices):
        for simplex, option in relaxation.uses(decision, choice):
            used[simplex][option] = used[simplex].get(option, 0.0) + 1
    return {simplex.name: tuple(sorted(own.items())) for simplex, own in zip(relaxation.simplices, used, strict=True)}


def selections_of(relaxation: Relaxation, view: Dense | PerExample | Soft, like: Tensor) -> Mapping[str, Selection]:
    """What a view that is data means for every simplex; dense weights have the type of `like`."""
    if isinstance(view, Soft):
        rows = [weights.T.unsqueeze(-1) for weights in view.weights]
    elif isinstance(view, Dense):
        rows = [weights.T.unsqueeze(-1) for weights in relaxation.mix(view.choices)]
    else:
        mixed = relaxation.mix(view.choices.flatten(0, 1))
        rows = [weights.T.unflatten(1, view.choices.shape[:2]) for weights in mixed]
    return {simplex.name: row.to(like.dtype) for simplex, row in zip(relaxation.simplices, rows, strict=True)}


class KnownSelections:
    """Selections of choices that the host knows: sparse where all repeats agree, else each repeat's own.

    The last ones are kept, since a step that is being captured can make no tensors out of what the host knows.
    """

    def __init__(self) -> None:
        """Nothing is known."""
        self._key: object = None
        self._selections: dict[str, Selection] = {}

    def of(self, relaxation: Relaxation, known: tuple[tuple[int, ...], ...], like: Tensor) -> Mapping[str, Selection]:
        """For every simplex; tensors lie where `like` does and have its type."""
        key = (known, like.device, like.dtype, type(like))
        if key != self._key:
            rows = [sparse_selections(relaxation, choices) for choices in known]
            each = {simplex: tuple(row[simplex.name] for row in rows) for simplex in relaxation.simplices}
            self._selections = {
                simplex.name: own[0] if len(set(own)) == 1 else SelectionPerRepeat.of(own, len(simplex), like)
                for simplex, own in each.items()
            }
            self._key = key
        return self._selections


def chosen_module(selection: Sequence[tuple[int, float]], make: Callable[[int], nn.Module]) -> nn.Module | None:
    """What stands at a choice point in the network of one architecture; `make` makes an option's module.

    One option of weight 1 stands for itself, none is no module, and anything else is their weighted sum.
    """
    if not selection:
        return None
    if len(selection) == 1 and selection[0][1] == 1:
        return make(selection[0][0])
    return Mixed([make(option) for option, _ in selection], [weight for _, weight in selection])


def member_name(name: str, points: ChoicePoints, selections: Mapping[str, SparseSelection]) -> str | None:
    """What a supernet's tensor is called in the network of one architecture; None where that has it not.

    Follows `chosen_module`: POINT.options.K.REST is POINT.REST there, or POINT.parts.J.REST in a weighted sum.
    """
    for path in sorted(points, key=len, reverse=True):  # points inside options of others first
        point = f"{path}." if path else ""  # the whole network may be one choice point
        prefix = f"{point}options."
        if not name.startswith(prefix):
            continue
        option, _, rest = name.removeprefix(prefix).partition(".")
        selection = selections[points[path].name]
        position = [k for k, _ in selection].index(int(option)) if int(option) in dict(selection) else None
        if position is None:
            return None
        alone = len(selection) == 1 and selection[0][1] == 1
        name = f"{point}{rest}" if alone else f"{point}parts.{position}.{rest}"
    return name


def _member_state(supernet: Folded | Looped, architecture: Architecture, repeat: int) -> dict[str, Tensor]:
    selections = sparse_selections(supernet.relaxation, architecture.choices)
    state = {}
    for name, value in supernet.network.state_dict().items():
        member = member_name(name, supernet.choice_points, selections)
        if member is not None:
            state[member] = value[repeat]
    return state


class Folded(Supernet):
    """A network built with `BatchedLayers`: repeats are folded into channels and run in one pass."""

    views: frozenset[type] = VIEWS
    shares_statistics = True
    folds = True

    def __init__(self, space: Space, shape: TaskShape, repeats: int, network: nn.Module) -> None:
        """Takes the network over; `reset_parameters` draws its weights."""
        super().__init__()
        self.space, self.shape, self.repeats = space, shape, repeats
        self.relaxation = relaxation_of(space)
        self.network = network
        self.choice_points, self.known = choice_points(network), KnownSelections()
        self.drop_paths = _drop_paths(self.choice_points)

    @override
    def forward(self, x: Tensor, view: View) -> Tensor:
        return self.outputs(x, view)[0]

    @override
    def outputs(self, x: Tensor, view: View, kept: Mapping[str, Tensor] | None = None) -> tuple[Tensor, ...]:
        with selecting(self.choice_points, _selections(self, view, x, kept)):
            found = self.network(x.transpose(0, 1).flatten(1, 2))
        return tuple(y.unflatten(1, (self.repeats, -1)).transpose(0, 1) for y in _several(found))

    @override
    def keep_running(self, options: Mapping[str, Collection[int]]) -> None:
        keep_running(self.choice_points, options)

    @override
    def member_state(self, architecture: Architecture, repeat: int) -> dict[str, Tensor]:
        state = _member_state(self, architecture, repeat)
        # torch.nn counts batches, our batch norm does not need to.
        means = [name for name in state if name.endswith("running_mean")]
        return state | {f"{name.removesuffix('running_mean')}num_batches_tracked": torch.tensor(0) for name in means}


class Looped(Supernet):
    """Any module, with its weights stacked over repeats and run for one repeat after another."""

    views: frozenset[type] = VIEWS
    shares_statistics = True

    def __init__(self, space: Space, shape: TaskShape, repeats: int, make: Callable[[], nn.Module]) -> None:
        """Makes room for the weights; `reset_parameters` draws them.

        Args:
            space: whose supernet it is.
            shape: what the networks are built for.
            repeats: how many.
            make: makes the module, its first weights drawn from torch's own chance.
        """
        super().__init__()
        self.space, self.shape, self.repeats = space, shape, repeats
        self.relaxation = relaxation_of(space)
        self._make = make
        self._chance: Sequence[torch.Generator] | None = None
        # Made where there is memory, also for the meta device: what the user writes may read values back.
        with torch.random.fork_rng(devices=[]), torch.device("cpu"):
            self.network = make()
        _stack(self.network, repeats, torch.get_default_device())
        _normalise_over_ranks(self.network)
        self.register_load_state_dict_pre_hook(_name_shared)
        self.choice_points, self.known = choice_points(self.network), KnownSelections()
        self.drop_paths = _drop_paths(self.choice_points)

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
        self._chance = generators

    @override
    def forward(self, x: Tensor, view: View) -> Tensor:
        return self.outputs(x, view)[0]

    @override
    def outputs(self, x: Tensor, view: View, kept: Mapping[str, Tensor] | None = None) -> tuple[Tensor, ...]:
        selections = _selections(self, view, x, kept)
        tensors = _tensors(self.network)
        found = []
        for repeat in range(self.repeats):
            own = {name: _own(selection, repeat) for name, selection in selections.items()}
            chance = _chance(self._chance[repeat]) if self._chance and self.training else nullcontext()
            with selecting(self.choice_points, own), chance:
                weights = {name: value[repeat] for name, value in tensors.items()}
                found.append(_several(functional_call(self.network, weights, x[repeat], tie_weights=False)))
        return tuple(torch.stack(parts) for parts in zip(*found, strict=True))

    @override
    def keep_running(self, options: Mapping[str, Collection[int]]) -> None:
        keep_running(self.choice_points, options)

    @override
    def member_state(self, architecture: Architecture, repeat: int) -> dict[str, Tensor]:
        return _member_state(self, architecture, repeat)


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


def _name_shared(supernet: nn.Module, state: dict[str, Tensor], *_: object) -> None:
    """Before loading: a checkpoint names what stands in two places once, and loading asks for every name."""
    names: dict[Tensor, list[str]] = {}
    for name, value in supernet.state_dict(keep_vars=True).items():
        names.setdefault(value, []).append(name)
    for same in names.values():
        given = [name for name in same if name in state]
        state.update({name: state[given[0]] for name in same if given})


def _selections(
    supernet: Folded | Looped, view: View, x: Tensor, kept: Mapping[str, Tensor] | None
) -> dict[str, Selection]:
    found: Mapping[str, Selection]
    if isinstance(view, Sparse):
        found = sparse_selections(supernet.relaxation, view.choices)
    elif isinstance(view, SparsePerRepeat):
        found = supernet.known.of(supernet.relaxation, view.choices, x)
    elif isinstance(view, Dense | PerExample | Soft):
        found = selections_of(supernet.relaxation, view, x)
    else:
        raise PolyarchError(f"the space {supernet.space.name!r} is not nested: it does not run under All")
    return {**found, **{name: weight.unsqueeze(0) for name, weight in (kept or {}).items()}}


def _own(selection: Selection, repeat: int) -> Selection:
    """One repeat's part of a selection."""
    if isinstance(selection, SelectionPerRepeat):
        return selection.own[repeat]
    return selection[:, repeat : repeat + 1] if isinstance(selection, Tensor) else selection


def _drop_paths(points: ChoicePoints) -> tuple[str, ...]:
    return tuple(dict.fromkeys(point.name for point in points.values() if isinstance(point, DropPath)))


def _several(output: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return output if isinstance(output, tuple) else (output,)
