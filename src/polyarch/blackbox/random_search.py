"""Random search: the first baseline of every search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

from polyarch.blackbox.base import Asking, BlackBox, drawn


@dataclass(frozen=True, kw_only=True)
class RandomSearch(BlackBox):
    """Architectures drawn with equal probability, each time among all (Li and Talwalkar, 2019)."""

    name: ClassVar[str] = "random-search"
    meaning: ClassVar[str] = "The best of architectures drawn at random."

    def ask(self, options: Sequence[int], generator: torch.Generator) -> Asking:
        """See `BlackBox.ask`; goes on for ever."""
        while True:
            yield drawn(options, generator)
