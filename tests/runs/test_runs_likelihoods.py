"""Whole searches of labels, of counts and under a likelihood of one's own: learnt, resumed, judged and used."""

import importlib
import json
import sys

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.metrics import f1_score, mean_absolute_error, mean_poisson_deviance
from torch import nn

import polyarch as pa
from polyarch import PolyarchError
from polyarch.callbacks import Checkpoints
from polyarch.methods import Darts, FixedDepth, VariationalDepth
from polyarch.report import write_report
from polyarch.runs.plain import fit_plain_models
from polyarch.runs.run import WEIGHTS, check_same_data
from polyarch.testing.callbacks import InterruptAfter
from polyarch.testing.likelihoods import check_likelihood
from polyarch.training import checkpoints

SPACE = pa.spaces.ResidualDepth(max_depth=3, width=12)
CPU = pa.Compute("cpu")

OWN = """
from dataclasses import dataclass, replace
import math
import polyarch as pa

@dataclass(frozen=True)
class Laplace(pa.Likelihood):
    metric = "absolute_error"
    higher_is_better = False
    outputs = 1

    middle: float = 0.0
    width: float = 1.0

    def learn(self, y):
        return replace(self, middle=float(y.mean()), width=float(y.std()))

    def log_likelihood(self, output, target):
        return -(self.mean(output) - target).abs() / self.width - math.log(2 * self.width)

    def mixture(self, outputs, weights):
        return (outputs * weights[..., None, None]).sum(0)

    def mean(self, output):
        return self.middle + self.width * output[..., 0]

    def metric_values(self, output, target):
        return (self.mean(output) - target).abs()
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "likelihoods_of_mine.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("likelihoods_of_mine")
    del sys.modules["likelihoods_of_mine"]


def data(n=240, seed=0):
    """Inputs [n, 3], three labels that depend on them, and counts."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(n, 3)).astype(np.float32)
    labels = (random.random((n, 3)) < 1 / (1 + np.exp(-4 * x))).astype(int)
    return x, labels, random.poisson(np.exp(1 + x[:, 0]))


def task_of(likelihood, **settings):
    x, labels, counts = data()
    y = labels if likelihood == "multi-label" else counts
    return pa.data.load((x, y), likelihood=likelihood, **{"select": 0.25, "test": 0.25, **settings})


def quick(method=VariationalDepth, **settings):
    return method(**{"epochs": 12, "batch_size": 30, **settings})


def searched(out, task, method=None, space=SPACE, **options):
    return pa.search(space, task, method or quick(), out=out, compute=CPU, **options)


def weights_of(run):
    return {name: value.numpy().tobytes() for name, value in checkpoints.load(run.folder / WEIGHTS)[0].items()}


def test_labels_are_learnt_and_judged_as_scikit_learn_judges_them(tmp_path):
    task = task_of("multi-label")
    run = searched(tmp_path / "run", task, quick(epochs=30))
    x, y = task.test.x, task.test.y
    said, found = run.predict(x), run.result["metrics"]["test_ensemble"]
    assert said.mean.shape == y.shape
    assert found["f1"] == pytest.approx(f1_score(y, said.mean > 0.5, average="macro"))
    assert found["hamming_accuracy"] == pytest.approx(((said.mean > 0.5) == y).double().mean().item())
    assert found["hamming_accuracy"] > 0.75
    assert found["mutual_information"] == pytest.approx(said.mutual_information.mean().item(), abs=1e-12)
    weights, members = run.ensemble().weights.double(), run.ensemble().members(x).double()
    each = torch.distributions.Bernoulli(logits=members).log_prob(y.double()).sum(-1)
    wanted = (each + weights.log()[:, None]).logsumexp(0).mean().item()
    assert found["log_likelihood"] == pytest.approx(wanted, rel=1e-5)


def test_counts_are_learnt_and_judged_as_scikit_learn_judges_them(tmp_path):
    task = task_of("counts")
    run = searched(tmp_path / "run", task, quick(epochs=30))
    x, y = task.test.x, task.test.y
    said, found = run.predict(x), run.result["metrics"]["test"]
    rate = task.likelihood.mean(run.model()(x).double())
    assert found["absolute_error"] == pytest.approx(mean_absolute_error(y, rate), rel=1e-5)
    assert found["deviance"] == pytest.approx(mean_poisson_deviance(y, rate), rel=1e-5)
    assert found["log_likelihood"] == pytest.approx(stats.poisson.logpmf(y, rate).mean(), rel=1e-5)
    constant = stats.poisson.logpmf(y, task.train.y.mean().item()).mean()
    assert found["log_likelihood"] > constant + 0.3, "it has learnt something"
    assert (said.std >= said.mean.sqrt() - 1e-9).all(), "a mixture is no narrower than Poisson"


@pytest.mark.parametrize("size", [1, 1000])
def test_counts_of_any_size_are_learnt_at_the_defaults(tmp_path, size):
    x, _, _ = data()
    y = np.random.default_rng(1).poisson(size * np.exp(1 + x[:, 0] + x[:, 1]))
    task = pa.data.load((x, y), likelihood="counts", select=0.25, test=0.25)
    run = searched(tmp_path / "run", task, VariationalDepth(epochs=15), pa.spaces.ResidualDepth())
    found = run.result["metrics"]["test"]["deviance"]
    assert found < 0.3 * mean_poisson_deviance(task.test.y, np.full(len(task.test), task.train.y.mean()))


@pytest.mark.parametrize("likelihood", ["multi-label", "counts"])
def test_an_interrupted_search_ends_as_if_it_had_not_been(tmp_path, likelihood):
    task = task_of(likelihood)
    whole = searched(tmp_path / "whole", task)
    with pytest.raises(KeyboardInterrupt):
        searched(tmp_path / "cut", task, callbacks=[Checkpoints(seconds=0), InterruptAfter(6)])
    again = pa.resume(tmp_path / "cut", task=task)
    assert weights_of(again) == weights_of(whole)
    assert again.result["metrics"] == whole.result["metrics"]


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = pa.Choice("act", {"tanh": nn.Sequential(nn.Linear(3, 8), nn.Tanh()), "none": nn.Linear(3, 8)})
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.first(x))


def test_darts_searches_a_module_of_one_s_own_for_labels(tmp_path):
    task = task_of("multi-label")
    run = searched(tmp_path / "run", task, quick(Darts), pa.ModuleSpace(Network))
    trained = pa.train_selected(run)
    assert trained.result["metrics"]["test"]["hamming_accuracy"] > 0.7
    assert run.predict(task.test.x).mean.shape == task.test.y.shape
    assert run.result["metrics"]["test_trained"] == trained.result["metrics"]["test"]


def test_repeats_are_batched_and_the_best_is_by_log_likelihood(tmp_path):
    task = task_of("counts")
    runs = searched(tmp_path / "both", task, repeats=2)
    alone = searched(tmp_path / "alone", task, seed=1)
    ours, theirs = (run.result["metrics"]["test"]["log_likelihood"] for run in (runs[1], alone))
    assert ours == pytest.approx(theirs, rel=1e-3)
    fits = {run.seed: run.result["metrics"]["select"]["log_likelihood"] for run in runs}
    assert pa.open_best(tmp_path / "both").seed == max(fits, key=fits.get)


@pytest.mark.parametrize(
    ("likelihood", "names"),
    [
        ("multi-label", ["logistic regression", "plain network"]),
        ("counts", ["Poisson regression", "boosted trees"]),
    ],
)
def test_plain_models_are_measured_by_the_same_likelihood(tmp_path, likelihood, names):
    task = task_of(likelihood)
    run = searched(tmp_path / "run", task)
    found = fit_plain_models(run)
    assert [model.name for model in found.models] == names
    for model in found.models:
        assert model.metrics["test"].keys() == run.result["metrics"]["test"].keys()
    assert max(model.difference for model in found.models) > -0.5, "they have learnt as much"
    assert found.sentences()


def test_there_are_no_plain_models_for_one_s_own(tmp_path, own):
    run = searched(tmp_path / "run", task_of(own.Laplace))
    found = fit_plain_models(run)
    assert not found.models
    assert found.lacks == "not fitted: plain models, since scikit-learn has none for this likelihood"
    assert found.verdict == ""


def test_one_s_own_is_kept_by_name_and_its_code_is_known(tmp_path, own):
    x, _, counts = data()
    np.savez(tmp_path / "counts.npz", x=x, y=counts)
    task = pa.data.load(tmp_path / "counts.npz", likelihood=own.Laplace, select=0.25, test=0.25)
    check_likelihood(task.likelihood, counts)
    run = searched(tmp_path / "run", task)
    assert list(run.result["metrics"]["test"]) == ["absolute_error", "log_likelihood"]
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["data"]["likelihood"]["kind"] == "likelihoods_of_mine:Laplace"
    assert set(config["code"]) == {"likelihoods_of_mine"}
    again = pa.open_run(tmp_path / "run")
    assert again.config.likelihood() == task.likelihood
    assert torch.equal(again.predict(task.test.x).mean, run.predict(task.test.x).mean)
    assert again.other_data(str(tmp_path / "counts.npz")).y.shape == task.test.y.shape
    file = tmp_path / "likelihoods_of_mine.py"
    file.write_text(OWN.replace("self.width * output", "2 * self.width * output"))
    with pytest.raises(PolyarchError, match="has changed since, in likelihoods_of_mine"):
        pa.open_run(tmp_path / "run")


def test_a_run_refuses_data_that_was_loaded_for_another_likelihood(tmp_path):
    x, _, counts = data()
    run = searched(tmp_path / "run", task_of("counts"))
    numbers = pa.data.load((x, counts), kind="regression", standardise=True, select=0.25, test=0.25)
    with pytest.raises(PolyarchError, match="with another likelihood than this run was made with"):
        check_same_data(run.config, numbers)


def test_what_is_for_classes_or_numbers_is_refused_in_a_line(tmp_path):
    run = searched(tmp_path / "labels", task_of("multi-label", calibrate=20))
    x = run.task().test.x
    for asked, message in (
        (lambda: run.early_exit(0.01), "this run predicts labels"),
        (lambda: run.prediction_sets(x, 0.9), "this run predicts labels"),
        (lambda: run.prediction_intervals(x, 0.9), "this run predicts labels; leave coverage out"),
        (lambda: run.ensemble()(x), "this mixture predicts labels"),
        (lambda: run.ensemble().gaussians(x), "this mixture predicts labels"),
    ):
        with pytest.raises(PolyarchError, match=message):
            asked()


def test_intervals_hold_counts_as_promised(tmp_path):
    x, _, counts = data(900)
    task = pa.data.load((x, counts), likelihood="counts", select=0.1, test=0.3, calibrate=0.3)
    run = searched(tmp_path / "run", task)
    low, high = run.prediction_intervals(task.test.x, 0.9).unbind(-1)
    held = ((low <= task.test.y) & (task.test.y <= high)).double().mean().item()
    assert 0.84 < held < 0.96


@pytest.mark.parametrize("likelihood", ["multi-label", "counts"])
def test_the_report_has_the_likelihood_s_metrics_and_no_section_that_is_not_for_it(tmp_path, likelihood):
    task = task_of(likelihood)
    run = searched(tmp_path / "run", task, quick(FixedDepth) if likelihood == "counts" else None)
    page = write_report(run, task).read_text()
    first = {"multi-label": "Hamming accuracy", "counts": "absolute error"}[likelihood]
    second = {"multi-label": "exact match", "counts": "deviance"}[likelihood]
    assert first in page
    assert second in page
    for section in ("classes", "calibration", "intervals", "uncertainty", "early_exit", "maps", "gallery"):
        assert f'id="{section}"' not in page
