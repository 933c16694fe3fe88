"""What is to be seen while nothing is found out yet: of slow imports and of reading data."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from polyarch.cli.saying import on_terminal, tell

MOMENT = 1.5
"""Seconds after which a line says what is being done; a terminal shows it at once, and forgets it."""
LARGE, MANY = 10_000_000, 500
"""Bytes of a file, and entries of a folder within a folder, from which on that is said before torch is imported."""


@contextmanager
def spinning(doing: str) -> Iterator[None]:
    """Shows on a terminal what is being done."""
    if not on_terminal():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(doing):
        yield


def is_large(path: str) -> bool:
    """Whether a file or a folder is so large that reading it takes a while on any machine."""
    try:
        if os.path.isdir(path):
            with os.scandir(path) as found:
                return any(len(os.listdir(inner)) > MANY for inner in found if inner.is_dir())
        return os.path.isfile(path) and os.path.getsize(path) > LARGE
    except OSError:  # whoever reads it says what is wrong
        return False


@contextmanager
def waiting(doing: str) -> Iterator[None]:
    """The same, and elsewhere a line where it takes longer than a moment: what is refused at once is one line alone."""
    said = threading.Timer(MOMENT, tell, (doing,))
    said.daemon = True
    if not on_terminal():
        said.start()
    try:
        with spinning(doing):
            yield
    finally:
        said.cancel()
