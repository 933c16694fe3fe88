import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from polyarch.data import Classification, Gaussian, load

X = np.random.default_rng(0).normal(size=(20, 3))
Y = np.arange(20) % 2


def write_images(folder: Path, mode="RGB", size=(6, 5), per_class=6):
    for label, name in enumerate(("cat", "dog")):
        (folder / name).mkdir(parents=True)
        for i in range(per_class):
            Image.new(mode, size, 100 * label + i if mode == "L" else (100 * label + i, 2, 3)).save(
                folder / name / f"{i}.png"
            )


def test_npz_reads_vectors_and_its_own_test_set(tmp_path):
    x, y = X, Y
    np.savez(tmp_path / "d.npz", x=x, y=y, x_test=x[:4] + 1, y_test=y[:4])
    task = load(tmp_path / "d.npz", select=0)
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
    x = np.random.default_rng(0).integers(0, 255, shape).astype(dtype)
    np.savez(tmp_path / "d.npz", x=x, y=np.arange(20) % 2)
    task = load(tmp_path / "d.npz", select=0, test=0)
    assert task.input_shape == expected
    assert task.train.x.dtype == (torch.uint8 if dtype == np.uint8 else torch.float32)
    if expected == (3, 6, 5) and shape[1] == 6:
        assert np.array_equal(task.train.x.numpy(), np.moveaxis(x, 3, 1))
        assert task.train.x.is_contiguous()
    assert task.preprocess.mean.shape == (expected[0], 1, 1)


def test_csv_with_words_keeps_sorted_class_names(tmp_path):
    rows = ["width,kind,height"] + [f"{i},{'pear' if i % 2 else 'apple'},{i / 2}" for i in range(20)]
    (tmp_path / "d.csv").write_text("\n".join(rows) + "\n\n", encoding="utf-8-sig")
    task = load(str(tmp_path / "d.csv"), label="kind", select=0, test=0)
    assert task.classes == ("apple", "pear")
    assert task.train.x[3].tolist() == [3.0, 1.5]
    assert task.train.y[:4].tolist() == [0, 1, 0, 1]


def test_csv_with_numbers_and_regression(tmp_path):
    rows = ["a;label"] + [f"{i};{i % 2}" for i in range(20)]
    (tmp_path / "d.csv").write_text("\n".join(rows))
    task = load(tmp_path / "d.csv", delimiter=";", select=0, test=0)
    assert task.likelihood == Classification(2)
    assert task.classes == ()
    task = load(tmp_path / "d.csv", delimiter=";", select=0, test=0, kind="regression", label="a")
    assert task.likelihood == Gaussian(1.0)
    assert task.train.y.dtype == torch.float32
    assert task.train.y.tolist() == [float(i) for i in range(20)]


@pytest.mark.parametrize(("mode", "channels"), [("RGB", 3), ("L", 1)])
def test_image_folder(tmp_path, mode, channels):
    write_images(tmp_path, mode)
    (tmp_path / "cat" / "notes.txt").write_text("not an image")
    (tmp_path / ".hidden").mkdir()
    task = load(tmp_path, select=0, test=0)
    assert task.input_shape == (channels, 5, 6)
    assert task.train.x.dtype == torch.uint8
    assert task.classes == ("cat", "dog")
    assert task.train.x[6:, 0, 0, 0].tolist() == [100, 101, 102, 103, 104, 105]
    assert load(tmp_path, size=3, select=0).input_shape == (channels, 3, 3)


def changed(array, index, value):
    array = np.array(array, dtype=np.float64)
    array[index] = value
    return array


def test_bad_npz(fails, tmp_path):
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
    np.savez(path, x=changed(X, (2, 2), np.inf), y=Y)
    fails(path, "d.npz: x[2, 2] is inf")


@pytest.mark.parametrize(
    ("text", "settings", "fragment"),
    [
        ("", {}, "d.csv: the file is empty"),
        ("\n\n", {}, "no line of data"),
        ("a,label\n", {}, "no line of data"),
        ("a,lable\n1,0\n", {}, "such as --set label=lable"),
        ("label\n1\n", {}, "no column besides the label"),
        ("a,a,label\n1,1,0\n", {}, "two columns 'a'"),
        ("a,label\n1,0\n2\n", {}, "line 3 has 1 cells"),
        ("a,b,label\n1,2,0\n1,red,1\n", {}, "line 3 has 'red' in column 'b'"),
        ("a,b,label\n1,2,0\n1,inf,1\n", {}, "line 3 has 'inf' in column 'b'"),
        ('a,b,label\n1,"2,5",0\n1,"3,5",1\n', {}, "line 2 has '2,5' in column 'b': numbers with a comma"),
        ("a,b,label\n1,2,0\n1,3,1\n", {"drop": ("c",)}, "drop: unknown column 'c'"),
        ("a,label\n1,0\n1,1\n", {"drop": ("a",)}, "no column besides the label"),
        ("a,b,label\n,2,0\n?,3,1\n", {"drop": ("b",)}, "no column of features is left"),
        ("a,b,label\n1,2,0\n1,2,\n", {}, "line 3 has no label in column 'label'"),
        ("a,label\n1,0\n,\n", {}, "line 3 has no label"),
        ("a,label\n1,0\n1,0.5\n", {"kind": "classification"}, "kind=regression"),
        ("a,label\n1,0\n1,nan\n", {}, "line 3 has no label in column 'label', but 'nan'"),
        ("a,label\n1,0\n1,high\n", {"kind": "regression"}, "line 3 has the label 'high'"),
        ("a,label\n1,0\n1,0\n1,0\n1,0\n", {}, "all labels are 0"),
        ("a,label\n1,0\n", {"delimiter": ""}, "one character"),
        ("a,label\n1,0\n", {"delimiter": ";"}, "as if ',' stood between its cells"),
    ],
)
def test_bad_csv(fails, tmp_path, text, settings, fragment):
    (tmp_path / "d.csv").write_text(text)
    fails(tmp_path / "d.csv", fragment, **settings)


def test_unreadable_csv(fails, tmp_path):
    fails(tmp_path / "none.csv", "none.csv: no such file")
    path = tmp_path / "d.csv"
    path.write_bytes(b"a,label\n\xff\xfe,1\n")
    fails(path, "d.csv: not a readable UTF-8")
    path.write_bytes(b"a,label\n" + b"1" * 200_000 + b",1\n")
    fails(path, "d.csv: not a readable UTF-8")


def test_bad_image_folders(fails, tmp_path):
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


def test_inputs_that_are_not_standardised(tmp_path):
    """Of a table, arrays in a file and in memory, Datasets and images."""
    x = 7 + 3 * np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    np.savez(tmp_path / "d.npz", x=x, y=Y)
    lines = ["a,b,c,label", *(",".join([*map(str, row), str(y)]) for row, y in zip(x.tolist(), Y, strict=True))]
    (tmp_path / "d.csv").write_text("\n".join(lines))
    folder = tmp_path / "images"
    write_images(folder, "RGB")
    dataset = torch.utils.data.TensorDataset(torch.from_numpy(x), torch.from_numpy(Y))
    for source in (tmp_path / "d.npz", tmp_path / "d.csv", folder, (x, Y), dataset):
        plain, usual = (load(source, select=0, test=0, standardise=on) for on in (False, True))
        assert torch.equal(plain.preprocess(plain.train.x), plain.train.x.float())
        assert usual.preprocess(usual.train.x).mean().item() == pytest.approx(0, abs=1e-5)
        assert plain.fingerprint != usual.fingerprint
