"""A run knows its inputs: columns go by their names, and what is on another scale is refused."""

import csv
import json
import shutil
from collections.abc import Mapping

import numpy as np
import pytest
import torch
from commandline import SMALL, check_one_line, cli, files, refused

import polyarch as pa

RNG = np.random.default_rng(0)
NAMES = ("width", "height", "weight")
"""Of one column the numbers are large, so that an answer says whether columns were mixed up."""


def rows(n=90):
    """A table of three columns by name, and which class each row is of: all depends on the first."""
    kind = RNG.integers(0, 2, n)
    table = {"width": 4.0 * kind + RNG.normal(size=n), "height": RNG.normal(size=n), "weight": 50 + RNG.normal(size=n)}
    return {name: [repr(float(v)) for v in values] for name, values in table.items()}, ["no", "yes"], kind


TABLE, CLASSES, KIND = rows()


def write(path, columns: Mapping[str, list[str]], delimiter=","):
    with path.open("w", newline="") as file:
        writer = csv.writer(file, delimiter=delimiter)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return path


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with a run on `train.csv`, whose cells are separated by semicolons and whose label is `kind`."""
    folder = tmp_path_factory.mktemp("columns")
    labels = {"kind": [CLASSES[k] for k in KIND]}
    write(folder / "train.csv", {**TABLE, **labels}, ";")
    asked = ("--set", "label=kind", "--set", "delimiter=;", "--set", "epochs=12", "--set", "weights.lr=0.05")
    assert cli("search", "--data", folder / "train.csv", *SMALL, *asked, "--out", folder / "run").code == 0
    return folder


def predictions(home, path):
    return cli("predict", home / "run", "--inputs", path, "--json").json["predictions"]


@pytest.fixture(scope="module")
def plain(home):
    """What the run says of its own table."""
    return predictions(home, write(home / "plain.csv", TABLE, ";"))


def test_a_run_keeps_what_its_inputs_are(home):
    kept = json.loads((home / "run" / "config.json").read_text())["data"]["inputs"]
    assert kept["shape"] == [3]
    assert kept["type"] == "numbers"
    columns = kept["columns"]
    assert [(column["name"], column["holds"], column["gaps"]) for column in columns["columns"]] == [
        (name, "number", False) for name in NAMES
    ]
    assert (columns["label"], columns["delimiter"], columns["missing"]) == ("kind", ";", [])
    numbers = torch.cat([split.x for split in pa.open_run(home / "run").task().splits.values()])
    for name, bound in (("low", numbers.amin(0)), ("high", numbers.amax(0))):
        assert kept[name] == bound.tolist()


def test_columns_are_found_by_name(home, plain, tmp_path):
    """Reversed columns changed an accuracy from 0.99 to 0.37, with exit status 0."""
    right = [row["class"] == CLASSES[k] for row, k in zip(plain, KIND, strict=True)]
    assert sum(right) > 0.9 * len(right), "the run has learnt nothing, so that nothing is shown"
    turned = {name: TABLE[name] for name in reversed(NAMES)}
    assert predictions(home, write(tmp_path / "turned.csv", turned, ";")) == plain
    labelled = {"kind": [CLASSES[k] for k in KIND]} | turned
    own = cli("evaluate", home / "run", "--data", write(tmp_path / "own.csv", TABLE | labelled, ";"), "--json").json
    found = cli("evaluate", home / "run", "--data", write(tmp_path / "other.csv", labelled, ";"), "--json").json
    assert found["metrics"] == own["metrics"]
    found = cli("evaluate", home / "run", "--ood", tmp_path / "turned.csv", "--json").json["ood"]
    plainly = cli("evaluate", home / "run", "--ood", home / "plain.csv", "--json").json["ood"]
    assert found | {"data": ""} == plainly | {"data": ""}


def test_what_is_left_over_is_said(home, plain, tmp_path):
    extra = {"name": ["", "a b"] * 45, **TABLE, "kind": ["yes"] * 90}
    said = cli("predict", home / "run", "--inputs", write(tmp_path / "more.csv", extra, ";"), "--json")
    assert said.json["predictions"] == plain
    assert "polyarch: " in said.err
    assert "more.csv: columns 'name', 'kind' left over" in said.err
    labelled = {"kind": [CLASSES[k] for k in KIND], **TABLE, "note": ["x"] * 90}
    said = cli("evaluate", home / "run", "--data", write(tmp_path / "notes.csv", labelled, ";"), "--json")
    assert said.code == 0
    check_one_line(said.err, ("notes.csv: column 'note' left over",))


def test_a_column_in_another_unit_is_said(home, tmp_path):
    """Rightly so, it may be; but not without a word."""
    grams = TABLE | {"weight": [repr(1000 * float(cell)) for cell in TABLE["weight"]]}
    path = write(tmp_path / "grams.csv", grams, ";")
    said = cli("predict", home / "run", "--inputs", path)
    assert said.code == 0
    assert "column 'weight' far from all that the run has seen; are the units the same?" in said.err
    labelled = write(path, grams | {"kind": [CLASSES[k] for k in KIND]}, ";")
    said = cli("evaluate", home / "run", "--data", labelled)
    assert said.code == 0
    check_one_line(said.err, "column 'weight' far from all")


def test_missing_columns_are_refused_by_name(home, tmp_path):
    before = files(home)
    some = write(tmp_path / "some.csv", {"kind": ["no"] * 90, "width": TABLE["width"]}, ";")
    for asked in (("predict", "--inputs"), ("evaluate", "--data"), ("evaluate", "--ood")):
        refused(asked[0], home / "run", *asked[1:], some, says=("some.csv: no columns 'height', 'weight'", "'kind'"))
    commas = write(tmp_path / "commas.csv", TABLE)
    refused("predict", home / "run", "--inputs", commas, says=("no columns 'width', 'height', 'weight'", "separate"))
    several = {f"c{k}": ["1"] for k in range(20)}
    refused("predict", home / "run", "--inputs", write(tmp_path / "l.csv", several, ";"), says="'c7' and 12 more")
    (tmp_path / "twice.csv").write_text("width;width;height;weight\n1;2;3;4\n")
    refused("predict", home / "run", "--inputs", tmp_path / "twice.csv", says="names two columns 'width'")
    assert files(home) == before


def test_advice_for_a_run_is_about_its_data_and_not_about_settings(home, tmp_path):
    unlabelled = write(tmp_path / "unlabelled.csv", TABLE, ";")
    told = refused("evaluate", home / "run", "--data", unlabelled, says=("no column 'kind', which the run predicts",))
    assert "--set" not in told.err
    wrong = write(tmp_path / "wrong.csv", TABLE | {"width": ["wide", *TABLE["width"][1:]]}, ";")
    told = refused("predict", home / "run", "--inputs", wrong, says=("line 2 has 'wide'", "leave the cell empty"))
    assert "missing=" not in told.err


@pytest.mark.parametrize("seed", range(40))
def test_no_change_of_columns_changes_a_prediction_silently(home, plain, tmp_path, seed):
    """Columns are shuffled, added, dropped, renamed and written in other ways: answers are the same, or refused."""
    random = np.random.default_rng(seed)
    columns = dict(TABLE)
    lost, added = set(), set()
    for _ in range(random.integers(1, 5)):
        present = [name for name in NAMES if name in columns]
        name = random.choice(present) if present else None
        match random.integers(0, 7):
            case 0 if name:
                del columns[name]
                lost.add(name)
            case 1 if name:
                columns[f"{name}2"] = columns.pop(name)
                lost.add(name)
                added.add(f"{name}2")
            case 2:
                own = f"extra{random.integers(100)}"
                columns[own] = [random.choice(["", "red", "1", "nan", "1e400"]) for _ in KIND]
                added.add(own)
            case 3:
                columns["kind"] = [random.choice([*CLASSES, ""]) for _ in KIND]
                added.add("kind")
            case 4 if name and name not in lost:
                columns[name] = [f" {float(cell):.20e} " for cell in columns[name]]
            case 5 if name and name not in lost:
                columns[name] = [random.choice(["true", "high", "1,5", "", "inf"]), *columns[name][1:]]
                lost.add(name)
            case _:
                columns = {name: columns[name] for name in random.permutation(list(columns))}
    path = write(tmp_path / "changed.csv", columns, ";")
    if lost:
        refused("predict", home / "run", "--inputs", path, says="changed.csv:")
        return
    said = cli("predict", home / "run", "--inputs", path, "--json")
    assert said.json["predictions"] == plain
    assert all(repr(name) in said.err for name in added)
    assert ("left over" in said.err) == bool(added)


def on(tmp_path, x):
    """A run on these inputs."""
    np.savez(tmp_path / "own.npz", x=x, y=np.arange(len(x)) % 2)
    quick = ("--set", "epochs=1", "--set", "batch_size=32")
    assert cli("search", "--data", tmp_path / "own.npz", *SMALL, *quick, "--out", tmp_path / "run").code == 0
    return tmp_path / "run"


@pytest.mark.parametrize("shape", [(1, 8, 8), (64,)])
def test_bytes_for_a_run_on_shares_are_refused(tmp_path, shape):
    """As `evaluate --ood` did before: what is said of them would be of the scale alone."""
    pixels = RNG.integers(0, 256, (80, *shape)).astype(np.uint8)
    run = on(tmp_path, (pixels / 255).astype(np.float32))
    before = files(run)
    np.savez(tmp_path / "bytes.npz", x=pixels[:20], y=np.arange(20) % 2)
    for asked in (("predict", "--inputs"), ("evaluate", "--data"), ("evaluate", "--ood")):
        refused(asked[0], run, *asked[1:], tmp_path / "bytes.npz", says=("from 0 to 255", "from 0 to 1", "scale them"))
    assert files(run) == before
    np.savez(tmp_path / "shares.npz", x=pixels[:20] / 255)
    assert cli("predict", run, "--inputs", tmp_path / "shares.npz").code == 0


def test_shares_for_a_run_on_bytes_are_refused(tmp_path):
    pixels = RNG.integers(0, 256, (80, 1, 8, 8)).astype(np.uint8)
    run = on(tmp_path, pixels)
    np.savez(tmp_path / "shares.npz", x=pixels[:20] / 255)
    refused("predict", run, "--inputs", tmp_path / "shares.npz", says=("from 0 to 1", "from 0 to 255", "scale them"))
    np.savez(tmp_path / "floats.npz", x=pixels[:20].astype(np.float64))
    np.savez(tmp_path / "bytes.npz", x=pixels[:20])
    found = [cli("predict", run, "--inputs", tmp_path / f"{name}.npz", "--json").json for name in ("floats", "bytes")]
    assert found[0] == found[1]


def test_whole_numbers_are_numbers_to_a_run_on_numbers(tmp_path):
    run = on(tmp_path, RNG.normal(scale=9, size=(80, 3)).round())
    x = RNG.integers(-9, 9, (20, 3))
    found = []
    for name, own in (("whole", x), ("short", x.astype(np.int32)), ("floats", x.astype(np.float64))):
        np.savez(tmp_path / f"{name}.npz", x=own, y=np.arange(20) % 2)
        judged = cli("evaluate", run, "--data", tmp_path / f"{name}.npz", "--json").json["metrics"]
        found.append((cli("predict", run, "--inputs", tmp_path / f"{name}.npz", "--json").json, judged))
    assert found[0] == found[1] == found[2]


def test_runs_of_an_older_format_are_refused_in_one_line(home, tmp_path):
    old = shutil.copytree(home / "run", tmp_path / "old")
    config = json.loads((old / "config.json").read_text())
    config["data"]["input"] = config["data"].pop("inputs")["shape"]
    del config["digest"]
    (old / "config.json").write_text(json.dumps(config | {"format": 3}))
    refused("predict", old, "--inputs", home / "plain.csv", says=("has format 3", "use the version that wrote it"))
