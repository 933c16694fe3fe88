"""From the words of a command line to a space, a method, a data source and what to do with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from inspect import isabstract
from types import MappingProxyType
from typing import Any

from polyarch import catalogue
from polyarch.blackbox.base import BlackBox
from polyarch.core import Method
from polyarch.data.loading import source_for, source_from
from polyarch.data.source import Source, check_replaced
from polyarch.errors import PolyarchError, unknown
from polyarch.scores.base import Score
from polyarch.settings import Setting, parsed, settings_of
from polyarch.spaces.base import Space


@dataclass(frozen=True, kw_only=True)
class SearchSettings:
    """What `search` itself takes, beside data, space and method."""

    prior: str = ""
    """Over architectures: `uniform`, `exponential`, `exponential(GAMMA)`; empty is the method's own."""
    selection: str = "auto"
    """How one architecture is taken from belief: `argmax`, `95%`, `expectation`, or `auto` by the size of the data."""


@dataclass(frozen=True)
class Choices:
    """Everything a search is told."""

    space: Space
    method: Method
    source: Source
    search: SearchSettings
    repeats: int
    """How many seeds the method's preset trains."""


def choose(
    space: str,
    method: str,
    data: str,
    assignments: Sequence[str],
    presets: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
) -> Choices:
    """Makes everything from names and `NAME=VALUE` texts; `presets` are settings by group that these may change."""
    space_class, space_preset = find("space", space)
    method_class, method_preset = find("method", method)
    groups = {
        "data": source_for(data),
        "space": space_class,
        "method": method_class,
        "search": SearchSettings,
    }
    given = assign(groups, assignments)
    given = {group: {**presets.get(group, {}), **values} for group, values in given.items()}
    return Choices(
        space=space_class(**{**space_preset, **given["space"]}),
        method=method_class(**{**method_preset, **given["method"]}),
        source=source_from(data, given["data"]),
        search=SearchSettings(**given["search"]),
        repeats=catalogue.METHODS[method].repeats if method in catalogue.METHODS else 1,
    )


def make_space(name: str, assignments: Sequence[str]) -> Space:
    """A space alone, from its name and `NAME=VALUE` texts."""
    cls, preset = find("space", name)
    space: Space = cls(**{**preset, **assign({"space": cls}, assignments)["space"]})
    return space


def find(kind: str, name: str) -> tuple[type[Any], dict[str, Any]]:
    """The class and preset settings behind a name; what a class of one's own lacks is said in words."""
    wanted = {"space": Space, "method": Method, "score": Score, "baseline": BlackBox}[kind]
    found, preset = catalogue.find(kind, name)
    if not issubclass(found, wanted) or not is_dataclass(found) or isabstract(found):
        raise PolyarchError(
            f"{name!r} is no {kind}: a {kind} is a dataclass that inherits from {wanted.__module__}.{wanted.__name__} "
            "and has all its methods"
        )
    return found, preset


def assign(groups: dict[str, type[Any]], assignments: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Sorts `NAME=VALUE` and `GROUP.NAME=VALUE` texts into the groups' settings, parsed to their types."""
    known = {group: settings_of(cls) for group, cls in groups.items()}
    given: dict[str, dict[str, Any]] = {group: {} for group in groups}
    for text in assignments:
        name, equals, value = text.partition("=")
        if not equals:
            raise PolyarchError(f"--set {text}: write NAME=VALUE")
        group, setting = _find(known, name.strip())
        given[group][setting.name] = parsed(setting, value.strip())
    return given


def _find(known: dict[str, dict[str, Setting]], name: str) -> tuple[str, Setting]:
    if "data" in known:
        check_replaced([name.removeprefix("data.")])
    group, dot, bare = name.partition(".")
    if dot and group in known:
        if bare not in known[group]:
            raise unknown(f"setting of {group}", bare, known[group])
        return group, known[group][bare]
    holders = [g for g, settings in known.items() if name in settings]
    if not holders:
        raise unknown("setting", name, [s for settings in known.values() for s in settings])
    if len(holders) > 1:
        raise PolyarchError(
            f"setting {name!r} is in several groups; write {' or '.join(f'{g}.{name}' for g in holders)}"
        )
    return holders[0], known[holders[0]][name]
