"""Should a run be believed? A few architectures, drawn from its belief and uniformly, and what they are really worth.

Half of the architectures are drawn from belief and half from what the space draws random ones from, each by itself, so
that one may come twice; then it is trained twice, with another seed. Three questions are asked of them (`Trust`), and
each is answered with an interval, and with how many more would settle it.

The luck of training is part of worth: every one of them is trained once, from a seed of its own, and is compared as it
came out. So it widens intervals, and pulls correlations towards 0: a belief that knew the mean over endless seeds would
not have a tau of 1. The selected architecture is trained once, too, and what is said of it is said of that network. A
table has what it has, often means over seeds.

Nothing is chosen here, so test data may be looked at; and nothing that the search wrote is changed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from itertools import cycle
from pathlib import Path
from typing import Any, Literal

import torch

from polyarch.architecture import Architecture
from polyarch.errors import PolyarchError
from polyarch.files import locked, make_folder, read_json, write_json
from polyarch.methods.fixed_depth import FixedDepth
from polyarch.methods.standalone import Standalone
from polyarch.ranking.comparisons import (
    LIMIT,
    Comparison,
    above_median,
    group_against_group,
    one_against_group,
    order,
)
from polyarch.ranking.statistics import Estimate
from polyarch.runs import search as searching
from polyarch.runs.config import CONFIG
from polyarch.runs.options import Compute
from polyarch.runs.run import RESULT, Run
from polyarch.runs.trained import Progress
from polyarch.settings import plain
from polyarch.streams import Streams
from polyarch.tables.columns import Better
from polyarch.tables.truth import Truth

TRUST = "trust.json"
"""Of a run's folder: what was found last."""
TRAININGS = "trust"
"""Of a run's folder: a run folder of each training."""
ABOUT = "trainings.json"
FEW = 16
"""Architectures that seldom settle a rank correlation."""
SELDOM = "; so few seldom settle a rank correlation: 8 notice a true 0.5 one time in three, 16 three times in four"
"""Measured on NAS-Bench-201 (docs/results/trust.md)."""

Source = Literal["belief", "uniform"]
SOURCES: tuple[Source, Source] = ("uniform", "belief")
"""In turn."""


@dataclass(frozen=True)
class Drawn:
    """An architecture that was drawn, and what it is worth."""

    architecture: str
    source: Source
    log_belief: float | None
    """How probable belief makes it, in nats; None where it rules it out, or where that is not known."""
    worth: float


@dataclass(frozen=True)
class Trust:
    """What a few architectures say of a belief."""

    worth_is: str
    """In words."""
    by: Literal["training", "table"]
    better: Better
    """Of worth."""
    unknown: str
    """Why it is not known how probable belief makes an architecture, where it is not."""
    selected: str
    selected_worth: float
    drawn: tuple[Drawn, ...]
    order: Comparison
    """Does belief order them: Kendall's tau-b of log belief and worth. (1 + tau) / 2 is how probable it is that of two
    the one that belief prefers is the better, where there are no ties; that is why it is Kendall's."""
    selected_wins: Comparison
    """How probable it is that the selected network is better than a uniform draw."""
    selected_ahead: Estimate
    """By how much it is better than the median uniform draw, in units of worth; one that failed does not move it."""
    belief_wins: Comparison
    """How probable it is that a draw from belief is better than a uniform draw."""

    def sentences(self) -> list[str]:
        """All of it in plain words."""
        return [self._ordering(), self._selected(), self._drawing(), self._luck()]

    def headline(self) -> str:
        """All of it in one line."""
        parts = {
            "belief orders them": ("tau ", self.order),
            "selected beats random": ("p ", self.selected_wins),
            "belief's draws beat random": ("p ", self.belief_wins),
        }
        told = [f"{name}: {found.verdict} ({unit}{shown(found.estimate)})" for name, (unit, found) in parts.items()]
        return f"by {self._so_many()}, {'; '.join(told)}"

    def summary(self) -> dict[str, Any]:
        """Plain values, for JSON; null is unknown, or undefined."""
        questions = {name: getattr(self, name) for name in ("order", "selected_wins", "belief_wins")}
        settled = {name: asdict(found) | {"settled": found.settled} for name, found in questions.items()}
        return asdict(self) | settled | {"sentences": self.sentences()}

    def _ordering(self) -> str:
        found = self.order
        if found.estimate.value is None:
            return f"Belief has no order to judge: {found.undefined}."
        tau = f"Kendall's tau is {shown(found.estimate)}"
        if not found.settled:
            few = SELDOM if len(self.drawn) <= FEW else ""
            found_by = f"{tau} by {self._so_many()}"
            return f"It is open whether belief orders architectures: {found_by}{self._lacking(found)}{few}."
        if found.verdict == "no":
            return f"Belief orders architectures the wrong way round: {tau}."
        return f"Belief orders architectures: {tau}."

    def _selected(self) -> str:
        found = self.selected_wins
        tells = (
            f"probability {shown(found.estimate)}, ahead of the median one by {shown(self.selected_ahead, 3)} in worth"
        )
        if not found.settled:
            return f"It is open whether the selected network beats a random one: {tells}{self._lacking(found)}."
        beats = "beats" if found.verdict == "yes" else "loses against"
        return f"The selected network {beats} a random one: it is the better with {tells}."

    def _drawing(self) -> str:
        found = self.belief_wins
        tells = f"probability {shown(found.estimate)}"
        if not found.settled:
            return f"It is open whether a draw from belief beats a uniform one: {tells}{self._lacking(found)}."
        beats = "beats" if found.verdict == "yes" else "loses against"
        return f"A draw from belief {beats} a uniform one: it is the better with {tells}."

    def _luck(self) -> str:
        if self.by == "table":
            return f"Worth is {self.worth_is}; what luck of training the table holds is in it."
        return (
            f"Worth is {self.worth_is} of a network trained alone, once, from a seed of its own: that luck is in the "
            "intervals, but for the selected network, which is judged as it came out."
        )

    def _so_many(self) -> str:
        return f"{len(self.drawn)} drawn architectures"

    def _lacking(self, found: Comparison) -> str:
        if found.estimate.value is None:
            return ""
        if found.more is None:
            return "; were that the truth, not even a thousand would settle it"
        return f"; were that the truth, about {found.more} more would settle it"


def shown(estimate: Estimate, digits: int = 2) -> str:
    """A number with its interval."""
    if estimate.value is None:
        return "undefined"
    spread = ", ".join(f"{end:.{digits}f}" for end in estimate.interval or ()) or "too few for an interval"
    return f"{estimate.value:.{digits}f} [{spread}]"


def judge(
    drawn: Sequence[Drawn],
    selected: str,
    selected_worth: float,
    *,
    worth_is: str,
    by: Literal["training", "table"],
    better: Better = "higher",
    unknown: str = "",
) -> Trust:
    """What architectures of known worth say of the belief that some of them were drawn from.

    Args:
        drawn: from belief and uniformly.
        selected: the architecture that the search selected.
        selected_worth: what it is worth.
        worth_is: what that is, in words.
        by: how it is known.
        better: of worth.
        unknown: why it is not known how probable belief makes an architecture, where it is not.
    """
    sign = 1.0 if better == "higher" else -1.0
    merit = {source: [sign * one.worth for one in drawn if one.source == source] for source in ("belief", "uniform")}
    believed = [-math.inf if one.log_belief is None else one.log_belief for one in drawn]
    if unknown:
        ordered = Comparison(Estimate(None), 0.0, undefined=unknown)
    elif len(set(believed)) == 1:
        ordered = Comparison(Estimate(None), 0.0, undefined="belief is the same for all that were drawn")
    else:
        ordered = order(believed, [sign * one.worth for one in drawn])
    return Trust(
        worth_is=worth_is,
        by=by,
        better=better,
        unknown=unknown,
        selected=selected,
        selected_worth=selected_worth,
        drawn=tuple(drawn),
        order=ordered,
        # Half of the trainings are uniform, so one more of these costs two.
        selected_wins=one_against_group(sign * selected_worth, merit["uniform"], cost=2),
        selected_ahead=above_median(sign * selected_worth, merit["uniform"]),
        belief_wins=group_against_group(merit["belief"], merit["uniform"]),
    )


def trust_by_training(
    run: Run,
    count: int = 8,
    method: Standalone | None = None,
    *,
    compute: Compute = Compute(),
    progress: Progress = lambda name: nullcontext(),
) -> Trust:
    """Trains architectures alone, each in a run folder of its own beneath the run, and judges belief by them.

    What was trained before is taken as it is, and what was interrupted goes on; a larger count goes on from a smaller
    one. The selected architecture is trained as well.

    Args:
        run: a finished search.
        count: how many to draw, half of them from belief; of an odd number, one more uniformly.
        method: how they are trained; as `polyarch train` does unless told.
        compute: where, and how precisely.
        progress: is told of every training.
    """
    _check(run, count)
    split = next((name for name in ("test", "select") if name in run.config.data["examples"]), None)
    if split is None:
        raise PolyarchError(f"{run.folder} has no test or validation data, by which networks could be compared")
    method, home = method or Standalone(), run.folder / TRAININGS
    make_folder(home)
    with locked(home):
        _check_same(home, method)
        to_train = {"selected": run.architecture, **_named(run, count)}
        task = None if all((home / name / RESULT).exists() for name in to_train) else run.task()
        worth = []
        for place, (name, architecture) in enumerate(to_train.items()):
            with progress(f"{name}, {place + 1} of {len(to_train)}") as told:
                callbacks = [told] if told else []
                if (home / name / CONFIG).exists():
                    trained = searching.resume(
                        home / name, task=task, callbacks=callbacks, allow_changed=run.allow_changed
                    )
                else:
                    assert task is not None
                    trained = searching.search(
                        run.config.make_space(),
                        task,
                        replace(method, architecture=str(architecture)),
                        out=home / name,
                        seed=run.seed + place,
                        compute=compute,
                        callbacks=callbacks,
                    )
            assert isinstance(trained, Run)
            worth.append(float(trained.result["metrics"][split]["log_likelihood"]))
        words = {"test": "test log-likelihood", "select": "validation log-likelihood"}[split]
        return _kept(run, list(to_train.values()), worth, worth_is=words, by="training", better="higher")


def trust_by_table(run: Run, truth: Truth, count: int = 100) -> Trust:
    """Looks architectures up in a table of ground truth, and judges belief by them.

    Args:
        run: a finished search.
        truth: a column of a table, for the run's space; it must have all that are drawn.
        count: how many to draw, half of them from belief; of an odd number, one more uniformly.
    """
    _check(run, count)
    architectures = [run.architecture, *_named(run, count).values()]
    worth = truth.values(architectures).tolist()
    words = f"{truth.words} of {truth.table.where}"
    return _kept(run, architectures, worth, worth_is=words, by="table", better=truth.better)


def read_trust(folder: Path) -> Trust | None:
    """What was found last of the run in a folder, if it was asked."""
    if not (folder / TRUST).exists():
        return None
    told = read_json(folder / TRUST)
    drawn = [Drawn(**one) for one in told["drawn"]]
    names = ("selected", "selected_worth", "worth_is", "by", "better", "unknown")
    return judge(drawn, **{name: told[name] for name in names})


def _kept(run: Run, architectures: Sequence[Architecture], worth: Sequence[float], **words: Any) -> Trust:
    """Judges the first, which was selected, and the others, which were drawn; and writes what was found."""
    choices, believed = torch.tensor([one.choices for one in architectures[1:]]), run.distribution
    unknown = "" if believed.exact else "how probable it makes an architecture has no closed form with this method"
    logs = believed.log_prob(choices).tolist() if believed.exact else [-math.inf] * len(choices)
    drawn = [
        Drawn(str(one), source, log if math.isfinite(log) else None, value)
        for one, source, log, value in zip(architectures[1:], cycle(SOURCES), logs, worth[1:], strict=False)
    ]
    found = judge(drawn, str(architectures[0]), worth[0], unknown=unknown, **words)
    write_json(run.folder / TRUST, found.summary())
    return found


def _named(run: Run, count: int) -> dict[str, Architecture]:
    """What is drawn, in turn uniformly and from belief; a smaller count is the beginning of a larger one."""
    generator = Streams(run.seed)["architecture"]
    of = {"uniform": run.space.random(), "belief": run.distribution}
    found = {}
    for place, source in zip(range(count), cycle(SOURCES), strict=False):
        [choices] = of[source].sample(1, generator).tolist()
        found[f"{source}-{place // 2}"] = run.space.architecture(choices)
    return found


def _check(run: Run, count: int) -> None:
    if not 2 <= count <= LIMIT:
        raise PolyarchError(f"{count} architectures cannot be judged by; draw 2 to {LIMIT}")
    if run.space.random().architectures == 1 or isinstance(run.config.make_method(), FixedDepth):
        raise PolyarchError(f"nothing was searched in {run.folder}, so there is no belief to judge; give a search")


def _check_same(home: Path, method: Standalone) -> None:
    """Raises where networks were trained otherwise before; a new folder is marked."""
    asked = json.loads(json.dumps(plain(method)))
    if not (home / ABOUT).exists():
        write_json(home / ABOUT, asked)
        return
    before = read_json(home / ABOUT)
    differing = [name for name in asked if asked[name] != before.get(name)]
    if differing:
        raise PolyarchError(
            f"{home} holds networks that were trained with other settings ({', '.join(differing)}); give the same "
            "ones, or remove that folder to train them anew"
        )
