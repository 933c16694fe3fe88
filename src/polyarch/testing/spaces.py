"""What every space and its supernet must satisfy."""

from __future__ import annotations

import torch
from torch import Tensor

from polyarch.architecture import Architecture
from polyarch.data.task import TaskShape
from polyarch.distributions.priors import uniform
from polyarch.spaces.base import All, Hard, PerExample, Space, Supernet


def check_space(space: Space, shape: TaskShape, *, architectures: int = 8, batch: int = 6) -> None:
    """Checks texts, and that a supernet and a plain network of the same weights agree, in double precision.

    Args:
        space: settings that make small networks keep it quick.
        shape: what the networks are built for.
        architectures: how many random ones are tried.
        batch: how many random inputs.
    """
    names = [d.name for d in space.decisions]
    assert names, "a space needs at least one decision"
    assert len(set(names)) == len(names), "decisions need different names"
    assert all(len(d) == len(set(d.options)) > 0 for d in space.decisions), "options need different names"

    generator = torch.Generator().manual_seed(0)
    sampled = uniform(space.decisions).sample(architectures, generator)
    for architecture, choices in zip(space.decode(sampled), sampled.tolist(), strict=True):
        assert architecture.choices == tuple(choices), "decode must keep the choices"
        assert space.parse(str(architecture)) == architecture, "parse must read what format writes"

    x = torch.randn(2, batch, *shape.input, generator=generator, dtype=torch.float64)
    both = make_supernet(space, shape, seeds=(0, 1))
    for value in (*both.parameters(), *both.buffers()):
        assert value.shape[0] == 2, "every parameter and buffer needs a leading axis of repeats"
    with torch.no_grad():
        _move_statistics(both, x, sampled)
        both.eval()
        for architecture in space.decode(sampled):
            _check_architecture(both, x, architecture)
        _check_repeats(space, shape, both, x, tuple(sampled[0].tolist()))
    cost = space.cost(space.decode(sampled)[0], shape)
    plain = space.evaluated().build(space.decode(sampled)[0], shape)
    assert cost.parameters == sum(p.numel() for p in plain.parameters()), "cost must count the parameters of build"


def make_supernet(space: Space, shape: TaskShape, seeds: tuple[int, ...]) -> Supernet:
    """A double-precision supernet, one repeat a seed."""
    supernet = space.supernet(shape, len(seeds))
    supernet.reset([torch.Generator().manual_seed(s) for s in seeds])
    return supernet.double()


def _move_statistics(supernet: Supernet, x: Tensor, sampled: Tensor) -> None:
    """Training passes, so that batch-norm statistics are no longer those of the start."""
    supernet.train()
    for choices in sampled:
        supernet(x, Hard(choices.expand(supernet.repeats, -1)))


def _check_architecture(supernet: Supernet, x: Tensor, architecture: Architecture) -> None:
    choices = torch.tensor(architecture.choices)
    sparse = supernet(x, Hard(architecture.choices))
    assert sparse.shape == (*x.shape[:2], supernet.shape.outputs), "outputs must be [repeats, batch, outputs]"
    dense = supernet(x, Hard(choices.expand(len(x), -1)))
    assert torch.allclose(sparse, dense, atol=1e-9), f"sparse and dense Hard must agree on {architecture}"
    if PerExample in supernet.views:
        every = supernet(x, PerExample(choices.expand(*x.shape[:2], -1)))
        assert torch.allclose(sparse, every, atol=1e-9), f"PerExample must agree with Hard on {architecture}"
    if All in supernet.views:
        options = supernet(x, All())
        assert torch.allclose(sparse, options[:, architecture.choices[0]], atol=1e-9), "All must agree with Hard"
    for repeat in range(len(x)):
        plain = supernet.extract(architecture, repeat)
        assert torch.allclose(plain(x[repeat]), sparse[repeat], atol=1e-9), (
            f"extract must agree with Hard on {architecture}"
        )


def _check_repeats(space: Space, shape: TaskShape, both: Supernet, x: Tensor, choices: tuple[int, ...]) -> None:
    """Repeat 1 of two must be what a supernet of its own is."""
    single = make_supernet(space, shape, seeds=(1,))
    for (name, own), value in zip(single.named_parameters(), both.parameters(), strict=True):
        assert torch.equal(own[0], value[1]), f"repeat 1 must start like a single run of its seed: {name}"
    single.train()
    fresh = make_supernet(space, shape, seeds=(0, 1)).train()
    alone, together = single(x[1:], Hard(choices)), fresh(x, Hard(choices))
    assert torch.allclose(alone[0], together[1], atol=1e-9), "repeats must not touch each other"
