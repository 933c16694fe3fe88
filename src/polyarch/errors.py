"""What goes wrong in a way the user can mend."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class PolyarchError(Exception):
    """Something the user can put right: the text says what was wrong, where, and what to do.

    The command line prints it in one line and exits with 2.
    """


def unknown(kind: str, name: str, known: Iterable[str]) -> PolyarchError:
    """The error for a name that does not exist; suggests the nearest one that does."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(names)}"
    return PolyarchError(f"unknown {kind} {name!r}; {hint}")
