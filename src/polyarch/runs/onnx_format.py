"""ONNX, made of a program of `torch.export` by torch's own exporter."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from polyarch.data.checks import reason
from polyarch.errors import PolyarchError

ABOUT = "polyarch"
"""In the metadata of a model, what it is, as JSON."""


def check_onnx() -> None:
    """Raises where what writes ONNX is not there."""
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError:
        raise PolyarchError("writing ONNX needs onnx and onnxscript; install polyarch[onnx], or write a .pt2") from None


def onnx_file(program: torch.export.ExportedProgram, outputs: Sequence[str], told: Mapping[str, Any]) -> bytes:
    """A model whose first axes are all `batch`."""
    try:
        with _quiet():
            made = torch.onnx.export(program, dynamo=True, verbose=False)
            assert made is not None
            model = made.model
            _rename(model, outputs)
            model.metadata_props[ABOUT] = json.dumps(told)
            model.producer_name, model.producer_version = "polyarch", told["polyarch"]
            content: bytes = made.model_proto.SerializeToString()
    except Exception as error:  # whatever its exporter says of what a user wrote
        raise PolyarchError(
            f"torch cannot write this network as ONNX ({type(error).__name__}: {reason(error)}); write a .pt2"
        ) from error
    return content


def _rename(model: Any, outputs: Sequence[str]) -> None:
    """Calls outputs by their names, which no other value has then, and first axes `batch`."""
    taken = {*outputs, *(value.name for value in model.graph.inputs)}
    for node in model.graph.all_nodes():
        for value in node.outputs:
            if value.name in taken:
                value.name = f"{value.name}.inner"
    for value, name in zip(model.graph.outputs, outputs, strict=True):
        value.name = name
    for value in (*model.graph.inputs, *model.graph.outputs):
        value.shape = type(value.shape)(["batch", *list(value.shape)[1:]])


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what the exporter says of packages that are not there, and of its own insides."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
