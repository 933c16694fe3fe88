import numpy as np
import torch
from torch import nn

import polyarch as pa
from polyarch.methods import Balenas, Darts, Drnas
from polyarch.training.curvature import hessian


def test_of_a_quadratic_in_two_repeats():
    generator = torch.Generator().manual_seed(0)
    matrices = torch.randn(2, 6, 6, generator=generator, dtype=torch.float64)
    matrices = matrices + matrices.transpose(1, 2)
    point = torch.randn(2, 2, 3, generator=generator, dtype=torch.float64)

    def loss(x):
        flat = x.flatten(1)
        return torch.einsum("ri,rij,rj->r", flat, matrices, flat) / 2

    assert torch.allclose(hessian(loss, point), matrices)
    assert not point.requires_grad


def test_agrees_with_torch_on_a_function_that_is_not_quadratic():
    point = torch.linspace(-1, 1, 4, dtype=torch.float64)

    def loss(x):
        return (x.exp() * x.roll(1)).sum() + (x @ x) ** 2

    found = hessian(lambda x: torch.stack([loss(row) for row in x]), point.unsqueeze(0))[0]
    assert torch.allclose(found, torch.autograd.functional.hessian(loss, point))


class Small(nn.Module):
    """Two places, with three and two options."""

    def __init__(self):
        super().__init__()
        self.first = pa.Choice("first", {name: nn.Linear(4, 4) for name in "abc"})
        self.second = pa.Choice("second", {"tanh": nn.Tanh(), "relu": nn.ReLU()})
        self.head = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 3))

    def forward(self, x):
        return self.head(self.second(self.first(x)))


def test_a_search_may_watch_it(tmp_path):
    x = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)
    task = pa.data.load((x, np.arange(60) % 3), select=0.3)
    for method in (Darts, Drnas, Balenas):
        watched, plain = (
            pa.search(
                pa.ModuleSpace(Small),
                task,
                method(epochs=1, batch_size=8, curvature=c),
                out=tmp_path / f"{method.name}-{c}",
                compute=pa.Compute("cpu"),
            )
            for c in (True, False)
        )
        seen = watched.history()[-1]["watch"]
        assert 0 < abs(seen["hessian_trace"]) <= 6 * max(abs(seen["hessian_eigenvalue"]), 1e-9) + 1
        assert "hessian_trace" not in plain.history()[-1]["watch"]
        for name, value in plain.belief.items():
            assert torch.equal(watched.belief[name], value), "watching must change nothing"
        assert watched.history()[-1]["select"] == plain.history()[-1]["select"]
