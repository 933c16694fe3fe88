import math

import numpy as np
import pytest
import torch

from polyarch import PolyarchError
from polyarch.data.fourier import FourierSeries
from polyarch.data.likelihood import Gaussian
from polyarch.settings import settings_of

DEFINITIONS = ["thesis", "code"]


def columns(x, degree, joint=False):
    """Features [n, ...] of angles [n], written out with numpy."""
    found = [np.ones_like(x)]
    for j in range(1, degree + 1):
        found += [np.cos(j * x) + np.sin(j * x)] if joint else [np.cos(j * x), np.sin(j * x)]
    return np.stack(found, 1)


def arrays(split):
    return split.x[:, 0].double().numpy(), split.y.double().numpy()


@pytest.mark.parametrize(("definition", "points"), [("thesis", 10_000), ("code", 50_000)])
def test_sizes_are_the_definitions(definition, points):
    task = FourierSeries(definition=definition).task()
    assert len(task.train) + len(task.select) == points
    assert len(task.select) == points // 10
    assert len(task.test) == 7667
    assert task.input_shape == (1,)
    assert task.train.x.dtype == task.train.y.dtype == torch.float32
    assert task.likelihood == Gaussian()
    assert task.name == "fourier"


@pytest.mark.parametrize("definition", DEFINITIONS)
def test_inputs_are_angles_that_cover_the_circle_and_are_not_standardised(definition):
    task = FourierSeries(definition=definition).task()
    x = task.train.x
    assert x.abs().max() <= math.pi + 1e-6
    counts = torch.histc(x, 20, -math.pi, math.pi)
    assert counts.min() > 0.8 * len(x) / 20
    assert torch.equal(task.preprocess(x), x)


def test_points_of_the_code_are_evenly_spaced_over_ten_thousand_turns():
    task = FourierSeries(select=0.0).task()
    x = np.linspace(-10_000 * math.pi, 10_000 * math.pi, 50_000)
    for j in (1, 9):
        assert np.abs(np.cos(j * x) - torch.cos(j * task.train.x[:, 0].double()).numpy()).max() < 1e-5
    # What single precision would have made of it.
    assert np.abs(np.cos(9 * x) - np.cos(np.float32(9) * x.astype(np.float32))).max() > 0.01


def test_points_of_the_thesis_are_uniform_in_twenty_periods():
    series = FourierSeries(definition="thesis", select=0.0)
    raw = series._angles("points", 10_000, stream=0) / (2 * math.pi)
    assert -10 <= raw.min() < -9.99
    assert 9.99 < raw.max() <= 10
    assert raw.std() == pytest.approx(20 / math.sqrt(12), rel=0.02)
    x = series.task().train.x[:, 0].double().numpy()
    assert np.abs(np.cos(2 * math.pi * raw) - np.cos(x)).max() < 1e-6


@pytest.mark.parametrize("definition", DEFINITIONS)
@pytest.mark.parametrize("degree", [0, 3, 5])
def test_targets_are_sums_of_all_terms(definition, degree):
    task = FourierSeries(definition=definition, degree=degree).task()
    x, y = arrays(task.test)
    assert np.abs(columns(x, degree).sum(1) - y).max() < 1e-5


def test_noise_of_the_code_has_variance_a_quarter():
    task = FourierSeries(select=0.0).task()
    x, y = arrays(task.train)
    noise = y - columns(x, 3).sum(1)
    assert noise.mean() == pytest.approx(0, abs=0.01)
    assert noise.var() == pytest.approx(0.25, rel=0.03)
    x, y = arrays(FourierSeries(definition="thesis", select=0.0).task().train)
    assert np.abs(y - columns(x, 3).sum(1)).max() < 1e-5


@pytest.mark.parametrize("definition", DEFINITIONS)
@pytest.mark.parametrize("joint", [False, True])
def test_least_squares_finds_the_true_degree(definition, joint):
    task = FourierSeries(definition=definition).task()
    x, y = arrays(task.train)
    x_test, y_test = arrays(task.test)
    errors = []
    for degree in range(10):
        weights, *_ = np.linalg.lstsq(columns(x, degree, joint), y, rcond=None)
        errors.append(np.mean((columns(x_test, degree, joint) @ weights - y_test) ** 2))
        if degree >= 3:
            used = len(columns(x[:1], 3, joint)[0])
            assert weights[:used] == pytest.approx(1, abs=0.02)
            assert weights[used:] == pytest.approx(0, abs=0.02)
    assert errors[:3] == pytest.approx([3, 2, 1], rel=0.05)  # a degree left out has the mean square 1/2 + 1/2
    if definition == "code":
        assert min(errors) == errors[3] < 1e-3
    else:
        assert max(errors[3:]) < 1e-10  # without noise higher degrees are as good: their weights are 0


def test_points_are_deterministic_and_train_does_not_depend_on_test_points():
    for definition in DEFINITIONS:
        task = FourierSeries(definition=definition, points=500).task()
        again = FourierSeries(**task.source["settings"]).task()
        assert again.fingerprint == task.fingerprint
        assert FourierSeries(definition=definition, points=500, data_seed=1).task().fingerprint != task.fingerprint
        fewer = FourierSeries(definition=definition, points=500, test_points=0).task()
        assert fewer.test is None
        assert torch.equal(fewer.train.x, task.train.x)
        assert torch.equal(fewer.train.y, task.train.y)


def test_every_setting_has_help():
    assert all(setting.help for setting in settings_of(FourierSeries).values())


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"degree": -1}, "degree"),
        ({"points": -5}, "points"),
        ({"test_points": -5}, "test_points"),
        ({"data_seed": -1}, "data_seed"),
        ({"definition": "paper"}, "definition"),
        ({"points": 1}, "fewer than 2"),
        ({"points": 20_001}, "points is 20001; .* only 2 different angles"),
        ({"test_points": 1001}, "test_points is 1001; .* only 1 different"),
    ],
)
def test_bad_settings(settings, complaint):
    with pytest.raises(PolyarchError, match=complaint):
        FourierSeries(**settings).task()


def test_few_points_are_all_different():
    for points in (40, 64, 500):
        x = FourierSeries(points=points, select=0.0).task().train.x
        assert len(x.unique()) >= points - 1  # the two ends are the same angle
