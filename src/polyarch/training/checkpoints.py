"""Checkpoints: tensors and plain numbers in one file, written whole, checked when read; nothing in them can run."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from polyarch.errors import PolyarchError
from polyarch.files import write_whole

FORMAT = 1
KEPT = 2
"""So many checkpoints are kept: when the last is damaged, the one before it serves."""
_NAME = re.compile(r"checkpoint-\d+\.safetensors")


def save(path: Path, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any]) -> None:
    """Writes tensors and JSON-able numbers to one file, with a digest over both."""
    plain = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    text = json.dumps({"format": FORMAT, **numbers})
    metadata = {"numbers": text, "digest": _digest(plain, text)}
    write_whole(path, save_tensors(plain, metadata))


class Damaged(PolyarchError):
    """A file is not what `save` wrote."""


def load(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Reads what `save` wrote; raises `Damaged` when the file is not whole."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise PolyarchError(f"{path} cannot be read: {error.strerror}; restore it or mend its permissions") from None
    try:
        tensors = load_tensors(content)
        metadata = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])["__metadata__"]
        numbers = json.loads(metadata["numbers"])
        whole = metadata["digest"] == _digest(tensors, metadata["numbers"])
    except (ValueError, KeyError, TypeError, SafetensorError):
        whole = False
    if not whole:
        raise Damaged(f"{path} is damaged: its contents do not match its digest")
    if numbers.pop("format") != FORMAT:
        raise PolyarchError(f"{path} was written by another version of polyarch; use that version to read it")
    return tensors, numbers


def newest_first(folder: Path) -> list[Path]:
    """The checkpoints in a folder."""
    return sorted((p for p in folder.iterdir() if _NAME.fullmatch(p.name)), key=number, reverse=True)


def number(path: Path) -> int:
    """Which checkpoint of its folder a file is."""
    return int(path.stem.partition("-")[2])


def save_next(folder: Path, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any]) -> None:
    """Adds a checkpoint to a folder and drops those that are no longer needed."""
    there = newest_first(folder)
    count = number(there[0]) + 1 if there else 0
    save(folder / f"checkpoint-{count:06d}.safetensors", tensors, numbers)
    for old in there[KEPT - 1 :]:
        old.unlink(missing_ok=True)


def _digest(tensors: Mapping[str, Tensor], text: str) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        value = tensors[name]
        digest.update(f"{name} {value.dtype} {list(value.shape)}".encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
