"""Sample and score: draw architectures from what a run believes, and take the one that a score likes best.

With `synflow` this is the read-out of BaLeNAS-TF (seed paper 4).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from polyarch.architecture import Architecture
from polyarch.errors import PolyarchError
from polyarch.methods.base import Examples
from polyarch.scores.base import Candidate, Score
from polyarch.settings import at_least
from polyarch.training.streams import Streams

if TYPE_CHECKING:
    from polyarch.runs.run import Run

BATCH = 64
"""Training examples that scores are given (the zero-cost proxies' own number)."""


@dataclass(frozen=True)
class Judged:
    """An architecture, its score, and its log-probability under belief, where that can be computed."""

    architecture: Architecture
    score: float
    log_prob: float | None


@dataclass(frozen=True)
class Sample:
    """What was drawn and how it was judged."""

    drawn: int
    """How many architectures were drawn."""
    candidates: tuple[Judged, ...]
    """The different networks among them, best first."""
    argmax: Judged
    """The most probable architecture, drawn or not."""

    @property
    def best(self) -> Judged:
        """What the score likes best of all that were drawn."""
        return self.candidates[0]


def sample_and_score(run: Run, score: Score, n: int = 100, seed: int = 0) -> Sample:
    """Draws architectures from a run's belief and judges each network among them once.

    Args:
        run: finished; its data is loaded if the score needs data.
        score: the judge; it sees untrained networks, unless it asks for the run's weights.
        n: how many to draw; of several that are the same network (`space.canonical`) the argmax or else the first drawn
            stands for all.
        seed: of the draw, the batch of examples and the first weights.
    """
    at_least("n", n, 1)
    streams, belief, space = Streams(seed), run.distribution, run.space
    argmax = run.selected("argmax")
    drawn = space.decode(belief.sample(n, streams["architecture"]))
    networks: dict[str, Architecture] = {}
    for architecture in (argmax, *drawn):
        networks.setdefault(space.canonical(architecture), architecture)
    architectures = list(networks.values())
    scores = score(candidates_of(run, architectures, score, streams["data"]), streams["init"]).tolist()
    chances = _log_probs(run, architectures)
    judged = {name: Judged(*row) for name, *row in zip(networks, architectures, scores, chances, strict=True)}
    for each in judged.values():
        if not math.isfinite(each.score):
            raise PolyarchError(f"{score.name} of {each.architecture} is {each.score}; use another score")
    candidates = [judged[name] for name in dict.fromkeys(map(space.canonical, drawn))]
    candidates.sort(key=lambda each: each.score, reverse=score.larger_is_better)
    return Sample(n, tuple(candidates), judged[space.canonical(argmax)])


def candidates_of(
    run: Run, architectures: Sequence[Architecture], score: Score, generator: torch.Generator
) -> list[Candidate]:
    """Candidates with what a score needs of a run: its weights, one batch of its training data for all."""
    data = None
    if "data" in score.needs:
        train = run.task().train
        order = torch.randperm(len(train), generator=generator)[:BATCH]
        data = Examples(run.standardise()(train.x[order]), train.y[order])
    supernet = run.supernet() if "weights" in score.needs else None
    shape, likelihood = run.config.shape(), run.config.likelihood()
    return [Candidate(a, run.space, shape, supernet, data, likelihood) for a in architectures]


def _log_probs(run: Run, architectures: Sequence[Architecture]) -> list[float] | list[None]:
    """Log-probabilities under belief; None for all where belief cannot say."""
    choices = torch.tensor([architecture.choices for architecture in architectures])
    try:
        found: list[float] = run.distribution.log_prob(choices).tolist()
    except PolyarchError:
        return [None] * len(architectures)
    return found
