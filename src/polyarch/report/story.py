"""What kind of story the runs of a report tell, and the facts that several of its sections need."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor

from polyarch.data.task import Classification, Split, Task
from polyarch.errors import PolyarchError
from polyarch.report import evidence, words
from polyarch.report.words import Measure
from polyarch.runs.results import predictive
from polyarch.runs.run import Run, check_same_data
from polyarch.uncertainty.predictive import Predictive

MIXED, UNPRUNED = "_ensemble", "_unpruned"
"""Endings of the names under which a result keeps the measures of the pruned and of the full mixture."""


@dataclass(frozen=True)
class Group:
    """Baselines that differ in their seed alone."""

    name: str
    depth: int | None
    """Of a network of fixed depth."""
    runs: list[Run]

    @property
    def kind(self) -> str:
        """Whose measures stand for it: the network's, or the mixture's where there is one."""
        return MIXED if evidence.is_mixed(self.runs[0]) else ""


@dataclass
class Story:
    """Runs of one search that differ in their seed alone, their data, and what they are compared with."""

    runs: Sequence[Run]
    task: Task
    baselines: Sequence[Run]
    folder: Path
    """Where the page is put."""

    def __post_init__(self) -> None:
        for run in (*self.runs, *self.baselines):
            if run.config.repeats > 1:
                raise PolyarchError(
                    f"{run.folder} holds {run.config.repeats} repeats; pass the runs of open_repeats(folder) "
                    "instead, to write_summary_report or as baselines"
                )
            check_same_data(run.config, self.task)
        first = self.runs[0].config
        for run in self.runs[1:]:
            if (run.config.space, run.config.method, run.config.prior) != (
                first.space,
                first.method,
                first.prior,
            ):
                raise PolyarchError(
                    f"{run.folder} is not a repeat of {self.run.folder}: its space, method or prior differ; "
                    "pass it as a baseline instead"
                )
        self._results: dict[Path, dict[str, Any]] = {}

    @property
    def run(self) -> Run:
        """The first run; what all share is read from it."""
        return self.runs[0]

    @property
    def several(self) -> bool:
        """Whether there is a spread over seeds."""
        return len(self.runs) > 1

    @cached_property
    def is_depth(self) -> bool:
        """Whether the search was about depth."""
        return evidence.is_depth(self.run)

    @cached_property
    def is_point(self) -> bool:
        """Whether there was nothing to search: one fixed architecture."""
        return evidence.is_point(self.run)

    @cached_property
    def is_mixed(self) -> bool:
        """Whether there is a mixture to tell of."""
        return evidence.is_mixed(self.run)

    @property
    def members(self) -> str:
        """What the mixture is of."""
        if self.is_depth:
            return "depths"
        if self.is_point:
            return "draws of dropout"
        return "architectures and draws of dropout" if self.run.space.has_dropout else "architectures"

    @cached_property
    def depths(self) -> list[int]:
        """The selected depth of each run."""
        return [evidence.depth_of(run) for run in self.runs]

    @cached_property
    def most(self) -> int:
        """The largest depth considered."""
        return len(self.run.space.decisions[0]) - 1

    @cached_property
    def is_cut(self) -> bool:
        """Whether anything was pruned: not where depth was fixed, or all of it kept."""
        return self.is_depth and not self.is_point and any(d < self.most for d in self.depths)

    @cached_property
    def classifies(self) -> bool:
        """Whether classes are predicted, rather than numbers."""
        return isinstance(self.task.likelihood, Classification)

    @property
    def measures(self) -> tuple[Measure, ...]:
        """What predictions are judged by."""
        return words.CLASSIFICATION if self.classifies else words.REGRESSION

    @cached_property
    def split(self) -> str | None:
        """The split that results are told on."""
        found = evidence.judged_split(self.task)
        return found[0] if found else None

    @cached_property
    def courses(self) -> list[evidence.Course]:
        """How each run went."""
        return [evidence.course(run) for run in self.runs]

    @cached_property
    def voices(self) -> list[evidence.Voices]:
        """The networks of each run."""
        return [evidence.Voices.of(run) for run in self.runs]

    @cached_property
    def judged(self) -> Split | None:
        """The examples of `split`."""
        found = evidence.judged_split(self.task)
        return found[1] if found else None

    @cached_property
    def networks_said(self) -> list[Tensor]:
        """Log-probabilities [n, classes] of `judged` by each run's selected network."""
        assert self.judged is not None
        return [voice.log_probs(voice.model, self.judged.x) for voice in self.voices]

    @cached_property
    def mixtures_said(self) -> list[Predictive]:
        """What each run's mixture, pruned, says about `judged`; nothing where there is no mixture."""
        assert self.judged is not None
        return [predictive(v.pruned, self.judged.x, v.device) for v in self.voices if v.pruned]

    @cached_property
    def groups(self) -> list[Group]:
        """Baselines by what they are: fixed depths in order, then others."""
        found: dict[str, Group] = {}
        for run in self.baselines:
            depth = evidence.depth_of(run) if evidence.is_depth(run) and evidence.is_point(run) else None
            name = f"Fixed depth {depth}" if depth is not None else f"{run.config.method['name']}, {run.folder.name}"
            found.setdefault(name, Group(name, depth, [])).runs.append(run)
        return sorted(found.values(), key=lambda g: (g.depth is None, g.depth or 0, g.name))

    def result(self, run: Run) -> dict[str, Any]:
        """A run's result, read once."""
        if run.folder not in self._results:
            self._results[run.folder] = run.result
        return self._results[run.folder]

    @property
    def results(self) -> list[dict[str, Any]]:
        """The result of each run."""
        return [self.result(run) for run in self.runs]

    def values(self, runs: Sequence[Run], kind: str, name: str) -> list[float]:
        """One measure of several runs on `split`, empty where it was not taken; `kind` is "" for networks."""
        found = [self.result(run)["metrics"].get(f"{self.split}{kind}", {}).get(name) for run in runs]
        return [float(value) for value in found if value is not None]

    def own(self, name: str) -> list[float]:
        """One measure of the selected networks."""
        return self.values(self.runs, "", name)

    def mixed(self, name: str) -> list[float]:
        """One measure of the pruned mixtures; empty where there is no mixture."""
        return self.values(self.runs, MIXED, name) if self.is_mixed else []

    @property
    def is_flat(self) -> bool:
        """Whether belief over depth is about as wide as it can be, so that a selection says little."""
        return self.is_depth and self.most > 1 and self.entropy() > 0.95 * math.log(self.most + 1)

    def entropy(self) -> float:
        """Of belief, in nats, mean over seeds."""
        return words.mean([result["distribution"]["entropy"] for result in self.results])
