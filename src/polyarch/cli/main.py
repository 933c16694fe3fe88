"""The `polyarch` command."""

from __future__ import annotations

import logging
import os
import sys
import traceback
from typing import Annotated, Any, NoReturn

import typer
from typing_extensions import override

from polyarch.cli import saying, table
from polyarch.cli.compare import compare
from polyarch.cli.cost import cost
from polyarch.cli.doctor import doctor
from polyarch.cli.evaluate import evaluate
from polyarch.cli.export import export
from polyarch.cli.listing import list_all
from polyarch.cli.predict import predict
from polyarch.cli.rank import rank
from polyarch.cli.ranks import last_word
from polyarch.cli.report import report
from polyarch.cli.search import search
from polyarch.cli.select import select
from polyarch.cli.show import show
from polyarch.cli.train import train
from polyarch.cli.trust import trust
from polyarch.errors import PolyarchError, is_lack_of_memory
from polyarch.version import __version__

app = typer.Typer(
    name="polyarch",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _tell_version(asked: bool) -> None:
    if asked:
        print(f"polyarch {__version__}")
        raise typer.Exit


@app.callback()
def of_all_verbs(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_tell_version, is_eager=True, help="Print the version, and stop.")
    ] = False,
) -> None:
    """Learn a distribution over neural architectures in one training run, then use it."""
    if saying.processes() > 1 and context.invoked_subcommand not in TOGETHER:
        raise PolyarchError(
            f"{context.invoked_subcommand} works in one process, and WORLD_SIZE is {saying.processes()}: torchrun is "
            f"for {' and '.join(TOGETHER)}"
        )


TOGETHER = ("search", "train")
"""Verbs that several processes may work on together."""

app.command("list")(list_all)
for verb in (doctor, cost, show):  # they do nothing that takes long
    app.command()(verb)
for longer in (search, compare, trust, rank, select, train, evaluate, predict, export, report):
    app.command()(saying.heard(longer))
app.add_typer(table.app)

RENAMED = {"--reward": "--column", "--init-from": "--belief-from", "--labels": "--set labels=N"}
"""Options of before 0.2, and what they are now (CHANGELOG)."""


def run() -> None:
    """Runs the command; what the user can mend is one line on standard error and exit code 2."""
    warnings = _OnStandardError()
    logging.getLogger("polyarch").addHandler(warnings)
    try:
        _run()
    finally:
        logging.getLogger("polyarch").removeHandler(warnings)


class _OnStandardError(logging.Handler):
    """Prints what the library says."""

    @override
    def emit(self, record: logging.LogRecord) -> None:
        saying.warn(record.getMessage())


def _run() -> None:
    try:
        code = app(sys.argv[1:] or ["--help"], standalone_mode=False)
        sys.stdout.flush()
    except PolyarchError as error:
        _fail(str(error))
    except KeyboardInterrupt:
        sys.exit(130)
    except OSError as error:
        if error.filename is None:
            _drop_output()
        if isinstance(error, BrokenPipeError):  # the reader has seen enough
            sys.exit(141)
        where = error.filename or "standard output"
        _fail(f"{where}: {error.strerror or error}; check the path, its permissions and the disk")
    except Exception as error:
        if is_lack_of_memory(error):
            _fail("not enough memory; stop what else runs here, or use a machine with more")
        if not hasattr(error, "format_message"):  # a fault of ours: the traceback is wanted
            raise
        old = getattr(error, "option_name", "")
        if old in RENAMED:
            _fail(f"the option {old} is now {RENAMED[old]}")
        _fail(f"{error.format_message().rstrip('.')} (see `polyarch {_verb(getattr(error, 'ctx', None))}--help`)")
    sys.exit(code if isinstance(code, int) else 0)


def _verb(context: Any) -> str:
    """The words of the command in which something was wrong, each with a space after it; none of `polyarch` alone."""
    if context is None or context.parent is None:
        return ""
    return f"{_verb(context.parent)}{context.info_name} "


def _fail(text: str) -> NoReturn:
    if saying.is_verbose():
        traceback.print_exc()
    last_word(" ".join(text.split()))
    sys.exit(2)


def _drop_output() -> None:
    """Sends what is still to be written to standard output nowhere, lest Python complain when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
