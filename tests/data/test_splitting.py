import hashlib
from dataclasses import replace

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
@pytest.mark.parametrize(
    "sizes",
    [
        {"select": 0.2, "test": 0.1},
        {"select": 0, "test": 0.25},
        {"select": 7, "test": 0},
        {"select": 0, "test": 0},
        {"select": 1, "test": 1},
        {"select": 0.001, "test": 0},
        {"select": 0.2, "test": 0.1, "search": 0.3},
        {"select": 0.2, "test": 0.1, "search": 12, "calibrate": 0.1},
        {"select": 0, "test": 0, "search": 0.5, "calibrate": 1},
    ],
)
def test_splits_are_disjoint_and_complete(kind, sizes):
    task = load(vectors(), kind=kind, **sizes)
    parts = {name: indices(split) for name, split in task.splits.items()}
    assert sum(map(len, parts.values())) == 60
    assert set.union(*parts.values()) == set(range(60))
    for name, share in sizes.items():
        expected = share if share >= 1 else max(1, round(60 * share)) if share else 0
        assert len(parts.get(name, ())) == expected
        assert (getattr(task, name) is None) == (share == 0)
    assert {name: set(found.tolist()) for name, found in task.indices.items()} == parts


def digest(numbers):
    return hashlib.sha256(np.ascontiguousarray(numbers).astype("<i8").tobytes()).hexdigest()[:16]


# What polyarch 0.1 gave, when there were training, validation and test data alone.
KNOWN = {
    ("classification", 0.15, 0.2, 0): ("55d3f1052dd5bdf0", "80a8f0f355ade642", "3d0f14a60f8b8fea"),
    ("classification", 0.5, 0, 3): ("05b025d0651c39be", "cc799906ee7fc76c", None),
    ("classification", 0, 0.25, 1): ("21337c8f4600e870", None, "b31f15471239372f"),
    ("classification", 40, 30, 2): ("9565ed09dd47e672", "4cf6f05de69719d7", "d1ae52ccbb918598"),
    ("regression", 0.15, 0.2, 0): ("1fcef2e84829c693", "3d1493ca9ef0c950", "757cc398e17c38d2"),
    ("regression", 40, 30, 2): ("54b679ed92b4e428", "4dc103ad787648b8", "87bfabbf350f5f3a"),
}
CLASSES = np.random.default_rng(5).integers(0, 4, 300)


@pytest.mark.parametrize(("asked", "known"), KNOWN.items())
def test_splits_are_known_to_the_last_index(asked, known):
    """A change of them would change every number that was measured, and so must be meant."""
    kind, select, test, seed = asked
    y = CLASSES if kind == "classification" else CLASSES.astype(np.float64)
    task = load((np.arange(300.0)[:, None], y), kind=kind, select=select, test=test, split_seed=seed)
    for name, expected in zip(("train", "select", "test"), known, strict=True):
        found = task.splits.get(name)
        assert expected == (None if found is None else digest(found.x.numpy().ravel()))


def test_few_labels_are_known_to_the_last_index():
    known = {
        10: ("e06d3076a9a97055", "abac26ba5db69053", "a77c501d71a37866"),
        77: ("7191b4c734c215cf", "46a8537745c46e93", "374f8243d5906506"),
    }
    for labels, expected in known.items():
        task = load((np.arange(300.0)[:, None], CLASSES), labels=labels)
        found = (task.train.x.numpy().ravel(), task.train.y.numpy(), task.splits["unlabelled"].x.numpy().ravel())
        assert tuple(map(digest, found)) == expected


def test_new_roles_take_from_training_alone():
    """Test and validation data stay what they are, whatever is set aside besides."""
    plain = load(vectors(), select=0.2, test=0.2)
    for sizes in ({"search": 0.3}, {"calibrate": 7}, {"search": 9, "calibrate": 0.1}):
        task = plain.resplit(**sizes)
        for name in ("select", "test"):
            assert torch.equal(task.splits[name].x, plain.splits[name].x)
        assert indices(task.train) < indices(plain.train)


def test_search_shares_validation_data_unless_it_has_its_own_but_calibration_never_does():
    plain = load(vectors(), select=0.2, test=0.2)
    assert plain.examples_for("search") is plain.select
    assert plain.examples_for("calibrate") is None
    assert plain.learning_data() == {"train": plain.train, "select": plain.select, "search": plain.select}
    task = plain.resplit(search=8, calibrate=6)
    assert task.examples_for("search") is task.search
    assert task.examples_for("calibrate") is task.calibrate
    assert task.learning_data() == {"train": task.train, "select": task.select, "search": task.search}
    bare = load(vectors(), select=0, test=0)
    assert bare.examples_for("search") is bare.examples_for("test") is bare.calibrate is None
    assert bare.learning_data() == {"train": bare.train}


def test_resplit_gives_what_loading_with_other_sizes_gives(tmp_path):
    x, y = vectors()
    np.savez(tmp_path / "d.npz", x=x, y=y)
    first = load(tmp_path / "d.npz")
    sizes = {"search": 0.3, "calibrate": 5, "select": 7, "test": 0.1, "labels": 9, "split_seed": 4}
    again, loaded = first.resplit(**sizes), load(tmp_path / "d.npz", **sizes)
    assert again.fingerprint == loaded.fingerprint != first.fingerprint
    assert again.source == loaded.source
    assert sizes.items() <= again.source["settings"].items()
    assert load(again.source["data"], **again.source["settings"]).fingerprint == again.fingerprint
    back = again.resplit(search=0, calibrate=0, select=0.15, test=0.2, labels=0, split_seed=0)
    assert back.fingerprint == first.fingerprint


def test_resplit_is_of_the_examples_that_were_read():
    x, y = vectors()
    task = load((x, y), select=0.2, test=0.2)
    expected = load((x, y), select=0.2, test=0.2, search=0.2).fingerprint
    x += 1
    task.train.x.add_(1)
    assert task.resplit(search=0.2).fingerprint == expected


def test_resplit_refuses_what_is_not_a_size():
    x, y = vectors()
    task = load((x, y, x[:5], y[:5]))
    for settings, says in (
        ({"kind": "regression"}, "kind says how data is read, not how it is split"),
        ({"serch": 0.2}, "did you mean 'search'"),
        ({"valid": 0.2}, "the setting valid is now called select"),
        ({"test": 0.3}, "it has its own test set"),
        ({"search": 0.5, "select": 0.5}, "60 examples less 30 for select and 30 for search leave fewer than 2"),
    ):
        with pytest.raises(PolyarchError, match=says):
            task.resplit(**settings)
    with pytest.raises(PolyarchError, match="cannot be split anew"):
        replace(task, again=None).resplit(search=0.2)


def test_the_setting_of_before_is_named(fails):
    fails("digits", "the setting valid is now called select", "search and calibrate", valid=0.2)


def test_splits_hold_classes_in_proportion_and_depend_on_the_seed():
    y = np.repeat([0, 1, 2], [100, 40, 1])
    x = np.arange(141.0)[:, None]
    tasks = [load((x, y), select=0.2, test=0.2, split_seed=seed) for seed in (0, 0, 1)]
    more = tasks[0].resplit(search=0.2, calibrate=0.2)
    for split in (tasks[0].select, tasks[0].test, more.search):
        counts = np.bincount(split.y, minlength=3)
        assert abs(counts[0] - 20) <= 1
        assert abs(counts[1] - 8) <= 1
    assert 2 in more.train.y  # a class of one example stays in training
    assert tasks[0].fingerprint == tasks[1].fingerprint != tasks[2].fingerprint


def test_calibration_data_is_drawn_plainly_at_random():
    """How many of a class it holds varies as in any sample without replacement."""
    y = np.repeat([0, 1], [150, 50])
    task = load((np.arange(200.0)[:, None], y), select=0.1, test=0.2)
    counts = [int(task.resplit(calibrate=40, split_seed=seed).calibrate.y.sum()) for seed in range(400)]
    there_are, drawn, of_class = 138, 40, 34  # 200 less test, validation data, and one of each class for training
    share = of_class / there_are
    variance = drawn * share * (1 - share) * (there_are - drawn) / (there_are - 1)
    assert np.mean(counts) == pytest.approx(drawn * share, abs=4 * (variance / 400) ** 0.5)
    assert np.var(counts) == pytest.approx(variance, rel=0.3)


def test_a_split_is_random_within_a_class():
    parts = split_indices(100, {"test": 0, "select": 50}, strata=np.zeros(100), seed=3, where="here")
    assert len(set(parts["select"]) & set(range(50))) not in (0, 50)
    assert np.array_equal(parts["train"], np.sort(parts["train"]))


def test_overlap_is_caught():
    check_disjoint((np.array([0, 2]), np.array([1])), 3)
    for parts in ((np.array([0, 1]), np.array([1])), (np.array([0]), np.array([1]))):
        with pytest.raises(PolyarchError, match="overlap"):
            check_disjoint(parts, 3)


def test_statistics_are_those_of_the_training_split_alone():
    x, y = vectors()
    task = load((x, y), select=0.2, test=0.2)
    train = task.train.x.numpy().astype(np.float64)
    np.testing.assert_allclose(task.preprocess.mean.numpy(), train.mean(0), rtol=1e-6)
    np.testing.assert_allclose(task.preprocess.std.numpy(), train.std(0), rtol=1e-6)
    x2 = x.copy()
    held = sorted(indices(task.select) | indices(task.test))
    x2[held, 1:] += 100
    again = load((x2, y), select=0.2, test=0.2)
    assert torch.equal(again.preprocess.mean, task.preprocess.mean)
    assert torch.equal(again.preprocess.std, task.preprocess.std)
    z = task.preprocess(task.train.x)
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
        return load((x, y, x[:4], y[:4]), select=0.25, **settings).fingerprint

    base = print_of(x, y)
    assert base == print_of(x.copy(), y.astype(np.int32))  # the same examples however they were held
    # A known value: a change of it breaks every stored run, and so must be meant.
    assert base == "01fa7ccd24c1dca02848210a634782a6fdee9048c62b6ca7cadb5e0f3879b8b3"
    for place in (0, 19):
        pixel, label = x.copy(), y.copy()
        pixel[place, 5, 5] ^= 1
        label[place] ^= 1
        assert print_of(pixel, y) != base
        assert print_of(x, label) != base
    assert print_of(x, y, split_seed=1) != base
    assert print_of(x.astype(np.float32), y) != base
    assert load((x, y, x[:3], y[:3]), select=0.25).fingerprint != base
    assert load((x, y), select=0.25, test=0).fingerprint != base
