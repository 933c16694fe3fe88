import itertools

import numpy as np
import pytest
from commandline import cli, refused

from polyarch.testing.toy import Lines

LINES = "polyarch.testing.toy:Lines"
TEXTS = [Lines().format(c) for c in itertools.product(range(3), range(2))]
LONG = "|nor_conv_3x3~0|+|nor_conv_3x3~0|nor_conv_3x3~1|+|skip_connect~0|nor_conv_3x3~1|nor_conv_3x3~2|"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of tables: `lines`, which is whole, and `part`, which has two of six, gaps, and a long text."""
    test_acc = np.arange(6.0) * 1_000_001  # digits enough that rounding would show
    latency = np.stack([np.arange(6.0), -np.arange(6.0)], 1)
    np.savez(
        tmp_path / "lines.npz",
        arch=np.array(TEXTS),
        test_acc=test_acc,
        zen=np.arange(6.0),
        latency_ms=latency,
        latency_devices=np.array(["phone", "watch"]),
        notes=np.array("x"),
    )
    np.savez(tmp_path / "part.npz", arch=np.array([*TEXTS[:2], LONG]), valid_acc=np.array([0.5, 0.25, np.nan]))
    monkeypatch.setenv("POLYARCH_TABLES", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


def fits(out):
    assert max(len(line) for line in out.splitlines()) <= 80
    return out


def test_info_lists_the_tables_there_are(folder):
    found = cli("table", "info", "--json").json["tables"]
    assert dict(list(found.items())[:2]) == {name: str(folder / f"{name}.npz") for name in ("lines", "part")}
    assert f"lines                    {folder / 'lines.npz'}\n" in cli("table", "info").out


def test_info_lists_those_that_come_with_the_library(monkeypatch):
    monkeypatch.delenv("POLYARCH_TABLES", raising=False)
    assert "digits-network" in cli("table", "info", "--json").json["tables"]


def test_info_of_a_table(folder):
    said = cli("table", "info", "--table", "lines", "--json").json
    assert said["table"] == str(folder / "lines.npz")
    assert said["rows"] == 6
    assert list(said["columns"]) == ["test_acc", "zen", "latency_ms[phone]", "latency_ms[watch]"]
    assert said["columns"]["latency_ms[watch]"] == {
        "split": None,
        "better": "lower",
        "about": "",
        "least": -5.0,
        "greatest": 0.0,
        "gaps": 0,
    }
    assert said["other_arrays"] == {"latency_devices": [2], "notes": []}
    out = fits(cli("table", "info", "--table", folder / "lines.npz").out)
    assert "latency_ms[...]: phone, watch" in out
    assert "other arrays: latency_devices [2], notes []" in out


def test_info_says_gaps_and_coverage(folder):
    said = cli("table", "info", "--table", "part", "--space", LINES, "--json").json
    assert said["columns"]["valid_acc"]["gaps"] == 1
    assert said["columns"]["valid_acc"]["least"] == 0.25
    assert said["space"] == LINES
    assert said["coverage"] == {"architectures": 6, "covered": 2, "missing": TEXTS[2:5], "foreign": 1}
    out = " ".join(fits(cli("table", "info", "--table", "part", "--space", LINES).out).split())
    assert "2 of 6 architectures have a row; among those without: slope=0.0,shift=0.0" in out
    assert "1 rows are of no architecture of the space" in out


def test_query_by_text_and_by_space(folder):
    ask = ("table", "query", "--table", "lines", "--column", "test_acc")
    assert cli(*ask, "--arch", TEXTS[3], "--arch", TEXTS[0], "--json").json == {
        "table": str(folder / "lines.npz"),
        "column": "test_acc",
        "split": "test",
        "better": "higher",
        "about": "",
        "values": [{"arch": TEXTS[3], "value": 3_000_003.0}, {"arch": TEXTS[0], "value": 0.0}],
    }
    other = "shift=0.5, slope=0.0"
    assert cli(*ask, "--arch", other, "--space", LINES, "--json").json["values"] == [
        {"arch": other, "value": 3_000_003.0}
    ]
    refused(*ask, "--arch", other, says=("no row for 1", other, "name their space"))
    out = fits(cli(*ask, "--arch", TEXTS[3]).out)
    assert out.startswith("test_acc: test split, higher is better\n3000003  slope=0.0,shift=0.5")


def test_query_without_a_column_gives_all(folder):
    ask = ("table", "query", "--table", "lines", "--arch", TEXTS[3])
    own = {"test_acc": 3_000_003.0, "zen": 3.0, "latency_ms[phone]": 3.0, "latency_ms[watch]": -3.0}
    first = {"test_acc": 0.0, "zen": 0.0, "latency_ms[phone]": 0.0, "latency_ms[watch]": 0.0}
    assert cli(*ask, "--arch", TEXTS[0], "--json").json == {
        "table": str(folder / "lines.npz"),
        "predicted": [],
        "values": [{"arch": TEXTS[3], "values": own}, {"arch": TEXTS[0], "values": first}],
    }
    other = "shift=0.5, slope=0.0"
    by_space = ("table", "query", "--table", "lines", "--arch", other, "--space", LINES, "--json")
    assert cli(*by_space).json["values"] == [{"arch": other, "values": own}]
    lines = [" ".join(line.split()) for line in fits(cli(*ask, "--arch", TEXTS[0]).out).splitlines()]
    assert lines[:5] == [TEXTS[3], "test_acc 3000003", "zen 3", "latency_ms[...] phone: 3, watch: -3", ""]
    assert lines[5:7] == [TEXTS[0], "test_acc 0"]
    refused("table", "query", "--table", "lines", "--arch", "nothing", says=("no row for 1", "nothing"))


def test_query_of_many_columns_is_short_but_whole_in_json(folder):
    curve = np.arange(400.0).reshape(2, 200)
    curve[1, 1] = np.nan
    np.savez(folder / "curves.npz", arch=np.array(["x", "y"]), loss=curve, acc=np.array([0.5, np.nan]))
    ask = ("table", "query", "--table", "curves", "--arch", "y")
    values = cli(*ask, "--json").json["values"][0]["values"]
    assert len(values) == 201
    assert (values["loss[0]"], values["loss[1]"], values["loss[199]"], values["acc"]) == (200, None, 399, None)
    out = fits(cli(*ask).out)
    assert " ".join(out.split()) == "y loss[...] 0: 200, 1: -, 2: 202, ..., 199: 399 acc -"


def test_best(folder):
    ask = ("table", "best", "--table", "lines", "--top", 2)
    assert [v["value"] for v in cli(*ask, "--column", "test_acc", "--json").json["values"]] == [
        5_000_005.0,
        4_000_004.0,
    ]
    assert [v["arch"] for v in cli(*ask, "--column", "latency_ms[phone]", "--json").json["values"]] == TEXTS[:2]
    refused(*ask, "--column", "zen", says=("zen", "--higher or --lower"))
    assert cli(*ask, "--column", "zen", "--higher", "--json").json["values"][0]["value"] == 5.0
    assert cli(*ask, "--column", "zen", "--lower", "--json").json["values"][0]["value"] == 0.0


def test_long_texts_fit_a_terminal_in_full(folder):
    np.savez(folder / "long.npz", arch=np.array([LONG]), acc=np.array([0.1234567891]))
    out = fits(cli("table", "best", "--table", "long", "--column", "acc").out)
    assert LONG in "".join(out.split())
    assert LONG in "".join(fits(cli("table", "info", "--table", "long").out).split())


def test_a_csv_becomes_a_table(folder):
    (folder / "own.csv").write_text("net,a,b,cost\nx,1,0.5,7\ny,2,0.75,6\n")
    out = folder / "own.npz"
    words = ("--arch", "net", "--valid", "a", "--test", "b", "--lower", "cost", "--higher", "a", "--higher", "b")
    said = cli("table", "convert", folder / "own.csv", "--out", out, *words, "--json").json
    assert {name: (c["split"], c["better"]) for name, c in said["columns"].items()} == {
        "a": ("valid", "higher"),
        "b": ("test", "higher"),
        "cost": (None, "lower"),
    }
    best = ("table", "best", "--table", "own", "--column")
    assert cli(*best, "cost", "--json").json["values"][0] == {"arch": "y", "value": 6.0}
    refused("table", "convert", folder / "own.csv", "--out", out, "--arch", "net", says="exists already")


def test_what_is_refused(folder):
    (folder / "twice.csv").write_text("arch,acc\nx,1\nx,2\n")
    np.savez(folder / "twice.npz", arch=np.array(["x", "y", "x"]), acc=np.arange(3))
    query = ("table", "query", "--column", "test_acc", "--arch", TEXTS[0])
    cases = [
        (("table",), "Missing command"),
        (("table", "info", "--space", LINES), "--space without --table"),
        (("table", "info", "--table", "lnes"), "did you mean 'lines'?"),
        (("table", "info", "--table", "./absent.npz"), "no such table"),
        (("table", "info", "--table", "twice"), "'x' in rows 0, 2"),
        (("table", "info", "--table", "lines", "--space", "dept"), "did you mean 'depth'?"),
        (("table", "info", "--table", "lines", "--space", "depth"), "none of its 6 rows is of the space 'depth'"),
        (("table", "best", "--table", "lines", "--column", "test_ac"), "did you mean 'test_acc'?"),
        (("table", "best", "--table", "lines", "--column", "test_acc", "--top", "0"), "top is 0"),
        (("table", "best", "--table", "part", "--column", "valid_acc"), "no finite number in 1 of its 3 rows"),
        ((*query, "--table", "part"), "unknown column"),
        ((*query, "--table", "lines", "--arch", "slope=2", "--space", LINES), "says nothing of shift"),
        (
            ("table", "convert", folder / "twice.csv", "--out", folder / "new.npz"),
            "line 3 has the architecture of line 2",
        ),
        (("table", "convert", folder / "none.csv", "--out", folder / "new.npz"), "no such file"),
    ]
    for words, says in cases:
        refused(*words, says=says)
    assert not (folder / "new.npz").exists()
    only = ("table", "query", "--table", "part", "--column", "acc", "--arch", TEXTS[5], "--space", LINES)
    np.savez(folder / "part.npz", arch=np.array(TEXTS[:2]), acc=np.zeros(2))
    refused(*only, says=("no row for 1", TEXTS[5], "table info --space lines"))
