"""Likelihoods by the text that a setting has for them: a name, or where a class of one's own is."""

from __future__ import annotations

from typing import Any

from polyarch import catalogue
from polyarch.calls import read_call
from polyarch.data.likelihood import Likelihood
from polyarch.errors import PolyarchError
from polyarch.settings import make, plain

BY_KIND = "auto"
"""In the place of a likelihood: that of classes or that of numbers, as targets are."""


def likelihood_named(text: str) -> Likelihood:
    """The likelihood behind a text: `counts`, `my_likelihoods:Poisson`, or with settings, `my_file:StudentT(df=4)`."""
    name, values, settings = read_call(text)
    if values:
        raise PolyarchError(f"{text!r}: say settings by their names: {name}(name=value, ...)")
    cls, _ = catalogue.find("likelihood", name)
    if not issubclass(cls, Likelihood):
        raise PolyarchError(f"{name!r} is no likelihood; make it a subclass of polyarch.Likelihood")
    return _made(cls, settings)


def _made(cls: type[Likelihood], settings: dict[str, Any]) -> Likelihood:
    missing = [*sorted(cls.__abstractmethods__), *([] if hasattr(cls, "metric") else ["metric"])]
    if missing:
        raise PolyarchError(f"{cls.__name__} lacks {', '.join(missing)}; a likelihood needs them (docs/likelihoods.md)")
    return make(cls, settings)


def text_of(likelihood: Likelihood | type[Likelihood]) -> str:
    """The text that leads to a likelihood, or to a class with its defaults, again."""
    cls = likelihood if isinstance(likelihood, type) else type(likelihood)
    name = catalogue.name_of("likelihood", cls)
    if ":" in name and (cls.__module__ == "__main__" or "." in cls.__qualname__):
        raise PolyarchError(
            f"a run could not find {cls.__qualname__!r} again; put the class at the top level of a file of its own, "
            "and import it from there"
        )
    own = {} if isinstance(likelihood, type) else plain(likelihood)
    return f"{name}({', '.join(f'{field}={value!r}' for field, value in own.items())})" if own else name
