"""What a run was asked to do: the part of a run folder that is written first and never changes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import torch

from polyarch import catalogue
from polyarch.core import Method, judged_by
from polyarch.data.checks import reason
from polyarch.data.kinds import Inputs, inputs_from
from polyarch.data.likelihood import Likelihood, likelihood_from
from polyarch.data.preprocess import Units
from polyarch.data.task import Task, TaskShape
from polyarch.distributions.categorical import Categorical, pad
from polyarch.distributions.priors import make_prior, priced
from polyarch.errors import PolyarchError
from polyarch.files import read_json, write_json
from polyarch.runs.limits import make_bounds, make_pricing
from polyarch.runs.own_code import own_code
from polyarch.settings import make, plain
from polyarch.spaces.base import Space
from polyarch.spaces.bounds import Pricing, SpaceBounds
from polyarch.spaces.factory import identity, name_of
from polyarch.spaces.limits import limits_of
from polyarch.version import __version__

FORMAT = 5
CONFIG = "config.json"
P = ParamSpec("P")
T = TypeVar("T")


def saying_damaged(read: Callable[P, T]) -> Callable[P, T]:
    """A function that reads what a run keeps: where values are not what they must be, it says so in one line."""

    @wraps(read)
    def called(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return read(*args, **kwargs)
        except (TypeError, KeyError, ValueError, AttributeError, IndexError, RuntimeError) as error:
            raise PolyarchError(
                f"a file of the run is damaged: {read.__name__} cannot be made of it ({type(error).__name__}: "
                f"{reason(error)}); restore it or start a new run"
            ) from error

    return called


@dataclass(frozen=True)
class Config:
    """Plain values only, as they stand in config.json."""

    space: dict[str, Any]
    """name, settings, signature."""
    method: dict[str, Any]
    """name, settings."""
    data: dict[str, Any]
    """name, source, fingerprint, inputs, likelihood, units, classes, examples."""
    prior: str | dict[str, list[float]]
    """A prior's name, or log-probabilities of the options of every decision."""
    select: str
    """The selection rule, spelt out."""
    seed: int
    repeats: int
    device: str
    versions: dict[str, str]
    belief_from: str = ""
    """The folder of the run whose belief it starts from."""
    weights_from: str = ""
    """The folder of the run whose weights it starts from."""
    table: str = ""
    """The file of the table that it is watched by."""
    column: str = ""
    """The column of that table."""
    precision: str = "float32"
    """Of products and convolutions while searching, on a CUDA device."""
    fast: bool = True
    """Whether networks may run in a form that is fused for speed, on a CUDA device."""
    time_limit: float = 0.0
    """Seconds that it may take; 0: as many as it needs. Its epochs are those that fit in."""
    limits: list[str] = field(default_factory=list)
    """What the selected network may cost at most, as `Limit.of` reads it."""
    price: str = ""
    """What cost is worth in fit while searching, as `Price.of` reads it."""
    code: dict[str, str] = field(default_factory=dict)
    """By module of one's own, the digest of what space, method and likelihood use of it."""
    format: int = FORMAT

    def write(self, folder: Path) -> None:
        """Writes config.json."""
        write_json(folder / CONFIG, asdict(self))

    @classmethod
    def read(cls, folder: Path) -> Config:
        """Reads config.json."""
        path = folder / CONFIG
        if not path.is_file():
            raise PolyarchError(
                f"{folder} holds no run: there is no {path}; give the folder that a search had as --out"
            )
        return cls.of(read_json(path), path)

    @classmethod
    def of(cls, values: Mapping[str, Any], path: Path) -> Config:
        """What stands in a config.json."""
        if values.get("format") != FORMAT:
            raise PolyarchError(
                f"{path} has format {values.get('format')}, this polyarch reads {FORMAT}; use the version that wrote it"
            )
        try:
            config = cls(**values)
        except TypeError as error:
            raise PolyarchError(f"{path} is not a run's config ({error}); restore it or start a new run") from None
        for of in fields(cls):
            value = getattr(config, of.name)
            if type(value) not in _plain_types(str(of.type)) or (of.name == "repeats" and value < 1):
                raise PolyarchError(
                    f"{path} is not a run's config ({of.name} is {value!r}); restore it or start a new run"
                )
        return config

    def check_code(self) -> None:
        """Raises where code of one's own is no longer what the run was made with.

        Weights may fit it all the same, and mean something else: an activation has none.
        """
        now = own_code([self.space, self.method, self.data["likelihood"]]) if self.code else {}
        changed = [module for module, digest in self.code.items() if now.get(module, digest) != digest]
        if changed:
            raise PolyarchError(
                f"the code that this run was made with has changed since, in {' and '.join(changed)}, and what it "
                "learnt may mean something else there; put it back as it was, or go on with it as it is now by "
                "--allow-changed (allow_changed=True in Python)"
            )

    @property
    @saying_damaged
    def space_name(self) -> str:
        """What `--space` takes for it: of a module of one's own, what makes that."""
        name: str = self.space["name"]
        return name_of(self.space["settings"]["factory"]) if name == catalogue.OWN_MODULE else name

    @saying_damaged
    def make_space(self) -> Space:
        """The space, checked against the decisions it had when the run began."""
        space: Space = _made("space", self.space)
        if signature(space) != self.space["signature"]:
            raise PolyarchError(
                f"space {self.space_name!r} no longer has the decisions that this run was made with; "
                "use the version of its code that wrote the run"
            )
        return space

    def take_space(self, space: Space) -> None:
        """Has a space at hand whose networks an object makes; raises where the run was made with another."""
        if _identity(describe_space(space)) != _identity(self.space):
            raise PolyarchError(
                "the space that was given makes other networks than those of this run; give what the run was made "
                "with, or leave it out"
            )

    @saying_damaged
    def make_method(self) -> Method:
        """The method with its settings."""
        method: Method = _made("method", self.method)
        return method

    @saying_damaged
    def make_prior(self, space: Space) -> Categorical:
        """The prior over a space of this run, which goes by cost where that has a price and data moves belief."""
        if isinstance(self.prior, str):
            prior = make_prior(self.prior, space.decisions)
        else:
            rows = [torch.tensor(self.prior[d.name], dtype=torch.float32) for d in space.decisions]
            prior = Categorical(space.decisions, pad(rows))
        pricing, examples = self.make_pricing(space), self._judging()
        if pricing is None or not examples:
            return prior
        # As often as there are examples: what is worth so many nats for each of them is worth that many for all.
        return priced(prior, [examples * own for own in pricing.decisions])

    def _judging(self) -> int:
        """The examples by which belief is moved; 0 where there is no prior over architectures, or none moves it."""
        method, examples = self.make_method(), self.data["examples"]
        held_out = examples.get("search") or examples.get("select")
        known = {"train": examples["train"]} | ({"search": held_out} if held_out else {})
        split = judged_by(method, known)
        return known.get(split, 0) if split and method.prior(self.make_space()) is not None else 0

    def make_pricing(self, space: Space) -> Pricing | None:
        """What cost is worth in a stage with this space; None where it has no price."""
        return make_pricing(self.price, self.make_method(), self.make_space(), space, self.shape())

    def make_bounds(self, space: Space, measured: Mapping[str, float] | None = None) -> SpaceBounds | None:
        """What a network of this space may cost; None without limits. `measured` is what is known of latencies."""
        limits = limits_of(self.limits)
        return make_bounds(limits, space, self.shape(), self.table, device=self.device, measured=measured)

    @saying_damaged
    def units(self) -> Units:
        """In which numbers to predict are learnt."""
        return Units(**self.data["units"])

    @saying_damaged
    def likelihood(self) -> Likelihood:
        """The task's likelihood, of numbers to predict in the units in which they are learnt."""
        return likelihood_from(self.data["likelihood"])

    @saying_damaged
    def inputs(self) -> Inputs:
        """What the run's inputs are, to which all others are held."""
        return inputs_from(self.data["inputs"])

    @saying_damaged
    def shape(self) -> TaskShape:
        """The sizes that networks of this run are built for."""
        inputs = self.inputs()
        return TaskShape(inputs.features, self.likelihood().outputs, inputs.tokens, inputs.parts)


def _plain_types(annotation: str) -> set[type]:
    """Types that a value may have in JSON whose field is annotated so; a float may be whole."""
    known: dict[str, set[type]] = {
        "dict": {dict}, "list": {list}, "str": {str}, "int": {int}, "bool": {bool}, "float": {float, int}
    }  # fmt: skip
    return set[type]().union(*(known[one.partition("[")[0]] for one in annotation.split(" | ")))


def _made(kind: str, described: dict[str, Any]) -> Any:
    """The space or method that a config describes."""
    cls, _ = catalogue.find(kind, described["name"])
    return make(cls, described["settings"])


def describe_space(space: Space) -> dict[str, Any]:
    """A space as a config holds it."""
    return {
        "name": catalogue.name_of("space", type(space), space.settings()),
        "settings": space.settings(),
        "signature": signature(space),
    }


def _identity(described: Any) -> Any:
    """A space as a config holds it, wherever its objects are made."""
    if isinstance(described, dict):
        return {name: _identity(value) for name, value in described.items()}
    return identity(described) if isinstance(described, str) else described


def signature(space: Space) -> dict[str, list[str]]:
    """Names of all decisions and options; a run keeps it and refuses a space that no longer agrees."""
    return {d.name: list(d.options) for d in space.decisions}


def describe_method(method: Method) -> dict[str, Any]:
    """A method as a config holds it."""
    return {"name": catalogue.name_of("method", type(method), plain(method)), "settings": plain(method)}


def describe_task(task: Task) -> dict[str, Any]:
    """A task as a config holds it."""
    return {
        "name": task.name,
        "source": task.source,
        "fingerprint": task.fingerprint,
        "inputs": task.inputs.settings(),
        "likelihood": task.likelihood.settings(),
        "units": task.units.settings(),
        "classes": list(task.classes),
        "examples": {name: len(split) for name, split in task.splits.items()},
    }


def describe_prior(prior: str | Categorical, space: Space) -> str | dict[str, list[float]]:
    """A prior as a config holds it."""
    if isinstance(prior, str):
        return prior
    if prior.decisions != space.decisions or prior.logits.dim() != 2:
        raise PolyarchError("the prior is over other decisions than the space's; make it from space.decisions")
    rows = {d.name: prior.log_probs[k, : len(d)].tolist() for k, d in enumerate(prior.decisions)}
    if not all(math.isfinite(value) for row in rows.values() for value in row):
        raise PolyarchError(
            "the prior rules an option out; give every option some probability, or leave it out of the space"
        )
    return rows


def versions() -> dict[str, str]:
    """What the run was made with."""
    return {"polyarch": __version__, "torch": torch.__version__}
