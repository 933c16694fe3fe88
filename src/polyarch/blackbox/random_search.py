"""Random search: the first baseline of every search."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from typing_extensions import override

from polyarch.blackbox.base import Asking, BlackBox, drawn
from polyarch.spaces.base import Space


@dataclass(frozen=True, kw_only=True)
class RandomSearch(BlackBox):
    """Architectures drawn by the space, each time among all (Li and Talwalkar, 2019)."""

    name: ClassVar[str] = "random-search"
    meaning: ClassVar[str] = "The best of architectures drawn at random."

    @override
    def ask(self, space: Space, generator: torch.Generator) -> Asking:
        source = space.random()
        while True:
            yield drawn(source, generator)
