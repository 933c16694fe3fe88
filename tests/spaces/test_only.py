"""One architecture of a space, alone."""

import pytest
import torch
from torch import nn

import polyarch as pa
from polyarch import PolyarchError
from polyarch.architecture import Decision
from polyarch.data.task import TaskShape
from polyarch.spaces import ModuleSpace, NasBench201, Sparse
from polyarch.spaces.only import Only, certain
from polyarch.testing import check_space
from polyarch.testing.spaces import make_supernet

SHAPE = TaskShape((4,), 3)
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
DEEP = Only(SPACE, SPACE.parse("layer=deep,inner=norm"))
IMAGES = NasBench201(channels=2, cells=1, network="evaluation")
ONE_CELL = Only(IMAGES, IMAGES.parse(CELL))


@pytest.mark.parametrize(("space", "shape"), [(DEEP, SHAPE), (ONE_CELL, TaskShape((1, 6, 6), 3))])
def test_contract(space, shape):
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
    assert ONE_CELL.graphs({}) == IMAGES.graphs(certain(IMAGES, chosen))
    assert certain(SPACE, DEEP.chosen) == {"layer": [1.0, 0.0], "inner": [0.0, 1.0]}


def test_the_network_is_the_spaces_own():
    only = DEEP.architecture((0, 0))
    torch.manual_seed(0)
    built = DEEP.build(only, SHAPE).state_dict()
    torch.manual_seed(0)
    wanted = SPACE.build(DEEP.chosen, SHAPE).state_dict()
    assert built.keys() == wanted.keys()
    assert all(torch.equal(value, wanted[name]) for name, value in built.items())
    weights = {name.removeprefix("network.") for name, _ in make_supernet(DEEP, SHAPE, (0,)).named_parameters()}
    assert weights == {name for name in wanted if "running" not in name and "batches" not in name}


def test_several_seeds_are_independent_and_each_its_single_run():
    together = make_supernet(DEEP, SHAPE, seeds=(3, 4))
    first, second = together.member_state(DEEP.chosen, 0), together.member_state(DEEP.chosen, 1)
    assert not torch.equal(first["head.weight"], second["head.weight"])
    alone = make_supernet(DEEP, SHAPE, seeds=(4,)).member_state(DEEP.chosen, 0)
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
