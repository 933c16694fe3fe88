"""What a run of a nested space keeps of what data says of every option, and what follows from it."""

import pytest
import torch

import polyarch as pa
from polyarch.distributions.evidence import posterior, pruned_mixtures, sufficient
from polyarch.spaces.views import All


@pytest.fixture(scope="module")
def task():
    return pa.data.load("spirals", points=120, test_points=40, select=0.25)


@pytest.fixture(scope="module", params=["sgd", "natural"])
def runs(request, task, tmp_path_factory):
    method = pa.methods.VariationalDepth(epochs=30, batch_size=90, update=request.param)
    space, out = pa.spaces.ResidualDepth(max_depth=4, width=6), tmp_path_factory.mktemp("runs") / request.param
    return pa.search(space, task, method, out=out, repeats=2, select="sufficient")


def test_evidence_is_that_of_the_kept_weights(runs, task):
    for run in runs:
        for split, known in (("train", task.train), ("select", task.select)):
            outputs = run.supernet()(run.preprocess()(known.x)[None], All())[0]
            fits = task.likelihood.log_likelihood(outputs, known.y)
            torch.testing.assert_close(run.evidence.by_split()[split], fits.double().sum(-1), rtol=1e-5, atol=1e-4)


def test_the_result_says_where_belief_stands(runs):
    for run in runs:
        told, prior = run.result["evidence"], run.config.make_prior(run.space)
        exact = posterior(run.evidence.train, prior)
        assert told["lag"]["train"] == pytest.approx(run.distribution.kl(exact).item(), abs=1e-6)
        assert run.result["distribution"]["kl"] == pytest.approx(run.distribution.kl(prior).item(), abs=1e-5)
        probs = run.distribution.probs()["depth"]
        out = [k for k in range(5) if probs[k] < 0.1 * probs.max()]
        assert told["ruled_out"] == len(out)
        assert told["ruled_out_prior_mass"] == pytest.approx(prior.probs()["depth"][out].sum().item())
        assert told["posterior_mode"]["train"] == str(int(exact.mode()))


def test_a_rule_of_parsimony_decides(runs):
    for run in runs:
        depth = sufficient(run.evidence.held_out)
        assert run.architecture == run.selected("sufficient") == run.space.architecture([depth])
        mixture = sufficient(pruned_mixtures(run.distribution, run.evidence.held_out))
        assert run.selected("sufficient-mixture") == run.space.architecture([mixture])
        told = run.result["evidence"]["sufficient"]
        assert told == {"sufficient": str(depth), "sufficient-mixture": str(mixture)}


def test_natural_steps_leave_less_lag(runs, task, tmp_path):
    if runs[0].config.method["settings"]["update"] == "sgd":
        pytest.skip("compares with the other")
    method = pa.methods.VariationalDepth(epochs=30, batch_size=90, update="sgd")
    slow = pa.search(runs[0].space, task, method, out=tmp_path / "sgd", repeats=2)
    for run, other in zip(runs, slow, strict=True):
        ours, theirs = (each.result["evidence"]["lag"] for each in (run, other))
        assert ours["select"] < min(1e-5, theirs["select"]), "belief goes by held-out data"
