"""How much a user must know: counts that must not grow unnoticed."""

import inspect

import polyarch as pa
from polyarch.spaces.base import Space


def test_search_has_at_most_ten_parameters():
    parameters = set(inspect.signature(pa.search).parameters)
    assert len(parameters - {"labels"}) <= 10, sorted(parameters)


def public_names(cls):
    """Those in the body of a class."""
    return {name for name in {**vars(cls), **cls.__annotations__} if not name.startswith("_")}


def test_a_space_has_at_most_twenty_names():
    assert len(public_names(Space)) <= 20, sorted(public_names(Space))
