"""What runs believe about architectures, as plain numbers and pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from polyarch.architecture import Architecture, Decision
from polyarch.plotting import Array
from polyarch.report import formatting
from polyarch.runs.run import Run
from polyarch.spaces.base import Space, relaxation_of
from polyarch.spaces.graph import Graph, certain, pictures
from polyarch.spaces.relaxation import SimplexPerDecision
from polyarch.spaces.supernets import sparse_selections
from polyarch.streams import Streams


def probs(run: Run) -> dict[str, Array]:
    """Belief: for each decision [options]."""
    return {name: p.detach().double().numpy() for name, p in run.distribution.probs().items()}


def prior(run: Run) -> dict[str, Array]:
    """What was believed before the data was seen: for each decision [options]."""
    return {name: p.double().numpy() for name, p in run.prior.probs().items()}


def is_read_out(run: Run) -> bool:
    """Whether belief is about the simplices that a space mixes, and architectures are read out of it."""
    return not run.distribution.exact


def is_point(run: Run) -> bool:
    """Whether belief was never open: a run of one fixed architecture."""
    return all(int((p > 0).sum()) == 1 for p in run.distribution.probs().values())


def learns(run: Run) -> bool:
    """Whether belief is learnt at all."""
    return run.meaning.kind != "fixed"


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


def graphs(runs: Sequence[Run]) -> list[Graph]:
    """Pictures of what each of some runs of one search selected, the same only once, and of what they believe."""
    first, several = runs[0], len(runs) > 1
    seeds: dict[Architecture, list[int]] = {}
    for run in runs:
        seeds.setdefault(run.architecture, []).append(run.seed)
    found = []
    for architecture, own in seeds.items():
        who = f", {formatting.seeds(own)}" if several else ""
        chosen = pictures(first.space, certain(first.space.decisions, architecture))
        found += [replace(graph, title=f"{graph.title}, selected{who}") for graph in chosen]
    if learns(first):
        who = ", mean over seeds" if several else ""
        believed = pictures(first.space, _frequencies(runs))
        found += [replace(graph, title=f"{graph.title}, belief{who}") for graph in believed]
    return found


def _frequencies(runs: Sequence[Run]) -> dict[str, list[float]]:
    """How often beliefs take each option of each decision, on average over runs."""
    every = [_frequencies_of(run) for run in runs]
    return {name: np.mean([own[name] for own in every], 0).tolist() for name in every[0]}


def _frequencies_of(run: Run, samples: int = 256) -> dict[str, list[float]]:
    """How often belief takes each option of each decision; counted in samples where it is read out."""
    if not is_read_out(run):
        return {name: p.tolist() for name, p in probs(run).items()}
    drawn = run.distribution.sample(samples, Streams(run.seed)["architecture"])
    return {
        d.name: (torch.bincount(drawn[:, k], minlength=len(d)) / samples).tolist()
        for k, d in enumerate(run.space.decisions)
    }
