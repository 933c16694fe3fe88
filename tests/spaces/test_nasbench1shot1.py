import itertools

import pytest
import torch

from polyarch import PolyarchError
from polyarch.data.task import TaskShape
from polyarch.distributions.priors import uniform
from polyarch.spaces.cost import expected_cost
from polyarch.spaces.graph import certain
from polyarch.spaces.nasbench1shot1 import NasBench1Shot1
from polyarch.spaces.nasbench101 import OPERATIONS, Graph101
from polyarch.spaces.nasbench201 import EXAMPLE as NASBENCH201_CELL
from polyarch.spaces.relaxation import Relaxation
from polyarch.spaces.supernets import member_name, sparse_selections
from polyarch.spaces.views import Dense, PerExample, Soft, Sparse
from polyarch.testing import check_space
from polyarch.testing.spaces import make_supernet

CONV3, CONV1, POOL = OPERATIONS
PARENTS = {1: (1, 2, 2, 2, 2), 2: (1, 1, 2, 2, 3), 3: (1, 1, 1, 2, 2, 2)}
SUB_SPACES = sorted(PARENTS)
CIFAR, SMALL = TaskShape((3, 32, 32), 10), TaskShape((1, 6, 6), 3)
MANY = 20
"""Architectures that are run at once, as repeats of one supernet."""


def sampled(space, count, seed=0):
    return uniform(space.decisions).sample(count, torch.Generator().manual_seed(seed))


def text(operations, **parents):
    ops = [f"op{k}={name}" for k, name in enumerate(operations, 1)]
    return ",".join([*ops, *(f"parents{v.replace('out', '-out').strip('v')}={ways}" for v, ways in parents.items())])


# -- what may be chosen ------------------------------------------------------------------------------------------------


def test_decisions_and_simplices():
    first, second, third = (NasBench1Shot1(sub_space=s) for s in SUB_SPACES)
    assert [d.name for d in first.decisions] == ["op1", "op2", "op3", "op4", "parents3", "parents4", "parents-out"]
    assert first.decisions[4].options == ("0+1", "0+2", "1+2")
    assert [len(d) for d in second.decisions] == [3, 3, 3, 3, 2, 3, 6, 10]
    assert [len(d) for d in third.decisions] == [3, 3, 3, 3, 3, 2, 3, 6, 10, 15]
    assert [(d.name, len(d)) for d in first.relaxation.simplices[4:]] == [
        ("inputs3", 3),
        ("inputs4", 4),
        ("inputs-out", 5),
    ]
    assert [len(d) for d in second.relaxation.simplices] == [3, 3, 3, 3, 2, 3, 4, 5]
    assert [len(d) for d in third.relaxation.simplices] == [3, 3, 3, 3, 3, 2, 3, 4, 5, 6]


def pruned(wiring):
    """(vertex, its parents) of every vertex that leads to the output, in order."""
    kept = {len(wiring)}
    for vertex in range(len(wiring), 0, -1):
        if vertex in kept:
            kept.update(wiring[vertex - 1])
    return tuple((v, wiring[v - 1]) for v in sorted(kept - {0}))


def is_chained(cell):
    """Whether every vertex takes the one before it, the authors' rule for cells without loose ends."""
    order = [0, *(v for v, _ in cell)]
    return all(before in parents for before, (_, parents) in zip(order, cell, strict=False))


def module_hash(cell, operations):
    order = {vertex: k for k, vertex in enumerate([0, *(v for v, _ in cell)])}
    edges = {(order[parent], order[v]) for v, parents in cell for parent in parents}
    adjacency = [[int((s, t) in edges) for t in range(len(order))] for s in range(len(order))]
    return Graph101(adjacency, ("input", *operations, "output")).module_hash()


@pytest.mark.parametrize(
    ("sub_space", "loose", "kept", "chained", "distinct"),
    [(1, 14_580, 3_702, 2_487, 2_685), (2, 29_160, 12_474, 3_609, 7_773), (3, 1_312_200, 135_900, 24_066, None)],
)
def test_counts_come_out_of_enumeration(sub_space, loose, kept, chained, distinct):
    space = NasBench1Shot1(sub_space=sub_space)
    assert space.count() == loose
    firsts = [[0] * (len(PARENTS[sub_space]) - 1), *(range(len(ways)) for ways in space.ways.values())]
    choices = [(*firsts[0], *ways) for ways in itertools.product(*firsts[1:])]
    wirings = {space.wiring(space.architecture(row)) for row in choices}
    assert len(wirings) * 3 ** len(space.nodes) == loose
    for wiring in wirings:
        assert tuple(map(len, wiring)) == PARENTS[sub_space]
    cells = {pruned(wiring) for wiring in wirings}
    assert sum(3 ** (len(cell) - 1) for cell in cells) == kept
    assert sum(3 ** (len(cell) - 1) for cell in cells if is_chained(cell)) == chained
    if distinct:
        hashes = {
            module_hash(cell, ops) for cell in cells for ops in itertools.product(OPERATIONS, repeat=len(cell) - 1)
        }
        assert len(hashes) == distinct


@pytest.mark.parametrize(
    ("sub_space", "cell", "recorded"),
    [
        (1, text([CONV1, CONV3, POOL, CONV3], v3="0+1", v4="0+1", out="0+1"), "09fc2d10bdd6225e167a6f81a22a3f06"),
        (1, text([POOL, CONV3, CONV3, CONV1], v3="0+1", v4="0+1", out="0+4"), "19092e5d6cd57f13de1b98f46e22aa22"),
        (
            2,
            text([CONV3, CONV3, CONV1, CONV3], v2="1", v3="0+2", v4="2+3", out="1+3+4"),
            "197eff19db0360eea714080ddfb8ee2f",
        ),
        (
            3,
            text([POOL, POOL, CONV3, POOL, CONV3], v2="0", v3="2", v4="0+1", v5="3+4", out="4+5"),
            "091ac345461d6e96483e4f7e1d836569",
        ),
    ],
)
def test_cells_hash_to_what_nasbench101_recorded(sub_space, cell, recorded):
    space = NasBench1Shot1(sub_space=sub_space)
    architecture = space.parse(cell)
    assert space.key(architecture) == space.canonical(architecture) == recorded


def test_a_cell_of_nasbench101_is_what_the_text_says():
    space = NasBench1Shot1(sub_space=2)
    graph = space.graph101(space.parse(text([CONV3, CONV1, POOL, CONV1], v2="0", v3="0+2", v4="2+3", out="0+3+4")))
    assert graph.ops == ("input", CONV3, CONV1, POOL, CONV1, "output")
    assert [graph.parents(v) for v in range(6)] == [[], [0], [0], [0, 2], [2, 3], [0, 3, 4]]
    assert graph.used() == [0, 2, 3, 4, 5]  # node 1 is a loose end


# -- simplices ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sub_space", SUB_SPACES)
def test_mixing_weights_are_the_general_ones(sub_space):
    space = NasBench1Shot1(sub_space=sub_space)
    choices = sampled(space, 200)
    for own, general in zip(space.relaxation.mix(choices), Relaxation.mix(space.relaxation, choices), strict=True):
        assert torch.equal(own, general)
    for v, ways in space.ways.items():
        index = [d.name for d in space.relaxation.simplices].index(f"inputs{v if v <= len(space.nodes) else '-out'}")
        assert (space.relaxation.mix(choices)[index].sum(-1) == len(ways[0])).all()


def slow_discretize(space, weights):
    """One row, in Python alone."""
    rows = {d.name: w for d, w in zip(space.relaxation.simplices, weights, strict=True)}
    found = []
    for decision in space.decisions:
        if decision.name.startswith("op"):
            row = rows[decision.name]
            found.append(row.index(max(row)))
            continue
        row = rows[decision.name.replace("parents", "inputs")]
        count = len(decision.options[0].split("+"))
        best = sorted(range(len(row)), key=lambda parent: (-row[parent], parent))[:count]
        found.append(decision.options.index("+".join(map(str, sorted(best)))))
    return found


@pytest.mark.parametrize("sub_space", SUB_SPACES)
def test_discretize_takes_as_many_of_the_best_parents_as_a_vertex_has(sub_space):
    space = NasBench1Shot1(sub_space=sub_space)
    generator = torch.Generator().manual_seed(1)
    real = [torch.rand(40, len(d), generator=generator) for d in space.relaxation.simplices]
    with_ties = [torch.randint(3, (80, len(d)), generator=generator).float() for d in space.relaxation.simplices]
    for weights in (real, with_ties):
        rows = zip(*(w.tolist() for w in weights), strict=True)
        assert space.relaxation.discretize(weights).tolist() == [slow_discretize(space, row) for row in rows]
    choices = sampled(space, 100)
    assert torch.equal(space.relaxation.discretize(space.relaxation.mix(choices)), choices)


@pytest.mark.parametrize("sub_space", SUB_SPACES)
def test_nothing_is_read_back(sub_space):
    """The meta device has no values to read."""
    space = NasBench1Shot1(sub_space=sub_space)
    weights = [torch.empty(3, len(d), device="meta") for d in space.relaxation.simplices]
    choices = space.relaxation.discretize(weights)
    assert choices.shape == (3, len(space.decisions))
    assert [w.shape for w in space.relaxation.mix(choices)] == [w.shape for w in weights]


# -- texts -------------------------------------------------------------------------------------------------------------

CELL = text([CONV3, CONV1, POOL, CONV3], v3="0+2", v4="1+3", out="2+4")


@pytest.mark.parametrize("sub_space", SUB_SPACES)
def test_texts(sub_space):
    space = NasBench1Shot1(sub_space=sub_space)
    for architecture in space.decode(sampled(space, 50)):
        assert space.parse(str(architecture)) == architecture


def test_order_in_texts_does_not_matter():
    space = NasBench1Shot1()
    assert str(space.parse(CELL)) == CELL
    backwards = ", ".join(reversed(CELL.replace("1+3", "3 + 1").split(",")))
    assert str(space.parse(backwards)) == CELL


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ("", "says nothing of op1"),
        (NASBENCH201_CELL, "says nothing of op1"),
        ("depth=9", "unknown decision 'depth'"),
        (CELL.replace("op1=conv3x3-bn-relu", "op1=conv3x3"), "unknown option of op1 'conv3x3'; did you mean"),
        (CELL.replace("op1=conv3x3-bn-relu,", ""), "says nothing of op1"),
        (CELL.replace("parents3=0+2", "parents3=0+1+2"), "node 3 are '0.1.2'; it takes 2"),
        (CELL.replace("parents3=0+2", "parents3=0"), "node 3 are '0'; it takes 2"),
        (CELL.replace("parents3=0+2", "parents3=2+2"), "each once"),
        (CELL.replace("parents3=0+2", "parents3=0+4"), "node 3 takes vertex 4, .*cyclic.* 0 to 2"),
        (CELL.replace("parents3=0+2", "parents3=0+3"), "node 3 takes vertex 3, .*cyclic"),
        (CELL.replace("parents-out=2+4", "parents-out=2+5"), "the output takes vertex 5"),
        (CELL.replace("parents3=0+2", "parents3=0-2"), "write numbers like 0.1"),
        (CELL.replace("parents3=0+2", "parents3=0+" + "2" * 5000), "write numbers like 0.1"),
        (CELL.replace("parents3=0+2", "parents3="), "write numbers like 0.1"),
        (CELL + ",op5=maxpool3x3", "unknown decision 'op5'"),
        (text([CONV3] * 4, v2="0", v3="0+1", v4="0+1", out="0+1+2"), "sub-space 2, not of 1; set sub_space=2"),
        (text([CONV3] * 5, v2="0", v3="0", v4="0+1", v5="0+1", out="0+1"), "set sub_space=3"),
    ],
)
def test_wrong_texts_are_explained_in_one_line(wrong, complaint):
    with pytest.raises(PolyarchError, match=complaint) as caught:
        NasBench1Shot1().parse(wrong)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("settings", [{"sub_space": 0}, {"sub_space": 4}, {"channels": 0}, {"cells": 0}])
def test_settings_out_of_range(settings):
    with pytest.raises(PolyarchError, match=next(iter(settings))):
        NasBench1Shot1(**settings)


def test_inputs_must_be_images():
    NasBench1Shot1().check(CIFAR)
    with pytest.raises(PolyarchError, match="needs images"):
        NasBench1Shot1().check(TaskShape((2,), 3))


# -- networks ----------------------------------------------------------------------------------------------------------


def small(sub_space):
    return NasBench1Shot1(sub_space=sub_space, channels=2, cells=3, statistics="running")


@pytest.mark.parametrize("sub_space", SUB_SPACES)
def test_contract(sub_space):
    check_space(small(sub_space), SMALL, architectures=4)


@pytest.mark.parametrize("cells", [1, 2, 4])
@pytest.mark.parametrize("side", [1, 7, 8])
def test_any_image_and_number_of_cells(cells, side):
    space = NasBench1Shot1(channels=2, cells=cells)
    module = space.build(space.parse(CELL), TaskShape((1, side, side), 3)).eval()
    assert module(torch.randn(2, 1, side, side)).shape == (2, 3)


def test_images_are_halved_and_channels_doubled_at_one_and_two_thirds():
    space = NasBench1Shot1(channels=4)
    module = space.build(space.parse(CELL), CIFAR).eval()
    shapes = []
    for cell in module.cells:
        cell.register_forward_hook(lambda _, inputs, output: shapes.append((inputs[0].shape[1:], output.shape[1:])))
    module(torch.randn(1, 3, 32, 32))
    channels = [4, *[16] * 3, *[32] * 3, *[64] * 2]
    sides = [32] * 3 + [17] * 3 + [9] * 3
    assert [tuple(before) for before, _ in shapes] == [(c, s, s) for c, s in zip(channels, sides, strict=True)]
    assert [tuple(after) for _, after in shapes] == [(16 * 2 ** (k // 3), s, s) for k, s in enumerate(sides)]


def by_hand(weights, prefix, x, operations, inputs):
    """A cell in training mode; `operations` and `inputs` are weights: [nodes][3] and [nodes + 1][parents]."""

    def convolution(name, value):
        kernel = weights[f"{prefix}{name}.conv.weight"][0]
        value = torch.conv2d(value, kernel, padding=kernel.shape[-1] // 2)
        mean, var = value.mean((0, 2, 3), keepdim=True), value.var((0, 2, 3), keepdim=True, correction=0)
        return ((value - mean) / (var + 1e-5).sqrt()).relu()

    def projection(name):
        fixed = name == "inputs.1"
        return convolution(f"{name}{'' if fixed else '.options.0'}.layers", x)

    nodes = []
    for v in range(1, len(operations) + 1):
        first, *others = inputs[v - 1]
        value = first * projection(f"inputs.{v}")
        for weight, node in zip(others, nodes, strict=True):
            value = value + weight * node
        conv3, conv1 = (convolution(f"operations.{v}.options.{k}", value) for k in (0, 1))
        options = (conv3, conv1, torch.max_pool2d(value, 3, 1, 1))
        nodes.append(sum(weight * option for weight, option in zip(operations[v - 1], options, strict=True)))
    first, *others = inputs[-1]
    joined = torch.cat([weight * node for weight, node in zip(others, nodes, strict=True)], 1)
    return joined + first * projection("output")


def test_a_mixed_cell_is_what_is_written_out_by_hand():
    space = small(2)
    supernet = make_supernet(space, SMALL, (0,)).train()
    generator = torch.Generator().manual_seed(5)
    weights = [torch.rand(1, len(d), generator=generator, dtype=torch.float64) for d in space.relaxation.simplices]
    seen = {}
    supernet.network.cells[1].register_forward_hook(lambda _, inputs, output: seen.update(x=inputs[0], y=output))
    supernet(torch.randn(1, 4, *SMALL.input, generator=generator, dtype=torch.float64), Soft(tuple(weights)))
    rows = [w[0] for w in weights]
    inputs = [torch.ones(1), *rows[4:]]
    expected = by_hand(dict(supernet.network.named_parameters()), "cells.1.", seen["x"], rows[:4], inputs)
    assert torch.allclose(seen["y"], expected, atol=1e-12)


def moved_supernet(sub_space):
    """A supernet of one repeat whose batch norms have seen some batches, and inputs for it."""
    space = small(sub_space)
    supernet = make_supernet(space, SMALL, (0,)).train()
    x = torch.randn(1, 4, *SMALL.input, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    with torch.no_grad():
        for row in sampled(space, 3, seed=3):
            supernet(x, Dense(row.unsqueeze(0)))
    return supernet, x


def repeated(supernet):
    """The same supernet `MANY` times, as repeats of one."""
    several = make_supernet(supernet.space, SMALL, (0,) * MANY)
    several.load_state_dict({k: v.expand(MANY, *v.shape[1:]) for k, v in supernet.state_dict().items()})
    return several


def gradients(module, y):
    """By name, zeros where a parameter took no part."""
    names, parameters = zip(*module.named_parameters(), strict=True)
    found = torch.autograd.grad(y.square().sum(), parameters, allow_unused=True, materialize_grads=True)
    return dict(zip(names, found, strict=True))


def shared(supernet, x, view):
    """Output of a supernet, and the gradient by all its parameters as one row a repeat."""
    y = supernet(x, view)
    return y.detach(), torch.cat([gradient.flatten(1) for gradient in gradients(supernet, y).values()], 1)


def alone(supernet, architecture, x):
    """The same of the network built for one architecture, its gradient in the places of the supernet's parameters."""
    plain = supernet.extract(architecture).train(supernet.training)
    selections = sparse_selections(supernet.relaxation, architecture.choices)
    y = plain(x[0])
    found = gradients(plain, y)
    rows = []
    for name, own in supernet.network.named_parameters():
        member = member_name(name, supernet.runner.points, selections)
        rows.append(torch.zeros_like(own) if member is None else found.pop(member))
    assert not found
    return y.detach(), torch.cat([row.flatten() for row in rows])


def close(a, b):
    return torch.allclose(a, b, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("sub_space", SUB_SPACES)
@pytest.mark.parametrize("training", [False, True])
def test_hundred_architectures_are_the_same_network_in_every_form(sub_space, training):
    one, x = moved_supernet(sub_space)
    one.train(training)
    several = repeated(one).train(training)
    for rows in sampled(one.space, 100, seed=4).split(MANY):
        xs = x.expand(MANY, *x.shape[1:])
        dense = shared(several, xs, Dense(rows))
        per_example = shared(several, xs, PerExample(rows.unsqueeze(1).expand(-1, x.shape[1], -1)))
        for k, architecture in enumerate(one.space.decode(rows)):
            output, gradient = alone(one, architecture, x)
            assert gradient.abs().max() > 1e-3
            [sparse_output], [sparse_gradient] = shared(one, x, Sparse(architecture.choices))
            assert all(close(found, output) for found in (sparse_output, dense[0][k], per_example[0][k]))
            assert all(close(found, gradient) for found in (sparse_gradient, dense[1][k], per_example[1][k]))


def test_batch_statistics_in_evaluation_are_those_of_training():
    space = NasBench1Shot1(channels=2, cells=1)
    supernet = make_supernet(space, SMALL, (0,))
    x = torch.randn(1, 4, *SMALL.input, dtype=torch.float64)
    cell = supernet.network.cells[0]
    seen = []
    cell.register_forward_hook(lambda _, inputs, output: seen.append(output))
    for training in (True, False):
        supernet.train()
        cell.train(training)
        supernet(x, Sparse(space.parse(CELL).choices))
    assert torch.allclose(*seen, atol=1e-12)


@pytest.mark.parametrize("sub_space", SUB_SPACES)
def test_mixed_weights_of_an_architecture_are_that_architecture(sub_space):
    supernet, x = moved_supernet(sub_space)
    supernet.eval()
    for row in sampled(supernet.space, 5, seed=6):
        soft = supernet(x, Soft(supernet.space.relaxation.mix(row.unsqueeze(0))))
        assert close(soft, supernet(x, Sparse(tuple(row.tolist()))))


def test_examples_of_one_batch_may_have_architectures_of_their_own():
    supernet, x = moved_supernet(3)
    supernet.eval()
    choices = sampled(supernet.space, 4, seed=7)
    each = torch.stack([supernet(x, Sparse(tuple(row.tolist())))[0, k] for k, row in enumerate(choices.unbind())])
    assert close(supernet(x, PerExample(choices.unsqueeze(0)))[0], each)


def test_only_what_is_chosen_runs_and_is_built():
    supernet, x = moved_supernet(1)
    space = supernet.space
    architecture = space.parse(text([CONV3, CONV1, POOL, CONV3], v3="1+2", v4="0+3", out="1+2"))  # 3 and 4 lead nowhere
    ran = set()
    for path, module in supernet.network.named_modules():
        if path.startswith("cells.0.") and hasattr(module, "weight"):
            module.register_forward_hook(
                lambda *_, path=path: ran.add(path.removesuffix(".conv").removesuffix(".norm"))
            )
    supernet(x, Sparse(architecture.choices))
    assert ran == {
        "cells.0.inputs.1.layers",
        "cells.0.inputs.2.parts.0.layers",
        "cells.0.inputs.4.options.0.layers",
        "cells.0.operations.1.options.0",
        "cells.0.operations.2.options.1",
        "cells.0.operations.4.options.0",
    }
    built = space.build(architecture, SMALL)
    owners = {name.split(".conv")[0].split(".norm")[0] for name, _ in built.cells[0].named_parameters()}
    assert owners == {
        "inputs.1.layers",
        "inputs.2.parts.0.layers",
        "inputs.4.parts.0.layers",
        "operations.1",
        "operations.2",
        "operations.4",
    }


# -- cost and pictures -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sub_space", SUB_SPACES)
def test_costs_add_up(sub_space):
    space = small(sub_space)
    table = space.cost_table(SMALL)
    for architecture in space.decode(sampled(space, 10)):
        selections = sparse_selections(space.relaxation, architecture.choices)
        parts = [
            table.base,
            *(table.options[name][option] for name, selection in selections.items() for option, _ in selection),
        ]
        cost = space.cost(architecture, SMALL)
        assert cost.parameters == sum(part.parameters for part in parts)
        assert cost.macs == sum(part.macs for part in parts)


def test_expected_cost_is_the_mean_over_all_architectures():
    space = NasBench1Shot1(channels=2, cells=1)
    table = space.cost_table(SMALL)
    choices = torch.cartesian_prod(*(torch.arange(len(d)) for d in space.decisions))
    totals = torch.full((len(choices),), float(table.base.parameters), dtype=torch.float64)
    for simplex, weights in zip(space.relaxation.simplices, space.relaxation.mix(choices), strict=True):
        totals += weights.double() @ torch.tensor([c.parameters for c in table.options[simplex.name]]).double()
    expected = expected_cost(space, uniform(space.decisions), SMALL).parameters
    assert expected.item() == pytest.approx(totals.mean().item(), rel=1e-6)


def test_parameters_of_one_network():
    space = NasBench1Shot1(channels=2, cells=1)  # the only cell is halved before, so it has 4 channels
    stem, head, last = 1 * 2 * 9 + 4, 4 * 3 + 3, 16 * 4
    projections = [2 * 4 + 8, 2 * 4 + 8, 2 * 4 + 8]  # of nodes 1, 2 and 3
    operations = [4 * 4 * 9 + 8, 4 * 4 + 8, 0, 4 * 4 * 9 + 8]
    assert space.cost(space.parse(CELL), SMALL).parameters == sum([stem, head, last, *projections, *operations])


def test_pictures():
    space = NasBench1Shot1()
    [graph] = space.graphs(certain(space.decisions, space.parse(CELL)))
    assert [node.label for node in graph.nodes] == ["input", CONV3, CONV1, POOL, CONV3, "output"]
    edges = {(int(edge.source), int(edge.target)) for edge in graph.edges}
    assert edges == {(0, 1), (0, 2), (1, 2), (0, 3), (2, 3), (1, 4), (3, 4), (2, 5), (4, 5)}
    assert all(edge.probability == 1 and edge.label == "" for edge in graph.edges)
    belief = {d.name: [1 / len(d)] * len(d) for d in space.decisions} | {"op2": [0.2, 0.7, 0.1]}
    [graph] = space.graphs(belief)
    assert graph.nodes[2].label == f"{CONV1} 70 %"
    probabilities = {(edge.source, edge.target): edge.probability for edge in graph.edges}
    assert probabilities["1", "2"] == 1
    assert probabilities["0", "3"] == pytest.approx(2 / 3)
    assert probabilities["2", "4"] == pytest.approx(1 / 2)
    assert probabilities["4", "5"] == pytest.approx(2 / 5)
