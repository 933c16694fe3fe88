import numpy as np
import pytest
import torch

from polyarch.data import load
from polyarch.data.splitting import check_disjoint, split_indices, statistics
from polyarch.errors import PolyarchError


def vectors(n=60, features=3, classes=3):
    generator = np.random.default_rng(1)
    # The first feature is the example's index, so that a split can be traced back.
    x = np.concatenate([np.arange(n)[:, None], generator.normal(2.0, 3.0, (n, features - 1))], 1)
    return x.astype(np.float32), np.arange(n) % classes


def indices(split):
    return set() if split is None else {int(i) for i in split.x[:, 0]}


@pytest.mark.parametrize("kind", ["classification", "regression"])
@pytest.mark.parametrize(("valid", "test"), [(0.2, 0.1), (0, 0.25), (7, 0), (0, 0), (1, 1), (0.001, 0)])
def test_splits_are_disjoint_and_complete(kind, valid, test):
    task = load(vectors(), kind=kind, valid=valid, test=test)
    parts = [indices(split) for split in (task.train, task.valid, task.test)]
    assert sum(map(len, parts)) == 60
    assert set.union(*parts) == set(range(60))
    for part, share, split in ((parts[1], valid, task.valid), (parts[2], test, task.test)):
        expected = share if share >= 1 else max(1, round(60 * share)) if share else 0
        assert len(part) == expected
        assert (split is None) == (share == 0)


def test_splits_hold_classes_in_proportion_and_depend_on_the_seed():
    y = np.repeat([0, 1, 2], [100, 40, 1])
    x = np.arange(141.0)[:, None]
    tasks = [load((x, y), valid=0.2, test=0.2, split_seed=seed) for seed in (0, 0, 1)]
    for split in (tasks[0].valid, tasks[0].test):
        counts = np.bincount(split.y, minlength=3)
        assert abs(counts[0] - 20) <= 1
        assert abs(counts[1] - 8) <= 1
    assert 2 in tasks[0].train.y  # a class of one example stays in training
    assert tasks[0].fingerprint == tasks[1].fingerprint != tasks[2].fingerprint


def test_a_split_is_random_within_a_class():
    train, valid, _ = split_indices(100, valid=50, test=0, strata=np.zeros(100), seed=3, where="here")
    assert len(set(valid) & set(range(50))) not in (0, 50)
    assert np.array_equal(train, np.sort(train))


def test_overlap_is_caught():
    check_disjoint((np.array([0, 2]), np.array([1])), 3)
    for parts in ((np.array([0, 1]), np.array([1])), (np.array([0]), np.array([1]))):
        with pytest.raises(PolyarchError, match="overlap"):
            check_disjoint(parts, 3)


def test_statistics_are_those_of_the_training_split_alone():
    x, y = vectors()
    task = load((x, y), valid=0.2, test=0.2)
    train = task.train.x.numpy().astype(np.float64)
    np.testing.assert_allclose(task.standardise.mean.numpy(), train.mean(0), rtol=1e-6)
    np.testing.assert_allclose(task.standardise.std.numpy(), train.std(0), rtol=1e-6)
    x2 = x.copy()
    held = sorted(indices(task.valid) | indices(task.test))
    x2[held, 1:] += 100
    again = load((x2, y), valid=0.2, test=0.2)
    assert torch.equal(again.standardise.mean, task.standardise.mean)
    assert torch.equal(again.standardise.std, task.standardise.std)
    z = task.standardise(task.train.x)
    torch.testing.assert_close(z.mean(0), torch.zeros(3), atol=1e-5, rtol=0)


def test_statistics_of_images_are_per_channel_and_chunks_do_not_matter(monkeypatch):
    x = np.random.default_rng(0).integers(0, 256, (50, 3, 6, 5)).astype(np.uint8)
    x[:, 2] = 7  # a constant channel
    mean, std = statistics(x)
    assert mean.shape == std.shape == (3, 1, 1)
    np.testing.assert_allclose(mean.ravel(), x.mean((0, 2, 3)), rtol=1e-6)
    np.testing.assert_allclose(std.ravel()[:2], x.std((0, 2, 3))[:2], rtol=1e-6)
    assert std[2] == 1
    monkeypatch.setattr("polyarch.data.splitting.CHUNK", 200)
    chunked = statistics(x)
    np.testing.assert_allclose(chunked[0], mean, rtol=1e-7)
    np.testing.assert_allclose(chunked[1], std, rtol=1e-7)


def test_the_deviation_of_a_constant_is_one_whatever_its_rounding():
    x = np.full((37, 1), 0.1, np.float32)
    mean, std = statistics(x)
    assert mean[0] == np.float32(0.1)
    assert std[0] == 1


def test_the_fingerprint_is_known_and_changes_with_one_label_or_pixel():
    x = np.arange(20 * 36, dtype=np.int64).reshape(20, 6, 6).astype(np.uint8)
    y = np.arange(20) % 2

    def print_of(x, y, **settings):
        return load((x, y, x[:4], y[:4]), valid=0.25, **settings).fingerprint

    base = print_of(x, y)
    assert base == print_of(x.copy(), y.astype(np.int32))  # the same examples however they were held
    # A known value: a change of it breaks every stored run, and so must be meant.
    assert base == "70da9c96063466393a633f4bc71a67e766110e18e22d21fd7aa1199d5ead158a"
    for place in (0, 19):
        pixel, label = x.copy(), y.copy()
        pixel[place, 5, 5] ^= 1
        label[place] ^= 1
        assert print_of(pixel, y) != base
        assert print_of(x, label) != base
    assert print_of(x, y, split_seed=1) != base
    assert print_of(x.astype(np.float32), y) != base
    assert load((x, y, x[:3], y[:3]), valid=0.25).fingerprint != base
    assert load((x, y), valid=0.25, test=0).fingerprint != base
