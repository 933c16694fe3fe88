import itertools
import math
from functools import cache

import pytest
import torch
from forms import check_forms, close, moved_supernet, sampled

from polyarch import PolyarchError
from polyarch.data.task import TaskShape
from polyarch.distributions.priors import uniform
from polyarch.spaces.choice import Choice
from polyarch.spaces.cost import Cost, expected_cost
from polyarch.spaces.darts import PARSEC_OPERATIONS, S2_OPERATIONS, Darts
from polyarch.spaces.darts_operations import OPERATIONS, Beginnings, FactorizedReduce, Style, operation
from polyarch.spaces.layer_factories import PlainLayers
from polyarch.spaces.layers import Once
from polyarch.spaces.nasbench201 import EXAMPLE as NASBENCH201_CELL
from polyarch.spaces.relaxation import Relaxation
from polyarch.spaces.views import Soft, Sparse
from polyarch.testing import check_space
from polyarch.testing.spaces import make_supernet

DARTS_V1 = (
    "Genotype(normal=[('sep_conv_3x3', 1), ('sep_conv_3x3', 0), ('skip_connect', 0), ('sep_conv_3x3', 1), "
    "('skip_connect', 0), ('sep_conv_3x3', 1), ('sep_conv_3x3', 0), ('skip_connect', 2)], "
    "normal_concat=[2, 3, 4, 5], "
    "reduce=[('max_pool_3x3', 0), ('max_pool_3x3', 1), ('skip_connect', 2), ('max_pool_3x3', 0), "
    "('max_pool_3x3', 0), ('skip_connect', 2), ('skip_connect', 2), ('avg_pool_3x3', 0)], "
    "reduce_concat=[2, 3, 4, 5])"
)
DARTS_V2 = (
    "Genotype(normal=[('sep_conv_3x3', 0), ('sep_conv_3x3', 1), ('sep_conv_3x3', 0), ('sep_conv_3x3', 1), "
    "('sep_conv_3x3', 1), ('skip_connect', 0), ('skip_connect', 0), ('dil_conv_3x3', 2)], "
    "normal_concat=[2, 3, 4, 5], "
    "reduce=[('max_pool_3x3', 0), ('max_pool_3x3', 1), ('skip_connect', 2), ('max_pool_3x3', 1), "
    "('max_pool_3x3', 0), ('skip_connect', 2), ('skip_connect', 2), ('max_pool_3x3', 1)], "
    "reduce_concat=[2, 3, 4, 5])"
)
SKIPS = str([("skip_connect", 0)] * 8)
CIFAR, SMALL = TaskShape((3, 32, 32), 10), TaskShape((1, 6, 6), 3)
SUBSETS = [
    OPERATIONS,
    PARSEC_OPERATIONS,
    S2_OPERATIONS,
    ("sep_conv_5x5", "none", "avg_pool_3x3"),
    ("skip_connect", "none"),
]


def genotype(normal=SKIPS, reduce=SKIPS, normal_concat="[2, 3, 4, 5]", reduce_concat="[2, 3, 4, 5]"):
    return f"Genotype(normal={normal}, normal_concat={normal_concat}, reduce={reduce}, reduce_concat={reduce_concat})"


# -- what may be chosen ------------------------------------------------------------------------------------------------


def test_decisions_are_parsecs():
    space = Darts(operations=PARSEC_OPERATIONS)
    assert [len(d) for d in space.decisions] == [14, 14, 21, 21, 28, 28, 35, 35] * 2
    assert sum(len(d) for d in space.decisions) == 392
    assert uniform(space.decisions).entropy().item() == pytest.approx(50.28, abs=0.01)
    assert space.count() == math.prod((7 * n) ** 4 for n in (2, 3, 4, 5))
    assert space.decisions[1].name == "normal.0.1"
    assert space.decisions[1].options[:2] == ("max_pool_3x3~0", "avg_pool_3x3~0")
    assert space.decisions[-1].name == "reduce.3.1"
    assert space.decisions[-1].options[-1] == "dil_conv_5x5~4"


def test_edges_are_what_darts_mixes():
    space = Darts(operations=("skip_connect", "none", "sep_conv_5x5"))
    assert len(space.relaxation.simplices) == 28
    assert [d.name for d in space.relaxation.simplices[:6]] == [
        "normal.0<-0", "normal.0<-1", "normal.1<-0", "normal.1<-1", "normal.1<-2", "normal.2<-0"
    ]  # fmt: skip
    assert all(d.options == ("skip_connect", "none", "sep_conv_5x5") for d in space.relaxation.simplices)
    for k, decision in enumerate(space.decisions):
        cell, node, _ = decision.name.split(".")
        for o, option in enumerate(decision.options):
            operation_name, source = option.split("~")
            [(simplex, used)] = space.relaxation.uses(k, o)
            assert space.relaxation.simplices[simplex].name == f"{cell}.{node}<-{source}"
            assert space.relaxation.simplices[simplex].options[used] == operation_name


@pytest.mark.parametrize("operations", SUBSETS)
def test_mixing_weights_are_the_general_ones(operations):
    space = Darts(operations=operations)
    choices = sampled(space, 50)
    choices[:5, 1::2] = choices[:5, ::2]  # both slots of a node alike
    for own, general in zip(space.relaxation.mix(choices), Relaxation.mix(space.relaxation, choices), strict=True):
        assert torch.equal(own, general)
    assert max(weights.max() for weights in space.relaxation.mix(choices[:5])) == 2


def slow_discretize(space, weights):
    """One row, as DARTS's text says it."""
    rows = {
        d.name: dict(zip(d.options, w, strict=True)) for d, w in zip(space.relaxation.simplices, weights, strict=True)
    }
    found = []
    for cell, node in itertools.product(("normal", "reduce"), range(4)):
        best = []
        for source in range(node + 2):
            row = {name: weight for name, weight in rows[f"{cell}.{node}<-{source}"].items() if name != "none"}
            name = max(row, key=row.get)  # the first among equals
            best.append((-row[name], source, name))
        found += [f"{name}~{source}" for _, source, name in sorted(best)[:2]]
    return [d.options.index(option) for d, option in zip(space.decisions, found, strict=True)]


@pytest.mark.parametrize("operations", SUBSETS)
def test_discretize_keeps_the_best_two_edges(operations):
    space = Darts(operations=operations)
    generator = torch.Generator().manual_seed(1)
    real = [torch.rand(20, len(d), generator=generator) for d in space.relaxation.simplices]
    with_ties = [torch.randint(3, (60, len(d)), generator=generator).float() for d in space.relaxation.simplices]
    for weights in (real, with_ties):
        rows = zip(*(w.tolist() for w in weights), strict=True)
        assert space.relaxation.discretize(weights).tolist() == [slow_discretize(space, row) for row in rows]


def test_nothing_is_read_back():
    """The meta device has no values to read."""
    space = Darts()
    weights = [torch.empty(3, len(d), device="meta") for d in space.relaxation.simplices]
    choices = space.relaxation.discretize(weights)
    assert choices.shape == (3, 16)
    assert [w.shape for w in space.relaxation.mix(choices)] == [w.shape for w in weights]


def test_discretize_undoes_mix_where_inputs_differ():
    space = Darts()
    choices = torch.tensor([space.parse(text).choices for text in (DARTS_V1, DARTS_V2)])
    again = space.relaxation.discretize([w.double() for w in space.relaxation.mix(choices)])
    for row, other in zip(space.decode(choices), space.decode(again), strict=True):
        assert space.canonical(row) == space.canonical(other)


# -- texts -------------------------------------------------------------------------------------------------------------


def test_texts():
    space = Darts()
    for text in (DARTS_V1, DARTS_V2):
        assert str(space.parse(text)) == text
        assert str(space.parse(text.replace("[2, 3, 4, 5]", "range(2,6)").replace(" ", " \n "))) == text
    for architecture in space.decode(sampled(space, 20)):
        assert space.parse(str(architecture)) == architecture


def test_order_of_slots_is_kept_in_texts_and_does_not_matter_to_the_network():
    space = Darts()
    one = genotype(normal=SKIPS.replace("('skip_connect', 0), ", "('sep_conv_3x3', 1), ", 1))
    other = one.replace("('sep_conv_3x3', 1), ('skip_connect', 0)", "('skip_connect', 0), ('sep_conv_3x3', 1)")
    assert one != other
    assert str(space.parse(one)) == one
    assert str(space.parse(other)) == other
    assert space.canonical(space.parse(one)) == space.canonical(space.parse(other))
    assert space.canonical(space.parse(one)) != space.canonical(space.parse(genotype()))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "no genotype of darts"),
        (NASBENCH201_CELL, "no genotype of darts"),
        ("depth=9", "no genotype of darts"),
        ("__import__('os').system('true')", "no genotype of darts"),
        ("Genotype(" + "(" * 5000, "no genotype of darts"),
        (f"Genotype(normal={SKIPS})", "no genotype of darts"),
        (genotype()[:-1] + ", normal=[])", "no genotype of darts"),
        (genotype(normal_concat="-" * 500 + "1"), "no genotype of darts"),
        (genotype(normal="open('x')"), "list of"),
        (genotype(normal="[('skip_connect', 0, 1)]"), "pair"),
        (genotype(normal="[('skip_connect', -1)]"), "pair"),
        (genotype(normal=SKIPS.replace("skip_connect", "skip_conect", 1)), "did you mean 'skip_connect'"),
        (genotype(normal=SKIPS.replace("skip_connect", "sep_conv_5x5", 1)), "not among this space's operations"),
        (genotype(normal=SKIPS.replace("skip_connect", "none", 1)), "'none'"),
        (genotype(normal=SKIPS.replace("('skip_connect', 0), ", "", 1)), "normal cell has 7 pairs"),
        (genotype(reduce=SKIPS[:-1] + ", ('skip_connect', 0)]"), "reduce cell has 9 pairs"),
        (genotype(reduce=SKIPS.replace("0", "2", 1)), "reduce cell's node 0 takes input 2.*cyclic"),
        (genotype(normal=SKIPS[:-3] + "5)]"), "normal cell's node 3 takes input 5.*0 to 4"),
        (genotype(normal_concat="[2, 3]"), r"normal_concat is \[2, 3\]"),
        (genotype(reduce_concat="range(2, 7)"), r"reduce_concat is range\(2, 7\)"),
    ],
)
def test_wrong_texts_are_explained_in_one_line(text, complaint):
    with pytest.raises(PolyarchError, match=complaint) as caught:
        Darts(operations=("none", "skip_connect", "sep_conv_3x3")).parse(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"channels": 0}, "channels"),
        ({"layers": 0}, "layers"),
        ({"operations": ("none",)}, "nothing but 'none'"),
        ({"operations": ("skip_connect", "skip_connect")}, "twice"),
        ({"operations": ("skip_connect", "sepconv_3x3")}, "did you mean 'sep_conv_3x3'"),
        ({"operations": ()}, "nothing but 'none'"),
        ({"network": "serch"}, "did you mean 'search'"),
    ],
)
def test_settings_out_of_range(settings, complaint):
    with pytest.raises(PolyarchError, match=complaint):
        Darts(**settings)


def test_inputs_must_be_images():
    Darts().check(CIFAR)
    with pytest.raises(PolyarchError, match="needs images"):
        Darts().check(TaskShape((2,), 3))


# -- operations --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "offsets"),
    [
        ("none", []),
        ("skip_connect", [0]),
        ("max_pool_3x3", [-1, 0, 1]),
        ("avg_pool_3x3", [-1, 0, 1]),
        ("sep_conv_3x3", [-2, -1, 0, 1, 2]),
        ("sep_conv_5x5", list(range(-4, 5))),
        ("dil_conv_3x3", [-2, 0, 2]),
        ("dil_conv_5x5", [-4, -2, 0, 2, 4]),
    ],
)
def test_where_an_operation_looks(name, offsets):
    module = operation(Style(PlainLayers(), False, "running"), name, 2, Beginnings(1, shared=False)).eval()
    for layer in module.modules():
        if isinstance(layer, torch.nn.Conv2d):
            torch.nn.init.ones_(layer.weight)
    x = torch.zeros(1, 2, 15, 15)
    x[:, :, 7, 7] = 1
    seen = module(x)[0, 0] != 0
    assert (seen.any(1).nonzero().flatten() - 7).tolist() == offsets
    assert (seen.any(0).nonzero().flatten() - 7).tolist() == offsets


@pytest.mark.parametrize("search", [True, False])
@pytest.mark.parametrize("name", OPERATIONS)
def test_stride_two_halves_any_image_rounding_up(name, search):
    module = operation(Style(PlainLayers(), search, "running"), name, 4, Beginnings(2, shared=False))
    for height, width in [(8, 8), (7, 7), (7, 4), (2, 3), (1, 1)]:
        assert module(torch.randn(3, 4, height, width)).shape == (3, 4, -(-height // 2), -(-width // 2))


def test_average_pooling_leaves_padding_out():
    module = operation(Style(PlainLayers(), False, "running"), "avg_pool_3x3", 2, Beginnings(2, shared=False))
    assert torch.allclose(module(torch.ones(1, 2, 7, 7)), torch.ones(1, 2, 4, 4))


def test_factorized_reduce_sees_every_pixel_once():
    module = FactorizedReduce(Style(PlainLayers(), False, "running"), 1, 2).eval()
    for conv in (module.even, module.odd):
        torch.nn.init.ones_(conv.weight)
    x = torch.arange(1.0, 26).view(1, 1, 5, 5)
    even, odd = module(x)[0] * math.sqrt(1 + 1e-5)
    assert torch.allclose(even, x[0, 0, ::2, ::2])
    assert torch.allclose(odd[:2, :2], x[0, 0, 1::2, 1::2])
    assert odd[2].abs().max() == odd[:, 2].abs().max() == 0
    even, odd = module(x[:, :, :4, :4])[0] * math.sqrt(1 + 1e-5)
    assert torch.allclose(odd, x[0, 0, 1:4:2, 1:4:2])


@pytest.mark.parametrize(("name", "norms"), [("max_pool_3x3", 1), ("avg_pool_3x3", 1), ("sep_conv_3x3", 2)])
def test_batch_norm_of_search_and_evaluation(name, norms):
    for search in (True, False):
        module = operation(Style(PlainLayers(), search, "running"), name, 2, Beginnings(1, shared=False))
        found = [m for m in module.modules() if isinstance(m, torch.nn.BatchNorm2d)]
        assert all(norm.affine is not search for norm in found)
        assert len(found) == (norms if search or "pool" not in name else 0)


# -- networks ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "parameters"), [(DARTS_V1, 3_169_414), (DARTS_V2, 3_349_342)])
def test_published_cells_have_their_published_size(text, parameters):
    space = Darts(channels=36, layers=20)
    assert space.cost(space.parse(text), CIFAR).parameters == parameters


def test_contract():
    operations = ("avg_pool_3x3", "none", "skip_connect", "dil_conv_3x3")
    check_space(Darts(channels=2, layers=3, operations=operations, statistics="running"), SMALL, architectures=2)


def test_contract_of_the_evaluation_network():
    space = Darts(channels=2, layers=3, operations=S2_OPERATIONS, network="evaluation")
    check_space(space, SMALL, architectures=2)


@pytest.mark.parametrize("network", ["search", "evaluation"])
@pytest.mark.parametrize("layers", [1, 2, 4])
@pytest.mark.parametrize("side", [7, 8, 14])
def test_any_image_and_depth(network, layers, side):
    space = Darts(channels=2, layers=layers, network=network)
    for architecture in space.decode(sampled(space, 2)):
        module = space.build(architecture, TaskShape((1, side, side), 3))
        answers = module(torch.randn(2, 1, side, side))
        assert torch.stack([*answers] if network == "evaluation" else [answers]).shape[1:] == (2, 3)


def hundred_choices(space):
    choices = sampled(space, 100, seed=4)
    choices[:3, 1::2] = choices[:3, ::2]  # both slots alike
    kept = len(OPERATIONS) - 1
    choices[3:6, 1::2] = choices[3:6, ::2] // kept * kept + (choices[3:6, ::2] + 1) % kept  # the same inputs
    return choices


def test_hundred_architectures_are_the_same_network_in_every_form():
    """Channels are 1, 2 and 4 in its three cells, and sides 5, 3 and 2: many small networks, in little time."""
    space = Darts(channels=1, layers=3, statistics="running")
    one, x = moved_supernet(space, TaskShape((1, 5, 5), 3), batch=3)
    check_forms(one, x, hundred_choices(space))


def test_mixed_weights_of_an_architecture_are_that_architecture():
    supernet, x = moved_supernet(Darts(channels=2, layers=3, statistics="running"), SMALL)
    supernet.eval()
    for row in hundred_choices(supernet.space)[[0, 4, 9]]:
        soft = supernet(x, Soft(supernet.space.relaxation.mix(row.unsqueeze(0))))
        assert close(soft, supernet(x, Sparse(tuple(row.tolist()))))


def test_only_what_is_chosen_runs_and_is_built():
    supernet, x = moved_supernet(Darts(channels=2, layers=3, statistics="running"), SMALL)
    space = supernet.space
    architecture = space.parse(DARTS_V2)
    ran = []
    hooks = [
        option.register_forward_hook(lambda *_, path=path, k=k: ran.append((path, k)))
        for path, point in supernet.runner.points.items()
        if isinstance(point, Choice)
        for k, option in enumerate(point.options)
    ]
    supernet(x, Sparse(architecture.choices))
    for hook in hooks:
        hook.remove()
    assert len(ran) == 3 * 8
    assert len(set(ran)) == len(ran)
    plain = space.build(architecture, SMALL)
    assert sorted(plain.cells[0].edges) == ["0<-0", "0<-1", "1<-0", "1<-1", "2<-0", "2<-1", "3<-0", "3<-2"]


# -- the evaluation network --------------------------------------------------------------------------------------------


@cache
def evaluation():
    space = Darts(channels=2, layers=3, operations=S2_OPERATIONS, network="evaluation", statistics="running")
    x = torch.randn(2, 4, *SMALL.input, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    return make_supernet(space, SMALL, (0, 1)), x


def test_auxiliary_tower_speaks_in_training_alone():
    supernet, x = evaluation()
    architecture = supernet.space.decode(sampled(supernet.space, 1))[0]
    found = supernet.train().outputs(x, Sparse(architecture.choices))
    for repeat in range(2):
        plain = supernet.extract(architecture, repeat).train()
        for together, own in zip(found, plain(x[repeat]), strict=True):
            assert close(together[repeat], own)
        assert isinstance(plain.eval()(x[repeat]), torch.Tensor)
    assert not torch.allclose(found[0], found[1])
    assert len(supernet.eval().outputs(x, Sparse(architecture.choices))) == 1


def test_auxiliary_tower_is_darts_own_on_cifar():
    space = Darts(channels=36, layers=20, network="evaluation")
    with torch.device("meta"):
        module = space.build(space.parse(DARTS_V2), CIFAR)
        answer, auxiliary = module(torch.empty(2, *CIFAR.input))
    assert answer.shape == auxiliary.shape == (2, 10)
    channels = 4 * 36 * 4
    expected = channels * 128 + 2 * 128 + 128 * 768 * 4 + 2 * 768 + 768 * 10 + 10
    assert sum(p.numel() for p in module.auxiliary.parameters()) == expected
    assert module.auxiliary_after == 13


def test_places_that_training_may_drop():
    supernet, _ = evaluation()
    edges = [f"{node}<-{source}" for node in range(4) for source in range(node + 2)]
    assert supernet.drop_paths == tuple(f"drop.{layer}.{edge}" for layer in range(3) for edge in edges)
    assert make_supernet(Darts(channels=2, layers=3), SMALL, (0,)).drop_paths == ()


def test_an_identity_is_never_dropped():
    supernet, x = evaluation()
    view = Sparse(supernet.space.parse(genotype()).choices)
    nothing = {name: torch.zeros(2, 4, dtype=torch.float64) for name in supernet.drop_paths}
    first_layer = {name: weight for name, weight in nothing.items() if name.startswith("drop.0.")}
    plain = supernet.eval()(x, view)
    assert torch.equal(supernet.outputs(x, view, first_layer)[0], plain)
    assert not torch.allclose(supernet.outputs(x, view, nothing)[0], plain)  # reductions skip with weights


def test_a_dropped_path_is_scaled_example_by_example():
    supernet, x = evaluation()
    text = genotype(normal=SKIPS.replace("skip_connect", "sep_conv_3x3", 1))
    view = Sparse(supernet.space.parse(text).choices)
    kept = torch.tensor([[1, 0, 1, 2], [0, 1, 1, 1]], dtype=torch.float64)
    [dropped] = supernet.eval().outputs(x, view, {"drop.0.0<-0": kept})
    last_norm = supernet.network.cells[0].edges["0<-0"].options[1].operation.second.norm
    scaled = {}
    with torch.no_grad():
        for scale in (0, 2, 1):  # its shift is 0, so its scale is the operation's
            last_norm.weight.fill_(scale)
            scaled[scale] = supernet(x, view)
    for repeat, example in itertools.product(range(2), range(4)):
        assert close(dropped[repeat, example], scaled[int(kept[repeat, example])][repeat, example])
    assert not close(scaled[0], scaled[1])


# -- cost and pictures -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operations", [OPERATIONS, S2_OPERATIONS])
def test_cost_of_an_architecture_is_the_sum_of_what_it_uses(operations):
    space = Darts(channels=4, layers=4, operations=operations)
    table = space.cost_table(SMALL)
    for row in sampled(space, 4):
        parts = [table.base] + [
            cost
            for simplex, weights in zip(space.relaxation.simplices, space.relaxation.mix(row.unsqueeze(0)), strict=True)
            for cost, weight in zip(table.options[simplex.name], weights[0].tolist(), strict=True)
            if weight
        ]
        summed = Cost(sum(p.parameters for p in parts), sum(p.macs for p in parts))
        assert summed == space.cost(space.architecture(row.tolist()), SMALL)


def test_expected_cost_is_the_mean_of_many():
    space = Darts(channels=2, layers=3, operations=S2_OPERATIONS)
    belief = uniform(space.decisions)
    table = space.cost_table(SMALL)
    whole = torch.full((4000,), float(table.base.parameters))
    for simplex, weights in zip(space.relaxation.simplices, space.relaxation.mix(sampled(space, 4000)), strict=True):
        own = torch.tensor([cost.parameters for cost in table.options[simplex.name]])
        whole += ((weights > 0) * own).sum(-1)
    expected = expected_cost(space, belief, SMALL).parameters.item()
    assert expected == pytest.approx(whole.mean().item(), abs=4 * whole.std().item() / math.sqrt(len(whole)))


def one_hot_probs(space, text):
    return {
        d.name: [float(k == c) for k in range(len(d))]
        for d, c in zip(space.decisions, space.parse(text).choices, strict=True)
    }


def test_picture_of_an_architecture():
    space = Darts()
    normal, reduce = space.graphs(one_hot_probs(space, DARTS_V2))
    assert (normal.title, reduce.title) == ("normal", "reduce")
    assert [node.label for node in normal.nodes] == ["c_{k-2}", "c_{k-1}", "0", "1", "2", "3", "c_k"]
    drawn = [(edge.source, edge.target, edge.label) for edge in normal.edges]
    assert drawn == [
        ("c_{k-2}", "0", "sep_conv_3x3"), ("c_{k-1}", "0", "sep_conv_3x3"),
        ("c_{k-2}", "1", "sep_conv_3x3"), ("c_{k-1}", "1", "sep_conv_3x3"),
        ("c_{k-2}", "2", "skip_connect"), ("c_{k-1}", "2", "sep_conv_3x3"),
        ("c_{k-2}", "3", "skip_connect"), ("0", "3", "dil_conv_3x3"),
        ("0", "c_k", ""), ("1", "c_k", ""), ("2", "c_k", ""), ("3", "c_k", ""),
    ]  # fmt: skip
    assert {edge.probability for edge in (*normal.edges, *reduce.edges)} == {1.0}


def test_picture_of_belief():
    space = Darts(operations=S2_OPERATIONS)
    probs = one_hot_probs(space, genotype())
    probs["normal.0.0"], probs["normal.0.1"] = [0.5, 0.25, 0.25, 0], [0.2, 0, 0.8, 0]
    found = {(e.source, e.label): e.probability for e in space.graphs(probs)[0].edges if e.target == "0"}
    assert found == pytest.approx({
        ("c_{k-2}", "skip_connect"): 1 - 0.5 * 0.8,
        ("c_{k-2}", "sep_conv_3x3"): 0.25,
        ("c_{k-1}", "skip_connect"): 1 - 0.75 * 0.2,
    })  # fmt: skip


def test_edges_that_leave_a_node_make_what_has_no_weights_once():
    """ReLU and pooling of a node, for all edges of a supernet; afterwards nothing is held."""
    supernet = make_supernet(Darts(channels=2, layers=1), SMALL, (0,))
    made = []
    for path, module in supernet.named_modules():
        if isinstance(module, Once):
            module.module.register_forward_hook(lambda *_, path=path: made.append(path))
    weights = tuple(torch.full((1, len(s)), 1 / len(s), dtype=torch.float64) for s in supernet.relaxation.simplices)
    supernet(torch.randn(1, 3, *SMALL.input, dtype=torch.float64), Soft(weights))
    values_that_are_read = 5  # two inputs, and the nodes but the last
    assert len(made) == len(set(made)) == 3 * values_that_are_read
    assert all(module._made is None for module in supernet.modules() if isinstance(module, Once))
    network = supernet.extract(supernet.space.architecture([0] * len(supernet.space.decisions)))
    assert not any(isinstance(module, Once) for module in network.modules())
