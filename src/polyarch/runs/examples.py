"""Examples that a run keeps where its data came from memory, so that it can be looked at where that memory is gone.

Data of at most `MOST_BYTES` is kept whole: such a run is evaluated, reported, resumed and trained further as one whose
data has a name. Of larger data so many examples of every split are kept as fit, the same number of each unless a split
has fewer, in one fixed random order: enough to evaluate and to report, and no more.

A run beneath another, such as a repeat or a network that is trained alone, has the same data, and leaves it to that. So
do the runs of a comparison.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from polyarch.data.preprocess import preprocess_from
from polyarch.data.task import Split, Task, fixed_order
from polyarch.errors import PolyarchError
from polyarch.files import read_json
from polyarch.runs.config import CONFIG, Config
from polyarch.training import checkpoints

if TYPE_CHECKING:
    from torch import Tensor

logger = logging.getLogger("polyarch")

EXAMPLES = "examples.safetensors"
MOST_BYTES = 64 * 2**20
"""What examples take at most in a run's folder: 64 MiB."""
DEEPEST = 3
"""So many folders above a run may belong to the run that it is part of: RUN/baselines/depth-3/seed-0."""
COMPARISON = "comparison.json"
"""Of the folder of a comparison, whose runs have the same data."""


def keep_examples(folder: Path, task: Task) -> None:
    """Writes examples of a task from memory into a run's folder, unless a run above it has them."""
    if task.source is not None or _home(folder.parent, task.fingerprint) is not None:
        return
    most = _most({name: len(split) for name, split in task.splits.items()}, _bytes(task.train))
    tensors = {f"preprocess/{name}": value for name, value in task.preprocess.state_dict().items()}
    for name, split in task.splits.items():
        rows = fixed_order(len(split))[:most].sort().values
        tensors |= {f"{name}/x": split.x[rows], f"{name}/y": split.y[rows]}
        if name in task.indices:
            tensors[f"{name}/indices"] = task.indices[name][rows]
    checkpoints.save(folder / EXAMPLES, tensors, {"splits": list(task.splits)})


def check_whole(task: Task) -> None:
    """Raises where data came from memory and is too large to be kept whole, so that no other process could have it."""
    counts = {name: len(split) for name, split in task.splits.items()}
    if task.source is None and _most(counts, _bytes(task.train)) < max(counts.values()):
        raise PolyarchError(
            f"the data {task.name!r} came from memory and takes more than {MOST_BYTES // 2**20} MiB, so that other "
            "processes cannot be given it; save it to a file, such as a .npz, and name that"
        )


def kept_task(folder: Path, config: Config, sample: bool) -> Task:
    """The task of a run whose data came from memory, by the examples that were kept of it.

    Args:
        folder: of the run.
        config: its own.
        sample: whether some examples will do, where not all were kept; that is said then.
    """
    home = _home(folder, config.data["fingerprint"])
    if home is None:
        raise PolyarchError(
            f"the data of {folder} came from memory, not from a name or file; in Python, pass the task again"
        )
    tensors, numbers = checkpoints.load(home / EXAMPLES)
    splits = {name: Split(tensors[f"{name}/x"], tensors[f"{name}/y"]) for name in numbers["splits"]}
    _check_whole(folder, splits, config.data["examples"], sample)
    inputs = config.inputs()
    return Task(
        name=config.data["name"],
        splits=splits,
        likelihood=config.likelihood(),
        preprocess=preprocess_from(
            inputs.columns,
            {name.partition("/")[2]: own for name, own in tensors.items() if name.startswith("preprocess/")},
            inputs.parts,
        ),
        fingerprint=config.data["fingerprint"],
        classes=tuple(config.data["classes"]),
        columns=inputs.columns,
        units=config.units(),
        tokens=inputs.tokens,
        indices={name: tensors[f"{name}/indices"] for name in splits if f"{name}/indices" in tensors},
    )


def _check_whole(folder: Path, splits: Mapping[str, Split], examples: Mapping[str, int], sample: bool) -> None:
    lacking = {name: count for name, count in examples.items() if len(splits[name]) < count}
    if not lacking:
        return
    told = ", ".join(f"{len(splits[name]):,} of {count:,} of {name}" for name, count in lacking.items())
    if not sample:
        raise PolyarchError(
            f"the data of {folder} came from memory and is too large to be kept whole ({told}), which is enough to "
            "evaluate and to report and for nothing else; in Python, pass the task again"
        )
    logger.warning("%s: its data came from memory, and the run kept some of it: %s", folder, told)


def _home(folder: Path, fingerprint: str) -> Path | None:
    """The folder with the examples of data: this one, or that of a run that it is beneath."""
    folder = folder.resolve()
    for home in (folder, *folder.parents[:DEEPEST]):
        if not (home / EXAMPLES).exists():
            continue
        for told in (home / CONFIG, home / COMPARISON):
            if told.exists() and read_json(told)["data"]["fingerprint"] == fingerprint:
                return home
    return None


def _bytes(split: Split) -> int:
    """What one example takes."""

    def of(values: Tensor) -> int:
        return values[:1].nbytes

    return of(split.x) + of(split.y)


def _most(counts: Mapping[str, int], size: int) -> int:
    """How many examples of every split may be kept, so that all of them take no more than `MOST_BYTES`."""
    room, counted = MOST_BYTES // max(size, 1), range(1, max(counts.values()) + 1)
    return max(1, bisect_right(counted, room, key=lambda most: sum(min(count, most) for count in counts.values())))
