"""Views: which architectures a pass through a supernet runs. Those that mean the same give equal outputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor


@final
@dataclass(frozen=True)
class Sparse:
    """One architecture for all repeats and examples, known to the host: only its operations run."""

    choices: tuple[int, ...]


@final
@dataclass(frozen=True)
class SparsePerRepeat:
    """One architecture per repeat, all known to the host: every repeat runs its own operations alone.

    A step that was captured so is of these choices for ever.
    """

    choices: tuple[tuple[int, ...], ...]

    @classmethod
    def read(cls, choices: Tensor) -> SparsePerRepeat:
        """Choices [repeats, decisions] that the host knows because it reads them back."""
        return cls(tuple(tuple(row) for row in choices.tolist()))


@final
@dataclass(frozen=True)
class Dense:
    """One architecture per repeat as data: `choices` is int64 [repeats, decisions], and a step can be captured."""

    choices: Tensor


@final
@dataclass(frozen=True)
class PerExample:
    """One architecture per example as data: `choices` is int64 [repeats, batch, decisions]."""

    choices: Tensor


@final
@dataclass(frozen=True)
class Soft:
    """Every option at once, mixed: one tensor [repeats, options] of weights for each of the space's simplices."""

    weights: tuple[Tensor, ...]


@final
@dataclass(frozen=True)
class All:
    """Every option of a nested decision in one pass; the output gains an axis of options."""


View = Sparse | SparsePerRepeat | Dense | PerExample | Soft | All


def one_hot(choices: Tensor, options: int) -> Tensor:
    """True where an option is the chosen one: [...] -> [..., options]."""
    # Not torch's own, which reads the choices back to check them; a captured step must not.
    return choices.unsqueeze(-1) == torch.arange(options, device=choices.device)
