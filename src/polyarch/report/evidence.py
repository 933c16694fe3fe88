"""What a report shows, gathered from finished runs as plain numbers and arrays."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from polyarch.architecture import Architecture
from polyarch.data.task import Split, Task
from polyarch.errors import PolyarchError
from polyarch.report.drawing import Array
from polyarch.runs.run import WEIGHTS, Run
from polyarch.training import checkpoints
from polyarch.uncertainty.ensemble import Ensemble
from polyarch.uncertainty.predictive import Predictive

BATCH = 1024


@dataclass(frozen=True)
class Course:
    """How one run went, evaluation by evaluation; of several stages, the last."""

    epochs: Array
    """[evaluations]."""
    probs: dict[str, Array]
    """Belief: for each decision [evaluations, options]."""
    entropy: Array
    """[evaluations], in nats."""
    values: dict[str, dict[str, Array]]
    """By split (`step` is the mean over training steps) and by name: [evaluations, ...]."""
    kept: int
    """The epoch whose weights and belief were kept."""

    def at_kept(self, split: str, name: str) -> Array | None:
        """One measurement at the kept epoch."""
        found = self.values.get(split, {}).get(name)
        return None if found is None else found[int(np.abs(self.epochs - self.kept).argmin())]


def course(run: Run) -> Course:
    """The history of a run, as arrays."""
    lines = run.history()
    lines = [line for line in lines if line["stage"] == lines[-1]["stage"]]
    if not lines:
        raise PolyarchError(f"{run.folder} has no metrics.jsonl, or an empty one; restore it, or search again")
    _, numbers = checkpoints.load(run.folder / WEIGHTS)
    return Course(
        epochs=_column(line["epoch"] for line in lines),
        probs={name: _column(line["probs"][name] for line in lines) for name in lines[-1]["probs"]},
        entropy=_column(line["entropy"] for line in lines),
        values={
            split: {name: _column(line[split][name] for line in lines) for name in lines[-1][split]}
            for split in ("step", "train", "valid")
            if split in lines[-1]
        },
        kept=int(numbers.get("best_epoch") or lines[-1]["epoch"]),
    )


def _column(values: Iterable[Any]) -> Array:
    return np.array(list(values), dtype=np.float64)


def probs(run: Run) -> dict[str, Array]:
    """Belief: for each decision [options]."""
    return {name: p.detach().double().numpy() for name, p in run.distribution.probs().items()}


def prior(run: Run) -> dict[str, Array]:
    """What was believed before the data was seen: for each decision [options]."""
    return {name: p.double().numpy() for name, p in run.config.make_prior(run.space).probs().items()}


def is_point(run: Run) -> bool:
    """Whether belief was never open: a run of one fixed architecture."""
    return bool(((run.distribution.logits > -torch.inf).sum(-1) == 1).all())


def is_depth(run: Run) -> bool:
    """Whether a run is about depth."""
    return run.space.name == "depth"


def depth_of(run: Run) -> int:
    """The selected depth."""
    return run.architecture.choices[0]


def largest(run: Run) -> Architecture:
    """The architecture that cuts nothing off."""
    return run.space.architecture([len(d) - 1 for d in run.space.decisions])


def judged_split(task: Task) -> tuple[str, Split] | None:
    """The split that results are told on: test data where there is some, else validation data."""
    for name, split in (("test", task.test), ("valid", task.valid)):
        if split is not None and len(split):
            return name, split
    return None


def metric(run: Run, split: str, kind: str, name: str) -> float | None:
    """One number of a run's result; `kind` is `` (the network), `_ensemble` or `_unpruned`."""
    value = run.result["metrics"].get(split + kind, {}).get(name)
    return None if value is None else float(value)


def mean_and_spread(values: Sequence[float]) -> tuple[float, float]:
    """Mean and standard deviation (of a sample; 0 for a single value)."""
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0


# ---------------------------------------------------------------------------------------------------------------------
# What the networks say.


@dataclass(frozen=True)
class Voices:
    """The networks of a run that a report lets speak."""

    model: nn.Module
    pruned: Ensemble | None
    """None where members do not share one pass, or where there is but one."""
    full: Ensemble | None
    """None where nothing was pruned."""

    @classmethod
    def of(cls, run: Run) -> Voices:
        """Loads them."""
        model, biggest = run.model(), largest(run)
        if is_point(run):
            return cls(model, None, None)
        try:
            pruned = run.ensemble()
        except PolyarchError:  # the space is not nested
            return cls(model, None, None)
        return cls(model, pruned, run.ensemble(biggest) if run.architecture != biggest else None)


@torch.no_grad()
def model_log_probs(model: nn.Module, x: Tensor) -> Tensor:
    """[n, classes] of one network on raw inputs."""
    return torch.cat([model(part).log_softmax(-1) for part in x.split(BATCH)])


@torch.no_grad()
def ensemble_log_probs(ensemble: Ensemble, x: Tensor) -> Tensor:
    """[n, classes] of a mixture on raw inputs."""
    return torch.cat([ensemble.output(part) for part in x.split(BATCH)])


@torch.no_grad()
def predictive(ensembles: Sequence[Ensemble], x: Tensor) -> Predictive:
    """What the mixture over the members of all ensembles says; each ensemble has the same say."""
    weights = torch.cat([e.weights for e in ensembles]) / len(ensembles)
    parts = [
        Predictive.from_members(torch.cat([e.members(part).log_softmax(-1) for e in ensembles]), weights)
        for part in x.split(BATCH)
    ]
    names = ("log_probs", "entropy", "expected_entropy", "mutual_information")
    return Predictive(**{name: torch.cat([getattr(part, name) for part in parts]) for name in names})
