"""How many terms a Fourier series should have: linear regression on ordered features (SoTL thesis, section 4.1.2).

The network of degree d is a weighted sum of the features of degrees 0 to d. Degree is a nested decision: the answers
of all degrees are the running sums of one pass. The smallest space there is, for methods to be checked on.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor, nn
from typing_extensions import override

from polyarch.architecture import Architecture, Decision
from polyarch.data.task import TaskShape
from polyarch.distributions.base import Distribution
from polyarch.errors import PolyarchError
from polyarch.settings import TakesMemory, at_least
from polyarch.spaces.base import Space, Supernet
from polyarch.spaces.depth import prune
from polyarch.spaces.relaxation import Relaxation, SimplexPerDecision
from polyarch.spaces.views import All, Dense, PerExample, Soft, Sparse, View, one_hot

Columns = Literal["separate", "joint"]


@dataclass(frozen=True, kw_only=True)
class Fourier(Space):
    """Degrees 0 to `max_degree` of a Fourier series in one number x, taken as an angle in radians.

    The data `fourier` gives such angles. Other inputs come standardised, so a period is about 1.8 times as long as the
    range of evenly spread inputs.
    """

    name: ClassVar[str] = "fourier"
    nested: ClassVar[bool] = True

    max_degree: Annotated[int, TakesMemory()] = 9
    """D, the highest degree considered (the released code: 9, where it lacks the sine; thesis, Fig. 4.2: 21)."""
    columns: Columns = "separate"
    """Features of a degree j: cos jx and sin jx, each with a weight (the released code), or, `joint`, their sum (the
    thesis, Eq. 4.3). Degree 0 is a constant 1."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least("max_degree", self.max_degree, 0)

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """One: the degree."""
        return (Decision("degree", tuple(str(d) for d in range(self.max_degree + 1))),)

    @property
    @override
    def relaxation(self) -> Relaxation:
        return SimplexPerDecision(self.decisions)

    @property
    def step(self) -> int:
        """Columns of a degree above 0."""
        return 2 if self.columns == "separate" else 1

    def width(self, degree: int) -> int:
        """Columns of degrees 0 to `degree`."""
        return 1 + self.step * degree

    def check(self, shape: TaskShape) -> None:
        """Raises for inputs that are not one number."""
        super().check(shape)
        if shape.input != (1,) or shape.tokens:
            told = "tokens" if shape.tokens else shape.input
            raise PolyarchError(
                f"the space 'fourier' needs inputs of one number, shape (1,), not {told}; try --data fourier"
            )

    @override
    def supernet(self, shape: TaskShape, repeats: int = 1) -> FourierSupernet:
        return FourierSupernet(self, shape, repeats)

    @override
    def build(self, architecture: Architecture, shape: TaskShape) -> nn.Module:
        [degree] = architecture.choices
        linear = nn.Linear(self.width(degree), shape.outputs, bias=False)
        return nn.Sequential(OrderedDict(features=Features(degree, self.columns), linear=linear))

    def pruned(self, architecture: Architecture) -> Fourier:
        """The space that ends at an architecture's degree."""
        return replace(self, max_degree=architecture.choices[0])


def features(x: Tensor, degree: int, columns: Columns) -> Tensor:
    """Features of degrees 0 to `degree` in order, a constant 1 first: [..., 1] -> [..., width]."""
    angles = x * torch.arange(degree + 1, device=x.device)
    if columns == "joint":
        return angles.cos() + angles.sin()
    pairs = torch.stack([angles.cos(), angles.sin()], -1).flatten(-2)
    return torch.cat([pairs[..., :1], pairs[..., 2:]], -1)  # without sin 0x, which is nothing


class Features(nn.Module):
    """`features` as a layer without weights."""

    def __init__(self, degree: int, columns: Columns) -> None:
        """Keeps what to compute."""
        super().__init__()
        self.degree = degree
        self.columns = columns

    def forward(self, x: Tensor) -> Tensor:
        """[batch, 1] -> [batch, width]."""
        return features(x, self.degree, self.columns)


class FourierSupernet(Supernet):
    """Weights of all features; the network of degree d uses those up to degree d."""

    views: frozenset[type] = frozenset({Sparse, Dense, PerExample, Soft, All})
    space: Fourier

    def __init__(self, space: Fourier, shape: TaskShape, repeats: int) -> None:
        """Makes room for the weights; `reset_parameters` draws them."""
        super().__init__()
        self.space, self.shape, self.repeats = space, shape, repeats
        self.weight = nn.Parameter(torch.zeros(repeats, shape.outputs, space.width(space.max_degree)))

    @override
    def reset_parameters(self, generators: Sequence[torch.Generator]) -> None:
        """Fresh weights, one generator per repeat: a linear layer's on all features, as in the released code."""
        bound = 1 / math.sqrt(self.weight.shape[-1])
        with torch.no_grad():
            for row, generator in zip(self.weight, generators, strict=True):
                row.copy_(torch.empty(row.shape).uniform_(-bound, bound, generator=generator))

    @override
    def forward(self, x: Tensor, view: View) -> Tensor:
        """Under `Soft` the answers of all degrees are mixed."""
        if isinstance(view, All):
            return self._every_degree(x)
        if isinstance(view, Soft):
            return self._mixed(x, view.weights[0].unsqueeze(1))
        if isinstance(view, PerExample):
            return self._mixed(x, one_hot(view.choices.squeeze(-1), self.space.max_degree + 1))
        if isinstance(view, Sparse):
            return self._one_degree(x, view.choices[0])
        if isinstance(view, Dense):
            return self._mixed(x, one_hot(view.choices, self.space.max_degree + 1))
        raise PolyarchError(f"the space 'fourier' does not run under {type(view).__name__}")

    def _one_degree(self, x: Tensor, degree: int) -> Tensor:
        weight = self.weight[..., : self.space.width(degree)]
        return features(x, degree, self.space.columns) @ weight.mT

    def _every_degree(self, x: Tensor) -> Tensor:
        """[repeats, batch, 1] -> [repeats, degrees, batch, outputs]."""
        terms = self._features(x).unsqueeze(2) * self.weight.unsqueeze(1)
        return terms.cumsum(-1)[..., :: self.space.step].permute(0, 3, 1, 2)

    def _mixed(self, x: Tensor, weights: Tensor) -> Tensor:
        """Answers mixed by weights [repeats, batch or 1, degrees]."""
        # A feature counts by the weight of all networks that have it.
        gates = weights.to(x.dtype).flip(-1).cumsum(-1).flip(-1)
        gates = gates.repeat_interleave(self.space.step, -1)[..., self.space.step - 1 :]
        return (self._features(x) * gates) @ self.weight.mT

    def _features(self, x: Tensor) -> Tensor:
        return features(x, self.space.max_degree, self.space.columns)

    @override
    def member_state(self, architecture: Architecture, repeat: int) -> dict[str, Tensor]:
        return {"linear.weight": self.weight[repeat, :, : self.space.width(architecture.choices[0])]}

    def nested_members(self, architecture: Architecture, belief: Distribution) -> tuple[FourierSupernet, Tensor]:
        """Degrees 0 to the architecture's, with copies of their weights; the mass of higher ones moved onto it."""
        [degree] = architecture.choices
        small = self.space.pruned(architecture).supernet(self.shape)
        small.load_state_dict({"weight": self.weight[..., : self.space.width(degree)]})
        return small.eval(), prune(belief.probs()["degree"], degree)


# ---------------------------------------------------------------------------------------------------------------------
# The thesis's relaxation: one number says how far the series goes.


def gates(max_degree: Tensor, degrees: int) -> Tensor:
    """How much the features of degrees 0 to `degrees` count: (tanh(MaxDeg - j) + 1) / 2 (Eq. 4.5).

    Args:
        max_degree: MaxDeg, [...]; gradients flow through it.
        degrees: the highest degree there is.

    Returns:
        [..., degrees + 1].
    """
    return (torch.tanh(max_degree.unsqueeze(-1) - torch.arange(degrees + 1, device=max_degree.device)) + 1) / 2
