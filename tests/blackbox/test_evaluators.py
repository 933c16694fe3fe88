"""Evaluators from tables and from scores."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch
from landscapes import EVERY, Grid, Rugged, chance

from polyarch.blackbox import Budget, LocalSearch, RegularisedEvolution, ScoreEvaluator, Spent, TableEvaluator
from polyarch.data.likelihood import Gaussian
from polyarch.data.task import Split, TaskShape
from polyarch.errors import PolyarchError
from polyarch.scores import Parameters
from polyarch.scores.base import Candidate, Score
from polyarch.scores.sotl import Sotl
from polyarch.spaces import NasBench201, ResidualDepth
from polyarch.tables.table import Table
from polyarch.testing.toy import Lines


@pytest.fixture
def table():
    rewards = Rugged()
    return Table(
        "toy.npz",
        {
            "arch": np.array([Grid().format(c) for c in EVERY]),
            "valid_acc": np.array([rewards.rewards[c] for c in EVERY]),
            "valid_loss": np.array([-rewards.rewards[c] for c in EVERY]),
            "test_acc": np.array([rewards.rewards[c] / 2 for c in EVERY]),
            "valtest_acc": np.array([rewards.rewards[c] for c in EVERY]),
            "train_time": np.array([rewards.seconds[c] for c in EVERY]),
            "noise": np.arange(len(EVERY)) * 1.0,
        },
    )


def test_table_evaluator(table):
    rewards = Rugged()
    evaluator = TableEvaluator(table, Grid(), "valid_acc", "train_time", share=12 / 200)
    fixed = TableEvaluator(table, Grid(), "valid_loss", 5.0)
    for choices in EVERY:
        assert evaluator.reward(choices) == fixed.reward(choices) == rewards.rewards[choices]
        assert evaluator.price(choices) == Spent(evaluations=1, seconds=pytest.approx(0.06 * rewards.seconds[choices]))
        assert fixed.price(choices) == Spent(evaluations=1, seconds=5.0)
    history = LocalSearch().search(Grid(), evaluator, Budget(1.5, "seconds"), chance())
    truth = table.values("test_acc", Grid(), history.choices())[history.incumbents()]
    assert truth.tolist() == (history.rewards().cummax(0).values / 2).tolist()
    assert len(truth) == len(history.paid("seconds"))


def test_table_evaluator_refuses(table):
    with pytest.raises(PolyarchError, match="'test_acc' is of the test split, and nothing is chosen on test data"):
        TableEvaluator(table, Grid(), "test_acc")
    with pytest.raises(PolyarchError, match=r"of the valid\+test split"):
        TableEvaluator(table, Grid(), "valtest_acc")
    with pytest.raises(PolyarchError, match="'noise' does not say which direction is better"):
        TableEvaluator(table, Grid(), "noise")
    with pytest.raises(PolyarchError, match="unknown column"):
        TableEvaluator(table, Grid(), "valid_acc", "train_tim")
    with pytest.raises(PolyarchError, match="share is -1"):
        TableEvaluator(table, Grid(), "valid_acc", 1.0, share=-1)
    with pytest.raises(PolyarchError, match="no row for 1 of the architectures"):
        TableEvaluator(table, NasBench201(), "valid_acc", 1.0).reward((0,) * 6)


def lines_candidate(slope, shift):
    """Data on one of the lines, and a supernet whose shared offset is 0."""
    space, shape = Lines(), TaskShape((1,), 1)
    x = torch.linspace(-1, 1, 9)[:, None]
    train = Split(x, slope * x[:, 0] + shift)
    return Candidate(
        space.architecture([0, 0]), space, shape, space.supernet(shape), likelihood=Gaussian(), train=train
    )


def test_evolution_guided_by_training_speed():
    """The line that the data lies on has nothing to learn; the search, told the sum of losses alone, ends there."""
    like = lines_candidate(1.0, 0.5)
    evaluator = ScoreEvaluator(Sotl(steps=3, batch_size=9), like, forward=27, backward=27)
    method = RegularisedEvolution(population=3, sample=2)
    history = method.search(like.space, evaluator, Budget(600, "backward"), chance())
    assert history.spent == Spent(evaluations=22, forward=594, backward=594)
    assert str(like.space.architecture(history.best.choices)) == "slope=1.0,shift=0.5"
    least = 3 * 0.5 * math.log(2 * math.pi)  # the loss of a Gaussian without an error
    assert history.best.reward == pytest.approx(-least)  # smaller is better, so the reward is minus the score
    assert evaluator.reward((0, 0)) < -least
    assert like.supernet.offset.item() == 0


def test_a_score_evaluates_on_equal_terms():
    """A score that draws: asked twice the answer is the same, and one seed holds for all."""

    @dataclass(frozen=True, kw_only=True)
    class Chance(Score):
        name: ClassVar[str] = "chance"
        larger_is_better: ClassVar[bool] = True
        meaning: ClassVar[str] = "Nothing."
        cost: ClassVar[str] = "Nothing."

        def __call__(self, candidates, generator):
            return torch.rand(len(candidates), generator=generator, dtype=torch.float64)

    like = lines_candidate(1.0, 0.0)
    evaluator = ScoreEvaluator(Chance(), like, seed=5)
    wanted = torch.rand(1, generator=chance(5), dtype=torch.float64).item()
    assert [evaluator.reward(choices) for choices in ((0, 0), (2, 1), (0, 0))] == [wanted] * 3


def test_a_score_needs_numbers_and_weights():
    @dataclass(frozen=True, kw_only=True)
    class Overflow(Score):
        name: ClassVar[str] = "overflow"
        larger_is_better: ClassVar[bool] = True
        meaning: ClassVar[str] = "Nothing."
        cost: ClassVar[str] = "Nothing."

        def __call__(self, candidates, generator):
            return torch.full((len(candidates),), math.inf, dtype=torch.float64)

    like = lines_candidate(1.0, 0.0)
    with pytest.raises(PolyarchError, match=r"overflow of slope=-1.0,shift=0.0 is inf; use another score"):
        ScoreEvaluator(Overflow(), like).reward((0, 0))
    bare = Candidate(like.architecture, like.space, like.shape)
    with pytest.raises(PolyarchError, match="needs trained weights; give a run"):
        ScoreEvaluator(Sotl(), bare).reward((0, 0))


def test_any_space_and_score():
    """Depth by parameters: the deepest has the most; each is asked about once."""
    space = ResidualDepth(max_depth=6, width=4)
    like = Candidate(space.architecture([0]), space, TaskShape((2,), 2))
    history = LocalSearch().search(space, ScoreEvaluator(Parameters(), like), Budget(50), chance())
    assert history.best.choices == (6,)
    assert len(history) == 7
    network = space.build(space.architecture((6,)), like.shape)
    assert history.best.reward == sum(p.numel() for p in network.parameters())
