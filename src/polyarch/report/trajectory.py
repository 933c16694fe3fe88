"""How a run went, evaluation by evaluation, as plain arrays."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from polyarch.distributions.distances import kl
from polyarch.errors import PolyarchError
from polyarch.plotting import Array
from polyarch.report.beliefs import is_read_out, simplices
from polyarch.runs.run import WEIGHTS, Run
from polyarch.spaces.base import relaxation_of
from polyarch.training import checkpoints


@dataclass(frozen=True)
class Trajectory:
    """How one run went, evaluation by evaluation, its epochs counted through all stages.

    Where an evaluation does not have a number that others have, it is NaN.
    """

    epochs: Array
    """[evaluations]."""
    stages: tuple[int, ...]
    """After how many epochs each stage began; the first after none."""
    probs: dict[str, Array]
    """Belief: for each decision [evaluations, options]."""
    changes: Array
    """Epochs after which the likeliest architecture was no longer that of the evaluation before."""
    values: dict[str, dict[str, Array]]
    """By split and by name: [evaluations, ...]. Beside splits there are `step`, the mean over training steps, `watch`,
    what a method watched, `belief` with its `kl` from the prior in nats, and `table` with the `truth` of the mode,
    measured or predicted."""
    kept: int
    """The epoch whose weights and belief were kept."""

    @classmethod
    def of(cls, run: Run) -> Trajectory:
        """Reads it."""
        lines = run.history()
        if not lines:
            raise PolyarchError(f"{run.folder} has no metrics.jsonl, or an empty one; restore it, or search again")
        _, numbers = checkpoints.load(run.folder / WEIGHTS)
        lengths = {line["stage"]: line["epoch"] for line in lines}
        stages = dict(zip(lengths, itertools.accumulate(lengths.values(), initial=0), strict=False))
        epochs = _column(stages[line["stage"]] + line["epoch"] for line in lines)
        parts = {name: [line.get(name, {}) for line in lines] for name in ("probs", "step", "train", "select", "watch")}
        parts["table"] = [{"truth": line.get("truth", line.get("predicted"))} for line in lines]
        found = {name: columns for name, part in parts.items() if (columns := _columns(part))}
        probs = {d.name: found["probs"][d.name] for d in simplices(run)}
        moved = kl({name: torch.from_numpy(p) for name, p in probs.items()}, run.prior).numpy()
        values = {name: columns for name, columns in found.items() if name != "probs"}
        return cls(
            epochs=epochs,
            stages=tuple(stages.values()),
            probs=probs,
            changes=epochs[_changed(run, probs)],
            values=values | {"belief": {"kl": moved}},
            kept=stages[lines[-1]["stage"]] + int(numbers.get("best_epoch") or lines[-1]["epoch"]),
        )

    def at_kept(self, values: Array) -> Array:
        """Those of some values [evaluations, ...] that are of the kept epoch."""
        kept: Array = values[int(np.abs(self.epochs - self.kept).argmin())]
        return kept

    def kept_value(self, split: str, name: str) -> Array | None:
        """One measurement at the kept epoch, where there is one."""
        found = self.values.get(split, {}).get(name)
        return None if found is None else self.at_kept(found)


def _column(values: Iterable[Any]) -> Array:
    return np.array(list(values), dtype=np.float64)


def _columns(lines: Sequence[Mapping[str, Any]]) -> dict[str, Array]:
    """All that lines have under some name: [lines, ...], NaN where a line has nothing of the last one's shape."""
    last = {name: value for line in lines for name, value in line.items() if value is not None}
    found = {}
    for name, value in last.items():
        shape = np.shape(value)
        missing = np.full(shape, np.nan)
        own = (line.get(name) for line in lines)
        found[name] = _column(missing if v is None or np.shape(v) != shape else v for v in own)
    return found


def _changed(run: Run, probs: Mapping[str, Array]) -> Sequence[int]:
    """Evaluations whose likeliest architecture is another than that of the one before."""
    known = np.flatnonzero(np.isfinite(np.concatenate(list(probs.values()), 1)).all(1))
    rows = [torch.from_numpy(p[known]) for p in probs.values()]
    choices = (
        relaxation_of(run.space).discretize(rows)
        if is_read_out(run)
        else torch.stack([row.argmax(-1) for row in rows], -1)
    )
    moved = (choices[1:] != choices[:-1]).any(-1).numpy()
    found: Sequence[int] = known[1:][moved].tolist()
    return found


def mean_probs(trajectories: Sequence[Trajectory], decision: str, epochs: Array) -> Array:
    """Mean over runs of one decision's probabilities at given epochs: [epochs, options].

    A run counts as long as it went on; NaN where none has a number.
    """
    total, count = np.zeros((len(epochs), trajectories[0].probs[decision].shape[1])), np.zeros((len(epochs), 1))
    for one in trajectories:
        nearest = one.probs[decision][np.abs(epochs[:, None] - one.epochs).argmin(1)]
        counts = np.isfinite(nearest).all(1, keepdims=True) & (epochs <= one.epochs[-1] + 1e-9)[:, None]
        total += np.where(counts, nearest, 0)
        count += counts
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)
