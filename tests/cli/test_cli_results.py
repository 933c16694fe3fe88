"""What the verbs print for programs: one JSON object, equal to what Python gives."""

import csv
import io
import json
import re
import subprocess
import sys

import numpy as np
import pytest
import torch
from commandline import POLYARCH, SMALL, SPIRALS, TINY, cli, refused
from PIL import Image

import polyarch as pa
from polyarch.runs.run import open_repeats

FIGURES = {"accuracy", "log_likelihood", "ece"}


def test_search_prints_one_object_and_progress_elsewhere(tmp_path):
    said = cli("search", *TINY, "--seed", 3, "--out", tmp_path / "run", "--json")
    found = said.json
    sizes, first, *others = said.err.splitlines()
    assert sizes == "search: 42 train, 18 select, 40 test examples"
    assert re.fullmatch(
        r"search: epoch 1/6, \d+ s left; select: mixture accuracy 0\.\d{4}, log-lik. -\d\.\d+ \| entropy 1\.\d\d", first
    )
    assert any(line.startswith("search: epoch 6/6; ") for line in others)
    assert others[-2] == "search: evaluating networks"
    assert others[-1].startswith("plain models: fitting logistic regression, ")
    assert (found["run"], found["space"], found["seed"]) == (str(tmp_path / "run"), "depth", 3)
    assert found["method"] == "variational-depth"
    assert found["architecture"] == f"depth={found['selected']['depth']}"
    assert list(found["distribution"]["probs"]) == ["depth"]
    assert sum(found["distribution"]["probs"]["depth"]) == pytest.approx(1)
    for split in ("select", "test", "test_ensemble"):
        assert set(found["metrics"][split]) >= FIGURES
    assert cli("show", tmp_path / "run", "--json").json == found
    assert (tmp_path / "run" / "report.html").exists()
    run = pa.open_run(tmp_path / "run")
    assert run.distribution.probs()["depth"].tolist() == found["distribution"]["probs"]["depth"]
    assert run.architecture.text == found["architecture"]


def test_a_real_process_prints_the_same(tmp_path, finished):
    done = subprocess.run(
        [POLYARCH, "search", *TINY, "--out", str(tmp_path / "run"), "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    found, expected = json.loads(done.stdout), cli("show", finished, "--json").json
    for name in ("distribution", "metrics", "architecture"):
        assert found[name] == expected[name]
    assert "Warning" not in done.stderr


def test_show_follows_a_run_that_moved(own_copy):
    assert cli("show", own_copy, "--json").json["run"] == str(own_copy)


def test_show_for_people(finished):
    said = cli("show", finished)
    assert said.code == 0
    assert "of space depth for spirals by variational-depth, seed 0" in " ".join(said.out.split())
    assert "selected" in said.out
    assert said.err == ""


def test_evaluate(tmp_path, finished):
    expected = cli("show", finished, "--json").json["metrics"]
    found = cli("evaluate", finished, "--json").json
    assert found["metrics"] == {
        "selected": expected["test"],
        "ensemble": expected["test_ensemble"],
        "unpruned": expected["test_unpruned"],
        "tempered": expected["test_tempered"],
    }
    assert cli("evaluate", finished, "--select", "expectation", "--json").json["architecture"].startswith("depth=")
    # Other data: a file is judged whole, or by the test set in it; the run's own data by its test split.
    task = pa.open_run(finished).task()
    assert cli("evaluate", finished, "--data", "spirals", "--json").json["metrics"] == found["metrics"]
    np.savez(tmp_path / "test.npz", x=task.test.x, y=task.test.y)
    np.savez(tmp_path / "both.npz", x=task.train.x, y=task.train.y, x_test=task.test.x, y_test=task.test.y)
    for name in ("test.npz", "both.npz"):
        assert cli("evaluate", finished, "--data", tmp_path / name, "--json").json["metrics"] == found["metrics"]
    assert cli("evaluate", finished).code == 0


def test_predict_equals_python(tmp_path, finished):
    x = torch.randn(5, 2, generator=torch.Generator().manual_seed(0))
    np.savez(tmp_path / "x.npz", x=x.numpy())
    (tmp_path / "x.csv").write_text("a,b\n" + "\n".join(",".join(map(str, row)) for row in x.tolist()))
    run = pa.open_run(finished)
    said = run.ensemble().precisely(x).tempered(run.temperature)
    for name in ("x.npz", "x.csv"):
        rows = cli("predict", finished, "--inputs", tmp_path / name, "--json").json["predictions"]
        probs = torch.tensor([list(row["probabilities"].values()) for row in rows])
        assert torch.allclose(probs, said.log_probs.float().exp(), atol=1e-6)
        assert torch.allclose(probs.sum(-1), torch.ones(5))
        assert [row["entropy"] for row in rows] == pytest.approx(said.entropy.tolist(), rel=1e-6)
        assert [row["class"] for row in rows] == [str(k) for k in probs.argmax(-1).tolist()]
    lines = list(csv.DictReader(io.StringIO(cli("predict", finished, "--inputs", tmp_path / "x.csv").out)))
    assert [float(line["p(1)"]) for line in lines] == [row["probabilities"]["1"] for row in rows]


def test_an_image_folder_from_search_to_predict(tmp_path):
    random = np.random.default_rng(0)
    for label, name in enumerate(("cat", "dog")):
        (tmp_path / "images" / name).mkdir(parents=True)
        for i in range(12):
            pixels = random.integers(0, 128, (8, 8), dtype=np.uint8) + 120 * label
            Image.fromarray(pixels.astype(np.uint8)).save(tmp_path / "images" / name / f"{i:02}.png")
    out, images = tmp_path / "run", tmp_path / "images"
    assert cli("search", "--data", images, *SMALL, "--set", "epochs=2", "--out", out).code == 0
    rows = cli("predict", out, "--inputs", images, "--json").json["predictions"]
    assert [row["input"] for row in rows[:2]] == ["cat/00.png", "cat/01.png"]
    assert list(rows[0]["probabilities"]) == ["cat", "dog"]
    _, x = pa.open_run(out).inputs_at(str(images))
    probs = torch.tensor([list(row["probabilities"].values()) for row in rows])
    run = pa.open_run(out)
    said = run.ensemble().precisely(x).tempered(run.temperature)
    assert torch.allclose(probs, said.log_probs.float().exp(), atol=1e-6)
    assert torch.allclose(probs.sum(-1), torch.ones(24))
    assert cli("evaluate", out, "--data", images, "--json").json["metrics"]["selected"]["accuracy"] >= 0


def test_repeats(tmp_path, finished):
    out = tmp_path / "run"
    found = cli("search", *TINY, "--seed", 4, "--repeats", 2, "--out", out, "--json").json
    assert [run["seed"] for run in found["runs"]] == [4, 5]
    assert [run["run"] for run in found["runs"]] == [str(out / "seed-4"), str(out / "seed-5")]
    accuracies = [run["metrics"]["test"]["accuracy"] for run in found["runs"]]
    assert found["summary"]["test"]["accuracy"]["mean"] == pytest.approx(sum(accuracies) / 2)
    assert found["summary"]["test"]["accuracy"]["std"] >= 0
    assert cli("show", out, "--json").json == found
    [row] = [line for line in cli("show", out).out.splitlines() if line.startswith("mixture, pruned")]
    assert len(re.findall(r" -?\d\.\d{3} ± \d\.\d{3}", row)) == 4, "no figure is cut short"
    assert cli("show", out / "seed-5", "--json").json == found["runs"][1]
    assert cli("evaluate", out / "seed-4", "--json").json["metrics"]["selected"]["accuracy"] == accuracies[0]
    refused("evaluate", out, says=("holds 2 repeats", str(out / f"seed-{found['best']}")))
    refused("predict", out, "--inputs", "x", says="x: no such file or folder")
    assert [run.seed for run in open_repeats(out)] == [4, 5]
    page = cli("report", out, "--baseline", finished, "--json").json
    assert page == {"run": str(out), "report": str(out / "report.html")}


def test_baselines_are_trained_beneath_the_run(tmp_path):
    out = tmp_path / "run"
    assert cli("search", *TINY, "--baselines", "0,2", "--out", out, "--json").json["selected"]["depth"] in "012"
    for depth in (0, 2):
        found = cli("show", out / "baselines" / f"depth-{depth}", "--json").json
        assert found["architecture"] == f"depth={depth}"
        assert found["method"] == "fixed-depth"
    page = (out / "report.html").read_text()
    assert "fixed depth" in page.lower() or "fixed-depth" in page.lower()
    # Killed while it trained one: resuming the run goes on with that too, without being told.
    (out / "baselines" / "depth-2" / "result.json").unlink()
    refused("report", out, says=f"resume --out {out / 'baselines' / 'depth-2'}")
    assert cli("search", "--resume", "--out", out).code == 0
    assert cli("show", out / "baselines" / "depth-2").code == 0


def test_own_space_and_method(tmp_path):
    random = np.random.default_rng(0)
    x = random.normal(size=(60, 1))
    np.savez(tmp_path / "line.npz", x=x, y=0.6 * x[:, 0] + 0.3 + 0.1 * random.normal(size=60))
    toy = (
        "--space",
        "polyarch.testing.toy:Lines",
        "--method",
        "polyarch.testing.toy:EnumeratedElbo",
        "--device",
        "cpu",
    )
    data = ("--data", tmp_path / "line.npz", "--set", "kind=regression", "--no-train")
    out = tmp_path / "run"
    found = cli("search", *toy, *data, "--set", "epochs=5", "--set", "method.noise=0.1", "--out", out, "--json").json
    assert found["space"] == "polyarch.testing.toy:Lines"
    assert list(found["distribution"]["probs"]) == ["slope", "shift"]
    assert found["architecture"] == ",".join(f"{name}={option}" for name, option in found["selected"].items())
    assert {"rmse", "log_likelihood"} <= set(found["metrics"]["test"])
    rows = cli("predict", out, "--inputs", tmp_path / "line.npz", "--json").json["predictions"]
    mean = pa.open_run(out).ensemble().output(torch.from_numpy(x).float()).squeeze(-1)
    assert [row["mean"] for row in rows] == pytest.approx(mean.tolist(), abs=1e-6)
    np.savez(tmp_path / "other.npz", x=x + 1, y=x[:, 0])
    assert cli("evaluate", out, "--data", tmp_path / "other.npz", "--json").json["metrics"]["selected"]["rmse"] > 0
    assert cli("search", "--resume", *toy, *data, "--out", out).code == 0
    refused("search", *toy, *data, "--baselines", "1", "--out", tmp_path / "no", says="'lines' is none; leave it out")
    refused("search", "--space", "polyarch.testing.toy:Lines", *data, "--out", tmp_path / "no", says="nested")
    assert not (tmp_path / "no").exists()


def test_one_name_with_its_settings():
    found = cli("list", "darts", "--json").json
    assert {kind: list(entries) for kind, entries in found.items()} == {"spaces": ["darts"], "methods": ["darts"]}
    assert found["spaces"]["darts"]["settings"]["layers"][0] == 8
    assert "objective.order = 'first'" in cli("list", "darts").out
    refused("list", "dart", says=("unknown name 'dart'", "did you mean 'darts'?"))


@pytest.mark.parametrize("name", ["csv", "houses.csv", "*.csv"])
def test_a_kind_of_file_is_listed_by_its_ending(name):
    found = cli("list", "--settings", name, "--json").json
    assert {kind: list(entries) for kind, entries in found.items()} == {"data": ["*.csv"]}
    assert found["data"]["*.csv"]["settings"]["label"][0] == "label"


def test_descriptions_are_wrapped_where_they_stand():
    lines = cli("list").out.splitlines()
    assert max(map(len, lines)) <= 80
    [k] = [k for k, line in enumerate(lines) if line.startswith("  variational-depth ")]
    assert lines[k + 1].startswith(" " * lines[k].index("weights and"))
    # Whatever is shown alone says what it is the same as.
    assert "the same" not in cli("list").out


def test_the_version():
    said = cli("--version")
    assert (said.code, said.out, said.err) == (0, f"polyarch {pa.__version__}\n", "")


def test_list_and_doctor():
    found = cli("list", "--json").json
    assert set(found) >= {"spaces", "methods", "data", "scores"}
    assert "depth" in found["spaces"]
    settings = cli("list", "--settings", "--json").json
    assert settings["spaces"]["depth"]["settings"]["max_depth"][0] == 20
    assert "max_depth = 20" in cli("list", "--settings").out
    found = cli("doctor", *SPIRALS, "--set", "max_depth=2", "--json").json
    assert found["search"]["architectures"] == 3
    assert found["versions"]["polyarch"] == pa.__version__
    assert "3 architectures" in cli("doctor", *SPIRALS, "--set", "max_depth=2").out


def test_help_is_quick_and_a_closed_output_is_no_traceback():
    code = "import sys, polyarch.cli.main; assert not {'torch', 'numpy', 'matplotlib'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
    with open("/dev/full", "w") as full:
        done = subprocess.run([POLYARCH, "--help"], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("polyarch: standard output: No space left on device")
    assert done.stderr.count("\n") == 1
    done = subprocess.run(
        f"{POLYARCH} --help | true", shell=True, stderr=subprocess.PIPE, text=True, check=False, executable="/bin/bash"
    )
    assert done.stderr == ""
