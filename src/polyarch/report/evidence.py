"""What a report shows, gathered from finished runs as plain numbers and arrays."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from polyarch.architecture import Decision
from polyarch.data.task import Split, Task
from polyarch.distributions.priors import uniform
from polyarch.errors import PolyarchError
from polyarch.report.drawing import Array
from polyarch.runs.results import BATCH, largest
from polyarch.runs.run import WEIGHTS, Run
from polyarch.spaces.base import Space, relaxation_of
from polyarch.spaces.graph import Graph
from polyarch.spaces.only import certain
from polyarch.spaces.relaxation import SimplexPerDecision
from polyarch.spaces.supernets import sparse_selections
from polyarch.streams import Streams
from polyarch.training import checkpoints
from polyarch.uncertainty.ensemble import Ensemble
from polyarch.uncertainty.predictive import Predictive


@dataclass(frozen=True)
class Course:
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
    what a method watched, `belief` with its `entropy` in nats, and `table` with the `truth` of the mode."""
    kept: int
    """The epoch whose weights and belief were kept."""

    def at_kept(self, split: str, name: str) -> Array | None:
        """One measurement at the kept epoch."""
        found = self.values.get(split, {}).get(name)
        return None if found is None else found[int(np.abs(self.epochs - self.kept).argmin())]


def course(run: Run) -> Course:
    """The history of a run, as arrays."""
    lines = run.history()
    if not lines:
        raise PolyarchError(f"{run.folder} has no metrics.jsonl, or an empty one; restore it, or search again")
    _, numbers = checkpoints.load(run.folder / WEIGHTS)
    lengths = {line["stage"]: line["epoch"] for line in lines}
    stages = dict(zip(lengths, itertools.accumulate(lengths.values(), initial=0), strict=False))
    epochs = _column(stages[line["stage"]] + line["epoch"] for line in lines)
    parts = {name: [line.get(name, {}) for line in lines] for name in ("probs", "step", "train", "valid", "watch")}
    parts["belief"] = [{"entropy": line["entropy"]} for line in lines]
    parts["table"] = [{"truth": line.get("truth")} for line in lines]
    found = {name: columns for name, part in parts.items() if (columns := _columns(part))}
    probs = {d.name: found["probs"][d.name] for d in simplices(run)}
    return Course(
        epochs=epochs,
        stages=tuple(stages.values()),
        probs=probs,
        changes=epochs[_changed(run, probs)],
        values={name: columns for name, columns in found.items() if name != "probs"},
        kept=stages[lines[-1]["stage"]] + int(numbers.get("best_epoch") or lines[-1]["epoch"]),
    )


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


def averaged(courses: Sequence[Course], decision: str, places: Array) -> Array:
    """Mean over runs of one decision's probabilities at given epochs: [places, options].

    A run counts as long as it went on; NaN where none has a number.
    """
    total, count = np.zeros((len(places), courses[0].probs[decision].shape[1])), np.zeros((len(places), 1))
    for one in courses:
        nearest = one.probs[decision][np.abs(places[:, None] - one.epochs).argmin(1)]
        counts = np.isfinite(nearest).all(1, keepdims=True) & (places <= one.epochs[-1] + 1e-9)[:, None]
        total += np.where(counts, nearest, 0)
        count += counts
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def probs(run: Run) -> dict[str, Array]:
    """Belief: for each decision [options]."""
    return {name: p.detach().double().numpy() for name, p in run.distribution.probs().items()}


def prior(run: Run) -> dict[str, Array]:
    """What was believed before the data was seen: for each decision [options]."""
    before = uniform(run.distribution.factors) if is_read_out(run) else run.config.make_prior(run.space)
    return {name: p.double().numpy() for name, p in before.probs().items()}


def is_read_out(run: Run) -> bool:
    """Whether belief is about the simplices that a space mixes, and architectures are read out of it."""
    return not run.distribution.exact


def simplices(run: Run) -> tuple[Decision, ...]:
    """What belief is about."""
    return run.distribution.factors


def operations(run: Run) -> dict[str, tuple[str, ...]]:
    """The operation that every option of these stands for; those that take it from different inputs share it."""
    if is_read_out(run):
        return {d.name: d.options for d in run.distribution.factors}
    return {
        d.name: tuple(_operation(run.space, k, option) for option in range(len(d)))
        for k, d in enumerate(run.space.decisions)
    }


def _operation(space: Space, decision: int, option: int) -> str:
    relaxation = space.relaxation or SimplexPerDecision(space.decisions)
    used = {relaxation.simplices[simplex].options[own] for simplex, own in relaxation.uses(decision, option)}
    return used.pop() if len(used) == 1 else space.decisions[decision].options[option]


def selected(run: Run) -> dict[str, list[int]]:
    """The options of these that the selected architecture uses."""
    if is_read_out(run):
        selections = sparse_selections(relaxation_of(run.space), run.architecture.choices)
        return {name: [option for option, _ in selection] for name, selection in selections.items()}
    return {d.name: [choice] for d, choice in zip(run.space.decisions, run.architecture.choices, strict=True)}


def frequencies(run: Run, samples: int = 256) -> dict[str, list[float]]:
    """How often belief takes each option of each decision; counted in samples where it is read out."""
    if not is_read_out(run):
        return {name: p.tolist() for name, p in probs(run).items()}
    drawn = run.distribution.sample(samples, Streams(run.seed)["architecture"])
    return {
        d.name: (torch.bincount(drawn[:, k], minlength=len(d)) / samples).tolist()
        for k, d in enumerate(run.space.decisions)
    }


def graphs(run: Run) -> list[Graph]:
    """Pictures of the selected architecture and, where belief was open, of belief."""
    chosen = run.space.graphs(certain(run.space, run.architecture))
    found = [replace(graph, title=f"{graph.title}, selected") for graph in chosen]
    if not is_point(run):
        found += [replace(graph, title=f"{graph.title}, belief") for graph in run.space.graphs(frequencies(run))]
    return found


def is_point(run: Run) -> bool:
    """Whether belief was never open: a run of one fixed architecture."""
    return all(int((p > 0).sum()) == 1 for p in run.distribution.probs().values())


def is_mixed(run: Run) -> bool:
    """Whether more than one network speaks for a run: several architectures, or one thinned by dropout."""
    return not is_point(run) or run.space.has_dropout


def is_depth(run: Run) -> bool:
    """Whether a run is about depth."""
    return run.space.name == "depth"


def depth_of(run: Run) -> int:
    """The selected depth."""
    return run.architecture.choices[0]


def judged_split(task: Task) -> tuple[str, Split] | None:
    """The split that results are told on: test data where there is some, else validation data."""
    for name, split in (("test", task.test), ("valid", task.valid)):
        if split is not None and len(split):
            return name, split
    return None


# --------------------------------------------------------------------------------------------------
# What the networks say.


@dataclass(frozen=True)
class Voices:
    """The networks of a run that a report lets speak, on the device that the run was made on."""

    model: nn.Module
    pruned: Ensemble | None
    """The mixture; None where there is one network alone."""
    full: Ensemble | None
    """The mixture before pruning; None where nothing was pruned."""
    device: torch.device

    @classmethod
    def of(cls, run: Run) -> Voices:
        """Loads them."""
        cut = is_depth(run) and run.architecture != largest(run)
        return cls(
            model=run.model().to(run.device),
            pruned=run.ensemble().to(run.device) if is_mixed(run) else None,
            full=run.ensemble(largest(run)).to(run.device) if cut else None,
            device=run.device,
        )

    def log_probs(self, model: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """Class probabilities [n, classes] that one of these gives raw inputs, as logarithms."""
        return self.answers(model, x).log_softmax(-1)

    @torch.no_grad()
    def answers(self, model: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """What one of these says of raw inputs [n, ...], batch by batch along the last but one axis."""
        return torch.cat([model(part.to(self.device)).cpu() for part in x.split(BATCH)], -2)


def predictive(voices: Sequence[Voices], x: Tensor) -> Predictive:
    """What the mixture over the members of all mixtures says; each of them has the same say."""
    spoken = [(voice, voice.pruned) for voice in voices if voice.pruned is not None]
    weights = torch.cat([mixture.weights.cpu() for _, mixture in spoken]) / len(spoken)
    parts = []
    for part in x.split(BATCH):
        members = torch.cat([voice.answers(mixture.members, part) for voice, mixture in spoken])
        parts.append(Predictive.from_members(members.log_softmax(-1), weights))
    return Predictive.joined(parts)
