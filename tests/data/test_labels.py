"""Which training examples keep their labels, and what becomes of the others."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from polyarch.data import load
from polyarch.data.labels import HIDDEN, turns

SIZES = (40, 25, 3)


@pytest.fixture
def path(tmp_path):
    """Three classes of which one is rare, mixed; the first feature is an example's number."""
    random = np.random.default_rng(0)
    y = random.permutation(np.repeat([0, 1, 2], SIZES))
    np.savez(tmp_path / "d.npz", x=np.stack([np.arange(68.0), random.normal(size=68)], 1), y=y)
    return tmp_path / "d.npz"


def numbers(split):
    return split.x[:, 0].long().tolist()


@pytest.mark.parametrize(
    ("count", "classes"),
    [(3, [1, 1, 1]), (9, [3, 3, 3]), (21, [9, 9, 3]), (40, [19, 18, 3]), (60, [32, 25, 3]), (67, [39, 25, 3])],
)
def test_classes_have_equally_many_as_far_as_they_go(path, count, classes):
    whole, task = load(path, select=0, test=0), load(path, select=0, test=0, labels=count)
    labelled, unlabelled = task.train, task.splits["unlabelled"]
    counts = torch.bincount(labelled.y, minlength=3).tolist()
    assert counts[2] == classes[2]
    assert sorted(counts[:2]) == sorted(classes[:2])  # one more goes to either
    assert sorted(numbers(labelled) + numbers(unlabelled)) == list(range(68))
    assert labelled.y.tolist() == whole.train.y[numbers(labelled)].tolist()
    assert unlabelled.y.tolist() == [HIDDEN] * (68 - count)
    assert numbers(labelled) == sorted(numbers(labelled))
    assert numbers(unlabelled) == sorted(numbers(unlabelled))


def test_all_training_examples_together_are_in_the_data_s_order(path):
    whole = load(path)
    task = load(path, labels=20)
    assert torch.equal(task.training.x, whole.train.x)
    known = task.training.y != HIDDEN
    assert known.sum() == 20
    assert torch.equal(task.training.y[known], whole.train.y[known])
    assert whole.training is whole.train


def test_a_task_without_few_labels_has_no_unlabelled_examples(path):
    assert set(load(path).splits) == {"train", "select", "test"}


def test_fewer_labels_are_a_part_of_more(path):
    task = load(path, select=0, test=0)
    kept = [set(numbers(task.resplit(labels=count).train)) for count in range(3, 68)]
    assert all(fewer < more for fewer, more in pairwise(kept))


def test_which_ones_depends_on_the_split_seed_alone(path):
    with np.load(path) as arrays:
        in_memory = arrays["x"], arrays["y"]
    kept = [numbers(load(path, select=0, test=0, split_seed=seed, labels=12).train) for seed in (0, 0, 1)]
    assert kept[0] == kept[1] != kept[2]
    for seed, same in ((0, kept[0]), (1, kept[2])):
        assert numbers(load(in_memory, select=0, test=0, split_seed=seed, labels=12).train) == same


def test_other_splits_and_the_standardisation_are_as_they_were(path):
    whole, task = (load(path, select=0.2, test=0.2, search=5, calibrate=4, labels=labels) for labels in (0, 9))
    assert {*numbers(task.train), *numbers(task.splits["unlabelled"])} == set(numbers(whole.train))
    for name in ("select", "test", "search", "calibrate"):
        assert numbers(task.splits[name]) == numbers(whole.splits[name])
        assert torch.equal(task.splits[name].y, whole.splits[name].y)
    assert torch.equal(task.preprocess.mean, whole.preprocess.mean)
    assert torch.equal(task.preprocess.std, whole.preprocess.std)
    assert task.fingerprint != whole.fingerprint


def test_turns():
    assert turns(np.array([2, 0, 2, 2, 0, 1])).tolist() == [0, 0, 1, 2, 1, 0]


@pytest.mark.parametrize(
    ("count", "says"),
    [
        (2, "labels=2 is below the 3 classes"),
        (-1, "labels is -1; it must be at least 0"),
        (68, "none of the 68 training examples"),
    ],
)
def test_counts_that_make_no_sense(fails, path, count, says):
    fails(path, says, select=0, test=0, labels=count)


def test_regression_has_no_labels_to_hide(fails, path):
    fails(path, "numbers to predict, not classes; leave labels out", kind="regression", select=0, test=0, labels=10)
