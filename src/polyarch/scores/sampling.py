"""Sample and score: draw architectures from what a run believes, and take the one that a score likes best.

With `synflow` this is the way in which BaLeNAS-TF discretises (Zhang et al. 2022).
"""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from polyarch.architecture import Architecture
from polyarch.data.likelihood import Likelihood
from polyarch.data.task import Task, TaskShape
from polyarch.errors import PolyarchError
from polyarch.scores.base import Candidate, Need, Score
from polyarch.settings import at_least
from polyarch.spaces.base import Space, Supernet
from polyarch.spaces.bounds import SpaceBounds
from polyarch.spaces.limits import Limit
from polyarch.streams import Streams
from polyarch.tables import Benchmark, open_table

if TYPE_CHECKING:
    from polyarch.runs.run import Run

BATCH = 64
"""Training examples that scores are given (the zero-cost proxies' own number)."""
DATA: frozenset[Need] = frozenset({"data", "train", "select"})
"""The needs for which data is read."""


@dataclass(frozen=True)
class Evaluated:
    """An architecture, its score, and its log-probability under belief, where that can be computed."""

    architecture: Architecture
    score: float
    log_prob: float | None


@dataclass(frozen=True)
class Sample:
    """What was drawn and how good it is."""

    drawn: int
    """How many architectures were drawn."""
    candidates: tuple[Evaluated, ...]
    """The different networks among them, best first."""
    argmax: Evaluated
    """The most probable architecture, drawn or not."""

    @property
    def best(self) -> Evaluated:
        """What the score likes best of all that were drawn."""
        return self.candidates[0]


def sample_and_score(
    run: Run, score: Score, n: int = 100, seed: int = 0, limits: Sequence[str | Limit] = (), *, table: str = ""
) -> Sample:
    """Draws architectures from a run's belief and scores each network among them once.

    Args:
        run: finished; its data is loaded if the score needs data.
        score: sees untrained networks, unless it asks for the run's weights.
        n: how many to draw; of several that are the same network (`space.canonical`) the argmax or else the first drawn
            stands for all. Where costs are limited, so many that are within, or fewer if ten times as many have no
            more; the argmax is the most probable one that is.
        seed: of the draw, the batch of examples and the first weights.
        limits: what networks may cost, as `Run.within` takes them.
        table: the same.
    """
    at_least("n", n, 1)
    streams, space, bounds = Streams(seed), run.space, run.within(limits, table)
    argmax = run.selected("argmax", bounds)
    drawn = _drawn(run, n, streams["architecture"], bounds) or [argmax]
    networks: dict[str, Architecture] = {}
    for architecture in (argmax, *drawn):
        networks.setdefault(space.canonical(architecture), architecture)
    architectures = list(networks.values())
    scores = score(candidates_of(run, architectures, score.needs, streams["data"]), streams["init"]).tolist()
    chances = _log_probs(run, architectures)
    evaluated = {name: Evaluated(*row) for name, *row in zip(networks, architectures, scores, chances, strict=True)}
    for each in evaluated.values():
        if not math.isfinite(each.score):
            raise PolyarchError(f"{score.name} of {each.architecture} is {each.score}; use another score")
    candidates = [evaluated[name] for name in dict.fromkeys(map(space.canonical, drawn))]
    candidates.sort(key=lambda each: each.score, reverse=score.larger_is_better)
    return Sample(len(drawn), tuple(candidates), evaluated[space.canonical(argmax)])


def _drawn(run: Run, n: int, generator: torch.Generator, bounds: SpaceBounds | None) -> list[Architecture]:
    """So many architectures that belief draws, within bounds; fewer where ten times as many have no more.

    Where each has to be measured, only so many are drawn.
    """
    found: list[Architecture] = []
    for _ in range(1 if bounds is not None and bounds.looks else 10):
        drawn = run.space.decode(run.distribution.sample(n, generator))
        found += [one for one in drawn if bounds is None or bounds.allow(one.choices)]
        if len(found) >= n:
            break
    return found[:n]


def candidates_of(
    run: Run,
    architectures: Sequence[Architecture],
    needs: Set[Need],
    generator: torch.Generator,
    *,
    table: Benchmark | None = None,
    column: str = "",
    device: str = "cpu",
) -> list[Candidate]:
    """Candidates with what scores need of a run: its weights, its data, by default the table that it was watched by.

    See `candidates_for`.
    """
    if table is None and "table" in needs and run.config.table:
        table, column = open_table(run.config.table), run.config.column
    return candidates_for(
        architectures,
        run.space,
        run.config.shape(),
        run.config.likelihood(),
        needs,
        generator,
        task=run.task() if needs & DATA else None,
        supernet=run.supernet() if "weights" in needs else None,
        table=table,
        column=column,
        device=device,
    )


def candidates_for(
    architectures: Sequence[Architecture],
    space: Space,
    shape: TaskShape,
    likelihood: Likelihood | None,
    needs: Set[Need],
    generator: torch.Generator,
    *,
    task: Task | None = None,
    supernet: Supernet | None = None,
    table: Benchmark | None = None,
    column: str = "",
    device: str = "cpu",
) -> list[Candidate]:
    """Candidates that are compared on equal terms: one batch, one order of minibatches, one supernet for all.

    Args:
        architectures: of the space.
        space: what they are of.
        shape: what networks are built for.
        likelihood: how outputs are compared with targets.
        needs: of all scores that will be asked; what none needs is left out.
        generator: of the batch and of the order, which are the same whatever else is needed.
        task: the data, where there is any.
        supernet: the weights, where there are any.
        table: ground truth, where there is any.
        column: its column.
        device: where examples are put, and with them every network.
    """
    given: dict[str, Any] = {}
    if task is not None and needs & DATA:
        where = torch.device(device)
        first = torch.randperm(len(task.train), generator=generator)[:BATCH]
        given["order"] = int(torch.randint(2**62, (), generator=generator))
        if "data" in needs:
            given["data"] = task.seen(task.train.rows(first), where)
        if "train" in needs:
            given["train"] = task.seen(task.train, where)
        if "select" in needs and task.select is not None:
            given["select"] = task.seen(task.select, where)
    if "weights" in needs:
        given["supernet"] = supernet
    if "table" in needs:
        given |= {"table": table, "column": column}
    return [Candidate(a, space, shape, likelihood=likelihood, **given) for a in architectures]


def _log_probs(run: Run, architectures: Sequence[Architecture]) -> list[float] | list[None]:
    """Log-probabilities under belief; None for all where belief cannot say."""
    choices = torch.tensor([architecture.choices for architecture in architectures])
    try:
        found: list[float] = run.distribution.log_prob(choices).tolist()
    except PolyarchError:
        return [None] * len(architectures)
    return found
