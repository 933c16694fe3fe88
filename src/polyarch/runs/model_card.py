"""What an exported file is: as JSON inside of it, and for people as a page beside it."""

from __future__ import annotations

import math
import platform
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from polyarch.data.kinds import Inputs, inputs_from
from polyarch.runs.answering import MEANINGS, Answering, input_names
from polyarch.runs.plain import read_plain
from polyarch.uncertainty.early_exit import EarlyExit
from polyarch.uncertainty.ensemble import Ensemble
from polyarch.version import __version__

if TYPE_CHECKING:
    from polyarch.runs.run import Run

CALIBRATION = ("log_likelihood", "brier", "ece", "ece_all_classes", "coverage_90", "width_90", "crps")
"""Metrics that say whether probabilities, or intervals, mean what they say; a card has them apart from the others."""
LISTED = 50
"""So many classes, categories or columns a card lists; the JSON inside the file has all."""
LOADING = {
    "onnx": """import onnxruntime

session = onnxruntime.InferenceSession("{file}")
names = [output.name for output in session.get_outputs()]
answers = dict(zip(names, session.run(None, {onnx_inputs})))""",
    "torch": """import torch

network = torch.export.load("{file}").module()
answers = network({torch_inputs})""",
    "safetensors": """from {module} import load  # {module}.py, beside the weights

answers = load()({torch_inputs})""",
}


def about(run: Run, answering: Answering, outputs: Sequence[str], as_found: bool) -> dict[str, Any]:
    """What whoever loads a file must know of it, in plain values.

    Args:
        run: that it is of.
        answering: what is written.
        outputs: what its outputs are called.
        as_found: whether that is the run's own, and no network that was trained since.
    """
    predictor, config, own = answering.predictor, run.config, run.trained or run
    found = {
        "polyarch": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "what": _what(predictor),
        "space": config.space_name,
        "architecture": str(run.architecture),
        "method": config.method["name"],
        "seed": run.seed,
        "data": config.data["name"],
        "fingerprint": config.data["fingerprint"],
        "examples": config.data["examples"],
        "inputs": run.inputs.settings(),
        "outputs": {name: MEANINGS[name] for name in outputs},
        "likelihood": answering.likelihood.settings(),
        "classes": config.data["classes"],
        "temperature": answering.temperature,
        "belief": run.meaning.text,
        "cost": own.result["cost"]["selected"],
        "weights": _weights(run, predictor, as_found),
    }
    if isinstance(predictor, Ensemble):
        found["members"] = int((predictor.weights > 0).sum())
    if isinstance(predictor, EarlyExit):
        found["threshold"] = predictor.threshold if math.isfinite(predictor.threshold) else None
    measured = _measured(run, predictor, answering.temperature) if as_found else {}
    plain = read_plain(run.folder)
    return found | {"measured": measured, "plain": plain.sentences() if plain else []}


def _what(predictor: nn.Module) -> str:
    if isinstance(predictor, Ensemble):
        return "ensemble"
    return "early-exit" if isinstance(predictor, EarlyExit) else "network"


def _weights(run: Run, predictor: nn.Module, as_found: bool) -> str:
    """Where they come from."""
    if not as_found:
        return "those of the run's network, after further training"
    if not isinstance(predictor, Ensemble | EarlyExit) and run.trained is not None:
        return "of this network, trained alone after the search"
    if run.shares_weights:
        return "those that the search shared between architectures: a compromise, and no measure of what each can do"
    return "those of the search"


def _measured(run: Run, predictor: nn.Module, temperature: float) -> dict[str, Any]:
    """What the run measured of what is written: on test data where there is any, else on validation data."""
    if isinstance(predictor, EarlyExit):
        return {}
    own = run if isinstance(predictor, Ensemble) else run.trained or run
    metrics = own.result["metrics"]
    of = "_ensemble" if isinstance(predictor, Ensemble) and "test_ensemble" in metrics else ""
    if "test" not in metrics:
        of = "_ensemble" if isinstance(predictor, Ensemble) and "select_ensemble" in metrics else ""
        return {"split": "select", "metrics": metrics[f"select{of}"]} if f"select{of}" in metrics else {}
    tempered = "_tempered" if temperature != 1 and "test_tempered" in metrics else of
    return {"split": "test", "metrics": metrics[f"test{tempered}"]}


# ---------------------------------------------------------------------------------------------------------------------
# For people.


def card(told: Mapping[str, Any], file: str, form: str) -> str:
    """A page of Markdown about a file, made of what `about` has."""
    inputs, measured = inputs_from(told["inputs"]), told["measured"]
    kinds = {"network": "A network", "ensemble": "A mixture of networks", "early-exit": "A network with early exit"}
    what = f"{kinds[told['what']]} for {_cell(told['data'])}"
    metrics = measured.get("metrics", {})
    split = {"test": "test data", "select": "validation data, which also stopped the search: optimistic"}
    parts = [
        f"# {_cell(file)}",
        f"{what}, found by polyarch. It takes raw inputs: preprocessing is inside.",
        _code(LOADING[form].format(file=file, module=file.rpartition(".")[0], **_calls(inputs))),
        "## Inputs and outputs",
        _table(["input", "type", "shape", "is"], _inputs(inputs)),
        *([_columns(inputs)] if inputs.columns else []),
        _table(["output", "is"], [(f"`{name}`", meaning) for name, meaning in told["outputs"].items()]),
        *([f"Classes, in the order of `mean`: {_listed(told['classes'])}."] if told["classes"] else []),
        _temperature(told),
        "## How good it is",
        f"On {split[measured['split']]}:" if metrics else "Not measured as it is; measure it before you rely on it.",
        *([_figures(metrics)] if metrics else []),
        *([" ".join(told["plain"])] if told["plain"] else []),
        "## How it was found",
        _table(["", ""], _origin(told)),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _figures(metrics: Mapping[str, float]) -> str:
    rows = [(name, f"{value:.4g}", "calibration" if name in CALIBRATION else "") for name, value in metrics.items()]
    return _table(["metric", "value", ""], sorted(rows, key=lambda row: row[2]))


def _inputs(inputs: Inputs) -> list[tuple[str, ...]]:
    each = inputs.each() if inputs.parts else [inputs]
    rows: list[tuple[str, ...]] = []
    for name, own in zip(input_names(inputs), each, strict=True):
        kind = "int64" if own.type == "tokens" else "float64" if own.columns else "float32"
        low, high = min(own.low), max(own.high)
        meaning = {
            "tokens": f"tokens, 0 to {high:g}",
            "bytes": f"bytes, as numbers from 0 to 255; those seen were from {low:g} to {high:g}",
            "numbers": f"numbers; those seen were from {low:.4g} to {high:.4g}",
        }[own.type]
        shape = ", ".join(["n", *map(str, own.shape)])
        rows.append((f"`{name}`", kind, f"[{shape}]", "a table: see its columns" if own.columns else meaning))
    return rows


def _columns(inputs: Inputs) -> str:
    assert inputs.columns is not None
    rows = []
    for place, column in enumerate(inputs.columns.columns[:LISTED]):
        codes = [f"{code}: {name}" for code, name in enumerate(column.categories[:LISTED])]
        words = f"the number of its category ({', '.join(codes)}), -1 for any other" if codes else "a number"
        rows.append((str(place), column.name, words))
    more = len(inputs.columns.columns) - len(rows)
    return _table(["column", "name", "holds; NaN is a gap"], rows) + (f"\n\nand {more} more" if more else "")


def _temperature(told: Mapping[str, Any]) -> str:
    if told["likelihood"]["kind"] != "classification":
        return ""
    if told["temperature"] == 1:
        return "Probabilities are as they are: no temperature was fitted, or data did not ask for one."
    return f"Probabilities are after a temperature of {told['temperature']:.4g}, fitted on validation data."


def _origin(told: Mapping[str, Any]) -> list[tuple[str, str]]:
    examples = ", ".join(f"{count:,} {name}" for name, count in told["examples"].items())
    cost = told["cost"]
    return [
        ("space, method", f"{told['space']}, {told['method']}, seed {told['seed']}"),
        ("selected", told["architecture"]),
        ("belief is", told["belief"]),
        ("weights", told["weights"]),
        *([("members", str(told["members"]))] if "members" in told else []),
        *([("an input leaves at", _threshold(told["threshold"]))] if "threshold" in told else []),
        ("selected network", f"{cost['parameters']:,} parameters, {cost['macs']:,} multiply-accumulates"),
        ("data", f"{told['data']}: {examples} examples"),
        ("fingerprint of the data", f"`{told['fingerprint']}`"),
        ("versions", f"polyarch {told['polyarch']}, torch {told['torch']}, Python {told['python']}"),
    ]


def _threshold(value: float | None) -> str:
    return "the last depth alone" if value is None else f"a probability of {value:.4g}"


def _calls(inputs: Inputs) -> dict[str, str]:
    """How a program is called, and what ONNX Runtime is fed."""
    names = input_names(inputs)
    by_name = inputs.parts is not None and not inputs.parts.in_order
    fed = ", ".join(f'"{name}": {name}' for name in names)
    return {
        "torch_inputs": ", ".join(f"{name}={name}" if by_name else name for name in names),
        "onnx_inputs": f"{{{fed}}}",
    }


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return _cell(", ".join(names[:LISTED])) + more


def _code(text: str) -> str:
    return f"```python\n{text}\n```"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)


def _cell(text: str) -> str:
    """One that stays a cell, and no markup, whatever a class or a column is called."""
    return " ".join(text.replace("|", "\\|").replace("<", "&lt;").split())
