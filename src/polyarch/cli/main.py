"""The `polyarch` command."""

from __future__ import annotations

import sys

import typer

from polyarch.cli.doctor import doctor
from polyarch.cli.evaluate import evaluate
from polyarch.cli.listing import list_all
from polyarch.cli.predict import predict
from polyarch.cli.report import report
from polyarch.cli.search import search
from polyarch.cli.show import show
from polyarch.errors import PolyarchError

app = typer.Typer(
    name="polyarch",
    help="Learn a distribution over neural architectures in one training run, then use it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("list")(list_all)
for verb in (doctor, search, show, evaluate, predict, report):
    app.command()(verb)


def run() -> None:
    """Runs the command; what the user can mend is one line on standard error and exit code 2."""
    try:
        code = app(standalone_mode=False)
    except PolyarchError as error:
        _fail(str(error))
    except KeyboardInterrupt:
        print(
            "polyarch: interrupted; a search goes on with `polyarch search --resume --out FOLDER`",
            file=sys.stderr,
        )
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(141)
    except Exception as error:
        if type(error).__name__ == "OutOfMemoryError":
            _fail("the device ran out of memory; lower batch_size, width or max_depth, or see `polyarch doctor`")
        if not hasattr(error, "format_message"):  # a fault of ours: the traceback is wanted
            raise
        _fail(f"{error.format_message()} (see `polyarch --help`)")
    sys.exit(code if isinstance(code, int) else 0)


def _fail(text: str) -> None:
    print("polyarch: " + " ".join(text.split()), file=sys.stderr)
    sys.exit(2)
