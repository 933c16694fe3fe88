"""Numbers to predict on the command line: noise that is learnt, intervals, quantiles."""

import csv
import io

import numpy as np
import pytest
import torch
from commandline import cli, refused

import polyarch as pa

SMALL = ("--set", "max_depth=2", "--set", "width=8", "--set", "batch_size=16", "--set", "epochs=3", "--device", "cpu")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "line.npz"
    x = np.random.default_rng(0).normal(size=(80, 3))
    np.savez(path, x=x, y=x.sum(1) + 0.5 * np.random.default_rng(1).normal(size=80))
    return path


@pytest.fixture(scope="module", params=["task", "input"])
def run(request, data, tmp_path_factory):
    out = tmp_path_factory.mktemp(request.param) / "run"
    kind = ("--data", data, "--set", "kind=regression", "--set", f"data.noise={request.param}")
    assert cli("search", *kind, *SMALL, "--set", "weights.lr=0.01", "--out", out).code == 0
    return out


def test_predict_gives_mean_deviation_and_quantiles(run, data):
    rows = cli("predict", run, "--inputs", data, "--json").json["predictions"]
    assert list(rows[0]) == ["input", "mean", "std", "quantile_5", "quantile_50", "quantile_95"]
    said = pa.open_run(run).ensemble().gaussians(torch.from_numpy(np.load(data)["x"]).float())
    for name, wanted in {"mean": said.mean, "std": said.std, "quantile_95": said.quantile(0.95)}.items():
        assert [row[name] for row in rows] == wanted.tolist()
    assert all(row["quantile_5"] < row["quantile_50"] < row["quantile_95"] for row in rows)
    lines = list(csv.DictReader(io.StringIO(cli("predict", run, "--inputs", data).out)))
    assert [float(line["quantile_5"]) for line in lines] == [row["quantile_5"] for row in rows]


def test_evaluate_tells_coverage_and_width_of_intervals(run):
    metrics = cli("evaluate", run, "--json").json["metrics"]
    assert list(metrics) == ["selected", "ensemble", "unpruned"]
    for found in metrics.values():
        shares, widths = ([found[f"{kind}_{c}"] for c in (50, 80, 90, 95)] for kind in ("coverage", "width"))
        assert shares == sorted(shares)
        assert widths == sorted(widths)
        assert found["crps"] > 0
    told = cli("evaluate", run).out
    assert "share of targets within    50 %    80 %    90 %    95 %" in told
    assert "mean width of intervals" in told
    assert metrics["ensemble"] == cli("show", run, "--json").json["metrics"]["test_ensemble"]


def test_other_data_is_read_with_the_noise_of_the_run(run, tmp_path):
    x = np.random.default_rng(2).normal(size=(30, 3))
    np.savetxt(tmp_path / "other.csv", np.c_[x, x.sum(1)], delimiter=",", header="a,b,c,label", comments="")
    assert cli("evaluate", run, "--data", tmp_path / "other.csv", "--json").json["metrics"]["ensemble"]["rmse"] > 0


def test_bad_values_are_refused_in_one_line(data, tmp_path):
    kind = ("--data", data, "--set", "kind=regression", *SMALL, "--out", tmp_path / "no")
    refused("search", *kind, "--set", "noise=learnt", says=("noise 'learnt'", "fixed, input, task"))
    refused("search", *kind, "--set", "noise=0.5", says="noise")
    refused("search", *kind, "--set", "noise=task", "--set", "select=0", says="set select=0.15, or noise=fixed")
    np.savez(tmp_path / "classes.npz", x=np.eye(40), y=np.arange(40) % 2)
    classes = ("--data", tmp_path / "classes.npz", *SMALL, "--out", tmp_path / "no")
    refused("search", *classes, "--set", "noise=input", says="set kind=regression, or leave it out")
    assert not (tmp_path / "no").exists()
