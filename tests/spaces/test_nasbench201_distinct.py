"""How many different networks the 15,625 cells are, by a count that knows nothing of texts."""

import itertools

import numpy as np
import pytest

from polyarch.spaces.nasbench201 import EDGES, OPERATIONS, NasBench201

SPACE = NasBench201()
CELLS = list(itertools.product(range(len(OPERATIONS)), repeat=len(EDGES)))


@pytest.fixture(scope="module")
def answers():
    """What every cell says of one number, where each operation is some function with f(0) = 0, wherever it stands."""
    functions = {
        "none": np.zeros_like,
        "skip_connect": lambda x: x,
        "nor_conv_1x1": lambda x: np.tanh(1.3 * x) + 0.31 * x**2,
        "nor_conv_3x3": lambda x: np.sin(0.7 * x) - 0.17 * x**2,
        "avg_pool_3x3": lambda x: np.expm1(0.4 * x) + 0.05 * x**3,
    }
    choices = np.array(CELLS)
    nodes = [np.full(len(CELLS), 0.9)]
    for target in range(1, 4):
        node = np.zeros(len(CELLS))
        for (own, source), chosen in zip(EDGES, choices.T, strict=True):
            if own == target:
                every = np.stack([functions[name](nodes[source]) for name in OPERATIONS])
                node += every[chosen, np.arange(len(CELLS))]
        nodes.append(node)
    return nodes[-1]


def classes(values):
    """Numbers for equal values, and how many there are; between different ones there must be a clear gap."""
    order = np.argsort(values)
    steps = np.diff(values[order])
    assert not ((steps > 1e-12) & (steps < 1e-9)).any(), "rounding and difference cannot be told apart"
    numbers = np.empty(len(values), int)
    numbers[order] = np.concatenate([[0], np.cumsum(steps > 1e-9)])
    return numbers


def test_cells_that_compute_something_else(answers):
    """Fewer than the benchmark's rule tells apart: it keeps zeros in sums, and sums inside sums."""
    assert classes(answers).max() + 1 == 4930


def test_equal_texts_are_equal_networks(answers):
    """The benchmark's 6,466 canonical texts never stand for two different networks."""
    seen: dict[str, int] = {}
    for choices, number in zip(CELLS, classes(answers).tolist(), strict=True):
        text = SPACE.canonical(SPACE.architecture(choices))
        assert seen.setdefault(text, number) == number, text
    assert len(seen) == 6466
