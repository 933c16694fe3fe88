import gzip
import json
import math
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.io import savemat
from torch.utils.data import Dataset, TensorDataset

from polyarch.data import SOURCES, Classification, Gaussian, load, settings_of, source_for, source_from
from polyarch.data.files import Csv, ImageFolder, Npz
from polyarch.data.memory import Arrays, TorchDataset
from polyarch.data.names import Digits, Spirals


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


def write_images(folder: Path, mode="RGB", size=(6, 5), per_class=6):
    for label, name in enumerate(("cat", "dog")):
        (folder / name).mkdir(parents=True)
        for i in range(per_class):
            Image.new(mode, size, 100 * label + i if mode == "L" else (100 * label + i, 2, 3)).save(
                folder / name / f"{i}.png"
            )


# ---- digits and spirals


def test_digits_are_images_or_vectors():
    task = load("digits")
    assert task.input_shape == (1, 8, 8)
    assert task.train.x.dtype == torch.uint8
    assert (len(task.train), len(task.valid), len(task.test)) == (1168, 270, 359)
    assert task.likelihood == Classification(10)
    assert task.name == "digits"
    assert task.classes == tuple("0123456789")
    assert load("digits", flat=True).input_shape == (64,)


def test_spirals_follow_the_definition_without_noise():
    task = load("spirals", noise=0.0, rotation=360.0)
    assert (len(task.train), task.valid, len(task.test)) == (200, None, 1800)
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

    # The angles come from the stream before the noise; the shuffle comes after as many draws of the same kind.
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


# ---- published formats


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
    task = load("fashion-mnist", valid=0, **given)
    assert task.train.x.dtype == torch.uint8
    assert np.array_equal(task.train.x.numpy()[:, 0], arrays["train"][0])
    assert np.array_equal(task.test.x.numpy()[:, 0], arrays["test"][0])
    assert np.array_equal(task.test.y.numpy(), arrays["test"][1])
    assert task.classes[9] == "ankle boot"
    assert task.valid is None


def test_limit_takes_the_first_examples(tmp_path):
    arrays = write_idx(tmp_path)
    task = load("mnist", folder=tmp_path, limit=20, valid=0)
    assert np.array_equal(task.train.x.numpy()[:, 0], arrays["train"][0][:20])
    assert len(task.test) == 20


def test_cifar10_binary_reads_back(tmp_path):
    rows = records(60, 1, 10)
    for i in range(5):
        (tmp_path / f"data_batch_{i + 1}.bin").write_bytes(rows[i * 10 : i * 10 + 10].tobytes())
    (tmp_path / "test_batch.bin").write_bytes(rows[50:].tobytes())
    task = load("cifar10", folder=tmp_path, valid=0)
    assert task.input_shape == (3, 32, 32)
    assert np.array_equal(task.train.x.numpy().reshape(50, -1), rows[:50, 1:])
    assert np.array_equal(task.train.y.numpy(), rows[:50, 0])
    assert np.array_equal(task.test.x.numpy().reshape(10, -1), rows[50:, 1:])
    assert task.classes[:2] == ("airplane", "automobile")


@pytest.mark.parametrize(("labels", "column", "classes"), [("fine", 1, 100), ("coarse", 0, 20)])
def test_cifar100_binary_reads_back(tmp_path, labels, column, classes):
    rows = records(200, 2, 100)
    folder = tmp_path / "cifar-100-binary"
    folder.mkdir()
    (folder / "train.bin").write_bytes(rows.tobytes())
    (folder / "test.bin").write_bytes(rows[:5].tobytes())
    task = load("cifar100", folder=tmp_path, valid=0, labels=labels)
    assert task.likelihood == Classification(classes)
    assert np.array_equal(task.train.y.numpy(), rows[:, column])
    assert np.array_equal(task.train.x.numpy().reshape(200, -1), rows[:, 2:])


def test_svhn_calls_ten_zero_and_is_channels_first(tmp_path):
    x, y = write_svhn(tmp_path / "svhn")
    task = load("svhn", folder=tmp_path, valid=0)
    assert np.array_equal(task.train.x.numpy(), x.transpose(3, 2, 0, 1))
    assert task.train.x.is_contiguous()
    assert task.train.y[9] == 0
    assert task.train.y[0] == 1
    assert y[9] == 10


@pytest.mark.parametrize(
    ("name", "mean", "first"), [("mnist", 33.3184, (5, 7)), ("fashion-mnist", 72.9404, (9, 9))]
)
def test_published_files_where_present(name, mean, first):
    folder = os.environ.get("POLYARCH_DATA", "")
    if not (folder and Path(folder, name).is_dir()):
        pytest.skip(f"POLYARCH_DATA names no folder with {name}/")
    task = load(name, valid=0)
    assert (len(task.train), len(task.test)) == (60000, 10000)
    assert (task.train.y[0].item(), task.test.y[0].item()) == first
    assert task.standardise.mean.item() == pytest.approx(mean, abs=1e-3)


# ---- files of one's own


def test_npz_reads_vectors_and_its_own_test_set(tmp_path):
    x, y = rng().normal(size=(20, 3)), np.arange(20) % 2
    np.savez(tmp_path / "d.npz", x=x, y=y, x_test=x[:4] + 1, y_test=y[:4])
    task = load(tmp_path / "d.npz", valid=0)
    assert task.train.x.dtype == torch.float32
    assert np.array_equal(task.train.x.numpy(), x.astype(np.float32))
    assert np.array_equal(task.test.x.numpy(), (x[:4] + 1).astype(np.float32))
    assert task.name == "d"


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((20, 6, 5), (1, 6, 5)),
        ((20, 6, 5, 3), (3, 6, 5)),
        ((20, 6, 5, 1), (1, 6, 5)),
        ((20, 3, 6, 5), (3, 6, 5)),
        ((20, 7, 2, 3), (7, 2, 3)),  # too small for channels-last
        ((20, 6, 5, 2), (6, 5, 2)),
    ],
)
@pytest.mark.parametrize("dtype", [np.uint8, np.float64])
def test_image_layouts(tmp_path, shape, expected, dtype):
    x = rng().integers(0, 255, shape).astype(dtype)
    np.savez(tmp_path / "d.npz", x=x, y=np.arange(20) % 2)
    task = load(tmp_path / "d.npz", valid=0, test=0)
    assert task.input_shape == expected
    assert task.train.x.dtype == (torch.uint8 if dtype == np.uint8 else torch.float32)
    if expected == (3, 6, 5) and shape[1] == 6:
        assert np.array_equal(task.train.x.numpy(), np.moveaxis(x, 3, 1))
        assert task.train.x.is_contiguous()
    assert task.standardise.mean.shape == (expected[0], 1, 1)


def test_csv_with_words_keeps_sorted_class_names(tmp_path):
    rows = ["width,kind,height"] + [f"{i},{'pear' if i % 2 else 'apple'},{i / 2}" for i in range(20)]
    (tmp_path / "d.csv").write_text("\n".join(rows) + "\n\n", encoding="utf-8-sig")
    task = load(str(tmp_path / "d.csv"), label="kind", valid=0, test=0)
    assert task.classes == ("apple", "pear")
    assert task.train.x[3].tolist() == [3.0, 1.5]
    assert task.train.y[:4].tolist() == [0, 1, 0, 1]


def test_csv_with_numbers_and_regression(tmp_path):
    rows = ["a;label"] + [f"{i};{i % 2}" for i in range(20)]
    (tmp_path / "d.csv").write_text("\n".join(rows))
    task = load(tmp_path / "d.csv", delimiter=";", valid=0, test=0)
    assert task.likelihood == Classification(2)
    assert task.classes == ()
    task = load(tmp_path / "d.csv", delimiter=";", valid=0, test=0, kind="regression", label="a")
    assert task.likelihood == Gaussian(1.0)
    assert task.train.y.dtype == torch.float32
    assert task.train.y.tolist() == [float(i) for i in range(20)]


@pytest.mark.parametrize(("mode", "channels"), [("RGB", 3), ("L", 1)])
def test_image_folder(tmp_path, mode, channels):
    write_images(tmp_path, mode)
    (tmp_path / "cat" / "notes.txt").write_text("not an image")
    (tmp_path / ".hidden").mkdir()
    task = load(tmp_path, valid=0, test=0)
    assert task.input_shape == (channels, 5, 6)
    assert task.train.x.dtype == torch.uint8
    assert task.classes == ("cat", "dog")
    assert task.train.x[6:, 0, 0, 0].tolist() == [100, 101, 102, 103, 104, 105]
    assert load(tmp_path, size=3, valid=0).input_shape == (channels, 3, 3)


# ---- memory


@pytest.mark.parametrize("wrap", [np.asarray, torch.as_tensor, lambda a: a.tolist()])
def test_arrays(wrap):
    x, y = rng().normal(size=(20, 3)).astype(np.float32), np.arange(20) % 2
    task = load((wrap(x), wrap(y)), valid=2, test=3)
    assert (len(task.train), len(task.valid), len(task.test)) == (15, 2, 3)
    assert task.source is None
    assert task.name == "arrays"
    task = load((wrap(x), wrap(y[:, None]), wrap(x[:5]), wrap(y[:5])), valid=0)
    assert np.array_equal(task.test.x.numpy(), x[:5])


def test_arrays_are_copied():
    x, y = rng().normal(size=(20, 3)).astype(np.float32), np.arange(20) % 2
    task = load((x, y, x, y), valid=0)
    x += 1
    assert not np.array_equal(task.train.x.numpy(), x)
    assert not np.array_equal(task.test.x.numpy(), x)


def test_regression_arrays_keep_targets():
    x, y = torch.randn(20, 3, dtype=torch.bfloat16), torch.arange(20) * 1.5
    task = load((x, y), kind="regression", valid=0, test=0)
    assert task.likelihood == Gaussian(1.0)
    assert torch.equal(task.train.y, y)


def test_torch_dataset_with_and_without_a_test_dataset():
    x, y = torch.randn(20, 1, 6, 6), torch.arange(20) % 2
    task = load(TensorDataset(x, y), valid=0, test=0)
    assert torch.equal(task.train.x, x)
    assert torch.equal(task.train.y, y)
    assert task.source is None
    task = load(TensorDataset(x, y), test=TensorDataset(x[:4], y[:4]), valid=4)
    assert torch.equal(task.test.x, x[:4])
    assert len(task.valid) == 4
    assert len(load(TensorDataset(x, y), test=0.5, valid=0).test) == 10


def test_a_dataset_of_pillow_images_and_ints():
    class Pictures(Dataset):
        def __len__(self):
            return 10

        def __getitem__(self, i):
            return Image.new("RGB", (8, 7), (i, 0, 0)), i % 2

    task = load(Pictures(), valid=0, test=0)
    assert task.input_shape == (3, 7, 8)
    assert task.train.x[:, 0, 0, 0].tolist() == list(range(10))


# ---- finding sources and settings


def test_texts_find_their_class(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digits").mkdir()
    assert source_for("digits") is Digits
    assert source_for("./digits") is ImageFolder
    assert source_for("DATA.NPZ") is Npz
    assert source_for("a/b.csv") is Csv
    assert source_from("spirals", {"points": 10}) == Spirals(points=10)
    assert source_from("a.csv", {"label": "y"}) == Csv("a.csv", label="y")


def test_every_setting_has_help_and_a_default():
    for cls in [cls for cls, _ in SOURCES.values()] + [Arrays, TorchDataset]:
        settings = settings_of(cls)
        assert {"valid", "split_seed"} <= set(settings)
        assert "path" not in settings
        for setting in settings.values():
            assert setting.help, (cls, setting.name)
            assert isinstance(setting.default, bool | int | float | str)
    assert settings_of(Spirals)["valid"].default == 0.0
    assert settings_of(Spirals)["points"].type is int


def test_a_task_says_how_to_load_it_again(tmp_path, monkeypatch):
    write_images(tmp_path / "pictures")
    write_idx(tmp_path / "mnist")
    monkeypatch.chdir(tmp_path)
    for task in (
        load("spirals", points=20, valid=4),
        load("pictures", size=4),
        load("mnist", folder=".", limit=30),
    ):
        source = json.loads(json.dumps(task.source))
        monkeypatch.chdir("/")
        assert load(source["data"], **source["settings"]).fingerprint == task.fingerprint
        monkeypatch.chdir(tmp_path)
