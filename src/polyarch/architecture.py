"""Architectures as values, and the decisions they fix."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Decision:
    """One open choice of a space: its name and the names of its options, in order."""

    name: str
    options: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.options)


@dataclass(frozen=True)
class Architecture:
    """The option chosen for each decision of a space, and the one text that says so.

    Made by a space (`space.decode`, `space.parse`), never by hand, so that text and choices agree.
    """

    text: str
    choices: tuple[int, ...]

    def __str__(self) -> str:
        return self.text
