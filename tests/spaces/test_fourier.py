import math

import numpy as np
import pytest
import torch

from polyarch import PolyarchError
from polyarch.data.fourier import FourierSeries
from polyarch.data.task import TaskShape
from polyarch.distributions.priors import uniform
from polyarch.spaces.fourier import Fourier, features, gates
from polyarch.spaces.views import All, Dense, PerExample, Soft, Sparse
from polyarch.testing import check_space
from polyarch.testing.spaces import make_supernet

SHAPE = TaskShape((1,), 1)
COLUMNS = ["separate", "joint"]


def inputs(repeats, batch, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return math.pi * (2 * torch.rand(repeats, batch, 1, generator=generator, dtype=torch.float64) - 1)


@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("max_degree", [0, 1, 9])
def test_contract(columns, outputs, max_degree):
    check_space(Fourier(columns=columns, max_degree=max_degree), TaskShape((1,), outputs))


def test_features_are_numpys():
    x = np.linspace(-3, 3, 11)
    own = torch.from_numpy(x)[:, None]
    separate = [np.ones(11), np.cos(x), np.sin(x), np.cos(2 * x), np.sin(2 * x), np.cos(3 * x), np.sin(3 * x)]
    assert features(own, 3, "separate").numpy() == pytest.approx(np.stack(separate, 1), abs=1e-12)
    joint = [np.ones(11), *(np.cos(j * x) + np.sin(j * x) for j in (1, 2, 3))]
    assert features(own, 3, "joint").numpy() == pytest.approx(np.stack(joint, 1), abs=1e-12)


def test_sizes():
    for columns, per_degree in (("separate", 2), ("joint", 1)):
        space = Fourier(columns=columns)
        for degree in (0, 3, 9):
            cost = space.cost(space.architecture([degree]), SHAPE)
            assert cost.parameters == cost.macs == 1 + per_degree * degree
    assert Fourier().count() == 10


def test_texts():
    space = Fourier()
    assert str(space.architecture([3])) == "degree=3"
    assert space.parse("degree=3") == space.architecture([3])
    for wrong in ("degree=10", "depth=3", "3"):
        with pytest.raises(PolyarchError):
            space.parse(wrong)


def test_what_is_refused():
    Fourier().check(SHAPE)
    with pytest.raises(PolyarchError, match="one number"):
        Fourier().check(TaskShape((2,), 1))
    with pytest.raises(PolyarchError, match="max_degree"):
        Fourier(max_degree=-1)
    with pytest.raises(PolyarchError, match="columns"):
        Fourier(columns="both")


# -- views -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", COLUMNS)
def test_soft_mixes_the_answers_of_all_degrees(columns):
    supernet = make_supernet(Fourier(columns=columns), TaskShape((1,), 2), (0, 1))
    x = inputs(2, 7)
    weights = torch.rand(2, 10, dtype=torch.float64)
    expected = (weights[:, :, None, None] * supernet(x, All())).sum(1)
    assert torch.allclose(supernet(x, Soft((weights,))), expected, atol=1e-12)


def test_examples_and_repeats_may_have_degrees_of_their_own():
    supernet = make_supernet(Fourier(), SHAPE, (0, 1, 2))
    x = inputs(3, 10)
    every = supernet(x, All())
    choices = torch.randint(10, (3, 10, 1), generator=torch.Generator().manual_seed(1))
    expected = torch.stack([torch.stack([every[r, choices[r, b, 0], b] for b in range(10)]) for r in range(3)])
    assert torch.allclose(supernet(x, PerExample(choices)), expected, atol=1e-12)
    dense = supernet(x, Dense(torch.tensor([[0], [3], [9]])))
    assert torch.allclose(dense, torch.stack([every[0, 0], every[1, 3], every[2, 9]]), atol=1e-12)


@pytest.mark.parametrize("columns", COLUMNS)
def test_gradients_are_the_same_in_every_form(columns):
    space = Fourier(columns=columns)
    supernet = make_supernet(space, SHAPE, (0,))
    x = inputs(1, 8)
    for degree in range(10):
        plain = supernet.extract(space.architecture([degree]))
        [alone] = torch.autograd.grad(plain(x[0]).square().sum(), plain.parameters())
        padded = torch.zeros_like(supernet.weight)
        padded[0, :, : alone.shape[1]] = alone
        choice = torch.tensor([[degree]])
        weights = torch.nn.functional.one_hot(choice[0], 10).double()
        views = [Sparse((degree,)), Dense(choice), PerExample(choice.expand(1, 8, 1)), Soft((weights,))]
        for y in [*(supernet(x, view) for view in views), supernet(x, All())[:, degree]]:
            [gradient] = torch.autograd.grad(y.square().sum(), [supernet.weight])
            assert torch.allclose(gradient, padded, atol=1e-9)


def test_nested_members_are_the_lower_degrees():
    space = Fourier(max_degree=6)
    supernet = make_supernet(space, SHAPE, (0,))
    x = inputs(1, 5)
    belief = uniform(space.decisions)
    small, weights = supernet.nested_members(space.architecture([4]), belief)
    small = small.double()
    assert small.space == Fourier(max_degree=4)
    assert torch.allclose(small(x, All()), supernet(x, All())[:, :5], atol=1e-6)  # its weights were single precision
    assert weights.flatten().tolist() == pytest.approx([1 / 7] * 4 + [3 / 7])


def test_first_weights_are_those_of_a_linear_layer():
    weight = make_supernet(Fourier(max_degree=200), SHAPE, (0,)).weight.flatten()
    bound = 1 / math.sqrt(401)
    assert weight.abs().max() <= bound
    assert weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.1)


# -- the thesis's relaxation -------------------------------------------------------------------------------------------


def test_gates_are_steps_at_the_degree():
    found = gates(torch.tensor([2.0, -1.0], dtype=torch.float64), 4)
    assert found.shape == (2, 5)
    for row, degree in zip(found.tolist(), (2, -1), strict=True):
        assert row == pytest.approx([(math.tanh(degree - j) + 1) / 2 for j in range(5)])
    assert gates(torch.tensor(3.0), 9).shape == (10,)


@pytest.mark.parametrize("columns", COLUMNS)
def test_gates_as_soft_weights_are_equation_4_5(columns):
    space = Fourier(max_degree=4, columns=columns)
    supernet = make_supernet(space, SHAPE, (0,))
    x = inputs(1, 6)
    degree = torch.tensor([1.7], dtype=torch.float64, requires_grad=True)
    open_to = gates(degree, 4)
    weights = open_to - torch.nn.functional.pad(open_to[..., 1:], (0, 1))  # a feature counts by all that have it
    y = supernet(x, Soft((weights,)))
    angles, terms = x[0, :, 0].numpy(), supernet.weight[0, 0].tolist()
    expected = np.full(6, terms[0] * (math.tanh(1.7) + 1) / 2)
    for j in range(1, 5):
        gate = (math.tanh(1.7 - j) + 1) / 2
        if columns == "joint":
            expected += gate * terms[j] * (np.cos(j * angles) + np.sin(j * angles))
        else:
            expected += gate * (terms[2 * j - 1] * np.cos(j * angles) + terms[2 * j] * np.sin(j * angles))
    assert y[0, :, 0].detach().numpy() == pytest.approx(expected, abs=1e-12)
    [gradient] = torch.autograd.grad(y.sum(), [degree])
    assert gradient.abs() > 0


# -- with the data -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("definition", ["thesis", "code"])
@pytest.mark.parametrize("columns", COLUMNS)
def test_least_squares_on_all_features_recovers_the_coefficients_and_the_degree(definition, columns):
    task = FourierSeries(definition=definition).task()
    space = Fourier(columns=columns)
    supernet = make_supernet(space, task.shape, (0,))
    x, y = task.preprocess(task.train.x).double(), task.train.y.double()
    errors = []
    for degree in range(10):
        solution = torch.linalg.lstsq(features(x, degree, columns), y[:, None]).solution[:, 0]
        if degree >= 3:
            true = [1] * space.width(3) + [0] * (len(solution) - space.width(3))
            assert solution.tolist() == pytest.approx(true, abs=0.02)
        with torch.no_grad():
            supernet.weight[0, 0] = 0
            supernet.weight[0, 0, : len(solution)] = solution
            output = supernet(task.test.x[None].double(), Sparse((degree,)))[0]
        errors.append(task.likelihood.metric_values(output, task.test.y).mean().item())
    # Without noise higher degrees are as good, their weights being 0: the first of the best is meant.
    assert next(degree for degree, error in enumerate(errors) if error <= min(errors) + 1e-9) == 3
    assert errors[2] > 0.9
