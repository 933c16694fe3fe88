"""The toy with a known answer, through every contract check, before any paper is trusted to them."""

import torch

import polyarch as pa
from polyarch.core import Problem
from polyarch.data.task import Split, TaskShape
from polyarch.distributions import Categorical, uniform
from polyarch.scores import Candidate, Parameters
from polyarch.testing import check_distribution, check_method, check_score, check_space
from polyarch.testing.toy import EnumeratedElbo, Lines, every_choice, log_likelihoods, toy_task


def test_space():
    check_space(Lines(), TaskShape((1,), 1))


def test_method(tmp_path):
    """Ranks are asked in tests/methods/test_every_method.py, of many at once."""
    task = toy_task(tmp_path / "data")
    check_method(EnumeratedElbo(epochs=3, batch_size=10, noise=0.1), Lines(), task, tmp_path, ranks=False)


def test_score():
    shape = TaskShape((1,), 1)
    check_score(Parameters(), [Candidate(a, Lines(), shape) for a in Lines().decode(every_choice(Lines()))])


def test_belief_becomes_the_enumerated_posterior(tmp_path):
    task = toy_task(tmp_path / "data")
    run = pa.search(
        Lines(),
        task,
        EnumeratedElbo(epochs=1000, evaluation={"every": 500}, stopping={"split": "never"}, lr=1.0),
        out=tmp_path / "run",
    )
    x, y = task.preprocess(task.train.x), task.train.y
    problem = Problem(Lines(), run.supernet(), task.likelihood, uniform(Lines().decisions), {"train": Split(x, y)})
    fits = log_likelihoods(problem, x[None], y[None]).sum(-1)[0]
    posterior = (fits - fits.logsumexp(0)).exp()
    believed = run.distribution.log_prob(every_choice(Lines())).exp()
    assert torch.allclose(believed, posterior, atol=5e-3)
    check_distribution(run.distribution)
    assert run.architecture.text == "slope=1.0,shift=0.5"
    assert len(run.ensemble().members(task.train.x)) == 6


def test_ragged_belief_has_finite_gradients():
    logits = torch.zeros(2, 3, requires_grad=True)
    absent = torch.tensor([[False] * 3, [False, False, True]])
    belief = Categorical(Lines().decisions, logits.masked_fill(absent, -torch.inf))
    (belief.entropy() + belief.kl(uniform(Lines().decisions))).backward()
    assert torch.isfinite(logits.grad).all()
