import pytest
import torch

from polyarch import Decision, PolyarchError
from polyarch.distributions import Categorical, selection, uniform

DEPTH = (Decision("depth", tuple(str(k) for k in range(5))),)


def belief(*probs):
    return Categorical(DEPTH, torch.tensor([probs]).log())


def test_argmax():
    assert selection.argmax(belief(0.1, 0.2, 0.4, 0.2, 0.1)) == (2,)


def test_ninety_five_takes_the_first_on_the_plateau():
    assert selection.ninety_five(belief(0.05, 0.15, 0.26, 0.27, 0.27)) == (2,)
    assert selection.ninety_five(belief(0.05, 0.15, 0.25, 0.28, 0.27)) == (3,)
    assert selection.ninety_five(belief(0.0, 0.0, 0.0, 0.0, 1.0)) == (4,)


def test_expectation_is_rounded():
    assert selection.expectation(belief(0.5, 0.0, 0.0, 0.0, 0.5)) == (2,)
    assert selection.expectation(belief(0.1, 0.1, 0.1, 0.1, 0.6)) == (3,)


def test_auto_is_the_papers_rule_for_the_size_of_the_data():
    assert selection.rule_for("auto", True, {"train": 200}) == "argmax"
    assert selection.rule_for("auto", True, {"train": 60_000}) == "95%"
    assert selection.rule_for("auto", False, {"train": 60_000}) == "argmax"


def test_rules_for_one_ordered_decision_are_refused_elsewhere():
    with pytest.raises(PolyarchError, match="argmax"):
        selection.rule_for("95%", False, {"train": 100})
    with pytest.raises(PolyarchError, match="did you mean 'argmax'"):
        selection.rule_for("argmaks", True, {"train": 100})


def test_ties_go_to_the_shallower():
    assert selection.select(uniform(DEPTH), "95%") == (0,)
