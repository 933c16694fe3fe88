"""`predict` on many inputs: part by part as all at once, to a file that is there as a whole or not at all."""

import csv
import json

import numpy as np
import pytest
from commandline import TINY, cli, refused

import polyarch as pa
from polyarch import files

X = np.random.default_rng(0).normal(size=(2500, 2)).astype(np.float32)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("predict") / "run"
    assert cli("search", *TINY, "--out", out, "--no-plain").code == 0
    return out


def test_many_inputs_to_a_file(run, tmp_path):
    np.save(tmp_path / "x.npy", X)
    asked = ("predict", run, "--inputs", tmp_path / "x.npy")
    printed = cli(*asked)
    assert printed.code == 0, printed.err
    rows = cli(*asked, "--json").json["predictions"]
    said = pa.open_run(run).predict(X)
    assert [row["input"] for row in rows] == [str(k) for k in range(len(X))]
    assert [row["entropy"] for row in rows] == said.entropy.tolist()
    written = cli(*asked, "--out", tmp_path / "said.csv")
    assert written.out == f"{tmp_path / 'said.csv'}: 2,500 predictions\n"
    assert (tmp_path / "said.csv").read_text() == printed.out
    lines = list(csv.DictReader(printed.out.splitlines()))
    assert [float(line["probability"]) for line in lines] == [row["probability"] for row in rows]
    told = json.loads(cli(*asked, "--out", tmp_path / "said.csv", "--json").out)
    assert (told["inputs"], told["out"]) == (2500, str(tmp_path / "said.csv"))
    assert "predictions" not in told


def test_a_file_is_whole_or_not_there(run, tmp_path, monkeypatch):
    bad = X.copy()
    bad[2400, 0] = np.inf
    np.save(tmp_path / "x.npy", bad)
    (tmp_path / "said.csv").write_text("as it was")
    asked = ("predict", run, "--inputs", tmp_path / "x.npy", "--out", tmp_path / "said.csv")
    refused(*asked, says="[2048:][352, 0] is inf")
    assert (tmp_path / "said.csv").read_text() == "as it was"
    np.save(tmp_path / "x.npy", 30 * X * (np.arange(2500) > 2000)[:, None] + X)
    refused(*asked[:-1], tmp_path / "nowhere" / "said.csv", says="cannot write")
    monkeypatch.setattr(files.os, "fsync", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    refused(*asked, says="no room left to write")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["said.csv", "x.npy"]
    assert (tmp_path / "said.csv").read_text() == "as it was"
