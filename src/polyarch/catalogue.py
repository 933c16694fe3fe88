"""Names for the command line: one line a thing. In Python, import the class instead."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from polyarch.errors import PolyarchError, unknown


@dataclass(frozen=True)
class Entry:
    """Where a class is, in a few words what it does, and, for a preset, the settings that make it one."""

    path: str
    about: str
    settings: Mapping[str, Any] = field(default_factory=dict)


_LDN = {
    "stop": "train",
    "epochs": 8000,
    "patience": 500,
    "evaluate_every": 10,
}  # appendix B; 8000 from the released code
_LDN_IMAGES = {
    "stop": "valid",
    "epochs": 500,
    "patience": 30,
    "drop_after": 30,
}  # appendix B; validation data is ours

SPACES = {
    "depth": Entry("polyarch.spaces.depth:ResidualDepth", "how deep a residual network should be"),
}
METHODS = {
    "variational-depth": Entry(
        "polyarch.methods.variational_depth:VariationalDepth",
        "weights and a distribution over depth, together",
    ),
    "variational-depth-spirals": Entry(
        "polyarch.methods.variational_depth:VariationalDepth",
        "the same as the paper trains it on spirals",
        _LDN,
    ),
    "variational-depth-images": Entry(
        "polyarch.methods.variational_depth:VariationalDepth",
        "the same as the paper trains it on images",
        _LDN_IMAGES,
    ),
    "fixed-depth": Entry("polyarch.methods.fixed_depth:FixedDepth", "baseline: one network of a given depth"),
    "fixed-depth-spirals": Entry(
        "polyarch.methods.fixed_depth:FixedDepth", "the same as the paper trains it on spirals", _LDN
    ),
    "fixed-depth-images": Entry(
        "polyarch.methods.fixed_depth:FixedDepth", "the same as the paper trains it on images", _LDN_IMAGES
    ),
}
SCORES = {
    "parameters": Entry("polyarch.scores.parameters:Parameters", "how many parameters a candidate has"),
}
KINDS = {"space": SPACES, "method": METHODS, "score": SCORES}


def find(kind: str, name: str) -> tuple[type[Any], dict[str, Any]]:
    """The class and preset settings behind a name, or behind `package.module:name` for a class of your own."""
    entries = KINDS[kind]
    if name in entries:
        return _load(entries[name].path, kind), dict(entries[name].settings)
    if ":" in name:
        return _load(name, kind), {}
    raise unknown(kind, name, entries)


def name_of(kind: str, cls: type[Any]) -> str:
    """The shortest name that `find` takes for a class."""
    path = f"{cls.__module__}:{cls.__qualname__}"
    plain = [name for name, entry in KINDS[kind].items() if entry.path == path and not entry.settings]
    return plain[0] if plain else path


def _load(path: str, kind: str) -> type[Any]:
    module_name, _, name = path.partition(":")
    try:
        module = import_module(module_name)
    except (ImportError, ValueError) as error:
        raise PolyarchError(
            f"cannot import {kind} {path!r}: {error}; is its package installed or on PYTHONPATH?"
        ) from None
    except Exception as error:  # whatever a module of the user's raises when it is imported
        raise PolyarchError(
            f"cannot import {kind} {path!r}: {type(error).__name__}: {error}; mend its module"
        ) from None
    if not hasattr(module, name):
        raise PolyarchError(f"module {module_name!r} has no {name!r}; write {kind}s as package.module:ClassName")
    found = getattr(module, name)
    if not isinstance(found, type):
        raise PolyarchError(f"{path!r} is not a class; write {kind}s as package.module:ClassName")
    return found
