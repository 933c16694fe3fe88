"""Networks with stochastic architectures: what is drawn, batch-wise against instance-wise."""

import pytest
import torch

from polyarch.core import Batch
from polyarch.methods import StochasticArchitectures
from polyarch.spaces import Dense, PerExample, Wiring
from polyarch.training.dry_run import prepare

SMALL = {"stages": 2, "nodes": 3, "channels": 2}
QUICK = {"epochs": 2, "batch_size": 8}


def test_with_one_architecture_both_are_the_same(images):
    ends = {}
    for per in ("instance", "batch"):
        method = StochasticArchitectures(per=per, **QUICK)
        problem, state, feed = prepare(method, Wiring(**SMALL, listed=1), images, images.seen(images.train), 2)
        for _ in range(3):
            method.step(problem, state, feed)
        ends[per] = state.tensors()
    for name, value in ends["batch"].items():
        assert torch.allclose(ends["instance"][name].double(), value.double(), atol=1e-6), name


@pytest.mark.parametrize("listed", [0, 4])
def test_architectures_are_drawn_from_the_space(images, listed):
    space = Wiring(**SMALL, listed=listed, link_probability=0.3)
    method = StochasticArchitectures(**QUICK)
    problem, state, _ = prepare(method, space, images, images.seen(images.train), 1)
    numbers = torch.rand(1, 20_000, 12, generator=torch.Generator().manual_seed(0))
    view = method.view(problem, state, numbers)
    assert isinstance(view, PerExample)
    drawn = view.choices[0]
    belief = method.distribution(space, state.belief).repeat(0)
    for k, (name, probs) in enumerate(belief.probs().items()):
        share = (drawn[:, k] == 1).double().mean().item()
        assert share == pytest.approx(probs[1].item(), abs=4.5 * (0.25 / 20_000) ** 0.5), name
    if listed:
        assert {tuple(row) for row in drawn.tolist()} == {member.choices for member in space.members}
    batch = Batch(None, None, {"uniform": numbers[:, :1]})
    view = StochasticArchitectures(per="batch", **QUICK)._view(problem, state, batch)
    assert isinstance(view, Dense)
    assert view.choices.tolist() == drawn[:1].tolist()


def test_the_rate_falls_as_in_the_paper():
    method = StochasticArchitectures()
    rates = [method.schedule(epoch)["weights.lr"] for epoch in range(300)]
    falls = [epoch for epoch in range(1, 300) if rates[epoch] < rates[epoch - 1]]
    assert falls == [90, 180, 240]
    assert rates[-1] == pytest.approx(0.1 * 0.2**3)
