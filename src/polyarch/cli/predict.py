"""`polyarch predict`: what a run says about new inputs, and how sure it is."""

from __future__ import annotations

import csv
import json
import sys
from typing import Annotated, Any

import typer

from polyarch.cli.options import Json, RunFolder


def predict(
    run: RunFolder,
    inputs: Annotated[
        str,
        typer.Option("--inputs", help="A .npz with x, a .csv of numbers, an image, or a folder of images."),
    ],
    as_json: Json = False,
) -> None:
    """Class, probabilities, entropy and mutual information of every input, as CSV on standard output."""
    from polyarch.data.inputs import read_inputs
    from polyarch.runs.run import open_run

    opened = open_run(run)
    names, x = read_inputs(inputs, opened.config.shape().input)
    rows = _rows(opened, names, x)
    if as_json:
        print(json.dumps({"run": str(run), "architecture": str(opened.architecture), "predictions": rows}))
        return
    flat = [{k: v for k, v in row.items() if k != "probabilities"} for row in rows]
    for row, full in zip(flat, rows, strict=True):
        row |= {f"p({name})": p for name, p in full.get("probabilities", {}).items()}
    writer = csv.DictWriter(sys.stdout, fieldnames=list(flat[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)


def _rows(opened: Any, names: list[str], x: Any) -> list[dict[str, Any]]:
    import torch

    from polyarch.data.task import Classification
    from polyarch.runs.results import BATCH

    ensemble = opened.ensemble()
    if not isinstance(ensemble.likelihood, Classification):
        with torch.no_grad():
            means = torch.cat([ensemble.output(part) for part in x.split(BATCH)]).squeeze(-1).tolist()
        return [{"input": name, "mean": mean} for name, mean in zip(names, means, strict=True)]
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
                    "probabilities": dict(zip(classes, probs, strict=True)),
                }
            )
    return rows
