"""`polyarch export`: a run's network, its mixture or early exit as a file that needs no polyarch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from polyarch.cli.options import AllowChanged, Json, RunFolder
from polyarch.cli.saying import tell

if TYPE_CHECKING:
    from torch import nn

    from polyarch.runs.run import Run


def export(
    run: RunFolder,
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="The file to write: .onnx, .pt2 (torch) or .safetensors.")
    ],
    format: Annotated[
        Literal["onnx", "torch", "safetensors"] | None,
        typer.Option("--format", help="Where the ending of the file does not say it."),
    ] = None,
    what: Annotated[
        Literal["network", "ensemble", "early-exit"],
        typer.Option(
            "--what",
            help="The selected network; the mixture, with entropy and mutual information; or, of nested spaces, the "
            "mixture in which sure inputs leave early.",
        ),
    ] = "network",
    members: Annotated[
        int | None, typer.Option("--members", metavar="N", help="Of an ensemble: how many, as in evaluate.")
    ] = None,
    risk: Annotated[
        float | None,
        typer.Option("--risk", metavar="R", help="Of early exit: errors that leaving early may add, such as 0.01."),
    ] = None,
    allow_changed: AllowChanged = False,
    as_json: Json = False,
) -> None:
    """Write a network or mixture to a file that runs without polyarch, and a card of what it is beside it."""
    from polyarch.cli.predict import one_of
    from polyarch.cli.waiting import waiting
    from polyarch.errors import PolyarchError
    from polyarch.runs.exporting import format_of

    if members is not None and what != "ensemble":
        raise PolyarchError(f"--members is of an ensemble, and this is {what}; leave it out, or give --what ensemble")
    if (risk is None) != (what != "early-exit"):
        raise PolyarchError("--risk and --what early-exit belong together; give both, such as --risk 0.01, or neither")
    format_of(out, format)
    opened, said = one_of(run, allow_changed)
    if said:
        tell(f"polyarch: what is written is {said}")
    with waiting("writing what runs without polyarch"):
        model, temperature = _predictor(opened, what, members, risk)
        written = opened.save(out, model, temperature=temperature, format=format)
    answers = list(written.about["outputs"])
    if as_json:
        told: dict[str, Any] = {"run": str(opened.folder), "format": written.format, "outputs": answers}
        print(json.dumps(told | {"files": [str(file) for file in written.files], "about": written.about}))
        return
    print(f"{written.files[0]}: {what} {written.about['architecture']}, which answers {', '.join(answers)}")
    for file in written.files[1:]:
        print(file)


def _predictor(run: Run, what: str, members: int | None, risk: float | None) -> tuple[nn.Module | None, float | None]:
    """What is to be written, and the temperature that `predict` has for it; None for those of `run.save`."""
    if what == "network":
        return None, None
    temperature = run.temperature if run.classifies else 1.0
    if risk is not None:
        return run.early_exit(risk), temperature
    return run.ensemble(members=members), temperature
