import itertools
import random
from pathlib import Path

import numpy as np
import pytest
import torch

from polyarch import PolyarchError
from polyarch.spaces.nasbench101 import OPERATIONS, Cell101, Graph101, network, vertex_channels

SAMPLE = Path(__file__).parents[2].parent / "shared" / "data" / "nasbench101_sample.npz"
CONV3, CONV1, POOL = OPERATIONS


def matrix(vertices, edges):
    return tuple(tuple(int((s, t) in edges) for t in range(vertices)) for s in range(vertices))


def cell(edges, *inner):
    return Graph101(matrix(len(inner) + 2, edges), ("input", *inner, "output"))


def embedded_rows():
    """(cell, hash, parameters) of the rows that stand beside this file."""
    rows = []
    for line in Path(__file__).with_name("nasbench101_rows.txt").read_text().splitlines():
        if not line.startswith("#"):
            triangle, letters, module_hash, parameters = line.split()
            entries = triangle.split("/")
            edges = {(s, s + 1 + k) for s, row in enumerate(entries) for k, digit in enumerate(row) if digit == "1"}
            inner = [{"3": CONV3, "1": CONV1, "p": POOL}[letter] for letter in letters.strip("-")]
            rows.append((cell(edges, *inner), module_hash, int(parameters)))
    return rows


def sampled_rows():
    """(cell, hash, parameters) of the benchmark's sample."""
    if not SAMPLE.exists():
        pytest.skip("the sample of NAS-Bench-101 is not there")
    with np.load(SAMPLE) as file:
        columns = [file[name] for name in ("n_vertices", "adjacency", "ops", "module_hash", "params")]
        names = file["op_names"]
    for n, adjacency, ops, module_hash, parameters in zip(*columns, strict=True):
        yield Graph101(adjacency[:n, :n], ("input", *names[ops[: n - 2]], "output")), str(module_hash), int(parameters)


def reordered(graph, order):
    adjacency = [[graph.adjacency[s][t] for t in order] for s in order]
    return Graph101(adjacency, [graph.ops[v] for v in order])


def orders(graph):
    """All ways to number the vertices so that edges lead to higher ones."""
    last = len(graph.ops) - 1
    for inner in itertools.permutations(range(1, last)):
        order = (0, *inner, last)
        if all(graph.adjacency[order[j]][order[i]] == 0 for i, j in itertools.combinations(range(last + 1), 2)):
            yield order


def count(graph):
    with torch.device("meta"):
        return sum(p.numel() for p in network(graph).parameters())


# ---------------------------------------------------------------------------------------------------------------------
# The recorded facts.


def test_embedded_rows_hash_to_their_recorded_hash_and_have_their_recorded_parameters():
    rows = embedded_rows()
    assert len(rows) == 64
    assert {len(graph.ops) for graph, _, _ in rows} == {2, 3, 4, 5, 6, 7}
    for graph, module_hash, parameters in rows:
        assert graph.module_hash() == module_hash
        assert count(graph) == parameters


def test_all_sampled_cells_hash_to_their_recorded_hash():
    rows = list(sampled_rows())
    assert len(rows) == 20_000
    assert [graph.module_hash() for graph, _, _ in rows] == [module_hash for _, module_hash, _ in rows]


def test_sampled_cells_have_their_recorded_parameters():
    for graph, _, parameters in random.Random(0).sample(list(sampled_rows()), 240):
        assert count(graph) == parameters


@pytest.mark.parametrize(("vertices", "cells"), [(2, 1), (3, 6), (4, 84), (5, 2441)])
def test_there_are_as_many_hashes_and_canonical_cells_as_the_benchmark_has_cells(vertices, cells):
    pairs = list(itertools.combinations(range(vertices), 2))
    forms = set()
    for chosen in itertools.product((0, 1), repeat=len(pairs)):
        edges = {pair for pair, on in zip(pairs, chosen, strict=True) if on}
        if len(edges) > 9 or not all_used(vertices, edges):
            continue
        for inner in itertools.product(OPERATIONS, repeat=vertices - 2):
            graph = cell(edges, *inner)
            forms.add((graph.module_hash(), graph.canonical()))
    assert len(forms) == len({h for h, _ in forms}) == len({c for _, c in forms}) == cells


def all_used(vertices, edges):
    """Every vertex but the input is fed, every vertex but the output feeds: without cycles, all are on a path."""
    return {t for _, t in edges} == set(range(1, vertices)) and {s for s, _ in edges} == set(range(vertices - 1))


# ---------------------------------------------------------------------------------------------------------------------
# What is the same network.


def test_isomorphic_cells_agree_in_hash_canonical_form_and_network():
    for graph, module_hash, parameters in embedded_rows()[-6:]:
        written = [reordered(graph, order) for order in orders(graph)]
        assert {other.module_hash() for other in written} == {module_hash}
        assert {other.canonical() for other in written} == {graph.canonical()}
        assert count(written[-1]) == parameters


def test_another_operation_or_edge_is_another_hash():
    edges = {(0, 1), (0, 2), (1, 2), (2, 3), (1, 4), (3, 4)}
    base = cell(edges, CONV3, CONV1, POOL)
    others = [
        cell(edges, CONV1, CONV3, POOL),
        cell(edges, CONV3, CONV1, CONV1),
        cell(edges | {(0, 3)}, *base.ops[1:-1]),
    ]
    assert len({graph.module_hash() for graph in (base, *others)}) == 4


def test_idle_vertices_are_taken_away():
    # 1 leads nowhere; 3 is fed by nothing; 2 is all that is left.
    graph = cell({(0, 1), (0, 2), (3, 4), (2, 4)}, CONV3, CONV1, POOL)
    assert graph.used() == [0, 2, 4]
    assert graph.pruned() == cell({(0, 1), (1, 2)}, CONV1)
    assert graph.module_hash() == graph.pruned().module_hash()
    assert count(graph) == count(graph.pruned())


def test_limits_count_what_is_used():
    chain = {(v, v + 1) for v in range(6)}
    loose = Graph101(matrix(9, {(0, 8), (0, 1), (1, 2), (2, 3)}), ("input", *[POOL] * 7, "output"))
    assert len(loose.pruned().ops) == 2
    busy = cell(chain | {(0, 2), (0, 3), (0, 4)}, *[POOL] * 5)
    assert sum(map(sum, busy.adjacency)) == 9


def test_arrays_and_lists_become_plain_values():
    plain = cell({(0, 1), (1, 2)}, POOL)
    arrays = Graph101(np.array(plain.adjacency, dtype=np.float32), list(plain.ops))
    assert arrays == plain
    assert hash(arrays) == hash(plain)
    assert arrays.module_hash() == plain.module_hash()


# ---------------------------------------------------------------------------------------------------------------------
# The network.


@pytest.mark.parametrize(
    ("edges", "inner", "outputs", "widths"),
    [
        ({(0, 1)}, 0, 8, (3, 8)),
        ({(0, 1), (1, 2)}, 1, 8, (3, 8, 8)),
        ({(0, 1), (0, 2), (1, 3), (2, 3)}, 2, 9, (3, 5, 4, 9)),
        ({(0, 1), (1, 2), (1, 3), (2, 4), (3, 4)}, 3, 9, (3, 5, 5, 4, 9)),  # 1 is as wide as the widest it feeds
        ({(0, 1), (1, 2), (2, 3), (1, 4), (2, 4), (3, 4), (0, 4)}, 3, 8, (3, 3, 3, 2, 8)),  # the input takes no share
    ],
)
def test_channels_of_vertices(edges, inner, outputs, widths):
    assert vertex_channels(cell(edges, *[CONV1] * inner), 3, outputs) == widths


def test_a_cell_computes_what_is_written_out_by_hand():
    graph = cell({(0, 1), (1, 2), (2, 3), (1, 4), (2, 4), (3, 4), (0, 4)}, CONV1, CONV3, POOL)
    torch.manual_seed(0)
    module = Cell101(graph, 5, 8).double()
    x = torch.randn(4, 5, 6, 6, dtype=torch.float64)
    weights = dict(module.named_parameters())

    def convolution(name, value, padding):
        value = torch.conv2d(value, weights[f"{name}.conv.weight"], padding=padding)
        mean, var = value.mean((0, 2, 3), keepdim=True), value.var((0, 2, 3), keepdim=True, correction=0)
        return ((value - mean) / (var + 1e-5).sqrt()).relu()

    first = convolution("operations.1", convolution("projections.1", x, 0), 0)
    second = convolution("operations.2", first, 1)
    third = torch.max_pool2d(second[:, :2], 3, 1, 1)
    expected = torch.cat([first, second, third], 1) + convolution("projections.4", x, 0)
    assert torch.allclose(module(x), expected, atol=1e-12)


def test_every_weight_of_a_network_is_trained():
    graph = embedded_rows()[-1][0]
    model = network(graph, inputs=1, channels=6, stacks=2, cells=2, classes=4)
    answer = model(torch.randn(8, 1, 7, 5))
    assert answer.shape == (8, 4)
    answer.square().sum().backward()
    assert all(p.grad is not None for p in model.parameters())


def test_too_few_channels_for_the_vertices_that_share_them():
    graph = cell({(0, v) for v in (1, 2, 3)} | {(v, 4) for v in (1, 2, 3)}, CONV1, CONV1, CONV1)
    with pytest.raises(PolyarchError, match="channels is 2; it must be at least 3"):
        network(graph, channels=2)
    with pytest.raises(PolyarchError, match="stacks"):
        network(graph, stacks=0)


# ---------------------------------------------------------------------------------------------------------------------
# What is refused.

CHAIN7 = {(v, v + 1) for v in range(6)}


@pytest.mark.parametrize(
    ("adjacency", "ops", "message"),
    [
        (matrix(3, {(0, 1), (1, 2), (2, 1)}), ("input", POOL, "output"), "2->1 .* cyclic"),
        (matrix(3, {(0, 1), (1, 1), (1, 2)}), ("input", POOL, "output"), "1->1 .* cyclic"),
        (matrix(3, {(0, 1), (1, 2)}), ("input", "output"), "2x2"),
        (((0, 1), (0,)), ("input", "output"), "2x2"),
        (((0,),), ("input",), "at least"),
        ((), (), "at least"),
        (((0, 2), (0, 0)), ("input", "output"), "entry 0,1 .* is 2"),
        (((0, float("nan")), (0, 0)), ("input", "output"), "entry 0,1"),
        (matrix(3, {(0, 1), (1, 2)}), ("input", "maxpool3x4", "output"), "did you mean 'maxpool3x3'"),
        (matrix(3, {(0, 1), (1, 2)}), ("input", "output", "output"), "unknown NAS-Bench-101 operation"),
        (matrix(3, {(0, 1), (1, 2)}), (POOL, POOL, "output"), "must run from 'input'"),
        (matrix(3, {(0, 1)}), ("input", POOL, "output"), "no path"),
        (matrix(3, {(1, 2)}), ("input", POOL, "output"), "no path"),
        (matrix(8, CHAIN7 | {(6, 7)}), ("input", *[POOL] * 6, "output"), "8 vertices .* at most 7"),
        (matrix(7, CHAIN7 | {(0, v) for v in (2, 3, 4, 5)}), ("input", *[POOL] * 5, "output"), "10 edges .* at most 9"),
    ],
)
def test_malformed_cells(adjacency, ops, message):
    with pytest.raises(PolyarchError, match=message):
        Graph101(adjacency, ops)
