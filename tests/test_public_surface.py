"""How much a user must know: counts that must not grow unnoticed."""

import inspect

import polyarch as pa


def test_search_has_at_most_ten_parameters():
    parameters = set(inspect.signature(pa.search).parameters)
    assert len(parameters - {"labels"}) <= 10, sorted(parameters)
