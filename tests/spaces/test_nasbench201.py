import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from forms import check_forms, moved_supernet, sampled

from polyarch import PolyarchError
from polyarch.data.task import TaskShape
from polyarch.distributions import Categorical, uniform
from polyarch.spaces import Dense, NasBench201, Soft, Sparse, expected_cost, repeats
from polyarch.spaces.nasbench201 import EDGES, OPERATIONS
from polyarch.testing import check_space
from polyarch.testing.spaces import make_supernet

CIFAR = TaskShape((3, 32, 32), 10)
SPACE = NasBench201()
SMALL = NasBench201(channels=2, cells=1, statistics="running")
SHAPE = TaskShape((1, 6, 6), 3)
BEST = "|nor_conv_3x3~0|+|nor_conv_3x3~0|nor_conv_3x3~1|+|skip_connect~0|nor_conv_3x3~1|nor_conv_3x3~2|"
ROWS = Path(__file__).with_name("nasbench201_rows.txt")
TABLE = Path(__file__).parents[2].parent / "shared" / "data" / "nasbench201.npz"


def rows():
    """Cells of the benchmark with parameters and multiply-accumulates on CIFAR-10: text, parameters, MACs."""
    lines = [line.split() for line in ROWS.read_text().splitlines() if not line.startswith("#")]
    return [(text, int(parameters), int(macs)) for text, parameters, macs in lines]


def summed(table, choices):
    parts = [table.options[d.name][c] for d, c in zip(SPACE.decisions, choices, strict=True)]
    return table.base.parameters + sum(p.parameters for p in parts), table.base.macs + sum(p.macs for p in parts)


def test_costs_are_the_benchmarks():
    table = SPACE.cost_table(CIFAR)
    facts = rows()
    assert len(facts) >= 300
    for text, parameters, macs in facts:
        assert summed(table, SPACE.parse(text).choices) == (parameters, macs), text
    for text, parameters, macs in facts[::60]:  # and of the network itself
        cost = SPACE.cost(SPACE.parse(text), CIFAR)
        assert (cost.parameters, cost.macs) == (parameters, macs), text


@pytest.mark.skipif(not TABLE.exists(), reason="the table of NAS-Bench-201 is not beside the project")
def test_all_cells_of_the_table():
    with np.load(TABLE) as data:
        texts, parameters, flops = data["arch"], data["cifar10_params_analytic_M"], data["cifar10_flops_M"]
    table = SPACE.cost_table(CIFAR)
    architectures = [SPACE.parse(str(text)) for text in texts]
    assert [a.text for a in architectures] == texts.tolist()
    assert len({a.choices for a in architectures}) == SPACE.count() == 15625
    costs = np.array([summed(table, a.choices) for a in architectures])
    assert np.array_equal(np.round(parameters.astype(np.float64) * 1e6), costs[:, 0])
    assert np.array_equal(flops, (costs[:, 1] / 1e6).astype(np.float32))


def test_distinct_cells():
    every = itertools.product(range(len(OPERATIONS)), repeat=len(EDGES))
    forms = {SPACE.canonical(SPACE.architecture(choices)) for choices in every}
    assert len(forms) == 6466  # the published number


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        # node 2 = conv(x) by way of node 1, or directly
        ("|nor_conv_3x3~0|+|none~0|skip_connect~1|+|none~0|none~1|skip_connect~2|",
         "|nor_conv_3x3~0|+|none~0|none~1|+|none~0|skip_connect~1|none~2|", False),  # zeros in a sum stay
        ("|skip_connect~0|+|nor_conv_1x1~0|none~1|+|none~0|none~1|skip_connect~2|",
         "|skip_connect~0|+|none~0|nor_conv_1x1~1|+|none~0|none~1|skip_connect~2|", True),
        ("|none~0|+|avg_pool_3x3~0|nor_conv_3x3~1|+|none~0|none~1|skip_connect~2|",
         "|none~0|+|avg_pool_3x3~0|nor_conv_1x1~1|+|none~0|none~1|skip_connect~2|", True),  # on nothing
    ],
)  # fmt: skip
def test_canonical_form(one, other, same):
    assert (SPACE.canonical(SPACE.parse(one)) == SPACE.canonical(SPACE.parse(other))) is same


def test_contract():
    check_space(SMALL, SHAPE, batch=4)


def test_hundred_architectures_are_the_same_network_in_every_form():
    one, x = moved_supernet(SMALL, SHAPE)
    check_forms(one, x, sampled(SMALL, 100, seed=4))


@pytest.mark.parametrize("shape", [TaskShape((3, 8, 8), 4), TaskShape((1, 7, 7), 2)])
def test_contract_of_the_default_policy_and_the_evaluation_form(shape):
    check_space(NasBench201(channels=2, cells=1), shape, architectures=4)
    check_space(NasBench201(channels=3, cells=1, network="evaluation", statistics="running"), shape, architectures=4)


def test_a_network_against_its_definition():
    """The forward pass written out from the benchmark's description, on the network's own weights."""
    space = NasBench201(channels=3, cells=2, network="evaluation")
    architecture = space.parse(
        "|nor_conv_1x1~0|+|avg_pool_3x3~0|nor_conv_3x3~1|+|skip_connect~0|none~1|nor_conv_3x3~2|"
    )
    torch.manual_seed(0)
    network = space.build(architecture, TaskShape((2, 8, 8), 5)).double().eval()
    own = network.state_dict()

    def norm(x, at):
        parts = [own[f"{at}.{name}"] for name in ("running_mean", "running_var", "weight", "bias")]
        return F.batch_norm(x, *parts)

    def convolution(x, at, size, stride=1):
        y = F.conv2d(F.relu(x), own[f"{at}.conv.weight"], stride=stride, padding=size // 2)
        return norm(y, f"{at}.norm")

    def cell(x, at):
        edge = f"{at}.edges.{{}}<-{{}}".format
        one = convolution(x, edge(1, 0), 1)
        two = F.avg_pool2d(x, 3, 1, 1, count_include_pad=False) + convolution(one, edge(2, 1), 3)
        return x + convolution(two, edge(3, 2), 3)

    def reduction(x, at):
        inner = convolution(convolution(x, f"{at}.first", 3, 2), f"{at}.second", 3)
        return inner + F.conv2d(F.avg_pool2d(x, 2), own[f"{at}.shortcut.conv.weight"])

    x = torch.randn(4, 2, 8, 8, dtype=torch.float64)
    y = norm(F.conv2d(x, own["stem.conv.weight"], padding=1), "stem.norm")
    for k in range(8):
        y = reduction(y, f"blocks.{k}") if k in (2, 5) else cell(y, f"blocks.{k}")
    y = F.relu(norm(y, "last.norm")).mean((2, 3)) @ own["head.weight"].T + own["head.bias"]
    assert torch.allclose(network(x), y, atol=1e-9)


def test_expected_cost_is_the_mean_over_all_cells_and_has_gradients():
    logits = torch.randn(6, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64, requires_grad=True)
    belief = Categorical(SPACE.decisions, logits)
    found = expected_cost(SPACE, belief, CIFAR)
    table = SPACE.cost_table(CIFAR)
    every = torch.cartesian_prod(*[torch.arange(5)] * 6)
    chances = belief.log_prob(every).exp()
    costs = torch.tensor([summed(table, row) for row in every.tolist()], dtype=torch.float64)
    assert torch.allclose(found.parameters, chances @ costs[:, 0])
    assert torch.allclose(found.macs, chances @ costs[:, 1])
    [slope] = torch.autograd.grad(found.parameters, logits, retain_graph=True)
    [wanted] = torch.autograd.grad(chances @ costs[:, 0], logits)
    assert torch.allclose(slope, wanted)
    assert torch.allclose(expected_cost(SPACE, uniform(SPACE.decisions), CIFAR).macs, costs[:, 1].mean())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is no cell of nasbench201"),
        ("depth=3", "is no cell of nasbench201"),
        ("Genotype(normal=[('sep_conv_3x3', 1)])", "is no cell of nasbench201"),
        (BEST.replace("nor_conv_3x3~0|+|n", "nor_conv_5x5~0|+|n"), "unknown operation of nasbench201 'nor_conv_5x5'"),
        ("|none~0|+|none~0|none~1|+|none~0|none~1|", "has 5 edges, a cell of nasbench201 has 6; add 3<-2"),
        ("|none~1|+|none~0|none~1|+|none~0|none~1|none~2|", "so the cell is cyclic"),
        ("|none~0|+|none~0|none~2|+|none~0|none~1|none~2|", "so the cell is cyclic"),
        ("|none~0|+|none~0|none~0|+|none~0|none~1|none~2|", "the edge 2<-0 stands there twice"),
    ],
)
def test_bad_texts(text, message):
    with pytest.raises(PolyarchError) as caught:
        SPACE.parse(text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_edges_in_any_order_and_with_spaces():
    shuffled = " |nor_conv_3x3~0| + |nor_conv_3x3~1|nor_conv_3x3~0| + |nor_conv_3x3~2|skip_connect~0|nor_conv_3x3~1| "
    assert SPACE.parse(shuffled).text == BEST


def test_only_images():
    with pytest.raises(PolyarchError, match="needs images"):
        SPACE.check(TaskShape((5,), 2))


# -- layout ------------------------------------------------------------------------------------------------------------


def test_mixtures_are_the_same_in_either_layout(monkeypatch):
    """On a CPU images of a mixture have channels last in memory, which is quicker."""
    supernet = make_supernet(SMALL, SHAPE, (0, 1)).train()
    x = torch.randn(2, 5, *SHAPE.input, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    chance = torch.Generator().manual_seed(1)
    view = Soft(tuple(torch.rand(2, 5, generator=chance, dtype=torch.float64) for _ in SMALL.decisions))
    layouts = []
    supernet.network.stem.register_forward_hook(lambda *given: layouts.append(given[-1].stride(1)))
    last = supernet(x, view)
    monkeypatch.setattr(repeats, "laid_out", lambda images: images)
    first = supernet(x, view)
    assert torch.allclose(last, first, rtol=1e-10, atol=1e-10)
    assert layouts[0] == 1 < layouts[1]


def test_what_is_constant_stays_so_behind_batch_norm():
    """Where a node is nothing, convolutions of it are constant: batch norm must give 0, or the next makes noise."""
    shape = TaskShape((2, 6, 6), 3)
    exact = make_supernet(NasBench201(channels=2, cells=1), shape, (0,)).train()
    single = make_supernet(NasBench201(channels=2, cells=1), shape, (0,)).float().train()
    x = torch.randn(1, 8, *shape.input, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for cell in ((0, 3, 4, 2, 2, 3), (0, 2, 2, 1, 4, 2), (0, 4, 2, 3, 0, 1)):
        expected = exact(x, Sparse(cell))
        for view in (Sparse(cell), Dense(torch.tensor([cell]))):
            assert torch.allclose(single(x.float(), view).double(), expected, atol=3e-5)
