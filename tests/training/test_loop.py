from collections import Counter
from dataclasses import dataclass, replace

import pytest
import torch

import polyarch as pa
from polyarch import PolyarchError
from polyarch.core import FeedSpec, Info, Problem
from polyarch.data.task import Split, TaskShape
from polyarch.distributions import exponential
from polyarch.methods import FixedDepth, Parsec, VariationalDepth
from polyarch.streams import NAMES, Streams
from polyarch.training.capture import captured_form, settled_form
from polyarch.training.loop import Batches, Diverged, Loop, Progress, stopping_split
from polyarch.training.optimisers import momentum_buffers, sgd

SPACE = pa.spaces.ResidualDepth(max_depth=3, width=6)


@pytest.fixture(scope="module")
def task():
    return pa.data.load("spirals", points=50, test_points=20)


def problem_of(task, repeats=1, valid=False):
    x, y = task.preprocess(task.train.x), task.train.y
    data = {"train": Split(x, y)} | ({"select": Split(x, y)} if valid else {})
    return Problem(SPACE, SPACE.supernet(task.shape, repeats), task.likelihood, exponential(SPACE.decisions), data)


def loop_of(task, method, repeats=1):
    problem, streams = problem_of(task, repeats), [Streams(k) for k in range(repeats)]
    state = method.init(problem, streams, None)
    return Loop(method, problem, state, streams, Progress(), method.epochs)


def test_an_epoch_visits_every_example_once_and_drops_the_partial_batch(task):
    problem = problem_of(task, repeats=2)
    batches = Batches(problem, {"train": FeedSpec("train", 8)})
    assert len(batches.counts) == 6
    batches.shuffle([Streams(0), Streams(1)])
    seen = [Counter(), Counter()]
    for step in range(len(batches.counts)):
        [batch] = batches.every(step)["train"]
        for repeat in range(2):
            seen[repeat].update(map(tuple, batch.x[repeat].tolist()))
            for x, y in zip(batch.x[repeat], batch.y[repeat], strict=True):
                [row] = (problem.data["train"].x == x).all(-1).nonzero()[0].tolist()
                assert problem.data["train"].y[row] == y
    for counted in seen:
        assert len(counted) == 48
        assert set(counted.values()) == {1}
    assert seen[0] != seen[1]


def test_a_full_batch_is_never_copied(task):
    problem = problem_of(task)
    batches = Batches(problem, {"train": FeedSpec("train", 50)})
    batches.shuffle([Streams(0)])
    assert batches.every(0)["train"][0].x.data_ptr() == problem.data["train"].x.data_ptr()


def test_every_repeat_stops_by_itself_and_keeps_its_own_best(task):
    method = VariationalDepth(epochs=300, stopping={"patience": 10, "split": "train"}, weights={"lr": 1.0})
    together = loop_of(task, method, repeats=3)
    while not together.progress.finished(method.epochs):
        together.epoch()
    stopped = together.progress.stopped_epoch
    assert all(stopped), "a large rate must make all three stop early"
    for best, stop in zip(together.progress.best_epoch, stopped, strict=True):
        assert stop - best == 10
    together.state.copy_from(together.best)
    values = method.evaluate(together.problem, together.state, "train")["objective"].tolist()
    assert values == pytest.approx(together.progress.best, rel=1e-4)


def test_never_stopping_keeps_the_last_state(task):
    method = VariationalDepth(epochs=6, stopping={"split": "never"}, weights={"lr": 1.0})
    loop = loop_of(task, method)
    while not loop.progress.finished(method.epochs):
        loop.epoch()
    assert loop.progress.best_epoch == [6]
    for name, value in loop.state.tensors().items():
        assert torch.equal(value, loop.best[name])


def test_a_diverged_search_says_so(task):
    method = FixedDepth(epochs=50, weights={"lr": 1e20})
    loop = loop_of(task, method)
    with pytest.raises(Diverged, match="diverged"):
        list(iter(loop.epoch, "never"))


def test_which_split_decides(task):
    plain, valid = problem_of(task), problem_of(task, valid=True)
    method = VariationalDepth()
    assert stopping_split(method, plain) == "train"
    assert stopping_split(method, valid) == "select"
    assert stopping_split(replace(method, stopping={"split": "train"}), valid) == "train"
    assert stopping_split(replace(method, stopping={"split": "never"}), valid) is None
    with pytest.raises(PolyarchError, match="set select"):
        stopping_split(replace(method, stopping={"split": "select"}), plain)


def test_examples_are_counted(task):
    loop = loop_of(task, VariationalDepth(epochs=3, batch_size=20, update="sgd"))
    loop.epoch()
    assert loop.progress.forward == loop.progress.backward == 40
    loop = loop_of(task, VariationalDepth(epochs=3, batch_size=20, update="em"))
    loop.epoch()
    assert (loop.progress.forward, loop.progress.backward) == (40 + 50, 40), "the E-step's too"


@dataclass(frozen=True, kw_only=True)
class Watching(VariationalDepth):
    """Says whether an epoch is evaluated."""

    def end_epoch(self, problem, state, epoch, evaluated):
        return Info({"evaluated": torch.full((problem.repeats,), float(evaluated))}, forward=1000)


def test_what_the_end_of_an_epoch_says_is_told_where_it_is_evaluated(task):
    loop = loop_of(task, Watching(epochs=5, batch_size=20, evaluation={"every": 2}), repeats=2)
    lines = [loop.epoch() for _ in range(5)]
    assert [line is not None for line in lines] == [False, True, False, True, True], "the last one always"
    assert all(line["watch"] == {"evaluated": [1.0, 1.0]} for line in lines if line)
    assert loop.progress.forward == 5 * (40 + 1000)


def test_the_form_that_is_captured():
    plain, sparse = VariationalDepth(), Parsec(samples=2)
    assert captured_form(plain) is plain
    assert captured_form(sparse) == Parsec(samples=2, form="dense")
    dense = Parsec(form="dense")
    assert captured_form(dense) is dense


def test_a_form_is_chosen_where_networks_run_fused():
    fused = pa.spaces.NasBench201(channels=4, cells=1).supernet(TaskShape((3, 8, 8), 10))
    plain = SPACE.supernet(TaskShape((2,), 2))
    assert settled_form(Parsec(), fused, "cuda").form == "dense"
    assert settled_form(Parsec(), fused, "cpu").form == "sparse"
    assert settled_form(Parsec(), plain, "cuda").form == "sparse"
    assert settled_form(Parsec(form="sparse"), fused, "cuda").form == "sparse"
    fused.allow_fast(False)
    assert settled_form(Parsec(), fused, "cuda").form == "sparse"


def test_streams_are_independent_and_restorable():
    first, second = Streams(0), Streams(1)
    drawn = {name: torch.rand(3, generator=first[name]) for name in NAMES}
    assert len({tuple(v.tolist()) for v in drawn.values()}) == len(NAMES)
    assert not torch.equal(drawn["data"], torch.rand(3, generator=second["data"]))
    saved = first.state()
    ahead = torch.rand(3, generator=first["noise"])
    first.restore(saved)
    assert torch.equal(torch.rand(3, generator=first["noise"]), ahead)


def test_sgd_is_that_of_torch():
    ours = {"a": torch.randn(4, 3), "b": torch.randn(2)}
    theirs = [value.clone().requires_grad_() for value in ours.values()]
    reference = torch.optim.SGD(theirs, lr=0.3, momentum=0.9)
    momenta = momentum_buffers(weights=ours)
    assert list(momenta) == ["weights.a", "weights.b"]
    for _ in range(4):
        slopes = [torch.randn_like(value) for value in ours.values()]
        for parameter, slope in zip(theirs, slopes, strict=True):
            parameter.grad = slope.clone()
        reference.step()
        sgd(list(ours.values()), slopes, list(momenta.values()), lr=torch.tensor(0.3), momentum=0.9)
    for mine, other in zip(ours.values(), theirs, strict=True):
        assert torch.allclose(mine, other, atol=1e-6)
