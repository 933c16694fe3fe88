"""What a report is about: runs, their data, what they are compared with, and facts that several sections need."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from polyarch.architecture import Decision
from polyarch.core import Meaning
from polyarch.data.likelihood import Classification, Gaussian
from polyarch.data.task import Split, Task
from polyarch.errors import PolyarchError
from polyarch.plotting import Array
from polyarch.ranking import Trust, read_trust
from polyarch.report import beliefs, formatting
from polyarch.report.formatting import Metric
from polyarch.report.networks import Networks, has_mixture
from polyarch.report.trajectory import Trajectory
from polyarch.runs.plain import PlainModel, PlainModels, read_plain
from polyarch.runs.results import Answers, answers_of
from polyarch.runs.run import Run, check_same_data
from polyarch.training.evaluation import MOST
from polyarch.uncertainty.predictive import Predictive

MIXTURE, UNPRUNED, TEMPERED, TRAINED = "_ensemble", "_unpruned", "_tempered", "_trained"
"""Endings of the names under which a result keeps the metrics of the mixture, pruned where it can be; of the unpruned
one; of the first after the run's temperature; and of the selected network, trained alone."""


@dataclass(frozen=True)
class BaselineGroup:
    """Baselines that differ in their seed alone."""

    name: str
    option: int | None
    """The number of the fixed option, where the report and they are about the same nested decision."""
    runs: list[Run]

    @property
    def kind(self) -> str:
        """Whose metrics stand for it: the network's, or the mixture's where there is one."""
        return MIXTURE if has_mixture(self.runs[0]) else ""


@dataclass
class ReportData:
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
        for run in self.runs:
            check_same_data(run.config, self.task)
        first = self.run.config
        for run in self.baselines:
            data = run.config.data
            if any(data[what] != first.data[what] for what in ("fingerprint", "likelihood")):
                raise PolyarchError(
                    f"the baseline {run.folder} was trained on other data ({data['name']}) than {self.run.folder} "
                    f"({first.data['name']}), or on another split of it; give runs on the same data"
                )
        for run in self.runs[1:]:
            own = run.config
            if (own.space, own.method, own.prior) != (first.space, first.method, first.prior):
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
    def trust(self) -> Trust | None:
        """What `polyarch trust` found, if it was asked; it is about one run."""
        return None if self.several else read_trust(self.run.folder)

    @cached_property
    def plains(self) -> list[PlainModels]:
        """Plain models beside each run, where they were fitted."""
        found = [read_plain(run.folder) for run in self.runs]
        return [plain for plain in found if plain] if all(found) else []

    @cached_property
    def is_point(self) -> bool:
        """Whether there was nothing to search: one fixed architecture."""
        return beliefs.is_point(self.run)

    @property
    def meaning(self) -> Meaning:
        """What belief means."""
        return self.run.meaning

    @property
    def learns(self) -> bool:
        """Whether belief is learnt at all."""
        return beliefs.learns(self.run)

    @cached_property
    def has_mixture(self) -> bool:
        """Whether there is a mixture to tell of."""
        return has_mixture(self.run)

    @cached_property
    def is_trained(self) -> bool:
        """Whether every selected network was trained alone, so that the page is about those."""
        return all(run.trained for run in self.runs)

    @property
    def shares_weights(self) -> bool:
        """Whether the search has its numbers with weights that many architectures share."""
        return self.run.shares_weights

    @property
    def network_kind(self) -> str:
        """Whose metrics are those of the selected network, as `run.model()` gives it."""
        return TRAINED if self.is_trained else ""

    @property
    def mixture(self) -> str:
        """What the mixture that a run hands over is called; the one of all options of a nested decision is another."""
        return "pruned mixture" if self.is_pruned else "mixture"

    @property
    def mixture_title(self) -> str:
        """The same at the head of a row or a panel."""
        return self.mixture.capitalize() + (", shared weights" if self.shares_weights else "")

    @property
    def mixture_means(self) -> str:
        """What that word means here, in a sentence; nothing where there is no mixture."""
        if not self.has_mixture:
            return ""
        pruned = f"; pruned, of {self.members} up to the selected one" if self.is_pruned else ""
        weighted = ", weighted by belief" if self.learns else ""
        return f"Mixture: the mean prediction of {self.members}{weighted}{pruned}"

    @property
    def members(self) -> str:
        """What the mixture is of."""
        if self.is_nested:
            return formatting.plural(self.decision.name)
        if self.is_point:
            return "draws of dropout"
        return "architectures and draws of dropout" if self.run.space.has_dropout else "architectures"

    # -----------------------------------------------------------------------------------------------------------------
    # Of a nested space: its one decision, whose options contain each other.

    @property
    def is_nested(self) -> bool:
        """Whether there is one decision whose options contain each other, such as a depth."""
        return self.run.space.nested

    @property
    def decision(self) -> Decision:
        """The one decision of a nested space."""
        [decision] = self.run.space.decisions
        return decision

    @cached_property
    def choices(self) -> list[int]:
        """The selected option of each run, by its number."""
        return [run.architecture.choices[0] for run in self.runs]

    @cached_property
    def is_pruned(self) -> bool:
        """Whether any run leaves something out: not where the option was fixed, or the largest was selected."""
        return self.is_nested and not self.is_point and any(k < len(self.decision) - 1 for k in self.choices)

    @cached_property
    def rules_nothing_out(self) -> bool:
        """Whether a posterior over a nested decision leaves every option a tenth of the largest probability or more."""
        if not self.is_nested or self.meaning.kind != "posterior":
            return False
        return all(min(p) >= max(p) / 10 for run in self.runs for p in beliefs.probs(run).values())

    def shown(self, options: Sequence[int]) -> str:
        """An option by its name; of several, mean and deviation of the numbers they are named by, or have."""
        names = [self.decision.options[k] for k in options]
        if len(names) == 1:
            return names[0]
        values = [float(name) for name in names] if all(map(_is_number, self.decision.options)) else options
        return formatting.number(formatting.mean(values), 1, statistics.stdev(values))

    # -----------------------------------------------------------------------------------------------------------------
    # What was measured.

    @cached_property
    def classifies(self) -> bool:
        """Whether classes are predicted."""
        return isinstance(self.task.likelihood, Classification)

    @cached_property
    def is_of_numbers(self) -> bool:
        """Whether numbers are predicted, each with a Gaussian."""
        return isinstance(self.task.likelihood, Gaussian)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """What predictions are evaluated by; what the examples leave undefined is not told."""
        known: tuple[Metric, ...] = formatting.CLASSIFICATION if self.classifies else formatting.REGRESSION
        if not (self.classifies or self.is_of_numbers):
            known = formatting.metrics_of(self.task.likelihood)
        found = self.results[0]["metrics"].get(self.split)
        return tuple(metric for metric in known if found is None or metric.name in found)

    @cached_property
    def split(self) -> str | None:
        """The split that results are told on: test data where there is some, else validation data."""
        splits = {"test": self.task.test, "select": self.task.select}
        return next((name for name, split in splits.items() if split is not None and len(split)), None)

    @property
    def is_optimistic(self) -> bool:
        """Whether results are told on data that the search was stopped and chose by."""
        return self.split == "select"

    @property
    def examples(self) -> Split:
        """The examples of `split` that results are of."""
        found = self.task.test if self.split == "test" else self.task.select
        assert found is not None
        return found if self.split == "test" else found.some(MOST)

    @cached_property
    def trajectories(self) -> list[Trajectory]:
        """How each run went."""
        return [Trajectory.of(run) for run in self.runs]

    @cached_property
    def networks(self) -> list[Networks]:
        """The networks of each run."""
        return [Networks.of(run) for run in self.runs]

    @cached_property
    def answers(self) -> list[Answers]:
        """What the classifiers of each run say of `examples`."""
        assert self.split is not None
        return [answers_of(run, self.split, self.examples) for run in self.runs]

    @cached_property
    def network_log_probs(self) -> list[Tensor]:
        """Log-probabilities [n, classes] of `examples` by each run's selected network."""
        trained = [run.trained for run in self.runs if run.trained] if self.is_trained else []
        if not trained:
            return [said.selected.log_probs for said in self.answers]
        assert self.split is not None
        return [answers_of(run, self.split, self.examples).selected.log_probs for run in trained]

    @property
    def mixture_predictives(self) -> list[Predictive]:
        """What each run's mixture predicts for `examples`; nothing where there is no mixture."""
        return [said.mixture for said in self.answers] if self.has_mixture else []

    @cached_property
    def groups(self) -> list[BaselineGroup]:
        """Baselines by what they are: fixed options in order, then others."""
        found: dict[str, BaselineGroup] = {}
        for run in self.baselines:
            fixed = self._fixed_option(run)
            name = (
                f"Fixed {self.decision.name} {fixed[1]}" if fixed else f"{run.config.method['name']}, {run.folder.name}"
            )
            found.setdefault(name, BaselineGroup(name, fixed[0] if fixed else None, [])).runs.append(run)
        return sorted(found.values(), key=lambda g: (g.option is None, g.option or 0, g.name))

    def _fixed_option(self, run: Run) -> tuple[int, str] | None:
        """Number and name of the option of a nested decision that a baseline was trained at alone."""
        decisions = run.space.decisions
        if not self.is_nested or not beliefs.is_point(run) or [d.name for d in decisions] != [self.decision.name]:
            return None
        [own] = run.architecture.choices
        name, options = decisions[0].options[own], self.decision.options
        return options.index(name) if name in options else own, name

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
        """One metric of several runs on `split`, empty where there is none; `kind` is "" for networks."""
        found = [self.result(run)["metrics"].get(f"{self.split}{kind}", {}).get(name) for run in runs]
        return [float(value) for value in found if value is not None]

    def plain_values(self, model: PlainModel, name: str) -> list[float]:
        """One metric of a plain model, as `values` has them."""
        value = model.metrics.get(self.split or "", {}).get(name)
        return [] if value is None else [value]

    def network_values(self, name: str) -> list[float]:
        """One metric of the selected networks."""
        return self.values(self.runs, self.network_kind, name)

    def shared_values(self, name: str) -> list[float]:
        """The same under the weights that they share with others; empty where they do not."""
        return self.values(self.runs, "", name) if self.shares_weights else []

    def mixture_values(self, name: str) -> list[float]:
        """One metric of the mixtures; empty where there is no mixture."""
        return self.values(self.runs, MIXTURE, name) if self.has_mixture else []

    def about(self, prefix: str = "") -> str:
        """In a word, what numbers of an evaluation whose names begin so are about, such as the mode of belief."""
        return self.run.config.make_method().evaluates[prefix].partition(" with ")[0]

    def kept(self, split: str, name: str) -> list[Array]:
        """What a search measured of the states that it kept, one value or row per run; nothing where it did not."""
        found = [result["kept"].get(split, {}).get(name) for result in self.results]
        return [np.asarray(value, dtype=np.float64) for value in found if value is not None]

    def moved(self) -> list[float]:
        """KL(belief || prior) of each run, in nats; nothing where belief is not learnt."""
        return [result["distribution"]["kl"] for result in self.results if "kl" in result["distribution"]]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
