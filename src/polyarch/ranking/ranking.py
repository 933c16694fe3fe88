"""`rank`: many candidates, evaluated by many scores, compared with the truth."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from polyarch.architecture import Architecture
from polyarch.distributions.base import Distribution
from polyarch.errors import PolyarchError
from polyarch.ranking.ledger import Evaluation, Ledger, open_ledger
from polyarch.ranking.statistics import (
    RESAMPLES,
    Estimate,
    Numbers,
    Standing,
    standing,
    standing_of_chance,
)
from polyarch.scores.base import Candidate, Score
from polyarch.scores.parameters import Parameters
from polyarch.scores.tuned import Tuned, read_together
from polyarch.settings import at_least, plain
from polyarch.spaces.base import Space
from polyarch.streams import Streams
from polyarch.tables.columns import Better

FORMAT = 1
"""Of what a folder keeps."""
CHANCE = "random"
PARAMETERS = "parameters"
_SIDE_BY_SIDE = 64
"""Candidates that a GPU fine-tunes at a time."""
_AT_ONCE = 64
"""Architectures of a draw, whatever number is wanted: so a small sample is the beginning of a large one."""
_PATIENCE = 100
"""Draws for each architecture that is wanted, before a belief is taken to know no others."""

Watch = Callable[[int, int], None]
"""Called with how many candidates are evaluated, and how many there are."""


@dataclass(frozen=True)
class Scored:
    """What one score said of all architectures, and how well that orders them."""

    values: Numbers
    """[n], as the score gave them; nan where it gave nothing finite, which is ranked last."""
    larger_is_better: bool
    seconds: float
    """Median time of evaluating one: the first has to warm up."""
    standing: Standing

    @property
    def merit(self) -> Numbers:
        """[n], more is better; minus infinity where it said nothing finite."""
        return _merit(self.values, self.larger_is_better)


@dataclass(frozen=True)
class Ranking:
    """Scores compared with the truth, always beside the number of parameters and chance."""

    architectures: tuple[Architecture, ...]
    truth: Numbers
    better: Better
    parameters: Numbers
    scores: dict[str, Scored]
    """By name, `parameters` among them."""
    chance: Standing

    def summary(self) -> dict[str, Any]:
        """Plain values, for JSON; null is undefined."""
        scores = {
            name: _told(scored.standing, scored.seconds, int(np.isnan(scored.values).sum()))
            for name, scored in self.scores.items()
        }
        best = self.truth.max() if self.better == "higher" else self.truth.min()
        return {
            "architectures": len(self.architectures),
            "truth": {"mean": float(self.truth.mean()), "best": float(best), "better": self.better},
            "scores": {**scores, CHANCE: _told(self.chance, 0.0, 0)},
        }


def rank(
    candidates: Sequence[Candidate],
    scores: Mapping[str, Score],
    truth: Numbers,
    *,
    better: Better = "higher",
    seed: int = 0,
    resamples: int = RESAMPLES,
    together: int | None = None,
    out: str | Path | None = None,
    about: Mapping[str, Any] | None = None,
    watch: Watch | None = None,
) -> Ranking:
    """Evaluates candidates by every score and compares each with the truth.

    Scores that are read from fine-tuning share one pass per candidate where their recipes agree.

    Args:
        candidates: different architectures of one space, with what the scores need.
        scores: by the names that they will have.
        truth: [n], finite.
        better: of the truth.
        seed: of first weights, of what networks draw while they are trained, and of the resampling.
        resamples: of the intervals.
        together: how many candidates are evaluated at a time, and again if it is killed; by default one on a CPU
            and 64 on a GPU, where they are fine-tuned at once (fewer where memory is too small).
        out: a folder in which evaluations are kept, so that a ranking goes on after it was killed; see `open_ledger`.
        about: what evaluations depend on beside scores, architectures and seed, as plain values: a folder with others
            is refused.
        watch: called as candidates are evaluated.
    """
    _check(candidates, scores, truth)
    together = (_SIDE_BY_SIDE if candidates[0].device.type == "cuda" else 1) if together is None else together
    at_least("together", together, 1)
    everything = {**scores, PARAMETERS: Parameters()}
    told = {
        "format": FORMAT,
        **(about or {}),
        "architectures": [c.architecture.text for c in candidates],
        "scores": {name: _described(score) for name, score in everything.items()},
        "seed": seed,
    }
    with open_ledger(Path(out) if out else None, told) as ledger:
        for start in range(0, len(candidates), together):
            _evaluate(candidates[start : start + together], everything, seed, ledger)
            if watch:
                watch(min(start + together, len(candidates)), len(candidates))
        evaluations = {name: [_found(ledger, c, name) for c in candidates] for name in everything}
    sizes = _values(evaluations[PARAMETERS])
    facts = np.asarray(truth, np.float64)
    sampling: dict[str, Any] = {"better": better, "resamples": resamples, "seed": seed}

    def scored(name: str) -> Scored:
        values, larger = _values(evaluations[name]), everything[name].larger_is_better
        seconds = float(np.median([each.seconds for each in evaluations[name]]))
        return Scored(values, larger, seconds, standing(_merit(values, larger), facts, sizes, **sampling))

    return Ranking(
        architectures=tuple(c.architecture for c in candidates),
        truth=facts,
        better=better,
        parameters=sizes,
        scores={name: scored(name) for name in everything},
        chance=standing_of_chance(facts, sizes, **sampling),
    )


def draw(space: Space, count: int, seed: int, belief: Distribution | None = None) -> list[Architecture]:
    """Different architectures of a space: `count` of them, or as many as there are.

    A smaller sample with the same seed is the beginning of a larger one.

    Args:
        space: what they are of.
        count: how many.
        seed: of the draw.
        belief: what to draw from; by default what the space draws from.
    """
    at_least("sample", count, 1)
    source, generator = belief or space.random(), Streams(seed)["architecture"]
    wanted = min(count, source.architectures)
    found: dict[tuple[int, ...], None] = {}
    for _ in range(_PATIENCE * math.ceil(count / _AT_ONCE)):
        found |= dict.fromkeys(tuple(row) for row in source.sample(_AT_ONCE, generator).tolist())
        if len(found) >= wanted:
            break
    return [space.architecture(choices) for choices in list(found)[:wanted]]


def _check(candidates: Sequence[Candidate], scores: Mapping[str, Score], truth: Numbers) -> None:
    if not candidates:
        raise PolyarchError("there is no architecture to rank; give one at least")
    if len(truth) != len(candidates):
        raise PolyarchError(
            f"there are {len(candidates)} architectures and {len(truth)} true numbers; give one for each"
        )
    if len({c.architecture.text for c in candidates}) < len(candidates):
        raise PolyarchError("an architecture stands there twice; give each once")
    for name, score in scores.items():
        if name == CHANCE or (name == PARAMETERS and not isinstance(score, Parameters)):
            raise PolyarchError(f"{name!r} stands beside every ranking already; give the score another name")
        score.check(candidates[0])


def _described(score: Score) -> dict[str, Any]:
    from polyarch.catalogue import name_of

    settings = plain(score)
    return {"class": name_of("score", type(score), settings), "settings": settings}


def _evaluate(candidates: Sequence[Candidate], scores: Mapping[str, Score], seed: int, ledger: Ledger) -> None:
    """Works out what is not in the ledger yet, and puts it there."""

    def unknown(name: str) -> list[Candidate]:
        return [c for c in candidates if ledger.get(c.architecture.text, name) is None]

    new: list[Evaluation] = []
    tuned: dict[str, Tuned] = {}
    for name, score in scores.items():
        lacking = unknown(name)
        if lacking and isinstance(score, Tuned):
            tuned[name] = score
        elif lacking:
            started = time.perf_counter()
            values = score(lacking, Streams(seed)["init"]).tolist()
            seconds = (time.perf_counter() - started) / len(values)
            new += [_evaluation(c, name, value, seconds) for c, value in zip(lacking, values, strict=True)]
    if tuned:
        rows = read_together(list(tuned.values()), candidates, Streams(seed)["init"])
        for candidate, row in zip(candidates, rows, strict=True):
            new += [_evaluation(candidate, name, *read) for name, read in zip(tuned, row, strict=True)]
    ledger.add(new)


def _evaluation(candidate: Candidate, name: str, value: float, seconds: float) -> Evaluation:
    return Evaluation(candidate.architecture.text, name, value if math.isfinite(value) else None, seconds)


def _found(ledger: Ledger, candidate: Candidate, name: str) -> Evaluation:
    found = ledger.get(candidate.architecture.text, name)
    assert found is not None
    return found


def _values(evaluations: Sequence[Evaluation]) -> Numbers:
    return np.array([np.nan if each.value is None else each.value for each in evaluations])


def _merit(values: Numbers, larger_is_better: bool) -> Numbers:
    merit = values if larger_is_better else -values
    return np.where(np.isnan(merit), -np.inf, merit)


def _told(found: Standing, seconds: float, not_finite: int) -> dict[str, Any]:
    estimates = {name: value for name, value in vars(found).items() if isinstance(value, Estimate)}
    told: dict[str, Any] = {name: estimate.value for name, estimate in estimates.items()}
    told |= {"seconds": seconds, "intervals": {name: estimate.interval for name, estimate in estimates.items()}}
    if found.undefined:
        told["undefined"] = found.undefined
    if not_finite:
        told["not_finite"] = not_finite
    return told
