"""What is said of a name that does not exist."""

import pytest

from polyarch.errors import unknown


@pytest.mark.parametrize(
    ("name", "known", "says"),
    [
        ("99", map(str, range(21)), "unknown depth '99'; it can be 0 to 20"),
        ("-1", ["0", "1", "2"], "unknown depth '-1'; it can be 0 to 2"),
        ("two", ["0", "1", "2"], "unknown depth 'two'; it can be 0 to 2"),
        ("9", ["2", "16", "4"], "unknown depth '9'; it can be 2, 4, 16"),
        ("depthh", ["wiring", "depth"], "unknown depth 'depthh'; did you mean 'depth'?"),
        ("label", ["age", "income"], "unknown depth 'label'; known: age, income"),
    ],
)
def test_what_is_known_is_said(name, known, says):
    assert str(unknown("depth", name, known)) == says
