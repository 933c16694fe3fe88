"""`polyarch predict`: what a run says about new inputs, and how sure it is."""

from __future__ import annotations

import csv
import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from polyarch.cli.options import Json, RunFolder

if TYPE_CHECKING:
    from torch import Tensor

    from polyarch.runs.run import Run
    from polyarch.uncertainty.ensemble import Ensemble

QUANTILES = (0.05, 0.5, 0.95)
"""Of numbers that are predicted: between the first and the last lie nine in ten, if the prediction is honest."""


def predict(
    run: RunFolder,
    inputs: Annotated[
        str,
        typer.Option("--inputs", help="A .npz with x, a .csv of numbers, an image, or a folder of images."),
    ],
    risk: Annotated[
        float | None,
        typer.Option(
            "--risk", metavar="R", help="Abstain where errors among what is answered could be more than this share."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Class, probabilities, entropy and mutual information of every input, or mean, deviation and quantiles, as CSV."""
    from polyarch.data.inputs import read_inputs
    from polyarch.runs.run import open_run

    opened = open_run(run)
    names, x = read_inputs(inputs, opened.config.shape().input)
    ensemble = opened.ensemble()
    threshold = None if risk is None else _threshold(opened, ensemble, risk)
    rows = _rows(opened, ensemble, names, x, threshold)
    if as_json:
        promised = {} if risk is None else {"risk": risk, "threshold": threshold}
        said = {"run": str(run), "architecture": str(opened.architecture), **promised, "predictions": rows}
        print(json.dumps(said))
        return
    flat = [{k: v for k, v in row.items() if k != "probabilities"} for row in rows]
    for row, full in zip(flat, rows, strict=True):
        row |= {f"p({name})": p for name, p in full.get("probabilities", {}).items()}
    writer = csv.DictWriter(sys.stdout, fieldnames=list(flat[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)


def _threshold(opened: Run, ensemble: Ensemble, risk: float) -> float:
    """The confidence above which validation data promises at most this risk."""
    import torch

    from polyarch.data.task import Classification
    from polyarch.errors import PolyarchError
    from polyarch.runs.results import BATCH
    from polyarch.uncertainty.coverage import threshold_for_risk

    if not isinstance(ensemble.likelihood, Classification):
        raise PolyarchError("--risk is for classification, and this run predicts a number; leave it out")
    if not {"calibrate", "select"} & opened.config.data["examples"].keys():
        raise PolyarchError("--risk needs validation data, and this run has none; search with --set select=0.15")
    held_out = opened.task().examples_for("calibrate")
    assert held_out is not None
    said = [ensemble(part) for part in held_out.x.split(BATCH)]
    confidence = torch.cat([part.confidence for part in said])
    predicted = torch.cat([part.log_probs.argmax(-1) for part in said])
    return threshold_for_risk(confidence, predicted == held_out.y, risk)


def _rows(
    opened: Run, ensemble: Ensemble, names: list[str], x: Tensor, threshold: float | None
) -> list[dict[str, Any]]:
    from polyarch.data.task import Classification
    from polyarch.runs.results import BATCH

    if not isinstance(ensemble.likelihood, Classification):
        return _numbers(ensemble, names, x)
    classes = opened.config.data["classes"] or [str(k) for k in range(ensemble.likelihood.classes)]
    rows = []
    for start in range(0, len(x), BATCH):
        said = ensemble(x[start : start + BATCH])
        parts = (said.log_probs.exp().tolist(), said.entropy.tolist(), said.mutual_information.tolist())
        for name, probs, entropy, information in zip(names[start : start + BATCH], *parts, strict=True):
            best = max(range(len(probs)), key=probs.__getitem__)
            rows.append(
                {
                    "input": name,
                    "class": classes[best],
                    "probability": probs[best],
                    "entropy": entropy,
                    "mutual_information": information,
                    **({} if threshold is None else {"abstain": not probs[best] > threshold}),
                    "probabilities": dict(zip(classes, probs, strict=True)),
                }
            )
    return rows


def _numbers(ensemble: Ensemble, names: list[str], x: Tensor) -> list[dict[str, Any]]:
    import torch

    from polyarch.runs.results import gaussians

    said = gaussians(ensemble, x, torch.device("cpu"))
    columns = {"mean": said.mean, "std": said.std}
    columns |= {f"quantile_{round(100 * share)}": said.quantile(share) for share in QUANTILES}
    values = zip(*(column.tolist() for column in columns.values()), strict=True)
    return [{"input": name, **dict(zip(columns, row, strict=True))} for name, row in zip(names, values, strict=True)]
