"""How much a user must know: counts that must not grow unnoticed."""

import inspect

import polyarch as pa
from polyarch.core import Method
from polyarch.spaces.base import Space


def public_names(cls):
    """Names in the body of a class, fields included, that do not begin with an underscore."""
    return {name for name in {*vars(cls), *cls.__annotations__} if not name.startswith("_")}


def test_search_has_at_most_ten_parameters():
    parameters = inspect.signature(pa.search).parameters
    assert len(parameters) <= 10, list(parameters)


def test_a_space_has_at_most_twenty_names():
    assert len(public_names(Space)) <= 20, sorted(public_names(Space))


def test_a_method_has_at_most_twenty_one_names():
    assert len(public_names(Method)) <= 21, sorted(public_names(Method))
