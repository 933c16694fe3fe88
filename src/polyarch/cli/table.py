"""`polyarch table`: ground truth of a benchmark, looked up and made."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from polyarch.cli.options import Json, Set

if TYPE_CHECKING:
    from torch import Tensor

    from polyarch.spaces.base import Space
    from polyarch.tables import Benchmark, Column, Surrogate, Table
    from polyarch.tables.columns import Better

app = typer.Typer(name="table", help="Ground truth of a benchmark, or predictions: look it up, or make it from a CSV.")

TableName = Annotated[
    str,
    typer.Option("--table", help="A .npz file, a model (.onnx), or the name of one: see `polyarch table info`."),
]
ColumnName = Annotated[str, typer.Option("--column", help="Which numbers; see `polyarch table info`.")]
SpaceName = Annotated[
    str | None, typer.Option("--space", help="The table's space: see `polyarch list`; or package.module:Class.")
]


def _names(about: str) -> Any:
    return typer.Option(metavar="COLUMN", help=f"{about} May be repeated.")


@app.command()
def info(
    table: Annotated[
        str | None,
        typer.Option("--table", help="A .npz file, or a name; without it, those in POLYARCH_TABLES and the library's."),
    ] = None,
    space: SpaceName = None,
    settings: Set = [],  # noqa: B006
    as_json: Json = False,
) -> None:
    """What a table holds, and how much of a space; or which tables there are."""
    from polyarch.errors import PolyarchError
    from polyarch.tables import Surrogate, Table, open_table

    if table is None:
        if space:
            raise PolyarchError("--space without --table; name the table whose coverage is wanted")
        _list(as_json)
        return
    opened = open_table(table)
    covered = asdict(opened.coverage(_space(space, settings))) if space else None
    if as_json:
        print(json.dumps(_facts(opened) | ({"space": space, "coverage": covered} if space else {})))
        return
    if isinstance(opened, Surrogate):
        _print_wrapped(f"{opened.where}: no rows, but a model that predicts for the space {opened.space.name}")
    else:
        _print_wrapped(f"{opened.where}: {len(opened):,} architectures, such as {opened.architectures[0]}")
    _print_columns(opened)
    if isinstance(opened, Table) and opened.others:
        shapes = (f"{name} {list(array.shape)}" for name, array in opened.others.items())
        _print_wrapped(f"other arrays: {', '.join(shapes)}")
    if covered:
        known = "have a row" if isinstance(opened, Table) else "are known"
        _print_wrapped(_coverage_in_words(str(space), covered, known))


@app.command()
def query(
    table: TableName,
    arch: Annotated[list[str], typer.Option("--arch", metavar="TEXT", help="An architecture. May be repeated.")],
    column: Annotated[
        str | None, typer.Option("--column", help="Which numbers; see `polyarch table info`. [default: all]")
    ] = None,
    space: SpaceName = None,
    settings: Set = [],  # noqa: B006
    as_json: Json = False,
) -> None:
    """The numbers of some architectures.

    With --space, a text may be written in any way the space reads; without, exactly as in the table, or as the space
    of what predicts reads it.
    """
    from polyarch.tables import open_table

    opened = open_table(table)
    found = _looked_up(opened, _space(space, settings) if space else None, arch, column)
    if column is None:
        _print_all(opened, arch, found, as_json)
    else:
        _print_found(opened, opened.column(column), list(zip(arch, found[column], strict=True)), as_json)


@app.command()
def best(
    table: TableName,
    column: ColumnName,
    top: Annotated[int, typer.Option("--top", help="How many.")] = 10,
    lower: Annotated[
        bool | None, typer.Option("--lower/--higher", help="Which direction is better, where the table does not say.")
    ] = None,
    as_json: Json = False,
) -> None:
    """The best architectures by a column."""
    from polyarch.tables import read_table

    opened = read_table(table)
    better: Better | None = None if lower is None else "lower" if lower else "higher"
    _print_found(opened, opened.column(column), opened.best(column, top, better), as_json)


@app.command()
def convert(
    file: Annotated[Path, typer.Argument(metavar="FILE.csv", help="Architecture texts and numbers, with a header.")],
    out: Annotated[Path, typer.Option("--out", metavar="FILE.npz", help="The table to write; must not exist.")],
    arch: Annotated[
        str | None,
        typer.Option("--arch", metavar="COLUMN", help="The column of texts. [default: arch, or else module_hash]"),
    ] = None,
    valid: Annotated[list[str], _names("Measured on validation data.")] = [],  # noqa: B006
    test: Annotated[list[str], _names("Measured on test data.")] = [],  # noqa: B006
    higher: Annotated[list[str], _names("More is better.")] = [],  # noqa: B006
    lower: Annotated[list[str], _names("Less is better.")] = [],  # noqa: B006
    as_json: Json = False,
) -> None:
    """Make a table from a CSV.

    What is not said of a column follows from its name: val or test, acc or loss, time, params, flops.
    """
    from polyarch.tables.converting import convert as write

    written = write(file, out, arch=arch, valid=valid, test=test, higher=higher, lower=lower)
    if as_json:
        print(json.dumps(_facts(written)))
        return
    _print_wrapped(f"{written.where}: {len(written):,} architectures")
    _print_columns(written)


def _space(name: str, settings: Sequence[str]) -> Space:
    from polyarch.cli.choices import make_space

    return make_space(name, settings)


def _looked_up(
    table: Table | Surrogate, space: Space | None, texts: Sequence[str], column: str | None
) -> dict[str, list[float]]:
    """Numbers by column, of all columns also where some are not finite; raises where an architecture is not known."""
    import torch

    from polyarch.tables import Surrogate

    def choices_in(space: Space) -> Tensor:
        return torch.tensor([space.parse(text).choices for text in texts])

    names = list(table.columns) if column is None else [column]
    if isinstance(table, Surrogate):
        made = space or table.space
        return {name: table.values(name, made, choices_in(made)).tolist() for name in names}
    rows = table.rows_of(space, choices_in(space)) if space else table.rows(texts)
    return {name: (table.whole(name) if column else table.with_gaps(name))[rows].tolist() for name in names}


def _list(as_json: bool) -> None:
    from polyarch.tables import known_tables

    known = {name: str(path) for name, path in known_tables().items()}
    if as_json:
        print(json.dumps({"tables": known}))
        return
    for name, path in known.items():
        print(f"{name:<24} {path}")


def _facts(table: Table | Surrogate) -> dict[str, Any]:
    from polyarch.tables import Table

    others = table.others if isinstance(table, Table) else {}
    return {
        "table": table.where,
        "rows": len(table) if isinstance(table, Table) else None,
        "columns": {name: _meaning(c) | _range(table, [name]) for name, c in table.columns.items()},
        "other_arrays": {name: list(array.shape) for name, array in others.items()},
    }


def _meaning(column: Column) -> dict[str, Any]:
    return {"split": column.split, "better": column.better, "about": column.about}


def _range(table: Benchmark, names: Sequence[str]) -> dict[str, Any]:
    """Least and greatest finite number of some columns, and how many rows have none in one of them."""
    import numpy as np

    numbers = np.stack([table.with_gaps(name) for name in names], -1)
    finite = np.isfinite(numbers)
    least, greatest = (float(numbers[finite].min()), float(numbers[finite].max())) if finite.any() else (None, None)
    return {"least": least, "greatest": greatest, "gaps": int((~finite.all(-1)).sum())}


def _arrays(table: Benchmark) -> dict[str, list[Column]]:
    """The columns of every array that has some."""
    arrays: dict[str, list[Column]] = {}
    for column in table.columns.values():
        arrays.setdefault(column.array, []).append(column)
    return arrays


def _print_columns(table: Benchmark) -> None:
    """One line an array; the columns of an array with several are listed below."""
    from rich.table import Table as Grid

    from polyarch.tables.columns import abridged

    arrays = _arrays(table)
    grid = Grid(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for title in ("column", "split", "better"):
        grid.add_column(title, overflow="fold")
    for title in ("least", "greatest", "gaps"):
        grid.add_column(title, justify="right", no_wrap=True)
    for name, columns in arrays.items():
        found = _range(table, [column.name for column in columns])
        grid.add_row(
            name if columns[0].label is None else f"{name}[...]",
            columns[0].split or "-",
            columns[0].better or "-",
            *("-" if found[end] is None else f"{found[end]:.6g}" for end in ("least", "greatest")),
            f"{found['gaps']:,}" if found["gaps"] else "-",
        )
    print()
    _console().print(grid)
    print()
    for name, columns in arrays.items():
        if columns[0].label is not None:
            _print_wrapped(f"{name}[...]: {abridged([str(column.label) for column in columns])}")
        if columns[0].about:
            _print_wrapped(f"{name}: {columns[0].about}")


def _print_all(table: Benchmark, asked: Sequence[str], numbers: dict[str, list[float]], as_json: bool) -> None:
    """Every column of the architectures asked for; null, or a dash, where one has no finite number."""
    found = [(text, {name: _finite(own[k]) for name, own in numbers.items()}) for k, text in enumerate(asked)]
    if as_json:
        values = [{"arch": text, "values": own} for text, own in found]
        predicted = [name for name, column in table.columns.items() if column.predicted]
        print(json.dumps({"table": table.where, "predicted": predicted, "values": values}))
        return
    for place, (text, own) in enumerate(found):
        if place:
            print()
        _print_wrapped(text)
        _console().print(_one_row(table, own))


def _finite(number: float) -> float | None:
    return float(number) if math.isfinite(number) else None


def _one_row(table: Benchmark, numbers: dict[str, float | None]) -> Any:
    """One line a column; the columns of an array with several share one, and the middle of many is left out."""
    from rich.table import Table as Grid

    from polyarch.tables.columns import abridged

    grid = Grid(box=None, pad_edge=False, show_header=False)
    for _ in ("array", "numbers"):
        grid.add_column(overflow="fold")
    for array, columns in _arrays(table).items():
        shown = {c.label: "-" if numbers[c.name] is None else f"{numbers[c.name]:.8g}" for c in columns}
        if None in shown:
            grid.add_row(array, shown[None], *(["predicted"] if columns[0].predicted else []))
        else:
            grid.add_row(f"{array}[...]", abridged([f"{label}: {number}" for label, number in shown.items()]))
    return grid


def _print_found(table: Benchmark, column: Column, found: Sequence[tuple[str, float]], as_json: bool) -> None:
    if as_json:
        values = [{"arch": text, "value": value} for text, value in found]
        print(json.dumps({"table": table.where, "column": column.name, **_meaning(column), "values": values}))
        return
    from rich.table import Table as Grid

    direction = f"{column.better} is better" if column.better else "direction unknown"
    split = f"{column.split} split" if column.split else "no split"
    _print_wrapped(f"{column.name}: {'a prediction' if column.predicted else split}, {direction}")
    grid = Grid(box=None, pad_edge=False, show_header=False)
    grid.add_column(justify="right", no_wrap=True)
    grid.add_column(overflow="fold")
    for text, value in found:
        grid.add_row(f"{value:.8g}", text)
    _console().print(grid)


def _coverage_in_words(space: str, covered: dict[str, Any], known: str) -> str:
    words = f"space {space}: {covered['covered']:,} of {covered['architectures']:,} architectures {known}"
    if covered["missing"]:
        words += f"; among those without: {', '.join(covered['missing'])}"
    if covered["foreign"]:
        words += f"; {covered['foreign']:,} rows are of no architecture of the space"
    return words


def _print_wrapped(text: str) -> None:
    _console().print(text, overflow="fold")


def _console() -> Any:
    from rich.console import Console

    return Console(highlight=False, markup=False)
