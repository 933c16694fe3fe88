import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from polyarch.data import inputs, load
from polyarch.data.kinds import Inputs
from polyarch.errors import PolyarchError

RNG = np.random.default_rng(0)
X = RNG.normal(size=(20, 3))
Y = np.arange(20) % 2


def read_inputs(path, shape):
    return inputs.read_inputs(str(path), Inputs(shape))


def trained_on(path, **settings):
    """What training on all examples at a path would be given."""
    return load(path, select=0, test=0, **settings).train.x


def assert_same(x, expected):
    assert x.dtype == expected.dtype
    assert torch.equal(x, expected)
    assert x.is_contiguous()


def read_fails(path, shape, *fragments):
    with pytest.raises(PolyarchError) as caught:
        read_inputs(str(path), shape)
    text = str(caught.value)
    assert "\n" not in text
    for fragment in fragments:
        assert fragment in text, text


def write_image(path: Path, mode="RGB", size=(6, 5)):
    path.parent.mkdir(parents=True, exist_ok=True)
    channels = len(mode)
    pixels = RNG.integers(0, 256, (size[1], size[0], channels), dtype=np.uint8)
    Image.fromarray(pixels[..., 0] if channels == 1 else pixels).save(path)


@pytest.mark.parametrize(
    "x",
    [
        X,
        X.astype(">f4"),
        np.asfortranarray(X),
        RNG.integers(0, 17, (20, 3)),
        RNG.integers(0, 17, (20, 3)).astype(np.uint8),
        RNG.integers(0, 256, (20, 6, 5)).astype(np.uint8),
        RNG.integers(0, 256, (20, 6, 5, 3)).astype(np.uint8),
        RNG.integers(0, 256, (20, 6, 5, 1)).astype(np.float64),
        RNG.integers(0, 256, (20, 3, 6, 5)).astype(np.uint8),
        RNG.integers(0, 256, (20, 7, 2, 3)) > 9,
    ],
)
def test_npz_is_read_as_in_training(tmp_path, x):
    np.savez(tmp_path / "d.npz", x=x, y=Y)
    task = load(tmp_path / "d.npz", select=0, test=0)
    names, found = inputs.read_inputs(str(tmp_path / "d.npz"), task.inputs)
    assert names == [str(i) for i in range(20)]
    assert_same(found, task.train.x)
    with (tmp_path / "alone.NPZ").open("wb") as file:
        np.savez(file, x)
    assert_same(inputs.read_inputs(str(tmp_path / "alone.NPZ"), task.inputs)[1], task.train.x)


def test_npz_with_other_arrays(tmp_path):
    path = str(tmp_path / "d.npz")
    np.savez(path, z=X, x=X[:4], y=np.array(["unread", None]), x_test=X)
    assert len(read_inputs(path, (3,))[1]) == 4


def test_bad_npz(tmp_path):
    path = tmp_path / "d.npz"
    path.write_bytes(b"")
    read_fails(path, (3,), "d.npz: the file is empty")
    np.savez(path, x=X, y=Y)
    whole = path.read_bytes()
    for content in (b"no zip file", pickle.dumps({"x": 1}), whole[: len(whole) // 2]):
        path.write_bytes(content)
        read_fails(path, (3,), "d.npz: not a readable .npz", "numpy.savez(path, x=...)")
    np.savez(path, x=np.array([{"a": 1}, None]))
    read_fails(path, (3,), "d.npz: not a readable .npz", "without object arrays")
    np.savez(path, a=X, b=X)
    read_fails(path, (3,), "d.npz: no array x (it holds a, b)", "numpy.savez(path, x=...)")
    np.savez(path)
    read_fails(path, (3,), "d.npz: no array x (it holds nothing)")
    np.savez(path, inputs=np.where(np.arange(60).reshape(20, 3) == 8, np.nan, X))
    read_fails(path, (3,), "d.npz: inputs[2, 2] is nan; give finite")
    np.savez(path, x=X.astype(str))
    read_fails(path, (3,), "d.npz: x holds values of type <U")
    np.savez(path, x=X[:0])
    read_fails(path, (3,), "d.npz: x has the shape [0, 3]")
    np.savez(path, x=X[0])
    read_fails(path, (3,), "d.npz: x has the shape [3]; give vectors [n, features]")


@pytest.mark.parametrize(
    ("x", "shape", "found", "expected"),
    [
        ((2, 4), (3,), "vectors [4]", "vectors [3]"),
        ((2, 8, 8), (64,), "images [1, 8, 8]", "vectors [64]"),
        ((2, 64), (1, 8, 8), "vectors [64]", "images [1, 8, 8]"),
        ((2, 8, 8), (3, 8, 8), "images [1, 8, 8]", "images [3, 8, 8]"),
        ((2, 9, 8, 3), (3, 8, 8), "images [3, 9, 8]", "images [3, 8, 8]"),
    ],
)
def test_npz_of_another_shape(tmp_path, x, shape, found, expected):
    np.savez(tmp_path / "d.npz", x=np.zeros(x))
    read_fails(tmp_path / "d.npz", shape, f"d.npz: x holds {found}, but the model takes {expected}; resize")


@pytest.mark.parametrize("place", [0, 1, 3])
@pytest.mark.parametrize(("label", "classes"), [("label", "01"), ("label", ("pear", "fig")), ("kind", "pq")])
def test_csv_is_read_as_in_training(tmp_path, place, label, classes):
    rows = [["a", "b", "c"], *([repr(float(v)) for v in row] for row in X)]
    bare = "\n".join(",".join(row) for row in rows)
    for row, cell in zip(rows, [label, *(classes[y] for y in Y)], strict=True):
        row.insert(place, cell)
    (tmp_path / "d.csv").write_text("\n".join(",".join(row) for row in rows) + "\n\n", encoding="utf-8-sig")
    (tmp_path / "bare.CSV").write_text(bare)
    expected = trained_on(tmp_path / "d.csv", label=label)
    for name in ("d.csv", "bare.CSV"):
        names, found = read_inputs(str(tmp_path / name), (3,))
        assert names == [str(i) for i in range(20)]
        assert_same(found, expected.float())


@pytest.mark.parametrize(
    "text",
    [
        "a,b\n1,2\n3,4\n",
        " a , label , b \n1,,2\n3,,4\n",  # labels not known yet
        "a,b,kind\n1,2,\n3,4,\n",
        "label,a,b\nnan,1,2\n7,3,4\n",
        "label,b\n1,2\n3,4\n",  # as many columns as features: every one is a feature
        "0,1\n1,2\n3,4\n",
        "1,2\n1,2\n3,4\n",
        "2016,2017,label\n1,2,0\n3,4,0\n",
    ],
)
def test_csv_with_and_without_labels(tmp_path, text):
    (tmp_path / "d.csv").write_text(text)
    assert read_inputs(str(tmp_path / "d.csv"), (2,))[1].tolist() == [[1, 2], [3, 4]]


TWO = "the model takes 2 feature(s); give 2 column(s) of numbers, separated by commas"


@pytest.mark.parametrize(
    ("text", "fragment"),
    [
        ("", "d.csv: the file is empty"),
        ("\n\n", "d.csv: no line of data"),
        ("a,b\n", "d.csv: no line of data"),
        ("a\n1\n", "d.csv: 1 column(s), but " + TWO),
        ("a;b\n1;2\n", "d.csv: 1 column(s), but " + TWO),
        ("a,b,c,label\n1,2,3,0\n", "d.csv: 4 column(s), but " + TWO),
        ("a,b,c\n1,2,3\n", "d.csv: 3 column(s), but " + TWO),
        ("a,b,c\n1,p,q\n", "d.csv: 3 column(s), but " + TWO),
        ("a,b,c\n1,2,3\n1,red,3\n", "d.csv: 3 column(s), but " + TWO),  # a slip, not a column of labels
        ("a,a\n1,2\n", "d.csv: line 1 names two columns 'a'"),
        ("0.5,0.5\n1,2\n", "d.csv: line 1 names two columns '0.5'"),
        ("0.5,0.6\n1,2\n", "d.csv: line 1 holds numbers where the columns' names belong"),
        ("5,6,7\n1,2,0\n", "d.csv: line 1 holds numbers where the columns' names belong"),
        ("a,b\n1,2\n3\n", "d.csv: line 3 has 1 cells"),
        ("a,b\n1,2\n1,red\n", "d.csv: line 3 has 'red' in column 'b'"),
        ("a,b\n1,2\n,1\n", "d.csv: line 3 has no number in column 'a', and the run knows no gaps"),
        ("a,b,label\n1,2,0\n\n1,nan,0\n", "d.csv: line 4 has no number in column 'b', and the run knows no gaps"),
        ("a,b,label\n1,red,pear\n", "d.csv: line 2 has 'red' in column 'b'"),
        ("a,b\n1,2\n3,1e300\n", "d.csv: line 3 has '1e300' in column 'b'; give finite numbers"),
        ("a,b\n1," + "1" * 200_000, "d.csv: not a readable UTF-8"),
    ],
)
def test_bad_csv(tmp_path, text, fragment):
    (tmp_path / "d.csv").write_text(text)
    read_fails(tmp_path / "d.csv", (2,), fragment)


def test_csv_of_wrong_kind(tmp_path):
    path = tmp_path / "d.csv"
    path.write_bytes(b"a,b\n\xff\xfe,1\n")
    read_fails(path, (2,), "d.csv: not a readable UTF-8")
    read_fails(path, (1, 8, 8), "d.csv: a table holds vectors, but the model takes images [1, 8, 8]; give a .npz")


@pytest.mark.parametrize("size", [0, 4, 6, 9])
@pytest.mark.parametrize("modes", [("L",), ("RGB",), ("L", "RGB"), ("RGB", "RGBA", "L")])
def test_image_folder_is_read_as_in_training(tmp_path, size, modes):
    for i, name in enumerate(("b", "b-c", "a") * 3):
        write_image(tmp_path / name / f"{i}.png", modes[i % len(modes)], (6, 5) if size == 0 else (5 + i, 7))
    write_image(tmp_path / ".cache" / "0.png")
    (tmp_path / "a" / "notes.txt").write_text("not an image")
    expected = trained_on(tmp_path, size=size)
    shape = tuple(expected.shape[1:])
    names, found = read_inputs(str(tmp_path), shape)
    assert names == [f"{c}/{i}.png" for c, first in (("a", 2), ("b", 0), ("b-c", 1)) for i in range(first, 9, 3)]
    assert_same(found, expected)
    names, found = read_inputs(str(tmp_path / "b"), shape)
    assert names == ["0.png", "3.png", "6.png"]
    assert_same(found, expected[3:6])
    names, found = read_inputs(str(tmp_path / "b" / "3.png"), shape)
    assert names == ["3.png"]
    assert_same(found, expected[4:5])


def test_images_at_every_depth(tmp_path, monkeypatch):
    for name in ("z.PNG", "deep/er/a.bmp", "deep/a.png"):
        write_image(tmp_path / name)
    (tmp_path / "deep" / "up").symlink_to(tmp_path)
    (tmp_path / "other").symlink_to(tmp_path / "deep" / "er")
    monkeypatch.setenv("HOME", str(tmp_path.parent))
    monkeypatch.chdir(tmp_path)
    for text in (str(tmp_path), ".", f"~/{tmp_path.name}/"):
        names, x = read_inputs(text, (1, 4, 7))
        assert names == ["deep/a.png", "deep/er/a.bmp", "other/a.bmp", "z.PNG"]
        assert x.shape == (4, 1, 4, 7)
        assert x.dtype == torch.uint8


def test_colour_becomes_grey(tmp_path):
    Image.new("RGB", (5, 4), (10, 20, 30)).save(tmp_path / "0.png")
    assert read_inputs(str(tmp_path), (1, 4, 5))[1].unique().tolist() == [18]  # 0.299 R + 0.587 G + 0.114 B
    Image.new("L", (5, 4), 7).save(tmp_path / "0.png")
    assert read_inputs(str(tmp_path), (3, 4, 5))[1].unique().tolist() == [7]


def test_what_is_not_looked_at_in_images_is_said(tmp_path, caplog):
    """That they are transparent; and that they are grey for a run in colour, or in colour for a grey one."""
    for name, mode in (("a/0.png", "RGB"), ("a/1.png", "RGBA"), ("b/0.png", "RGBA"), ("b/1.png", "RGB")):
        write_image(tmp_path / "clear" / name, mode)
    full = Image.new("RGBA", (6, 5), (1, 2, 3, 255))
    full.save(tmp_path / "clear" / "b" / "1.png")  # not transparent, though it might be
    load(tmp_path / "clear", select=0, test=0)
    assert f"{tmp_path}/clear/a/1.png is transparent, as are 2 of 4 images" in caplog.text
    for mode, channels, says in (("L", 3, "all images are grey"), ("RGB", 1, "looked at in grey"), ("L", 1, "")):
        write_image(tmp_path / mode / "0.png", mode)
        caplog.clear()
        read_inputs(tmp_path / mode, (channels, 5, 6))
        assert says in caplog.text
        assert bool(caplog.text) == bool(says)


def test_bad_images(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "notes.txt").write_text("not an image")
    read_fails(tmp_path, (3, 5, 6), f"{tmp_path}: no image (.png, ", "in the folder or below it; add some")
    good = tmp_path / "good.png"
    write_image(good)
    for path in (good, tmp_path):
        read_fails(path, (2, 5, 6), "images have 1 or 3 channels, but the model takes images [2, 5, 6]; give a .npz")
        read_fails(path, (30,), "but the model takes vectors [30]; give a .npz or a .csv")
    odd = tmp_path / "sub" / "odd.png"
    for content in (b"", b"no image", good.read_bytes()[:60]):
        odd.write_bytes(content)
        for path in (odd, tmp_path):
            read_fails(path, (3, 5, 6), "odd.png: not a readable 8-bit image")
    Image.new("I;16", (6, 5)).save(odd)
    read_fails(odd, (3, 5, 6), "odd.png: not a readable 8-bit image", "more than 8 bits")


def test_missing_and_unknown_files(tmp_path):
    for name in ("none.npz", "none.csv", "none.png", "none", "none.txt"):
        read_fails(tmp_path / name, (3,), f"{name}: no such file or folder; check the path")
    read_fails("", (3,), "'': no such file or folder")
    for name in ("d.dat", "d"):
        with (tmp_path / name).open("wb") as file:
            np.save(file, X)
        read_fails(
            tmp_path / name,
            (3,),
            f"{name}: not a file of inputs",
            "give a .npy, a .npz, a .csv, a .parquet, an image (.png",
        )
