"""What the docs tell a newcomer to copy passes the contract checks; lines of the docs run it by name, on ranks too."""

from importlib import import_module

import numpy as np
import pytest
import torch

import polyarch as pa
from polyarch.catalogue import find, name_of
from polyarch.core import Problem
from polyarch.data.task import Split, TaskShape
from polyarch.distributions import uniform
from polyarch.scores import Candidate
from polyarch.spaces import Dense, Soft
from polyarch.testing import check_distribution, check_method, check_score, check_space
from polyarch.testing.spaces import make_supernet
from polyarch.testing.toy import Lines, every_choice, log_likelihoods, toy_task

SHAPE = TaskShape((3,), 2)


@pytest.fixture
def space(skeletons):
    return import_module("space").Activations(width=8)


@pytest.fixture
def task(tmp_path):
    """The class says on which side of a bent plane a point is."""
    x = np.random.default_rng(0).normal(size=(120, 3)).astype(np.float32)
    np.savez(tmp_path / "own.npz", x=x, y=(x[:, 0] + x[:, 1] ** 2 > 1).astype(np.int64))
    return pa.data.load(tmp_path / "own.npz")


def test_space(space):
    check_space(space, SHAPE)


def test_soft_weights_of_one_option_are_that_option(space):
    supernet = make_supernet(space, SHAPE, seeds=(0, 1)).eval()
    x = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    choices = torch.tensor([[0, 2], [1, 0]])
    weights = tuple(torch.eye(3, dtype=torch.float64)[choices[:, k]] for k in range(2))
    assert torch.allclose(supernet(x, Soft(weights)), supernet(x, Dense(choices)), atol=1e-9)


def test_images_are_refused_with_advice(space):
    with pytest.raises(pa.PolyarchError, match="flatten"):
        space.check(TaskShape((1, 8, 8), 2))


def test_method(space, task, tmp_path):
    method = import_module("method").SampledElbo(epochs=3, batch_size=20)
    check_method(method, space, task, tmp_path / "runs", ranks=False)  # the page of methods has it run on ranks too
    check_distribution(pa.open_run(tmp_path / "runs" / "plain").distribution)


def test_belief_becomes_the_enumerated_posterior(skeletons, tmp_path):
    task, space = toy_task(tmp_path / "data"), Lines()
    method = import_module("method").SampledElbo(
        epochs=600,
        evaluation={"every": 300},
        stopping={"split": "never"},
        weights={"lr": 1.0},
        arch={"lr": 0.02},
        samples=16,
    )
    run = pa.search(space, task, method, out=tmp_path / "run", compute=pa.Compute("cpu"))
    x, y = task.preprocess(task.train.x), task.train.y
    problem = Problem(space, run.supernet(), task.likelihood, uniform(space.decisions), {"train": Split(x, y)})
    posterior = log_likelihoods(problem, x[None], y[None]).sum(-1)[0].softmax(0)
    believed = run.distribution.log_prob(every_choice(space)).exp()
    assert torch.allclose(believed, posterior, atol=0.05)  # SGD on samples goes on trembling; 0.015 was seen


def test_score(space):
    supernet = space.supernet(SHAPE)
    candidates = [Candidate(a, space, SHAPE, supernet) for a in space.decode(every_choice(space))]
    score = import_module("score").Sensitivity()
    check_score(score, candidates)
    together = score(candidates, torch.Generator().manual_seed(3))
    alone = score(candidates[4:5], torch.Generator().manual_seed(3))
    assert together[4] == alone[0]


def test_names(space, skeletons):
    for kind, name in (
        ("space", "space:Activations"),
        ("method", "method:SampledElbo"),
        ("score", "score:Sensitivity"),
    ):
        cls, preset = find(kind, name)
        assert name_of(kind, cls) == name
        assert preset == {}
