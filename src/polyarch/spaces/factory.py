"""What makes a module of one's own, and the text by which a run finds it again."""

from __future__ import annotations

import copy
import hashlib
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from polyarch.calls import read_call
from polyarch.errors import PolyarchError

Factory = Callable[[], nn.Module]

HELD = "object "
"""How the text of a factory begins that has no name: a module, a lambda, a function inside another."""
_held: dict[str, Factory] = {}
"""What this process has of those, by what is the same of their texts in every process."""


def check_factory(given: object) -> None:
    """Raises unless something can be a factory: a module, whatever can be called, or a text that names it."""
    if not given and not isinstance(given, nn.Module):  # an empty nn.Sequential is false
        raise PolyarchError(
            "say what makes the module: ModuleSpace(Network) in Python, --space my_file:Network on the command line"
        )
    if isinstance(given, str):
        if not given.startswith(HELD):
            read_call(given)
    elif not callable(given):
        raise PolyarchError(
            f"{given!r} makes no module; give a class or function that does, a lambda such as lambda: Network(64), or "
            "a module"
        )


def is_held(given: object) -> bool:
    """Whether a factory has no name that another process finds it by."""
    if isinstance(given, str):
        return given.startswith(HELD)
    name = getattr(given, "__qualname__", None)
    return isinstance(given, nn.Module) or name is None or "<" in name or "." in name


def calls(given: Factory | nn.Module | str) -> Factory:
    """What to call for a new module; a module is copied, so that all begin with its weights."""
    if isinstance(given, nn.Module):
        return partial(copy.deepcopy, given)
    return _resolved(given) if isinstance(given, str) else given


def text_of(given: Factory | nn.Module | str, fresh: Factory) -> str:
    """The text by which a run finds a factory again: where it has a name, in any process, else in this one alone.

    Args:
        given: the factory.
        fresh: what makes a new module of it.
    """
    if isinstance(given, str):
        return given
    if not is_held(given):
        return name_of(given)
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.manual_seed(0)
        made = fresh()
    same, sources = HELD + _digest(made), dict.fromkeys([*_classes(made), *_sources(given)])
    _held[same] = calls(given)
    return f"{same} of {', '.join(sources)}"


def identity(text: str) -> str:
    """What is the same of a factory's text wherever the object is made: it need not stand in the same file."""
    return text.partition(" of ")[0] if text.startswith(HELD) else text


def name_of(given: Factory | nn.Module | str) -> str:
    """What people call a factory: what finds it again, where it has a name."""
    if isinstance(given, str):
        return short_name(given) if given.startswith(HELD) else given
    if isinstance(given, nn.Module):
        return type(given).__name__
    module = getattr(given, "__module__", type(given).__module__)
    return f"{main_name() if module == '__main__' else module}:{getattr(given, '__qualname__', type(given).__name__)}"


def short_name(text: str) -> str:
    """What people call the module that a factory's text makes: `Network`."""
    return re.split(r"[(,]", text.partition(" of ")[2] if text.startswith(HELD) else text)[0].rpartition(":")[2]


def _classes(module: nn.Module) -> list[str]:
    """Where the classes of a module are defined, its own first; of torch's that one alone."""
    found = [_place(type(part).__module__, type(part).__qualname__) for part in module.modules()]
    return [found[0], *(name for name in found if name.partition(".")[0] not in ("torch", "polyarch"))]


def _sources(given: Any) -> list[str]:
    """Where what an object calls to make a module is defined."""
    if isinstance(given, partial):
        return _sources(given.func)
    name, module = getattr(given, "__qualname__", "<"), getattr(given, "__module__", "")
    code = getattr(given, "__code__", None)
    used = [other for other in code.co_names if other in given.__globals__] if code else []
    return [_place(module, own) for own in (name, *used) if not own.startswith("<")]


def _place(module: str, name: str) -> str:
    """The reference to what stands at the top level of a file, of a name in it."""
    return f"{main_name() if module == '__main__' else module}:{name.partition('.')[0]}"


def _digest(module: nn.Module) -> str:
    """Of a module's layers with their settings, and of its weights."""
    digest = hashlib.sha256()
    for path, part in module.named_modules(remove_duplicate=False):
        told = re.sub(r" at 0x[0-9a-f]+", "", part.extra_repr())  # an address is of one process
        digest.update(f"{path} {type(part).__qualname__} {told};".encode())
    for name, value in module.state_dict().items():
        digest.update(f"{name} {value.dtype} {tuple(value.shape)};".encode())
        digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()[:16]


def _resolved(text: str) -> Factory:
    if text.startswith(HELD):
        if identity(text) not in _held:
            raise PolyarchError(
                f"the networks of this run are made by a Python object ({short_name(text)}), which no other process "
                "can find; give it again: pa.open_run(folder, space=pa.ModuleSpace(...)), pa.resume(folder, "
                "space=...); or search with what has a name: --space my_file:Network(width=64)"
            )
        return _held[identity(text)]
    path, values, named = read_call(text)
    found = _found(path)
    return partial(found, *values, **named) if "(" in text else calls(found)


def _found(reference: str) -> Factory:
    from polyarch.catalogue import load  # imports spaces itself

    module, _, name = reference.partition(":")
    main = sys.modules["__main__"]
    if module == main_name() and hasattr(main, name):  # the script that runs: importing it would run it again
        made: Factory = getattr(main, name)
        return made
    found: Factory = load(reference, "space")
    return found


def main_name() -> str:
    """What the running script is called when it is imported."""
    main = sys.modules["__main__"]
    if main.__spec__ is not None:  # python -m package.script
        return main.__spec__.name
    path = main_file()
    return path.stem if path else "__main__"


def main_file() -> Path | None:
    """Where the running script is; None where there is none, as in a notebook."""
    path = getattr(sys.modules["__main__"], "__file__", None)
    return Path(path) if path else None
