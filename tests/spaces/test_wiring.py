"""Wirings: the list, residual networks as members, weights of their own, every view."""

from itertools import product

import networkx
import pytest
import torch
from torch import nn

from polyarch import PolyarchError
from polyarch.data.task import TaskShape
from polyarch.spaces import Dense, PerExample, Sparse, Wiring
from polyarch.spaces.graph import certain
from polyarch.spaces.layers import Dropout
from polyarch.testing import check_space
from polyarch.testing.spaces import make_supernet

SHAPE = TaskShape((2, 8, 8), 3)
SMALL = {"stages": 2, "nodes": 3, "channels": 2}


def images(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, *SHAPE.input, generator=generator, dtype=torch.float64)


# ---------------------------------------------------------------------------------------------------------------------
# What may be chosen.


def test_the_papers_stage_has_36_optional_links():
    space = Wiring()
    assert len(space.decisions) == 3 * 36
    assert space.count() == 2**108
    assert all(value < row <= 8 for _, row, value in space.links)


def test_texts():
    space = Wiring(**SMALL)
    assert len(space.links) == 2 * 6
    chain = space.architecture([0] * 12)
    assert chain.text == "-|-"
    wired = space.parse("4<-0,3<-0|2<-0")
    assert wired.text == "3<-0,4<-0|2<-0"
    assert sum(wired.choices) == 3


def test_pictures_number_nodes_as_texts_do():
    space = Wiring(**SMALL)
    wired = space.parse("3<-0,4<-1|4<-2")
    first, second = space.graphs(certain(space.decisions, wired))
    labels = {node.name: node.label for node in first.nodes}
    assert list(labels.values()) == ["0: input", "1", "2", "3", "4: output"]
    for graph, text in ((first, "3<-0,4<-1"), (second, "4<-2")):
        drawn = {(int(labels[e.target].split(":")[0]), int(labels[e.source].split(":")[0])) for e in graph.edges}
        links = {(node, value) for node, value in drawn if node > value + 1}
        assert {f"{node}<-{value}" for node, value in links} == set(text.split(","))


@pytest.mark.parametrize("text", ["3<-0", "3<-0|5<-0", "3<-2|-", "1<-1|-", "a|b", "3<-0,|-"])
def test_texts_that_name_no_wiring(text):
    with pytest.raises(PolyarchError, match=r"write|put"):
        Wiring(**SMALL).parse(text)


def test_the_list_is_of_random_graphs():
    """Links of many wirings are as frequent as they should be, and each is what networkx draws."""
    space = Wiring(listed=300, link_probability=0.3)
    on = torch.tensor([member.choices for member in space.members]).float()
    assert len({member.choices for member in space.members}) == 300
    assert on.mean().item() == pytest.approx(0.3, abs=4 * (0.21 / on.numel()) ** 0.5)
    assert (on.mean(0) - 0.3).abs().max() < 4.5 * (0.21 / 300) ** 0.5
    import random

    graph = networkx.gnp_random_graph(9, 0.3, random.Random("0:7:1"))
    links = {f"{max(pair) + 1}<-{min(pair)}" for pair in graph.edges}
    assert set(space.members[7].text.split("|")[1].split(",")) == links


def test_a_shorter_list_is_the_beginning_of_a_longer_one():
    assert Wiring(listed=9).members[:4] == Wiring(listed=4).members
    assert Wiring(listed=4).members != Wiring(listed=4, list_seed=1).members


def test_more_wirings_than_there_are():
    with pytest.raises(PolyarchError, match="not 5 different wirings"):
        _ = Wiring(stages=1, nodes=2, listed=5, link_probability=0.01).members


@pytest.mark.parametrize("settings", [{"own_affine": True}, {"own_aggregation": True}])
def test_weights_of_their_own_need_a_list(settings):
    with pytest.raises(PolyarchError, match="need a list"):
        Wiring(**settings)


def test_given_wirings_are_the_list():
    space = Wiring(**SMALL, wirings="residual 3<-0|2<-0")
    assert space.members == (space.residual, space.parse("3<-0|2<-0"))
    assert space.random().choices.tolist() == [list(member.choices) for member in space.members]
    own = Wiring(**SMALL, wirings="residual -|-", own_affine=True)
    assert own.supernet(SHAPE).table.shape == (1, 2, 12)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"wirings": "residual", "listed": 2}, "leave listed or wirings out"),
        ({"wirings": "residual 2<-0|- residual"}, "given twice"),
        ({"wirings": "residual 10<-0|-"}, "no link of a stage"),
        ({"dropout": 1.0}, "below 1"),
        ({"dropout": -0.1}, "0 or more"),
    ],
)
def test_refused_settings(settings, says):
    with pytest.raises(PolyarchError, match=says):
        Wiring(**SMALL, **settings)


# ---------------------------------------------------------------------------------------------------------------------
# Networks.


@pytest.mark.parametrize(
    "settings", [{}, {"aggregation": "sum", "stem": "large"}, {"auxiliary": True}], ids=["mean", "sum", "auxiliary"]
)
def test_contract(settings):
    check_space(Wiring(**SMALL, **settings), SHAPE, architectures=4)


def test_an_auxiliary_classifier_speaks_in_training_alone():
    space = Wiring(**SMALL, auxiliary=True)
    supernet = make_supernet(space, SHAPE, (0, 1))
    x, chain = images(2, 5), space.architecture([0] * 12)
    assert [tuple(y.shape) for y in supernet.train().outputs(x, Sparse(chain.choices))] == [(2, 5, 3)] * 2
    assert len(supernet.eval().outputs(x, Sparse(chain.choices))) == 1
    plain = supernet.train().extract(chain, 1).train()
    for one, other in zip(plain(x[1]), supernet.outputs(x, Sparse(chain.choices)), strict=True):
        assert torch.allclose(one, other[1], atol=1e-9)
    assert space.cost(chain, SHAPE) == Wiring(**SMALL).cost(chain, SHAPE)
    with pytest.raises(PolyarchError, match="stages above 1"):
        Wiring(stages=1, auxiliary=True)


class Residual(nn.Module):
    """A residual network, written plainly around the modules of another."""

    def __init__(self, network):
        super().__init__()
        self.n = network

    def forward(self, x):
        x = self.n.stem(x, None)
        for stage, nodes in enumerate(self.n.stages):
            if stage:
                between = self.n.transitions[stage - 1]  # the paper pools after the convolution
                x = between.norm(between.before.pool(between.before.conv(x.relu())))
            for first, second in zip(nodes[::2], nodes[1::2], strict=True):
                x = x + second(first(x.relu(), None).relu(), None)
        return self.n.head(x.relu().mean((2, 3)))


def test_the_residual_member_is_a_residual_network():
    space = Wiring(stages=2, nodes=4, channels=2, aggregation="sum")
    torch.manual_seed(0)
    network = space.build(space.residual, SHAPE).double()
    x = images(5)
    for mode in (True, False):
        network.train(mode)
        assert torch.allclose(network(x), Residual(network.network)(x), atol=1e-12)


def test_rows_of_a_mean_sum_to_one():
    space = Wiring(**SMALL)
    supernet = make_supernet(space, SHAPE, (0,))
    stages, _ = supernet._dense(torch.randint(2, (1, 7, 12)), torch.float64)
    for weights in stages:
        assert torch.allclose(weights.sum(-1), torch.ones(7, 1, 4, dtype=torch.float64))
        assert torch.equal(weights, weights.tril())


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(("own_aggregation", "own_affine"), list(product([False, True], repeat=2)))
def test_views_agree_on_listed_wirings(own_aggregation, own_affine, training):
    """Every member, the first among them: sparse, dense, an example at a time, and as a network of its own."""
    space = Wiring(**SMALL, listed=4, own_aggregation=own_aggregation, own_affine=own_affine)
    supernet = make_supernet(space, SHAPE, (0, 1)).train(training)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in supernet.parameters():
            parameter.add_(torch.rand(parameter.shape, generator=generator, dtype=torch.float64))
    x = images(2, 5)
    outputs = []
    for member in space.members:
        sparse = supernet(x, Sparse(member.choices))
        choices = torch.tensor(member.choices)
        assert torch.allclose(sparse, supernet(x, Dense(choices.expand(2, -1))), atol=1e-9)
        assert torch.allclose(sparse, supernet(x, PerExample(choices.expand(2, 5, -1))), atol=1e-9)
        if not training:
            plain = [supernet.extract(member, repeat)(x[repeat]) for repeat in range(2)]
            assert torch.allclose(sparse, torch.stack(plain), atol=1e-9)
        outputs.append(sparse)
    if not training:  # batch norm lets examples touch each other only while training
        every = torch.tensor([member.choices for member in space.members])
        which = torch.tensor([[0, 1, 2, 3, 0], [3, 2, 1, 0, 0]])
        mixed = supernet(x, PerExample(every[which]))
        wanted = torch.stack(outputs)
        for r, b in product(range(2), range(5)):
            assert torch.allclose(mixed[r, b], wanted[which[r, b], r, b], atol=1e-9)


def test_unseen_wirings_have_no_weights_of_their_own():
    space = Wiring(**SMALL, listed=2, own_affine=True)
    supernet = make_supernet(space, SHAPE, (0,))
    unseen = next(c for c in product((0, 1), repeat=12) if c not in {m.choices for m in space.members})
    for run in (lambda: supernet(images(1, 2), Sparse(unseen)), lambda: supernet.extract(space.architecture(unseen))):
        with pytest.raises(PolyarchError, match="none of the 2 listed ones"):
            run()
    free = Wiring(**SMALL, listed=2)
    make_supernet(free, SHAPE, (0,)).extract(free.architecture(unseen))


def test_a_run_keeps_its_list():
    """What networkx draws may change: the list that was learnt comes back with the weights."""
    space = Wiring(**SMALL, listed=3, own_aggregation=True)
    other = Wiring(**SMALL, listed=3, own_aggregation=True, list_seed=5)
    supernet, again = make_supernet(space, SHAPE, (0,)), make_supernet(other, SHAPE, (1,))
    again.load_state_dict(supernet.state_dict())
    x = images(1, 3)
    for member in space.members:
        assert torch.equal(supernet.eval()(x, Sparse(member.choices)), again.eval()(x, Sparse(member.choices)))


def test_cost_is_that_of_any_wiring():
    space = Wiring(**SMALL)
    table = space.cost_table(SHAPE)
    assert {space.cost(space.parse(text), SHAPE) for text in ("-|-", "3<-0|4<-1")} == {table.base}


def test_the_papers_size():
    """39.5 M parameters, with the auxiliary classifier; links add none."""
    space = Wiring(width=10, auxiliary=True)
    cost = space.cost(space.residual, TaskShape((3, 32, 32), 10))
    nodes = 8 * sum(9 * c * c + 2 * c for c in (160, 320, 640))
    between = sum(2 * c * c + 4 * c for c in (160, 320))
    assert cost.parameters == nodes + between + 3 * 9 * 160 + 2 * 160 + 640 * 10 + 10
    with torch.device("meta"):
        network = space.build(space.residual, TaskShape((3, 32, 32), 10))
    assert round(sum(p.numel() for p in network.parameters()) / 1e6, 1) == 39.5


@pytest.mark.parametrize("settings", [{"own_affine": True}, {"own_aggregation": True}])
def test_an_unlisted_wiring_that_is_data_has_no_answer(settings):
    """It has no weights of its own, and nothing may look like an answer; its neighbours in the batch have theirs."""
    space = Wiring(**SMALL, listed=2, **settings)
    supernet = make_supernet(space, SHAPE, (0,)).eval()
    listed = torch.tensor(space.members[1].choices)
    unlisted = 1 - listed
    assert tuple(unlisted.tolist()) not in {member.choices for member in space.members}
    said = supernet(images(1, 2), PerExample(torch.stack([unlisted, listed])[None]))
    assert said[0, 0].isnan().all()
    assert said[0, 1].isfinite().all()


# ---------------------------------------------------------------------------------------------------------------------
# Dropout.


def chances(*seeds):
    return [torch.Generator().manual_seed(seed) for seed in seeds]


def test_dropout_acts_in_training_alone():
    space, plain = Wiring(**SMALL, dropout=0.5), Wiring(**SMALL)
    supernet, without = make_supernet(space, SHAPE, (0, 1)), make_supernet(plain, SHAPE, (0, 1))
    x, view = images(2, 5), Sparse((0,) * 12)
    for training in (False, True):
        equal = torch.equal(supernet.train(training)(x, view), without.train(training)(x, view))
        assert equal is not training
    plain_network = supernet.eval().extract(space.architecture([0] * 12), 1)
    assert torch.allclose(plain_network(x[1]), supernet(x, view)[1], atol=1e-9)


def test_every_repeat_drops_by_its_own_generator():
    space, x, view = Wiring(**SMALL, dropout=0.3), images(2, 5), Sparse((0,) * 12)
    both = make_supernet(space, SHAPE, (0, 1)).train()
    both.draw_from(chances(7, 8))
    together = both(x, view)
    for repeat in (0, 1):
        one = make_supernet(space, SHAPE, (repeat,)).train()
        one.draw_from(chances(7 + repeat))
        assert torch.allclose(one(x[repeat : repeat + 1], view)[0], together[repeat], atol=1e-9)


def test_what_stays_is_larger_by_as_much_as_is_dropped():
    layer = Dropout(0.2).train()
    layer.generators = chances(0, 1)
    dropped = layer(torch.ones(200, 6, 10, 10))
    assert dropped.unique().tolist() == pytest.approx([0, 1.25])
    assert dropped.mean().item() == pytest.approx(1, abs=4.5 * (0.25 / dropped.numel()) ** 0.5)
    assert not torch.equal(dropped[:, :3], dropped[:, 3:])
