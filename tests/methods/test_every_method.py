"""Every method of the catalogue on every space that it takes: the contract of one run in one process, in miniature.

Repeats and ranks are left out: the tests of each method check them on NAS-Bench-201, those of each space check repeats
of its supernet.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import polyarch as pa
from polyarch import PolyarchError
from polyarch.callbacks import Callback
from polyarch.catalogue import METHODS, find
from polyarch.methods import SemiSupervised
from polyarch.runs import search as searching
from polyarch.runs.run import read_history
from polyarch.runs.search import resume
from polyarch.settings import make, settings_of, updated
from polyarch.spaces import ModuleSpace
from polyarch.testing.methods import check_capture, check_groups, run_plain
from polyarch.training import checkpoints


class Own(nn.Module):
    """A module of one's own, with a choice inside an option of another."""

    def __init__(self):
        super().__init__()
        inner = pa.Choice("inner", {"relu": nn.ReLU(), "tanh": nn.Tanh()})
        deep = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.BatchNorm2d(2), inner)
        self.block = pa.Choice("block", {"1x1": nn.Conv2d(1, 2, 1), "deep": deep, "3x3": nn.Conv2d(1, 2, 3, padding=1)})
        self.head = nn.Linear(2, 3)

    def forward(self, x):
        return self.head(self.block(x).mean((-1, -2)))


SPACES = {
    "nasbench201": pa.spaces.NasBench201(channels=2, cells=1),
    "nasbench1shot1-1": pa.spaces.NasBench1Shot1(sub_space=1, channels=2, cells=1),
    "nasbench1shot1-2": pa.spaces.NasBench1Shot1(sub_space=2, channels=2, cells=1),
    "nasbench1shot1-3": pa.spaces.NasBench1Shot1(sub_space=3, channels=2, cells=1),
    "darts": pa.spaces.Darts(channels=2, layers=1, operations="none,skip_connect,dil_conv_3x3"),  # a reduction cell
    "module": ModuleSpace(Own),
}
EVERYWHERE = (
    "darts", "darts-second", "gdas", "drnas", "balenas", "parsec", "sotl-darts", "sovl-darts", "sotl-drnas"
)  # fmt: skip
SMALL = {"epochs": 2, "batch_size": 6, "samples": 2, "objective.steps": 2, "arch.lr": 0.1}
AT_MOST = {"paths": 2, "inner_steps": 2}
STAGES = {"plan.stages": ((1, 3, 0.1), (3, 3, 0.4)), "warmup_epochs": 1}
STILL = {"epochs": 1, "batch_size": 12, "warmup_epochs": 0, "arch.lr": 0.0, "arch.update": "printed"}
"""Belief stays where it starts; BaLeNAS's usual update moves sigma at any rate."""


def having(method, settings):
    """The method with those of the settings that it has."""
    return updated(method, {name: value for name, value in settings.items() if name in settings_of(type(method))})


def short(name):
    cls, preset = find("method", name)
    fewer = {key: min(preset[key], most) for key, most in AT_MOST.items() if key in preset}
    return having(make(cls, preset), SMALL | fewer | (STAGES if "plan.stages" in preset else {}))


def methods():
    """Every entry of the catalogue, made short; of presets that are then the same, the first."""
    made = {name: short(name) for name in METHODS}
    made["darts-second"] = replace(made["darts"], objective={"order": "second"})
    first = {}
    for name, method in made.items():
        first.setdefault(method, name)
    return {name: method for method, name in first.items()}


def takes(method, space):
    try:
        method.check(space)
    except PolyarchError:
        return False
    return True


CASES = {
    (name, at): (method, space)
    for name, method in methods().items()
    for at, space in SPACES.items()
    if takes(method, space)
}


def test_methods_that_run_everywhere():
    assert {(name, at) for name in EVERYWHERE for at in SPACES} <= CASES.keys()


@pytest.fixture(scope="module", params=CASES, ids=lambda names: "-on-".join(names))
def case(request):
    return CASES[request.param]


@pytest.fixture(scope="module")
def task(case):
    """12 training examples, of which a semi-supervised method knows the labels of 6."""
    random, labels = np.random.default_rng(0), 6 if isinstance(case[0], SemiSupervised) else 0
    images, classes = random.integers(0, 256, (20, 1, 4, 4), np.uint8), np.arange(20) % 3
    return pa.data.load((images, classes), select=0.4, test=0, labels=labels)


@pytest.fixture(scope="module")
def folder(case, task, tmp_path_factory):
    """Where the case has run."""
    folder = tmp_path_factory.mktemp("runs")
    run_plain(*case, task, folder)
    return folder


def test_groups(case, task):
    check_groups(*case, task)


def test_capture(case, task):
    check_capture(*case, task)


def test_resume(folder, task, monkeypatch):
    """To the last bit: weights, belief, momenta and streams of chance."""

    def interrupt(*_):  # what a search does at its end takes longer than such a search
        raise KeyboardInterrupt

    monkeypatch.setattr(searching, "finish", interrupt)
    with pytest.raises(KeyboardInterrupt):
        resume(folder / "killed", task=task)
    assert timeless(folder / "killed") == timeless(folder / "plain")
    (plain, numbers), (resumed, again) = (newest(folder / run) for run in ("plain", "killed"))
    assert numbers["progress"] == again["progress"]
    assert plain.keys() == resumed.keys()
    assert [name for name, value in plain.items() if not torch.equal(value, resumed[name])] == []


class FirstBelief(Callback):
    """Keeps the probabilities of the first evaluation, and interrupts: what follows takes longer than the search."""

    def on_evaluation(self, evaluation):
        self.probs = {name: rows[0] for name, rows in evaluation.metrics["probs"].items()}
        raise KeyboardInterrupt


def test_belief_from(case, folder, task):
    """Belief that stands still shows where it began, to the last bit."""
    method, space = case
    out, source = folder / "again", folder / "plain"
    began = FirstBelief()
    told = {"seed": 2, "callbacks": [began]}
    told |= {"start": pa.Start(belief_from=source), "compute": pa.Compute("cpu")}
    with pytest.raises(KeyboardInterrupt):
        pa.search(space, task, having(method, STILL), out=out, **told)
    first, *_, last = read_history(source)
    learns = "arch.lr" in settings_of(type(method))  # some methods only train the weights that all share
    assert (first["probs"] != last["probs"]) == learns, "belief must move where it is learnt"
    assert began.probs == last["probs"]


def newest(folder):
    return checkpoints.load(checkpoints.newest_first(folder)[0])


def timeless(folder):
    return [{name: value for name, value in line.items() if name != "seconds"} for line in read_history(folder)]
