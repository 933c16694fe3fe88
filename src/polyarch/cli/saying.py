"""What is said on standard error, and how much of it: by `--quiet` and `--verbose`, and of many processes by the first.

Results go to standard output, where nothing changes.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from functools import wraps
from inspect import Parameter, signature
from typing import Annotated, Any, Literal

import typer

Loudness = Literal["quiet", "usual", "verbose"]
Quiet = Annotated[bool, typer.Option("--quiet", help="Say nothing on standard error but warnings and errors.")]
Verbose = Annotated[
    bool,
    typer.Option("--verbose", help="Say more there: every evaluation in a line of its own; of an error, where it is."),
]

_loudness: Loudness = "usual"


def heard(verb: Callable[..., None]) -> Callable[..., None]:
    """A verb that also takes `--quiet` and `--verbose`."""

    @wraps(verb)
    def told(*, quiet: bool, verbose: bool, **given: Any) -> None:
        global _loudness
        _loudness = "quiet" if quiet else "verbose" if verbose else "usual"
        logging.getLogger("polyarch").setLevel(logging.INFO if is_verbose() else logging.NOTSET)
        verb(**given)

    both = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=False, annotation=annotation)
        for name, annotation in (("quiet", Quiet), ("verbose", Verbose))
    ]
    own = signature(verb, eval_str=True)
    told.__signature__ = own.replace(parameters=[*own.parameters.values(), *both])  # type: ignore[attr-defined]
    return told


def processes() -> int:
    """How many `torchrun` started for this command; they compute together (`cli.ranks`)."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_first() -> bool:
    """Whether this process is the one of them that speaks and writes."""
    return processes() == 1 or os.environ.get("RANK") == "0"


def is_quiet() -> bool:
    """Whether progress is left out."""
    return _loudness == "quiet" or not is_first()


def is_verbose() -> bool:
    """Whether more than usual is said."""
    return _loudness == "verbose" and is_first()


def on_terminal() -> bool:
    """Whether progress is something that moves on a screen."""
    return sys.stderr.isatty() and not is_quiet()


def tell(text: str) -> None:
    """How far it is."""
    if not is_quiet():
        print(text, file=sys.stderr, flush=True)


def warn(text: str) -> None:
    """What should be known however little is to be said."""
    if is_first():
        print(f"polyarch: {text}", file=sys.stderr, flush=True)
