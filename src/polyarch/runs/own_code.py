"""What code of one's own a run was made with: it has no version, so a run keeps digests of what it uses of it."""

from __future__ import annotations

import ast
import hashlib
import itertools
import re
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from importlib.util import resolve_name
from pathlib import Path
from typing import Any

from polyarch.spaces.factory import main_file, main_name

REFERENCE = re.compile(r"([A-Za-z_][\w.]*):([A-Za-z_]\w*)")
"""`package.module:name`, also where arguments follow, or others."""
ALL = "*"
INSTALLED = {"site-packages", "dist-packages"}
STANDARD = Path(sysconfig.get_path("stdlib"))
"""Where Python's own modules are."""
Use = tuple[str, str]
"""A module, and a name at its top level that is used, or `ALL`."""
Importing = ast.Import | ast.ImportFrom
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def own_code(described: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """By module, the digest of what is used of it, where it is one's own: not polyarch's, Python's or an installed one.

    A module's statements count where what is used leads to them by name, also through other modules of one's own.
    Comments, layout and docstrings do not count, and nothing is imported.

    Args:
        described: spaces and methods, as a config holds them.
    """
    modules: dict[str, list[ast.stmt]] = {}
    counted: dict[str, set[int]] = {}
    ahead = [use for one in described for use in _references(one)]
    met = set(ahead)
    while ahead:
        module, name = ahead.pop()
        if module not in modules:
            modules[module] = _statements(module)
        for place, statement in enumerate(modules[module]):
            if name == ALL or {name, ALL} & _bound(statement):
                counted.setdefault(module, set()).add(place)
                new = set(_uses(module, statement)) - met
                met |= new
                ahead += new
    return {name: _digest(modules[name][place] for place in sorted(places)) for name, places in sorted(counted.items())}


def _references(described: Any) -> Iterator[Use]:
    """Every `package.module:name` in what a config says of a space or a method."""
    if isinstance(described, str):
        yield from ((found[1], found[2]) for found in REFERENCE.finditer(described))
    elif isinstance(described, Mapping | list):
        for value in described.values() if isinstance(described, Mapping) else described:
            yield from _references(value)


def _statements(module: str) -> list[ast.stmt]:
    """What stands at the top level of a module of one's own, one name per import; nothing for other modules.

    What only a running script does is left out, since a run's networks are made without it.
    """
    path = _own_file(module)
    try:
        tree = ast.parse(path.read_bytes()) if path else ast.Module([], [])
    except (OSError, SyntaxError, ValueError):  # importing it says what is wrong
        return []
    for node in ast.walk(tree):
        if isinstance(node, Definition) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    found: list[ast.stmt] = []
    for statement in tree.body:
        if isinstance(statement, ast.Import):
            found += [ast.Import([alias]) for alias in statement.names]
        elif isinstance(statement, ast.ImportFrom):
            found += [ast.ImportFrom(statement.module, [alias], statement.level) for alias in statement.names]
        elif not (isinstance(statement, ast.If) and "__name__" in _names(statement.test)):
            found.append(statement)
    return found


def _own_file(module: str) -> Path | None:
    """The file of a module, if it is one's own; found without importing it or the packages that it is in."""
    package, *inside = module.split(".")
    if package == "polyarch" or not all(part.isidentifier() for part in (package, *inside)):
        return None
    if module in ("__main__", main_name()):
        path = main_file()
        return path if path and _is_own(path) else None
    path, places = Path(), None
    for name in itertools.accumulate((package, *inside), "{}.{}".format):
        found = next(filter(None, (finder.find_spec(name, places) for finder in sys.meta_path)), None)
        places = found.submodule_search_locations if found else None
        path = Path((found.origin if found else None) or (places or [""])[0])
        if not _is_own(path) or (places is None and name != module):
            return None
    return path if path.suffix == ".py" else None


def _is_own(path: Path) -> bool:
    return path.is_absolute() and not INSTALLED & set(path.parts) and not path.is_relative_to(STANDARD)


def _bound(statement: ast.stmt) -> set[str]:
    """The names that a statement gives a meaning to, or changes."""
    if isinstance(statement, Definition):
        return {statement.name}
    if isinstance(statement, ast.Expr):  # such as setattr(Network, ...)
        return _names(statement)
    found = set()
    for node in ast.walk(statement):
        if isinstance(node, Importing):
            found |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, Definition):
            found.add(node.name)
        elif isinstance(node, ast.Name | ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
            found |= _names(node)
    return found


def _uses(module: str, statement: ast.stmt) -> Iterator[Use]:
    """What a statement of a module needs, here and in other modules."""
    for name in _names(statement):
        yield module, name
    for node in ast.walk(statement):
        if isinstance(node, ast.Import):
            yield from ((alias.name, ALL) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = _origin(module, node)
            for alias in node.names:
                yield origin, alias.name
                yield f"{origin}.{alias.name}", ALL  # where it is a module


def _origin(module: str, statement: ast.ImportFrom) -> str:
    """The module that something is imported from, by its whole name."""
    name = "." * statement.level + (statement.module or "")
    path = _own_file(module)
    inside = path is not None and path.stem == "__init__"
    try:
        return resolve_name(name, module if inside else module.rpartition(".")[0])
    except ImportError:  # of a script that is in no package: importing it says what is wrong
        return name


def _names(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def _digest(statements: Iterable[ast.stmt]) -> str:
    """Of code as Python would write it."""
    return hashlib.sha256("\n".join(map(ast.unparse, statements)).encode()).hexdigest()
