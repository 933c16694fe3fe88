"""What goes wrong in a way the user can mend."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class PolyarchError(Exception):
    """Something the user can put right: the text says what was wrong, where, and what to do.

    The command line prints it in one line and exits with 2.
    """


def unknown(kind: str, name: str, known: Iterable[str]) -> PolyarchError:
    """The error for a name that does not exist; suggests the nearest one that does, and of numbers says the range."""
    names = sorted(known)
    numbers = sorted(int(one) for one in names if one.isdecimal())
    if len(numbers) == len(names) > 1:
        every = numbers == list(range(numbers[0], numbers[-1] + 1))
        some = f"{numbers[0]} to {numbers[-1]}" if every else ", ".join(map(str, numbers))
        return PolyarchError(f"unknown {kind} {name!r}; it can be {some}")
    near = nearest(name, names)
    hint = f"did you mean {near!r}?" if near else f"known: {', '.join(names)}"
    return PolyarchError(f"unknown {kind} {name!r}; {hint}")


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that a mistyped one is most alike; None where none is."""
    return next(iter(difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)), None)


_NO_MEMORY = (
    "out of memory",  # of a device, where torch has no class for it
    "ALLOC_FAILED",  # of CUDA's libraries
    "can't allocate memory",  # of the CPU
    "Storage size calculation overflowed",
    "Overflow when unpacking long",
)


def is_lack_of_memory(error: BaseException) -> bool:
    """Whether Python, torch or a device had too little memory; torch says some of it only in words.

    What fails while a CUDA graph is recorded makes the end of the recording fail, too: the first error is then the
    context of the second.
    """
    if isinstance(error, PolyarchError):
        return False
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    before = error.__cause__ or error.__context__
    followed = isinstance(error, RuntimeError) and before is not None and is_lack_of_memory(before)
    return followed or any(words in str(error) for words in _NO_MEMORY)
