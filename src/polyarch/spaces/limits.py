"""What networks may cost at most, and what cost is worth, as people write it: `parameters=100k`, `macs=0.1/5M`."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from polyarch.errors import PolyarchError, unknown

COUNTED = ("parameters", "macs")
"""Costs of a network that are counted."""
LATENCY = "latency"
PRICED = "parameters=0.01/10k"
_COUNTS = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}
_SECONDS = {"ms": 1e-3, "s": 1.0}
_NUMBER = r"(\d+(?:\.\d*)?|\.\d+)(?:[eE]([+-]?\d+))?"


@final
@dataclass(frozen=True)
class Limit:
    """The most that a network may cost of something."""

    name: str
    """`parameters`, `macs`, `latency`, or a column of a table."""
    most: float
    """In seconds of a latency, else in what is counted."""
    batch: int = 1
    """Examples of a forward pass, of a latency."""

    @classmethod
    def of(cls, text: str | Limit) -> Limit:
        """Reads NAME=VALUE, as in `parameters=100k`, `macs=5M`, `latency=5ms`, `latency=40ms@64`."""
        if isinstance(text, Limit):
            return text
        name, equals, value = (part.strip() for part in text.rpartition("="))
        if not equals or not name:
            raise PolyarchError(f"the limit {text!r} is not NAME=VALUE; write one like parameters=100k or latency=5ms")
        if name != LATENCY:
            return cls(name, _number(value, _COUNTS, f"the limit {text!r}", "parameters=100k, macs=5M"))
        value, at, batch = value.partition("@")
        if at and not (batch.isdecimal() and int(batch)):
            raise PolyarchError(f"the limit {text!r}: after @ stands the size of a batch, as in latency=40ms@64")
        seconds = _number(value, _SECONDS, f"the limit {text!r}", "latency=5ms, latency=0.1s")
        return cls(name, seconds, int(batch) if at else 1)

    def __str__(self) -> str:
        """What `of` reads back."""
        at = f"@{self.batch}" if self.batch > 1 else ""
        return f"{self.name}={self.shown(self.most)}{at}"

    def shown(self, cost: float) -> str:
        """A cost of this kind, in words."""
        if self.name == LATENCY:
            return f"{cost:.12g}s" if cost >= 1 else f"{cost * 1e3:.12g}ms"
        unit, size = next(((u, s) for u, s in reversed(_COUNTS.items()) if cost >= s), ("", 1.0))
        return f"{cost / size:.12g}{unit}"

    @property
    def unit(self) -> str:
        """What its numbers are of."""
        if self.name != LATENCY:
            return self.name
        return f"a forward pass of {self.batch} example{'s' if self.batch > 1 else ''}"


def in_words(limit: str, cost: float) -> str:
    """A limit, and what a network has of it."""
    own = Limit.of(limit)
    return f"{own.unit}: {own.shown(float(f'{cost:.6g}'))}, of {own.shown(own.most)} at most"


def limits_of(texts: Sequence[str | Limit]) -> tuple[Limit, ...]:
    """Several limits; raises where two are on the same cost."""
    found = tuple(map(Limit.of, [texts] if isinstance(texts, str) else texts))
    names = [(limit.name, limit.batch) for limit in found]
    for limit in found:
        if names.count((limit.name, limit.batch)) > 1:
            raise PolyarchError(f"there are two limits on {limit.name}; leave one of them out")
    return found


@final
@dataclass(frozen=True)
class Price:
    """What cost is worth in fit, while searching: nats per example for so much of it."""

    name: str
    """`parameters` or `macs`: what adds up over decisions."""
    nats: float
    """Log-likelihood that an example must gain for `unit` more of the cost to be worth it."""
    unit: float

    @classmethod
    def of(cls, text: str | Price) -> Price:
        """Reads NAME=NATS/UNIT, as in `parameters=0.01/10k` or `macs=0.1/5M`."""
        if isinstance(text, Price):
            return text
        found = re.fullmatch(r"\s*(\w+)\s*=\s*([^/]+)/([^/]+)", text)
        if not found:
            raise PolyarchError(
                f"the price {text!r} is not NAME=NATS/UNIT; write nats per example for so much, as in {PRICED}"
            )
        name, nats, unit = found.groups()
        if name not in COUNTED:
            raise PolyarchError(
                f"there is no price of {name!r}: it is of what adds up over decisions, parameters or macs; for others, "
                "set a limit"
            )
        about = f"the price {text!r}"
        worth, much = _number(nats.strip(), {"": 1.0}, about, PRICED), _number(unit.strip(), _COUNTS, about, PRICED)
        return cls(name, worth, much)

    def __str__(self) -> str:
        """What `of` reads back."""
        return f"{self.name}={self.nats:.12g}/{Limit(self.name, self.unit).shown(self.unit)}"


def _number(text: str, units: dict[str, float], about: str, example: str) -> float:
    """A positive number with a unit behind it."""
    found = re.fullmatch(rf"{_NUMBER}\s*([a-zA-Z]*)", text)
    if not found:
        raise PolyarchError(f"{about}: {text!r} is no number above 0; write it like {example}")
    unit = found[3]
    if unit not in units:
        known = " or ".join(name for name in units if name)
        if not unit or not known:
            raise PolyarchError(f"{about}: {text!r} {'has a' if unit else 'has no'} unit; write it like {example}")
        raise unknown("unit", unit, [name for name in units if name])
    number = float(f"{found[1]}e{found[2] or 0}") * units[unit]
    if not 0 < number < math.inf:
        raise PolyarchError(f"{about}: {text!r} is no number above 0; write it like {example}")
    return number
