"""Every method, on every space that it takes, in miniature: what `polyarch.testing.check_method` asks, case by case.

Of the methods of the catalogue each runs on a module of one's own, and one of every kind on the published spaces too;
the others there are slow. Then what a catalogue does not have: other settings, and methods with spaces of their own.
"""

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import nn

import polyarch as pa
from polyarch import PolyarchError
from polyarch.callbacks import Callback
from polyarch.catalogue import METHODS, find
from polyarch.core import Method
from polyarch.methods import (
    Balenas,
    FixedDepth,
    OneShot,
    Parsec,
    SemiSupervised,
    Standalone,
    StochasticArchitectures,
    VariationalDepth,
)
from polyarch.runs import search as searching
from polyarch.runs.run import read_history
from polyarch.runs.search import resume
from polyarch.settings import make, settings_of, updated
from polyarch.spaces import ModuleSpace
from polyarch.testing.methods import check_capture, check_groups, check_ranks, check_repeats, run_plain
from polyarch.testing.toy import EnumeratedElbo, Lines, toy_task
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


# ---------------------------------------------------------------------------------------------------------------------
# The catalogue.

SPACES = {
    "module": ModuleSpace(Own),
    "nasbench201": pa.spaces.NasBench201(channels=2, cells=1),
    "nasbench1shot1-1": pa.spaces.NasBench1Shot1(sub_space=1, channels=2, cells=1),
    "nasbench1shot1-2": pa.spaces.NasBench1Shot1(sub_space=2, channels=2, cells=1),
    "nasbench1shot1-3": pa.spaces.NasBench1Shot1(sub_space=3, channels=2, cells=1),
    "darts": pa.spaces.Darts(
        channels=2, layers=1, operations=("none", "skip_connect", "dil_conv_3x3")
    ),  # a reduction cell
}
EVERYWHERE = (
    "darts", "darts-second", "gdas", "drnas", "balenas", "parsec", "sotl-darts", "sovl-darts", "sotl-drnas"
)  # fmt: skip
OF_EVERY_KIND = ("darts", "parsec", "stochastic-architectures")
"""One that mixes operations, one that runs an architecture at a time, one that runs as many as there are examples."""
QUICK = {
    *((name, at) for name in OF_EVERY_KIND for at in ("nasbench201", "nasbench1shot1-1", "darts")),
    ("fairnas", "nasbench201"),
    ("pdarts", "darts"),
}
"""Beside every method on the module; all others are slow."""
SMALL = {"epochs": 2, "batch_size": 6, "samples": 2, "objective.steps": 2, "arch.lr": 0.1, "weights.lr": 0.025}
AT_MOST = {"paths": 2, "inner_steps": 2}
STAGES = {"plan.stages": ((1, 3, 0.1), (2, 3, 0.4)), "warmup_epochs": 1}
STILL = {"epochs": 1, "batch_size": 12, "warmup_epochs": 0, "arch.lr": 0.0, "arch.update": "printed"}
"""Belief stays where it starts; BaLeNAS's usual update moves sigma at any rate."""


@dataclass(frozen=True)
class Case:
    method: Method
    space: Any
    task: str = "images"
    slow: bool = False


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


CATALOGUE = {
    f"{name}-on-{at}": Case(method, space, slow=at != "module" and (name, at) not in QUICK)
    for name, method in methods().items()
    for at, space in SPACES.items()
    if takes(method, space)
}


def test_methods_that_run_everywhere():
    assert {f"{name}-on-{at}" for name in EVERYWHERE for at in SPACES} <= CATALOGUE.keys()


# ---------------------------------------------------------------------------------------------------------------------
# Beside it.

SHORT = {"epochs": 2, "batch_size": 6}
HALVES = {"epochs": 2, "batch_size": 8}
"""Of a batch one is labelled, and each rank has a half of that."""
DEPTH = pa.spaces.ResidualDepth(max_depth=3, width=6)
CELL = "|nor_conv_3x3~0|+|nor_conv_3x3~0|avg_pool_3x3~1|+|skip_connect~0|nor_conv_1x1~1|none~2|"
LAYERS = pa.spaces.Darts(channels=2, layers=3, operations=("none", "skip_connect", "dil_conv_3x3"))
GENOTYPE = str(LAYERS.architecture([1, 0, 2, 1] * 4))
RECIPE = {"augment": {"crop": 1, "flip": True, "cutout": 3}, "weights": {"grad_clip": 5.0, "nesterov": True}}
WIRINGS = {
    "any": {},
    "listed": {"listed": 3},
    "own": {"listed": 3, "own_affine": True, "own_aggregation": True},
    "dropout": {"wirings": "residual", "dropout": 0.2},
    "one-own": {"wirings": "residual", "own_affine": True},
}


def wiring(name):
    return pa.spaces.Wiring(stages=2, nodes=3, channels=2, **WIRINGS[name])


def changed():
    return {"augment": {"crop": 1}}


OTHERS = {
    "ldn": Case(VariationalDepth(epochs=3, batch_size=20), DEPTH, "spirals"),
    "ldn-em": Case(VariationalDepth(epochs=3, batch_size=20, update="em"), DEPTH, "spirals"),
    "ldn-natural": Case(
        VariationalDepth(epochs=3, batch_size=20, update="natural", arch={"warmup": 0.3}), DEPTH, "spirals"
    ),
    "ldn-held-out": Case(
        VariationalDepth(epochs=3, batch_size=6, update="natural", arch={"evidence": "search"}),
        pa.spaces.ResidualDepth(max_depth=3, width=4, stem_kernel=1),
    ),
    "ldn-on-images": Case(VariationalDepth(**SHORT, weights={"lr": 0.01}), replace(DEPTH, max_depth=2), "larger"),
    "fixed-depth": Case(FixedDepth(depth=2, epochs=3, batch_size=20), DEPTH, "spirals"),
    "toy": Case(EnumeratedElbo(epochs=3, batch_size=10, noise=0.1), Lines(), "line"),
    "parsec-on-lines": Case(Parsec(epochs=2, batch_size=8, samples=3), Lines(), "line"),
    "parsec-dense": Case(Parsec(**SHORT, samples=2, form="dense"), SPACES["module"]),
    "balenas-second": Case(Balenas(**SHORT, objective={"order": "second"}), SPACES["module"]),
    "one-shot-dense": Case(OneShot(**SHORT, form="dense"), SPACES["module"]),
    "multipath-to-a-part": Case(
        OneShot(**SHORT, paths=2, inner_steps=2, proximal=10.0, outer_lr=0.5), SPACES["module"]
    ),
    "standalone-cell": Case(Standalone(**SHORT, **RECIPE, architecture=CELL), SPACES["nasbench201"]),
    "standalone-genotype": Case(
        Standalone(**SHORT, **changed(), architecture=GENOTYPE, auxiliary=0.4, drop_path=0.3), LAYERS, "larger"
    ),
    "semi-supervised": Case(SemiSupervised(**HALVES, **changed()), wiring("listed"), "larger"),
    "semi-supervised-any": Case(SemiSupervised(**HALVES, **changed()), wiring("any"), "larger", slow=True),
    "labels-alone": Case(SemiSupervised(**HALVES, consistency=0.0), wiring("listed"), "larger"),
    **{
        f"{name}-per-{per}": Case(
            StochasticArchitectures(**SHORT, per=per),
            wiring(name),
            "larger",
            slow=(name, per) not in {("any", "instance"), ("own", "instance"), ("own", "batch"), ("dropout", "batch")},
        )
        for name in WIRINGS
        for per in ("instance", "batch")
    },
}
CASES = {**CATALOGUE, **OTHERS}


@pytest.fixture(scope="module")
def tasks(few_images, images, spirals, tmp_path_factory):
    toy_task(line := tmp_path_factory.mktemp("line"))
    kept = {"kind": "regression", "select": 0.4, "test": 0}
    return {"images": few_images, "larger": images, "spirals": spirals, "line": pa.data.load(line / "line.npz", **kept)}


def task_of(case, tasks):
    """Of few labels where the method is for that."""
    return tasks[case.task].resplit(labels=6) if isinstance(case.method, SemiSupervised) else tasks[case.task]


def marked(cases):
    return [pytest.param(name, marks=[pytest.mark.slow] if cases[name].slow else []) for name in cases]


@pytest.fixture(scope="module", params=marked(CASES))
def name(request):
    return request.param


@pytest.fixture(scope="module")
def case(name):
    return CASES[name]


@pytest.fixture(scope="module")
def task(case, tasks):
    return task_of(case, tasks)


@pytest.fixture(scope="module")
def folder(case, task, tmp_path_factory):
    """Where the case has run."""
    folder = tmp_path_factory.mktemp("runs")
    run_plain(case.method, case.space, task, folder)
    return folder


# ---------------------------------------------------------------------------------------------------------------------
# The contract.


def test_groups(case, task):
    check_groups(case.method, case.space, task)


def test_capture(case, task):
    check_capture(case.method, case.space, task)


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


def test_repeats(name, case, folder, task):
    if case.slow and name in CATALOGUE:
        pytest.skip("tests of spaces have repeats; some slopes there are 0 but for rounding, which Adam makes steps of")
    check_repeats(case.method, case.space, task, folder)


class FirstBelief(Callback):
    """Keeps the probabilities of the first evaluation, and interrupts: what follows takes longer than the search."""

    def on_evaluation(self, evaluation):
        self.probs = {name: rows[0] for name, rows in evaluation.metrics["probs"].items()}
        raise KeyboardInterrupt


def test_belief_from(name, case, folder, task):
    """Belief that stands still shows where it began, to the last bit."""
    if name not in CATALOGUE:
        pytest.skip("of the same methods on other spaces")
    out, source, began = folder / "again", folder / "plain", FirstBelief()
    told = {"seed": 2, "callbacks": [began], "start": pa.Start(belief_from=source), "compute": pa.Compute("cpu")}
    with pytest.raises(KeyboardInterrupt):
        pa.search(case.space, task, having(case.method, STILL), out=out, **told)
    first, *_, last = read_history(source)
    learns = "arch.lr" in settings_of(type(case.method))  # some methods only train the weights that all share
    assert (first["probs"] != last["probs"]) == learns, "belief must move where it is learnt"
    assert began.probs == last["probs"]


def newest(folder):
    return checkpoints.load(checkpoints.newest_first(folder)[0])


def timeless(folder):
    return [{name: value for name, value in line.items() if name != "seconds"} for line in read_history(folder)]


# ---------------------------------------------------------------------------------------------------------------------
# Ranks: all in one start of two processes, which takes longer than the searches.

RANKS = (
    "toy",
    "ldn",
    "darts-on-nasbench1shot1-1",
    "sovl-darts-on-nasbench1shot1-1",
    "parsec-on-lines",
    "standalone-cell",
    "standalone-genotype",
    "semi-supervised",
    "own-per-batch",
    "pdarts-on-darts",
)
"""Whatever is shared among ranks in a way of its own: examples, images changed at random, places left out, draws for
every example, roll-outs, stages."""
MORE = (
    "ldn-em",
    "ldn-on-images",
    "darts-second-on-nasbench1shot1-1",
    "sotl-drnas-on-nasbench1shot1-1",
    "balenas-on-nasbench201",
    "parsec-on-nasbench201",
    "fairnas-on-nasbench201",
    "multipath-metaprox-on-nasbench1shot1-1",
    "any-per-instance",
)


@pytest.mark.parametrize("names", [RANKS, pytest.param(MORE, marks=pytest.mark.nightly)], ids=["kinds", "more"])
def test_ranks(names, tasks, tmp_path):
    for name in names:
        case = CASES[name]
        run_plain(case.method, case.space, task_of(case, tasks), tmp_path / name)
    check_ranks(*(tmp_path / name for name in names))
