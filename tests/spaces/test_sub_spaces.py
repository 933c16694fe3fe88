"""Sub-spaces: one architecture of a space alone, some of its options, a list of architectures."""

import json

import pytest
import torch
from torch import nn

import polyarch as pa
from polyarch import PolyarchError
from polyarch.architecture import Decision
from polyarch.data.task import TaskShape
from polyarch.distributions import uniform
from polyarch.methods import OneShot, Standalone, StochasticArchitectures
from polyarch.spaces import (
    Darts,
    Dense,
    Fourier,
    Listed,
    ModuleSpace,
    NasBench1Shot1,
    NasBench201,
    PerExample,
    ResidualDepth,
    Restricted,
    Sparse,
    Wiring,
)
from polyarch.spaces.graph import certain
from polyarch.testing import check_space
from polyarch.testing.spaces import make_supernet

CPU = pa.Compute(device="cpu")
SHAPE = TaskShape((4,), 3)
IMAGE = TaskShape((1, 6, 6), 3)
CELL = "|nor_conv_1x1~0|+|avg_pool_3x3~0|skip_connect~1|+|none~0|nor_conv_3x3~1|skip_connect~2|"


class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        inner = pa.Choice("inner", {"relu": nn.ReLU(), "norm": nn.BatchNorm1d(5)})
        self.layer = pa.Choice(
            "layer",
            {"deep": nn.Sequential(nn.Linear(4, 5), inner, nn.Linear(5, 4)), "flat": nn.Linear(4, 4)},
        )
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        return self.head(x + self.layer(x))


SPACE = ModuleSpace(Layers)
CHOSEN = SPACE.parse("layer=deep,inner=norm")
DEEP = Restricted.to(SPACE, CHOSEN)
ONLY = DEEP.architecture((0, 0))
IMAGES = NasBench201(channels=2, cells=1, network="evaluation")
ONE_CELL = Restricted.to(IMAGES, IMAGES.parse(CELL))


@pytest.mark.parametrize(("space", "shape"), [(DEEP, SHAPE), (ONE_CELL, IMAGE)])
def test_contract_of_one_architecture(space, shape):
    check_space(space, shape, architectures=2)


def test_there_is_one_architecture_under_the_text_of_the_space():
    assert DEEP.decisions == (Decision("layer", ("deep",)), Decision("inner", ("norm",)))
    assert DEEP.count() == 1
    [only] = DEEP.decode(torch.zeros(1, 2, dtype=torch.int64))
    assert (only.text, only.choices) == ("layer=deep,inner=norm", (0, 0))
    assert DEEP.parse(" layer = deep, inner=norm") == only
    assert ONE_CELL.parse(CELL).text == CELL
    with pytest.raises(PolyarchError, match="about layer=deep,inner=norm alone, not about layer=flat,inner=norm"):
        DEEP.parse("layer=flat,inner=norm")
    with pytest.raises(PolyarchError, match="unknown option of layer 'dep'; did you mean 'deep'"):
        DEEP.parse("layer=dep,inner=norm")


def test_what_the_space_says_of_the_architecture():
    only, chosen = ONE_CELL.parse(CELL), IMAGES.parse(CELL)
    shape = TaskShape((3, 32, 32), 10)
    assert ONE_CELL.canonical(only) == IMAGES.canonical(chosen) != CELL
    assert ONE_CELL.key(only) == IMAGES.key(chosen) == CELL
    assert ONE_CELL.cost(only, shape) == IMAGES.cost(chosen, shape)
    assert ONE_CELL.graphs(certain(ONE_CELL.decisions, only)) == IMAGES.graphs(certain(IMAGES.decisions, chosen))
    assert certain(SPACE.decisions, CHOSEN) == {"layer": [1.0, 0.0], "inner": [0.0, 1.0]}


def test_the_network_is_the_spaces_own():
    only = DEEP.architecture((0, 0))
    torch.manual_seed(0)
    built = DEEP.build(only, SHAPE).state_dict()
    torch.manual_seed(0)
    wanted = SPACE.build(CHOSEN, SHAPE).state_dict()
    assert built.keys() == wanted.keys()
    assert all(torch.equal(value, wanted[name]) for name, value in built.items())
    weights = {name.removeprefix("network.") for name, _ in make_supernet(DEEP, SHAPE, (0,)).named_parameters()}
    assert weights == {name for name in wanted if "running" not in name and "batches" not in name}


def test_several_seeds_are_independent_and_each_its_single_run():
    together = make_supernet(DEEP, SHAPE, seeds=(3, 4))
    first, second = (together.member_state(ONLY, k) for k in (0, 1))
    assert not torch.equal(first["head.weight"], second["head.weight"])
    alone = make_supernet(DEEP, SHAPE, seeds=(4,)).member_state(ONLY, 0)
    assert second.keys() == alone.keys()
    assert all(torch.equal(value, alone[name]) for name, value in second.items())
    x = torch.randn(2, 6, 4, dtype=torch.float64)
    together.train()
    output = together(x, Sparse((0, 0)))
    assert torch.allclose(together.extract(DEEP.architecture((0, 0)), 1).train()(x[1]), output[1])


def test_it_checks_what_the_space_checks():
    with pytest.raises(PolyarchError, match="needs images"):
        ONE_CELL.check(SHAPE)
    with pytest.raises(PolyarchError, match=r"Choice 'layer': option 'deep' does not run on its input"):
        DEEP.check(TaskShape((7,), 3))


# ---------------------------------------------------------------------------------------------------------------------
# Some options.

CELLS = NasBench201(channels=2, cells=1, statistics="running")
TWO = ("skip_connect", "nor_conv_3x3")
SOME = Restricted(CELLS, {"1<-0": TWO, "3<-2": ("none", "avg_pool_3x3"), "2<-1": ("nor_conv_1x1",)})
DARTS = Darts(channels=2, layers=2, operations=("none", "skip_connect", "dil_conv_3x3"), statistics="running")
PAIRS = {"normal.0.0": ("skip_connect~0", "dil_conv_3x3~1"), "reduce.3.1": ("dil_conv_3x3~2",)}
PARENTS = NasBench1Shot1(sub_space=2, channels=2, cells=1)


@pytest.mark.parametrize(
    ("space", "shape"),
    [
        (SOME, IMAGE),
        (Restricted(DARTS, PAIRS), IMAGE),
        (Restricted(PARENTS, {"op2": ("maxpool3x3", "conv1x1-bn-relu"), "parents3": ("0+2",)}), IMAGE),
        (Restricted(SPACE, {"layer": ("deep",)}), SHAPE),
        (Restricted(ResidualDepth(max_depth=4, width=4), {"depth": ("1", "3")}), SHAPE),
        (Restricted(Fourier(max_degree=4), {"degree": ("0", "2", "3")}), TaskShape((1,), 1)),
        (Restricted(Wiring(stages=1, nodes=3, channels=2), {"0.3<-0": ("on",)}), TaskShape((1, 8, 8), 3)),
    ],
    ids=["nasbench201", "darts", "nasbench1shot1", "module", "depth", "fourier", "wiring"],
)
def test_contract_of_some_options(space, shape):
    check_space(space, shape, architectures=4)


def test_what_is_left():
    assert SOME.count() == 2 * 5 * 1 * 5 * 5 * 2
    assert SOME.decisions[0] == Decision("1<-0", TWO)
    assert SOME.decisions[2] == Decision("2<-1", ("nor_conv_1x1",))
    assert SOME.decisions[1] == CELLS.decisions[1]
    assert (SOME.relaxation.simplices, Restricted(DARTS, PAIRS).relaxation) == (SOME.decisions, None)
    text = "|nor_conv_3x3~0|+|none~0|nor_conv_1x1~1|+|none~0|none~1|avg_pool_3x3~2|"
    architecture = SOME.parse(text)
    assert (architecture.text, architecture.choices) == (text, (1, 0, 0, 0, 0, 1))
    assert SOME.key(architecture) == CELLS.key(CELLS.parse(text))
    assert SOME.canonical(architecture) == CELLS.canonical(CELLS.parse(text))
    assert SOME.cost(architecture, IMAGE) == CELLS.cost(CELLS.parse(text), IMAGE)
    with pytest.raises(PolyarchError, match="of 1<-0, none is not left; use skip_connect, nor_conv_3x3"):
        SOME.parse(text.replace("nor_conv_3x3~0", "none~0", 1))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"1<-2": TWO}, "unknown decision '1<-2'"),
        ({"1<-0": ("conv",)}, "unknown option of 1<-0 'conv'"),
        ({"1<-0": ()}, "no option of 1<-0 is left"),
    ],
)
def test_what_cannot_be_left(options, message):
    with pytest.raises(PolyarchError, match=message):
        Restricted(CELLS, options)


def test_random_architectures_of_what_is_left():
    drawn = SOME.random()
    assert torch.equal(drawn.logits, uniform(SOME.decisions).logits)
    wiring = Restricted(Wiring(stages=1, nodes=3, link_probability=0.2), {"0.3<-0": ("on",)})
    probs = wiring.random().probs()
    assert probs["0.3<-0"].tolist() == [1.0]
    assert torch.allclose(probs["0.4<-0"], torch.tensor([0.8, 0.2]))


def test_other_options_do_not_run():
    supernet = make_supernet(SOME, IMAGE, (0,)).eval()
    ran = set()
    for point in supernet.supernet.runner.points.values():
        for option, module in zip(point.labels, point.options, strict=True):
            module.register_forward_hook(lambda *_, edge=point.name, option=option: ran.add((edge, option)))
    x = torch.randn(1, 3, *IMAGE.input, dtype=torch.float64)
    every = {(d.name, option) for d in SOME.decisions for option in d.options}
    for view in (
        Dense(torch.zeros(1, 6, dtype=torch.int64)),
        PerExample(torch.zeros(1, 3, 6, dtype=torch.int64)),
        pa.spaces.Soft(tuple(torch.ones(1, len(d), dtype=torch.float64) for d in SOME.decisions)),
    ):
        ran.clear()
        supernet(x, view)
        assert ran == every
    ran.clear()
    supernet(x, Sparse((0,) * 6))
    assert ran == {(d.name, d.options[0]) for d in SOME.decisions}


def test_a_search_in_what_is_left(tmp_path, task):
    run = pa.search(SOME, task, OneShot(epochs=1, batch_size=8), out=tmp_path / "run", compute=CPU)
    again = pa.open_run(tmp_path / "run")
    assert again.space == SOME
    assert again.architecture == run.architecture == SOME.parse(run.architecture.text)
    mixed = pa.search(
        SOME, task, pa.methods.Darts(epochs=1, batch_size=4, arch={"lr": 0.1}), out=tmp_path / "mixed", compute=CPU
    )
    assert list(mixed.distribution.probs()) == [d.name for d in SOME.decisions]
    assert len(mixed.distribution.probs()["1<-0"]) == 2


# ---------------------------------------------------------------------------------------------------------------------
# A list.

THREE = [CELL, CELL.replace("none~0", "skip_connect~0"), CELL.replace("avg_pool_3x3~0", "none~0")]
LISTED = Listed(CELLS, THREE)
OWN = Wiring(stages=1, nodes=2, channels=2, listed=3, own_affine=True)


@pytest.fixture(scope="module")
def task():
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(24, *IMAGE.input, generator=generator).numpy()
    return pa.data.load((x, torch.arange(24).numpy() % 3), select=0.3, test=0)


@pytest.mark.parametrize(
    ("space", "shape"),
    [
        (LISTED, IMAGE),
        (Listed(SOME, [SOME.architecture((0, 1, 0, 2, 3, 1))]), IMAGE),
        (
            Listed(Wiring(stages=1, nodes=2, channels=2, listed=3, own_affine=True), ["-", "2<-0"]),
            TaskShape((1, 8, 8), 3),
        ),
        (Listed(ResidualDepth(max_depth=4, width=4), ["depth=1", "depth=4"]), SHAPE),
    ],
    ids=["nasbench201", "restricted", "wiring", "depth"],
)
def test_contract_of_a_list(space, shape):
    check_space(space, shape, architectures=4)


def test_what_is_listed():
    assert LISTED.count() == 3
    assert [member.text for member in LISTED.members] == THREE
    drawn = LISTED.random()
    assert drawn.architectures == 3
    assert {tuple(row) for row in drawn.sample(50, torch.Generator().manual_seed(0)).tolist()} == {
        member.choices for member in LISTED.members
    }
    assert LISTED.relaxation is None
    assert LISTED.evaluated() == Listed(CELLS.evaluated(), THREE)
    other = CELL.replace("none~0", "nor_conv_1x1~0")
    with pytest.raises(PolyarchError, match="is none of the 3 listed architectures"):
        LISTED.parse(other)
    assert Restricted.to(LISTED, LISTED.parse(CELL)).count() == 1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Listed(CELLS, []), "is empty"),
        (lambda: Listed(CELLS, [CELL, CELL.replace("|+|", "|+|")]), "listed twice"),
        (lambda: Listed(CELLS, ["depth=3"]), "is no cell of nasbench201"),
        (lambda: Listed(LISTED, [CELL.replace("none~0", "nor_conv_1x1~0")]), "none of the 3 listed"),
        (lambda: Listed(Wiring(stages=1, nodes=2, wirings="- 2<-0", own_affine=True), ["3<-0"]), "listed ones alone"),
        (lambda: Restricted(LISTED, {"1<-0": TWO}), r"list those you want: Listed\(space, architectures\)"),
    ],
)
def test_what_cannot_be_listed(make, message):
    with pytest.raises(PolyarchError, match=message):
        make()


def test_a_search_in_a_list(tmp_path, task):
    method = StochasticArchitectures(epochs=1, batch_size=8)
    runs = pa.search(LISTED, task, method, out=tmp_path / "run", compute=CPU, repeats=2)
    again = pa.open_run(tmp_path / "run" / "seed-1")
    assert again.space == LISTED
    assert again.architecture in LISTED.members
    assert again.architecture == runs[1].architecture
    assert again.distribution.architectures == 3
    assert len(runs[1].ensemble().weights) == 3
    assert (
        json.loads((tmp_path / "run" / "seed-1" / "config.json").read_text())["space"]["settings"]["architectures"]
        == THREE
    )
    with pytest.raises(PolyarchError, match=r"single-path draws architectures of its own.*search the whole space"):
        pa.search(LISTED, task, OneShot(epochs=1), out=tmp_path / "other", compute=CPU)
    alone = pa.search(LISTED, task, Standalone(epochs=1, architecture=CELL), out=tmp_path / "alone", compute=CPU)
    assert alone.architecture.text == CELL
