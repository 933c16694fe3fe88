"""Where a search computes, for how long, and what it starts from."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import final

import torch

from polyarch.distributions.categorical import Categorical
from polyarch.errors import PolyarchError, unknown
from polyarch.settings import at_least
from polyarch.spaces.limits import Limit, Price, limits_of

PRECISIONS = ("float32", "bfloat16")
UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
"""Of times, in seconds."""


@final
@dataclass(frozen=True)
class Compute:
    """Where a search computes, how precisely, and for how long."""

    device: str = "auto"
    """`cpu`, `cuda`, one of several such as `cuda:1`, or `auto`, which is CUDA where there is one."""
    precision: str = "float32"
    """`float32`, or, on a CUDA device, `bfloat16` for products and convolutions; weights, statistics and losses stay in
    single precision, and so does everything after the search."""
    fast: bool = True
    """Whether networks of cells may run in a form that is fused for speed, on a CUDA device; results differ by rounding
    alone. Where there is no such form the plain one runs, and a search says why."""
    time_limit: float | str | None = None
    """Seconds, or a text such as `90s`, `5m` or `1h`, that a search may take, evaluating what it found included: it
    makes as many of the method's epochs as fit in, by what a few steps take when it begins, and is that much shorter as
    a whole: learning rates, warm-ups and stages end as they would. Training the selected network alone takes half of
    that at most, and plain models a tenth."""

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            raise unknown("precision", self.precision, PRECISIONS)
        if self.time_limit is not None:
            seconds_of(self.time_limit)

    def find_device(self) -> torch.device:
        """The device that is meant here; raises where there is none, or where it lacks the precision."""
        device = find_device(self.device)
        if self.precision == "bfloat16" and device.type != "cuda":
            raise PolyarchError("precision bfloat16 is for CUDA devices; leave it out, or search on one")
        return device


@final
@dataclass(frozen=True)
class Select:
    """How one architecture is taken from belief, and what its network may cost."""

    rule: str = "auto"
    """`argmax`, `95%`, `expectation`, or `auto`, by the size of the data."""
    limits: Sequence[str | Limit] = ()
    """At most, such as `parameters=100k`, `macs=5M`, `latency=5ms` (measured here), or a column of the table that a
    `TableTruth` among the callbacks names."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "limits", limits_of(self.limits))


@final
@dataclass(frozen=True)
class Start:
    """What a search starts from: what is believed before, and what other runs have learnt."""

    prior: str | Categorical | None = None
    """Over architectures; the method's own by default. A name, or a distribution over the space's decisions."""
    price: str | Price = ""
    """What cost is worth in fit, in nats per example for so much, such as `parameters=0.01/10k`: in the prior, or as
    expected cost in the loss of methods that mix."""
    belief_from: str | Path | None = None
    """The folder of a finished run of the same method and the same decisions; the search starts from the belief learnt
    there, perhaps on a smaller network or on other data."""
    weights_from: str | Path | None = None
    """The folder of a finished run; training one network (`Standalone`) starts from the weights that the run gives its
    architecture."""
    allow_changed: bool = False
    """Whether code of one's own may have changed since these runs were made; else that is refused."""


@final
@dataclass(frozen=True)
class Workers:
    """Who makes the runs of a comparison."""

    count: int | None = None
    """How many at once; by default as many as there are processors and memory for, or, on a Ray cluster, as it has room
    for."""
    cpus: int = 1
    """Processors that a run computes with."""
    gpus: float | None = None
    """GPUs that a run is given, or a share of one; by default one where runs compute on CUDA devices, and else none."""
    ray: str | None = None
    """The address of a Ray cluster that they are started on: `auto` for the one that this machine is part of, `local`
    for one that is started here; by default they are processes of this machine."""

    def __post_init__(self) -> None:
        for name, value, least in (("workers", self.count, 1), ("cpus", self.cpus, 1), ("gpus", self.gpus, 0)):
            if value is not None:
                at_least(name, value, least)


def find_device(name: str) -> torch.device:
    """The device a name means; `auto` is CUDA where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if not re.fullmatch(r"cpu|cuda(:\d+)?", name, re.ASCII):
        raise PolyarchError(f"device must be auto, cpu, cuda or, of several, such as cuda:1; not {name!r}")
    kind, _, number = name.partition(":")
    count = torch.cuda.device_count() if kind == "cuda" else 0
    if kind == "cuda" and not torch.cuda.is_available():
        raise PolyarchError("no CUDA device is available to torch here; use --device cpu")
    if number and int(number) >= count:
        known = ", ".join(f"cuda:{k}" for k in range(count))
        raise PolyarchError(f"there is no {name} here; torch sees {known}")
    return torch.device(name)


def is_here(name: str) -> bool:
    """Whether there is such a device on this machine."""
    try:
        find_device(name)
    except PolyarchError:
        return False
    return True


def computing_on(device: torch.device) -> AbstractContextManager[object]:
    """In which a CUDA device is the one that kernels, streams and recordings go to unless they are told."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def seconds_of(text: float | str) -> float:
    """What a time limit says: seconds, or a text such as `90`, `90s`, `5m` or `1h`."""
    found = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)([smh]?)", str(text).strip().lower())
    seconds = float(found[1]) * UNITS[found[2]] if found else 0.0
    if not 0 < seconds < float("inf"):
        raise PolyarchError(f"the time limit is {str(text)!r}; write seconds, minutes or hours: 90s, 5m, 1h")
    return seconds
