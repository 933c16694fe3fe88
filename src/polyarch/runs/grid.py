"""What a comparison is made of: methods and baselines on spaces, a run of each for every seed, all at one budget.

`comparison.json` says it all in plain values, is written first and never changes: workers that find it know what to do.
"""

from __future__ import annotations

import json
import logging
import re
import resource
import shutil
import sys
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, final

from polyarch.core import Method
from polyarch.data.task import Task
from polyarch.errors import PolyarchError
from polyarch.files import make_folder, read_json, write_json_once
from polyarch.runs.baselines import baselines_of
from polyarch.runs.budget import fitted, price_of
from polyarch.runs.config import Config, describe_method, describe_space, describe_task
from polyarch.runs.defaults import suited
from polyarch.runs.examples import COMPARISON, EXAMPLES, check_whole, keep_examples, kept_task
from polyarch.runs.options import Compute, Start
from polyarch.runs.run import RESULT, TRAINED, load_again, shares_weights
from polyarch.runs.search import configured
from polyarch.spaces.base import Space

logger = logging.getLogger("polyarch")

FORMAT = 1
RUNS, CLAIMS = "runs", "claims"
"""Of a comparison's folder: the folders of its runs, and who makes which."""
FAILED = "failed.json"
"""Of a run's folder in a comparison: why there is no result."""


@final
@dataclass(frozen=True)
class Entry:
    """A method in a space, as it was asked for."""

    name: str
    space_name: str
    space: Space
    method: Method
    told: Mapping[str, Collection[str]] = field(default_factory=dict)
    """Settings that were told, by group; what else there is may go by the data (`defaults.suited`)."""


@final
@dataclass(frozen=True)
class Question:
    """What is compared."""

    entries: tuple[Entry, ...]
    seeds: tuple[int, ...]
    """Of the runs; a run of every entry and baseline for each."""
    budget: float | None = None
    """Examples passed forward and backward by a run; by default what the entry takes that asks for least."""
    select: str = "auto"
    """How one architecture is taken from belief."""
    prior: str | None = None
    """Over architectures; by default each method's own. Baselines have theirs."""
    compute: Compute = Compute()
    threads: int = 1
    """That every run computes with."""

    def __post_init__(self) -> None:
        if not self.entries or not self.seeds:
            raise PolyarchError("a comparison needs a method, a space and a seed at least; give some")
        if len(set(self.seeds)) < len(self.seeds) or min(self.seeds) < 0:
            told = ", ".join(map(str, self.seeds))
            raise PolyarchError(f"seeds are whole numbers from 0 up, each given once; not {told}")
        if self.compute.time_limit is not None:
            raise PolyarchError("runs of a comparison have a budget of examples, not of time; leave time_limit out")
        if self.budget is not None and not self.budget > 0:
            raise PolyarchError(f"the budget must be above 0 examples, not {self.budget:g}")
        for entry in self.entries:
            entry.method.check(entry.space)

    def asked(self, data: Any) -> dict[str, Any]:
        """All of it in plain values, with what tells the data from others."""
        return {
            "methods": list(dict.fromkeys(entry.name for entry in self.entries)),
            "spaces": list(dict.fromkeys(entry.space_name for entry in self.entries)),
            "data": data,
            "seeds": list(self.seeds),
            "settings": [
                [describe_space(entry.space)["settings"], describe_method(entry.method)["settings"]]
                for entry in self.entries
            ],
            "budget": self.budget,
            "selection": self.select,
            "prior": self.prior,
            "device": self.compute.device,
            "precision": self.compute.precision,
            "cpus": self.threads,
        }


@final
@dataclass(frozen=True)
class Entrant:
    """A method or a baseline in a space, as it is run; plain values."""

    name: str
    space: str
    about: str
    """Of a baseline, what it is; nothing of a method."""
    trains: bool
    """Whether what it selects is trained alone afterwards."""
    config: dict[str, Any]
    """That of its runs, but for their seeds and their data."""

    @property
    def baseline(self) -> bool:
        """Whether it is there unasked, to compare with."""
        return bool(self.about)


@final
@dataclass(frozen=True)
class Planned:
    """A run of a comparison; plain values."""

    name: str
    """Of its folder."""
    entrant: int
    seed: int
    method: dict[str, Any] | None = None
    """Where it is not that of the entrant: of a random architecture, which differs by the seed."""


@final
@dataclass(frozen=True)
class Grid:
    """A comparison as `comparison.json` has it."""

    asked: dict[str, Any]
    """What was asked for: who asks for the same in the same folder joins in."""
    data: dict[str, Any]
    """As a run's config has it."""
    budget: float
    """Examples passed forward and backward that every run may take."""
    threads: int
    """That every run computes with: results are bit-equal with any number of workers, not with any of threads."""
    memory: int
    """Bytes that a process had at most while this was planned, which a worker may need as well."""
    entrants: tuple[Entrant, ...]
    runs: tuple[Planned, ...]
    format: int = FORMAT

    @classmethod
    def read(cls, folder: Path) -> Grid:
        """Reads comparison.json."""
        path = folder / COMPARISON
        if not path.is_file():
            raise PolyarchError(
                f"{folder} holds no comparison: there is no {path}; give the folder that one had as --out"
            )
        values = read_json(path)
        if values.get("format") != FORMAT:
            raise PolyarchError(
                f"{path} has format {values.get('format')}, this polyarch reads {FORMAT}; use the version that wrote it"
            )
        try:
            entrants = tuple(Entrant(**one) for one in values.pop("entrants"))
            return cls(entrants=entrants, runs=tuple(Planned(**one) for one in values.pop("runs")), **values)
        except (TypeError, KeyError) as error:
            raise PolyarchError(f"{path} is no comparison ({error}); restore it or start a new one") from None

    def config(self, run: Planned) -> Config:
        """What a run is asked to do."""
        own = self.config_of(self.entrants[run.entrant])
        return replace(own, seed=run.seed, method=run.method or own.method)

    def config_of(self, entrant: Entrant) -> Config:
        """What all runs of an entrant are asked to do, but for their seeds."""
        return Config(**entrant.config, data=self.data)

    def finished(self, folder: Path, run: Planned) -> bool:
        """Whether a run has its result, and that of training what it selected where that belongs to it."""
        home = folder / RUNS / run.name
        return (home / RESULT).exists() and (
            not self.entrants[run.entrant].trains or (home / TRAINED / RESULT).exists()
        )

    def task(self, folder: Path) -> Task:
        """The data of all runs: loaded again from where it came, or as the comparison kept it, and checked."""
        config = self.config_of(self.entrants[0])
        return kept_task(folder, config, sample=False) if self.data["source"] is None else load_again(config)

    def check_code(self) -> None:
        """Raises where code of one's own is no longer what it was: runs of before and after are not to be compared."""
        for entrant in self.entrants:
            try:
                self.config_of(entrant).check_code()
            except PolyarchError:
                raise PolyarchError(
                    f"the code of your own that makes {entrant.name} in the space {entrant.space} has changed since "
                    "the comparison began; put it back as it was, or compare anew in another --out"
                ) from None


def failed(folder: Path, run: Planned) -> str:
    """Why a run has no result; nothing where it did not fail."""
    path = folder / RUNS / run.name / FAILED
    return str(read_json(path)["error"]) if path.exists() else ""


def plan(question: Question, task: Task, asked: dict[str, Any]) -> Grid:
    """Makes runs of entries and baselines, with as many epochs each as the budget pays for.

    Args:
        question: what is compared.
        task: the data.
        asked: what is kept of what was asked (`Question.asked`).
    """
    drafts = _drafts(question, task)
    prices = [price_of(draft.config, task) for draft in drafts]
    budget = question.budget
    if budget is None:
        costs = [
            price.of(draft.config.make_method(), draft.config.make_space())
            for draft, price in zip(drafts, prices, strict=True)
            if not draft.about
        ]
        budget = min(filter(None, costs), default=0.0)
    entrants, runs, taken = list[Entrant](), list[Planned](), set[str]()
    several = len({entry.space_name for entry in question.entries}) > 1
    for place, (draft, price) in enumerate(zip(drafts, prices, strict=True)):
        config = fitted(draft.config, price, budget, draft.name)
        trains = shares_weights(config.make_space(), config.make_method())
        told = {key: value for key, value in asdict(config).items() if key != "data"}
        entrants.append(Entrant(draft.name, draft.space, draft.about, trains, told))
        folder = _folder_name(f"{draft.name}-{draft.space}" if several else draft.name, taken)
        for seed in question.seeds:
            own = fitted(draft.by_seed[seed], price, budget, draft.name).method if draft.by_seed else None
            runs.append(Planned(f"{folder}-seed-{seed}", place, seed, own))
    # One seed of every entrant after another: what is there halfway compares all of them.
    runs.sort(key=lambda run: question.seeds.index(run.seed))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return Grid(asked, describe_task(task), budget, question.threads, peak, tuple(entrants), tuple(runs))


@final
@dataclass(frozen=True)
class _Draft:
    """An entrant with the epochs that it asks for."""

    name: str
    space: str
    about: str
    config: Config
    by_seed: Mapping[int, Config] = field(default_factory=dict)
    """Where it is another one for every seed."""


def _drafts(question: Question, task: Task) -> list[_Draft]:
    """What was asked for, and then the baselines of every space."""

    def config_of(space: Space, method: Method, prior: str | None = None) -> Config:
        return configured(space, task, method, 0, 1, question.select, Start(prior=prior), question.compute)

    entries = [_suited(entry, task) for entry in question.entries]
    drafts = [
        _Draft(entry.name, entry.space_name, "", config_of(entry.space, entry.method, question.prior))
        for entry in entries
    ]
    asked = [(draft.config.space, draft.config.method) for draft in drafts]
    for first in {entry.space_name: entry for entry in reversed(entries)}.values():
        for baseline in baselines_of(first.space, first.method):
            try:
                configs = {seed: config_of(first.space, baseline.method(seed)) for seed in question.seeds}
            except PolyarchError as error:
                logger.warning("%s is left out in the space %s: %s", baseline.name, first.space_name, error)
                continue
            config = configs[question.seeds[0]]
            if (config.space, config.method) not in asked:
                by_seed = {} if baseline.same_for_all else configs
                drafts.append(_Draft(baseline.name, first.space_name, baseline.about, config, by_seed))
    return drafts


def begin(folder: Path, grid: Grid, task: Task) -> Grid:
    """Writes a comparison into its folder; gives the one that is there, where another process was quicker."""
    check_free(folder)
    check_whole(task)
    made = make_folder(folder)
    try:
        keep_examples(folder, task)
        if write_json_once(folder / COMPARISON, asdict(grid)):
            return grid
    except PolyarchError:
        if made and not (folder / COMPARISON).exists():  # which another process may have written meanwhile
            shutil.rmtree(folder, ignore_errors=True)
        raise
    there = Grid.read(folder)
    check_same(folder, there, grid.asked)
    return there


def check_free(folder: Path) -> None:
    """Raises unless a comparison may begin or go on in a folder."""
    if (folder / COMPARISON).exists() or not folder.exists():
        return
    if not folder.is_dir() or any(path.name != EXAMPLES and path.name[0] != "." for path in folder.iterdir()):
        raise PolyarchError(f"{folder} exists and is not an empty folder; choose another --out")


def check_same(folder: Path, there: Grid, asked: Mapping[str, Any]) -> None:
    """Raises where a comparison is asked for other things than the one in its folder."""
    for name, value in asked.items():
        has = there.asked.get(name)
        if json.loads(json.dumps(value)) != has:
            told = "" if name == "settings" else f": {_shown(has)}, not {_shown(value)}"
            raise PolyarchError(
                f"{folder} holds a comparison with other {name}{told}; to go on with that, give --out alone, and else "
                "choose another --out"
            )


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_shown, value))
    return "none" if value in (None, "") else str(value)


def _suited(entry: Entry, task: Task) -> Entry:
    _, space, method, _ = suited(task, entry.space, entry.method, entry.told)
    return replace(entry, space=space, method=method)


def _folder_name(name: str, taken: set[str]) -> str:
    """A name for folders that no other entrant has, whatever it is called."""
    short = re.sub(r"[^A-Za-z0-9._]+", "-", name).strip("-.")[:60] or "run"
    found, count = short, 1
    while found in taken:
        count += 1
        found = f"{short}-{count}"
    taken.add(found)
    return found
