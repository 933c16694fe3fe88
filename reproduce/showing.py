"""What all experiments share: how they are asked for, rows of results in files, tables in Markdown, and figures.

An experiment yields rows: plain dictionaries of labels, a seed and numbers. They are kept in small JSON files in
docs/results, with the command and the machine; tables and figures come from these files alone.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import shlex
import statistics
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from polyarch.plotting import CARD, VARIABLES, grid, style, to_svg

RESULTS = Path(__file__).parent.parent / "docs" / "results"
NOTHING = "–"
"""What a table shows where there is no number."""
Row = dict[str, Any]
Value = str | Callable[[Row], float | None]
"""A number of a row: its name, or how it follows from the row."""


# ---------------------------------------------------------------------------------------------------------------------
# How an experiment is asked for.


def parser_of(doc: str | None) -> argparse.ArgumentParser:
    """A command line that is explained by a module's docstring, as it stands there."""
    return argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)


def sized_parser(doc: str | None, name: str, *shows: str, **amounts: tuple[int, int]) -> argparse.ArgumentParser:
    """The command line of an experiment that is run --quick or --full.

    Args:
        doc: the module's docstring.
        name: its folder in docs/results; runs/ has that of a quick run.
        shows: flags that show what there is in place of running it.
        amounts: numbers, by default for --quick and for --full.
    """
    parser, is_quick = parser_of(doc), "--quick" in sys.argv
    size = parser.add_mutually_exclusive_group(required=True)
    for flag in ("quick", "full"):
        size.add_argument(f"--{flag}", action="store_true")
    for flag in shows:
        some: Any = (
            {"nargs": "?", "const": "all", "metavar": "NAMES"} if flag == "figures" else {"action": "store_true"}
        )
        size.add_argument(f"--{flag}", **some, help="show what there is, and stop")
    for amount, (quick, full) in amounts.items():
        words = f"default: {full}, or {quick} for --quick"
        parser.add_argument(f"--{amount}", type=int, default=quick if is_quick else full, help=words)
    parser.add_argument("--out", type=Path, default=(Path("runs") if is_quick else RESULTS) / name, help="folder")
    return parser


def chosen(
    parser: argparse.ArgumentParser, what: str, asked: str, known: Sequence[str], between: str = ","
) -> list[str]:
    """Names that were asked for: all that are known where it was `all`."""
    names = list(known) if asked == "all" else asked.split(between)
    if unknown := set(names) - set(known):
        parser.error(f"no {what} {', '.join(sorted(unknown))}; there are {f'{between} '.join(known)}")
    return names


# ---------------------------------------------------------------------------------------------------------------------
# Rows in files.


def machine(device: str = "cpu") -> str:
    """What numbers were made on."""
    cpu = f"{platform.machine()} CPU, {torch.get_num_threads()} threads"
    what = torch.cuda.get_device_name() if device == "cuda" else cpu
    return f"{what}, torch {torch.__version__}, Python {platform.python_version()}"


def command(*private: str) -> str:
    """How to run this again; where images and tables lie, where results went and private options are left out."""
    words = shlex.join(sys.argv[1:])
    for option in ("out", *private):
        words = re.sub(rf"\s*--{option}[= ]\S+", "", words)
    words = re.sub(r"--images[= ]\S+", "--images FOLDER", words)
    words = re.sub(r"--table[= ]\S*/(\w+)\.npz", r"--table \1", words)
    return f"python -m reproduce.{Path(sys.argv[0]).stem} {words.strip()}".strip()


def keep(
    file: Path,
    rows: Iterable[Row],
    *private: str,
    device: str = "cpu",
    say: Callable[[Row], str] | None = None,
    **more: Any,
) -> None:
    """Writes rows as they come, so that what is cut short is not lost.

    Args:
        file: of JSON.
        rows: what the experiment yields.
        private: options that are nobody's business, as for `command`.
        device: on which it runs.
        say: what is printed of a row.
        more: what else is kept beside the rows.
    """
    found: Row = {**more, "command": command(*private), "machine": machine(device), "rows": []}
    file.parent.mkdir(parents=True, exist_ok=True)
    for row in rows:
        found["rows"].append(row)
        file.write_text(json.dumps(found) + "\n", encoding="utf-8")
        if say is not None:
            print(say(row), flush=True)


def about(part: Callable[..., Any]) -> str:
    """The docstring of a part, in one line; it is kept beside the rows."""
    return " ".join((part.__doc__ or "").split())


@dataclass(frozen=True)
class Part:
    """The rows of one part of an experiment, or of several."""

    rows: tuple[Row, ...]
    """As they were kept; and of each its `part`, and `made_by`, the command and the machine."""

    def having(self, **labels: Any) -> list[Row]:
        """The rows with these labels."""
        return [row for row in self.rows if all(row.get(name) == value for name, value in labels.items())]

    def values_of(self, name: str, **labels: Any) -> list[Any]:
        """What a label takes in the rows with these labels: numbers by size, words as they come."""
        found = list(dict.fromkeys(row[name] for row in self.having(**labels) if name in row))
        return found if any(isinstance(value, str) for value in found) else sorted(found)

    def groups(self, *names: str, **labels: Any) -> dict[tuple[Any, ...], list[Row]]:
        """The rows with these labels by what others take, as they come."""
        return grouped(self.having(**labels), *names)

    @property
    def source(self) -> str:
        """The commands and machines of all rows."""
        return "; ".join(self.values_of("made_by"))

    @property
    def seeds(self) -> str:
        """All seeds."""
        return f"Seeds {', '.join(map(str, self.values_of('seed')))}"


def grouped(rows: Iterable[Row], *names: str) -> dict[tuple[Any, ...], list[Row]]:
    """Rows by labels, as they come."""
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row[name] for name in names), []).append(row)
    return found


def read(folder: Path, *names: str) -> Part | None:
    """All rows of the files of these names, as far as they are there; None where none is."""
    rows: list[Row] = []
    for name in names:
        if (file := folder / f"{name}.json").exists():
            found = json.loads(file.read_text(encoding="utf-8"))
            made_by = f"`{found['command']}` on {found['machine']}"
            rows += [{**row, "part": name, "made_by": made_by} for row in found["rows"]]
    return Part(tuple(rows)) if rows else None


# ---------------------------------------------------------------------------------------------------------------------
# Tables.


def mean_sd(values: Iterable[float | None], digits: int) -> str:
    """Mean ± standard deviation of the numbers that there are; of one, itself."""
    given = [value for value in values if value is not None]
    if not given:
        return NOTHING
    mean = f"{statistics.fmean(given):.{digits}f}".replace("-", "−")
    return mean if len(given) == 1 else f"{mean} ± {statistics.stdev(given):.{digits}f}"


def over(rows: Iterable[Row], value: Value, digits: int, times: float = 1) -> str:
    """Mean ± standard deviation of a number over rows."""
    found = (row.get(value) if isinstance(value, str) else value(row) for row in rows)
    return mean_sd([None if number is None else times * number for number in found], digits)


def as_table(head: Sequence[str], lines: Iterable[Sequence[str]], left: int = 1) -> str:
    """A table; all columns but the first `left` are numbers, and lean right. Nothing where there are no lines."""
    lines = list(lines)
    if not lines:
        return ""
    rule = [":--" if k < left else "--:" for k in range(len(head))]
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, rule, *lines))


Columns = Mapping[str, tuple[Value, int] | tuple[Value, int, float]]
"""Titles of columns, and what `over` makes of the rows there."""


def mean_table(head: Sequence[str], groups: Mapping[Any, Sequence[Row]], columns: Columns, left: int = 1) -> str:
    """One line per group of rows: its labels under `head`, and numbers over its rows."""
    lines = [
        [*map(str, labels if isinstance(labels, tuple) else (labels,)), *(over(rows, *how) for how in columns.values())]
        for labels, rows in groups.items()
    ]
    return as_table([*head, *columns], lines, left)


class Section(NamedTuple):
    """A table of a page, or several."""

    title: str
    parts: tuple[str, ...]
    """What it is made from; one of them is enough."""
    make: Callable[[Part], str]
    note: str = ""
    """How to read it."""
    needs: str = "part"
    """What a row must have to be in it."""


Reader = Callable[..., Part | None]


def page(folder: Path, sections: Iterable[Section], reader: Reader = read, *, seeds: bool = False) -> str:
    """All tables that there are rows for; after those of the same parts, where they come from."""
    texts = []
    for (parts, needs), own in groupby(sections, lambda section: (section.parts, section.needs)):
        part = reader(folder, *parts)
        if part is None or not (rows := tuple(row for row in part.rows if needs in row)):
            texts.append(f"(not run: {', '.join(parts)})")
            continue
        part = Part(rows)
        for title, _, make, note, _ in own:
            note = f"{note} {part.seeds}.".strip() if seeds else note
            texts += [text for text in (f"### {title}", note, make(part)) if text]
        texts.append(part.source)
    return "\n\n".join(texts) + "\n"


# ---------------------------------------------------------------------------------------------------------------------
# Figures.

FONT = "'DejaVu Sans', Verdana, 'Helvetica Neue', Arial, sans-serif"
DOTS = 110
"""Per inch of a PNG file."""


def canvas(
    width: float, height: float, rows: int = 1, columns: int = 1, *, room: Sequence[Any], lines: str = "y", **more: Any
) -> tuple[Figure, Any]:
    """A figure of so many inches and its panels [rows, columns].

    `room` has left, bottom, right and top of all panels as shares, and what is between columns and between rows;
    `lines` are what values are read by; `more` is for matplotlib's subplots.
    """
    figure = Figure(figsize=(width, height))
    panels = figure.subplots(rows, columns, squeeze=False, **more)
    figure.subplots_adjust(*room)
    for axes in panels.flat:
        grid(axes, lines)
    return figure, panels


def band(axes: Axes, x: Any, mean: Any, low: Any, high: Any, colour: str, alpha: float = 0.15, **options: Any) -> None:
    """A line, and around it where others lie."""
    axes.fill_between(x, low, high, color=colour, alpha=alpha, linewidth=0)
    axes.plot(x, mean, **{"color": colour, "linewidth": 1.3, **options})


def note(axes: Axes, text: str, at: tuple[Any, Any], shift: tuple[float, float], colour: str, **options: Any) -> None:
    """Writes beside a point of the data, so many points away."""
    axes.annotate(text, at, shift, textcoords="offset points", color=colour, **options)


def standalone(figure: Figure, name: str, title: str) -> str:
    """A figure as an SVG file of its own: light, with its size, a title, and fonts by name."""
    svg = str(to_svg(figure, name, smooth=True))
    for variable, colour in VARIABLES.items():
        svg = svg.replace(f"var(--{variable})", colour)
    width, height = (f"{72 * inches:g}" for inches in figure.get_size_inches())
    opening = (
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" role="img" '
        f'viewBox="0 0 {width} {height}" width="{width}pt" height="{height}pt" font-family="{FONT}">\n'
        f'<title>{title}</title>\n<rect width="100%" height="100%" fill="{CARD}"/>'
    )
    return opening + svg[svg.index(">") + 1 :] + "\n"


def save(file: Path, make: Callable[[], Figure], title: str = "") -> Path:
    """Draws a figure in the look of all figures, into an SVG or a PNG file."""
    with style():
        figure = make()
        if file.suffix == ".svg":
            file.write_text(standalone(figure, file.stem, title), encoding="utf-8")
        else:
            figure.savefig(file, dpi=DOTS, facecolor=CARD, metadata={"Software": None})
    print(f"{file.stem}: {file}, {file.stat().st_size / 1000:.0f} kB", flush=True)
    return file


class Drawing(NamedTuple):
    """A figure, and what it is made from."""

    make: Callable[[Part], Figure]
    parts: tuple[str, ...]
    """One of them is enough."""
    title: str = ""
    """Of an SVG file."""


def draw(folder: Path, drawings: Mapping[str, Drawing], kind: str, reader: Reader = read) -> list[Path]:
    """Writes all figures that there are rows for into the folder of the rows; returns their files."""
    files = []
    for name, (make, parts, title) in drawings.items():
        part = reader(folder, *parts)
        if part is None:
            print(f"{name}: no rows of {' or '.join(parts)}, skipped", flush=True)
        else:
            files.append(save(folder / f"{name}.{kind}", partial(make, part), title))
    return files
