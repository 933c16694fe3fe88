"""How much a user must know: counts that must not grow unnoticed."""

import inspect
import re
import subprocess
import sys

import pytest

import polyarch as pa
from polyarch.core import Method
from polyarch.spaces.base import Space


def public_names(cls):
    """Names in the body of a class, fields included, that do not begin with an underscore."""
    return {name for name in {*vars(cls), *cls.__annotations__} if not name.startswith("_")}


def test_what_there_is_is_listed():
    """Also before it was first used, when nothing of it has been imported."""
    listed = subprocess.run(
        [sys.executable, "-c", "import polyarch; print(*dir(polyarch))"], capture_output=True, text=True
    )
    assert set(listed.stdout.split()) == set(pa.__all__)


def test_search_has_at_most_ten_parameters():
    parameters = inspect.signature(pa.search).parameters
    assert len(parameters) <= 10, list(parameters)


def test_a_space_has_at_most_twenty_names():
    assert len(public_names(Space)) <= 20, sorted(public_names(Space))


def test_a_method_has_at_most_twenty_one_names():
    assert len(public_names(Method)) <= 21, sorted(public_names(Method))


def test_help_says_what_each_is():
    told = dict(re.findall(r"^    (\w+) {2,}(\S.*)$", pa.__doc__, re.MULTILINE))
    assert told.keys() == {*pa.__all__} - {"PolyarchError", "__version__"}
    assert "PolyarchError" in pa.__doc__


PARTS = [name for name in pa.__all__ if inspect.ismodule(getattr(pa, name))]


@pytest.mark.parametrize("part", ["", *PARTS])
def test_every_public_thing_says_in_one_line_what_it_is(part):
    owner = getattr(pa, part) if part else pa
    for name in getattr(owner, "__all__", vars(owner)):
        thing = getattr(owner, name)
        is_module = inspect.ismodule(thing)
        if is_module or ((inspect.isclass(thing) or inspect.isfunction(thing)) and name[0] != "_"):
            if not (thing.__name__ if is_module else thing.__module__).startswith("polyarch"):
                continue  # what a module without `__all__` imports
            first, *_ = thing.__doc__.strip().split("\n")
            assert not first.startswith(f"{name}("), f"{part}.{name}: that is what a dataclass gets of itself"
            assert first[-1] in ".:", f"{part}.{name}: {first}"
