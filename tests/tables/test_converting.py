import numpy as np
import pytest

from polyarch import PolyarchError
from polyarch.tables import convert, open_table

CSV = 'net,"a, val",speed,final\n"op(1, 2)",0.25,3,1e-3\n"op(2, 1)",-0.5,4,7\n\n'


def write(folder, text):
    path = folder / "t.csv"
    path.write_text(text, encoding="utf-8-sig")
    return path


def test_a_csv_becomes_a_table_that_says_what_its_columns_are(tmp_path):
    out = tmp_path / "t.npz"
    table = convert(write(tmp_path, CSV), out, arch="net", test=["final"], lower=["final"], higher=["speed"])
    assert open_table(out).columns == table.columns
    assert table.architectures == ("op(1, 2)", "op(2, 1)")
    assert table.whole("a, val").tolist() == [0.25, -0.5]
    assert table.whole("final").tolist() == [0.001, 7.0]
    assert {name: (c.split, c.better) for name, c in table.columns.items()} == {
        "a, val": ("valid", None),
        "speed": (None, "higher"),
        "final": ("test", "lower"),
    }
    with np.load(out, allow_pickle=False) as content:
        assert sorted(content.files) == ["a, val", "arch", "columns", "final", "speed"]
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["t.csv", "t.npz"]


@pytest.mark.parametrize("name", ["arch", "module_hash"])
def test_the_column_of_texts_has_a_usual_name(tmp_path, name):
    table = convert(write(tmp_path, f"acc,{name}\n1,x\n2,y\n"), tmp_path / "t.npz")
    assert table.architectures == ("x", "y")
    assert list(table.columns) == ["acc"]


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("arch,acc\nx,1\ny,2\nx,3\n", {}, "line 4 has the architecture of line 2, 'x'; keep one"),
        ("arch,acc\nx,1\ny,good\n", {}, "line 3 has 'good' in column 'acc', no finite number"),
        ("arch,acc\nx,1\ny,\n", {}, "line 3 has '' in column 'acc', no finite number"),
        ("arch,acc\nx,1\ny,nan\n", {}, "line 3 has 'nan' in column 'acc', no finite number"),
        ("arch,acc\nx,1\n ,2\n", {}, "line 3 has no architecture in column 'arch'"),
        ("arch,acc\nx,1,2\n", {}, "line 2 has 3 cells where the header has 2"),
        ("arch,acc\n", {}, "no line of data under the header"),
        ("arch,acc,acc\nx,1,2\n", {}, "line 1 names two columns 'acc'"),
        ("arch\nx\n", {}, "line 1 has no column besides the architectures"),
        ("arch,columns\nx,1\n", {}, "line 1 has a column called 'columns', which no column of a table may be"),
        ("arch,file\nx,1\n", {}, "line 1 has a column called 'file'"),
        ("arch,\nx,1\n", {}, "line 1 has a column called ''"),
        ("net,acc\nx,1\n", {}, "unknown column of architectures 'arch'; .*; name it with --arch"),
        ("arch,acc\nx,1\n", {"arch": "rch"}, "unknown column of architectures 'rch'; did you mean 'arch'"),
        ("arch,acc\nx,1\n", {"test": ["ac"]}, "--test: unknown column 'ac'; did you mean 'acc'"),
        ("arch,acc\nx,1\n", {"lower": ["arch"]}, "--lower: unknown column 'arch'"),
        ("arch,acc\nx,1\n", {"test": ["acc"], "valid": ["acc"]}, "'acc' is given to --valid and --test"),
        ("arch,acc\nx,1\n", {"lower": ["acc"], "higher": ["acc"]}, "'acc' is given to --higher and --lower"),
        ("", {}, "the file is empty"),
    ],
)
def test_what_is_refused_leaves_nothing(tmp_path, text, options, message):
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(PolyarchError, match=message) as failed:
        convert(path, tmp_path / "t.npz", **options)
    assert "\n" not in str(failed.value)
    assert not (tmp_path / "t.npz").exists()


def test_out_must_be_new_and_a_table(tmp_path):
    path = write(tmp_path, "arch,acc\nx,1\n")
    (tmp_path / "old.npz").write_bytes(b"old")
    with pytest.raises(PolyarchError, match=r"old.npz: it exists already; choose another"):
        convert(path, tmp_path / "old.npz")
    assert (tmp_path / "old.npz").read_bytes() == b"old"
    with pytest.raises(PolyarchError, match=r"a table is a .npz file"):
        convert(path, tmp_path / "t.csv2")
    with pytest.raises(PolyarchError, match=r"cannot write .*; choose another --out"):
        convert(path, tmp_path / "nowhere" / "t.npz")
