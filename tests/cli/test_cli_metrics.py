"""What tables of metrics show, and figures class by class."""

import json

import numpy as np
import pytest
from commandline import SMALL, cli, refused
from sklearn.metrics import f1_score, mean_absolute_error, precision_recall_fscore_support, r2_score, roc_auc_score

import polyarch as pa
from polyarch.cli.metrics import FITS, print_metrics

NAMES = ("brier", "f1", "auc", "ece", "log_likelihood", "accuracy", "balanced_accuracy", "ece_all_classes")
FOUND = dict.fromkeys(NAMES, -0.1234)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Three kinds of words of unequal frequency, told apart with errors."""
    folder = tmp_path_factory.mktemp("kinds")
    random = np.random.default_rng(0)
    kind = random.choice(3, 240, p=[0.6, 0.3, 0.1])
    x = np.eye(3)[kind] + 0.6 * random.normal(size=(240, 3))
    lines = [f"{a},{b},{c},{('much', 'some', 'rare')[k]}" for (a, b, c), k in zip(x, kind, strict=True)]
    (folder / "kinds.csv").write_text("\n".join(["a,b,c,label", *lines]) + "\n")
    asked = ("--data", folder / "kinds.csv", "--set", "epochs=6", *SMALL)
    assert cli("search", *asked, "--out", folder / "run").code == 0
    return folder / "run"


def test_a_table_has_the_most_important_columns_that_fit(capsys):
    def header(label, repeats=1):
        print_metrics("on test data", {label: [FOUND] * repeats})
        lines = capsys.readouterr().out.splitlines()
        assert all(len(line.rstrip()) <= max(FITS, len(label) + 10) for line in lines)
        return lines[0].split()[3:]

    assert header("network") == ["accuracy", "log-lik.", "ECE", "AUC", "F1", "Brier"]
    assert header("selected network, shared weights") == ["accuracy", "log-lik.", "ECE", "AUC", "F1"]
    assert header("selected network, shared weights", repeats=3) == ["accuracy", "log-lik.", "ECE"]
    assert header("n" * 90) == ["accuracy"]


def test_figures_by_class_are_those_of_scikit_learn(run):
    opened = pa.open_run(run)
    test = opened.task().test
    result, evaluated = opened.result, cli("evaluate", run, "--json").json
    assert list(result["per_class"]) == ["select", "select_ensemble", "test", "test_ensemble"]
    assert evaluated["per_class"] == {
        "selected": result["per_class"]["test"],
        "ensemble": result["per_class"]["test_ensemble"],
    }
    says = {"test": opened.model()(test.x), "test_ensemble": opened.ensemble().output(test.x)}
    for name, output in says.items():
        guess = output.argmax(-1)
        rows = result["per_class"][name]
        assert [row["class"] for row in rows] == ["much", "rare", "some"]  # in the order of the task's classes
        wanted = precision_recall_fscore_support(test.y, guess, zero_division=np.nan)
        for key, column in zip(("precision", "recall", "f1", "examples"), wanted, strict=True):
            got = [np.nan if row[key] is None else row[key] for row in rows]
            np.testing.assert_allclose(got, column, rtol=1e-12, err_msg=key)
        metrics = result["metrics"][name]
        assert metrics["f1"] == pytest.approx(f1_score(test.y, guess, average="macro"))
        probs = output.double().softmax(-1).detach()
        area = roc_auc_score(test.y, probs, multi_class="ovr")
        assert metrics["auc"] == pytest.approx(area, abs=1e-4)
    json.dumps(result, allow_nan=False)


def test_a_table_of_classes_is_there_where_it_is_asked_for(run):
    plain, asked = cli("evaluate", run).out, cli("evaluate", run, "--classes").out
    assert asked.startswith(plain)
    told = asked[len(plain) :]
    assert told.count("precision  recall") == 2  # of the network and of the mixture
    assert max(map(len, told.splitlines())) <= FITS
    rows = pa.open_run(run).result["per_class"]["test"]
    shown = next(line for line in told.splitlines() if line.startswith("rare")).split()
    assert shown[1] == str(rows[1]["examples"])
    figures = [rows[1][key] for key in ("precision", "recall", "f1")]
    assert shown[2:] == ["–" if figure is None else f"{figure:.4f}" for figure in figures]
    assert "confused: " in told
    assert "--json" not in told
    assert cli("evaluate", run, "--classes", "--json").json == cli("evaluate", run, "--json").json


def test_numbers_to_predict_have_r2_and_mae(tmp_path):
    random = np.random.default_rng(0)
    x = random.normal(size=(120, 2))
    np.savez(tmp_path / "line.npz", x=x, y=x.sum(1) + 0.2 * random.normal(size=120))
    asked = ("--data", tmp_path / "line.npz", "--set", "kind=regression", "--set", "epochs=4", *SMALL)
    said = cli("search", *asked, "--out", tmp_path / "run")
    assert said.code == 0, said.err
    run = pa.open_run(tmp_path / "run")
    test, found = run.task().test, run.result["metrics"]["test"]
    mean = run.model()(test.x).detach()[:, 0].double()
    assert found["r2"] == pytest.approx(r2_score(test.y, mean), abs=1e-6)
    assert found["mae"] == pytest.approx(mean_absolute_error(test.y, mean), abs=1e-6)
    for command in ("show", "evaluate"):
        shown = cli(command, tmp_path / "run").out
        assert "RMSE" in shown
        assert "R²" in shown
        assert "MAE" in shown
    assert "per_class" not in run.result
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert ">MAE ↓</th>" in page
    assert ">R² ↑</th>" in page
    refused("evaluate", tmp_path / "run", "--classes", says="--classes is for classification")
