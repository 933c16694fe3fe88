"""Networks that searches hand over, beside `polyarch train`: the page has its rows, and they hold what it claims."""

import json
import shutil
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest
from sklearn.datasets import load_digits

import polyarch as pa

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results" / "handed-over"


@pytest.fixture
def handed():
    from reproduce import handed_over

    return handed_over


def test_the_page_has_the_table_of_its_rows(handed):
    assert handed.shown(RESULTS).strip() in (ROOT / "docs" / "results" / "handed-over.md").read_text(encoding="utf-8")


def test_what_is_handed_over_is_within_two_points_of_train(handed):
    for case in handed.CASES:
        [*rows] = (json.loads(file.read_text())["rows"][0] for file in sorted(RESULTS.glob(f"{case}-?.json")))
        assert rows, case
        assert abs(fmean(row["accuracy"]["handed over"] - row["accuracy"]["train"] for row in rows)) <= 0.02, case


def test_digits_as_texts(handed):
    x, y = handed.texts()
    assert (x.shape, x.dtype, x.min(), x.max()) == ((1797, 16), np.int64, 0, 16)
    image = load_digits().images[0]
    assert x[0, 1] == round((image[0, 2] + image[0, 3] + image[1, 2] + image[1, 3]) / 4)
    task = pa.data.load((x, y))
    assert task.shape.tokens == handed.INK
    pa.ModuleSpace(handed.Reader).check(task.shape)


def test_a_row(handed, monkeypatch):
    """Of a search of one epoch: that many stay for the network that is handed over."""
    monkeypatch.setattr(pa.methods, "named", lambda name: pa.methods.Parsec(epochs=1, samples=1))
    found = handed.row("own", "parsec", 1)
    assert set(found["accuracy"]) == set(found["seconds"]) == {"shared", "handed over", "train", "alike"}
    assert found["accuracy"]["train"] > found["accuracy"]["handed over"] > 0


def test_what_is_there_is_not_run_again(handed, call, tmp_path, capsys):
    shutil.copytree(RESULTS, tmp_path / "rows")
    for case in handed.CASES:
        for seed in range(handed.SEEDS):
            shutil.copy(RESULTS / "own-darts-0.json", tmp_path / "rows" / f"{case}-{seed}.json")
    call(handed, "--out", tmp_path / "rows")
    assert capsys.readouterr().out == ""
    call(handed, "--out", tmp_path / "rows", "--table")
    assert f"| own | darts | {len(handed.CASES) * handed.SEEDS} | 9.5 ± 0.0 | 79.4 ± 0.0 |" in capsys.readouterr().out
