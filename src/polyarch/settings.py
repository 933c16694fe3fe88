"""Settings: the keyword-only fields of a source, space, method or score, listed with their help and checked when set.

A setting is a number, a truth value, a text, a Literal of texts, a tuple of these, or a part: a frozen dataclass whose
fields are settings in turn, as in `weights: Sgd = Sgd(lr=0.025)`. The settings of a part have dotted names
(`weights.lr`), and its owner says their defaults. Bounds stand in the annotation, as in `Annotated[int, AtLeast(1)]`.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import math
import textwrap
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from functools import reduce
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from typing_extensions import override

from polyarch.errors import PolyarchError, unknown

T = TypeVar("T")


@dataclass(frozen=True)
class Bound(ABC):
    """A limit of a number, for its annotation."""

    words: ClassVar[str]

    limit: float

    @abstractmethod
    def holds(self, value: float) -> bool:
        """Whether a value is within it."""

    def __str__(self) -> str:
        return f"{self.words} {self.limit}"


@dataclass(frozen=True)
class AtLeast(Bound):
    """Not below the limit."""

    words: ClassVar[str] = "at least"

    @override
    def holds(self, value: float) -> bool:
        return value >= self.limit


@dataclass(frozen=True)
class Above(Bound):
    """Greater than the limit."""

    words: ClassVar[str] = "above"

    @override
    def holds(self, value: float) -> bool:
        return value > self.limit


@dataclass(frozen=True)
class AtMost(Bound):
    """Not above the limit."""

    words: ClassVar[str] = "at most"

    @override
    def holds(self, value: float) -> bool:
        return value <= self.limit


@dataclass(frozen=True)
class Below(Bound):
    """Smaller than the limit."""

    words: ClassVar[str] = "below"

    @override
    def holds(self, value: float) -> bool:
        return value < self.limit


@dataclass(frozen=True)
class TakesMemory:
    """For the annotation of a setting: a search needs more memory where it is larger."""

    beside: tuple[str, Any] | None = None
    """Only where another setting of the same class has this value."""


@dataclass(frozen=True)
class InEpochs:
    """For the annotation of a setting: it counts in epochs, so that it is shorter where a search is."""


Positive = Annotated[int, AtLeast(1)]
"""A whole number from 1."""
Size = Annotated[int, AtLeast(1), TakesMemory()]
"""The same, where a search needs more memory with it."""
Count = Annotated[int, AtLeast(0)]
"""A whole number from 0."""
PositiveFloat = Annotated[float, Above(0)]
"""A number above 0."""
NonNegative = Annotated[float, AtLeast(0)]
"""A number from 0."""
Share = Annotated[float, AtLeast(0), Below(1)]
"""A number from 0 to 1, without 1."""


@dataclass(frozen=True)
class Setting:
    """One setting as the command line shows it."""

    name: str
    """Dotted where it belongs to a part: `weights.lr`."""
    type: Any
    """As it is annotated, bounds included."""
    default: Any
    help: str


def settings_of(cls: type[Any]) -> dict[str, Setting]:
    """The settings of a dataclass and of its parts, by dotted name (positional fields of the class are data)."""
    return {setting.name: setting for setting in _walk(cls) if not _is_part(setting.type)}


def parts_of(cls: type[Any]) -> dict[str, Setting]:
    """The parts of a dataclass by dotted name; the help of a part is what its owner says of it."""
    return {setting.name: setting for setting in _walk(cls) if _is_part(setting.type)}


def memory_settings(settings: Any) -> list[str]:
    """The settings, by dotted name, that a search needs more memory with: as annotated here or by a base class.

    Those that are left open, as -1 or empty, and those that count beside another setting alone are left out.
    """
    marks = {
        name: mark
        for base in type(settings).__mro__[::-1]
        if is_dataclass(base)
        for name, setting in settings_of(base).items()
        for mark in get_args(setting.type)
        if isinstance(mark, TakesMemory)
    }

    def counts(name: str) -> bool:
        *parts, own = name.split(".")
        owner = reduce(getattr, parts, settings)
        beside = marks[name].beside
        return getattr(owner, own) not in (-1, ()) and (beside is None or getattr(owner, beside[0]) == beside[1])

    return [name for name in settings_of(type(settings)) if name in marks and counts(name)]


def check(settings: Any) -> None:
    """Raises for a setting, also of a part, whose value is not of its annotated type or out of its bounds."""
    owner = type(settings).__name__
    for name, kind in _kinds(type(settings)).items():
        _check(owner, name, getattr(settings, name), kind)


def settle(settings: Any) -> None:
    """For `__post_init__`: a part given as a mapping becomes that part, with the class's defaults; then checks all.

    So `Darts(weights={"lr": 0.05})` changes one setting of a part and leaves the method's others as they are.
    """
    cls = type(settings)
    for name, kind in _kinds(cls).items():
        value = getattr(settings, name)
        if _is_part(kind) and isinstance(value, Mapping):
            value = updated(_default(cls, name), value)
        elif isinstance(value, list):
            value = _read(cls.__name__, name, value, kind)
        object.__setattr__(settings, name, value)
    check(settings)


def make(cls: type[T], values: Mapping[str, Any]) -> T:
    """An instance with these values, by dotted name or in nested mappings; the others have the class's defaults.

    Values may be plain, as JSON has them: lists become tuples, and mappings become parts. Positional fields of the
    class, which are data, may be among them.
    """
    return _built(cls, dotted(cls, values), None)


def updated(settings: T, values: Mapping[str, Any]) -> T:
    """A copy with these values, given as for `make`; all others stay."""
    return _built(type(settings), dotted(type(settings), values), settings)


def plain(value: Any) -> Any:
    """What JSON can hold: mappings in place of dataclasses and lists in place of tuples; `make` reads it back."""
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value) if field.init}
    return [plain(one) for one in value] if isinstance(value, tuple | list) else value


def dotted(cls: type[Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The same values by dotted name, checked and of the annotated types; values of different origin then compare."""
    data = {field.name for field in fields(cls) if not field.kw_only}
    known = settings_of(cls)
    found: dict[str, Any] = {}
    for name, value in _flattened(cls, values):
        if name in data:
            found[name] = value
            continue
        if name not in known:
            raise _no_setting(cls, name)
        found[name] = _read(cls.__name__, name, value, known[name].type)
        _check(cls.__name__, name, found[name], known[name].type)
    return found


def check_names(cls: type[Any], names: Iterable[str]) -> None:
    """Raises for a name that is no setting of `cls`."""
    known = {*settings_of(cls), *parts_of(cls)}
    for name in names:
        if name not in known:
            raise _no_setting(cls, name)


def at_least(name: str, value: float, least: float) -> None:
    """Raises where a value is below its least."""
    _check_bounds(name, value, [AtLeast(least)])


def parsed(setting: Setting, text: str) -> Any:
    """What a command line's text means for a setting, as `make` takes it.

    Values of a tuple are separated by commas, and fields of a part in a tuple by colons: `5:8:0.1,11:5:0.4`.
    """
    try:
        return _parsed(setting.type, text)
    except ValueError:
        several = isinstance(setting.default, tuple) and setting.default
        example = f", such as {written(setting.default)}" if several else ""
        raise PolyarchError(f"setting {setting.name} needs {_spelling(setting.type)}{example}, not {text!r}") from None


def written(value: Any) -> str:
    """The text that a command line has for a value; `parsed` reads it back."""
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple | list):
        return ",".join(map(written, value))
    if is_dataclass(value):
        return ":".join(written(getattr(value, name)) for name in _kinds(type(value), part=True))
    return str(value)


# Types


def _bare(kind: Any) -> tuple[Any, list[Bound]]:
    """An annotation without its bounds, and these."""
    if get_origin(kind) is not Annotated:
        return kind, []
    return get_args(kind)[0], [one for one in get_args(kind)[1:] if isinstance(one, Bound)]


def _optional(kind: Any) -> Any:
    """X of `X | None`; None for any other annotation."""
    if get_origin(kind) not in (Union, UnionType):
        return None
    kinds = [one for one in get_args(kind) if one is not NoneType]
    if len(kinds) != 1:
        raise TypeError(f"a setting cannot be of type {kind}; of unions, only `X | None` is known")
    return kinds[0]


def _item(kind: Any) -> Any:
    """X of `tuple[X, ...]`; None for any other annotation."""
    if get_origin(kind) is not tuple:
        return None
    item, *rest = get_args(kind)
    if rest != [...]:
        raise TypeError(f"a setting cannot be of type {kind}; of tuples, only `tuple[X, ...]` is known")
    return item


def _is_part(kind: Any) -> bool:
    return isinstance(kind, type) and is_dataclass(kind)


_WANTED = {
    float: ("a finite number", "finite numbers"),
    int: ("a whole number", "whole numbers"),
    bool: ("true or false", "true or false"),
    str: ("text", "texts"),
}


def _wanted(kind: Any, many: bool = False) -> str:
    """What a value must be, in words."""
    kind, _ = _bare(kind)
    if inner := _optional(kind):
        return f"{_wanted(inner, many)} or None"
    if item := _item(kind):
        return f"a tuple of {_wanted(item, many=True)}"
    if _is_part(kind):
        return f"{kind.__name__} instances" if many else f"an instance of {kind.__name__}"
    if get_origin(kind) is Literal:
        *others, last = get_args(kind)
        return f"{', '.join(others)} or {last}"
    return _WANTED[kind][many]


def _check(owner: str, name: str, value: Any, annotation: Any) -> None:
    kind, bounds = _bare(annotation)
    if inner := _optional(kind):
        if value is None:
            return
        kind, own = _bare(inner)
        bounds = [*bounds, *own]
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            raise unknown(f"value of {owner}.{name}", str(value), get_args(kind))
        return
    if not _fits(value, kind):
        raise PolyarchError(f"{owner}.{name} is {value!r}; it must be {_wanted(annotation)}")
    if item := _item(kind):
        for k, one in enumerate(value):
            _check(owner, f"{name}[{k}]", one, item)
    if _is_part(kind):
        for part, own_kind in _kinds(kind, part=True).items():
            _check(owner, f"{name}.{part}", getattr(value, part), own_kind)
    _check_bounds(name, value, bounds)


def _fits(value: Any, kind: Any) -> bool:
    """Whether a value is of a type; what a tuple or a part holds is not looked at."""
    if _item(kind):
        return isinstance(value, tuple)
    if _is_part(kind):
        return type(value) is kind  # not a subclass, which `make` would not make again
    if kind not in _WANTED:
        raise TypeError(f"a setting cannot be of type {kind}; see the types that polyarch.settings knows")
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    # A bool is an int to Python; to a user, `points=True` is a slip.
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))


def _check_bounds(name: str, value: Any, bounds: Iterable[Bound]) -> None:
    if not all(bound.holds(value) for bound in bounds):
        raise PolyarchError(f"{name} is {value}; it must be {' and '.join(map(str, bounds))}")


# Fields

_HINTS: dict[type[Any], dict[str, Any]] = {}
_DOCS: dict[type[Any], dict[str, str]] = {}  # reading a class's source takes milliseconds


def _kinds(cls: type[Any], part: bool = False) -> dict[str, Any]:
    """The annotations of a class's settings; a part has no data, so that its positional fields are settings too."""
    if cls not in _HINTS:
        _HINTS[cls] = get_type_hints(cls, include_extras=True)
    hints = _HINTS[cls]
    return {field.name: hints[field.name] for field in fields(cls) if field.init and (field.kw_only or part)}


def _default(cls: type[Any], name: str) -> Any:
    """The default of a field; MISSING where it has none."""
    [field] = [field for field in fields(cls) if field.name == name]
    return field.default if field.default_factory is MISSING else field.default_factory()


def _required(cls: type[Any]) -> list[str]:
    """The fields that have no default."""
    return [f.name for f in fields(cls) if f.init and f.default is MISSING and f.default_factory is MISSING]


def _walk(cls: type[Any], prefix: str = "", defaults: Any = MISSING) -> Iterator[Setting]:
    """All settings and parts, a part before its settings; defaults are those that the outermost class says."""
    docs = _docs(cls)
    for name, kind in _kinds(cls, part=bool(prefix)).items():
        default = _default(cls, name) if defaults is MISSING else getattr(defaults, name)
        yield Setting(prefix + name, kind, default, docs.get(name, ""))
        if _is_part(kind):
            yield from _walk(kind, f"{prefix}{name}.", default)


def _docs(cls: type[Any]) -> dict[str, str]:
    """The help of a class's fields; of a field in several bases, the nearest one's, as it is for defaults."""
    docs: dict[str, str] = {}
    for base in reversed(cls.__mro__[:-1]):
        if base not in _DOCS:
            _DOCS[base] = _own_docs(base)
        docs |= _DOCS[base]
    return docs


def _own_docs(cls: type[Any]) -> dict[str, str]:
    """The string under each field in the class's own body; Python keeps these in the source alone."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    except (OSError, TypeError):
        return {}
    assert isinstance(tree.body[0], ast.ClassDef)
    body = tree.body[0].body
    return {
        statement.target.id: inspect.cleandoc(doc.value.value)
        for statement, doc in itertools.pairwise(body)
        if isinstance(statement, ast.AnnAssign)
        and isinstance(statement.target, ast.Name)
        and isinstance(doc, ast.Expr)
        and isinstance(doc.value, ast.Constant)
        and isinstance(doc.value.value, str)
    }


# Values


def _flattened(cls: type[Any], values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Pairs of a dotted name and a value that is no part; where a name comes twice, the later one counts."""
    parts = parts_of(cls)
    for name, value in values.items():
        if name not in parts:
            yield name, value
            continue
        if type(value) is parts[name].type:
            value = {own: getattr(value, own) for own in _kinds(type(value), part=True)}
        if not isinstance(value, Mapping):
            inside = [own for own in settings_of(cls) if own.startswith(f"{name}.")]
            raise PolyarchError(f"{name} is {value!r}; it is not one value: give {', '.join(inside)}")
        yield from _flattened(cls, {f"{name}.{own}": one for own, one in value.items()})


def _read(owner: str, name: str, value: Any, kind: Any) -> Any:
    """A plain value as its type has it, not yet checked."""
    kind, _ = _bare(kind)
    kind, _ = _bare(_optional(kind) or kind)
    if (item := _item(kind)) and isinstance(value, tuple | list):
        return tuple(_read(owner, f"{name}[{k}]", one, item) for k, one in enumerate(value))
    if _is_part(kind) and isinstance(value, Mapping | tuple | list):
        kinds = _kinds(kind, part=True)
        if not isinstance(value, Mapping):  # its fields, in order
            value = dict(zip(kinds, value, strict=False))
        for own in value:
            if own not in kinds:
                raise unknown(f"part of {owner}.{name}", own, kinds)
        _check_complete(f"{owner}.{name}", kind, value)
        read = {own: _read(owner, f"{name}.{own}", one, kinds[own]) for own, one in value.items()}
        for own, one in read.items():  # before the part's own checks, which do not know whose part it is
            _check(owner, f"{name}.{own}", one, kinds[own])
        return kind(**read)
    return value


def _built(cls: type[T], given: Mapping[str, Any], base: Any, where: str = "") -> T:
    """An instance from checked values by dotted name; what is not given is as in `base`, or as the class has it."""
    own: dict[str, Any] = {name: value for name, value in given.items() if "." not in name}
    for name, kind in _kinds(cls, part=bool(where)).items():
        inside = {key.removeprefix(f"{name}."): value for key, value in given.items() if key.startswith(f"{name}.")}
        if inside:
            held = _default(cls, name) if base is None else getattr(base, name)
            own[name] = _built(kind, inside, None if held is MISSING else held, f"{where or cls.__name__}.{name}")
    if base is not None:
        made: T = replace(base, **own)
        return made
    _check_complete(where or cls.__name__, cls, own)
    return cls(**own)


def _check_complete(what: str, cls: type[Any], given: Iterable[str]) -> None:
    """Raises where a field without a default is not given."""
    lacking = [name for name in _required(cls) if name not in given]
    if lacking:
        raise PolyarchError(f"{what} lacks {', '.join(lacking)}; give a value")


def _no_setting(cls: type[Any], name: str) -> PolyarchError:
    """The error for a name that is no setting; a bare name may be that of a part's setting."""
    same = [known for known in settings_of(cls) if known.endswith(f".{name}")]
    if same:
        return PolyarchError(
            f"unknown setting of {cls.__name__} {name!r}; did you mean {' or '.join(map(repr, same))}?"
        )
    return unknown(f"setting of {cls.__name__}", name, settings_of(cls))


# Texts

_TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def _parsed(kind: Any, text: str) -> Any:
    kind, _ = _bare(kind)
    text = text.strip()
    if inner := _optional(kind):
        return None if text.lower() == "none" else _parsed(inner, text)
    if item := _item(kind):
        return tuple(_parsed(item, one) for one in text.split(",")) if text else ()
    if _is_part(kind):
        texts = text.split(":")
        kinds = _kinds(kind, part=True)
        if not len(_required(kind)) <= len(texts) <= len(kinds):
            raise ValueError(text)
        return {name: _parsed(own, one) for (name, own), one in zip(kinds.items(), texts, strict=False)}
    if kind is bool:
        if text.lower() not in _TRUTH:
            raise ValueError(text)
        return _TRUTH[text.lower()]
    return kind(text) if kind in (int, float) else text


def _spelling(kind: Any, many: bool = False) -> str:
    """How a value is written on the command line, in words."""
    kind, _ = _bare(kind)
    if inner := _optional(kind):
        return f"{_spelling(inner)}, or none"
    if item := _item(kind):
        return f"{_spelling(item, many=True)}, separated by commas"
    if _is_part(kind):
        return ":".join(name.upper() for name in _kinds(kind, part=True))
    return _wanted(kind, many).replace("finite ", "")
