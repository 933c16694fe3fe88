"""`polyarch compare`: methods over seeds, at equal budget, by many workers."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from polyarch.cli.options import Json, Set
from polyarch.cli.saying import tell
from polyarch.cli.waiting import spinning, waiting

if TYPE_CHECKING:
    from polyarch.runs.grid import Question
    from polyarch.runs.standings import Comparison


def compare(
    out: Annotated[
        Path,
        typer.Option("--out", help="Folder for the comparison; given alone, the one in it is gone on with."),
    ],
    methods: Annotated[
        str | None, typer.Option("--methods", metavar="M,M,...", help="See `polyarch list`; or package.module:Class.")
    ] = None,
    spaces: Annotated[
        str | None,
        typer.Option(
            "--spaces", metavar="S,S,...", help="See `polyarch list`; or package.module:Class. [default: depth]"
        ),
    ] = None,
    data: Annotated[
        str | None, typer.Option("--data", help="A name (see `polyarch list`), or a file or folder. [default: digits]")
    ] = None,
    seeds: Annotated[
        str | None, typer.Option("--seeds", metavar="K..K", help="From one to another, or K,K,... [default: 0..4]")
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(
            "--budget",
            metavar="EXAMPLES",
            help="That a run may pass forward and backward, with training what it selects. [default: what the method "
            "takes that asks for least]",
        ),
    ] = None,
    device: Annotated[str | None, typer.Option("--device", help="auto, cpu or cuda. [default: auto]")] = None,
    precision: Annotated[
        str | None, typer.Option("--precision", help="float32, or bfloat16 on a CUDA device. [default: float32]")
    ] = None,
    workers: Annotated[
        int | None, typer.Option("--workers", metavar="N", help="Runs at once. [default: as many as fit]")
    ] = None,
    cpus: Annotated[int | None, typer.Option("--cpus", metavar="N", help="Processors of a run. [default: 1]")] = None,
    gpus: Annotated[
        float | None,
        typer.Option("--gpus", metavar="X", help="GPUs of a run, or a share of one. [default: 1 on CUDA, else 0]"),
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option(
            "--ray",
            metavar="ADDRESS",
            help="Start the workers on a Ray cluster: auto for the one that this machine is in, local for one that is "
            "started here.",
        ),
    ] = None,
    settings: Set = [],  # noqa: B006
    as_json: Json = False,
) -> None:
    """Compare methods over seeds, at equal budget and beside networks that nobody searched for, and write a page."""
    with spinning("polyarch: starting"):
        from dataclasses import replace

        from polyarch.errors import PolyarchError
        from polyarch.report import write_comparison
        from polyarch.runs import compare as comparing
        from polyarch.runs.examples import COMPARISON
        from polyarch.runs.options import Workers

    asked: dict[str, Any] = {
        "--spaces": spaces,
        "--data": data,
        "--seeds": seeds,
        "--budget": budget,
        "--device": device,
    }
    asked |= {"--precision": precision, "--set": settings or None}
    given = [name for name, value in asked.items() if value is not None]
    if methods is None and given:
        raise PolyarchError(f"{given[0]} is for a comparison of some methods; say which with --methods M,M,...")
    if methods is None and not (out / COMPARISON).exists():
        raise PolyarchError(
            f"{out} holds no comparison to go on with; for a new one, say which methods: --methods M,M,..."
        )
    who = Workers(workers, 1 if cpus is None else cpus, gpus, ray)
    try:
        if methods is not None:
            told = (methods, spaces, data, seeds, budget, device, precision, who.cpus, settings)
            question, source, reading = _question(*told)

            def read() -> Any:
                with waiting(f"compare: reading {data or 'digits'}"):
                    return comparing.read_suited(source, reading)[0]

            comparing.begin(out, question, read, comparing.told_of(source))
        elif cpus is not None:
            who = replace(who, cpus=comparing.Grid.read(out).threads)
        found = comparing.carry_on(out, who, lambda text: tell(f"compare: {text}"))
    except KeyboardInterrupt:
        again = f"go on with `polyarch compare --out {shlex.quote(str(out))}`"
        again = again if (out / COMPARISON).exists() else "nothing had been begun yet, so start again"
        print(f"polyarch: interrupted; {again}", file=sys.stderr)
        raise typer.Exit(130) from None
    page = write_comparison(found)
    show_comparison(found, as_json)
    if not as_json:
        print(f"\ncomparison: {page}")


def _question(
    methods: str,
    spaces: str | None,
    data: str | None,
    seeds: str | None,
    budget: float | None,
    device: str | None,
    precision: str | None,
    cpus: int,
    settings: list[str],
) -> tuple[Question, Any, Any]:
    """What is compared, where its data comes from, and which of that's settings were told."""
    from polyarch.cli.choices import choose_each
    from polyarch.runs.grid import Entry, Question
    from polyarch.runs.options import Compute

    pairs = [(space, method) for space in names(spaces or "depth") for method in names(methods)]
    chosen = choose_each(pairs, data or "digits", settings)
    entries = tuple(
        Entry(method, space, one.space, one.method, one.told)
        for (space, method), one in zip(pairs, chosen, strict=True)
    )
    search, source = chosen[0].search, chosen[0].source
    compute = Compute(device or "auto", precision or "float32", search.fast)
    question = Question(
        entries, seeds_of(seeds or "0..4"), budget, search.selection, search.prior or None, compute, cpus
    )
    return question, source, chosen[0].data_told


def names(text: str) -> list[str]:
    """Names between commas, of which those within brackets separate nothing."""
    found, depth = [""], 0
    for character in text:
        depth += (character == "(") - (character == ")")
        if character == "," and not depth:
            found.append("")
        else:
            found[-1] += character
    return list(dict.fromkeys(name.strip() for name in found if name.strip()))


def seeds_of(text: str) -> tuple[int, ...]:
    """`0..9` as ten numbers, `1,5` as two."""
    from polyarch.errors import PolyarchError

    found: list[int] = []
    for part in text.split(","):
        first, dots, last = part.strip().partition("..")
        if not first.isdecimal() or (dots and not last.isdecimal()) or (dots and int(last) < int(first)):
            raise PolyarchError(f"--seeds {text}: write a range such as 0..9, or numbers such as 0,3,5")
        found += range(int(first), int(last or first) + 1)
    return tuple(found)


def show_comparison(found: Comparison, as_json: bool) -> None:
    """Prints what came out: a line for every method and baseline, the best first."""
    from polyarch.cli.metrics import FITS, GAP, HEADERS, print_table

    if as_json:
        print(json.dumps(found.summary()))
        return
    where = {"test": "on test data", "select": "on validation data, optimistic"}.get(found.split, "")
    several = len({row.entrant.space for row in found.rows}) > 1
    names = [f"{row.entrant.name}, {row.entrant.space}" if several else row.entrant.name for row in found.rows]
    labels = [
        f"{row.rank or '-'} {name}{' *' * row.entrant.baseline}" for row, name in zip(found.rows, names, strict=True)
    ]
    columns: list[tuple[str, list[str]]] = [("n", [str(len(row.found)) for row in found.rows])]
    first = found.metrics[:1]
    others = [name for name in HEADERS if name in found.metrics[1:]]
    room = FITS - max(map(len, (where, *labels))) - GAP - 2
    for name in [*first, "", *others]:
        if not name:
            column = ("behind", [_with_error(*row.behind) if row.behind else "" for row in found.rows])
        else:
            column = (
                HEADERS.get(name, name.replace("_", " ")),
                [_with_spread(row.mean(name), row.std(name)) for row in found.rows],
            )
        room -= GAP + max(map(len, (column[0], *column[1])))
        if room < 0 and name not in first:
            break
        columns.append(column)
    lines = [(label, [cells[k] for _, cells in columns]) for k, label in enumerate(labels)]
    print(
        f"{len(found.grid.runs)} runs on {found.grid.data['name']}, a budget of {found.grid.budget:,.0f} examples "
        "each, forward and backward\n"
    )
    print_table(where, [title for title, _ in columns], lines)
    print(f"\n* {_baselines(found)}")
    for row in found.rows:
        for name, why in row.failed.items():
            print(f"{name} failed: {why}", file=sys.stderr)
        if row.waiting:
            print(f"{row.entrant.name}: {row.waiting} runs are not finished", file=sys.stderr)


def _with_spread(mean: float | None, std: float | None) -> str:
    """A mean over seeds, and their standard deviation."""
    return "" if mean is None else f"{mean:.4f}" + ("" if std is None else f" ± {std:.4f}")


def _with_error(mean: float, error: float | None) -> str:
    return f"{mean:.4f}" + ("" if error is None else f" ± {error:.4f}")


def _baselines(found: Comparison) -> str:
    """What the baselines are, each once."""
    told = dict.fromkeys(f"{row.entrant.name}: {row.entrant.about}" for row in found.rows if row.entrant.baseline)
    return "\n  ".join(["there to compare with, at the same budget", *told])
