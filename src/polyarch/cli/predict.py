"""`polyarch predict`: what a run says about new inputs, and how sure it is."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from polyarch.cli.options import AllowChanged, Json, RunFolder

if TYPE_CHECKING:
    from torch import Tensor

    from polyarch.runs.run import Run
    from polyarch.uncertainty.ensemble import Ensemble

BETWEEN = "|"
"""What stands between the classes of a set in CSV."""
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
    (runs, about), folder = _asked(run, all_seeds, allow_changed), run
    names, x = runs[0].inputs_at(inputs)  # to which those of other seeds are alike
    if about:
        print(f"polyarch: {about}", file=sys.stderr)
    found: list[dict[str, Any]] = []
    for opened in runs:
        said: dict[str, Any] = {"run": str(folder), **({"seed": opened.seed} if opened.folder != folder else {})}
        found.append(said | _predictions(opened, names, x, risk, coverage))
        _tell(opened, found[-1], f"of seed {opened.seed} " if len(runs) > 1 else "")
    if as_json:
        print(json.dumps({"run": str(folder), "seeds": found} if all_seeds else found[0]))
    else:
        _write([({"seed": said["seed"]} if all_seeds else {}) | row for said in found for row in said["predictions"]])


def _asked(folder: Path, all_seeds: bool, allow_changed: bool) -> tuple[list[Run], str]:
    """The run that predicts: of several seeds the best, and a sentence that says so, or all of them."""
    from polyarch.errors import PolyarchError
    from polyarch.runs.run import open_best, open_repeats

    runs = open_repeats(folder, allow_changed=allow_changed)
    if all_seeds:
        if len(runs) == 1:
            raise PolyarchError(f"--all-seeds is for a run of several, and {folder} has one seed; leave it out")
        return runs, ""
    if len(runs) == 1:
        return runs, ""
    best = open_best(folder, allow_changed=allow_changed)
    by = "on validation data" if "select" in best.result["metrics"] else "by the training objective"
    about = f"predictions are of seed {best.seed}, the best of {len(runs)} {by}; --all-seeds adds the others"
    return [best], about


def _predictions(
    searched: Run, names: list[str], x: Tensor, risk: float | None, coverage: float | None
) -> dict[str, Any]:
    """What one run says of inputs, and how it came to that."""
    from polyarch.errors import PolyarchError
    from polyarch.runs.guarantees import quantile_for_coverage, threshold_for

    opened = searched.trained or searched  # what show tells of is what answers
    if risk is not None and not opened.classifies:
        raise PolyarchError(f"--risk is for classification, and this run predicts {opened.predicts}; leave it out")
    ensemble = opened.ensemble()
    threshold = None if risk is None else threshold_for(opened, ensemble, risk)
    quantile = None if coverage is None else quantile_for_coverage(opened, ensemble, coverage)
    said: dict[str, Any] = {"architecture": str(opened.architecture)}
    if opened.classifies:
        said["temperature"] = opened.temperature
        rows = _classes(opened, ensemble, names, x, threshold, quantile)
    else:
        rows = _numbers(opened, ensemble, names, x, quantile)
    if risk is not None:
        said |= {"risk": risk, "threshold": threshold}
    if coverage is not None:
        said |= {"coverage": coverage, "quantile": quantile, "guarantee": "marginal"}
    return said | {"predictions": rows}


def _tell(opened: Run, said: dict[str, Any], whose: str) -> None:
    """Says beside the predictions how they are meant."""
    if said.get("temperature", 1.0) != 1.0:
        print(
            f"polyarch: probabilities {whose}are after temperature {said['temperature']:.3g}, fitted on validation "
            "data",
            file=sys.stderr,
        )
    if "coverage" in said:
        examples = opened.config.data["examples"]["calibrate"]
        print(
            f"polyarch: with probability {said['coverage']:g} such a set {whose}holds the truth, on average over "
            f"inputs that are exchangeable with the {examples} examples of calibrate; for one kind of input it may be "
            "less",
            file=sys.stderr,
        )


def _classes(
    opened: Run, ensemble: Ensemble, names: list[str], x: Tensor, threshold: float | None, quantile: float | None
) -> list[dict[str, Any]]:
    from polyarch.runs.guarantees import predicted_classes
    from polyarch.uncertainty.conformal import class_sets

    said = predicted_classes(opened, ensemble, x)
    classes = opened.config.data["classes"] or [str(k) for k in range(said.log_probs.shape[-1])]
    sets = [None] * len(x) if quantile is None else class_sets(said.log_probs, quantile).tolist()
    parts = (said.log_probs.exp().tolist(), said.entropy.tolist(), said.mutual_information.tolist())
    rows = []
    for name, probs, entropy, information, likely in zip(names, *parts, sets, strict=True):
        best = max(range(len(probs)), key=probs.__getitem__)
        row = {
            "input": name,
            "class": classes[best],
            "probability": probs[best],
            "entropy": entropy,
            "mutual_information": information,
        }
        if threshold is not None:
            row["abstain"] = not probs[best] > threshold
        if likely is not None:
            row["set"] = [name for name, is_in in zip(classes, likely, strict=True) if is_in]
        rows.append(row | {"probabilities": dict(zip(classes, probs, strict=True))})
    return rows


def _numbers(
    opened: Run, ensemble: Ensemble, names: list[str], x: Tensor, quantile: float | None
) -> list[dict[str, Any]]:
    from polyarch.uncertainty.conformal import intervals
    from polyarch.uncertainty.ensemble import asked
    from polyarch.uncertainty.gaussians import Gaussians
    from polyarch.uncertainty.mixtures import Mixtures

    said = asked(ensemble, x, opened.device)
    assert isinstance(said, Gaussians | Mixtures)
    columns: dict[str, list[Any]] = {"input": names}
    if isinstance(said, Mixtures):
        columns |= said.likelihood.columns(said.mean, opened.config.data["classes"])
        told = {"std": said.std if said.mean.dim() == 1 else None}
        told |= {"entropy": said.entropy, "mutual_information": said.mutual_information}
        columns |= {name: values.tolist() for name, values in told.items() if values is not None}
    else:
        columns |= {"mean": said.mean.tolist(), "std": said.std.tolist()}
        columns |= {f"quantile_{round(100 * share)}": said.quantile(share).tolist() for share in QUANTILES}
    if quantile is not None:
        assert said.std is not None
        low, high = intervals(said.mean, said.std, quantile).unbind(-1)
        columns |= {"low": low.tolist(), "high": high.tolist()}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _write(rows: list[dict[str, Any]]) -> None:
    """As CSV: a column for the probability of each class."""
    flat = []
    for row in rows:
        own = {name: value for name, value in row.items() if name != "probabilities"}
        if "set" in own:
            own["set"] = BETWEEN.join(own["set"])
        flat.append(own | {f"p({name})": p for name, p in row.get("probabilities", {}).items()})
    writer = csv.DictWriter(sys.stdout, fieldnames=list(flat[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
