import math

import pytest
import torch

from polyarch.data import Classification, load
from polyarch.data.names import Digits
from polyarch.data.published import FashionMnist


def test_digits_are_images_or_vectors():
    task = load("digits")
    assert task.input_shape == (1, 8, 8)
    assert task.train.x.dtype == torch.uint8
    assert (len(task.train), len(task.select), len(task.test)) == (1168, 270, 359)
    assert task.likelihood == Classification(10)
    assert task.name == "digits"
    assert task.classes == tuple("0123456789")
    assert load("digits", flat=True).input_shape == (64,)


def test_white_of_digits_is_what_their_source_says():
    assert load("digits").train.x.max() == Digits.highest_byte == 16
    assert FashionMnist.highest_byte == 255


def test_spirals_follow_the_definition_without_noise():
    task = load("spirals", noise=0.0, rotation=360.0)
    assert (len(task.train), task.select, len(task.test)) == (200, None, 1800)
    for split in (task.train, task.test):
        assert split.y.bincount().tolist() == [len(split) // 2] * 2
        sign = 1 - 2 * split.y[:, None]
        x = split.x * sign  # undo the half turn of arm 1
        radius = x.norm(dim=1)
        torch.testing.assert_close(x, radius[:, None] * torch.stack([radius.cos(), radius.sin()], 1))
        assert radius.max() <= math.radians(360)
    # theta = sqrt(U) * rotation has the mean 2/3 and the second moment 1/2
    theta = task.test.x.norm(dim=1) / math.radians(360)
    assert theta.mean().item() == pytest.approx(2 / 3, abs=0.02)
    assert theta.square().mean().item() == pytest.approx(1 / 2, abs=0.02)


@pytest.mark.parametrize(
    ("kind", "mean", "std", "least"),
    [("gaussian", 0.0, 0.3, -math.inf), ("uniform", 0.15, 0.3 / math.sqrt(12), 0.0)],
)
def test_spiral_noise_has_the_moments_of_its_kind(kind, mean, std, least):
    def points(noise):
        task = load("spirals", noise=noise, noise_kind=kind, test_points=20000)
        return task.test.x * (1 - 2 * task.test.y[:, None])

    # Without noise as many numbers are drawn, so that angles and shuffle are the same.
    noise = points(0.3) - points(0.0)
    assert noise.mean().item() == pytest.approx(mean, abs=0.01)
    assert noise.std().item() == pytest.approx(std, abs=0.01)
    assert noise.min() > least - 1e-5


def test_spirals_are_deterministic_and_train_does_not_depend_on_test_points():
    task = load("spirals")
    assert load("spirals").fingerprint == task.fingerprint
    assert load("spirals", data_seed=1).fingerprint != task.fingerprint
    fewer = load("spirals", test_points=10)
    assert torch.equal(fewer.train.x, task.train.x)
    assert not torch.equal(task.test.x[:10], task.train.x[:10])
    assert load("spirals", test_points=0).test is None
    assert len(set(task.train.y[:20].tolist())) == 2  # shuffled


@pytest.mark.parametrize(
    ("settings", "fragment"),
    [
        ({"points": 201}, "must be even"),
        ({"points": 2}, "at least 4"),
        ({"test_points": 3}, "must be even"),
        ({"noise": -1.0}, "at least 0"),
        ({"rotation": 0.0}, "above 0"),
        ({"data_seed": -1}, "at least 0"),
        ({"noise_kind": "normal"}, "noise_kind"),
        ({"point": 3}, "did you mean 'points'"),
    ],
)
def test_bad_spirals(fails, settings, fragment):
    fails("spirals", fragment, **settings)
