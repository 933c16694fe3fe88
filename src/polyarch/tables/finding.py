"""Where tables are: at a path, or by name in the folders of `POLYARCH_TABLES` and in the library itself.

A measured table is a .npz file. One that predicts is a folder with a model, an .onnx file, and its `encoding.json`.
"""

from __future__ import annotations

import os
from pathlib import Path

from polyarch.data.files import read_npz
from polyarch.errors import PolyarchError, unknown
from polyarch.tables.surrogate import ENCODING, Surrogate
from polyarch.tables.table import NAMES, Table

VARIABLE = "POLYARCH_TABLES"
ENDING = ".npz"
MODEL_ENDING = ".onnx"
OWN = Path(__file__).parent
"""The folder of the tables that come with the library."""


def open_table(name: str | os.PathLike[str]) -> Table | Surrogate:
    """Opens a table, given by name or path: a `Table`, or of a model a `Surrogate`; nothing pickled is ever loaded."""
    path = find_table(name)
    return Surrogate(path) if path.suffix == MODEL_ENDING else read_table(path)


def read_table(name: str | os.PathLike[str]) -> Table:
    """Reads a measured table, given by name or path."""
    path = find_table(name)
    if path.suffix == MODEL_ENDING:
        raise PolyarchError(f"{path}: it predicts, and keeps no rows to go through; ask it for some architectures")

    def wanted(present: list[str]) -> list[str]:
        return present if any(named in present for named in NAMES) else [*present, NAMES[0]]

    return Table(str(path), read_npz(str(path), wanted, "arch=TEXTS, NAME=NUMBERS, ..."))


def find_table(name: str | os.PathLike[str]) -> Path:
    """The file of a table: a path, or a name such as `nasbench201` for nasbench201.npz in a folder of tables."""
    path = Path(name).expanduser()
    if path.is_file():
        return path
    if os.sep in os.fspath(name):
        raise PolyarchError(f"{path}: no such table; check the path")
    known = known_tables()
    bare = path.name.removesuffix(ENDING)
    if bare in known:
        return known[bare]
    raise PolyarchError(
        f"{unknown('table', bare, known)}; or set {VARIABLE} to the folder that holds {bare}{ENDING}, or give a path"
    )


def known_tables() -> dict[str, Path]:
    """The files in the folders of tables, by name; of two that have the same, the first folder's; our own is last."""
    found: dict[str, Path] = {}
    for folder in _folders():
        for path in sorted(folder.glob(f"*{ENDING}")):
            found.setdefault(path.name.removesuffix(ENDING), path)
        for encoding in sorted(folder.glob(f"*/{ENCODING}")):
            models = sorted(encoding.parent.glob(f"*{MODEL_ENDING}"))
            if len(models) == 1:
                found.setdefault(encoding.parent.name, models[0])
    return found


def _folders() -> list[Path]:
    return [*(Path(part).expanduser() for part in os.environ.get(VARIABLE, "").split(os.pathsep) if part), OWN]
