"""Searches in which classes count alike: what is learnt is weighted, what is told of it is not."""

import numpy as np
import pytest
import torch
from sklearn.metrics import balanced_accuracy_score, log_loss

import polyarch as pa
from polyarch.errors import PolyarchError
from polyarch.report import write_report
from polyarch.runs.preparing import make_problem
from polyarch.runs.run import decided_by
from polyarch.spaces.views import All, Sparse
from polyarch.testing.methods import check_method
from polyarch.training.dry_run import prepare
from polyarch.training.evaluation import evaluate_view
from polyarch.uncertainty import fit_temperature


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Two clouds that overlap, of which one has a twentieth of the examples."""
    path = tmp_path_factory.mktemp("data") / "clouds.npz"
    random = np.random.default_rng(0)
    y = (np.arange(1600) % 20 == 0).astype(np.int64)
    np.savez(path, x=random.normal(size=(1600, 2)) + 1.5 * y[:, None], y=y)
    return path


SPACE = pa.spaces.ResidualDepth(max_depth=3, width=8)
METHOD = pa.methods.VariationalDepth(epochs=8, batch_size=128)


@pytest.fixture(scope="module")
def runs(data, tmp_path_factory):
    """A search on the same data by every way to count classes."""
    home = tmp_path_factory.mktemp("runs")
    return {
        kind: pa.search(SPACE, pa.data.load(data, test=0.4, class_weights=kind), METHOD, out=home / kind)
        for kind in ("none", "balanced")
    }


def says(run, x):
    return run.ensemble().output(x).double()


def test_a_rare_class_is_found_more_often(runs):
    found = {kind: run.result["metrics"]["test_ensemble"] for kind, run in runs.items()}
    assert found["balanced"]["balanced_accuracy"] > found["none"]["balanced_accuracy"] + 0.1
    assert found["balanced"]["accuracy"] < found["none"]["accuracy"]  # the price
    recall = {kind: run.result["per_class"]["test_ensemble"][1]["recall"] for kind, run in runs.items()}
    assert recall["balanced"] > 0.6 > recall["none"]


def test_probabilities_are_those_of_classes_of_equal_size(runs):
    mean = {kind: says(run, run.task().test.x).exp()[:, 1].mean().item() for kind, run in runs.items()}
    assert mean["none"] == pytest.approx(0.05, abs=0.03)
    test = runs["balanced"].task().test
    by_class = [says(runs["balanced"], test.x[test.y == k]).exp()[:, 1].mean().item() for k in (0, 1)]
    assert np.mean(by_class) == pytest.approx(0.5, abs=0.1)


def test_metrics_count_every_example_alike(runs):
    run = runs["balanced"]
    test = run.task().test
    probs = says(run, test.x).softmax(-1).numpy()
    found = run.result["metrics"]["test_ensemble"]
    assert found["log_likelihood"] == pytest.approx(-log_loss(test.y, probs))
    assert found["balanced_accuracy"] == pytest.approx(balanced_accuracy_score(test.y, probs.argmax(-1)))
    ensemble = run.ensemble()
    plain = says(run, test.x).gather(-1, test.y[:, None])[:, 0]
    torch.testing.assert_close(ensemble.log_likelihood(test.x, test.y).double(), plain, rtol=1e-4, atol=1e-5)
    assert run.likelihood() == pa.data.Classification(2)


def test_belief_goes_by_the_weighted_examples_and_mixtures_by_densities(runs):
    run = runs["balanced"]
    task, known = run.task(), run.evidence
    weights = torch.tensor(task.likelihood.weights)

    def fits(split):
        outputs = run.supernet()(run.preprocess()(split.x)[None], All())[0]
        return outputs.log_softmax(-1).gather(-1, split.y.expand(len(outputs), -1).unsqueeze(-1)).squeeze(-1)

    train = (fits(task.train).double() * weights[task.train.y]).sum(-1)
    torch.testing.assert_close(known.by_split()["train"].double(), train, rtol=1e-4, atol=1e-3)
    select = fits(task.select)
    torch.testing.assert_close(known.held_out, select, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(known.counts, weights[task.select.y])
    told = run.result["kept"]["select"]
    q = run.distribution.probs()["depth"]
    mixture = (q.log()[:, None] + select).logsumexp(0).mean().item()
    assert told["log_likelihood"] == pytest.approx(mixture, abs=1e-5)
    assert told["depth_log_likelihood"] == pytest.approx(select.mean(-1).tolist(), abs=1e-5)
    bound = (q * (select * weights[task.select.y]).sum(-1)).sum().item() - run.result["distribution"]["kl"]
    assert told["elbo"] == pytest.approx(bound, rel=1e-4)
    # By the data that it goes by, belief is the posterior.
    assert run.result["evidence"]["lag"]["select"] < 1e-5


def test_an_evaluation_tells_the_plain_log_likelihood_beside_its_objective(data):
    task = pa.data.load(data, class_weights="balanced")
    problem, *_ = prepare(pa.methods.FixedDepth(depth=1), SPACE, task, task.seen(task.train), repeats=2)
    found = evaluate_view(problem, Sparse((1,)), "train")
    outputs = problem.supernet(problem.data["train"].x.expand(2, -1, -1), Sparse((1,)))
    y, weights = task.train.y, torch.tensor(task.likelihood.weights)
    fit = outputs.log_softmax(-1).gather(-1, y.expand(2, -1).unsqueeze(-1)).squeeze(-1).double()
    torch.testing.assert_close(found["log_likelihood"], fit.mean(-1), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(found["objective"], (fit * weights[y]).mean(-1), rtol=1e-5, atol=1e-6)


def test_weights_lie_on_the_device_while_a_search_runs(runs):
    run = runs["balanced"]
    problem = make_problem(run.config, run.space, run.task(), torch.device("meta"))
    assert problem.likelihood.weights.device.type == "meta"
    assert isinstance(runs["none"].task().likelihood.on(torch.device("meta")).weights, tuple)


def test_the_temperature_and_the_best_seed_count_classes_alike(runs):
    run = runs["balanced"]
    select = run.task().select
    counts = torch.tensor(run.task().likelihood.weights)[select.y]
    assert run.temperature == pytest.approx(fit_temperature(says(run, select.x), select.y, counts), rel=1e-4)
    assert {kind: decided_by(own.config) for kind, own in runs.items()} == {
        "none": "accuracy",
        "balanced": "balanced_accuracy",
    }


def test_a_run_keeps_its_weights(runs, data):
    run = runs["balanced"]
    assert run.config.likelihood() == run.task().likelihood
    assert len(run.config.data["likelihood"]["weights"]) == 2
    other = pa.data.load(data, test=0.4)
    for own, task, setting in (
        (run, other, "class_weights=balanced"),
        (runs["none"], pa.data.load(data, test=0.4, class_weights="balanced"), "class_weights=none"),
    ):
        with pytest.raises(PolyarchError, match=f"other weights of classes .* load it with {setting}"):
            write_report(own, task)
    # Other data is judged with every example alike.
    assert len(run.other_data(str(data))) == 640


@pytest.mark.parametrize("name", ["parsec", "darts", "one-shot", "standalone"])
def test_every_kind_of_method_is_weighted(name, tmp_path):
    random = np.random.default_rng(0)
    x, y = random.normal(size=(60, 1, 4, 4)).astype(np.float32), (np.arange(60) % 6 == 0).astype(np.int64)
    space = pa.spaces.NasBench201(channels=2, cells=1)
    cell = str(space.architecture([1] * len(space.decisions)))
    methods = {
        "parsec": pa.methods.Parsec(epochs=1, batch_size=8, samples=1),
        "darts": pa.methods.Darts(epochs=1, batch_size=8),
        "one-shot": pa.methods.OneShot(epochs=1, batch_size=8),
        "standalone": pa.methods.Standalone(architecture=cell, epochs=1, batch_size=8),
    }
    found = {}
    for kind in ("none", "balanced"):
        task = pa.data.load((x, y), select=0.3, test=0, class_weights=kind)
        run = pa.search(space, task, methods[name], out=tmp_path / kind)
        found[kind] = torch.cat([value.flatten() for value in run.supernet().state_dict().values()])
    assert not torch.equal(found["none"], found["balanced"])


def test_steps_with_weights_can_be_captured_resumed_and_batched(data, tmp_path):
    task = pa.data.load(data, test=0.8, class_weights="balanced")
    method = pa.methods.VariationalDepth(epochs=3, batch_size=40, stopping={"split": "never"})
    check_method(method, SPACE, task, tmp_path, ranks=False)
