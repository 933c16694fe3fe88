"""What a part of `reproduce.one_shot` is. To add one: a module with a `PART`, and a line in `one_shot.PARTS`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure

from reproduce.training_speed_tables import Part as Found

Row = dict[str, Any]


@dataclass(frozen=True)
class Part:
    """An experiment: how it is run, and how what it found is shown."""

    about: str
    """One sentence, kept with the rows."""
    options: Callable[[argparse.ArgumentParser], None]
    """Adds its options to those that every part has."""
    rows: Callable[[argparse.Namespace], Iterator[Row]]
    """Runs it; rows come one by one and are kept as they come."""
    sections: tuple[tuple[str, str, Callable[[Found], str]], ...]
    """Titles, notes and tables in Markdown."""
    figures: dict[str, Callable[[Found], Figure]]
    """By the name of the file."""
