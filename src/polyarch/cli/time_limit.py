"""`--time-limit`: what of it is for a search, where other things follow."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from polyarch.core import Method
    from polyarch.spaces.base import Space

REPORT = 3.0
"""Seconds for the report at the end of a command."""


@final
@dataclass(frozen=True)
class TimeLimit:
    """Until when a command is to be done."""

    text: str
    ends: float
    """By `time.monotonic`."""
    trains: bool = False
    """Whether the selected network is trained alone after the search, where that has a sense."""
    plain: bool = False
    """Whether plain models are fitted after it."""

    @classmethod
    def of(cls, text: str | None, begun: float, *, trains: bool = False, plain: bool = False) -> TimeLimit | None:
        """What a text means for a command that began then."""
        from polyarch.runs.options import seconds_of

        return cls(text, begun + seconds_of(text), trains, plain) if text is not None else None

    def for_search(self, space: Space, method: Method, repeats: int) -> float:
        """Seconds that are left for searching, the shares of what follows taken off."""
        from polyarch.errors import PolyarchError
        from polyarch.runs.plain import SHARE
        from polyarch.runs.run import shares_weights
        from polyarch.runs.timing import TRAINING

        left = self.ends - time.monotonic() - REPORT
        if left <= 0:
            raise PolyarchError(
                f"--time-limit {self.text} is over before the search begins: reading the data and writing a report "
                "take longer; give more"
            )
        followed = TRAINING * repeats if self.trains and shares_weights(space, method) else 0.0
        return left / (1 + followed + SHARE * self.plain)
