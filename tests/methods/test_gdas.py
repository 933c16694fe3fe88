"""One operation per edge, by Gumbel noise; the steps around it are tested in test_bilevel.py."""

import numpy as np
import pytest
import torch
from torch import nn

import polyarch as pa
from polyarch import PolyarchError
from polyarch.methods import Gdas
from polyarch.spaces import ModuleSpace
from polyarch.streams import Streams
from polyarch.training.dry_run import prepare


class Ragged(nn.Module):
    """Two open places, with two and three options that all have weights."""

    def __init__(self):
        super().__init__()
        self.first = pa.Choice("first", {name: nn.Linear(3, 4) for name in "ab"})
        self.second = pa.Choice("second", {name: nn.Linear(4, 3) for name in "abc"})

    def forward(self, x):
        return self.second(torch.tanh(self.first(x)))


RAGGED = ModuleSpace(Ragged)


@pytest.fixture(scope="module")
def vectors(tmp_path_factory):
    path, random = tmp_path_factory.mktemp("vectors") / "vectors.npz", np.random.default_rng(0)
    np.savez(path, x=random.normal(size=(40, 3)).astype(np.float32), y=np.arange(40) % 3)
    return pa.data.load(path, select=0.4, test=0)


def drawn(vectors, passes, temperature, seed=0):
    """Belief over `Ragged`, and so many draws of its mixture, each as if it were a repeat."""
    method = Gdas()
    problem, _, _ = prepare(method, RAGGED, vectors, vectors.seen(vectors.train), repeats=1)
    generator = torch.Generator().manual_seed(seed)
    alpha = torch.randn(2, 3, generator=generator)
    noise = method.noise(problem, generator, passes)
    each = alpha.expand(passes, -1, -1).clone().requires_grad_()
    view = method.mixture(RAGGED, {"alpha": each}, noise, {"temperature": torch.tensor(temperature)})
    return each, noise["gumbel"], view.weights


@pytest.mark.parametrize("temperature", [10.0, 1.0, 0.1])
def test_one_option_has_weight_one(vectors, temperature):
    """Exactly, and its gradient is that of its Gumbel-softmax probability; the others have none."""
    alpha, gumbel, weights = drawn(vectors, 200, temperature)
    for k, (options, found) in enumerate(zip((2, 3), weights, strict=True)):
        assert found.shape == (200, options)
        assert torch.equal(found.sort(-1).values, torch.eye(options)[-1].expand(200, -1))
        own = alpha.detach()[:, k, :options].clone().requires_grad_()
        probs = ((own.log_softmax(-1) + gumbel[:, k, :options]) / temperature).softmax(-1)
        assert torch.equal(found.argmax(-1), probs.argmax(-1))
        for option in range(options):
            [slope] = torch.autograd.grad(found[:, option].sum(), alpha, retain_graph=True)
            [exact] = torch.autograd.grad(probs[:, option].sum(), own, retain_graph=True)
            chosen = found[:, option] == 1
            assert torch.allclose(slope[chosen, k, :options], exact[chosen], atol=1e-6)
            assert not slope[~chosen].any()
            assert not slope[:, 1 - k].any(), "of another edge"
            assert not slope[:, k, options:].any(), "of an option that does not exist"


def test_options_are_drawn_as_probable_as_they_are(vectors):
    """Whatever the temperature."""
    alpha, _, weights = drawn(vectors, 20_000, 5.0)
    for k, found in enumerate(weights):
        expected = alpha[0, k, : found.shape[-1]].softmax(-1)
        assert torch.allclose(found.mean(0), expected, atol=0.015)


def test_the_temperature_falls_linearly():
    method = Gdas(epochs=5, temperature=10.0, last_temperature=2.0)
    assert [method.schedule(epoch)["temperature"] for epoch in range(5)] == pytest.approx([10, 8, 6, 4, 2])
    assert Gdas(epochs=1).schedule(0)["temperature"] == 10
    assert (Gdas().schedule(0)["temperature"], Gdas().schedule(249)["temperature"]) == pytest.approx((10, 0.1))


def test_operations_that_were_not_drawn_stay(vectors):
    """A step moves the weights of one option per edge, that of the last pass; it draws anew for either batch."""
    method = Gdas(batch_size=8, weights={"weight_decay": 0.0})
    problem, state, feed = prepare(method, RAGGED, vectors, vectors.seen(vectors.train), repeats=3)
    before = {name: value.detach().clone() for name, value in state.weights.items()}
    method.step(problem, state, feed)
    logits = state.belief["alpha"].detach().log_softmax(-1)
    logits[:, 0] = torch.cat([state.belief["alpha"].detach()[:, 0, :2].log_softmax(-1), torch.full((3, 1), -99)], 1)
    chosen = (logits + feed.batches["train"][0].draws["noise"]["gumbel"][:, 1]).argmax(-1)
    for repeat in range(3):
        for k, place in enumerate(("first", "second")):
            for option in range((2, 3)[k]):
                name = f"network.{place}.options.{option}.weight"
                moved = not torch.equal(state.weights[name][repeat], before[name][repeat])
                assert moved == (chosen[repeat, k] == option), name
    gumbel = method.draw(problem, Streams(0))["train"]["noise"]["gumbel"]
    assert gumbel.shape == (1, 2, 2, 3), "batches, passes, edges, options"
    assert not torch.equal(gumbel[0, 0], gumbel[0, 1])


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"temperature": 0.0}, "temperature is 0.0; it must be above 0"),
        ({"last_temperature": 0.0}, "last_temperature is 0.0; it must be above 0"),
        ({"temperature": 0.05}, "temperatures must fall"),
    ],
)
def test_temperatures_that_make_no_sense(settings, says):
    with pytest.raises(PolyarchError, match=says):
        Gdas(**settings)
