"""Limits and prices as texts, costs of many architectures at once, and selection within limits at real sizes."""

import pytest
import torch
from torch import nn

import polyarch as pa
from polyarch import PolyarchError
from polyarch.data.task import TaskShape
from polyarch.distributions import Categorical, Dirichlet, GaussianLogits
from polyarch.distributions.categorical import masked
from polyarch.distributions.selection import select
from polyarch.spaces import Darts, Listed, ModuleSpace, NasBench1Shot1, NasBench201, ResidualDepth, Restricted, Wiring
from polyarch.spaces.bounds import SpaceBounds
from polyarch.spaces.counted import Counted
from polyarch.spaces.limits import COUNTED, Limit, Price, in_words, limits_of

CIFAR, SMALL = TaskShape((3, 32, 32), 10), TaskShape((1, 6, 6), 3)


@pytest.mark.parametrize(
    ("text", "name", "most", "batch"),
    [
        ("parameters=100k", "parameters", 100_000, 1),
        ("macs=1.5G", "macs", 1.5e9, 1),
        ("macs = 5000000", "macs", 5e6, 1),
        ("latency=5ms", "latency", 0.005, 1),
        ("latency=0.25s@64", "latency", 0.25, 64),
        ("latency_ms[edge=1]=3.5", "latency_ms[edge=1]", 3.5, 1),
        ("parameters=123457", "parameters", 123_457, 1),
    ],
)
def test_a_limit_is_read_and_written(text, name, most, batch):
    found = Limit.of(text)
    assert (found.name, found.batch) == (name, batch)
    assert found.most == pytest.approx(most, rel=1e-12)
    assert Limit.of(str(found)) == found


def test_limits_in_words():
    assert str(Limit.of("macs=5000000")) == "macs=5M"
    assert in_words("latency=40ms@64", 0.0123) == "a forward pass of 64 examples: 12.3ms, of 40ms at most"
    assert in_words("parameters=100k", 82122) == "parameters: 82.122k, of 100k at most"
    assert str(Price.of("macs=1e-2/5000k")) == "macs=0.01/5M"


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        (["parameters"], "is not NAME=VALUE"),
        (["=5"], "is not NAME=VALUE"),
        (["parameters=-5"], "no number above 0"),
        (["parameters=0"], "no number above 0"),
        (["parameters=5ms"], "unknown unit 'ms'"),
        (["latency=5"], "has no unit; write it like latency=5ms"),
        (["latency=5k"], "unknown unit 'k'"),
        (["latency=5ms@0"], "size of a batch"),
        (["macs=1M", "macs=2M"], "two limits on macs"),
    ],
)
def test_what_is_no_limit(texts, says):
    with pytest.raises(PolyarchError, match=says):
        limits_of(texts)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("parameters=5", "is not NAME=NATS/UNIT"),
        ("latency=1/5ms", "what adds up over decisions"),
        ("macs=1k/5M", "has a unit"),
        ("macs=1/x", "no number above 0"),
    ],
)
def test_what_is_no_price(text, says):
    with pytest.raises(PolyarchError, match=says):
        Price.of(text)


# ---------------------------------------------------------------------------------------------------------------------


class Nested(nn.Module):
    """A choice inside an option of another, so that costs do not add up."""

    def __init__(self):
        super().__init__()
        inner = nn.Sequential(nn.Linear(4, 4), pa.Choice("inner", {"a": nn.Linear(4, 4), "b": nn.Identity()}))
        self.outer = pa.Choice("outer", {"deep": inner, "flat": nn.Linear(4, 4)})
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        return self.head(self.outer(x))


class Ends(nn.Module):
    """Ends in a depth."""

    def __init__(self):
        super().__init__()
        self.depth = pa.Depth("depth", [nn.Linear(4, 4) for _ in range(3)], head=nn.Linear(4, 3))

    def forward(self, x):
        return self.depth(x)


def spaces():
    cells = NasBench201(channels=2, cells=1)
    texts = [cells.architecture(row).text for row in ([0, 1, 2, 3, 4, 0], [3] * 6)]
    vector = TaskShape((4,), 3)
    return {
        "nasbench201": (cells, SMALL),
        "listed": (Listed(cells, texts), SMALL),
        "restricted": (Restricted(cells, {"1<-0": ["nor_conv_3x3", "none"], "3<-2": ["skip_connect"]}), SMALL),
        "one": (Restricted.to(cells, cells.parse(texts[0])), SMALL),
        "darts": (Darts(channels=2, layers=3), SMALL),
        "nasbench1shot1": (NasBench1Shot1(channels=2, cells=3, sub_space=2), SMALL),
        "depth": (ResidualDepth(max_depth=4, width=4), vector),
        "wiring": (Wiring(stages=2, nodes=2, channels=2), SMALL),
        "own wirings": (Wiring(stages=1, nodes=3, channels=2, listed=3, own_affine=True), SMALL),
        "nested": (ModuleSpace(Nested), vector),
        "own depth": (ModuleSpace(Ends), vector),
    }


@pytest.mark.parametrize("name", list(spaces()))
def test_many_costs_at_once_are_those_one_by_one(name):
    space, shape = spaces()[name]
    choices = space.random().sample(4, torch.Generator().manual_seed(0))
    if name == "darts":  # the same operation on the same input twice is one operation
        choices[0, 1] = choices[0, 0]
    costs = [space.cost(architecture, shape) for architecture in space.decode(choices)]
    wanted = torch.tensor([[getattr(cost, each) for each in COUNTED] for cost in costs]).double()
    assert torch.equal(Counted(space, shape)(choices), wanted)


def test_costs_that_do_not_add_up_have_no_price_and_can_be_limited():
    space, shape = spaces()["nested"]
    with pytest.raises(PolyarchError, match="do not add up"):
        _ = Counted(space, shape).decisions
    belief = Categorical(space.decisions, torch.zeros(2, 2))
    chosen = space.architecture(
        select(belief, "argmax", bounds=SpaceBounds(limits_of(["parameters=40"]), space, shape))
    )
    assert space.cost(chosen, shape).parameters <= 40


# ---------------------------------------------------------------------------------------------------------------------

SPACE = NasBench201()
EVERY = torch.cartesian_prod(*[torch.arange(5)] * 6)


def of_cells(kind, seed=0):
    """A belief that likes convolutions of 3x3 best."""
    drawn = torch.randn(6, 5, generator=torch.Generator().manual_seed(seed))
    drawn[:, 3] += 4
    if kind == "dirichlet":
        return Dirichlet(SPACE.decisions, drawn.exp())
    if kind == "gaussian":
        return GaussianLogits(SPACE.decisions, drawn, drawn.abs() + 0.1)
    return Categorical(SPACE.decisions, drawn)


@pytest.mark.parametrize("kind", ["categorical", "dirichlet", "gaussian"])
@pytest.mark.parametrize("share", [0.5, 0.1])
def test_the_best_cell_of_all_within_half_and_a_tenth(kind, share):
    belief, counted = of_cells(kind), Counted(SPACE, CIFAR)
    whole, costs = counted(belief.mode()[None])[0], counted(EVERY)
    for limited in ([0], [1], [0, 1]):
        most = share * whole[limited]
        limits = [f"{COUNTED[k]}={share * whole[k].item():.0f}" for k in limited]
        found = select(belief, "argmax", bounds=SpaceBounds(limits_of(limits), SPACE, CIFAR))
        within = (costs[:, limited] <= most + 0.5).all(1)
        best = belief.product.log_prob(EVERY[within]).max()
        assert (counted(torch.tensor([found]))[0, limited] <= most + 0.5).all()
        assert belief.product.log_prob(torch.tensor([found])).item() == pytest.approx(best.item(), abs=1e-5)


@pytest.mark.parametrize("skip_limit", [8, 2])
def test_what_is_read_out_obeys_and_could_have_been_read_out(skip_limit):
    space = Darts(skip_limit=skip_limit, channels=4, layers=3)
    relaxation = space.relaxation
    logits = torch.randn(28, 8, generator=torch.Generator().manual_seed(1))
    belief = relaxation.belief(Categorical(relaxation.simplices, masked(logits, relaxation.simplices)))
    counted = Counted(space, SMALL)
    whole = counted(belief.mode()[None])[0]
    for k, name in enumerate(COUNTED):
        most = float(counted.base[k] + 0.5 * (whole[k] - counted.base[k]))
        found = torch.tensor([select(belief, "argmax", bounds=SpaceBounds([Limit(name, most)], space, SMALL))])
        assert counted(found)[0, k] <= most
        again = relaxation.discretize([mixed.double() for mixed in relaxation.mix(found)])
        assert space.canonical(*space.decode(again)) == space.canonical(*space.decode(found))


def test_nothing_within_says_the_least_there_is():
    bounds = SpaceBounds(limits_of(["parameters=1k", "macs=100M"]), SPACE, CIFAR)
    with pytest.raises(PolyarchError) as error:
        bounds.anything()
    assert "within parameters=1k and macs=100M: the fewest parameters are 73.306k" in str(error.value)


def test_a_latency_is_measured_once_and_moves_no_chance():
    space, chance = NasBench201(channels=2, cells=1), torch.get_rng_state()
    belief = Categorical(space.decisions, torch.randn(6, 5, generator=torch.Generator().manual_seed(0)))
    slack = SpaceBounds(limits_of(["latency=10s", "latency=10s@4"]), space, SMALL)
    mode = tuple(belief.mode().tolist())
    assert select(belief, "argmax", bounds=slack) == mode
    assert torch.equal(chance, torch.get_rng_state())
    assert len(slack.measured) == 2
    told = slack.costs(space.architecture(mode))
    assert list(told.values()) == list(slack.measured.values())
    # Known beforehand, so that nothing depends on how busy the machine is.
    known = {f"1 {architecture}": 1.0 for architecture in space.decode(EVERY)}
    cheap = space.architecture([0] * 6)
    known[f"1 {cheap}"] = 0.001
    bounds = SpaceBounds(limits_of(["latency=5ms"]), space, SMALL, measured=known)
    found = select(belief, "argmax", bounds=bounds)
    assert (
        Counted(space, SMALL)(torch.tensor([found])).tolist()
        == Counted(space, SMALL)(torch.zeros(1, 6).long()).tolist()
    )
