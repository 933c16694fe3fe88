"""A run's network as a file that needs no polyarch: a program of `torch.export`, or its weights."""

from __future__ import annotations

import inspect
import io
import json
import warnings
from collections.abc import Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save as save_tensors
from torch import Tensor, nn

from polyarch.data.checks import reason
from polyarch.data.kinds import Inputs
from polyarch.data.likelihood import Classification
from polyarch.data.preprocess import OnSeveral
from polyarch.errors import PolyarchError
from polyarch.files import write_whole
from polyarch.trees import tree_map
from polyarch.version import __version__

if TYPE_CHECKING:
    from polyarch.runs.run import Run

ABOUT = "about.json"
"""Inside of a program, what it is: `extra_files` of `torch.export.load`."""


def save(run: Run, path: Path, model: nn.Module) -> None:
    """Writes a network of a run to a file whose ending says how: `.pt2` or `.safetensors`."""
    if path.suffix not in (".pt2", ".safetensors"):
        raise PolyarchError(
            f"{path} does not say what to write; end in .pt2 for a program that runs without polyarch, or in "
            ".safetensors for weights"
        )
    plain = deepcopy(model).cpu().eval()
    about = json.dumps(_about(run))
    if path.suffix == ".pt2":
        content = _program(plain, trial(run.inputs), about)
    else:
        # Copies, since what is tied is one tensor under two names.
        content = save_tensors({name: value.clone() for name, value in plain.state_dict().items()}, {"about": about})
    write_whole(path, content)


def trial(inputs: Inputs) -> Any:
    """Two inputs as a program takes them: whole numbers where they are tokens, rows of a table in double precision.

    Bytes are floats, too, from 0 to 255: a program takes one type alone.
    """
    if inputs.parts:
        return inputs.parts.tree([trial(own) for own in inputs.each()])
    kind = torch.int64 if inputs.type == "tokens" else torch.float64 if inputs.columns else torch.float32
    return torch.zeros(2, *inputs.shape, dtype=kind)


def _program(model: nn.Module, given: Any, about: str) -> bytes:
    dynamic = tree_map(lambda _: {0: torch.export.Dim("batch", min=1)}, given)
    inputs, named = (given, {}) if isinstance(given, tuple) else ((given,), {})
    if isinstance(given, Mapping):
        inputs, named, model = (), dict(given), _ByName(model, list(given))
    elif isinstance(given, tuple):
        dynamic = (dynamic,) if isinstance(model, OnSeveral) else dynamic  # which takes any number of them
    else:
        dynamic = (dynamic,)
    written = io.BytesIO()
    try:
        with warnings.catch_warnings():  # of torch's own layers, about how they are written
            warnings.simplefilter("ignore")
            program = torch.export.export(model, inputs, named, dynamic_shapes=dynamic)
            torch.export.save(program, written, extra_files={ABOUT: about})
    except Exception as error:  # whatever torch.export says of what a user wrote
        raise PolyarchError(
            f"torch.export cannot follow this network ({type(error).__name__}: {reason(error)}): write its forward "
            "without branches on values and for any number of examples, or save its weights as .safetensors"
        ) from error
    return written.getvalue()


class _ByName(nn.Module):
    """A module whose inputs have names that can be read: torch.export fails on a forward of `**named`."""

    def __init__(self, model: nn.Module, names: Sequence[str]) -> None:
        super().__init__()
        self.model = model

        def forward(**named: Tensor) -> Tensor:
            answer: Tensor = model(**named)
            return answer

        given = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in names]
        forward.__signature__ = inspect.Signature(given)  # type: ignore[attr-defined]
        self.forward = forward


def _about(run: Run) -> dict[str, Any]:
    """What whoever loads a file must know of it."""
    likelihood = run.config.likelihood()
    return {
        "polyarch": __version__,
        "space": run.config.space_name,
        "architecture": str(run.architecture),
        "data": run.config.data["name"],
        "inputs": run.inputs.settings(),
        "outputs": "logits" if isinstance(likelihood, Classification) else likelihood.settings()["kind"],
        "likelihood": likelihood.settings(),
        "classes": run.config.data["classes"],
    }
