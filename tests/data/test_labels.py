"""Which training examples keep their labels."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from polyarch import PolyarchError
from polyarch.data import load
from polyarch.data.labels import HIDDEN, few_labels
from polyarch.data.splitting import turns

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
    task = load(path, valid=0, test=0)
    labelled, unlabelled = few_labels(task, count)
    counts = torch.bincount(labelled.y, minlength=3).tolist()
    assert counts[2] == classes[2]
    assert sorted(counts[:2]) == sorted(classes[:2])  # one more goes to either
    assert sorted(numbers(labelled) + numbers(unlabelled)) == list(range(68))
    assert labelled.y.tolist() == task.train.y[numbers(labelled)].tolist()
    assert unlabelled.y.tolist() == [HIDDEN] * (68 - count)
    assert numbers(labelled) == sorted(numbers(labelled))
    assert numbers(unlabelled) == sorted(numbers(unlabelled))


def test_fewer_labels_are_a_part_of_more(path):
    task = load(path, valid=0, test=0)
    kept = [set(numbers(few_labels(task, count)[0])) for count in range(3, 68)]
    assert all(fewer < more for fewer, more in pairwise(kept))


def test_which_ones_depends_on_the_split_seed_alone(path):
    kept = [numbers(few_labels(load(path, valid=0, test=0, split_seed=seed), 12)[0]) for seed in (0, 0, 1)]
    assert kept[0] == kept[1] != kept[2]
    with np.load(path) as arrays:
        in_memory = load((arrays["x"], arrays["y"]), valid=0, test=0)
    assert numbers(few_labels(in_memory, 12)[0]) == kept[0]


def test_other_splits_are_as_they_were_and_have_no_part(path):
    task = load(path, valid=0.2, test=0.2)
    both = {n for part in few_labels(task, 9) for n in numbers(part)}
    assert both == set(numbers(task.train))


def test_turns():
    assert turns(np.array([2, 0, 2, 2, 0, 1])).tolist() == [0, 0, 1, 2, 1, 0]


@pytest.mark.parametrize(
    ("count", "says"),
    [(2, "labels=2 is below the 3 classes"), (-1, "labels=-1 is below"), (68, "none of the 68 training examples")],
)
def test_counts_that_make_no_sense(path, count, says):
    with pytest.raises(PolyarchError, match=says):
        few_labels(load(path, valid=0, test=0), count)


def test_regression_has_no_labels_to_hide(path):
    with pytest.raises(PolyarchError, match="numbers to predict, not classes; leave labels out"):
        few_labels(load(path, kind="regression", valid=0, test=0), 10)
