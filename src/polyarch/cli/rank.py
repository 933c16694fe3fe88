"""`polyarch rank`: how well scores order architectures, compared with the truth."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from polyarch.cli.options import AllowChanged, Json, Limits, Set
from polyarch.cli.saying import on_terminal, tell, warn

if TYPE_CHECKING:
    from polyarch.architecture import Architecture
    from polyarch.data.task import Task, TaskShape
    from polyarch.ranking import Estimate, Ranking, Standing
    from polyarch.runs.run import Run
    from polyarch.scores.base import Candidate, Score
    from polyarch.spaces.base import Space
    from polyarch.tables import Truth

SOURCES = ("uniform", "belief", "table")
SAMPLE = 100
INPUT, CLASSES = "3x32x32", 10
COLUMNS = {
    "Spearman": 20,
    "Kendall": 20,
    "sparse Kendall": 20,
    "top 10": 8,
    "regret": 8,
    "with parameters": 20,
    "seconds": 8,
}
"""Heads and widths of what is printed."""


def rank(
    by: Annotated[
        str,
        typer.Option(
            "--by", metavar="SCORE,...", help="See `polyarch list`; or package.module:Class. Several by commas."
        ),
    ],
    run: Annotated[
        Path | None, typer.Argument(metavar="[RUN]", help="Rank with the weights and data of this search.")
    ] = None,
    space: Annotated[str | None, typer.Option("--space", help="Without RUN: see `polyarch list`.")] = None,
    data: Annotated[
        str | None, typer.Option("--data", help="Without RUN: a name, file or folder, for scores that need data.")
    ] = None,
    inputs: Annotated[
        str | None, typer.Option("--input", metavar="CxHxW", help=f"Without RUN and data. [default: {INPUT}]")
    ] = None,
    classes: Annotated[
        int | None, typer.Option("--classes", min=1, help=f"Without RUN and data. [default: {CLASSES}]")
    ] = None,
    sample: Annotated[
        int | None, typer.Option("--sample", min=1, help=f"Different architectures to draw. [default: {SAMPLE}]")
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            help="uniform: evenly from the space; belief: from what RUN believes; table: those that the table has. "
            "[default: uniform, or table where none is named or it predicts]",
        ),
    ] = None,
    architectures: Annotated[
        Path | None, typer.Option("--architectures", metavar="FILE", help="Rank these instead, one per line.")
    ] = None,
    limit: Limits = [],  # noqa: B006
    table: Annotated[
        str | None,
        typer.Option(
            "--table", help="The truth: a .npz file, a model that predicts it (.onnx), or a name in POLYARCH_TABLES."
        ),
    ] = None,
    column: Annotated[
        str | None, typer.Option("--column", help="Its column. [default: the only one of test accuracy]")
    ] = None,
    seed: Annotated[
        int, typer.Option("--seed", min=0, help="Of the draw, the batches, first weights and resamples.")
    ] = 0,
    resamples: Annotated[int, typer.Option("--resamples", min=1, help="Of the 95 % intervals.")] = 1000,
    device: Annotated[str, typer.Option("--device", help="auto, cpu, cuda or cuda:N.")] = "auto",
    out: Annotated[
        Path | None,
        typer.Option("--out", help="A folder for every score, the figures and a plot; run again, it goes on there."),
    ] = None,
    settings: Set = [],  # noqa: B006
    allow_changed: AllowChanged = False,
    as_json: Json = False,
) -> None:
    """Compare what scores say of architectures with the truth, beside chance and the number of parameters.

    Settings of scores are set like others, SCORE.NAME=VALUE; a bare name is set in every score that has it.
    """
    from polyarch.ranking import rank as compare
    from polyarch.runs.options import computing_on
    from polyarch.tables import find_truth

    given = _given(run, space, data, inputs, classes, by, settings, allow_changed)
    watched = (given.run.config.table, given.run.config.column) if given.run and not table else (table, column)
    truth = find_truth(given.space, watched[0] or None, column or watched[1])
    better = truth.better
    source = source or ("uniform" if watched[0] and not truth.column.predicted else "table")
    chosen, how = _chosen(given, truth, sample, source, architectures, seed, limit)
    numbers = truth.values(chosen)
    candidates = _candidates(given, chosen, truth, seed, device)
    about = _about(given, truth, how, candidates[0])
    if sample and len(chosen) < sample:
        warn(f"there are {len(chosen)} different architectures, not {sample}")
    with _counting() as watch, computing_on(candidates[0].device):
        found = compare(
            candidates,
            given.scores,
            numbers,
            better=better,
            seed=seed,
            resamples=resamples,
            out=out,
            about=about,
            watch=watch,
        )
    told = {**about, "predicted": truth.column.predicted, "seed": seed, "by": list(given.scores), **found.summary()}
    if out:
        _write(out, told, found, truth)
    _say_lost(told["scores"])
    if as_json:
        print(json.dumps(told))
    else:
        _show(found, given, truth, how)


def _say_lost(scores: dict[str, dict[str, Any]]) -> None:
    """Says on standard error which scores had no finite number for some architectures."""
    for name, told in scores.items():
        if "not_finite" in told:
            lost = told["not_finite"]
            warn(f"{name} of {lost} architectures is not finite; they are ranked last")


@dataclass(frozen=True)
class _Given:
    """What a command line says is to be ranked, and by what."""

    run: Run | None
    space: Space
    shape: TaskShape
    task: Task | None
    scores: dict[str, Score]


def _given(
    folder: Path | None,
    space: str | None,
    data: str | None,
    inputs: str | None,
    classes: int | None,
    by: str,
    settings: Sequence[str],
    allow_changed: bool,
) -> _Given:
    from polyarch.cli.choices import assign, find
    from polyarch.cli.cost import input_shape
    from polyarch.data.loading import source_for, source_from
    from polyarch.data.task import TaskShape
    from polyarch.errors import PolyarchError
    from polyarch.runs.run import open_run
    from polyarch.settings import make

    for name, value in (("--space", space), ("--data", data)):
        if folder and value:
            raise PolyarchError(f"{name} and the folder of a run: give one of them")
    for name, number in (("--input", inputs), ("--classes", classes)):
        if (folder or data) and number:
            raise PolyarchError(f"{name} is for a bare space without data; leave it out")
    if not folder and not space:
        raise PolyarchError("say what to rank: the folder of a run, or --space")
    classes_of = _scores(by)
    groups: dict[str, type[Any]] = {name: cls for name, (cls, _) in classes_of.items()}
    if space:
        groups = {**groups, "space": find("space", space)[0]}
    if data:
        groups = {**groups, "data": source_for(data)}
    values = assign(groups, _spread(settings, groups, list(classes_of)))
    scores = {name: make(cls, {**preset, **values[name]}) for name, (cls, preset) in classes_of.items()}
    if folder:
        run = open_run(folder, allow_changed=allow_changed)
        return _Given(run, run.space, run.config.shape(), None, scores)
    assert space
    cls, preset = find("space", space)
    made: Space = make(cls, {**preset, **values["space"]})
    task = source_from(data, values["data"]).task() if data else None
    shape = task.shape if task else TaskShape(input_shape(inputs or INPUT), classes or CLASSES)
    made.check(shape)
    return _Given(None, made, shape, task, scores)


def _scores(by: str) -> dict[str, tuple[type[Any], dict[str, Any]]]:
    """Class and preset of every score; one's own is called by the name that it has."""
    from polyarch.cli.choices import find
    from polyarch.errors import PolyarchError

    names = list(dict.fromkeys(name.strip() for name in by.split(",") if name.strip()))
    if not names:
        raise PolyarchError("--by names no score; see `polyarch list`")
    found = {name: find("score", name) for name in names}
    named = {cls.name if ":" in name else name: (cls, preset) for name, (cls, preset) in found.items()}
    if len(named) < len(names):
        raise PolyarchError(f"--by {by}: two scores have the same name; rename one")
    return named


def _spread(settings: Sequence[str], groups: dict[str, type[Any]], scores: Sequence[str]) -> list[str]:
    """A bare name that only scores have becomes one assignment for each of them that has it."""
    from polyarch.cli.choices import matching
    from polyarch.settings import settings_of

    found: list[str] = []
    for text in settings:
        name = text.partition("=")[0].strip()
        holders = [group for group, cls in groups.items() if matching(settings_of(cls), name)]
        several = len(holders) > 1 and set(holders) <= set(scores)
        found += [f"{holder}.{text.strip()}" for holder in holders] if several else [text]
    return found


def _chosen(
    given: _Given, truth: Truth, sample: int | None, source: str, file: Path | None, seed: int, limit: list[str]
) -> tuple[list[Architecture], str]:
    """The architectures to rank, and in words where they come from."""
    from polyarch.errors import PolyarchError, unknown
    from polyarch.ranking import draw
    from polyarch.runs.limits import make_bounds
    from polyarch.spaces.limits import limits_of

    if file:
        if sample is not None or source == "belief" or limit:
            raise PolyarchError("--architectures says what to rank; leave --sample, --from and --limit out")
        return _listed(given.space, file), str(file)
    if source not in SOURCES:
        raise unknown("value of --from", source, SOURCES)
    if source == "belief" and given.run is None:
        raise PolyarchError("--from belief draws from what a run believes; give its folder")
    count = sample or SAMPLE
    bounds = make_bounds(limits_of(limit), given.space, given.shape, truth.table.where)
    tries = 10 * count if bounds else count
    if source == "table":
        drawn = truth.draw(tries, seed)
    else:
        drawn = draw(given.space, tries, seed, given.run.distribution if given.run and source == "belief" else None)
    if bounds is None:
        return drawn, source
    bounds.anything()
    found = [one for one in drawn if bounds.allow(one.choices)][:count]
    if not found:
        raise PolyarchError(f"none of {len(drawn)} architectures is within {' and '.join(limit)}; raise --sample")
    return found, f"{source}, within {' and '.join(limit)}"


def _listed(space: Space, file: Path) -> list[Architecture]:
    """The architectures of a file, one per line; empty lines and what stands after # are left out."""
    from polyarch.errors import PolyarchError

    found: dict[str, Architecture] = {}
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        try:
            architecture = space.parse(text)
        except PolyarchError as error:
            raise PolyarchError(f"{file}, line {number}: {error}") from None
        found.setdefault(architecture.text, architecture)
    if not found:
        raise PolyarchError(f"{file} names no architecture; write one per line")
    return list(found.values())


def _candidates(
    given: _Given, architectures: Sequence[Architecture], truth: Truth, seed: int, device: str
) -> list[Candidate]:
    from polyarch.runs.options import find_device
    from polyarch.scores.sampling import candidates_for, candidates_of
    from polyarch.streams import Streams

    needs = frozenset(need for score in given.scores.values() for need in score.needs)
    options: dict[str, Any] = {"table": truth.table, "column": truth.column.name, "device": str(find_device(device))}
    if given.run:
        return candidates_of(given.run, architectures, needs, Streams(seed)["data"], **options)
    likelihood = given.task.likelihood if given.task else None
    generator = Streams(seed)["data"]
    return candidates_for(
        architectures, given.space, given.shape, likelihood, needs, generator, task=given.task, **options
    )


def _about(given: _Given, truth: Truth, how: str, first: Candidate) -> dict[str, Any]:
    """What evaluations depend on beside architectures, scores and seed."""
    from polyarch.runs.config import describe_space

    data = given.run.config.data if given.run else None
    fingerprint = data["fingerprint"] if data else given.task.fingerprint if given.task else None
    return {
        "run": str(given.run.folder.resolve()) if given.run else None,
        "space": {name: value for name, value in describe_space(given.space).items() if name != "signature"},
        "input": list(given.shape.input),
        "outputs": given.shape.outputs,
        "data": fingerprint,
        "sampled": how,
        "table": truth.table.where,
        "column": truth.column.name,
        "device": first.device.type,
    }


@contextmanager
def _counting() -> Iterator[Callable[[int, int], None]]:
    """Says on standard error how far it is: a bar on a terminal, a line now and then elsewhere."""
    if on_terminal():
        from rich.console import Console
        from rich.progress import Progress

        with Progress(console=Console(stderr=True), transient=True) as bar:
            job = bar.add_task("rank", total=None)
            yield lambda done, total: bar.update(job, completed=done, total=total)
        return
    last = time.monotonic()

    def say(done: int, total: int) -> None:
        nonlocal last
        from polyarch.cli.progress import PLAIN_SECONDS

        if time.monotonic() - last >= PLAIN_SECONDS:
            last = time.monotonic()
            tell(f"rank: {done}/{total} architectures")

    yield say


def _write(out: Path, told: dict[str, Any], found: Ranking, truth: Truth) -> None:
    from polyarch.files import write_json, write_whole
    from polyarch.ranking.figure import draw_ranking

    write_json(out / "ranking.json", told)
    for kind, content in draw_ranking(found, truth.column.name).items():
        write_whole(out / f"ranking.{kind}", content)


def _show(found: Ranking, given: _Given, truth: Truth, how: str) -> None:
    best = found.summary()["truth"]["best"]
    origin, within, limits = how.partition(", within ")
    sampled = {"uniform": "drawn evenly", "belief": "drawn from belief"}.get(origin, f"of {origin}") + within + limits
    print(f"{len(found.architectures)} architectures of {given.space.name}, {sampled}")
    print(f"truth: {truth.words} of {truth.table.where}, mean {found.truth.mean():.5g}, best {best:.5g}\n")
    wide = max(len(name) for name in ("random", *found.scores))
    print(f"{'score':<{wide}}  {_in_columns(COLUMNS)}")
    for name, scored in found.scores.items():
        print(f"{name:<{wide}}  {_line(scored.standing, scored.seconds)}")
    print(f"{'random':<{wide}}  {_line(found.chance, None)}")
    print("\nIntervals: 95 % of resamples of the architectures; of random orders in the last line.")
    reasons = {s.standing.undefined: name for name, s in found.scores.items() if s.standing.undefined}
    for why, name in reasons.items():
        print(f"undefined for {name}: {why}")
    for score in {type(score): score for score in given.scores.values()}.values():
        print(f"{score.name} ({'more' if score.larger_is_better else 'less'} is better): {score.meaning}")


def _line(standing: Standing, seconds: float | None) -> str:
    cells = (
        _correlation(standing.spearman),
        _correlation(standing.kendall),
        _correlation(standing.sparse_kendall),
        f"{standing.top10.value:.5g}",
        f"{standing.regret.value:.3g}",
        _correlation(standing.with_parameters),
        "" if seconds is None else f"{seconds:.2g}",
    )
    return _in_columns(cells)


def _in_columns(cells: Iterable[str]) -> str:
    return "  ".join(f"{cell:>{width}}" for cell, width in zip(cells, COLUMNS.values(), strict=True)).rstrip()


def _correlation(estimate: Estimate) -> str:
    if estimate.value is None:
        return "undefined"
    spread = "" if estimate.interval is None else f" [{estimate.low:.2f}, {estimate.high:.2f}]"
    return f"{estimate.value:.2f}{spread}"
