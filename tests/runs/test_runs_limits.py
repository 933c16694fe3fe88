"""Limits on what a search selects, and a price on cost while it searches."""

import itertools
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
import torch

import polyarch as pa
from polyarch import PolyarchError
from polyarch.callbacks import Checkpoints
from polyarch.distributions import Categorical, exponential
from polyarch.distributions.evidence import posterior
from polyarch.methods.bilevel import prior_loss
from polyarch.runs.preparing import make_problem
from polyarch.runs.search import configured
from polyarch.scores import Macs, sample_and_score
from polyarch.spaces import Cost, expected_cost
from polyarch.spaces.cost import CostTable
from polyarch.spaces.counted import Counted
from polyarch.spaces.limits import Limit
from polyarch.testing.callbacks import InterruptAfter
from polyarch.testing.toy import EnumeratedElbo, Lines, every_choice, log_likelihoods, toy_task
from polyarch.training import checkpoints

CELLS = pa.spaces.NasBench201(channels=2, cells=1)
CPU = pa.Compute("cpu")
QUICK = {"epochs": 1, "batch_size": 16}


@pytest.fixture(scope="module")
def images():
    random = np.random.default_rng(0)
    return pa.data.load((random.normal(size=(48, 1, 6, 6)).astype(np.float32), np.arange(48) % 3), select=0.34, test=0)


def cost_of(run):
    return run.space.cost(run.architecture, run.config.shape())


def tight(space, task, share):
    """A limit between what every network has and what the largest convolutions everywhere have."""
    dear = [next((k for k, o in enumerate(d.options) if "conv_3x3" in o), 0) for d in space.decisions]
    costs = [space.cost(space.architecture(row), task.shape).parameters for row in ([0] * len(dear), dear)]
    return int(costs[0] + share * (costs[1] - costs[0]))


METHODS = {
    "darts": pa.methods.Darts(**QUICK),
    "sotl": pa.methods.Darts(**QUICK, objective={"loss": "sotl"}, weights={"grad_clip": 0.0}),
    "gdas": pa.methods.Gdas(**QUICK),
    "drnas": pa.methods.Drnas(**QUICK),
    "balenas": pa.methods.Balenas(**QUICK),
    "parsec": pa.methods.Parsec(**QUICK, samples=2),
    "one-shot": pa.methods.OneShot(**QUICK),
    "stochastic": pa.methods.StochasticArchitectures(**QUICK, per="batch"),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", list(METHODS))
def test_what_a_method_selects_obeys(name, images, tmp_path):
    most = tight(CELLS, images, 0.05)
    given = {"select": pa.Select(limits=[f"parameters={most}"]), "start": pa.Start(price="parameters=0.01/100")}
    run = pa.search(CELLS, images, METHODS[name], out=tmp_path / "run", compute=CPU, **given)
    assert cost_of(run).parameters <= most
    assert run.result["limits"] == {str(Limit("parameters", most)): cost_of(run).parameters}
    assert run.result["price"] == "parameters=0.01/100"
    assert run.selected("argmax") == run.architecture or run.meaning.kind == "fixed"


@pytest.mark.slow
@pytest.mark.parametrize("method", ["darts", "parsec"])
def test_cells_that_are_read_out_obey(method, images, tmp_path):
    space = pa.spaces.Darts(channels=2, layers=3)
    most = tight(space, images, 0.2)
    run = pa.search(
        space,
        images,
        METHODS[method],
        out=tmp_path / "run",
        select=pa.Select(limits=[f"parameters={most}"]),
        compute=CPU,
    )
    assert cost_of(run).parameters <= most


@pytest.fixture(scope="module")
def plain(images, tmp_path_factory):
    """A search without limits."""
    method = pa.methods.Parsec(epochs=2, samples=2, batch_size=8, arch={"lr": 0.5})
    return pa.search(CELLS, images, method, out=tmp_path_factory.mktemp("plain") / "run", seed=1, compute=CPU)


def test_a_limit_changes_nothing_but_what_is_selected(plain, images, tmp_path):
    whole = cost_of(plain)
    limits = [f"macs={whole.macs - 1}", f"parameters={whole.parameters}"]
    with pytest.raises(KeyboardInterrupt):
        pa.search(
            CELLS, images, plain.config.make_method(), out=tmp_path / "run", seed=1, compute=CPU,
            select=pa.Select(limits=limits), callbacks=[Checkpoints(seconds=0), InterruptAfter(1)],
        )  # fmt: skip
    run = pa.resume(tmp_path / "run", task=images)
    one, other = (checkpoints.load(folder / "weights.safetensors")[0] for folder in (plain.folder, run.folder))
    assert all(torch.equal(value, other[name]) for name, value in one.items())
    assert cost_of(run).macs < whole.macs
    assert run.architecture == plain.selected("argmax", plain.within(limits))
    assert run.selected("argmax", run.within(["macs=1G"])) == plain.architecture  # in place of its own
    slack = pa.Select(limits=["macs=1G"])
    again = pa.search(
        CELLS, images, plain.config.make_method(), out=tmp_path / "slack", seed=1, compute=CPU, select=slack
    )
    assert again.architecture == plain.architecture


def test_draws_of_a_score_obey(plain):
    counted = Counted(CELLS, plain.config.shape())
    drawn = plain.distribution.sample(50, torch.Generator().manual_seed(0))
    costs = counted(drawn)[:, 1].sort().values.int().tolist()
    limit = f"macs={costs[20]}"
    found = sample_and_score(plain, Macs(), 20, limits=[limit])
    assert found.drawn == 20
    assert max(each.score for each in (found.argmax, *found.candidates)) <= costs[20]
    least = int(counted(torch.zeros(1, 6, dtype=torch.int64))[0, 1])
    [only] = {each.score for each in sample_and_score(plain, Macs(), 2, limits=[f"macs={least}"]).candidates}
    assert only == least


def test_a_column_of_a_table(images, tmp_path):
    texts = [CELLS.architecture(row).text for row in itertools.product(range(5), repeat=6)]
    convolutions = np.array([text.count("conv") for text in texts], np.float32)
    convolutions[:100] = np.nan  # not known, so not within
    np.savez(tmp_path / "table.npz", arch=np.array(texts), edge_latency=convolutions, valid_acc=convolutions)
    method, truth = METHODS["parsec"], pa.TableTruth(tmp_path / "table.npz", "valid_acc")
    given = {"callbacks": [truth], "compute": CPU}
    run = pa.search(CELLS, images, method, out=tmp_path / "run", select=pa.Select(limits=["edge_latency=1"]), **given)
    assert run.architecture.text.count("conv") <= 1
    assert texts.index(run.architecture.text) >= 100
    assert run.result["limits"] == {"edge_latency=1": run.architecture.text.count("conv")}
    for limit, says in (
        ("valid_acc=1", "nothing is chosen by that"),
        ("edge_latency=0.0001", None),
        ("elsewhere=1", "unknown column"),
    ):
        if says:
            with pytest.raises(PolyarchError, match=says):
                pa.search(CELLS, images, method, out=tmp_path / "none", select=pa.Select(limits=[limit]), **given)
    with pytest.raises(PolyarchError, match="it can be on parameters, macs, latency, or on a column"):
        pa.search(
            CELLS, images, method, out=tmp_path / "none", select=pa.Select(limits=["edge_latency=1"]), compute=CPU
        )
    assert not (tmp_path / "none").exists()


def test_a_latency_that_was_measured_stays(images, tmp_path):
    space = pa.spaces.ResidualDepth(max_depth=2, width=4)
    method = pa.methods.VariationalDepth(epochs=1)
    run = pa.search(
        space, images, method, out=tmp_path / "run", select=pa.Select(limits=["latency=10s@8"]), compute=CPU
    )
    [(limit, seconds)] = run.result["limits"].items()
    assert limit == "latency=10s@8"
    assert 0 < seconds < 10
    again = pa.open_run(tmp_path / "run")
    assert again.bounds.costs(again.architecture) == {limit: seconds}


def test_what_cannot_be_is_said_before_anything_is_made(images, tmp_path):
    depths = pa.spaces.ResidualDepth(max_depth=2, width=4)
    for space, method, given, says in (
        (CELLS, METHODS["parsec"], {"select": pa.Select(limits=["parameters=10"])}, "the fewest parameters are"),
        (
            CELLS,
            METHODS["parsec"],
            {"select": pa.Select(limits=["latency=0.001ms"])},
            "fewest multiply-accumulates takes",
        ),
        (CELLS, METHODS["parsec"], {"start": pa.Start(price="latency=1/1")}, "adds up over decisions"),
        (depths, pa.methods.FixedDepth(epochs=1), {"select": pa.Select(limits=["parameters=1M"])}, "choose nothing"),
        (depths, pa.methods.FixedDepth(epochs=1), {"start": pa.Start(price="macs=1/1M")}, "choose nothing"),
    ):
        with pytest.raises(PolyarchError, match=says):
            pa.search(space, images, method, out=tmp_path / "run", compute=CPU, **given)
    assert not (tmp_path / "run").exists()


# ---------------------------------------------------------------------------------------------------------------------
# The price.


@dataclass(frozen=True, kw_only=True)
class PricedLines(Lines):
    """Lines of which slopes and the shift cost something."""

    name: ClassVar[str] = "priced-lines"

    def cost(self, architecture, shape):
        slope, shift = architecture.choices
        return Cost((3, 0, 3)[slope] + shift + 1, 0)

    def cost_table(self, shape):
        options = {"slope": [Cost(3, 0), Cost(0, 0), Cost(3, 0)], "shift": [Cost(0, 0), Cost(1, 0)]}
        return CostTable(Cost(1, 0), options)


def test_belief_becomes_the_posterior_under_the_price_by_enumeration(tmp_path):
    space, task = PricedLines(), toy_task(tmp_path / "data")
    method = EnumeratedElbo(epochs=1000, evaluation={"every": 500}, stopping={"split": "never"}, lr=1.0)
    run = pa.search(space, task, method, out=tmp_path / "run", start=pa.Start(price="parameters=0.05/2"), compute=CPU)
    x, y = task.preprocess(task.train.x), task.train.y
    config = configured(space, task, method, start=pa.Start(price="parameters=0.05/2"))
    problem = replace(make_problem(config, space, task, torch.device("cpu")), supernet=run.supernet())
    fits = log_likelihoods(problem, x[None], y[None]).sum(-1)[0]
    every = every_choice(space)
    costs = torch.tensor([space.cost(a, task.shape).parameters for a in space.decode(every)])
    wanted = (fits - len(y) * 0.05 / 2 * costs).softmax(0)
    assert torch.allclose(run.distribution.log_prob(every).exp(), wanted, atol=1e-2)
    assert torch.allclose(run.prior.log_prob(every), (-len(y) * 0.05 / 2 * costs).log_softmax(0), atol=1e-4)
    assert run.architecture.text == "slope=0.0,shift=0.0"  # without a price it is 1.0 and 0.5


def test_depth_has_the_exact_posterior_under_the_price(tmp_path):
    task = pa.data.load("spirals", points=80, test_points=20, select=0.3)
    space, method = pa.spaces.ResidualDepth(max_depth=5, width=4), pa.methods.VariationalDepth(epochs=4)
    run = pa.search(space, task, method, out=tmp_path / "run", start=pa.Start(price="parameters=0.02/10"), compute=CPU)
    costs = [space.cost(space.architecture([k]), task.shape).parameters for k in range(6)]
    held_out = run.evidence.by_split()["select"]
    wanted = held_out + exponential(space.decisions).log_probs[0] - len(task.select) * 0.02 / 10 * torch.tensor(costs)
    assert torch.allclose(run.distribution.probs()["depth"].double(), wanted.softmax(0), atol=1e-3)
    assert torch.allclose(posterior(held_out, run.prior).probs()["depth"], wanted.softmax(0), atol=1e-4)


@pytest.mark.parametrize("space", [CELLS, pa.spaces.Darts(channels=2, layers=3)], ids=lambda space: space.name)
def test_the_penalty_of_a_mixture_is_its_expected_cost(space, images):
    config = configured(space, images, METHODS["darts"], start=pa.Start(price="macs=0.5/10k"))
    problem = make_problem(config, space, images, torch.device("cpu"))
    simplices, examples = space.relaxation.simplices, len(problem.data["search"])
    table, losses, wanted = space.cost_table(images.shape), [], []
    for seed in range(2):
        drawn = torch.randn(1, len(simplices), len(simplices[0]), generator=torch.Generator().manual_seed(seed))
        belief = space.relaxation.belief(Categorical(simplices, drawn.requires_grad_()))
        loss = prior_loss(problem, belief, examples)
        [slope] = torch.autograd.grad(loss.sum(), drawn)
        assert slope.isfinite().all()
        assert slope.abs().max() > 0
        losses.append(loss.item())
        if belief.exact:
            wanted.append(expected_cost(space, belief, images.shape).macs.item())
        else:  # of every option by its weight
            rows = zip(
                (own.detach() for own in belief.mean_weights()), (table.options[d.name] for d in simplices), strict=True
            )
            wanted.append(sum(float(p) * cost.macs for w, costs in rows for p, cost in zip(w[0], costs, strict=True)))
    assert losses[0] - losses[1] == pytest.approx(0.5 / 10_000 * (wanted[0] - wanted[1]), rel=1e-3)


@pytest.mark.parametrize(
    "name", ["darts", "parsec", *(pytest.param(name, marks=pytest.mark.slow) for name in ("gdas", "drnas", "balenas"))]
)
def test_a_high_price_leads_to_cheaper_networks(name, images, tmp_path):
    changes = {"epochs": 6, "arch": {"lr": 0.3}} | ({"data_size": 0} if name == "balenas" else {})
    method = replace(METHODS[name], **changes)
    run = pa.search(
        CELLS, images, method, out=tmp_path / "run", start=pa.Start(price="parameters=100/100"), compute=CPU
    )
    everywhere = expected_cost(CELLS, CELLS.random(), images.shape).parameters
    assert expected_cost(CELLS, run.distribution, images.shape).parameters < 0.95 * everywhere
    assert cost_of(run).parameters < everywhere


def test_where_belief_is_fixed_the_price_is_taken_off_what_architectures_are_worth(images, tmp_path):
    run = pa.search(
        CELLS,
        images,
        METHODS["one-shot"],
        out=tmp_path / "run",
        start=pa.Start(price="parameters=100/100"),
        compute=CPU,
    )
    compared = Counted(CELLS, images.shape)(CELLS.random().sample(20, torch.Generator().manual_seed(1)))
    assert cost_of(run).parameters == compared[:, 0].min()
    assert run.prior.log_probs.unique().numel() == 1  # paths are drawn as ever
