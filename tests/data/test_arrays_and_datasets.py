import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from polyarch.data import Gaussian, load

X = np.random.default_rng(0).normal(size=(20, 3))
Y = np.arange(20) % 2


def changed(array, index, value):
    array = np.array(array, dtype=np.float64)
    array[index] = value
    return array


@pytest.mark.parametrize("wrap", [np.asarray, torch.as_tensor, lambda a: a.tolist()])
def test_arrays(wrap):
    x, y = X.astype(np.float32), Y
    task = load((wrap(x), wrap(y)), select=2, test=3)
    assert (len(task.train), len(task.select), len(task.test)) == (15, 2, 3)
    assert task.source is None
    assert task.name == "arrays"
    task = load((wrap(x), wrap(y[:, None]), wrap(x[:5]), wrap(y[:5])), select=0)
    assert np.array_equal(task.test.x.numpy(), x[:5])


def test_arrays_are_copied():
    x, y = X.astype(np.float32), Y
    task = load((x, y, x, y), select=0)
    x += 1
    assert not np.array_equal(task.train.x.numpy(), x)
    assert not np.array_equal(task.test.x.numpy(), x)


def test_regression_arrays_keep_targets():
    x, y = torch.randn(20, 3, dtype=torch.bfloat16), torch.arange(20) * 1.5
    task = load((x, y), kind="regression", select=0, test=0)
    assert task.likelihood == Gaussian(1.0)
    assert torch.equal(task.train.y, y)


def test_torch_dataset_with_and_without_a_test_dataset():
    x, y = torch.randn(20, 1, 6, 6), torch.arange(20) % 2
    task = load(TensorDataset(x, y), select=0, test=0)
    assert torch.equal(task.train.x, x)
    assert torch.equal(task.train.y, y)
    assert task.source is None
    task = load(TensorDataset(x, y), test=TensorDataset(x[:4], y[:4]), select=4)
    assert torch.equal(task.test.x, x[:4])
    assert len(task.select) == 4
    assert len(load(TensorDataset(x, y), test=0.5, select=0).test) == 10


def test_a_dataset_of_pillow_images_and_ints():
    class Pictures(Dataset):
        def __len__(self):
            return 10

        def __getitem__(self, i):
            return Image.new("RGB", (8, 7), (i, 0, 0)), i % 2

    task = load(Pictures(), select=0, test=0)
    assert task.input_shape == (3, 7, 8)
    assert task.train.x[:, 0, 0, 0].tolist() == list(range(10))


@pytest.mark.parametrize(
    ("x", "y", "fragment"),
    [
        (changed(X, (4, 1), np.inf), Y, "x[4, 1] is inf"),
        (changed(X, (4, 1), 1e300), Y, "float32"),
        (X, changed(Y, 3, np.nan), "every example needs a label"),
        (X, changed(Y, 3, 1e30), "labels run from 0"),
        (X, np.zeros(20), "all labels are 0"),
        (X, Y[:19], "x has 20 examples but arrays: y has 19"),
        (X, np.eye(2)[Y], "y has the shape [20, 2]"),
        (X, np.array(["a"] * 20), "all labels are a;"),
        (X, np.array([["a", "b"]] * 20), "give one class per example"),
        (X.astype(complex), Y, "give numbers"),
        (X[:, 0], Y, "shape [20]"),
        (X[:0], Y[:0], "shape [0, 3]"),
        (X[:, :0], Y, "shape [20, 0]"),
        ([[1, 2], [3]], Y, "x is no array"),
        (X, {"a": 1}, "give one class per example"),
        (torch.eye(3).to_sparse(), Y, "x is no array"),
    ],
)
def test_bad_arrays(fails, x, y, fragment):
    fails((x, y), fragment, select=0, test=0)


def test_bad_regression_targets(fails):
    fails((X, changed(Y, 3, np.inf)), "finite target", kind="regression")


@pytest.mark.parametrize(
    ("source", "fragment"),
    [
        ((X, Y, X[:, :2], Y), "shape (3,) but those of x_test (2,)"),
        ((X, Y, X.astype(np.uint8), Y), "type float32 but those of x_test uint8"),
        ((X, Y, X, Y[:3]), "x_test has 20 examples but arrays: y_test has 3"),
        ((X, Y, X, None), "only one of x_test and y_test"),
        ((X, Y, X, np.full(20, 2)), "no training example of class 2"),
        ((X, Y, X), "cannot load data from tuple"),
        (X, "cannot load data from ndarray"),
        (None, "cannot load data from NoneType"),
    ],
)
def test_bad_groups_of_arrays(fails, source, fragment):
    fails(source, fragment)


@pytest.mark.parametrize(
    ("settings", "fragment"),
    [
        ({"select": -0.1}, "select=-0.1 is out of range"),
        ({"test": 1.5}, "test=1.5 is out of range"),
        ({"select": 10, "test": 9}, "fewer than 2"),
        ({"select": 0.5, "test": 0.5}, "fewer than 2"),
        ({"select": float("nan")}, "finite number"),
        ({"select": "a tenth"}, "finite number"),
        ({"select": True}, "finite number"),
        ({"split_seed": 0.5}, "whole number"),
        ({"split_seed": -1}, "at least 0"),
        ({"selct": 0.1}, "did you mean 'select'"),
        ({"x": 1}, "unknown setting"),
        ({"kind": "regresion"}, "did you mean 'regression'"),
    ],
)
def test_bad_settings(fails, settings, fragment):
    fails((X, Y), fragment, **settings)


def test_a_class_lost_to_the_split_is_named(fails):
    y = np.repeat(np.arange(5), 4)
    fails((X, y), "no training example of class", select=0, test=17)


def test_a_share_for_test_beside_a_test_set(fails):
    fails((X, Y, X, Y), "its own test set", test=0.3)


class Items(Dataset):
    def __init__(self, *items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        if isinstance(self.items[i], Exception):
            raise self.items[i]
        return self.items[i]


class Stream(IterableDataset):
    def __iter__(self):
        return iter([])


class NoLength(Dataset):
    def __getitem__(self, i):
        return 1, 2


@pytest.mark.parametrize(
    ("dataset", "fragment"),
    [
        (Items(), "is empty"),
        (Items((np.ones(2), 0), (np.ones(3), 1)), "x of item 1 has the shape [3]"),
        (Items((np.ones(2), 0), (np.ones(2), [1, 2])), "y of item 1"),
        (Items({"x": 1, "y": 2}), "item 0 is dict"),
        (Items(torch.ones(2, 3)), "item 0 is Tensor"),
        (Items((1, 2, 3)), "give a pair (x, y)"),
        (Items((np.ones(2), 0), KeyError("lost\nfile")), "item 1 cannot be read (KeyError"),
        (Stream(), "map-style"),
        (NoLength(), "map-style"),
        (TensorDataset(torch.full((4, 2), float("inf")), torch.arange(4)), "x[0, 0] is inf"),
    ],
)
def test_bad_datasets(fails, dataset, fragment):
    fails(dataset, fragment)
