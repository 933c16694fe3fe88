"""The command line, called as a user would: in this process where it can be, since importing torch takes seconds."""

import io
import json
import re
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from polyarch.cli.main import run
from polyarch.runs.run import WEIGHTS, read_history
from polyarch.training import checkpoints

POLYARCH = str(Path(sys.executable).with_name("polyarch"))

SPIRALS = ("--data", "spirals", "--set", "points=60", "--set", "test_points=40", "--set", "select=0.3")
AS_LISTED = ("--set", "by_data=false")
"""Settings that are not set have the defaults of their classes, as in Python."""
SMALL = ("--set", "max_depth=2", "--set", "width=4", "--set", "batch_size=20", "--device", "cpu", *AS_LISTED)
TINY = (*SPIRALS, *SMALL, "--set", "epochs=6")
"""A search of a fifth of a second."""


@dataclass(frozen=True)
class Said:
    code: int
    out: str
    err: str

    @property
    def json(self):
        """The one JSON object on standard output."""
        assert self.code == 0, self.err
        assert self.out.count("\n") == 1
        return json.loads(self.out, parse_constant=lambda name: AssertionError(f"{name} is no JSON"))


READING = re.compile(r"^\w+: reading .*\n")
"""What is said meanwhile, where reading takes long, as on a machine that is busy."""


def cli(*arguments) -> Said:
    """What a command printed, and its exit code."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with (
        patch.object(sys, "argv", ["polyarch", *map(str, arguments)]),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            run()
        except SystemExit as ended:
            code = ended.code
    return Said(code, out.getvalue(), err.getvalue())


def refused(*arguments, says=()) -> Said:
    """A command that must fail by one line on standard error that holds these fragments, with exit code 2."""
    said = cli(*arguments)
    assert said.code == 2, said
    assert said.out == ""
    check_one_line(READING.sub("", said.err), says)
    return said


def check_one_line(err: str, says=()):
    assert err.startswith("polyarch: "), err
    assert err.count("\n") == 1, err
    assert err.endswith("\n")
    for fragment in (says,) if isinstance(says, str) else says:
        assert fragment in err, err


def files(folder: Path) -> dict[str, bytes]:
    """Everything beneath a folder."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def assert_same_run(one: Path, other: Path):
    """Weights, belief and metrics must be bit-equal, times aside."""
    (ours, our_numbers), (theirs, their_numbers) = (checkpoints.load(folder / WEIGHTS) for folder in (one, other))
    assert our_numbers == their_numbers
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        assert value.numpy().tobytes() == theirs[name].numpy().tobytes(), name
    assert timeless(one) == timeless(other)
    for name in ("architecture.json", "distribution.json"):
        assert (one / name).read_bytes() == (other / name).read_bytes()
    assert not [path for folder in (one, other) for path in folder.rglob(".*")], "a part was left behind"


def timeless(folder: Path) -> list:
    history = read_history(folder)
    assert len(history) == len((folder / "metrics.jsonl").read_text().splitlines())
    return [{k: v for k, v in line.items() if k != "seconds"} for line in history]
