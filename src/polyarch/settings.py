"""Settings: the keyword-only fields of a source, space or method, listed with their help and checked when set."""

from __future__ import annotations

import ast
import inspect
import itertools
import math
import textwrap
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args, get_origin, get_type_hints

from polyarch.errors import PolyarchError, unknown


@dataclass(frozen=True)
class Setting:
    """One setting as the command line shows it."""

    name: str
    type: Any
    """int, float, str, bool, or a Literal of strings."""
    default: Any
    help: str


def settings_of(cls: type[Any]) -> dict[str, Setting]:
    """The settings of a dataclass, by name: its keyword-only fields (positional fields are data)."""
    hints = get_type_hints(cls)
    docs: dict[str, str] = {}
    for base in reversed(cls.__mro__[:-1]):  # the nearest class wins, as it does for defaults
        docs |= _field_docs(base)
    return {
        field.name: Setting(field.name, hints[field.name], field.default, docs.get(field.name, ""))
        for field in fields(cls)
        if field.kw_only
    }


def _field_docs(cls: type[Any]) -> dict[str, str]:
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


def check_names(cls: type[Any], names: list[str]) -> None:
    """Raises for a name that is no setting of `cls`."""
    known = [field.name for field in fields(cls) if field.kw_only]
    for name in names:
        if name not in known:
            raise unknown(f"setting of {cls.__name__}", name, known)


def check_types(settings: Any) -> None:
    """Raises for a setting whose value is not of its annotated type."""
    hints = get_type_hints(type(settings))
    for field in fields(settings):
        if field.kw_only:
            _check_type(f"{type(settings).__name__}.{field.name}", getattr(settings, field.name), hints[field.name])


def _check_type(name: str, value: Any, expected: Any) -> None:
    if get_origin(expected) is Literal:
        if value not in get_args(expected):
            raise unknown(f"value of {name}", str(value), get_args(expected))
        return
    wanted = {float: "a finite number", int: "a whole number", bool: "true or false", str: "text"}[expected]
    allowed = (int, float) if expected is float else expected
    # A bool is an int to Python; to a user, `points=True` is a slip.
    fits = isinstance(value, allowed) and (expected is bool or not isinstance(value, bool))
    if not fits or (expected is float and not math.isfinite(value)):
        raise PolyarchError(f"{name} is {value!r}; it must be {wanted}")


def at_least(name: str, value: float, least: float) -> None:
    """Raises where a setting is below its least value."""
    if value < least:
        raise PolyarchError(f"{name} is {value}; it must be at least {least}")


def positive(settings: Any, *names: str) -> None:
    """Raises where a named setting is below 1."""
    for name in names:
        at_least(name, getattr(settings, name), 1)


def parsed(setting: Setting, text: str) -> Any:
    """The value that a command line's text means for a setting."""
    kind = setting.type
    try:
        if kind is bool:
            return {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}[text.lower()]
        if kind in (int, float):
            return kind(text)
    except (KeyError, ValueError):
        wanted = {bool: "true or false", int: "a whole number", float: "a number"}[kind]
        raise PolyarchError(f"setting {setting.name} needs {wanted}, not {text!r}") from None
    return text
