"""Several seeds on the command line: who predicts, and tables that fit."""

import csv

import numpy as np
import pytest
from commandline import TINY, cli, refused

import polyarch as pa


@pytest.fixture(scope="module")
def seeds(tmp_path_factory):
    """A search of three seeds, and inputs for it."""
    folder = tmp_path_factory.mktemp("seeds")
    assert cli("search", *TINY, "--repeats", "3", "--out", folder / "run").code == 0
    np.savez(folder / "new.npz", x=np.random.default_rng(0).normal(size=(5, 2)).astype(np.float32))
    return folder


def test_the_best_seed_predicts_and_is_told(seeds):
    best = pa.open_best(seeds / "run")
    said = cli("predict", seeds / "run", "--inputs", seeds / "new.npz")
    assert f"predictions are of seed {best.seed}, the best of 3 on validation data" in said.err
    assert said.out == cli("predict", best.folder, "--inputs", seeds / "new.npz").out
    told = cli("predict", seeds / "run", "--inputs", seeds / "new.npz", "--json").json
    assert (told["run"], told["seed"]) == (str(seeds / "run"), best.seed)


def test_all_seeds_predict(seeds):
    asked = ("predict", seeds / "run", "--inputs", seeds / "new.npz", "--all-seeds")
    rows = list(csv.DictReader(cli(*asked).out.splitlines()))
    assert [row["seed"] for row in rows] == ["0"] * 5 + ["1"] * 5 + ["2"] * 5
    told = cli(*asked, "--json").json["seeds"]
    for k, own in enumerate(told):
        assert own["seed"] == k
        alone = cli("predict", seeds / "run" / f"seed-{k}", "--inputs", seeds / "new.npz", "--json").json
        assert own["predictions"] == alone["predictions"]
        assert [float(row["probability"]) for row in rows[5 * k : 5 * k + 5]] == [
            row["probability"] for row in alone["predictions"]
        ]


def test_one_seed_has_no_others(seeds):
    asked = ("predict", seeds / "run" / "seed-1", "--inputs", seeds / "new.npz", "--all-seeds")
    refused(*asked, says="has one seed; leave it out")


def test_tables_of_seeds_fit_the_page(seeds):
    _, table = cli("show", seeds / "run").out.split("\n\non test data")
    assert "±" in table
    assert max(map(len, f"on test data{table}".splitlines())) <= 80
