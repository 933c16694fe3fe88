import gzip
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.io import savemat

from polyarch.data import Classification, load


def rng():
    return np.random.default_rng(0)


def idx_bytes(array):
    return (
        bytes((0, 0, 8, array.ndim))
        + b"".join(size.to_bytes(4, "big") for size in array.shape)
        + array.astype(np.uint8).tobytes()
    )


def write_idx(folder: Path, n: int = 60, pack=gzip.compress, ending: str = ".gz"):
    folder.mkdir(parents=True, exist_ok=True)
    arrays = {}
    for part, prefix in (("train", "train"), ("test", "t10k")):
        arrays[part] = rng().integers(0, 256, (n, 5, 4)), np.arange(n) % 10
        (folder / f"{prefix}-images-idx3-ubyte{ending}").write_bytes(pack(idx_bytes(arrays[part][0])))
        (folder / f"{prefix}-labels-idx1-ubyte{ending}").write_bytes(pack(idx_bytes(arrays[part][1])))
    return arrays


def records(n: int, label_bytes: int, classes: int):
    rows = rng().integers(0, 256, (n, label_bytes + 3072)).astype(np.uint8)
    rows[:, label_bytes - 1] = np.arange(n) % classes
    if label_bytes == 2:
        rows[:, 0] = rows[:, 1] % 20
    return rows


def write_svhn(folder: Path, n: int = 40):
    folder.mkdir(parents=True, exist_ok=True)
    x = rng().integers(0, 256, (32, 32, 3, n)).astype(np.uint8)
    y = (np.arange(n) % 10 + 1).astype(np.uint8)[:, None]
    for part in ("train", "test"):
        savemat(folder / f"{part}_32x32.mat", {"X": x, "y": y})
    return x, y


@pytest.mark.parametrize(("pack", "ending"), [(gzip.compress, ".gz"), (bytes, "")])
@pytest.mark.parametrize("place", ["sub-folder", "folder", "variable", "default"])
def test_idx_files_read_back(tmp_path, monkeypatch, pack, ending, place):
    monkeypatch.delenv("POLYARCH_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    root = {"default": tmp_path / "data"}.get(place, tmp_path / "elsewhere")
    arrays = write_idx(root if place == "folder" else root / "fashion-mnist", pack=pack, ending=ending)
    if place == "variable":
        monkeypatch.setenv("POLYARCH_DATA", str(root))
    given = {"folder": root} if "folder" in place else {}
    task = load("fashion-mnist", select=0, **given)
    assert task.train.x.dtype == torch.uint8
    assert np.array_equal(task.train.x.numpy()[:, 0], arrays["train"][0])
    assert np.array_equal(task.test.x.numpy()[:, 0], arrays["test"][0])
    assert np.array_equal(task.test.y.numpy(), arrays["test"][1])
    assert task.classes[9] == "ankle boot"
    assert task.select is None


def test_cifar10_binary_reads_back(tmp_path):
    rows = records(60, 1, 10)
    for i in range(5):
        (tmp_path / f"data_batch_{i + 1}.bin").write_bytes(rows[i * 10 : i * 10 + 10].tobytes())
    (tmp_path / "test_batch.bin").write_bytes(rows[50:].tobytes())
    task = load("cifar10", folder=tmp_path, select=0)
    assert task.input_shape == (3, 32, 32)
    assert np.array_equal(task.train.x.numpy().reshape(50, -1), rows[:50, 1:])
    assert np.array_equal(task.train.y.numpy(), rows[:50, 0])
    assert np.array_equal(task.test.x.numpy().reshape(10, -1), rows[50:, 1:])
    assert task.classes[:2] == ("airplane", "automobile")


@pytest.mark.parametrize(("kind", "column", "classes"), [("fine", 1, 100), ("coarse", 0, 20)])
def test_cifar100_binary_reads_back(tmp_path, kind, column, classes):
    rows = records(200, 2, 100)
    folder = tmp_path / "cifar-100-binary"
    folder.mkdir()
    (folder / "train.bin").write_bytes(rows.tobytes())
    (folder / "test.bin").write_bytes(rows[:5].tobytes())
    task = load("cifar100", folder=tmp_path, select=0, label_kind=kind)
    assert task.likelihood == Classification(classes)
    assert np.array_equal(task.train.y.numpy(), rows[:, column])
    assert np.array_equal(task.train.x.numpy().reshape(200, -1), rows[:, 2:])


@pytest.mark.parametrize(("name", "mean", "first"), [("mnist", 33.3184, (5, 7)), ("fashion-mnist", 72.9404, (9, 9))])
def test_published_files_where_present(name, mean, first):
    folder = os.environ.get("POLYARCH_DATA", "")
    if not (folder and Path(folder, name).is_dir()):
        pytest.skip(f"POLYARCH_DATA names no folder with {name}/")
    task = load(name, select=0)
    assert (len(task.train), len(task.test)) == (60000, 10000)
    assert (task.train.y[0].item(), task.test.y[0].item()) == first
    assert task.preprocess.mean.item() == pytest.approx(mean, abs=1e-3)


def test_limit_takes_the_first_examples(tmp_path, monkeypatch):
    arrays = write_idx(tmp_path / "mnist")
    monkeypatch.chdir(tmp_path)
    task = load("mnist", folder=".", limit=20, select=0)
    assert task.source["settings"]["folder"] == str(tmp_path)
    assert np.array_equal(task.train.x.numpy()[:, 0], arrays["train"][0][:20])
    assert len(task.test) == 20


def test_svhn_calls_ten_zero_and_is_channels_first(tmp_path):
    x, y = write_svhn(tmp_path / "svhn")
    task = load("svhn", folder=tmp_path, select=0)
    assert np.array_equal(task.train.x.numpy(), x.transpose(3, 2, 0, 1))
    assert task.train.x.is_contiguous()
    assert task.train.y[9] == 0
    assert task.train.y[0] == 1
    assert y[9] == 10


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist", "cifar10", "cifar100", "svhn"])
def test_missing_files_are_named(fails, tmp_path, name):
    expected = {"cifar10": "data_batch_5.bin, test_batch.bin", "cifar100": "train.bin, test.bin"}.get(
        name, "train_32x32.mat" if name == "svhn" else "t10k-labels-idx1-ubyte.gz"
    )
    fails(name, expected, str(tmp_path), "POLYARCH_DATA", folder=tmp_path)


def test_a_partly_filled_folder_says_which_files_are_missing(fails, tmp_path):
    write_idx(tmp_path / "mnist")
    (tmp_path / "mnist" / "t10k-labels-idx1-ubyte.gz").unlink()
    fails("mnist", "(missing: t10k-labels-idx1-ubyte.gz)", folder=tmp_path)


@pytest.mark.parametrize(
    ("content", "fragment"),
    [
        (b"", "the file is empty"),
        (b"\x1f\x8b\x08damaged", "damaged gzip"),
        (gzip.compress(idx_bytes(np.zeros((60, 5, 4))), mtime=0)[:-20], "damaged gzip"),  # workers must agree
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
def test_bad_idx(fails, tmp_path, content, fragment):
    write_idx(tmp_path)
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(content)
    fails("mnist", "train-images-idx3-ubyte.gz", fragment, folder=tmp_path)


def test_bad_idx_labels_and_limits(fails, tmp_path):
    write_idx(tmp_path)
    fails("mnist", "at least 0", folder=tmp_path, limit=-1)
    fails(
        "mnist",
        "no training example of class",
        folder=tmp_path,
        limit=19,
        select=10,
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
def test_bad_cifar(fails, tmp_path, content, fragment):
    for name in ("train.bin", "test.bin"):
        (tmp_path / name).write_bytes(records(100, 2, 100).tobytes())
    (tmp_path / "test.bin").write_bytes(content)
    fails("cifar100", "test.bin", fragment, folder=tmp_path)


def test_bad_svhn(fails, tmp_path):
    x, y = write_svhn(tmp_path)
    path = tmp_path / "test_32x32.mat"
    whole = path.read_bytes()
    for content in (b"", b"no matlab file", whole[: len(whole) // 2]):
        path.write_bytes(content)
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
