"""Searches as scikit-learn's estimators."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_iris
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge
from sklearn.metrics import accuracy_score, r2_score
from sklearn.model_selection import GridSearchCV, cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import polyarch as pa
from polyarch.methods import OneShot, VariationalDepth
from polyarch.runs.defaults import chosen_for
from polyarch.runs.examples import EXAMPLES
from polyarch.settings import updated
from polyarch.sklearn import ArchitectureSearchClassifier, ArchitectureSearchRegressor
from polyarch.spaces import ResidualDepth
from polyarch.spaces.module import ModuleSpace

SPACE = ResidualDepth(max_depth=2, width=16)
METHOD = VariationalDepth(epochs=25, batch_size=16, weights={"lr": 0.05, "momentum": 0.9, "grad_clip": 1.0})
BOTH = [ArchitectureSearchClassifier, ArchitectureSearchRegressor]


def quick(kind, **settings):
    """An estimator whose fit takes a tenth of a second."""
    return kind(SPACE, METHOD, **{"random_state": 0, **settings})


@pytest.mark.parametrize("kind", BOTH)
def test_scikit_learns_own_checks_pass(kind):
    """All of them, without an exception."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what the checks themselves do
        found = check_estimator(quick(kind), on_fail=None, on_skip=None)
    assert len(found) > 45
    assert {one["check_name"]: one["exception"] for one in found if one["status"] == "failed"} == {}


@pytest.fixture(scope="module")
def iris():
    x, y = load_iris(return_X_y=True)
    return train_test_split(x, np.array(["setosa", "versicolor", "virginica"])[y], random_state=0, stratify=y)


@pytest.fixture(scope="module")
def searched(iris):
    x, _, y, _ = iris
    return quick(ArchitectureSearchClassifier).fit(x, y)


def test_classes_are_said_by_their_names(searched, iris):
    _, x, _, y = iris
    assert list(searched.classes_) == ["setosa", "versicolor", "virginica"]
    probs = searched.predict_proba(x)
    np.testing.assert_allclose(probs.sum(1), 1)
    said = searched.predict(x)
    assert (said == searched.classes_[probs.argmax(1)]).all()
    assert searched.score(x, y) == accuracy_score(y, said) > 0.9
    assert searched.architecture_ in ("depth=0", "depth=1", "depth=2")
    assert (searched.n_features_in_, searched.n_iter_ >= 1) == (4, True)


@pytest.mark.parametrize("y", [[3, 8, -1], [0.0, 1.0, 2.0], [True, False, True], ["b", "a", "c"]])
def test_classes_of_any_sort(iris, y):
    x, _, own, _ = iris
    y = np.array(y)[np.unique(own, return_inverse=True)[1]]
    found = quick(ArchitectureSearchClassifier).fit(x, y)
    assert found.predict(x).dtype == y.dtype
    assert found.score(x, y) > 0.9


def test_a_seed_says_all(iris):
    x, _, y, _ = iris
    fitted = [quick(ArchitectureSearchClassifier, random_state=seed).fit(x, y) for seed in (1, 1, 2)]
    one, same, other = (each.predict_proba(x) for each in fitted)
    assert (one == same).all()
    assert not (one == other).all()
    drawn = quick(ArchitectureSearchClassifier, random_state=np.random.RandomState(0)).fit(x, y)
    assert np.isfinite(drawn.predict_proba(x)).all()


def test_numbers_come_with_their_deviation():
    x, y = load_diabetes(return_X_y=True)  # raw targets, of 25 to 346
    x, x_test, y, y_test = train_test_split(x, y, random_state=0)
    searched = quick(ArchitectureSearchRegressor).fit(x, y)
    mean, std = searched.predict(x_test, return_std=True)
    assert (mean == searched.predict(x_test)).all()
    assert (std > 0).all()
    assert (np.abs(mean - y_test) < 2 * std).mean() > 0.6  # nine in ten, if honest
    assert searched.score(x_test, y_test) == pytest.approx(r2_score(y_test, mean))
    assert searched.score(x_test, y_test) > Ridge().fit(x, y).score(x_test, y_test) - 0.15


def test_what_is_named_goes_by_the_data_and_objects_stay(iris, tmp_path):
    x, y = iris[0][:60], iris[2][:60]
    for name, settings in {"named": {}, "objects": {"space": SPACE, "method": METHOD}}.items():
        fitted = ArchitectureSearchClassifier(**settings, random_state=0, out=tmp_path / name)
        assert np.isfinite(fitted.fit(x, y).predict_proba(x)).all()
    named, objects = (pa.open_run(tmp_path / name) for name in ("named", "objects"))
    chosen = chosen_for(named.task(), ResidualDepth(), VariationalDepth(), {"space": {}, "method": {}})
    assert named.config.make_method() == updated(VariationalDepth(), chosen["method"])
    assert named.config.make_space() == updated(ResidualDepth(), chosen["space"])
    assert objects.config.make_space() == SPACE
    assert objects.config.make_method() == METHOD
    assert len(named.task().select) == 15  # of little data a larger share


def test_raw_targets_do_not_diverge_at_the_defaults():
    x, y = load_diabetes(return_X_y=True)
    fitted = ArchitectureSearchRegressor(random_state=0).fit(x[:60], 100 * y[:60] + 1e5)
    assert np.abs(fitted.predict(x) - 1e5 - 100 * y.mean()).max() < 100 * 300


def test_a_time_limit(iris):
    x, _, y, _ = iris
    limited = quick(ArchitectureSearchClassifier, time_limit="60s").fit(x, y)
    assert limited.n_iter_ <= METHOD.epochs
    with pytest.raises(ValueError, match="the time limit is 'soon'; write seconds"):
        limited.set_params(time_limit="soon").fit(x, y)


def test_names_that_there_are_not(iris):
    x, _, y, _ = iris
    with pytest.raises(ValueError, match="cannot import space 'tiny:Space'"):
        ArchitectureSearchClassifier("tiny:Space").fit(x, y)
    with pytest.raises(ValueError, match="did you mean 'depth'"):
        quick(ArchitectureSearchClassifier).set_params(space="dept").fit(x, y)
    with pytest.raises(ValueError, match="needs images"):
        quick(ArchitectureSearchClassifier).set_params(space=pa.spaces.named("nasbench201")).fit(x, y)


def test_parameters_are_scikit_learns(searched):
    again = clone(searched)
    assert again.get_params() == searched.get_params()
    assert again.space == SPACE
    with pytest.raises(NotFittedError):
        again.predict(np.zeros((2, 4)))
    assert "ArchitectureSearchClassifier" in repr(again)


def test_in_pipelines_and_under_grid_search(iris):
    x, x_test, y, y_test = iris
    pipeline = make_pipeline(StandardScaler(), quick(ArchitectureSearchClassifier))
    assert cross_val_score(pipeline, x, y, cv=2).min() > 0.8
    grid = {"architecturesearchclassifier__space": [SPACE, ResidualDepth(max_depth=1, width=8)]}
    found = GridSearchCV(pipeline, grid, cv=2).fit(x, y)
    assert found.score(x_test, y_test) > 0.8
    assert found.best_params_["architecturesearchclassifier__space"] in grid["architecturesearchclassifier__space"]


def test_data_frames_with_gaps_and_words(caplog):
    random = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "size": random.normal(size=200),
            "city": pd.Categorical(random.choice(["Bonn", "Oslo"], 200)),
            "note": random.choice(["a", "b", None], 200),
        }
    )
    y = np.where((frame["city"] == "Bonn") ^ (random.random(200) < 0.02), "dear", "cheap")
    frame.loc[::7, "size"] = np.nan
    searched = quick(ArchitectureSearchClassifier).fit(frame, y)
    assert list(searched.feature_names_in_) == ["size", "city", "note"]
    assert searched.score(frame, y) > 0.95
    for changed, says in (
        (frame[["city", "size", "note"]], "must be in the same order"),
        (frame.drop(columns="city"), "Feature names seen at fit time, yet now missing"),
        (frame.assign(more=1.0), "Feature names unseen at fit time"),
        (frame.rename(columns={"city": "town"}), "yet now missing"),
        (frame.assign(city=np.arange(200)), "column 'city' holds numbers"),
        (frame.assign(size="large"), "'large' in column 'size', no number"),
    ):
        with pytest.raises(ValueError, match=says):
            searched.predict(changed)
    assert caplog.text == ""
    searched.predict(frame.assign(city="Rome"))
    assert "column 'city' has 'Rome', which no training example had" in caplog.text


def test_arrays_with_gaps(iris):
    x, _, y, _ = iris
    x = x.copy()
    x[::5, 2] = np.nan
    assert quick(ArchitectureSearchClassifier).fit(x, y).score(x, y) > 0.85


def test_a_fitted_one_is_kept_by_pickle_and_needs_no_folder(searched, iris, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    again = pickle.loads(pickle.dumps(searched))
    assert (again.predict_proba(iris[1]) == searched.predict_proba(iris[1])).all()
    assert list(tmp_path.iterdir()) == []


def test_a_run_is_kept_where_it_is_asked_for(iris, tmp_path, capfd):
    x, x_test, y, _ = iris
    searched = quick(ArchitectureSearchClassifier, out=tmp_path / "run").fit(x, y)
    assert capfd.readouterr() == ("", "")
    run = pa.open_run(tmp_path / "run")
    assert run.task().classes == ("setosa", "versicolor", "virginica")
    assert (tmp_path / "run" / EXAMPLES).exists()
    np.testing.assert_allclose(run.predict(x_test).probs, searched.predict_proba(x_test), atol=1e-5)
    with pytest.raises(ValueError, match="already holds a run"):
        searched.fit(x, y)


def test_the_network_that_answers_was_trained_alone_where_weights_are_shared(iris, tmp_path):
    x, x_test, y, y_test = iris
    space = ModuleSpace(choosing)
    method = OneShot(epochs=10, batch_size=16, weights={"lr": 0.05})
    searched = ArchitectureSearchClassifier(space, method, random_state=0, out=tmp_path / "run").fit(x, y)
    run = pa.open_run(tmp_path / "run")
    assert run.trained is not None
    np.testing.assert_allclose(run.trained.predict(x_test).probs, searched.predict_proba(x_test), atol=1e-5)
    assert searched.score(x_test, y_test) > 0.7


def choosing():
    from torch import nn

    return nn.Sequential(nn.Linear(4, 16), pa.Choice("act", {"relu": nn.ReLU(), "tanh": nn.Tanh()}), nn.Linear(16, 3))


@pytest.mark.parametrize(
    ("x", "y", "says"),
    [
        (np.zeros((5, 2)), np.arange(5) % 2, "n_samples=5, and a search needs 6 samples or more"),
        (np.zeros((9, 2)), np.zeros(9), "y has one class alone"),
        (np.zeros((9, 2)), np.arange(8) % 2, "inconsistent numbers of samples"),
        (np.zeros((9, 2)), np.arange(9) / 7, "Unknown label type: continuous"),
        (np.full((9, 2), np.inf), np.arange(9) % 2, "contains infinity"),
        ([["a", "b"]] * 9, np.arange(9) % 2, "could not convert string to float"),
    ],
)
def test_what_cannot_be_learnt_is_refused(x, y, says):
    with pytest.raises(ValueError, match=says):
        quick(ArchitectureSearchClassifier).fit(x, y)


def test_validation_data_is_a_share_or_a_number(iris):
    x, _, y, _ = iris
    with pytest.raises(ValueError, match=r"select=1.5 is out"):
        quick(ArchitectureSearchClassifier, validation=1.5).fit(x, y)
    assert quick(ArchitectureSearchClassifier, validation=30).fit(x, y).score(x, y) > 0.85
