import numpy as np
import torch

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


def test_a_search_may_watch_it(tmp_path):
    random = np.random.default_rng(0)
    x, y = random.integers(0, 256, (60, 1, 8, 8), np.uint8), np.arange(60) % 3
    task = pa.data.load((x, y), select=0.3)
    space = pa.spaces.NasBench201(channels=2, cells=1)
    for method in (Darts, Drnas, Balenas):
        watched, plain = (
            pa.search(
                space,
                task,
                method(epochs=1, batch_size=8, curvature=c),
                out=tmp_path / f"{method.name}-{c}",
                compute=pa.Compute("cpu"),
            )
            for c in (True, False)
        )
        seen = watched.history()[-1]["watch"]
        assert abs(seen["hessian_trace"]) <= 30 * max(abs(seen["hessian_eigenvalue"]), 1e-9) + 1
        assert "hessian_trace" not in plain.history()[-1]["watch"]
        for name, value in plain.belief.items():
            assert torch.equal(watched.belief[name], value), "watching must change nothing"
