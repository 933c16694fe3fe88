import gzip
import pickle
import warnings

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.io import savemat
from test_sources import idx_bytes, records, write_idx, write_images, write_svhn
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from polyarch.data import load
from polyarch.errors import PolyarchError

X = np.random.default_rng(0).normal(size=(20, 3))
Y = np.arange(20) % 2


def fails(source, *fragments, **settings):
    with pytest.raises(PolyarchError) as caught:
        load(source, **settings)
    text = str(caught.value)
    assert "\n" not in text
    for fragment in fragments:
        assert fragment in text, text


def changed(array, index, value):
    array = np.array(array, dtype=np.float64)
    array[index] = value
    return array


# ---- arrays: the checks every source shares


@pytest.mark.parametrize(
    ("x", "y", "fragment"),
    [
        (changed(X, (4, 1), np.nan), Y, "x[4, 1] is nan"),
        (changed(X, (4, 1), np.inf), Y, "x[4, 1] is inf"),
        (changed(X, (4, 1), 1e300), Y, "float32"),
        (X, changed(Y, 3, -1), "y[3] is -1"),
        (X, changed(Y, 3, 0.5), "kind=regression"),
        (X, changed(Y, 3, np.nan), "every example needs a label"),
        (X, changed(Y, 3, 1e30), "labels run from 0"),
        (X, np.zeros(20), "all labels are 0"),
        (X, changed(Y, 3, 25).astype(int), "fewer examples (20) than classes (26)"),
        (X, np.where(Y == 1, 2, 0), "no training example of class 1;"),
        (X, np.where(Y == 1, 9, 0), "no training example of class 1, 2, 3, 4, 5 and 3 more"),
        (X, Y[:19], "x has 20 examples but arrays: y has 19"),
        (X, np.eye(2)[Y], "y has the shape [20, 2]"),
        (X, np.array(["a", "b"] * 10), "give numbers"),
        (X.astype(complex), Y, "give numbers"),
        (X[:, 0], Y, "shape [20]"),
        (X[:0], Y[:0], "shape [0, 3]"),
        (X[:, :0], Y, "shape [20, 0]"),
        ([[1, 2], [3]], Y, "x is no array"),
        (X, {"a": 1}, "give numbers"),
        (torch.eye(3).to_sparse(), Y, "x is no array"),
    ],
)
def test_bad_arrays(x, y, fragment):
    fails((x, y), fragment, valid=0, test=0)


def test_bad_regression_targets():
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
def test_bad_groups_of_arrays(source, fragment):
    fails(source, fragment)


@pytest.mark.parametrize(
    ("settings", "fragment"),
    [
        ({"valid": -0.1}, "valid=-0.1 is out of range"),
        ({"test": 1.5}, "test=1.5 is out of range"),
        ({"valid": 10, "test": 9}, "fewer than 2"),
        ({"valid": 0.5, "test": 0.5}, "fewer than 2"),
        ({"valid": float("nan")}, "finite number"),
        ({"valid": "a tenth"}, "finite number"),
        ({"valid": True}, "finite number"),
        ({"split_seed": 0.5}, "whole number"),
        ({"split_seed": -1}, "at least 0"),
        ({"vald": 0.1}, "did you mean 'valid'"),
        ({"x": 1}, "unknown setting"),
        ({"kind": "regresion"}, "did you mean 'regression'"),
    ],
)
def test_bad_settings(settings, fragment):
    fails((X, Y), fragment, **settings)


def test_a_class_lost_to_the_split_is_named():
    y = np.repeat(np.arange(5), 4)
    fails((X, y), "no training example of class", valid=0, test=17)


def test_a_share_for_test_beside_a_test_set():
    fails((X, Y, X, Y), "its own test set", test=0.3)


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
def test_bad_spirals(settings, fragment):
    fails("spirals", fragment, **settings)


# ---- texts


def test_bad_texts(tmp_path):
    fails("minst", "did you mean 'mnist'")
    fails("*.npz", "no such file")
    fails(str(tmp_path / "none"), "no such file or folder")
    fails("nothing.parquet", "no such file or folder")
    (tmp_path / "d.parquet").write_text("1")
    fails(str(tmp_path / "d.parquet"), "d.parquet", ".npz")
    fails("digits", "did you mean 'valid'", vaild=0.1)
    fails("a.csv", "unknown setting", path="b.csv")


# ---- torch Datasets


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
        (TensorDataset(torch.full((4, 2), float("nan")), torch.arange(4)), "x[0, 0] is nan"),
    ],
)
def test_bad_datasets(dataset, fragment):
    fails(dataset, fragment)


# ---- npz


def test_bad_npz(tmp_path):
    path = tmp_path / "d.npz"
    fails(path, "d.npz: no such file")
    path.write_bytes(b"")
    fails(path, "d.npz: the file is empty")
    path.write_bytes(b"no zip file")
    fails(path, "d.npz: not a readable .npz")
    with path.open("wb") as file:
        pickle.dump({"x": 1}, file)
    fails(path, "d.npz: not a readable .npz")
    with path.open("wb") as file:
        np.save(file, X)
    fails(path, "d.npz: not a readable .npz")
    np.savez(path, x=X, y=Y)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    fails(path, "d.npz: not a readable .npz")
    broken = bytearray(whole)
    broken[200:220] = bytes(20)
    path.write_bytes(broken)
    fails(path, "d.npz: not a readable .npz")
    np.savez(path, x=np.array([{"a": 1}, None]), y=Y)
    fails(path, "d.npz: not a readable .npz", "without object arrays")
    np.savez(path, x=X, labels=Y)
    fails(path, "no array y", "x, labels")
    np.savez(path, x=X, y=Y, x_test=X)
    fails(path, "no array y_test")
    np.savez(path)
    fails(path, "no array x or y", "nothing")
    np.savez(path, x=changed(X, (2, 2), np.nan), y=Y)
    fails(path, "d.npz: x[2, 2] is nan")


# ---- csv


@pytest.mark.parametrize(
    ("text", "settings", "fragment"),
    [
        ("", {}, "d.csv: the file is empty"),
        ("\n\n", {}, "unknown label column 'label'"),
        ("a,label\n", {}, "no line of data"),
        ("a,lable\n1,0\n", {}, "did you mean 'lable'"),
        ("label\n1\n", {}, "no column besides the label"),
        ("a,a,label\n1,1,0\n", {}, "two columns 'a'"),
        ("a,label\n1,0\n2\n", {}, "line 3 has 1 cells"),
        ("a,b,label\n1,2,0\n1,red,1\n", {}, "line 3 has 'red' in column 'b'"),
        ("label,a,b\n0,1,2\n1,,1\n", {}, "line 3 has '' in column 'a'"),
        ("a,b,label\n1,2,0\n1,nan,1\n", {}, "line 3 has 'nan' in column 'b'"),
        ("a,b,label\n1,2,0\n1,2,\n", {}, "line 3 has no label in column 'label'"),
        ("a,label\n1,0\n,\n", {}, "line 3 has no label"),
        ("a,label\n1,0\n1,-1\n", {}, "line 3 has the label '-1'"),
        ("a,label\n1,0\n1,0.5\n", {}, "kind=regression"),
        ("a,label\n1,0\n1,nan\n", {}, "line 3 has the label 'nan'"),
        ("a,label\n1,0\n1,high\n", {"kind": "regression"}, "line 3 has the label 'high'"),
        ("a,label\n1,0\n1,0\n1,0\n1,0\n", {}, "all labels are 0"),
        ("a,label\n1,0\n", {"delimiter": ""}, "one character"),
        ("a,label\n1,0\n", {"delimiter": ";"}, "did you mean 'a,label'"),
    ],
)
def test_bad_csv(tmp_path, text, settings, fragment):
    (tmp_path / "d.csv").write_text(text)
    fails(tmp_path / "d.csv", fragment, **settings)


def test_unreadable_csv(tmp_path):
    fails(tmp_path / "none.csv", "none.csv: no such file")
    path = tmp_path / "d.csv"
    path.write_bytes(b"a,label\n\xff\xfe,1\n")
    fails(path, "d.csv: not a readable UTF-8")
    path.write_bytes(b"a,label\n" + b"1" * 200_000 + b",1\n")
    fails(path, "d.csv: not a readable UTF-8")


# ---- image folders


def test_bad_image_folders(tmp_path):
    fails(tmp_path, "0 sub-folder(s)")
    write_images(tmp_path)
    (tmp_path / "emu").mkdir()
    fails(tmp_path, "emu: no image")
    (tmp_path / "emu").rmdir()
    fails(tmp_path, "at least 0", size=-1)

    odd = tmp_path / "cat" / "odd.png"
    Image.new("RGB", (9, 9)).save(odd)
    fails(tmp_path, "odd.png is 9x9 but", "set size")
    whole = odd.read_bytes()
    for content in (b"", b"no image", whole[: len(whole) // 2]):
        odd.write_bytes(content)
        fails(tmp_path, "odd.png: not a readable 8-bit image")
    Image.new("I;16", (6, 5)).save(odd)
    fails(tmp_path, "odd.png: not a readable 8-bit image", "more than 8 bits")


# ---- published formats


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist", "cifar10", "cifar100", "svhn"])
def test_missing_files_are_named(tmp_path, name):
    expected = {"cifar10": "data_batch_5.bin, test_batch.bin", "cifar100": "train.bin, test.bin"}.get(
        name, "train_32x32.mat" if name == "svhn" else "t10k-labels-idx1-ubyte.gz"
    )
    fails(name, expected, str(tmp_path), "POLYARCH_DATA", folder=tmp_path)


def test_a_partly_filled_folder_says_which_files_are_missing(tmp_path):
    write_idx(tmp_path / "mnist")
    (tmp_path / "mnist" / "t10k-labels-idx1-ubyte.gz").unlink()
    fails("mnist", "(missing: t10k-labels-idx1-ubyte.gz)", folder=tmp_path)


@pytest.mark.parametrize(
    ("content", "fragment"),
    [
        (b"", "the file is empty"),
        (b"\x1f\x8b\x08damaged", "damaged gzip"),
        (gzip.compress(idx_bytes(np.zeros((60, 5, 4))))[:-20], "damaged gzip"),
        (idx_bytes(np.zeros((60, 5, 4)))[:-1], "truncated?"),
        (idx_bytes(np.zeros((60, 5, 4))) + b"0", "1217 bytes where 1216 were expected"),
        (idx_bytes(np.zeros(60)), "not an IDX file of 3 dimension(s)"),
        (b"<html>not found</html>", "not an IDX file"),
        (bytes((0, 0, 8, 3, 255)), "not an IDX file"),
        (bytes((0, 0, 8, 3)) + b"\xff" * 12, "bytes where"),
        (idx_bytes(np.zeros((59, 5, 4))), "59 images but train-labels"),
        (idx_bytes(np.zeros((0, 5, 4))), "0 images but"),
    ],
)
def test_bad_idx(tmp_path, content, fragment):
    write_idx(tmp_path)
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(content)
    fails("mnist", "train-images-idx3-ubyte.gz", fragment, folder=tmp_path)


def test_bad_idx_labels_and_limits(tmp_path):
    write_idx(tmp_path)
    fails("mnist", "at least 0", folder=tmp_path, limit=-1)
    fails(
        "mnist",
        "fewer examples (10) than classes" if False else "no training example",
        folder=tmp_path,
        limit=9,
    )
    (tmp_path / "train-labels-idx1-ubyte.gz").write_bytes(idx_bytes(np.arange(60)))
    fails("mnist", "train-labels-idx1-ubyte.gz: label 10 of record 10", folder=tmp_path)


@pytest.mark.parametrize(
    ("content", "fragment"),
    [
        (b"", "the file is empty"),
        (records(100, 2, 100).tobytes()[:-1], "3074-byte records"),
        (records(101, 2, 101).tobytes(), "label 100 of record 100"),
    ],
)
def test_bad_cifar(tmp_path, content, fragment):
    for name in ("train.bin", "test.bin"):
        (tmp_path / name).write_bytes(records(100, 2, 100).tobytes())
    (tmp_path / "test.bin").write_bytes(content)
    fails("cifar100", "test.bin", fragment, folder=tmp_path)


def test_bad_svhn(tmp_path):
    x, y = write_svhn(tmp_path)
    path = tmp_path / "test_32x32.mat"
    whole = path.read_bytes()
    for content in (b"", b"no matlab file", whole[: len(whole) // 2]):
        path.write_bytes(content)
        with warnings.catch_warnings():
            fails("svhn", "test_32x32.mat", "fetch the file again", folder=tmp_path)
    for bad in (
        {"X": x},
        {"X": x, "y": y[:5]},
        {"X": x[0], "y": y},
        {"X": x.astype(float), "y": y},
        {"X": x, "y": y + 1.5},
        {"X": x, "y": y + 1},
        {"X": x, "y": -y.astype(np.int8)},
    ):
        savemat(path, bad)
        fails("svhn", "test_32x32.mat", "fetch the file again", folder=tmp_path)
