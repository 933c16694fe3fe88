"""A space to copy: the activation after every hidden layer of a fully connected network.

`CHANGE` marks what is yours to write. Everything else every space needs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import torch
from torch import Tensor, nn
from typing_extensions import override

from polyarch.architecture import Architecture, Decision
from polyarch.data.task import TaskShape
from polyarch.errors import PolyarchError
from polyarch.settings import Positive
from polyarch.spaces.base import Space, Supernet
from polyarch.spaces.layers import Linear
from polyarch.spaces.relaxation import Relaxation, SimplexPerDecision
from polyarch.spaces.views import Dense, PerExample, Soft, Sparse, View

# CHANGE: the operations that may be chosen.
ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "tanh": nn.Tanh, "silu": nn.SiLU}


@dataclass(frozen=True, kw_only=True)
class Activations(Space):
    """Which activation follows each hidden layer."""

    name: ClassVar[str] = "activations"  # CHANGE

    # CHANGE: a field is a setting, the text under it its help; its type says what it may be (`polyarch.settings`).
    layers: Positive = 2
    """Hidden layers."""
    width: Positive = 16
    """Features of a hidden layer."""

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """CHANGE: what an architecture fixes. A run keeps these names: renaming one makes old runs unreadable."""
        return tuple(Decision(f"layer{k}", tuple(ACTIVATIONS)) for k in range(self.layers))

    @property
    def relaxation(self) -> Relaxation:
        """CHANGE: how options are mixed under `Soft`; leave it out where they cannot be."""
        return SimplexPerDecision(self.decisions)

    def check(self, shape: TaskShape) -> None:
        """CHANGE: raise here, before anything is built, what would otherwise fail in the middle of a search."""
        super().check(shape)
        if len(shape.input) != 1:
            raise PolyarchError(f"activations takes vectors, not inputs of shape {shape.input}; flatten them")

    @override
    def supernet(self, shape: TaskShape, repeats: int = 1) -> ActivationsSupernet:
        return ActivationsSupernet(self, shape, repeats)

    def build(self, architecture: Architecture, shape: TaskShape) -> nn.Module:
        """CHANGE: one network, written plainly; this is what a user is handed."""
        layers: list[nn.Module] = []
        for (inputs, outputs), choice in zip(pairwise(self.sizes(shape)), (*architecture.choices, None), strict=True):
            layers.append(nn.Linear(inputs, outputs))
            if choice is not None:
                layers.append(list(ACTIVATIONS.values())[choice]())
        return nn.Sequential(*layers)

    def sizes(self, shape: TaskShape) -> list[int]:
        """Features before, between and after the linear layers."""
        return [shape.input[0], *[self.width] * self.layers, shape.outputs]


class ActivationsSupernet(Supernet):
    """The weights that all architectures share. Every parameter and buffer has a leading axis of repeats."""

    # CHANGE: the views that `forward` takes. `Sparse` and `Dense` are a must; `All` is for nested decisions (see
    # spaces/depth.py).
    views: frozenset[type] = frozenset({Sparse, Dense, PerExample, Soft})

    def __init__(self, space: Activations, shape: TaskShape, repeats: int) -> None:
        """CHANGE: make room for the weights. Layers from spaces/layers.py draw theirs when the supernet does."""
        super().__init__()
        self.space, self.shape, self.repeats = space, shape, repeats  # every supernet has these
        self.linears = nn.ModuleList(Linear(repeats, *pair) for pair in pairwise(space.sizes(shape)))
        self.operations: list[Callable[[Tensor], Tensor]] = [make() for make in ACTIVATIONS.values()]

    def forward(self, x: Tensor, view: View) -> Tensor:
        """CHANGE: [repeats, batch, features] -> [repeats, batch, outputs]."""
        *hidden, last = self.linears
        x = x.transpose(1, 2)  # features first, as `Linear` wants them
        for decision, linear in enumerate(hidden):
            x = self._operate(linear(x), view, decision)
        answer: Tensor = last(x).transpose(1, 2)
        return answer

    def _operate(self, x: Tensor, view: View, decision: int) -> Tensor:
        """What one decision does to [repeats, width, batch]."""
        if isinstance(view, Sparse):  # the host knows the choice: only the chosen operation runs
            return self.operations[view.choices[decision]](x)
        every = torch.stack([operation(x) for operation in self.operations], 1)  # [repeats, options, width, batch]
        # Otherwise the choice is data. No `if` on its value, no `.item()`: a step could not be captured.
        options = torch.arange(len(self.operations), device=x.device)
        if isinstance(view, Soft):
            weights = view.weights[decision][:, :, None, None]
        elif isinstance(view, Dense):
            weights = (view.choices[:, decision, None] == options)[:, :, None, None]
        elif isinstance(view, PerExample):
            weights = (view.choices[:, None, :, decision] == options[:, None])[:, :, None, :]
        else:
            raise PolyarchError(f"the space {self.space.name!r} does not run under {type(view).__name__}")
        return (every * weights).sum(1)

    def member_state(self, architecture: Architecture, repeat: int) -> dict[str, Tensor]:
        """CHANGE: one architecture's weights, under the names that `build` gives them."""
        state: dict[str, Tensor] = {}
        for k, linear in enumerate(self.linears):  # in `build`, linear layer k is number 2 k
            state |= {f"{2 * k}.{name}": value[repeat] for name, value in linear.state_dict().items()}
        return state
