"""A run's networks as files that need no polyarch: ONNX, a program of `torch.export`, or weights with their source."""

from __future__ import annotations

import io
import json
import warnings
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, final, get_args

import torch
from safetensors.torch import save as save_tensors
from torch import nn

from polyarch.data.checks import reason
from polyarch.data.kinds import Inputs
from polyarch.errors import PolyarchError
from polyarch.files import write_together
from polyarch.runs.answering import Answering
from polyarch.runs.model_card import about, card
from polyarch.runs.onnx_format import check_onnx, onnx_file
from polyarch.runs.source_code import check_place, constants_beyond, source_of
from polyarch.trees import tree_map
from polyarch.uncertainty.early_exit import EarlyExit
from polyarch.uncertainty.ensemble import Ensemble, Within

if TYPE_CHECKING:
    from polyarch.runs.run import Run

ABOUT = "about.json"
"""Inside of a program, what it is: `extra_files` of `torch.export.load`."""
Format = Literal["onnx", "torch", "safetensors"]
ENDINGS: dict[str, Format] = {".onnx": "onnx", ".pt2": "torch", ".safetensors": "safetensors"}


@final
@dataclass(frozen=True, eq=False)
class Exported:
    """What was written."""

    format: Format
    files: tuple[Path, ...]
    """The one that was asked for, then what stands beside it."""
    about: dict[str, Any]
    """What the file is, as it also says itself."""


def save(
    run: Run, path: Path, model: nn.Module | None, temperature: float | None, form: Format | None = None
) -> Exported:
    """Writes a predictor of a run, and beside it a card that says what it is; `Run.save` has the arguments."""
    form = format_of(path, form)
    source = path.with_suffix(".py")
    if form == "onnx":
        check_onnx()
    if form == "safetensors":
        check_place(source, path)
    if temperature is not None and not temperature > 0:
        raise PolyarchError(f"temperature is {temperature}; it must be above 0, and 1 changes nothing")
    if temperature is None:
        temperature = network_temperature(run) if model is None else 1.0
    plain = deepcopy(run.model() if model is None else model).cpu().eval()
    if isinstance(plain, Ensemble) and isinstance(plain.networks, Within):
        plain.networks.settle(plain.preprocess(trial(run.inputs)))
    likelihood = plain.likelihood if isinstance(plain, Ensemble) else run.likelihood()
    answering = Answering(plain, run.inputs, likelihood, temperature if run.classifies else 1.0).eval()
    program, outputs = exported(answering, run.inputs)
    told = about(run, answering, outputs, as_found=model is None or isinstance(model, Ensemble | EarlyExit))
    content: dict[Path, bytes] = {}
    if form == "torch":
        content[path] = _program(program, told)
    elif form == "onnx":
        content[path] = onnx_file(program, outputs, told)
    else:
        # Copies, since what is tied is one tensor under two names.
        state = {name: value.clone() for name, value in plain.state_dict().items()}
        content[path] = save_tensors(state | constants_beyond(program), {"about": json.dumps(told)})
        content[source] = source_of(program, path.name, outputs, told).encode()
    content[path.with_name(f"{path.name}.md")] = card(told, path.name, form).encode()
    write_together(content)
    return Exported(form, tuple(content), told)


def network_temperature(run: Run) -> float:
    """What log-probabilities of the selected network are divided by: 1 where none was fitted for it alone."""
    if run.trained is not None:
        return run.trained.temperature
    alone = not run.space.nested and not run.space.has_dropout and run.space.random().architectures == 1
    return run.temperature if alone else 1.0


def format_of(path: Path, form: Format | None = None) -> Format:
    """What a file is written as: by its ending, where that is not said."""
    by_ending = ENDINGS.get(path.suffix)
    if form is None and by_ending is None:
        raise PolyarchError(
            f"{path} does not say what to write; end in .onnx or .pt2 for what runs without polyarch, or in "
            ".safetensors for weights and their source"
        )
    if form is not None and form not in get_args(Format):
        raise PolyarchError(f"format is {form!r}; it is one of {', '.join(get_args(Format))}")
    if form is not None and by_ending not in (None, form):
        raise PolyarchError(f"{path} ends as {by_ending} does, and the format is {form}; leave one of the two out")
    found = form or by_ending
    assert found is not None
    return found


def trial(inputs: Inputs) -> Any:
    """Two inputs as a program takes them: whole numbers where they are tokens, rows of a table in double precision.

    Bytes are floats, too, from 0 to 255: a program takes one type alone.
    """
    if inputs.parts:
        return inputs.parts.tree([trial(own) for own in inputs.each()])
    kind = torch.int64 if inputs.type == "tokens" else torch.float64 if inputs.columns else torch.float32
    return torch.zeros(2, *inputs.shape, dtype=kind)


def exported(answering: Answering, inputs: Inputs) -> tuple[torch.export.ExportedProgram, list[str]]:
    """What all formats are made of, for any number of inputs, and the names of its outputs."""
    given = trial(inputs)
    dynamic = tree_map(lambda _: {0: torch.export.Dim("batch", min=1)}, given)
    positional, named = (given, {}) if isinstance(given, tuple) else ((given,), {})
    if isinstance(given, Mapping):
        positional, named = (), dict(given)
    elif not isinstance(given, tuple):
        dynamic = (dynamic,)
    try:
        with warnings.catch_warnings(), torch.no_grad():  # of torch's own layers, about how they are written
            warnings.simplefilter("ignore")
            outputs = list(answering(*positional, **named))
            program = torch.export.export(answering, positional, named, dynamic_shapes=dynamic, strict=False)
    except Exception as error:  # whatever torch.export says of what a user wrote
        raise PolyarchError(
            f"torch.export cannot follow this network ({type(error).__name__}: {reason(error)}): write its forward "
            "without branches on values and for any number of examples; its weights alone are "
            "run.model().state_dict()"
        ) from error
    return program, outputs


def _program(program: torch.export.ExportedProgram, told: dict[str, Any]) -> bytes:
    written = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.export.save(program, written, extra_files={ABOUT: json.dumps(told)})
    return written.getvalue()
