"""What everybody has to know stays small."""

from polyarch.core import Method


def public_names(cls):
    """Names in the body of a class, fields included, that do not begin with an underscore."""
    return {name for name in {*vars(cls), *cls.__annotations__} if not name.startswith("_")}


def test_a_method_has_few_names():
    assert len(public_names(Method)) <= 20, sorted(public_names(Method))
