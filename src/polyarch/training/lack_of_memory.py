"""A search that needs more memory than there is, and what its user can do about it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from polyarch.core import Method
from polyarch.errors import PolyarchError, is_lack_of_memory
from polyarch.settings import memory_settings
from polyarch.spaces.base import Space
from polyarch.spaces.sub_spaces import SubSpace


@contextmanager
def saying_what_to_lower(method: Method, space: Space, repeats: int) -> Iterator[None]:
    """Turns a lack of memory, of the host or of a device, into an error that says what this search can do without."""
    try:
        yield
    except Exception as error:
        if not is_lack_of_memory(error):
            raise
        raise PolyarchError(
            f"not enough memory; start a new search with {what_to_lower(method, space, repeats)} (`polyarch doctor` "
            "says how much it needs)"
        ) from error


def what_to_lower(method: Method, space: Space, repeats: int) -> str:
    """The settings of a search that its memory grows with, and a form of its method that needs less, if any."""
    *others, last = [*memory_settings(method), *_of_space(method, space), *(["repeats"] if repeats > 1 else [])]
    lower = f"a lower {', '.join(others)} or {last}" if others else f"a lower {last}"
    return f"{lower}, or with form=sparse" if getattr(method, "form", "sparse") == "dense" else lower


def _of_space(method: Method, space: Space) -> list[str]:
    """Its settings; not those in whose place a method has its own, such as the depth that it trains alone."""
    told, searched = _whole(space), [_whole(stage.space) for stage in method.stages(space)]

    def matters(name: str) -> bool:
        return all(getattr(told, name) == getattr(own, name, None) for own in searched)

    return [name for name in memory_settings(told) if matters(name)]


def _whole(space: Space) -> Space:
    return _whole(space.space) if isinstance(space, SubSpace) else space
