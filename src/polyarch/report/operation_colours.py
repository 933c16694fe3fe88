"""Colours of operations: the same operation has the same one in all pictures of a page."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence

MUTED = "#667080"
"""Of nothing, and of what is no operation."""
SKIP, POOL, MAX_POOL = "#e5761f", "#8db943", "#2fa36b"
CONVOLUTIONS = {
    "dil": ("#b0a8f0", "#8a80de", "#6d5fd0", "#8b4fc0"),
    "sep": ("#86b6ee", "#3d8be0", "#2a66bd", "#4a56b8"),
    "": ("#7cc4e4", "#2b9ccc", "#1c7fae", "#3b6f9e"),
}
"""Dilated, separable and other convolutions; one tone per kernel size: 1, 3, 5, more."""
OTHERS = ("#c9a227", "#b8589c", "#1fa184", "#a9674b", "#6a77c9", "#d9628f", "#58b4d8", "#7d8f2e")
"""For operations of no known family. Like all colours here they read on light and dark cards alike."""


def colours(operations: Sequence[str]) -> dict[str, str]:
    """One colour per operation; two of no known family differ as long as colours last."""
    found: dict[str, str] = {}
    for operation in dict.fromkeys(operations):
        colour = _family_colour(operation.lower())
        if colour is None:
            wanted = zlib.crc32(operation.encode("utf-8", "replace")) % len(OTHERS)
            turned = OTHERS[wanted:] + OTHERS[:wanted]
            colour = next((other for other in turned if other not in found.values()), turned[0])
        found[operation] = colour
    return found


def _family_colour(name: str) -> str | None:
    if not name or is_nothing(name):
        return MUTED
    if "pool" in name:
        return MAX_POOL if "max" in name else POOL
    if "conv" in name:
        kind = next(kind for kind in CONVOLUTIONS if kind in name)
        kernel = re.search(r"(\d+)\s*[x×]\s*\d+", name)
        return CONVOLUTIONS[kind][min(int(kernel[1]) // 2, 3) if kernel else 1]
    return SKIP if any(word in name for word in ("skip", "identity", "shortcut")) else None


def is_nothing(operation: str) -> bool:
    """Whether an operation's name says that it lets nothing through."""
    return bool({"none", "zero", "zeroize"} & set(re.findall("[a-z]+", operation.lower())))
