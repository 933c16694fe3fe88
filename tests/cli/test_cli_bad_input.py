"""Bad input is one line on standard error and exit code 2; nothing is left behind, nothing old is touched."""

import numpy as np
import pytest
from commandline import TINY, cli, files, refused
from PIL import Image

X = np.random.default_rng(0).normal(size=(20, 3))
Y = np.arange(20) % 2
NAN, INFINITE = X.copy(), X.copy()
NAN[7, 2], INFINITE[0, 0] = np.nan, np.inf


@pytest.fixture
def out(tmp_path):
    """Where a run would go, which must not exist afterwards."""
    folder = tmp_path / "deep" / "run"
    yield folder
    assert not folder.exists()


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"x": X}, "no array y"),
        ({"x": X, "y": Y[:-1]}, ("20 examples", "19", "give one y for every x")),
        ({"x": INFINITE, "y": Y}, ("x[0, 0] is inf", "finite")),
        ({"x": X, "y": Y * 1e12}, ("y[1] is 1", "labels run from 0")),
        ({"x": X, "y": np.where(Y, np.nan, 0)}, ("y[1] is nan", "needs a label")),
        ({"x": X, "y": Y * 0}, ("all labels are 0", "two classes")),
        ({"x": X.astype(object), "y": Y}, ("plain arrays", "without object arrays")),
        ({"x": X, "y": np.array([{}] * 20)}, ("plain arrays", "without object arrays")),
        ({"x": X.astype(str), "y": Y}, "give numbers"),
        ({"x": X[:0], "y": Y[:0]}, "has the shape [0, 3]"),
        ({"x": X, "y": Y, "x_test": X}, "no array y_test"),
        ({"x": X[:4], "y": Y[:4]}, "leave fewer than 2 for training; lower test or select"),
    ],
)
def test_arrays(tmp_path, out, arrays, says):
    np.savez(tmp_path / "d.npz", **arrays)
    settings = ("--set", "select=2", "--set", "test=1") if len(arrays["x"]) == 4 else ()
    refused("search", "--data", tmp_path / "d.npz", *settings, "--out", out, says=says)


def test_files_that_are_missing_empty_truncated_or_of_another_kind(tmp_path, out):
    np.savez(tmp_path / "whole.npz", x=X, y=Y)
    whole = (tmp_path / "whole.npz").read_bytes()
    contents = {
        "empty.npz": b"",
        "empty.csv": b"",
        "cut.npz": whole[: len(whole) // 2],
        "flipped.npz": whole[:300] + bytes([whole[300] ^ 1]) + whole[301:],
        "text.npz": b"hello",
        "binary.csv": b"\xff\xfe\x00a,label\n",
        "header.csv": b"a,label\n",
        "ragged.csv": b"a,label\n1,0\n2,1,3\n",
        "words.csv": b"a,label\n1,0\nmany,1\n",
        "nolabel.csv": b"a,label\n1,0\n2,\n",
        "columns.csv": b"a,lable\n1,0\n2,1\n",
        "notes.txt": b"x",
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    for name in [*contents, "absent.npz", "absent.csv", "absent/folder"]:
        said = refused("search", "--data", tmp_path / name, "--out", out)
        assert name in said.err or "absent" in said.err
    assert "such as --set label=lable" in cli("search", "--data", tmp_path / "columns.csv", "--out", out).err


def test_a_table_says_its_columns_where_the_label_is_not_told(tmp_path, out):
    (tmp_path / "people.csv").write_text("age,income,has bought\n1,2,yes\n3,4,no\n")
    says = ("no column 'label'", "its columns are age, income, has bought;", "--set label='has bought' (label='has bou")
    refused("search", "--data", tmp_path / "people.csv", "--out", out, says=says)
    assert "did you mean" not in cli("search", "--data", tmp_path / "people.csv", "--out", out).err
    wide = ",".join(f"x{k}" for k in range(100))
    (tmp_path / "wide.csv").write_text(f"{wide}\n{wide.replace('x', '')}\n")
    refused("search", "--data", tmp_path / "wide.csv", "--out", out, says=("x11 and 88 more", "--set label=x99"))


def test_images_that_are_broken_or_differ(tmp_path, out):
    for name in ("cat", "dog"):
        (tmp_path / "images" / name).mkdir(parents=True)
        for i in range(10):
            Image.new("L", (8, 8), i).save(tmp_path / "images" / name / f"{i}.png")
    odd = tmp_path / "images" / "dog" / "5.png"
    for content, says in ((b"", "not a readable 8-bit image"), (odd.read_bytes()[:40], "replace or remove the file")):
        odd.write_bytes(content)
        refused("search", "--data", tmp_path / "images", "--out", out, says=(str(odd), says))
    Image.new("L", (9, 8)).save(odd)
    listed = ("--set", "by_data=false")  # else they are scaled to one size
    refused("search", "--data", tmp_path / "images", "--out", out, *listed, says=("is 9x8", "set size"))
    refused("search", "--data", tmp_path / "images" / "cat", "--out", out, says="in a folder of its own")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--space", "dept"), "unknown space 'dept'; did you mean 'depth'?"),
        (("--method", "variational-dept"), "did you mean 'variational-depth'?"),
        (("--data", "digit"), "unknown data 'digit'; did you mean 'digits'?"),
        (("--set", "max_dept=3"), "unknown setting 'max_dept'; did you mean 'max_depth'?"),
        (("--set", "space.widht=3"), "unknown setting of space 'widht'; did you mean 'width'?"),
        (("--set", "rate=0.1"), "the setting rate is now called weights.lr"),
        (("--set", "stopping.split=selct"), "did you mean 'select'?"),
        (("--set", "prior=unifrm"), "did you mean 'uniform'?"),
        (("--set", "selection=argmx"), "did you mean 'argmax'?"),
        (("--set", "rate"), "--set rate: write NAME=VALUE"),
        (("--set", "=1"), "unknown setting ''"),
        (("--set", "epochs="), "needs a whole number, not ''"),
        (("--set", "epochs=1.5"), "needs a whole number, not '1.5'"),
        (("--set", "weights.lr=fast"), "needs a number, not 'fast'"),
        (("--set", "weights.lr=nan"), "must be a finite number"),
        (("--set", "weights.lr=1e999"), "must be a finite number"),
        (("--set", "weights.lr=0"), "lr is 0.0; it must be above 0"),
        (("--set", "momentum=1"), "momentum is 1.0; it must be at least 0 and below 1"),
        (("--set", "epochs=0"), "epochs is 0; it must be at least 1"),
        (("--set", "batch_size=-3"), "batch_size is -3; it must be at least 1"),
        (("--set", "max_depth=-1"), "max_depth is -1"),
        (("--set", "width=-1"), "width is -1"),
        (
            ("--set", "width=2000000"),
            "not enough memory; start a new search with a lower batch_size, max_depth or width",
        ),
        (
            ("--set", "width=100000000000000000000"),
            "not enough memory; start a new search with a lower batch_size, max_depth or width",
        ),
        (("--set", "select=0.9999"), "lower test or select"),
        (("--set", "select=-1"), "select=-1.0 is out of range"),
        (("--set", "valid=0.2"), "the setting valid is now called select"),
        (("--set", "data.valid=0.2"), "the setting valid is now called select"),
        (("--set", "split_seed=-1"), "split_seed is -1"),
        (("--set", "stopping.split=select", "--set", "select=0"), "stopping.split=select needs a validation split"),
        (("--set", "prior=exponential(2)"), "0 < gamma <= 1"),
        (("--set", "prior=exponential(x)"), "gamma must be a number"),
        (("--set", "block=linear", "--set", "stem_kernel=0"), "stem_kernel is 0"),
        (("--set", "stem_kernel=9"), "too small for stem_kernel=9"),
        (("--data", "spirals", "--set", "points=3"), "points is 3"),
        (("--data", "spirals", "--set", "block=conv"), "block=conv needs images"),
        (("--data", "spirals", "--set", "noise_kind=loud"), "value of Spirals.noise_kind"),
        (("--seed", "-1"), "seed must be 0 or more"),
        (("--repeats", "0"), "repeats must be 1 or more"),
        (("--device", "tpu"), "device must be auto, cpu, cuda or"),
        (("--method", "fixed-depth", "--set", "depth=30"), "depth=30 is beyond depth=20, the last of this space"),
        (("--baselines", "1,x"), ("'x' is no depth of this space", "write some of 0, 1, 2")),
        (("--baselines", "-1"), "'-1' is no depth of this space"),
        (("--baselines", "1,30"), "'30' is no depth of this space"),
    ],
)
def test_names_and_values(out, arguments, says):
    refused("search", *arguments, "--out", out, says=says)


def test_a_name_in_several_groups_must_be_qualified(out):
    arguments = ("--data", "spirals", "--method", "polyarch.testing.toy:EnumeratedElbo", "--out", out)
    refused("search", *arguments, "--set", "noise=0.1", says="write data.noise or method.noise")
    refused("search", *arguments, "--set", "data.noise=-1", says="noise is -1.0")


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("no_such_package:Thing", "is its package installed or on PYTHONPATH?"),
        ("own.nothing:Thing", "cannot import"),
        ("own:Thing", "module 'own' has no 'Thing'; write spaces as package.module:ClassName"),
        ("own:VALUE", "is not a class"),
        ("own:NoSpace", ("is no space", "polyarch.spaces.base.Space")),
        ("own:Unfinished", ("is no space", "all its methods")),
        ("own_broken:Thing", ("cannot import", "SyntaxError", "own_broken.py, line 1")),
        ("own_raising:Thing", ("cannot import", "ZeroDivisionError", "mend its module")),
        ("polyarch.testing.toy:EnumeratedElbo", "is no space"),
        (":", "cannot import"),
    ],
)
def test_own_classes_that_do_not_import(tmp_path, monkeypatch, out, path, says):
    (tmp_path / "own.py").write_text(
        "from polyarch.spaces.base import Space\n"
        "VALUE = 1\n"
        "class NoSpace: pass\n"
        "class Unfinished(Space): name = 'unfinished'\n"
    )
    (tmp_path / "own_broken.py").write_text("def\n")
    (tmp_path / "own_raising.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    refused("search", "--space", path, "--out", out, says=says)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("search",), "Missing option '--out'"),
        (("search", "--out"), "requires an argument"),
        (("search", "--out", "x", "--bogus"), "No such option: --bogus"),
        (("search", "--out", "x", "--sed", "1"), "--seed"),
        (("search", "--out", "x", "--seed", "one"), "Invalid value for '--seed'"),
        (("search", "--out", "x", "extra"), "extra"),
        (("show",), "Missing argument 'RUN' (see `polyarch show --help`)"),
        (("table", "query"), "(see `polyarch table query --help`)"),
        (("serach",), "Did you mean 'search'? (see `polyarch --help`)"),
        (("predict", "x"), "Missing option '--inputs'"),
        (("doctor", "--repeats", "0"), "Invalid value for '--repeats'"),
        (("serch",), "search"),
    ],
)
def test_usage(tmp_path, monkeypatch, arguments, says):
    monkeypatch.chdir(tmp_path)
    refused(*arguments, says=says)
    assert not list(tmp_path.iterdir())


def test_no_arguments_print_the_help():
    assert cli().out == cli("--help").out != ""


def test_a_folder_that_is_not_free(tmp_path, finished):
    before = files(finished)
    refused("search", *TINY, "--seed", 9, "--out", finished, says=("already holds a run", "choose another --out"))
    assert files(finished) == before

    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    before = files(tmp_path)
    for out in ("notes", "file"):
        refused("search", *TINY, "--out", tmp_path / out, says=("not an empty folder", "choose another --out"))
    refused("search", *TINY, "--out", tmp_path / "file" / "run", says=("cannot write", "choose another --out"))
    refused("search", *TINY, "--out", "/proc/polyarch/run", says=("cannot write", "choose another --out"))
    refused("search", *TINY, "--out", tmp_path / ("long" * 100), says="File name too long")
    assert files(tmp_path) == before


def test_what_a_search_leaves_that_was_killed_before_it_began_is_no_run(tmp_path):
    out = tmp_path / "run"
    out.mkdir()
    (out / "lock").touch()
    (out / ".config.json.123.part").write_text("{")
    refused("search", "--resume", "--out", out, says="holds no run")
    assert cli("search", *TINY, "--out", out).code == 0
    assert not list(out.glob(".*"))


def test_folders_that_hold_no_run(tmp_path, finished):
    np.savez(tmp_path / "x.npz", x=np.zeros((2, 2)))
    verbs = (("show",), ("evaluate",), ("predict", "--inputs", tmp_path / "x.npz"), ("report",))
    for verb, *options in verbs:
        for folder in (tmp_path, tmp_path / "absent", tmp_path / "x.npz"):
            refused(verb, folder, *options, says=("holds no run", "give the folder"))
    refused("search", "--resume", "--out", tmp_path, says="holds no run")
    refused("report", finished, "--baseline", tmp_path, says="holds no run")


def test_a_baseline_of_other_data_is_what_is_wrong(tmp_path, finished):
    before = files(finished)
    assert cli("search", *TINY, "--set", "points=50", "--no-plain", "--out", tmp_path / "other").code == 0
    says = (f"the baseline {tmp_path / 'other'} was trained on other data (spirals) than {finished}",)
    refused("report", finished, "--baseline", tmp_path / "other", says=says)
    assert files(finished) == before


def test_unfinished_runs_say_how_to_go_on(tmp_path, interrupted):
    np.savez(tmp_path / "x.npz", x=np.zeros((2, 2)))
    before = files(interrupted)
    for verb, *options in (("show",), ("evaluate",), ("predict", "--inputs", tmp_path / "x.npz"), ("report",)):
        refused(verb, interrupted, *options, says=f"run `polyarch search --resume --out {interrupted}`")
    assert files(interrupted) == before


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("absent.npz", None, "no such file"),
        ("empty.npz", b"", "the file is empty"),
        ("text.npz", b"hello", "not a readable .npz file"),
        ("numbers.csv", b"5,7\n3,4\n", "add a line of names"),
        ("wide.csv", b"a,b,c,d\n1,2,3,4\n", "the model takes 2 feature(s)"),
        ("nan.csv", b"a,b\n1,nan\n", "no number in column 'b'"),
        ("image.png", b"x", "give a .npz or a .csv"),
        ("notes.txt", b"x", "not a file of inputs"),
    ],
)
def test_inputs_to_predict(tmp_path, finished, name, content, says):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    refused("predict", finished, "--inputs", tmp_path / name, says=says)


def test_arrays_to_predict(tmp_path, finished):
    for x, says in ((X, "the model takes vectors [2]"), (NAN[:, 1:], "x[7, 1] is nan")):
        np.savez(tmp_path / "x.npz", x=x)
        refused("predict", finished, "--inputs", tmp_path / "x.npz", says=says)


def test_evaluate_takes_only_data_and_rules_that_fit(tmp_path, finished):
    refused("evaluate", finished, "--data", "digits", says=("this run is for (2,)", "give data of that shape"))
    refused("evaluate", finished, "--select", "best", says="unknown selection rule 'best'")
    (tmp_path / "d.csv").write_text("a,b,label\n" + "\n".join(f"{i},{i},{'ab'[i % 2]}" for i in range(9)))
    refused("evaluate", finished, "--data", tmp_path / "d.csv", says=("label[0] is 'a'", "the classes are 0, 1"))
