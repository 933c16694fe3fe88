"""What a run was asked to do: the part of a run folder that is written first and never changes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

import polyarch
from polyarch import catalogue
from polyarch.data.task import Likelihood, Task, TaskShape, likelihood_from
from polyarch.distributions.categorical import Categorical, pad
from polyarch.distributions.priors import make_prior
from polyarch.errors import PolyarchError
from polyarch.methods.base import Method
from polyarch.runs.files import read_json, write_json
from polyarch.spaces.base import Space

FORMAT = 1


@dataclass(frozen=True)
class Config:
    """Plain values only, as they stand in config.json."""

    space: dict[str, Any]
    """name, settings, signature."""
    method: dict[str, Any]
    """name, settings."""
    data: dict[str, Any]
    """name, source, fingerprint, input, likelihood, classes, examples."""
    prior: str | dict[str, list[float]]
    """A prior's name, or log-probabilities of the options of every decision."""
    select: str
    """The selection rule, spelt out."""
    seed: int
    repeats: int
    device: str
    versions: dict[str, str]
    format: int = FORMAT

    def write(self, folder: Path) -> None:
        """Writes config.json."""
        write_json(folder / "config.json", asdict(self))

    @classmethod
    def read(cls, folder: Path) -> Config:
        """Reads config.json."""
        values = read_json(folder / "config.json")
        if not isinstance(values, dict) or values.get("format") != FORMAT:
            raise PolyarchError(
                f"{folder / 'config.json'} has format {values.get('format') if isinstance(values, dict) else None}, "
                f"this polyarch reads {FORMAT}; use the version that wrote it"
            )
        try:
            return cls(**values)
        except TypeError as error:
            raise PolyarchError(f"{folder / 'config.json'} is not a run's config ({error})") from None

    def make_space(self) -> Space:
        """The space, checked against the decisions it had when the run began."""
        cls, _ = catalogue.find("space", self.space["name"])
        space: Space = cls(**self.space["settings"])
        if space.signature() != self.space["signature"]:
            raise PolyarchError(
                f"space {self.space['name']!r} no longer has the decisions that this run was made with; "
                "use the version of its code that wrote the run"
            )
        return space

    def make_method(self) -> Method:
        """The method with its settings."""
        cls, _ = catalogue.find("method", self.method["name"])
        method: Method = cls(**self.method["settings"])
        return method

    def make_prior(self, space: Space) -> Categorical:
        """The prior over a space of this run."""
        if isinstance(self.prior, str):
            return make_prior(self.prior, space.decisions)
        rows = [torch.tensor(self.prior[d.name], dtype=torch.float32) for d in space.decisions]
        return Categorical(space.decisions, pad(rows))

    def likelihood(self) -> Likelihood:
        """The task's likelihood."""
        return likelihood_from(self.data["likelihood"])

    def shape(self) -> TaskShape:
        """The sizes that networks of this run are built for."""
        return TaskShape(tuple(self.data["input"]), self.likelihood().outputs)


def describe_space(space: Space) -> dict[str, Any]:
    """A space as a config holds it."""
    return {
        "name": catalogue.name_of("space", type(space)),
        "settings": space.settings(),
        "signature": space.signature(),
    }


def describe_method(method: Method) -> dict[str, Any]:
    """A method as a config holds it."""
    return {"name": catalogue.name_of("method", type(method)), "settings": method.settings()}


def describe_task(task: Task) -> dict[str, Any]:
    """A task as a config holds it."""
    sizes = {"train": task.train, "valid": task.valid, "test": task.test}
    return {
        "name": task.name,
        "source": task.source,
        "fingerprint": task.fingerprint,
        "input": list(task.input_shape),
        "likelihood": task.likelihood.settings(),
        "classes": list(task.classes),
        "examples": {name: len(split) for name, split in sizes.items() if split is not None},
    }


def describe_prior(prior: str | Categorical) -> str | dict[str, list[float]]:
    """A prior as a config holds it."""
    if isinstance(prior, str):
        return prior
    return {d.name: prior.log_probs[k, : len(d)].tolist() for k, d in enumerate(prior.decisions)}


def versions() -> dict[str, str]:
    """What the run was made with."""
    return {"polyarch": polyarch.__version__, "torch": torch.__version__}
