"""What inputs a task has, so that a run knows which others it can take."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, final

import numpy as np
import torch
from torch import Tensor

from polyarch.data.checks import Array, are_tokens
from polyarch.errors import PolyarchError
from polyarch.settings import plain

logger = logging.getLogger("polyarch")

InputType = Literal["numbers", "bytes", "tokens"]
TYPES: dict[torch.dtype, InputType] = {torch.uint8: "bytes", torch.int64: "tokens"}
"""What inputs are by how they are kept; all others are numbers."""
NAMED = 8
"""So many columns are named in a sentence, and the others counted."""
APART = 10
"""Images whose numbers are so many times those of others are on another scale: bytes, and what goes from 0 to 1."""


@final
@dataclass(frozen=True)
class Columns:
    """Of a table, what inputs are read by."""

    names: tuple[str, ...]
    """In the order in which networks take them."""
    label: str
    delimiter: str


@final
@dataclass(frozen=True)
class Inputs:
    """What a task's inputs are: a run keeps it, and holds all other inputs to it."""

    shape: tuple[int, ...]
    """Of one example: (features,), (channels, height, width) or (length,)."""
    type: InputType = "numbers"
    low: tuple[float, ...] = ()
    """The least of all examples: in every column where columns have names, else of all together."""
    high: tuple[float, ...] = ()
    columns: Columns | None = None
    """None where they have no names: then they are told apart by their places alone."""

    def settings(self) -> dict[str, Any]:
        """What `inputs_from` needs to make this again."""
        found: dict[str, Any] = plain(self)
        return found

    @property
    def tokens(self) -> int:
        """How many different ones there are, where inputs are tokens; else 0."""
        return 1 + int(self.high[0]) if self.type == "tokens" else 0

    @property
    def words(self) -> str:
        """In words, for people."""
        size = " × ".join(map(str, self.shape))
        return f"{size} tokens" if self.type == "tokens" else size

    def fitted(self, x: Array, what: str) -> Array:
        """An array of whole numbers as this run's own: as tokens where those are tokens, else as numbers.

        Args:
            x: as it was read, [n, ...].
            what: what to call it in an error.
        """
        if self.type != "tokens":
            return x.astype(np.float64) if are_tokens(x) else x
        if x.dtype.kind not in "ui":
            raise PolyarchError(
                f"{what} holds values of type {x.dtype}, and this run takes tokens; give whole numbers, as int64 in a "
                ".npz"
            )
        return x.astype(np.int64)

    def check(self, text: str, x: Tensor, highest_byte: float) -> None:
        """Raises where inputs of this shape are on another scale than the run's own, so that all answers mislead.

        Pixels that are bytes have a known range, to which others must keep; of other inputs only the size is compared.
        Two arrays of bytes may both be dark, and two of features may well be far apart: of columns, that is said. Of
        tokens that it has not seen a run knows nothing.

        Args:
            text: what to call them in an error.
            x: [n, ...], raw inputs.
            highest_byte: what white is, where pixels are bytes.
        """
        pixels = self.type == "bytes" and len(self.shape) == 3
        low, high = (0.0, highest_byte) if pixels else (min(self.low), max(self.high))
        least, most = x.min().item(), x.max().item()
        if self.type == "tokens":
            if TYPES.get(x.dtype) != "tokens" or most > high:
                raise PolyarchError(
                    f"{text} has inputs up to {most:g}, and this run knows the tokens 0 to {high:g}; put one of these "
                    "in the place of each that it does not know"
                )
            return
        outside = pixels and (least < low or most > high)
        same = TYPES.get(x.dtype, "numbers") == self.type and (self.type == "bytes" or len(self.shape) == 1)
        reach, own = max(abs(least), abs(most)), max(abs(low), abs(high))
        apart = not same and min(reach, own) > 0 and max(reach / own, own / reach) >= APART
        if outside or apart:
            raise PolyarchError(
                f"{text} has numbers from {least:.3g} to {most:.3g}, and this run's own are from {low:.3g} to "
                f"{high:.3g}, so that whatever is said of them would come of the scale; scale them to that range, and "
                "save them as a .npz"
            )
        if self.columns:
            self._say_far(self.columns, text, x)

    def _say_far(self, columns: Columns, text: str, x: Tensor) -> None:
        """Says in which columns all numbers are far from the run's own, by more than the width of its range."""
        low, high = torch.tensor(self.low), torch.tensor(self.high)
        far = (x.amin(0) > 2 * high - low) | (x.amax(0) < 2 * low - high)
        names = [name for name, is_far in zip(columns.names, far.tolist(), strict=True) if is_far]
        if names:
            logger.warning("%s: %s far from all that the run has seen; are the units the same?", text, named(names))


def named(columns: Sequence[str]) -> str:
    """Columns in a sentence."""
    more = f" and {len(columns) - NAMED} more" if len(columns) > NAMED else ""
    return f"column{'s' * (len(columns) > 1)} {', '.join(map(repr, columns[:NAMED]))}{more}"


def inputs_from(settings: Mapping[str, Any]) -> Inputs:
    """The inputs that gave these `settings()`."""
    columns = settings["columns"]
    return Inputs(
        shape=tuple(settings["shape"]),
        type=settings["type"],
        low=tuple(settings["low"]),
        high=tuple(settings["high"]),
        columns=Columns(**columns | {"names": tuple(columns["names"])}) if columns else None,
    )


def inputs_of(parts: Sequence[Tensor], columns: Columns | None) -> Inputs:
    """What inputs are, given in several parts [n, ...]."""
    rows = [x.reshape(len(x), -1) if columns else x.reshape(-1, 1) for x in parts]
    low = torch.stack([values.amin(0) for values in rows]).amin(0).tolist()
    high = torch.stack([values.amax(0) for values in rows]).amax(0).tolist()
    return Inputs(tuple(parts[0].shape[1:]), TYPES.get(parts[0].dtype, "numbers"), tuple(low), tuple(high), columns)
