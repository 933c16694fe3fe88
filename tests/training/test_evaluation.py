"""What evaluation sees of a split: every example once, in batches that no order of a file can bias."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

import polyarch as pa
from polyarch import catalogue
from polyarch.core import Problem
from polyarch.data.task import Split, TaskShape
from polyarch.distributions import uniform
from polyarch.methods import Darts, OneShot
from polyarch.spaces.layers import BatchNorm
from polyarch.spaces.views import Dense, Soft, Sparse
from polyarch.streams import Streams
from polyarch.testing.spaces import make_supernet
from polyarch.training.calibration import recalibrate
from polyarch.training.evaluation import evaluate_view
from polyarch.training.loop import Loop, Progress
from polyarch.trees import leaves, tree_map

CELLS = pa.spaces.NasBench201(channels=4, cells=1)
EPOCHS = 10


def by_class(split):
    order = split.y.argsort(stable=True)
    return Split(split.x[order], split.y[order])


def problem_of(task, supernet, arranged=lambda split: split):
    def own(split):
        return arranged(Split(task.preprocess(split.x), split.y))

    data = {"train": own(task.train), "search": own(task.select), "select": own(task.select)}
    return Problem(CELLS, supernet, task.likelihood, uniform(CELLS.decisions), data)


@pytest.fixture(scope="module")
def digits():
    return pa.data.load("digits", select=0.4)


@pytest.fixture(scope="module")
def trained(digits):
    """A supernet that has learnt something, whose batch norm in cells goes by the batch also in evaluation."""
    supernet = CELLS.supernet(digits.shape)
    problem, streams, method = (
        problem_of(digits, supernet),
        [Streams(0)],
        OneShot(epochs=EPOCHS, batch_size=32, weights={"lr": 0.1}),
    )
    loop = Loop(method, problem, method.init(problem, streams, None), streams, Progress(), EPOCHS)
    for _ in range(EPOCHS):
        for _ in loop.steps():
            pass
        loop.progress.epoch += 1
    return supernet


def test_what_networks_are_worth_does_not_depend_on_the_order_of_the_file(digits, trained):
    as_given, sorted_by_class = problem_of(digits, trained), problem_of(digits, trained, by_class)
    cells = as_given.prior.sample(8, torch.Generator().manual_seed(3))
    worth = [
        torch.tensor(
            [evaluate_view(problem, Sparse(tuple(cell)), "select", 128)["accuracy"] for cell in cells.tolist()]
        )
        for problem in (as_given, sorted_by_class)
    ]
    assert worth[0].max() > 0.5  # there is something to lose
    assert (worth[0] - worth[1]).abs().max() < 0.06
    best = [cells[own.argmax()].tolist() for own in worth]
    assert best[0] == best[1]


def test_a_cell_is_worth_as_much_in_the_supernet_as_its_own_network(digits, trained):
    """Running statistics behind cells are of all cells that passed; by them a cell was worth far less than it is."""
    problem = problem_of(digits, trained)
    train, select = problem.data["train"], problem.data["select"]
    for cell in problem.prior.sample(6, torch.Generator().manual_seed(4)).tolist():
        network = trained.extract(CELLS.architecture(cell))
        recalibrate(network, train.x.split(128)[:-1])
        own = (network.eval()(select.x).argmax(-1) == select.y).float().mean()
        found = evaluate_view(problem, Sparse(tuple(cell)), "select")["accuracy"].item()
        assert found == pytest.approx(own.item(), abs=0.05)


@pytest.mark.parametrize("name", ["nasbench201", "nasbench1shot1-3", "darts"])
def test_evaluation_by_the_batch_reads_no_running_statistics_that_cells_have_moved(name):
    """Those of the stem, which no cell comes before, are averages over the same inputs for all cells."""
    kind, settings = catalogue.find("space", name)
    space, shape = kind(**settings, channels=2), TaskShape((1, 8, 8), 3)
    supernet = make_supernet(space, shape, (0,)).eval()
    x = torch.randn(1, 16, *shape.input, dtype=torch.float64)
    cell = Sparse(tuple(uniform(space.decisions).sample(1, torch.Generator().manual_seed(0))[0].tolist()))
    before = supernet(x, cell)
    for path, module in supernet.named_modules():
        if isinstance(module, BatchNorm) and "stem" not in path:
            module.running_mean.uniform_(-1, 1)
            module.running_var.uniform_(0.1, 10)
    assert torch.equal(supernet(x, cell), before)


def test_every_batch_of_sorted_data_holds_every_class(digits, trained):
    problem = problem_of(digits, trained, by_class)
    batches = list(problem.passes("select", 128))
    assert {len(batch.y[0].unique()) for batch in batches} == {10}
    assert {len(batch.y[0]) for batch in batches} <= {119, 120}  # 719 examples: no batch is a small rest
    seen = torch.cat([batch.x[0] for batch in batches]).flatten(1).sum(1).sort().values
    assert torch.equal(seen, problem.data["select"].x.flatten(1).sum(1).sort().values)


def test_some_examples_are_the_first_of_the_same_order(digits, trained):
    problem = problem_of(digits, trained, by_class)
    batch = problem.some("select", 64)
    assert batch.y.shape == (1, 64)
    assert len(batch.y.unique()) == 10
    assert torch.equal(batch.x, torch.cat([b.x for b in problem.passes("select", 128)], 1)[:, :64])
    assert problem.some("select", 10_000).y.shape == (1, len(problem.data["select"]))


def test_the_hessian_is_of_a_batch_of_all_classes(digits):
    method = Darts(curvature=True, batch_size=64)

    def trace(arranged):
        problem = problem_of(digits, CELLS.supernet(digits.shape), arranged)
        state = method.init(problem, [Streams(0)], None)
        return method.end_epoch(problem, state, 0, True).metrics["hessian_trace"].item()

    batch = problem_of(digits, CELLS.supernet(digits.shape), by_class).some("search", 64)
    alone = trace(lambda split: Split(batch.x[0], batch.y[0]))  # where there is nothing else
    assert trace(by_class) == pytest.approx(alone, rel=1e-4)
    assert trace(lambda split: Split(by_class(split).x[:64], by_class(split).y[:64])) != pytest.approx(alone, rel=0.5)


def views_of(problem, device="cpu"):
    """Two views of each kind that is data, of three architectures: what a recording is replayed for."""
    chance = torch.Generator().manual_seed(1)
    choices = [torch.randint(5, (problem.repeats, 6), generator=chance).to(device) for _ in range(2)]
    mixtures = [tuple(torch.rand(6, problem.repeats, 5, generator=chance).softmax(-1).to(device)) for _ in range(2)]
    return [Dense(choices[0]), Soft(mixtures[0]), Dense(choices[1]), Soft(mixtures[1])]


def test_passes_in_fixed_places_give_what_passes_give(digits):
    """The way that is recorded on a CUDA device: one kind of pass for each view and size of batch, nothing expanded."""
    supernet = make_supernet(CELLS, digits.shape, (0, 1, 2)).float()
    problem, places = problem_of(digits, supernet), {}

    def replay(kind, run, given):
        key = (kind, *(value.shape for value in leaves(given)))
        place = places.setdefault(key, tree_map(torch.clone, given))
        tree_map(Tensor.copy_, place, given)
        return run(place)

    supernet.quickest = lambda choices, replayed=False: Dense(choices)  # as the fused form does on a CUDA device
    for view in views_of(problem):
        found, expected = (evaluate_view(p, view, "select", 100) for p in (replace(problem, replay=replay), problem))
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[name], expected[name]) for name in found)
    sizes = {len(batch.y[0]) for batch in problem.passes("select", 100)}
    assert len(sizes) == 2
    assert len(places) == 2 * len(sizes)
    assert {key[1][0] for key in places} == sizes


@pytest.mark.cuda
@pytest.mark.parametrize("repeats", [1, 3])
def test_replayed_passes_give_what_passes_give(digits, repeats):
    with torch.device("cuda"):
        supernet = CELLS.supernet(digits.shape, repeats)
    on_cpu = problem_of(digits, supernet)
    problem = replace(
        on_cpu,
        data={k: Split(v.x.cuda(), v.y.cuda()) for k, v in on_cpu.data.items()},
        prior=replace(on_cpu.prior, logits=on_cpu.prior.logits.cuda()),
    )
    method, streams = Darts(epochs=2), [Streams(k) for k in range(repeats)]
    loop = Loop(method, problem, method.init(problem, streams, None), streams, Progress(), 2)
    assert loop.problem.replay is not None
    for _ in range(2):  # recorded, and replayed with other weights
        for _ in loop.steps():
            pass
        for view in views_of(problem, "cuda"):
            for size in (100, 1024):
                found = evaluate_view(loop.problem, view, "select", size)
                expected = evaluate_view(problem, view, "select", size)
                for name, value in expected.items():
                    torch.testing.assert_close(found[name], value, rtol=1e-3, atol=1e-3)
