"""Labels, counts and a likelihood of one's own on the command line, from the file to the prediction."""

import csv
import importlib
import io
import sys

import numpy as np
import pytest
from commandline import SMALL, cli, refused

OWN = """
import polyarch as pa


class Waiting(pa.Likelihood):
    '''Times that are waited, by an exponential distribution; the output is the logarithm of the rate.'''

    metric, higher_is_better, predicts = "waited_error", False, "times"
    outputs = 1

    def log_likelihood(self, output, target):
        return output[..., 0] - target * output[..., 0].exp()

    def mixture(self, outputs, weights):
        return -(weights.log()[..., None, None] - outputs).logsumexp(0)

    def mean(self, output):
        return (-output[..., 0]).exp()

    def metric_values(self, output, target):
        return (self.mean(output) - target).abs()
"""


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A folder with a table of three labels, arrays of counts and of times, and a likelihood."""
    random = np.random.default_rng(0)
    x = random.normal(size=(120, 2)).astype(np.float32)
    labels = (random.random((120, 3)) < 1 / (1 + np.exp(-3 * x[:, [0, 1, 0]]))).astype(int)
    rows = [",".join(map(str, [*a, *b])) for a, b in zip(x.tolist(), labels.tolist(), strict=True)]
    (tmp_path / "labels.csv").write_text("\n".join(["u,v,red,green,blue", *rows]))
    np.savez(tmp_path / "labels.npz", x=x, y=labels)
    np.savez(tmp_path / "counts.npz", x=x, y=random.poisson(np.exp(1 + x[:, 0])))
    np.savez(tmp_path / "times.npz", x=x, y=random.exponential(np.exp(x[:, 0] / 2)))
    (tmp_path / "likelihoods_by_name.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    yield tmp_path
    sys.modules.pop("likelihoods_by_name", None)


def search(data, likelihood, *more):
    found = cli(
        "search",
        "--data",
        data,
        "--out",
        "run",
        *SMALL,
        "--set",
        "epochs=6",
        "--set",
        f"likelihood={likelihood}",
        *more,
    )
    assert found.code == 0, found.err
    return found.out


def predicted(data):
    said = cli("predict", "run", "--inputs", data)
    assert said.code == 0, said.err
    return list(csv.DictReader(io.StringIO(said.out)))


def test_labels_in_columns_of_a_table(home):
    told = search("labels.csv", "multi-label", "--set", "label=red,green,blue")
    assert "Hamming" in told
    assert "logistic regression" in told
    rows = predicted("labels.csv")
    assert list(rows[0]) == ["input", "labels", "p(red)", "p(green)", "p(blue)", "entropy", "mutual_information"]
    for row in rows:
        likely = [name for name in ("red", "green", "blue") if float(row[f"p({name})"]) > 0.5]
        assert row["labels"] == "|".join(likely)
    evaluated = cli("evaluate", "run", "--data", "labels.csv", "--json").json
    assert evaluated["metrics"]["selected"].keys() >= {"hamming_accuracy", "exact_match", "f1", "log_likelihood"}
    assert "mutual inf." in cli("evaluate", "run").out
    (home / "inputs.csv").write_text("u,v\n0.5,-0.5\n")
    refused("predict", "run", "--inputs", "inputs.csv", "--risk", "0.1", says="this run predicts labels")
    refused("evaluate", "run", "--classes", says="--classes is for classification, and this run predicts labels")


def test_counts_and_their_intervals(home):
    told = search("counts.npz", "counts", "--set", "calibrate=30")
    assert all(word in told for word in ("MAE", "deviance", "Poisson regression"))
    rows = predicted("counts.npz")
    assert list(rows[0]) == ["input", "mean", "std"]
    assert all(float(row["std"]) ** 2 >= float(row["mean"]) - 1e-9 for row in rows)
    held = cli("predict", "run", "--inputs", "counts.npz", "--coverage", "0.9", "--json").json["predictions"]
    assert all(row["low"] < row["mean"] < row["high"] for row in held)


def test_one_s_own_by_its_place(home):
    told = search("times.npz", "likelihoods_by_name:Waiting")
    assert "waited error" in told
    assert "not fitted: plain models, since scikit-learn has none for this likelihood" in told
    assert list(predicted("times.npz")[0]) == ["input", "mean"]
    assert "waited error" in cli("evaluate", "run", "--data", "times.npz").out
    page = (home / "run" / "report.html").read_text()
    assert "waited error" in page
    (home / "likelihoods_by_name.py").write_text(OWN.replace("output[..., 0] - target", "2 * output[..., 0] - target"))
    refused("predict", "run", "--inputs", "times.npz", says=("likelihoods_by_name", "--allow-changed"))


@pytest.mark.parametrize(
    ("data", "settings", "says"),
    [
        ("counts.npz", ["likelihood=count"], "unknown likelihood 'count'; did you mean 'counts'"),
        ("counts.npz", ["likelihood=likelihoods_by_name:Wait"], "has no 'Wait'"),
        ("counts.npz", ["likelihood=nowhere_at_all:Wait"], "cannot import likelihood"),
        ("times.npz", ["likelihood=counts"], "counts are whole numbers from 0 up"),
        ("counts.npz", ["likelihood=counts", "noise=task"], "noise=task says nothing beside likelihood=counts"),
        ("labels.csv", ["likelihood=multi-label", "label=red"], "a column of 0 or 1 for every label"),
        ("labels.csv", ["likelihood=multi-label", "label=red,grun"], "has no column 'grun' to predict"),
    ],
    ids=str,
)
def test_mistakes_are_told_in_a_line_and_leave_nothing(home, data, settings, says):
    chosen = [part for setting in settings for part in ("--set", setting)]
    refused("search", "--data", data, "--out", "run", *SMALL, *chosen, says=says)
    assert not (home / "run").exists()
