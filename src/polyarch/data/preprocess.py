"""From inputs as they were read to what networks see, and back from what they say: modules that stay with the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from torch import Tensor, nn
from typing_extensions import override

from polyarch.data.checks import Array
from polyarch.data.several import Parts
from polyarch.data.vocabulary import GAP, OTHER, Columns
from polyarch.trees import called

ALL = slice(None)


@final
class Standardise(nn.Module):
    """Maps raw inputs (uint8 or float) to float32 of mean 0 and deviation 1 per channel or feature; tokens stay.

    Mean and deviation are those of the training split, and whole numbers where inputs are tokens. It travels with the
    model, so that a model takes inputs exactly as they were read.
    """

    def __init__(self, mean: Tensor, std: Tensor) -> None:
        """Keeps `mean` and `std`, both broadcastable against one example."""
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("std", std)

    mean: Tensor
    std: Tensor

    @override
    def forward(self, x: Tensor) -> Tensor:
        """[n, ...] raw -> [n, ...] standardised."""
        x = x.to(self.mean.dtype)
        return (x - self.mean) / self.std if x.is_floating_point() else x


@final
class Encode(nn.Module):
    """Maps rows of a table to what networks see of them: float [n, columns] to float32 [n, features].

    Columns of numbers come first: gaps become the median, then mean 0 and deviation 1. Then a feature for each column
    of numbers that had gaps, 1 where there is one. Then those of every column of words: 1 for the category that it is,
    for the rare ones together where they share a feature, and for a gap where there were any.

    Statistics are in double precision, since the numbers of a table may be large beside their differences.
    """

    def __init__(self, columns: Columns) -> None:
        """For columns of a table; `learn`, or loading a state, fills in the statistics."""
        super().__init__()
        numbers = [place for place, column in enumerate(columns.columns) if column.holds == "number"]
        flagged = [place for place in numbers if columns.columns[place].gaps]
        of: list[int] = []
        code: list[float] = []
        for place, column in enumerate(columns.columns):
            if column.holds == "category":
                own = [float(k) for k in range(len(column.categories))]
                own += [OTHER] * column.others + [GAP] * column.gaps
                of += [place] * len(own)
                code += own
        for name, places in {"numbers": numbers, "flagged": flagged, "of": of}.items():
            self.register_buffer(name, torch.tensor(places, dtype=torch.int64), persistent=False)
        self.register_buffer("category", torch.tensor(code, dtype=torch.float64), persistent=False)
        for name, start in {"fill": 0.0, "mean": 0.0, "std": 1.0}.items():
            self.register_buffer(name, torch.full((len(numbers),), start, dtype=torch.float64))
        self.register_buffer("seen", torch.zeros(()), persistent=False)  # of the type that the network after it has

    numbers: Tensor
    flagged: Tensor
    of: Tensor
    category: Tensor
    fill: Tensor
    mean: Tensor
    std: Tensor
    seen: Tensor

    def learn(self, rows: Array, standardise: bool = True, which: Array | slice = ALL) -> Encode:
        """Takes median, mean and deviation of training examples, [n, columns]; the deviation of a constant is 1.

        Args:
            rows: as `Columns.coded` has them.
            standardise: else numbers stay as they are, and only gaps are filled.
            which: of the rows are training examples.
        """
        for place, column in enumerate(self.numbers.tolist()):
            values = np.asarray(rows[which, column])
            known = values[~np.isnan(values)]
            fill = float(np.median(known)) if len(known) else 0.0
            self.fill[place] = fill
            if standardise:
                filled = np.where(np.isnan(values), fill, values)
                self.mean[place] = float(filled.mean())
                # Rounding may leave a constant a deviation of 1e-17, and any other value would then explode.
                self.std[place] = float(filled.std()) if filled.min() < filled.max() else 1.0
        return self

    @override
    def forward(self, x: Tensor) -> Tensor:
        """[n, columns] -> [n, features]."""
        x = x.to(self.mean.dtype)
        gap = x.isnan()
        values = torch.where(gap[:, self.numbers], self.fill, x[:, self.numbers])
        is_it = torch.where(gap, GAP, x)[:, self.of] == self.category
        features = [(values - self.mean) / self.std, gap[:, self.flagged].to(x.dtype), is_it.to(x.dtype)]
        return torch.cat(features, 1).to(self.seen.dtype)


@final
class Unpack(nn.Module):
    """Maps rows in which several inputs stand side by side to what networks see of these, each standardised by itself.

    It also takes the inputs themselves, in order or by name.
    """

    def __init__(self, parts: Parts, each: Sequence[Standardise]) -> None:
        """Takes over how each is standardised."""
        super().__init__()
        self.parts, self.each = parts, nn.ModuleList(each)

    @override
    def forward(self, *inputs: Any, **named: Any) -> Any:
        """[n, numbers], or several [n, ...] -> a tuple of several [n, ...], or a mapping of them."""
        return self.parts.tree([own(x) for own, x in zip(self.each, self._raw(inputs, named), strict=True)])

    def _raw(self, inputs: tuple[Any, ...], named: dict[str, Any]) -> Sequence[Tensor]:
        if len(inputs) == 1 and isinstance(inputs[0], Tensor) and len(self.each) > 1:
            return self.parts.unpacked(inputs[0])
        given = inputs[0] if len(inputs) == 1 and not isinstance(inputs[0], Tensor) else named or inputs
        return [given[name] for name in self.parts.names] if isinstance(given, Mapping) else given


@final
class OnSeveral(nn.Sequential):
    """One after the other, like `nn.Sequential`, where the first gives several inputs that the second takes."""

    @override
    def forward(self, *inputs: Any, **named: Any) -> Any:
        """Several inputs [n, ...], in order or by name."""
        first, second, *others = self
        x = called(second, first(*inputs, **named))
        for module in others:
            x = module(x)
        return x


Preprocess = Standardise | Encode | Unpack


def preprocess_from(columns: Columns | None, state: dict[str, Tensor], parts: Parts | None = None) -> Preprocess:
    """The module that had this state.

    Args:
        columns: of a table, what is known of its columns.
        state: what `state_dict` gave.
        parts: where examples have several inputs, which.
    """
    if parts is not None:
        each = [(state[f"each.{k}.mean"], state[f"each.{k}.std"]) for k in range(len(parts.names))]
        return Unpack(parts, [Standardise(*own) for own in each])
    if columns is None:
        return Standardise(state["mean"], state["std"])
    made = Encode(columns)
    made.load_state_dict(state)
    return made


def feature_names(columns: Columns) -> list[str]:
    """What `Encode` makes of columns, in its order."""
    numbers = [column for column in columns.columns if column.holds == "number"]
    words = [column for column in columns.columns if column.holds == "category"]
    found = [column.name for column in numbers] + [f"{column.name} is missing" for column in numbers if column.gaps]
    for column in words:
        found += [f"{column.name} = {category}" for category in column.categories]
        found += [f"{column.name} is another"] * column.others + [f"{column.name} is missing"] * column.gaps
    return found


@final
@dataclass(frozen=True)
class Units:
    """In which numbers to predict are learnt: their difference from `offset`, in units of `scale`."""

    offset: float = 0.0
    scale: float = 1.0

    @classmethod
    def of(cls, y: Array) -> Units:
        """Those in which training targets [n] have mean 0 and deviation 1; the deviation of a constant is 1."""
        spread = float(y.std(dtype=np.float64)) if y.min() < y.max() else 1.0
        return cls(float(y.mean(dtype=np.float64)), spread)

    def settings(self) -> dict[str, Any]:
        """Its fields."""
        return {"offset": self.offset, "scale": self.scale}

    @property
    def plain(self) -> bool:
        """Whether numbers are learnt as they are."""
        return self == AS_READ

    def learnt(self, y: Tensor) -> Tensor:
        """Numbers as they were read, in these units."""
        return y if self.plain else (y - self.offset) / self.scale


AS_READ = Units()


@final
class InUnits(nn.Module):
    """Maps what networks say of a number, whose mean is the first output, to the unit that the number was read in."""

    def __init__(self, units: Units, outputs: int) -> None:
        """Keeps one factor and one shift per output: whatever is said besides the mean stays."""
        super().__init__()
        rest = outputs - 1
        self.register_buffer("scale", torch.tensor([units.scale] + [1.0] * rest))
        self.register_buffer("offset", torch.tensor([units.offset] + [0.0] * rest))

    scale: Tensor
    offset: Tensor

    @override
    def forward(self, outputs: Tensor) -> Tensor:
        """[..., outputs] -> [..., outputs]."""
        return outputs * self.scale + self.offset
