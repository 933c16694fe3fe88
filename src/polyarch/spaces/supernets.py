"""Supernets of networks with choice points (`Choice`), under one rule for every view.

A choice point is named after a simplex of the space's relaxation. A view becomes a *selection* for every simplex, and
the network is run for all repeats, as `spaces/repeats.py` says.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, final

import torch
from torch import Tensor, nn
from typing_extensions import override

from polyarch import distributed
from polyarch.architecture import Architecture
from polyarch.data.task import TaskShape
from polyarch.errors import PolyarchError
from polyarch.spaces.base import Space, Supernet, relaxation_of
from polyarch.spaces.branches import Merged
from polyarch.spaces.choice import (
    ChoicePoints,
    DropPath,
    Mixed,
    Selection,
    SelectionPerRepeat,
    SparseSelection,
    keep_running,
)
from polyarch.spaces.chosen_buffers import ChosenBuffers
from polyarch.spaces.relaxation import Relaxation
from polyarch.spaces.repeats import Repeats
from polyarch.spaces.views import Dense, PerExample, Soft, Sparse, SparsePerRepeat, View
from polyarch.trees import leaves


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


@final
class ChoiceSupernet(Supernet):
    """A network with choice points, whose repeats run as its `Repeats` says."""

    views: frozenset[type] = frozenset({Sparse, SparsePerRepeat, Dense, PerExample, Soft})
    shares_statistics = True

    def __init__(
        self,
        space: Space,
        shape: TaskShape,
        repeats: int,
        runner: Repeats,
        merged: Merged | None = None,
        why_plain: str = "",
    ) -> None:
        """Takes the network over; `reset_parameters` draws its weights.

        `merged` is a faster form of the network; where one would be expected and there is none, `why_plain` says why.
        """
        super().__init__()
        self.space, self.shape, self.repeats = space, shape, repeats
        self.relaxation, self.runner, self.repeats_run = relaxation_of(space), runner, runner.how
        self.network, self.known = runner.network, KnownSelections()
        self.merged, self._why_plain, self._fast = merged, why_plain, True
        self.buffers_of_options = ChosenBuffers(self.network, runner.points, self.relaxation.simplices, repeats)
        points = (point.name for point in runner.points.values() if isinstance(point, DropPath))
        self.drop_paths = tuple(dict.fromkeys(points))
        self.register_load_state_dict_pre_hook(name_shared)

    @override
    def forward(self, x: Any, view: View) -> Tensor:
        return self.outputs(x, view)[0]

    @override
    def outputs(self, x: Any, view: View, kept: Mapping[str, Tensor] | None = None) -> tuple[Tensor, ...]:
        selections = self._selections(view, next(leaves(x)))
        left_out = {name: weight.unsqueeze(0) for name, weight in (kept or {}).items()}
        one_each = self.training and isinstance(view, Dense | SparsePerRepeat)
        with self.buffers_of_options.kept(selections) if one_each else nullcontext():
            if self.merged is not None and not left_out and self._runs_merged(x, view):
                return (self.merged(x, selections, isinstance(view, Dense)),)
            return self.runner.run(x, {**selections, **left_out}, self.training, isinstance(view, Soft))

    def _runs_merged(self, x: Any, view: View) -> bool:
        return isinstance(x, Tensor) and x.is_cuda and self.fuses(type(view))

    @override
    def fuses(self, view: type[View]) -> bool:
        by_batch = self.training or getattr(self.space, "statistics", "running") == "batch"  # of one rank
        usable = self.merged is not None and self._fast and by_batch and distributed.size() == 1
        return usable and issubclass(view, Soft | Dense)

    @override
    def quickest(self, choices: Tensor, *, replayed: bool = False) -> SparsePerRepeat | Dense:
        # The faster form leaves out what is not chosen; the plain one runs all of it, which no replaying makes up for.
        dense = Dense(choices)
        return dense if replayed and self._runs_merged(choices, dense) else super().quickest(choices)

    @override
    def allow_fast(self, allowed: bool) -> str:
        self._fast = allowed
        if self.merged is not None and distributed.size() > 1:
            return "on several ranks batch norm goes by the global batch"
        return self._why_plain

    def _selections(self, view: View, like: Tensor) -> Mapping[str, Selection]:
        """What a view means for every simplex; tensors lie where `like` does and have its type."""
        if isinstance(view, Sparse):
            return sparse_selections(self.relaxation, view.choices)
        if isinstance(view, SparsePerRepeat):
            return self.known.of(self.relaxation, view.choices, like)
        if isinstance(view, Dense | PerExample | Soft):
            return selections_of(self.relaxation, view, like)
        raise PolyarchError(f"the space {self.space.name!r} is not nested: it does not run under All")

    @override
    def reset_parameters(self, generators: Sequence[torch.Generator]) -> None:
        self.runner.reset_parameters(generators)

    @override
    def draw_from(self, generators: Sequence[torch.Generator]) -> None:
        self.runner.draw_from(generators)

    @override
    def keep_running(self, options: Mapping[str, Collection[int]]) -> None:
        keep_running(self.runner.points, options)
        if self.merged is not None:  # it would run all
            self.merged, self._why_plain = None, "some options are left out of the space"

    @override
    def member_state(self, architecture: Architecture, repeat: int) -> dict[str, Tensor]:
        selections = sparse_selections(self.relaxation, architecture.choices)
        state = {}
        for name, value in self.network.state_dict().items():
            member = member_name(name, self.runner.points, selections)
            if member is not None:
                state[member] = value[repeat]
        # torch.nn counts batches, our batch norm does not need to.
        norms = [name.removesuffix("running_mean") for name in state if name.endswith("running_mean")]
        return {f"{norm}num_batches_tracked": torch.tensor(0) for norm in norms} | state


def name_shared(supernet: nn.Module, state: dict[str, Tensor], *_: object) -> None:
    """Before loading: a checkpoint names what stands in two places once, and loading asks for every name."""
    names: dict[Tensor, list[str]] = {}
    for name, value in supernet.state_dict(keep_vars=True).items():
        names.setdefault(value, []).append(name)
    for same in names.values():
        given = [name for name in same if name in state]
        state.update({name: state[given[0]] for name in same if given})
