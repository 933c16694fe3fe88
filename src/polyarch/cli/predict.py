"""`polyarch predict`: what a run says about new inputs, and how sure it is."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from polyarch.cli.options import AllowChanged, Json, RunFolder
from polyarch.cli.predictions import Answers, AsCsv, AsJson, Written
from polyarch.cli.saying import tell

if TYPE_CHECKING:
    from polyarch.runs.run import Run


def predict(
    run: RunFolder,
    inputs: Annotated[
        str,
        typer.Option(
            "--inputs",
            help="A .npz with x, a .npy, a .csv, a .parquet, an image, or a folder of images, of any length.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Write the CSV to this file, which is there once it is whole."),
    ] = None,
    risk: Annotated[
        float | None,
        typer.Option(
            "--risk", metavar="R", help="Abstain where errors among what is answered could be more than this share."
        ),
    ] = None,
    coverage: Annotated[
        float | None,
        typer.Option(
            "--coverage",
            metavar="C",
            help="Also the classes, or the interval of numbers, that hold the truth for this share of inputs: on "
            "average, for inputs that are exchangeable with the split calibrate.",
        ),
    ] = None,
    all_seeds: Annotated[
        bool,
        typer.Option("--all-seeds", help="Of a run with --repeats: what every seed says, by a column seed."),
    ] = False,
    allow_changed: AllowChanged = False,
    as_json: Json = False,
) -> None:
    """Class, probabilities, entropy and mutual information of every input, or mean, deviation and quantiles, as CSV."""
    from polyarch.uncertainty.ensemble import BATCH

    (runs, about), folder = _asked(run, all_seeds, allow_changed), run
    total, parts = runs[0].input_parts(inputs, BATCH)  # to which those of other seeds are alike
    first = next(parts)
    if about:
        tell(f"polyarch: {about}")
    heads: list[dict[str, Any]] = []
    # On a terminal rows that are printed are to be seen themselves.
    shown = nullcontext(lambda more: None) if out is None and sys.stdout.isatty() else _counting(total, len(runs))
    with _written(out, as_json, folder if all_seeds else None) as written, shown as advance:
        for opened in runs:
            answers = Answers.of(opened, risk, coverage)
            own = {"seed": opened.seed} if opened.folder != folder else {}
            heads.append({"run": str(folder), **own} | answers.head)
            written.begin(heads[-1])
            again = chain([first], parts) if opened is runs[0] else opened.input_parts(inputs, BATCH)[1]
            for names, x in again:
                written.rows(answers.rows(names, x))
                advance(len(names))
            written.end()
            _tell(opened, heads[-1], f"of seed {opened.seed} " if len(runs) > 1 else "")
    if out and as_json:
        told = [{**head, "out": str(out), "inputs": written.count // len(runs)} for head in heads]
        print(json.dumps({"run": str(folder), "seeds": told} if all_seeds else told[0]))
    elif out:
        print(f"{out}: {written.count:,} predictions")


def _counting(total: int | None, runs: int) -> AbstractContextManager[Callable[[int], None]]:
    from polyarch.cli.progress import counting

    return counting("predictions", total and total * runs)


@contextmanager
def _written(out: Path | None, as_json: bool, of_seeds: Path | None) -> Iterator[Written]:
    """Where predictions go: to a file, which is then there as a whole or not at all, or to standard output."""
    from polyarch.files import written_whole

    if out is not None:
        with written_whole(out) as file:
            yield AsCsv(file, of_seeds is not None)
    elif as_json:
        yield AsJson(sys.stdout, of_seeds)
        sys.stdout.write("]}\n" if of_seeds else "\n")
    else:
        yield AsCsv(sys.stdout, of_seeds is not None)


def _asked(folder: Path, all_seeds: bool, allow_changed: bool) -> tuple[list[Run], str]:
    """The run that predicts: of several seeds the best, and a sentence that says so, or all of them."""
    from polyarch.errors import PolyarchError
    from polyarch.runs.run import open_repeats

    if all_seeds:
        runs = open_repeats(folder, allow_changed=allow_changed)
        if len(runs) == 1:
            raise PolyarchError(f"--all-seeds is for a run of several, and {folder} has one seed; leave it out")
        return runs, ""
    run, about = one_of(folder, allow_changed)
    return [run], f"predictions are {about}; --all-seeds adds the others" if about else ""


def one_of(folder: Path, allow_changed: bool) -> tuple[Run, str]:
    """A run, or of several seeds the best, and words that say so."""
    from polyarch.runs.run import open_best, open_repeats

    runs = open_repeats(folder, allow_changed=allow_changed)
    if len(runs) == 1:
        return runs[0], ""
    best = open_best(folder, allow_changed=allow_changed)
    by = "on validation data" if "select" in best.result["metrics"] else "by the training objective"
    return best, f"of seed {best.seed}, the best of {len(runs)} {by}"


def _tell(opened: Run, said: dict[str, Any], whose: str) -> None:
    """Says beside the predictions how they are meant."""
    if said.get("temperature", 1.0) != 1.0:
        tell(
            f"polyarch: probabilities {whose}are after temperature {said['temperature']:.3g}, fitted on validation data"
        )
    if "coverage" in said:
        examples = opened.config.data["examples"]["calibrate"]
        tell(
            f"polyarch: with probability {said['coverage']:g} such a set {whose}holds the truth, on average over "
            f"inputs that are exchangeable with the {examples} examples of calibrate; for one kind of input it may be "
            "less"
        )
