"""What a surrogate says is called a prediction wherever it is printed."""

import json
from pathlib import Path

import numpy as np
import pytest
from commandline import cli, refused

FOLDER = Path(__file__).parents[2].parent / "shared" / "data" / "nasbench301"
DARTS_V2 = (
    "Genotype(normal=[('sep_conv_3x3', 0), ('sep_conv_3x3', 1), ('sep_conv_3x3', 0), ('sep_conv_3x3', 1), "
    "('sep_conv_3x3', 1), ('skip_connect', 0), ('skip_connect', 0), ('dil_conv_3x3', 2)], "
    "normal_concat=[2, 3, 4, 5], "
    "reduce=[('max_pool_3x3', 0), ('max_pool_3x3', 1), ('skip_connect', 2), ('max_pool_3x3', 1), "
    "('max_pool_3x3', 0), ('skip_connect', 2), ('skip_connect', 2), ('max_pool_3x3', 1)], "
    "reduce_concat=[2, 3, 4, 5])"
)
TWICE = DARTS_V2.replace("('dil_conv_3x3', 2)", "('dil_conv_3x3', 0)")  # beside a skip from there


@pytest.fixture(autouse=True)
def surrogate(monkeypatch):
    if not FOLDER.exists():
        pytest.skip("nasbench301 is not beside the checkout")
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    monkeypatch.setenv("POLYARCH_TABLES", str(FOLDER.parent))


def test_the_command_line_calls_it_a_prediction():
    ask = ("table", "query", "--table", "nasbench301", "--arch", DARTS_V2)
    own = cli(*ask, "--json").json
    assert own["predicted"] == ["val_accuracy", "runtime"]
    assert own["values"][0]["values"]["val_accuracy"] == pytest.approx(95.4603, abs=1e-3)
    assert "predicted" in cli(*ask).out
    column = cli(*ask, "--column", "val_accuracy", "--space", "darts-parsec", "--json").json
    assert (column["split"], column["better"]) == ("prediction", "higher")
    assert "not a measurement" in cli("table", "info", "--table", "nasbench301").out
    refused("table", "best", "--table", "nasbench301", "--column", "runtime", says=("keeps no rows",))
    refused("table", "query", "--table", "nasbench301", "--arch", TWICE, says=("the same input twice",))


def test_ranking_by_it_calls_it_a_prediction():
    small = ("--space", "darts", "--set", "channels=1", "--set", "layers=3", "--input", "1x8x8")
    said = cli("rank", *small, "--by", "parameters", "--table", "nasbench301", "--sample", "8", "--resamples", "20")
    assert "truth: predicted val_accuracy of " in said.out
    assert "8 architectures of darts, of table" in said.out
    limited = ("--by", "parameters", "--table", "nasbench301", "--limit", "runtime=5500")
    refused("rank", *small, *limited, says=("runtime is a prediction", "take parameters, macs or latency"))


@pytest.mark.slow
def test_a_search_watched_by_it_calls_it_a_prediction(tmp_path):
    small = ("--set", "channels=1", "--set", "layers=3", "--set", "epochs=2", "--no-train", "--no-plain")
    out, data = tmp_path / "run", tmp_path / "images.npz"
    np.savez(data, x=np.random.default_rng(0).random((80, 1, 8, 8), np.float32), y=np.arange(80) % 2)
    said = cli("search", "--space", "darts", "--method", "darts", "--data", data, *small, "--table", "nasbench301",
               "--out", out)  # fmt: skip
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert all(90 < line["predicted"] < 97 and "truth" not in line for line in lines)
    assert f"predicted {lines[0]['predicted']:.5g}" in said.err
    assert "predicted val_accuracy: " in cli("show", out).out
    assert cli("report", out).code == 0
    assert "By the table, predicted val_accuracy of the selected architecture" in (out / "report.html").read_text()
