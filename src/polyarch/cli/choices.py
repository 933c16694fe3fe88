"""From the words of a command line to a space, a method, a data source and what to do with them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from polyarch import catalogue, presets
from polyarch.architecture import Decision
from polyarch.blackbox.base import BlackBox
from polyarch.core import Method
from polyarch.data.loading import source_for, source_from
from polyarch.data.source import SPLITTING, Source, check_replaced
from polyarch.data.task import Task
from polyarch.distributions.priors import make_prior
from polyarch.distributions.selection import check_rule
from polyarch.errors import PolyarchError, unknown
from polyarch.runs.defaults import Chosen, prepared
from polyarch.scores.base import Score
from polyarch.settings import Setting, dotted, make, parsed, parts_of, settings_of
from polyarch.spaces.base import Space

RENAMED = {
    "rate": "weights.lr",
    "last_rate": "weights.schedule.last_lr",
    "drop_after": "weights.schedule.milestones, with weights.schedule.kind=multistep",
    "clip": "weights.grad_clip",
    "belief_rate": "arch.lr",
    "belief_decay": "arch.weight_decay",
    "objective": "objective.loss",
    "stop": "stopping.split",
    "progressive": "plan.stages",
    "weights_only": "warmup_epochs",
    "outer_rate": "outer_lr",
    "evaluate_every": "evaluation.every",
}
"""Settings of before 0.2, and what they are called now (CHANGELOG)."""


@dataclass(frozen=True, kw_only=True)
class SearchSettings:
    """What `search` itself takes, beside data, space and method."""

    prior: str = ""
    """Over architectures: `uniform`, `exponential`, `exponential(GAMMA)`; empty is the method's own."""
    selection: str = "auto"
    """How one architecture is taken from belief: `argmax`, `95%`, `expectation`, or `auto` by the size of the data."""
    fast: bool = True
    """Whether networks of cells run in a form that is fused for speed, on a CUDA device; results differ by rounding."""
    by_data: bool = True
    """Whether what is not set of data, the space `depth` and how its weights are trained goes by the data; else it has
    the defaults that are listed. Published searches always have theirs."""

    def __post_init__(self) -> None:
        if self.prior:
            make_prior(self.prior, [Decision("any", ("one",))])  # what is misspelt is said before data is read
        check_rule(self.selection)


@dataclass(frozen=True)
class Choices:
    """Everything a search is told."""

    space: Space
    method: Method
    source: Source
    search: SearchSettings
    repeats: int
    """How many seeds the method's preset trains."""
    told: Mapping[str, Collection[str]]
    """By group, the settings that were told; of a group that is not here, what was not told stays as well."""
    data_told: Collection[str] | None
    """Those of the data, whatever is searched; None: what was not told stays as well."""

    def prepared(self, *, deep: bool = False) -> tuple[Task, Space, Method, Chosen]:
        """Data, space and method, in which what nobody told goes by the data.

        Args:
            deep: whether the depth of networks stays, too.
        """
        space = {"space": [*self.told["space"], "max_depth"]} if deep and "space" in self.told else {}
        return prepared(self.source, self.space, self.method, {**self.told, **space})


@dataclass(frozen=True)
class Asked:
    """What is searched, how and on what, by name."""

    space: str
    method: str
    data: str
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By group, those of a published search, or of a run that is repeated."""
    repeats: int | None = None
    """How many seeds that had."""


def published(preset: str) -> Asked:
    """A published search."""
    found = presets.find(preset)
    groups = {group: found.group(group) for group in ("data", "space", "method")}
    return Asked(found.space, found.method, found.data, groups, found.repeats)


def asked(begin: Asked | None, space: str | None, method: str | None, data: str | None) -> Asked:
    """What the words of a command line mean, which have the last word over a search that it begins with.

    Where one of its parts is replaced, the settings of that part go with it; of other data those are kept that say how
    to split it.
    """
    if begin is None:
        return Asked(space or "depth", method or "variational-depth", data or "digits")
    names = (space or begin.space, method or begin.method, data or begin.data)
    replaced = {"space": names[0] != begin.space, "method": names[1] != begin.method}
    settings = {group: values for group, values in begin.settings.items() if not replaced.get(group)}
    if names[2] != begin.data:
        known = settings_of(source_for(names[2])).keys() & SPLITTING
        settings["data"] = {name: value for name, value in settings["data"].items() if name in known}
    return Asked(*names, settings, begin.repeats)


def choose(
    space: str,
    method: str,
    data: str,
    assignments: Sequence[str],
    settings: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
) -> Choices:
    """Makes everything from names and `NAME=VALUE` texts; `settings` are by group, and these may change them."""
    space_class, space_preset = find("space", space)
    method_class, method_preset = find("method", method)
    groups = {
        "data": source_for(data),
        "space": space_class,
        "method": method_class,
        "search": SearchSettings,
    }
    presets = {"space": space_preset, "method": method_preset}
    assigned = assign(groups, assignments)
    given = {
        group: {**dotted(cls, presets.get(group, {})), **dotted(cls, settings.get(group, {})), **assigned[group]}
        for group, cls in groups.items()
    }
    search = make(SearchSettings, given["search"])
    return Choices(
        space=make(space_class, given["space"]),
        method=make(method_class, given["method"]),
        source=source_from(data, given["data"]),
        search=search,
        repeats=catalogue.METHODS[method].repeats if method in catalogue.METHODS else 1,
        told={} if settings or method_preset or not search.by_data else given,
        data_told=given["data"] if search.by_data else None,
    )


def choose_each(pairs: Sequence[tuple[str, str]], data: str, assignments: Sequence[str]) -> list[Choices]:
    """Makes spaces and methods of several names on the same data; a setting is for all that have it, and one must.

    Sizes of networks go by the data under a published method, too, so that all methods search the same ones.
    """
    found, unknown_to = [], dict[str, list[PolyarchError]]()
    for space, method in pairs:
        kinds = {"data": source_for(data), "space": find("space", space)[0], "method": find("method", method)[0]}
        groups, taken = {**kinds, "search": SearchSettings}, []
        for text in assignments:
            if _is_known(groups, text.partition("=")[0].strip()):
                taken.append(text)
            else:
                unknown_to.setdefault(text, []).append(_why_not(groups, text))
        chosen = choose(space, method, data, taken)
        told = assign(groups, taken) if chosen.search.by_data else {}
        found.append(replace(chosen, told=chosen.told or {name: told[name] for name in told if name == "space"}))
    for errors in unknown_to.values():
        if len(errors) == len(pairs):
            raise errors[0]
    return found


def _is_known(groups: dict[str, type[Any]], name: str) -> bool:
    """Whether one of the groups has a setting or a part that a name may mean."""
    group, dot, inside = name.partition(".")
    if dot and group in groups:
        groups, name = {group: groups[group]}, inside
    return any(matching({**settings_of(cls), **parts_of(cls)}, name) for cls in groups.values())


def _why_not(groups: dict[str, type[Any]], text: str) -> PolyarchError:
    try:
        assign(groups, [text])
    except PolyarchError as error:
        return error
    raise AssertionError(text)


def make_space(name: str, assignments: Sequence[str]) -> Space:
    """A space alone, from its name and `NAME=VALUE` texts."""
    cls, preset = find("space", name)
    space: Space = make(cls, {**preset, **assign({"space": cls}, assignments)["space"]})
    return space


def find(kind: str, name: str) -> tuple[type[Any], dict[str, Any]]:
    """The class and preset settings behind a name; what a class of one's own lacks is said in words."""
    wanted = {"space": Space, "method": Method, "score": Score, "baseline": BlackBox}[kind]
    return catalogue.find_class(kind, name, wanted)


def assign(groups: dict[str, type[Any]], assignments: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Sorts `NAME=VALUE` texts into the groups' settings, by dotted name and parsed to their types.

    A name may leave out what is not needed to tell it apart: `method.weights.lr` is `weights.lr` where no other group
    has such a part, and `lr` where no other part has such a setting.
    """
    given: dict[str, dict[str, Any]] = {group: {} for group in groups}
    for text in assignments:
        name, equals, value = text.partition("=")
        if not equals:
            raise PolyarchError(f"--set {text}: write NAME=VALUE")
        group, setting = _find(groups, name.strip())
        given[group][setting.name] = parsed(setting, value.strip())
    return given


def matching(settings: Mapping[str, Setting], name: str) -> list[str]:
    """The dotted names that a name may mean: itself, or those that end in it."""
    return [known for known in settings if f".{known}".endswith(f".{name}")]


def _find(groups: dict[str, type[Any]], name: str) -> tuple[str, Setting]:
    if "data" in groups:
        check_replaced([name.removeprefix("data.")])
    group, dot, inside = name.partition(".")
    if dot and group in groups:
        named, groups, kind = inside, {group: groups[group]}, f"setting of {group}"
    else:
        named, kind = name, "setting"
    known = {group: settings_of(cls) for group, cls in groups.items()}
    found = [(group, own) for group, settings in known.items() for own in matching(settings, named)]
    # A whole name means itself, even where longer ones end in it.
    exact = [(group, own) for group, own in found if own == named]
    if len(exact or found) > 1:
        options = " or ".join(f"{group}.{own}" for group, own in found)
        raise PolyarchError(f"setting {name!r} is in several places; write {options}")
    if found:
        group, own = (exact or found)[0]
        return group, known[group][own]
    for group, cls in groups.items():
        if named in parts_of(cls):
            members = [f"{group}.{own}" for own in known[group] if own.startswith(f"{named}.")]
            raise PolyarchError(f"setting {name!r} is not one value; write {' or '.join(members)}")
    if named in RENAMED:
        raise PolyarchError(f"the setting {named} is now called {RENAMED[named]}")
    names = [own for settings in known.values() for own in settings]
    # A bare name is nearest to what other bare names are.
    raise unknown(kind, named, names if "." in named else {own.rpartition(".")[2] for own in names})
