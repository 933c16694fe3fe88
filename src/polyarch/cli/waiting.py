"""What is to be seen while nothing is found out yet: of slow imports and of reading data."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

MOMENT = 1.5
"""Seconds after which a line says what is being done; a terminal shows it at once, and forgets it."""


@contextmanager
def spinning(doing: str) -> Iterator[None]:
    """Shows on a terminal what is being done."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(doing):
        yield


@contextmanager
def waiting(doing: str) -> Iterator[None]:
    """The same, and elsewhere a line where it takes longer than a moment: what is refused at once is one line alone."""
    said = threading.Timer(MOMENT, print, (doing,), {"file": sys.stderr, "flush": True})
    said.daemon = True
    if not sys.stderr.isatty():
        said.start()
    try:
        with spinning(doing):
            yield
    finally:
        said.cancel()
