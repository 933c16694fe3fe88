"""What to do about a training whose objective was no longer a number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from polyarch.core import Method
from polyarch.errors import PolyarchError
from polyarch.settings import dotted, plain, settings_of, updated

CLIP = 5.0
"""To this norm the DARTS code scales gradients down."""


def used_rates(method: Method) -> dict[str, float]:
    """The learning rates of a method, by name, but those that are left open."""
    settings = dotted(type(method), plain(method))
    return {name: value for name, value in settings.items() if name.rpartition(".")[2] == "lr" and value}


def advice(method: Method, data: Mapping[str, Any]) -> str:
    """The settings to try next of a method and of data with these settings, as options; nothing where there are none.

    Weights learn ten times more slowly, at the default at most, and by clipped gradients; what is standardised is in
    reach of any rate. A rate of belief is not lowered below its default: belief would not form.
    """
    known, given = settings_of(type(method)), dotted(type(method), plain(method))
    found: dict[str, Any] = {}
    for name, rate in used_rates(method).items():
        default = known[name].default
        if rate > default or not name.startswith("arch."):
            found[name] = min(rate if name.startswith("arch.") else rate / 10, default)
    if "weights.grad_clip" in known and not 0 < given["weights.grad_clip"] <= CLIP:
        clipped = found | {"weights.grad_clip": CLIP}
        found = clipped if _takes(method, clipped) else found
    options = ["standardise=true"] if data.get("standardise") is False else []
    options += [f"{name}={value:g}" for name, value in found.items()]
    return " ".join(f"--set {option}" for option in options)


def _takes(method: Method, settings: dict[str, Any]) -> bool:
    try:
        updated(method, settings)
    except PolyarchError:
        return False
    return True
