"""Named streams of randomness: every draw of a run comes from one, and all of them are in the checkpoint."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import torch
from torch import Tensor

NAMES = ("init", "data", "architecture", "augment", "noise")


class Streams:
    """One CPU generator a purpose, so that drawing more for one purpose shifts no other.

    init: first weights; data: order of examples; architecture: sampled choices; augment: image augmentation;
    noise: everything else inside a step.
    """

    def __init__(self, seed: int) -> None:
        """Seeds every stream from `seed` and its own name."""
        self.seed = seed
        self._generators = {name: torch.Generator().manual_seed(_seed(seed, name)) for name in NAMES}

    def __getitem__(self, name: str) -> torch.Generator:
        return self._generators[name]

    def state(self) -> dict[str, Tensor]:
        """Where every stream stands."""
        return {name: generator.get_state() for name, generator in self._generators.items()}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Puts every stream back to where `state` was taken."""
        for name, generator in self._generators.items():
            generator.set_state(state[name].clone())


def _seed(seed: int, name: str) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed}/{name}".encode()).digest()[:8], "big") >> 1
