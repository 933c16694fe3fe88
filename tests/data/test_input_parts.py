"""Inputs of any length: read part by part they are what they are read as a whole, in memory that does not grow."""

import tracemalloc

import numpy as np
import pytest
import torch
from PIL import Image

from polyarch.data.inputs import input_parts, read_inputs, said_once
from polyarch.data.kinds import Inputs
from polyarch.data.vocabulary import Column, Columns
from polyarch.errors import PolyarchError

X = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
VECTORS = Inputs((3,), "numbers", (-5.0,), (5.0,))
TABLE = Inputs(
    (2,), "numbers", (0.0, 0.0), (50.0, 2.0), Columns((Column("size"), Column("kind", "category", ("a", "b"))), "label")
)


def write_table(path, rows, bad=None):
    lines = [f"{'x' if k == bad else k % 50},{'abc'[k % 3]}" for k in range(rows)]
    path.write_text("\n".join(["size,kind", *lines]))
    return path


def written(folder):
    """The same inputs in every sort of file, and what they are inputs like."""
    np.save(folder / "x.npy", X)
    np.save(folder / "turned.npy", np.asfortranarray(X))
    np.savez(folder / "x.npz", y=np.arange(50), x=X)
    np.savez_compressed(folder / "small.npz", X.astype(">f8"))
    np.savetxt(folder / "x.csv", X, header="a,b,c", delimiter=",", comments="")
    (folder / "images" / "b").mkdir(parents=True)
    for k in range(7):
        Image.fromarray(np.full((4, 4), k, np.uint8)).save(folder / "images" / ("b" if k % 2 else "") / f"{k}.png")
    write_table(folder / "table.csv", 50)
    found = dict.fromkeys(("x.npy", "turned.npy", "x.npz", "small.npz", "x.csv"), VECTORS)
    return found | {"images": Inputs((1, 4, 4), "bytes", (0.0,), (255.0,)), "table.csv": TABLE}


def test_parts_are_the_whole(tmp_path):
    pytest.importorskip("pyarrow")
    from pyarrow import csv, parquet

    kinds = written(tmp_path)
    parquet.write_table(csv.read_csv(tmp_path / "table.csv"), tmp_path / "table.parquet", row_group_size=20)
    for name, like in {**kinds, "table.parquet": TABLE}.items():
        names, x = read_inputs(str(tmp_path / name), like)
        for most in (1, 8, 50, 1000):
            found = input_parts(str(tmp_path / name), like, most)
            for _ in range(2):  # as often as wanted
                parts = list(found)
                assert all(len(part) == most for part, _ in parts[:-1]), name
                assert [one for part, _ in parts for one in part] == names
                assert torch.equal(torch.cat([part for _, part in parts]).nan_to_num(-9), x.nan_to_num(-9))
            assert found.total in (None, len(x))


def test_what_is_wrong_is_said_where_it_is(tmp_path):
    bad = X.copy()
    bad[33, 1] = np.nan
    np.save(tmp_path / "x.npy", bad)
    write_table(tmp_path / "table.csv", 50, bad=33)
    whole = np.load(tmp_path / "x.npy").tobytes()
    np.save(tmp_path / "cut.npy", X)
    (tmp_path / "cut.npy").write_bytes((tmp_path / "cut.npy").read_bytes()[: -len(whole) // 3])
    for name, like, says in (
        ("x.npy", VECTORS, r"the array\[30:\]\[3, 1\] is nan"),
        ("table.csv", TABLE, "line 35 has 'x' in column 'size'"),
        ("cut.npy", VECTORS, "it ends before its last row"),
    ):
        parts = iter(input_parts(str(tmp_path / name), like, 10))
        assert [len(next(parts)[0]) for _ in range(3)] == [10, 10, 10]
        with pytest.raises(PolyarchError, match=says):
            list(parts)


def test_what_is_new_is_said_once(tmp_path, caplog):
    write_table(tmp_path / "table.csv", 50)
    assert len(list(said_once(iter(input_parts(str(tmp_path / "table.csv"), TABLE, 10))))) == 5
    [record] = caplog.records
    assert "column 'kind' has 'c', which no training example had, in 3 of 10 rows" in record.getMessage()


def test_nothing_pickled_is_read(tmp_path):
    np.save(tmp_path / "x.npy", np.array([None, {}]), allow_pickle=True)
    np.savez(tmp_path / "x.npz", x=np.array([None, {}]))
    for name in ("x.npy", "x.npz"):
        with pytest.raises(PolyarchError, match="not a readable"):
            read_inputs(str(tmp_path / name), VECTORS)


def test_memory_does_not_grow_with_the_file(tmp_path):
    large = np.lib.format.open_memmap(tmp_path / "x.npy", mode="w+", dtype=np.float32, shape=(400_000, 3))
    large.flush()
    np.savez(tmp_path / "x.npz", x=large)
    write_table(tmp_path / "table.csv", 30_000)

    def peak(name, like):
        tracemalloc.start()
        for _ in input_parts(str(tmp_path / name), like, 1024):
            pass
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found / 2**20

    for name, like in (("x.npy", VECTORS), ("x.npz", VECTORS), ("table.csv", TABLE)):
        assert peak(name, like) < 2, name  # MiB, of files of 5 MB, and of a table that is 10 MB as Python's texts
