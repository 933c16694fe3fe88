"""What is said of belief that prefers nothing."""

import numpy as np
import pytest
from scipy.stats import entropy

from polyarch.distributions.flatness import evenness, flat_in_words


@pytest.mark.parametrize("shares", [(0.2,) * 5, (0.5, 0.3, 0.2, 0.0), (1.0, 0.0), (0.58, 0.42)])
def test_evenness_is_entropy_as_scipy_has_it(shares):
    assert evenness(shares) == pytest.approx(entropy(shares) / np.log(len(shares)), abs=1e-12)


def test_flat_belief_is_said_in_numbers():
    said = flat_in_words([{"act": (0.52, 0.48), "mix": (0.26, 0.25, 0.25, 0.24)}])
    assert said == (
        "flat: the largest share of a decision is, on average, 0.390, and 0.375 would be no preference at all"
    )
    assert flat_in_words([{"depth": (0.5, 0.5)}]).startswith("flat: the largest share is 0.500")


def test_belief_that_prefers_is_not_flat():
    assert not flat_in_words([{"act": (0.6, 0.4)}])
    assert not flat_in_words([{"act": (0.5, 0.5)}, {"act": (0.9, 0.1)}])  # one of two seeds


def test_what_has_one_option_alone_is_no_belief():
    assert not flat_in_words([{"act": (1.0,)}])
    assert flat_in_words([{"act": (1.0,), "mix": (0.5, 0.5)}])
