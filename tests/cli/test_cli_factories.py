"""What makes a module of one's own: a name with arguments, or an object; weights that it comes with are kept."""

import json
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
import torch
from commandline import cli, refused
from torch import nn

import polyarch as pa
from polyarch import PolyarchError
from polyarch.data.task import TaskShape
from polyarch.report.commands import search_call
from polyarch.spaces import ModuleSpace
from polyarch.spaces.factory import short_name
from polyarch.testing.spaces import make_supernet

SHAPE = TaskShape((4,), 3)
QUICK = pa.methods.Parsec(epochs=1, samples=2, batch_size=32)
CPU = pa.Compute("cpu")


def network(width=5, activation="tanh", *, bias=True):
    act = {"tanh": nn.Tanh(), "relu": nn.ReLU()}[activation]
    layer = pa.Choice("layer", {"linear": nn.Linear(width, width), "skip": nn.Identity()})
    return nn.Sequential(nn.Linear(4, width, bias=bias), layer, act, nn.Linear(width, 3))


class Holder:
    def make(self):
        return network(6)


@pytest.fixture(scope="module")
def task():
    x = np.random.default_rng(0).normal(size=(120, 4)).astype(np.float32)
    return pa.data.load((x, np.digitize(x[:, 0], (-0.5, 0.5))), select=0.3)


@pytest.mark.parametrize(
    ("text", "width", "last", "bias"),
    [
        ("test_cli_factories:network", 5, nn.Tanh, True),
        ("test_cli_factories:network()", 5, nn.Tanh, True),
        ("test_cli_factories:network(7)", 7, nn.Tanh, True),
        ("test_cli_factories:network(width=7, activation='relu')", 7, nn.ReLU, True),
        ('test_cli_factories:network(7, "relu", bias=False)', 7, nn.ReLU, False),
    ],
)
def test_arguments(text, width, last, bias):
    made = ModuleSpace(text).fresh()
    assert made[0].out_features == width
    assert type(made[2]) is last
    assert (made[0].bias is not None) == bias
    assert short_name(text) == "network"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("test_cli_factories:network(width=", "is no call ('(' was never closed)"),
        ("test_cli_factories:network(width=8)(3)", "is not of the form test_cli_factories:network(width=64)"),
        ("test_cli_factories:network(width=8) + 1", "is not of the form test_cli_factories:network(width=64)"),
        ("test_cli_factories:network(width=int('8'))", "int('8') is no plain value; write values as Python does"),
        ("test_cli_factories:network(width=wide)", "wide is no plain value"),
        ("test_cli_factories:network(**{'width': 3})", "give every argument by itself, not by **"),
        ("test_cli_factories:network(wdith=3)", "makes no module: TypeError: network() got an unexpected keyword"),
        ("test_cli_factories:network(activation='elu')", "makes no module: KeyError: 'elu'; it is called so"),
    ],
)
def test_arguments_that_cannot_be(text, message):
    with pytest.raises(PolyarchError) as caught:
        ModuleSpace(text).fresh()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_arguments_on_the_command_line(tmp_path, monkeypatch, task):
    monkeypatch.chdir(tmp_path)
    np.savez("tiny.npz", x=task.train.x.numpy(), y=task.train.y.numpy())
    method = ("--method", "parsec", "--set", "epochs=1", "--set", "samples=2", "--set", "batch_size=32")
    given = (*method, "--data", "tiny.npz", "--device", "cpu", "--no-plain", "--no-train", "--json")
    text = "test_cli_factories:network(width=9, activation='relu')"
    found = cli("search", "--space", text, *given, "--out", "run").json
    sizes = {"linear": 90, "skip": 0}[found["architecture"].removeprefix("layer=")]
    assert found["cost"]["selected"]["parameters"] == 45 + sizes + 30
    assert json.loads((tmp_path / "run" / "config.json").read_text())["space"]["settings"] == {"factory": text}
    assert pa.open_run("run").model()[1][0].out_features == 9
    assert (
        cli("search", "--resume", "--space", text, "--no-train", "--no-plain", "--out", "run", "--json").json == found
    )
    says = {
        "test_cli_factories:network(width=open)": "open is no plain value",
        "test_cli_factories:Holder(3)": "arguments are for modules of one's own",
        "polyarch.spaces:NasBench201(channels=4)": "set those of a space by --set",
        "depth(3)": "unknown space 'depth",
    }
    for space, message in says.items():
        refused("search", "--space", space, *given[:-1], "--out", "none", says=message)
    assert not (tmp_path / "none").exists()


def local_network():
    def made():
        return network(6)

    return made


@pytest.mark.parametrize(
    "factory",
    [lambda: network(6), partial(network, 6), Holder().make, local_network(), network(6)],
    ids=["lambda", "partial", "method", "local", "instance"],
)
def test_objects(tmp_path, task, factory):
    """A run of what has no name can be opened where the object is, and not elsewhere unless it is given again."""
    space = ModuleSpace(factory)
    run = pa.search(space, task, QUICK, out=tmp_path / "run", compute=CPU)
    says = run.model()(task.test.x)
    again = pa.open_run(tmp_path / "run")
    assert torch.equal(again.model()(task.test.x), says)
    assert again.model()[1][0].out_features == 6
    assert run.result["space"] == "Sequential"
    assert "ModuleSpace(factory=...)" in search_call(run, tmp_path)
    with pytest.raises(PolyarchError, match="makes other networks than those of this run"):
        pa.open_run(tmp_path / "run", space=ModuleSpace(lambda: network(7)))


ELSEWHERE = """
import sys
import polyarch as pa
from test_cli_factories import network

try:
    pa.open_run("run").model()
except pa.PolyarchError as error:
    print(error)
space = pa.ModuleSpace(lambda: network(6))
run = pa.open_run("run", space=space)
print(pa.resume("run", space=space).architecture, run.model()[1][0].out_features)
"""


def test_an_object_is_given_again_in_another_process(tmp_path, task, request):
    run = pa.search(ModuleSpace(lambda: network(6)), task, QUICK, out=tmp_path / "run", compute=CPU)
    assert run.config.code  # of what makes its layers
    folders = ":".join([str(request.path.parent), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE], cwd=tmp_path, env={"PYTHONPATH": folders}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    refusal, opened = done.stdout.splitlines()
    assert "made by a Python object (Sequential), which no other process can find" in refusal
    assert "pa.open_run(folder, space=pa.ModuleSpace(...))" in refusal
    assert opened == f"{run.architecture} 6"
    done = subprocess.run(
        [sys.executable, "-m", "polyarch", "evaluate", "run"],
        cwd=tmp_path,
        env={"PYTHONPATH": folders},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "made by a Python object" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        (3, "3 makes no module; give a class or function that does, a lambda such as lambda: Network(64), or a module"),
        ("", "say what makes the module: ModuleSpace(Network) in Python, --space my_file:Network"),
        (None, "say what makes the module"),
    ],
)
def test_no_factories(factory, message):
    with pytest.raises(PolyarchError) as caught:
        ModuleSpace(factory)
    assert message in str(caught.value)


ALWAYS = network()


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        (nn.Linear(4, 3), "Linear has no open choice"),
        (lambda: ALWAYS, "<lambda> gives the same module twice; make a new one at every call"),
        (lambda: 3, "<lambda> gives int, not an nn.Module"),
        (lambda: network(activation="elu"), "<lambda> makes no module: KeyError: 'elu'"),
        (lambda width: network(width), "<lambda>() missing 1 required positional argument"),
    ],
)
def test_objects_that_cannot_be(tmp_path, task, factory, message):
    with pytest.raises(PolyarchError) as caught:
        pa.search(ModuleSpace(factory), task, QUICK, out=tmp_path / "run", compute=CPU)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


# ---------------------------------------------------------------------------------------------------------------------
# Weights that a module comes with.


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    torch.manual_seed(5)
    path = tmp_path_factory.mktemp("weights") / "stem.pt"
    torch.save(nn.Linear(4, 5).state_dict(), path)
    return path


def pretrained(path, frozen=False):
    made = network()
    made[0].load_state_dict(torch.load(path))
    return made.requires_grad_(not frozen)


def test_weights_loaded_in_the_constructor_are_those_of_every_repeat(weights):
    loaded = torch.load(weights)
    supernet = make_supernet(ModuleSpace(lambda: pretrained(weights)), SHAPE, seeds=(0, 1, 2))
    for repeat in range(3):
        assert torch.equal(supernet.network[0].weight[repeat], loaded["weight"].to(torch.float64))
        assert torch.equal(supernet.network[0].bias[repeat], loaded["bias"].to(torch.float64))
    assert not torch.equal(supernet.network[3].weight[0], supernet.network[3].weight[1])  # drawn by each seed


def test_a_module_begins_with_its_own_weights_in_every_repeat():
    given = network()
    supernet = make_supernet(ModuleSpace(given), SHAPE, seeds=(0, 1))
    for name, value in supernet.network.named_parameters():
        for repeat in range(2):
            assert torch.equal(value[repeat], given.get_parameter(name).to(torch.float64)), name
    with torch.no_grad():
        supernet.network[0].weight.zero_()
    assert given[0].weight.abs().sum() > 0  # a copy


def test_frozen_weights_are_bit_equal_to_the_end(tmp_path, task, weights):
    def made():
        module = pretrained(weights)
        module[0].requires_grad_(False)
        return module

    runs = pa.search(ModuleSpace(made), task, QUICK, out=tmp_path / "run", repeats=2, compute=CPU)
    for run in runs:
        trained = pa.train_selected(run)
        for network_ in (run.networks([run.architecture])[0], run.model()[1], trained.model()[1]):
            assert torch.equal(network_[0].weight, torch.load(weights)["weight"])
            assert torch.equal(network_[0].bias, torch.load(weights)["bias"])
