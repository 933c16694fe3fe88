"""How much memory a search needs: counted by hand, by torch's profiler, and on a CUDA device."""

import gc
import math
import re
from dataclasses import replace
from typing import Annotated

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.profiler import ProfilerActivity, profile

import polyarch as pa
from polyarch.settings import TakesMemory, memory_settings, updated
from polyarch.streams import Streams
from polyarch.training.allocation import Allocation
from polyarch.training.dry_run import MemoryEstimate, dry_run, one_step, prepare
from polyarch.training.lack_of_memory import what_to_lower
from polyarch.training.loop import Loop, Progress

CELLS = pa.spaces.NasBench201(channels=4, cells=2)
SOTL = {"loss": "sotl", "steps": 4}
EXACT = {"objective": {"loss": "sotl", "order": "exact", "steps": 2}, "weights": {"grad_clip": 0.0}}


@pytest.fixture(scope="module")
def digits():
    return pa.data.load("digits")


# What lives at a time.


def exponentials(x):
    return x.exp().exp().sum()


@pytest.mark.parametrize("is_fake", [False, True])
def test_what_lives_at_a_time_is_what_is_counted_by_hand(is_fake):
    with FakeTensorMode() if is_fake else torch.enable_grad():
        x = torch.ones(100, requires_grad=True)
        with Allocation() as made:
            value = exponentials(x)
            assert made.bytes == 400 + 400 + 4, "two results that the way back needs, and their sum"
            torch.autograd.grad(value, x)
        # On the way back, beside these: the gradient of the sum, and that of the second exponential.
        assert made.peak == 804 + 4 + 400
        assert made.bytes == 4


def test_views_and_changes_in_place_take_nothing_and_what_is_freed_is_not_counted():
    before = torch.zeros(100)
    with Allocation() as made:
        before.add_(1)
        part = before[:50]
        assert made.bytes == 0
        twice = before * 2
        view = twice.view(10, 10)
        del twice
        assert made.bytes == 400, "the view keeps it"
        del view
        assert made.bytes == 0
        for _ in range(3):
            (part + 1).sum()
    assert made.peak == 400


SEARCHES = {
    "depth": (pa.methods.VariationalDepth(batch_size=128), pa.spaces.ResidualDepth(max_depth=3, width=8), 2),
    "darts": (pa.methods.Darts(), CELLS, 1),
    "second order": (pa.methods.Darts(objective={"order": "second"}), CELLS, 1),
    "gdas": (pa.methods.Gdas(), pa.spaces.Darts(channels=2, layers=2), 1),
}


@pytest.mark.parametrize("name", SEARCHES)
def test_a_step_takes_what_torch_allocates(digits, name):
    method, space, repeats = SEARCHES[name]
    problem, state, feed = prepare(method, space, digits, digits.seen(digits.train), repeats)
    one_step(method, problem, state, feed)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as told:
        one_step(method, problem, state, feed)
    events = [event for event in told.profiler.kineto_results.events() if event.name() == "[memory]"]
    now = most = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        now += event.nbytes()
        most = max(most, now)
    assert dry_run(method, space, digits, repeats).step == pytest.approx(most, rel=0.02)


@pytest.mark.parametrize("name", ["depth", "darts"])
def test_so_does_an_evaluation(digits, name):
    method, space, repeats = SEARCHES[name]
    problem, state, _ = prepare(method, space, digits, digits.seen(digits.train), repeats)
    with Allocation() as made:
        method.evaluate(problem, state, "train")
    assert dry_run(method, space, digits, repeats).evaluation == pytest.approx(made.peak, rel=0.02)


# What a search holds.


def test_it_counts_without_running(digits):
    space, method = pa.spaces.ResidualDepth(max_depth=3, width=6), pa.methods.VariationalDepth()
    small = dry_run(method, space, digits)
    assert small.parameters == sum(p.numel() for p in space.supernet(digits.shape).parameters())
    double = dry_run(method, space, digits, repeats=2)
    assert double.parameters == small.parameters
    assert double.state == 2 * small.state
    assert double.step == pytest.approx(2 * small.step, rel=0.1)
    assert dry_run(method, replace(space, max_depth=6), digits).step > 1.5 * small.step
    huge = dry_run(pa.methods.FixedDepth(), replace(space, width=20_000), digits)
    assert huge.total > 9e9, "no memory may be taken for what is only counted"
    assert math.isfinite(huge.total)


def test_data_is_all_examples_and_the_places_of_batches(digits):
    estimate = dry_run(pa.methods.VariationalDepth(batch_size=100), pa.spaces.ResidualDepth(max_depth=1), digits, 3)
    example = 64 * 4 + 8
    assert estimate.data == (len(digits.train) + len(digits.select)) * example + 3 * 100 * example


def test_graphs_share_a_pool_and_warm_up_beside_it():
    held = {"parameters": 1, "state": 10, "scratch": 3, "data": 5, "step": 50}
    one = MemoryEstimate(**held, evaluation=7, recordings=(50,))
    assert (one.graphs, one.total) == (50, 28 + 50)
    assert one.cuda_total == 28 + 50 + 13, "while it is recorded there is a copy of state and scratch"
    assert replace(one, evaluation=70).cuda_total == 28 + 50 + 70, "an evaluation finds the pool full"
    several = MemoryEstimate(**held, evaluation=7, recordings=(20, 50, 40, 1))
    assert several.graphs == 50 + 40
    assert several.cuda_total == 28 + 90 + 13
    called = MemoryEstimate(**held, evaluation=7, recordings=())
    assert (called.graphs, called.cuda_total) == (0, called.total)


@pytest.mark.parametrize(
    "settings",
    [
        {"objective": SOTL},
        {"objective": SOTL, "epochs": 3, "warmup_epochs": 1},
        {"objective": {"loss": "sovl", "steps": 4}},
        EXACT,
        {},
    ],
)
def test_it_counts_what_a_loop_records(digits, settings):
    method = pa.methods.Darts(**{"batch_size": 200, "epochs": 1, **settings})
    space = pa.spaces.NasBench201(channels=1, cells=1)
    estimate = dry_run(method, space, digits)
    problem, state, _ = prepare(method, space, digits, digits.seen(digits.train), repeats=1)
    loop = Loop(method, problem, state, [Streams(0)], Progress(), method.epochs)
    for _ in range(method.epochs):
        loop.epoch()
    assert len(estimate.recordings) == len(loop._captured)
    assert estimate.scratch == sum(value.nbytes for value in state.scratch.values())


def test_where_steps_are_not_captured_there_are_no_graphs(digits):
    sparse, dense = (dry_run(pa.methods.Parsec(samples=2, form=form), CELLS, digits) for form in ("sparse", "dense"))
    assert sparse.graphs == 0
    assert sparse.cuda_total == sparse.total == dense.total
    assert dense.graphs == dense.step


# What to lower.

CELL = "|nor_conv_3x3~0|+|nor_conv_3x3~0|nor_conv_3x3~1|+|skip_connect~0|nor_conv_3x3~1|nor_conv_3x3~2|"
FEW = pa.spaces.Darts(channels=2, layers=2, operations=("none", "skip_connect", "sep_conv_3x3"))
WIRES = pa.spaces.Wiring(stages=2, nodes=4, channels=4, width=2)
LOWER = [
    (pa.methods.VariationalDepth(batch_size=128), pa.spaces.ResidualDepth(max_depth=4, width=8)),
    (pa.methods.FixedDepth(batch_size=128, depth=2), pa.spaces.ResidualDepth(max_depth=4, width=8)),
    (pa.methods.Darts(), CELLS),
    (pa.methods.Darts(batch_size=500, **EXACT), CELLS),
    (pa.methods.Darts(plan={"stages": ((2, 3, 0.1), (3, 3, 0.4))}), FEW),
    (pa.methods.Parsec(samples=1, form="dense"), FEW),
    (pa.methods.OneShot(form="dense"), pa.spaces.NasBench1Shot1(channels=4, cells=6)),
    (pa.methods.StochasticArchitectures(), WIRES),
    (pa.methods.Standalone(architecture=CELL), CELLS),
]


@pytest.mark.parametrize(
    ("method", "space"),
    [pytest.param(*own, marks=[pytest.mark.nightly] * (place == 3)) for place, own in enumerate(LOWER)],  # the longest
)
def test_all_that_is_named_to_be_lowered_does_lower_the_memory_of_a_step(digits, method, space):
    before = dry_run(method, space, digits).step
    names = re.findall(r"[a-z_.]+(?=, | or |$)", what_to_lower(method, space, 1).partition(", or with")[0])
    assert names[0] == "batch_size"
    for name in names:
        owner = space if hasattr(space, name) else method
        value = {"plan.stages": ((1, 3, 0.1),)}.get(name) or _value(owner, name) // 2
        lower = updated(owner, {name: value})
        changed = (lower, space) if owner is method else (method, lower)
        assert dry_run(*changed, digits).step < before, name


def _value(settings, name):
    for part in name.split("."):
        settings = getattr(settings, part)
    return settings


@pytest.mark.parametrize(
    ("method", "space", "repeats", "says"),
    [
        (*LOWER[0], 1, "a lower batch_size, max_depth or width"),
        (*LOWER[1], 1, "a lower batch_size, depth or width"),
        (pa.methods.FixedDepth(), LOWER[1][1], 1, "a lower batch_size, max_depth or width"),
        (*LOWER[2], 6, "a lower batch_size, channels, cells or repeats"),
        (*LOWER[3], 1, "a lower batch_size, objective.steps, channels or cells"),
        (*LOWER[4], 1, "a lower batch_size, plan.stages or channels"),
        (*LOWER[5], 1, "a lower batch_size, channels or layers, or with form=sparse"),
        (pa.methods.Parsec(), pa.ModuleSpace("a:b"), 1, "a lower batch_size"),
        (pa.methods.Parsec(), pa.spaces.Restricted(CELLS, {}), 1, "a lower batch_size, channels or cells"),
    ],
)
def test_only_what_a_search_has_is_named(method, space, repeats, says):
    assert what_to_lower(method, space, repeats) == says


def test_a_setting_is_marked_once_for_all_that_inherit_it():
    from dataclasses import dataclass

    @dataclass(frozen=True, kw_only=True)
    class Base:
        rows: Annotated[int, TakesMemory()] = 3
        columns: int = 4

    @dataclass(frozen=True, kw_only=True)
    class Anew(Base):
        rows: int = 5

    assert memory_settings(Anew()) == ["rows"]


# On a CUDA device.


class Reserved(pa.Callback):
    """What the device has set aside at most until the last evaluation; what comes after a search is not a search's."""

    def __init__(self):
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        self.before = torch.cuda.memory_reserved()

    def on_evaluation(self, evaluation):
        self.most = torch.cuda.max_memory_reserved() - self.before


@pytest.mark.cuda
@pytest.mark.parametrize("objective", [{}, SOTL], ids=["valid", "sotl"])
def test_a_search_on_a_cuda_device_takes_about_what_was_said(digits, tmp_path, objective):
    # Large enough that the workspaces of libraries, some 100 MB, are little.
    space = pa.spaces.NasBench201(channels=32, cells=3)
    method = pa.methods.Darts(epochs=2, batch_size=200, objective=objective)
    estimate, device = dry_run(method, space, digits), Reserved()
    pa.search(space, digits, method, out=tmp_path / "run", compute=pa.Compute("cuda"), callbacks=[device])
    assert 0.5 * estimate.cuda_total < device.most < 2 * estimate.cuda_total
