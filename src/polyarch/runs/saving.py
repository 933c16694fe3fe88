"""Checkpoints of a search in its folder, and the metrics that go with them."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import Tensor

from polyarch import distributed
from polyarch.files import synced_size
from polyarch.runs.run import METRICS
from polyarch.training import checkpoints
from polyarch.training.loop import Loop

logger = logging.getLogger("polyarch")


def save(folder: Path, loop: Loop) -> None:
    """Writes a checkpoint of where a search stands."""
    tensors: dict[str, Tensor] = {f"state/{name}": value for name, value in loop.state.tensors().items()}
    tensors |= {f"best/{name}": value for name, value in loop.best.items()}
    for k, streams in enumerate(loop.streams):
        tensors |= {f"streams/{k}/{name}": value for name, value in streams.state().items()}
    written = synced_size(folder / METRICS)  # on the disk before the checkpoint that counts on it
    checkpoints.save_next(folder, tensors, {"progress": asdict(loop.progress), "metrics_bytes": written})


def newest_whole(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """The newest whole checkpoint; metrics written after it are cut off, since they will be written again."""
    metrics = folder / METRICS
    length = metrics.stat().st_size if metrics.exists() else 0
    damaged: dict[Path, checkpoints.Damaged] = {}
    for path in checkpoints.newest_first(folder):
        try:
            tensors, numbers = checkpoints.load(path)
            if length < numbers["metrics_bytes"]:
                raise checkpoints.Damaged(f"{metrics} is shorter than when {path} was written")
        except checkpoints.Damaged as error:
            damaged[path] = error
            continue
        _drop(damaged, f"going on from {path.name}, the checkpoint before it")
        if distributed.rank() == 0 and length:
            os.truncate(metrics, numbers["metrics_bytes"])
        return tensors, numbers
    _drop(damaged, "no checkpoint is left, so starting from the beginning")
    if distributed.rank() == 0:
        metrics.unlink(missing_ok=True)
    return None


def _drop(damaged: Mapping[Path, checkpoints.Damaged], instead: str) -> None:
    """Says which checkpoints are of no use, and removes them, so that whole ones are kept longer."""
    if damaged and distributed.rank() == 0:
        logger.warning("%s; %s", "; ".join(map(str, damaged.values())), instead)
        for path in damaged:
            path.unlink(missing_ok=True)


def under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a group, by their names in it."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
