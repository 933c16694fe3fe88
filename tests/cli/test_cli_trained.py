"""The network that a search hands over: `polyarch search` trains what it selected alone, where weights are shared."""

import re
import shutil
import sys

import numpy as np
import pytest
import torch
from commandline import TINY, assert_same_run, check_one_line, cli, files, refused

import polyarch as pa
from polyarch.runs import search as searching
from polyarch.testing.callbacks import InterruptAfter

OWN = """
import polyarch as pa
from torch import nn


def make():
    kinds = {"relu": nn.ReLU(), "tanh": nn.Tanh(), "none": nn.Identity()}
    return nn.Sequential(nn.Linear(2, 8), pa.Choice("act", kinds), nn.Linear(8, 2))
"""
SEARCH = ("--space", "handed_over:make", "--method", "parsec", "--data", "spirals", "--set", "points=60")
SHORT = ("--set", "select=0.3", "--set", "epochs=4", "--set", "samples=2", "--set", "batch_size=20", "--device", "cpu")
OWNS = (*SEARCH, *SHORT)


@pytest.fixture(scope="module", autouse=True)
def home(tmp_path_factory):
    """A folder with `handed_over.py`, where commands find it."""
    folder = tmp_path_factory.mktemp("home")
    (folder / "handed_over.py").write_text(OWN)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield folder
        sys.modules.pop("handed_over", None)


@pytest.fixture(scope="module")
def handed_over(home):
    """A search whose selected network was trained; look, but do not touch."""
    assert cli("search", *OWNS, "--out", home / "run").code == 0
    return home / "run"


@pytest.fixture(scope="module")
def as_it_is(home):
    """The same search, whose selected network was not."""
    assert cli("search", *OWNS, "--no-train", "--out", home / "left").code == 0
    return home / "left"


@pytest.fixture(scope="module")
def two(home):
    """Two seeds of it."""
    assert cli("search", *OWNS, "--repeats", 2, "--out", home / "two").code == 0
    return home / "two"


def test_the_model_is_the_trained_one(handed_over):
    run = pa.open_run(handed_over)
    assert run.trained.config.method["name"] == "standalone"
    assert (run.trained.architecture.text, run.trained.seed) == (run.architecture.text, run.seed)
    own, theirs = run.model().state_dict(), run.trained.model().state_dict()
    assert all(torch.equal(own[name], theirs[name]) for name in own)
    shared = run.model(run.architecture).state_dict()
    assert not torch.equal(own["1.0.weight"], shared["1.0.weight"])


def test_what_is_said_is_about_it(handed_over):
    run = pa.open_run(handed_over)
    found = cli("show", handed_over, "--json").json
    alone = run.trained.result
    assert found["metrics"]["test_trained"] == alone["metrics"]["test"]
    assert found["metrics"]["select_trained"] == alone["metrics"]["select"]
    assert found["trained"]["run"] == str(handed_over / "trained")
    said = cli("show", handed_over).out
    assert f"trained alone, in {handed_over / 'trained'}\n" in said
    rows = [re.split("  +", line) for line in said.splitlines() if line.startswith(("selected network", "mixture"))]
    accuracy = f"{alone['metrics']['test']['accuracy']:.4f}"
    assert rows[0][:2] == ["selected network", accuracy]
    assert [row[0] for row in rows[1:3]] == ["selected network, shared weights", "mixture, shared weights"]
    judged = cli("evaluate", handed_over, "--json").json["metrics"]
    assert judged["trained"] == pytest.approx(found["metrics"]["test_trained"])
    rows = [line.partition("  ")[0] for line in cli("evaluate", handed_over).out.splitlines()[1:4]]
    assert rows == ["selected network", "selected network, shared weights", "mixture, shared weights"]


def test_it_is_what_predicts(tmp_path, handed_over):
    x = np.random.default_rng(0).normal(size=(20, 2)).astype(np.float32)
    np.savez(tmp_path / "new.npz", x=x)
    rows = cli("predict", handed_over, "--inputs", tmp_path / "new.npz", "--json").json["predictions"]
    model, temperature = pa.open_run(handed_over).model(), pa.open_run(handed_over).trained.temperature
    expected = (model(torch.from_numpy(x)) / temperature).softmax(-1).amax(-1)
    assert [row["probability"] for row in rows] == pytest.approx(expected.tolist(), abs=1e-5)


def test_the_report_is_about_it(handed_over, as_it_is):
    text = (handed_over / "report.html").read_text(encoding="utf-8")
    accuracy = 100 * pa.open_run(handed_over).trained.result["metrics"]["test"]["accuracy"]
    value = f"{accuracy:.1f}\u202f%"
    assert f"Trained alone, the selected network reaches {value} test accuracy; under the shared weights" in text
    assert f'<dd class="value">{value}</dd><dd class="under">shared weights ' in text
    for row in ("Selected network<small>trained alone</small>", "Selected network, shared weights"):
        assert f"<td>{row}</td>" in text
    assert "Mixture, shared weights" in text
    assert "--no-train" not in text
    left = (as_it_is / "report.html").read_text(encoding="utf-8")
    assert "Under shared weights the selected network reaches" in left
    assert "trained alone" not in left.lower()
    assert "--no-train" in left


def test_left_as_it_is_and_trained_later(tmp_path, handed_over, as_it_is):
    assert not (as_it_is / "trained").exists()
    assert "trained" not in cli("show", as_it_is, "--json").json
    assert f"under shared weights; `polyarch search --resume --out {as_it_is}` trains it" in cli("show", as_it_is).out
    out = shutil.copytree(as_it_is, tmp_path / "run")
    before = files(out)
    assert cli("search", "--resume", "--no-train", "--out", out).code == 0
    assert not (out / "trained").exists()
    assert cli("search", "--resume", "--out", out).code == 0
    assert_same_run(out / "trained", handed_over / "trained")
    after = files(out)
    assert {name for name in before if before[name] != after[name]} == {"report.html", "plain.json"}


def test_every_seed_is_trained(two, handed_over):
    found = cli("show", two, "--json").json
    runs = [pa.open_run(two / f"seed-{seed}") for seed in (0, 1)]
    assert [run.trained.seed for run in runs] == [0, 1]
    assert set(found["summary"]["test_trained"]) >= {"accuracy", "log_likelihood"}
    valid = [run.trained.result["metrics"]["select"] for run in runs]
    best = max((0, 1), key=lambda seed: (valid[seed]["accuracy"], valid[seed]["log_likelihood"]))
    assert found["best"] == best
    assert pa.open_best(two).folder == two / f"seed-{best}"
    assert "Trained alone, the selected networks reach" in (two / "report.html").read_text(encoding="utf-8")


# ---------------------------------------------------------------------------------------------------------------------
# Interrupted.


def interrupting(monkeypatch, when):
    """From now on the training of a seed, from 0, is interrupted after its second epoch."""
    begin, begun = searching.search, []

    def interrupted(*arguments, out, callbacks, **settings):
        if out.name == "trained":
            begun.append(out)
            if len(begun) == when + 1:
                callbacks = [*callbacks, searching.Checkpoints(seconds=0), InterruptAfter(2)]
        return begin(*arguments, out=out, callbacks=callbacks, **settings)

    monkeypatch.setattr(searching, "search", interrupted)


@pytest.mark.parametrize(("repeats", "when"), [(1, 0), (2, 1)])
def test_interrupted_while_it_trains(tmp_path, monkeypatch, handed_over, two, repeats, when):
    """The search can be looked at as it is, and goes on with the training, to the same end."""
    out, whole = tmp_path / "run", two if repeats > 1 else handed_over
    with monkeypatch.context() as patched:
        interrupting(patched, when)
        said = cli("search", *OWNS, "--repeats", repeats, "--out", out)
    assert (said.code, said.out) == (130, "")
    says = f"interrupted; go on with `polyarch search --resume --out {out}`"
    check_one_line(said.err.splitlines(keepends=True)[-1], says)
    shown = cli("show", out)
    assert shown.code == 0
    assert "selected network, shared weights" in shown.out
    assert f"`polyarch search --resume --out {out}` trains it alone" in shown.out
    assert "selected network  " not in shown.out, "not every seed has one"
    assert cli("report", out).code == 0
    assert cli("search", "--resume", "--out", out).code == 0
    for home in [f"seed-{seed}/trained" for seed in range(repeats)] if repeats > 1 else ["trained"]:
        assert_same_run(out / home, whole / home)


def test_interrupted_before_it_says_whether_to_train(tmp_path, monkeypatch):
    def interrupted(*arguments, out, **settings):
        out.mkdir()
        (out / "config.json").write_text("{}")
        raise KeyboardInterrupt

    monkeypatch.setattr(searching, "search", interrupted)
    said = cli("search", *OWNS, "--no-train", "--out", tmp_path / "run")
    check_one_line(said.err, f"go on with `polyarch search --resume --out {tmp_path / 'run'} --no-train`")


def test_a_training_that_fails_leaves_the_search(tmp_path, monkeypatch, as_it_is):
    out = shutil.copytree(as_it_is, tmp_path / "run")

    def evaluate(*arguments):
        return {"objective": torch.tensor([float("nan")])}

    with monkeypatch.context() as patched:
        patched.setattr(pa.methods.Standalone, "evaluate", evaluate)
        said = cli("search", "--resume", "--out", out)
    assert (said.code, said.out) == (2, "")
    says = ("the search is finished, and what it selected could not be trained", "diverged", "--no-train`")
    check_one_line(said.err.splitlines(keepends=True)[-1], says)
    assert cli("search", "--resume", "--no-train", "--out", out).code == 0


def test_progress_speaks_of_belief_only_where_there_is_one(tmp_path):
    lines = [line for line in cli("search", *OWNS, "--out", tmp_path / "run").err.splitlines() if ": epoch " in line]
    searched, alone = ([line for line in lines if line.startswith(begin)] for begin in ("search:", "training alone:"))
    assert searched
    assert alone
    assert all("| entropy " in line for line in searched)
    assert not any("entropy" in line for line in alone)


# ---------------------------------------------------------------------------------------------------------------------
# Where it has no sense.


@pytest.mark.parametrize(
    "told",
    [
        TINY,
        (*SEARCH, *SHORT[:4], "--method", "standalone", "--set", "architecture=act=relu", "--device", "cpu"),
        ("--space", "fourier", "--data", "fourier", "--set", "epochs=2", "--device", "cpu"),
    ],
    ids=["depth", "standalone", "fourier"],
)
def test_nothing_is_trained_twice(tmp_path, told):
    out = tmp_path / "run"
    said = cli("search", *told, "--out", out)
    assert said.code == 0, said.err
    assert not (out / "trained").exists()
    assert "shared weights" not in said.out
    assert "shared weights" not in (out / "report.html").read_text(encoding="utf-8")


def test_no_train_is_for_a_search(tmp_path):
    refused("train", "--no-train", "--out", tmp_path / "run", says="No such option: --no-train")


# ---------------------------------------------------------------------------------------------------------------------
# An ensemble.


def test_members_that_belief_draws(tmp_path, handed_over):
    out = shutil.copytree(handed_over, tmp_path / "run")
    found = cli("train", out, "--members", 2, "--json").json
    run = pa.open_run(out)
    assert (found["members"], found["split"]) == (2, "test")
    assert found["metrics"]["selected"] == pytest.approx(run.result["metrics"]["test_trained"])
    members = [pa.open_run(out / "members" / str(place)) for place in range(2)]
    assert [member.seed for member in members] == [1, 2]
    x, y = run.task().test.x, run.task().test.y
    probs = torch.stack([member.model()(x).softmax(-1) for member in members]).mean(0)
    assert found["metrics"]["ensemble"]["accuracy"] == pytest.approx((probs.argmax(-1) == y).double().mean().item())
    before = files(out / "members")
    said = cli("train", out, "--members", 3)
    assert [line.partition("  ")[0] for line in said.out.splitlines()][1:] == ["selected network", "ensemble of 3"]
    assert files(out / "members").items() >= before.items(), "what was trained is taken as it is"
    ensemble = pa.train_members(run, 2)
    assert torch.allclose(ensemble.output(x).exp(), probs, atol=1e-5)


def test_members_of_a_search_that_was_left_as_it_is(tmp_path, monkeypatch, handed_over, as_it_is):
    """The selected network is trained first; interrupted, the same command goes on."""
    out = shutil.copytree(as_it_is, tmp_path / "run")
    with monkeypatch.context() as patched:
        interrupting(patched, 0)
        said = cli("train", out, "--members", 2)
    assert (said.code, said.out) == (130, "")
    assert said.err.endswith("interrupted; the same command goes on where it was\n")
    assert cli("train", out, "--members", 2).code == 0
    assert_same_run(out / "trained", handed_over / "trained")


def test_members_refused(tmp_path, handed_over):
    refused("train", "--members", 2, says="give its folder")
    refused("train", handed_over, "--members", 1, says="members")
    for option in (("--out", tmp_path / "no"), ("--seed", 0), ("--set", "epochs=2"), ("--inherit",)):
        refused("train", handed_over, "--members", 2, *option, says=f"leave {option[0]} out")
    refused("train", handed_over / "trained", "--members", 2, says="do not share weights with others")
    refused("train", handed_over, says="say where the run goes: --out FOLDER")
    assert not (handed_over / "members").exists()
    assert not (tmp_path / "no").exists()
