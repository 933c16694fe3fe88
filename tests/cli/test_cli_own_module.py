"""A model of one's own on the command line, in the process that searched and in others."""

import csv
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from commandline import POLYARCH, check_one_line, cli, files, refused

import polyarch as pa
from polyarch.callbacks import Checkpoints
from polyarch.testing.callbacks import InterruptAfter

OWN = """
import polyarch as pa
from torch import nn


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = pa.Choice("layer", {"linear": nn.Linear(4, 6), "normed": self.normed()})
        self.act = pa.Choice("act", {"relu": nn.ReLU(), "tanh": nn.Tanh()})
        self.head = nn.Linear(6, 3)

    def normed(self):
        return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6))

    def forward(self, x):
        return self.head(self.act(self.layer(x)))


def make():
    return nn.Sequential(pa.Choice("width", {"3": nn.Linear(4, 3), "9": nn.Linear(4, 3)}), nn.Tanh(), nn.Linear(3, 3))


def disagreeing():
    return pa.Choice("width", {"narrow": nn.Linear(4, 2), "wide": nn.Linear(4, 3)})


def deep():
    return nn.Sequential(nn.Linear(4, 5), pa.Depth("depth", [nn.Linear(5, 5) for _ in range(3)], nn.Linear(5, 3)))


def misfit():
    return pa.Depth("depth", [nn.Linear(4, 5), nn.Linear(5, 5)], nn.Linear(5, 3))


def needy(width):
    return nn.Linear(width, 3)


def gives_nothing():
    pass


def for_images():
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), pa.Choice("head", {"a": nn.Linear(8, 3)}))


WIDTH = 3
"""
SCRIPT = (
    OWN
    + """

if __name__ == "__main__":
    task = pa.data.load("tiny.npz", select=0.3)
    method = pa.methods.Parsec(epochs=1, samples=2, batch_size=32)
    run = pa.search(pa.ModuleSpace(Network), task, method, out="scripted", compute=pa.Compute("cpu"))
    print(run.model(run.space.parse("layer=normed,act=tanh"))(task.test.x).sum().item())
"""
)
PARSEC = ("--method", "parsec", "--set", "epochs=1", "--set", "samples=2", "--set", "batch_size=32", "--device", "cpu")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with `my_model.py` and `tiny.npz`, where commands find both."""
    folder = tmp_path_factory.mktemp("home")
    (folder / "my_model.py").write_text(OWN)
    (folder / "my_script.py").write_text(SCRIPT)
    x = np.random.default_rng(0).normal(size=(200, 4)).astype(np.float32)
    np.savez(folder / "tiny.npz", x=x, y=np.digitize(x[:, 0], (-0.5, 0.5)))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.syspath_prepend(folder)
        yield folder
        sys.modules.pop("my_model", None)


@pytest.fixture(scope="module")
def searched(home):
    arguments = ("--space", "my_model:Network", *PARSEC, "--data", "tiny.npz", "--set", "select=0.3", "--no-train")
    return cli("search", *arguments, "--out", "run", "--json").json


def elsewhere(home, *command):
    """What a command prints in a process of its own."""
    found = os.pathsep.join([str(home), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        command, cwd=home, env=os.environ | {"PYTHONPATH": found}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_search(home, searched):
    assert searched["space"] == "my_model:Network"
    assert set(searched["distribution"]["probs"]) == {"layer", "act"}
    parts = dict(part.split("=") for part in searched["architecture"].split(","))
    size = 30 + 21 + (12 if parts["layer"] == "normed" else 0)
    counted = searched["cost"]["selected"]
    assert (counted["parameters"], counted["macs"], parts["act"] in counted["uncounted"]) == (size, 51, True)
    assert json.loads((home / "run" / "config.json").read_text())["space"] == {
        "name": "module",
        "settings": {"factory": "my_model:Network"},
        "signature": {"layer": ["linear", "normed"], "act": ["relu", "tanh"]},
    }
    assert (home / "run" / "report.html").stat().st_size > 10_000


def test_it_goes_by_its_own_name(searched):
    page = Path("run/report.html").read_text()
    assert ": Network by parsec</title>" in page
    assert "Network, selected" in page
    assert "of space my_model:Network for" in cli("show", "run").out
    other = ("--space", "my_model:Network", "--method", "variational-depth", "--data", "tiny.npz", "--out", "none")
    refused("search", *other, says="'my_model:Network' is not")


def test_flat_belief_is_said(searched):
    largest = np.mean([max(shares) for shares in searched["distribution"]["probs"].values()])
    flat = f"flat: the largest share of a decision is, on average, {largest:.3f}, and 0.500 would be no preference"
    assert f"\n  it is {flat}" in cli("show", "run").out
    assert f"Belief is {flat}" in Path("run/report.html").read_text()


def test_its_page_tells_how_to_search_again(searched):
    [command] = re.findall(r"<pre>(polyarch search --space.*?)</pre>", Path("run/report.html").read_text(), flags=re.S)
    words = shlex.split(command.replace("\\\n", ""))
    again = cli(*words[1:], "--json").json
    assert again["metrics"] == searched["metrics"]


SEVERAL = """
import io, json, sys
from contextlib import redirect_stdout
from polyarch.cli.main import run

said = []
for arguments in json.loads(sys.argv[1]):
    sys.argv = ["polyarch", *arguments]
    with redirect_stdout(io.StringIO()) as out:
        try:
            run()
        except SystemExit as ended:
            assert not ended.code
    said.append(out.getvalue())
print(json.dumps(said))
"""


def test_show_evaluate_and_predict_in_another_process(home, searched):
    test = pa.data.load("tiny.npz", select=0.3).test
    np.savez(home / "new.npz", x=test.x.numpy())
    verbs = [["show", "run", "--json"], ["evaluate", "run", "--json"], ["predict", "run", "--inputs", "new.npz"]]
    shown, evaluated, predicted = json.loads(elsewhere(home, sys.executable, "-c", SEVERAL, json.dumps(verbs)))
    assert json.loads(shown) == searched

    found = json.loads(evaluated)
    assert found["architecture"] == searched["architecture"]
    for row, key in (("selected", "test"), ("ensemble", "test_ensemble")):
        assert found["metrics"][row] == pytest.approx(searched["metrics"][key], abs=1e-5)

    rows = list(csv.DictReader(predicted.splitlines()))
    said = pa.open_run("run").ensemble()(test.x)
    said = said.tempered(pa.open_run("run").temperature)
    probs = torch.tensor([[float(row[f"p({k})"]) for k in range(3)] for row in rows])
    assert torch.allclose(probs, said.log_probs.exp(), atol=1e-5)
    assert np.allclose([float(row["mutual_information"]) for row in rows], said.mutual_information, atol=1e-5)


def test_a_model_in_a_script_that_runs(home):
    printed = float(elsewhere(home, sys.executable, "my_script.py"))
    config = json.loads((home / "scripted" / "config.json").read_text())
    assert config["space"]["settings"] == {"factory": "my_script:Network"}
    found = json.loads(elsewhere(home, POLYARCH, "evaluate", "scripted", "--json"))
    result = json.loads((home / "scripted" / "result.json").read_text())
    assert found["metrics"]["selected"] == pytest.approx(result["metrics"]["test"], abs=1e-5)
    run = pa.open_run("scripted")
    again = run.model(run.space.parse("layer=normed,act=tanh"))(run.task().test.x).sum().item()
    assert again == pytest.approx(printed, abs=1e-3)


def test_a_function_makes_the_model(home):
    found = cli("search", "--space", "my_model:make", *PARSEC, "--data", "tiny.npz", "--out", "made", "--json").json
    assert found["architecture"] in ("width=3", "width=9")
    assert cli("show", "made", "--json").json == found
    assert "width=" in cli("evaluate", "made").out


def test_resume_may_repeat_the_space_and_not_change_it(home, searched):
    again = ("--resume", "--space", "my_model:Network", "--no-train")
    assert cli("search", *again, "--out", "run", "--json").json == searched
    refused("search", "--resume", "--space", "my_model:make", "--out", "run", says="conflicts with the run in run")


def test_train_the_network_that_was_found(home, searched):
    short = ("--set", "epochs=1", "--device", "cpu", "--json")
    for name, arguments in {"alone": (), "inherited": ("--inherit",)}.items():
        found = cli("train", "run", *arguments, *short, "--out", f"trained-{name}").json
        assert found["architecture"] == searched["architecture"]
        assert found["cost"] == searched["cost"]
    arguments = ("--space", "my_model:Network", "--arch", "act=tanh,layer=linear", "--data", "tiny.npz")
    found = cli("train", *arguments, *short, "--out", "trained-text").json
    assert found["architecture"] == "layer=linear,act=tanh"


def test_cost_and_needs(home):
    arguments = ("--space", "my_model:Network", "--arch", "layer=normed,act=relu", "--input", "4", "--classes", "3")
    found = cli("cost", *arguments, "--json").json
    assert (found["parameters"], found["macs"]) == (63, 51)
    needs = cli("doctor", "--space", "my_model:Network", "--method", "parsec", "--data", "tiny.npz", "--json").json
    assert needs["search"]["architectures"] == 4
    assert needs["search"]["parameters"] == 30 + 30 + 12 + 21


def test_how_deep_a_model_should_be(home):
    """Like the built-in depth: baselines of fixed depths, blocks that are left out, resume, and in another process."""
    method = ("--method", "variational-depth", "--set", "epochs=2", "--set", "method.batch_size=32", "--device", "cpu")
    arguments = ("--space", "my_model:deep", *method, "--data", "tiny.npz", "--set", "select=0.3", "--out", "deep")
    found = cli("search", *arguments, "--baselines", "0,2", "--set", "max_depth=2", "--json").json
    assert list(found["distribution"]["probs"]) == ["depth"]
    assert len(found["distribution"]["probs"]["depth"]) == 3
    assert {"test", "test_ensemble", "test_unpruned"} <= found["metrics"].keys()
    assert found["cost"]["largest"]["parameters"] == 25 + 2 * 30 + 18
    assert sorted(path.name for path in (home / "deep" / "baselines").iterdir()) == ["depth-0", "depth-2"]
    assert cli("search", "--resume", "--out", "deep", "--json").json == found
    assert json.loads(elsewhere(home, POLYARCH, "show", "deep", "--json")) == found


@pytest.mark.parametrize(
    ("space", "settings", "says"),
    [
        ("my_model:misfit", (), "Depth 'depth': its head does not run after 0 of 2 blocks, on (2, 4)"),
        ("my_model:deep", ("--set", "max_depth=7"), "max_depth is 7; of Depth 'depth' it can be 0 to 3"),
        ("my_model:make", ("--set", "max_depth=1"), "max_depth is for a module with a Depth"),
        ("my_model:make", (), "variational-depth needs a nested space such as 'depth'"),
    ],
)
def test_depths_that_cannot_be(home, space, settings, says):
    method = ("--method", "variational-depth", *settings)
    refused("search", "--space", space, *method, "--data", "tiny.npz", "--out", "none", says=says)
    assert not (home / "none").exists()


@pytest.mark.parametrize(
    ("space", "says"),
    [
        ("module", ("say what makes the module", "--space my_file:Network")),
        ("my_model:NotThere", "module 'my_model' has no 'NotThere'; write spaces as package.module:ClassName"),
        ("my_modle:Network", ("cannot import space 'my_modle:Network'", "PYTHONPATH")),
        ("my_model", "unknown space 'my_model'"),
        ("my_model:WIDTH", "is not a class"),
        ("my_model:needy", "my_model:needy makes no module: TypeError: needy() missing 1 required positional argument"),
        ("my_model:gives_nothing", "my_model:gives_nothing gives NoneType, not an nn.Module; return the module"),
        ("my_model:disagreeing", "Choice 'width': its options answer two inputs in different shapes (narrow (2, 2)"),
        ("my_model:for_images", "Sequential does not run on inputs of shape (4,)"),
        ("torch.nn:Identity", "Identity has no open choice; put a polyarch.Choice in it, or end in a polyarch.Depth"),
    ],
)
def test_spaces_that_cannot_be(home, space, says):
    refused("search", "--space", space, *PARSEC, "--data", "tiny.npz", "--out", "none", says=says)
    assert not (home / "none").exists()


@pytest.mark.parametrize(
    ("arch", "says"),
    [
        ("layer=linear", "says nothing of act"),
        ("layer=linear,act=rleu", "unknown option of act 'rleu'; did you mean 'relu'?"),
        ("depth=3", "unknown decision 'depth'"),
        ("|none~0|+|none~0|none~1|+|none~0|none~1|none~2|", "says nothing of layer, act"),
    ],
)
def test_texts_of_no_architecture(home, arch, says):
    refused("cost", "--space", "my_model:Network", "--arch", arch, "--input", "4", "--classes", "3", says=says)
    refused("train", "--space", "my_model:Network", "--arch", arch, "--data", "tiny.npz", "--out", "none", says=says)


def test_a_model_that_another_process_does_not_find(home, searched):
    command = [POLYARCH, "evaluate", "run"]
    done = subprocess.run(command, cwd=home, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    check_one_line(done.stderr, ("cannot import space 'my_model:Network'", "on PYTHONPATH"))


ACTIVATED = """
import polyarch as pa
from torch import nn


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = pa.Choice("layer", {"short": nn.Linear(4, 6), "long": nn.Sequential(nn.Linear(4, 6), nn.Tanh())})
        self.head = nn.Sequential(nn.GELU(), nn.Linear(6, 3))

    def forward(self, x):
        return self.head(self.layer(x))
"""


@pytest.fixture
def changing(home, monkeypatch):
    """A model in a file that tests change, and a run of it, whose report and trust there are."""
    (home / "changing.py").write_text(ACTIVATED)
    if not (home / "changing").exists():
        arguments = ("--space", "changing:Network", *PARSEC, "--data", "tiny.npz", "--set", "select=0.3")
        assert cli("search", *arguments, "--out", "changing").code == 0
        np.savez(home / "x.npz", x=np.zeros((2, 4)))
    yield home
    (home / "changing.py").write_text(ACTIVATED)


USES = (
    ("evaluate", "changing"),
    ("predict", "changing", "--inputs", "x.npz"),
    ("report", "changing"),
    ("search", "--resume", "--out", "changing"),
    ("select", "changing", "--by", "parameters", "--sample", "2"),
    ("select", "changing", "--by", "parameters", "--method", "random-search", "--budget", "1"),
    ("train", "changing", "--set", "epochs=1", "--out", "other"),
    ("train", "changing", "--set", "epochs=1", "--inherit", "--out", "inheriting"),
    (
        "search",
        "--belief-from",
        "changing",
        "--space",
        "changing:Network",
        *PARSEC,
        "--data",
        "tiny.npz",
        "--out",
        "on",
    ),
    ("trust", "changing", "--train", "2", "--set", "epochs=1", "--device", "cpu"),
)


@pytest.mark.parametrize("command", USES, ids=lambda command: "-".join(command[:3:2]))
def test_a_run_whose_code_has_changed_is_not_used_silently(changing, command):
    """Another activation has the same weights, so that nothing else shows: 0.972 became 0.944."""
    before = files(changing / "changing")
    folders = {path.name for path in changing.iterdir()}
    (changing / "changing.py").write_text(ACTIVATED.replace("nn.GELU()", "nn.ReLU()"))
    refused(*command, says=("has changed since, in changing", "put it back", "--allow-changed", "allow_changed=True"))
    assert files(changing / "changing") == before
    assert {path.name for path in changing.iterdir()} == folders
    assert cli(*command, "--allow-changed").code == 0
    assert cli("show", "changing", "--json").code == 0


def test_a_comment_changes_no_code(changing):
    (changing / "changing.py").write_text("# mine\n" + ACTIVATED.replace("nn.GELU()", "nn.GELU( )  # smooth"))
    assert cli("evaluate", "changing").code == 0


def test_changed_code_in_python(changing):
    (changing / "changing.py").write_text(ACTIVATED.replace("nn.GELU()", "nn.ReLU()"))
    for opened in (pa.open_run, pa.open_best, pa.resume):
        with pytest.raises(pa.PolyarchError, match="has changed since, in changing"):
            opened("changing")
        assert opened("changing", allow_changed=True).config.space["name"] == "module"


def test_changed_code_under_a_table_of_scores(changing, tmp_path):
    """`rank` takes a run, too."""
    (changing / "changing.py").write_text(ACTIVATED.replace("nn.GELU()", "nn.ReLU()"))
    refused("rank", "changing", "--by", "parameters", "--table", "none.npz", says="has changed since, in changing")
    refused("rank", "changing", "--by", "parameters", "--table", "none.npz", "--allow-changed", says="none.npz")


def test_an_interrupted_search_goes_on_with_its_own_code_alone(changing):
    task, method = pa.data.load("tiny.npz", select=0.3), pa.methods.Parsec(epochs=3, samples=2, batch_size=32)
    told = [Checkpoints(seconds=0), InterruptAfter(1)]
    with pytest.raises(KeyboardInterrupt):
        pa.search(pa.ModuleSpace("changing:Network"), task, method, out="begun", callbacks=told)
    before = files(changing / "begun")
    (changing / "changing.py").write_text(ACTIVATED.replace("nn.GELU()", "nn.ReLU()"))
    refused("search", "--resume", "--out", "begun", says="has changed since, in changing")
    assert files(changing / "begun") == before
    (changing / "changing.py").write_text(ACTIVATED)
    assert cli("search", "--resume", "--out", "begun").code == 0
