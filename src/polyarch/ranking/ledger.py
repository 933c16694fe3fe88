"""What scores said, kept in a folder as it comes, so that a ranking which was killed goes on."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from polyarch.errors import PolyarchError
from polyarch.files import LOCK, append, cannot_write, locked, make_folder, read_json, write_json

ABOUT = "rank.json"
SCORES = "scores.jsonl"


@dataclass(frozen=True)
class Evaluation:
    """What one score said of one architecture."""

    architecture: str
    score: str
    """The name that it has in this ranking."""
    value: float | None
    """None where it is not finite."""
    seconds: float


class Ledger:
    """All evaluations of a ranking; in memory, and in a folder where there is one."""

    def __init__(self, path: Path | None = None) -> None:
        """Reads what the file has; a last line that was not written whole is cut off."""
        self._path = path
        self._known: dict[tuple[str, str], Evaluation] = {}
        if path and path.exists():
            self._read(path)

    def get(self, architecture: str, score: str) -> Evaluation | None:
        """What is known."""
        return self._known.get((architecture, score))

    def add(self, evaluations: Iterable[Evaluation]) -> None:
        """Keeps those that are not known yet, a line each."""
        evaluations = [each for each in evaluations if (each.architecture, each.score) not in self._known]
        if self._path:
            append(self._path, "".join(json.dumps(asdict(each), allow_nan=False) + "\n" for each in evaluations))
        self._known |= {(each.architecture, each.score): each for each in evaluations}

    def _read(self, path: Path) -> None:
        whole = 0
        for number, line in enumerate(path.read_bytes().splitlines(keepends=True), start=1):
            if not line.endswith(b"\n"):
                break
            whole += len(line)
            try:
                evaluation = Evaluation(**json.loads(line))
            except (ValueError, TypeError):
                raise PolyarchError(
                    f"{path}: line {number} is damaged; remove that line, and its score is worked out again"
                ) from None
            self._known[evaluation.architecture, evaluation.score] = evaluation
        try:
            os.truncate(path, whole)
        except OSError as error:
            raise cannot_write(path, error) from error


@contextmanager
def open_ledger(folder: Path | None, about: dict[str, Any]) -> Iterator[Ledger]:
    """The ledger of a ranking; a new one, or that of the same ranking before it was interrupted.

    Args:
        folder: new, empty, or with a ranking of the same arguments; None keeps everything in memory.
        about: the arguments that evaluations depend on, as plain values.
    """
    if folder is None:
        yield Ledger()
        return
    if not (folder / ABOUT).exists() and folder.exists() and not all(map(_is_trace, folder.iterdir())):
        raise PolyarchError(f"{folder} exists and holds no ranking; choose another --out")
    make_folder(folder)
    with locked(folder):
        if (folder / ABOUT).exists():
            _check_same(folder, about)
        else:
            write_json(folder / ABOUT, about)
        yield Ledger(folder / SCORES)


def _is_trace(path: Path) -> bool:
    """Whether a file is what a ranking leaves that was killed before it began."""
    return path.name == LOCK or path.name.startswith(f".{ABOUT}.")


def _check_same(folder: Path, about: dict[str, Any]) -> None:
    """Raises where the folder has a ranking with other arguments."""
    before = read_json(folder / ABOUT)
    plain = json.loads(json.dumps(about))
    differing = [name for name in before.keys() | plain.keys() if before.get(name) != plain.get(name)]
    if differing:
        raise PolyarchError(
            f"{folder} holds a ranking with other arguments ({', '.join(sorted(differing))}); choose another --out, or "
            "give the same arguments to go on with it"
        )
