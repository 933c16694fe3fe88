"""Plain models beside a run: scikit-learn's own numbers, in time, and when they say that a search was not worth it."""

import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import norm
from sklearn.compose import TransformedTargetRegressor
from sklearn.datasets import load_diabetes, load_digits, load_iris
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.metrics import accuracy_score, log_loss, root_mean_squared_error
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, StandardScaler

import polyarch as pa
from polyarch.report import write_report, write_summary_report
from polyarch.runs.plain import PlainModel, PlainModels, over_seeds, read_plain
from polyarch.runs.plain_fitting import Recipe, features, fit_within, order_of, recipes
from polyarch.runs.plain_network import fit_residual_network
from polyarch.runs.run import searched_seconds
from polyarch.streams import Streams
from polyarch.uncertainty import regression_summary
from polyarch.uncertainty.calibration import summary
from polyarch.uncertainty.gaussians import Gaussians

CPU = pa.Compute("cpu")
SMALL = pa.spaces.ResidualDepth(max_depth=2, width=4)
SPLITS = {"select": 0.3, "test": 0.2}


def searched(folder, task, epochs=1, lr=0.01, **settings):
    method = pa.methods.VariationalDepth(epochs=epochs, batch_size=16, weights={"lr": lr, "momentum": 0.5})
    return pa.search(SMALL, task, method, out=folder, compute=CPU, **settings)


@pytest.fixture(scope="module")
def iris():
    x, y = load_iris(return_X_y=True)
    return pa.data.load((x.astype(np.float32), y), **SPLITS)


@pytest.fixture(scope="module")
def numbers():
    """Those of the diabetes set, in standard deviations."""
    x, y = load_diabetes(return_X_y=True)
    return (10 * x).astype(np.float32), ((y - y.mean()) / y.std()).astype(np.float32)


@pytest.fixture(scope="module")
def flowers(tmp_path_factory, iris):
    """A search that hardly learnt anything; look, but do not touch."""
    run = searched(tmp_path_factory.mktemp("iris") / "run", iris, seed=3)
    pa.fit_plain_models(run)
    return run


def in_their_order(task, seed):
    """Training data as models are given it, standardised."""
    order = order_of(task.train, isinstance(task.likelihood, pa.data.Classification), Streams(seed)["data"])
    assert sorted(order.tolist()) == list(range(len(task.train)))
    return task.preprocess(task.train.x[order]).numpy(), task.train.y[order].numpy()


def test_classifiers_are_those_of_scikit_learn(flowers, iris):
    found = read_plain(flowers.folder)
    network = MLPClassifier((64, 64), max_iter=100, random_state=3)
    own = {
        "logistic regression": make_pipeline(StandardScaler(), LogisticRegression(max_iter=100)),
        "boosted trees": HistGradientBoostingClassifier(max_iter=100, random_state=3, early_stopping=False),
        "plain network": make_pipeline(StandardScaler(), network),
    }
    x, y = in_their_order(iris, 3)
    assert [model.name for model in found.models] == list(own)
    for model in found.models:
        assert (model.examples, model.of, model.note) == (len(x), len(x), "")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("warnings.warn", lambda *args, **kwargs: None)  # a hundred rounds are too few for it
            own[model.name].fit(x, y)
        for split in ("select", "test"):
            data = iris.splits[split]
            probs = own[model.name].predict_proba(iris.preprocess(data.x).numpy())
            told = model.metrics[split]
            assert told["accuracy"] == pytest.approx(accuracy_score(data.y, probs.argmax(-1)))
            assert told["log_likelihood"] == pytest.approx(-log_loss(data.y, probs), rel=1e-4)
            assert told == pytest.approx(summary(torch.from_numpy(probs).log().log_softmax(-1), data.y), abs=1e-4)


@pytest.mark.parametrize("noise", ["task", "fixed"])
def test_regressions_are_those_of_scikit_learn(tmp_path, numbers, noise):
    task = pa.data.load(numbers, kind="regression", noise=noise, **SPLITS)
    found = pa.fit_plain_models(searched(tmp_path / "run", task))
    network = make_pipeline(
        StandardScaler(),
        TransformedTargetRegressor(
            MLPRegressor(hidden_layer_sizes=(64, 64), max_iter=100, random_state=0), transformer=StandardScaler()
        ),
    )
    trees = HistGradientBoostingRegressor(max_iter=100, random_state=0, early_stopping=True)
    own = {
        "ridge regression": make_pipeline(StandardScaler(), RidgeCV(np.logspace(-3, 3, 13))),
        "boosted trees": trees,
        "plain network": network,
    }
    x, y = in_their_order(task, 0)
    assert [model.name for model in found.models] == list(own)
    for model in found.models:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("warnings.warn", lambda *args, **kwargs: None)
            own[model.name].fit(x, y)
        said = {split: own[model.name].predict(task.preprocess(task.splits[split].x).numpy()) for split in SPLITS}
        residuals = task.select.y.numpy() - said["select"]
        deviation = np.sqrt(np.mean(residuals**2)) if noise == "task" else 1.0
        for split, mean in said.items():
            target = task.splits[split].y.numpy()
            told = model.metrics[split]
            assert told["rmse"] == pytest.approx(root_mean_squared_error(target, mean), rel=1e-3)
            expected = norm.logpdf(target, mean, deviation).mean()
            assert told["log_likelihood"] == pytest.approx(expected, rel=1e-3)


def test_differences_are_paired_with_the_better_of_what_the_run_hands_over(flowers, iris):
    found, y = read_plain(flowers.folder), iris.select.y
    logits = flowers.model()(iris.select.x).double()
    mixed = flowers.ensemble()(iris.select.x).log_probs.double()
    own = {"network": logits.log_softmax(-1), "mixture": (mixed / flowers.temperature).log_softmax(-1)}
    worth = {name: summary(log_probs, y) for name, log_probs in own.items()}
    assert found.own == max(worth, key=lambda name: worth[name]["log_likelihood"])
    assert found.own_metrics == pytest.approx(worth[found.own], abs=1e-5)
    model = LogisticRegression(max_iter=100)
    scaler = StandardScaler()
    x, labels = in_their_order(iris, 3)
    model.fit(scaler.fit_transform(x), labels)
    theirs = model.predict_log_proba(scaler.transform(iris.preprocess(iris.select.x).numpy()))
    apart = (torch.from_numpy(theirs) - own[found.own]).gather(-1, y[:, None])[:, 0]
    assert found.models[0].difference == pytest.approx(apart.mean().item(), rel=1e-3)
    assert found.models[0].error == pytest.approx(apart.std().item() / len(y) ** 0.5, rel=1e-3)
    assert found.examples == len(y)


def test_noise_of_numbers_is_compared_as_it_was_learnt(tmp_path, numbers):
    task = pa.data.load(numbers, kind="regression", noise="input", **SPLITS)
    run = searched(tmp_path / "run", task, epochs=3)
    found = pa.fit_plain_models(run)
    ways = {"network": "select", "mixture": "select_ensemble"}
    worth = {own: run.result["metrics"][name]["log_likelihood"] for own, name in ways.items()}
    assert found.own_metrics["log_likelihood"] == pytest.approx(max(worth.values()), abs=1e-6)
    for model in found.models:
        apart = model.metrics["select"]["log_likelihood"] - max(worth.values())
        assert model.difference == pytest.approx(apart, abs=1e-6)
    assert "RMSE" in found.sentences()[0]


def test_tokens_are_counted(tmp_path):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 80)
    x = rng.integers(0, 5, (80, 6)) + 4 * y[:, None]
    task = pa.data.load((x, y), **SPLITS)
    [recipe] = recipes(task, 0)
    order = torch.arange(len(task.train))
    found = fit_within(recipe, task, order, 9)
    words = CountVectorizer(token_pattern=r"\d+", vocabulary=[str(token) for token in range(task.tokens)])
    counts = {
        name: words.transform([" ".join(map(str, row)) for row in split.x.tolist()])
        for name, split in task.splits.items()
    }
    own = make_pipeline(MaxAbsScaler(), LogisticRegression(max_iter=100)).fit(counts["train"], task.train.y)
    theirs = own.predict_log_proba(counts["test"])
    np.testing.assert_allclose(found.says(task.test.x), theirs, atol=1e-4)


def test_images_are_read_by_their_pixels_and_by_a_residual_network(monkeypatch):
    monkeypatch.setattr("polyarch.runs.plain_network.STEPS", 60)
    found = load_digits(n_class=3)
    task = pa.data.load((found.images[:200, None].astype(np.float32), found.target[:200]), **SPLITS)
    [recipe] = recipes(task, 0)
    linear = fit_within(recipe, task, torch.arange(len(task.train)), 9)
    before = torch.get_rng_state()
    one, again, other = (fit_residual_network(task, seed, torch.device("cpu"), 60) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before), "the global generator is left alone"
    assert torch.equal(one.says(task.test.x), again.says(task.test.x))
    assert not torch.equal(one.says(task.test.x), other.says(task.test.x))
    for model in (linear, one):
        assert summary(model.says(task.test.x), task.test.y)["accuracy"] > 0.9
        assert (model.examples, model.rounds) == (len(task.train), "")
    assert isinstance(fit_residual_network(task, 1, torch.device("cpu"), 0.001), float), "left out"


def test_large_images_are_averaged_for_a_linear_model():
    x = np.random.default_rng(0).random((30, 2, 80, 20), dtype=np.float32)
    task = pa.data.load((x, np.arange(30) % 2), **SPLITS)
    seen = features(task, task.train.x).reshape(-1, 2, 32, 20)
    np.testing.assert_allclose(seen.mean((2, 3)), task.preprocess(task.train.x).mean((2, 3)), atol=0.05)


def test_numbers_are_read_off_images_in_their_own_unit(monkeypatch):
    monkeypatch.setattr("polyarch.runs.plain_network.STEPS", 60)
    rng = np.random.default_rng(0)
    y = rng.normal(size=160).astype(np.float32)
    x = (rng.normal(size=(160, 1, 8, 8)) + y[:, None, None, None]).astype(np.float32)
    task = pa.data.load((x, 100 + 20 * y), kind="regression", **SPLITS)
    said = fit_residual_network(task, 0, torch.device("cpu"), 60).says(task.test.x)
    numbers = Gaussians(said.T, torch.ones(1, len(said)), torch.ones(1).double())
    assert regression_summary(numbers, task.test.y)["rmse"] < 10


@pytest.fixture(scope="module")
def many():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(30_000, 40)).astype(np.float32)
    return pa.data.load((x, (x @ rng.normal(size=(40, 8))).argmax(-1)), **SPLITS)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_time_is_kept_by_taking_fewer_examples(many, place):
    recipe = recipes(many, 0)[place]
    order = torch.arange(len(many.train))
    fit_within(recipe, many, order[:200], 60)  # what is done once
    since = time.monotonic()
    found = fit_within(recipe, many, order, 6)
    assert time.monotonic() - since < 9, "with room for others on this machine"
    assert not isinstance(found, float)
    assert 200 <= found.examples <= len(order)
    said = found.says(many.test.x)
    assert summary(said, many.test.y)["accuracy"] > 0.3


def test_what_has_no_time_for_a_small_sample_is_left_out(many):
    needed = fit_within(recipes(many, 0)[1], many, torch.arange(len(many.train)), 0.001)
    assert isinstance(needed, float)
    assert needed > 0.001


def test_how_much_of_the_data_there_was_time_for(many):
    """By a model whose time is known."""

    class Slow:
        n_iter_ = 10

        def fit(self, x, y):
            self.classes_ = np.unique(y)
            time.sleep(len(x) * 1e-3)

    recipe = Recipe("slow", lambda rounds, y: Slow(), 10)
    since = time.monotonic()
    found = fit_within(recipe, many, torch.arange(len(many.train)), 3)
    assert time.monotonic() - since < 3.5
    assert 800 <= found.examples < 3000
    model = PlainModel("slow", found.examples, len(many.train), "", 1.0, {}, None, None)
    assert model.title == f"slow, on {found.examples:,} of 15,000 examples"


def test_seconds_of_a_search_are_those_of_all_its_parts():
    assert searched_seconds([{"seconds": second} for second in (1.0, 5.0, 2.0, 3.0, 1.5)]) == 9.5
    assert searched_seconds([]) == 0


def test_a_class_that_training_lacks_is_next_to_impossible():
    x = np.random.default_rng(0).normal(size=(40, 2)).astype(np.float32)
    task = pa.data.load((x, np.arange(40) % 3), **SPLITS)
    lacking = replace(task, splits={**task.splits, "train": pa.data.Split(*_without(task.train, 1))})
    found = fit_within(recipes(lacking, 0)[0], lacking, torch.arange(len(lacking.train)), 9)
    said = found.says(task.test.x)
    assert said.isfinite().all()
    assert (said[:, 1] < -20).all()


def _without(split, label):
    return split.x[split.y != label], split.y[split.y != label]


def test_a_linear_problem_and_a_bad_search(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 20)).astype(np.float32)
    chances = 1 / (1 + np.exp(-x @ rng.normal(size=20)))
    task = pa.data.load((x, (rng.random(400) < chances).astype(int)), **SPLITS)
    run = searched(tmp_path / "run", task, lr=0.001)
    found = pa.fit_plain_models(run)
    assert (found.best.name, found.verdict) == ("logistic regression", "better")
    assert found.sentences()[0].startswith("A plain model does better: logistic regression, by ")
    assert found.sentences()[1] == "Take that, or search longer, such as --set epochs=2."
    page = write_report(run, task).read_text(encoding="utf-8")
    assert f'<p class="headline">{found.sentences()[0]}</p>' in page
    assert f"<dt>Worth it?</dt><dd>{found.sentences()[1]}" in page
    accuracy = 100 * found.best.metrics["test"]["accuracy"]
    assert f'<td>Logistic regression</td><td class="best" data-label="accuracy">{accuracy:.1f}\u202f%</td>' in page


def test_nothing_to_learn(tmp_path):
    rng = np.random.default_rng(0)
    task = pa.data.load((rng.normal(size=(400, 6)).astype(np.float32), rng.integers(0, 2, 400)), **SPLITS)
    run = searched(tmp_path / "run", task, epochs=3)
    found = pa.fit_plain_models(run)
    assert found.verdict != "better"
    page = write_report(run, task).read_text(encoding="utf-8")
    assert "A plain model does better" not in page
    assert found.sentences()[0] in page
    assert "<td>Boosted trees</td>" in page


def told(difference, error):
    model = PlainModel("boosted trees", 9, 9, "", 0.1, {"select": {"accuracy": 0.9}}, difference, error)
    return PlainModels(1.0, 3.0, (model,), {}, "mixture", {"accuracy": 0.8}, False, 50, "search longer")


@pytest.mark.parametrize(
    ("difference", "error", "verdict"),
    [
        (0.3, 0.1, "better"),
        (0.3, 0.2, "even"),
        (0.009, 0.001, "even"),
        (-0.3, 0.2, "even"),
        (-0.3, 0.1, "worse"),
        (None, None, ""),
    ],
)
def test_what_counts_as_better(difference, error, verdict):
    assert told(difference, error).verdict == verdict
    assert bool(told(difference, error).sentences()) == bool(verdict)


def test_what_is_said_of_several_seeds():
    better, even, worse = told(0.3, 0.1), told(0.0, 0.1), told(-0.3, 0.1)
    assert over_seeds([better, worse])[0].startswith(
        "A plain model does better than what 1 of 2 seeds hand over: boosted"
    )
    assert over_seeds([better, better])[0].startswith("A plain model does better than what every seed hands over")
    assert over_seeds([worse, even]) == [
        "The best plain model is behind 1 of 2 seeds by log-likelihood on validation data."
    ]
    assert over_seeds([even, even]) == []


def test_repeats_have_the_same_models_and_comparisons_of_their_own(tmp_path, iris):
    runs = searched(tmp_path / "run", iris, repeats=2)
    said = []
    first = pa.fit_plain_models(runs, tell=said.append)
    assert len(said) == 1
    assert said[0].startswith("fitting logistic regression, boosted trees and plain network, in 3 s at most")
    one, two = (read_plain(run.folder) for run in runs)
    assert first == one
    assert [m.metrics for m in one.models] == [m.metrics for m in two.models]
    assert [m.difference for m in one.models] != [m.difference for m in two.models]
    assert runs[1].result["plain"]["own_metrics"] == two.own_metrics
    page = write_summary_report(tmp_path / "run", runs, iris).read_text(encoding="utf-8")
    assert page.count("<td>Logistic regression</td>") == 1


def test_without_validation_data_nothing_is_compared(tmp_path):
    x = np.random.default_rng(0).normal(size=(60, 2)).astype(np.float32)
    task = pa.data.load((x, (x[:, 0] > 0).astype(int)), test=0.3)
    run = searched(tmp_path / "run", task.resplit(select=0))
    found = pa.fit_plain_models(run)
    assert (found.verdict, found.sentences(), found.own) == ("", [], "")
    assert set(found.models[0].metrics) == {"test"}
    assert "<td>Logistic regression</td>" in write_report(run, run.task()).read_text(encoding="utf-8")


def test_one_class_alone_leaves_nothing_to_fit(tmp_path):
    x = np.random.default_rng(0).normal(size=(60, 2)).astype(np.float32)
    task = pa.data.load((x, np.arange(60) % 2), **SPLITS)
    alone = pa.data.Split(*_without(task.train, 1))
    run = searched(tmp_path / "run", replace(task, splits={**task.splits, "train": alone}))
    found = pa.fit_plain_models(run)
    assert found.models == ()
    assert found.lacks == "not fitted: plain models, since the training data has examples of one class alone"
    assert "Not fitted: plain models" in write_report(run, run.task()).read_text(encoding="utf-8")
