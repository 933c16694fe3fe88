import pytest

from polyarch.data import load
from polyarch.errors import PolyarchError


@pytest.fixture
def fails():
    """Asserts that a load fails in one line that holds these fragments."""

    def check(source, *fragments, **settings):
        with pytest.raises(PolyarchError) as caught:
            load(source, **settings)
        text = str(caught.value)
        assert "\n" not in text
        for fragment in fragments:
            assert fragment in text, text

    return check
