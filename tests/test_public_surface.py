"""How much a user must know: counts that must not grow unnoticed."""

import inspect
import subprocess
import sys

import polyarch as pa
from polyarch.core import Method
from polyarch.spaces.base import Space


def public_names(cls):
    """Names in the body of a class, fields included, that do not begin with an underscore."""
    return {name for name in {*vars(cls), *cls.__annotations__} if not name.startswith("_")}


def test_what_there_is_is_listed_and_each_says_what_it_is():
    """Also before it was first used, when nothing of it has been imported."""
    listed = subprocess.run(
        [sys.executable, "-c", "import polyarch; print(*dir(polyarch))"], capture_output=True, text=True
    )
    assert set(listed.stdout.split()) == set(pa.__all__)
    for name in dir(pa):
        assert getattr(pa, name).__doc__


def test_search_has_at_most_ten_parameters():
    parameters = inspect.signature(pa.search).parameters
    assert len(parameters) <= 10, list(parameters)


def test_a_space_has_at_most_twenty_names():
    assert len(public_names(Space)) <= 20, sorted(public_names(Space))


def test_a_method_has_at_most_twenty_one_names():
    assert len(public_names(Method)) <= 21, sorted(public_names(Method))
