"""The forms of one architecture: a network of its own, and a supernet run sparse, dense, or example by example."""

import torch

from polyarch.distributions.priors import uniform
from polyarch.spaces.supernets import member_name, sparse_selections
from polyarch.spaces.views import Dense, PerExample, Sparse
from polyarch.testing.spaces import make_supernet

MANY = 25
"""Architectures that are run at once, as repeats of one supernet."""


def sampled(space, count, seed=0):
    return uniform(space.decisions).sample(count, torch.Generator().manual_seed(seed))


def moved_supernet(space, shape, batch=4):
    """A supernet of one repeat whose batch norms have seen some batches, and inputs for it."""
    supernet = make_supernet(space, shape, (0,)).train()
    x = torch.randn(1, batch, *shape.input, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    with torch.no_grad():
        for row in sampled(space, 3, seed=3):
            supernet(x, Dense(row.unsqueeze(0)))
    return supernet, x


def close(a, b):
    return torch.allclose(a, b, rtol=1e-9, atol=1e-9)


def check_forms(one, x, choices):
    """Outputs and gradients by weights must agree in both modes of batch norm.

    Args:
        one: a supernet of one repeat.
        x: inputs [1, batch, ...].
        choices: [architectures, decisions].
    """
    several = _repeated(one)
    networks = _members(one, one.space.decode(choices))
    weights = list(one.parameters())
    for training in (False, True):  # training moves the running statistics, so it comes last
        one.train(training)
        several.train(training)
        for rows, own in zip(choices.split(MANY), _chunks(networks), strict=True):
            xs = x.expand(MANY, *x.shape[1:])
            dense = _shared(several, xs, Dense(rows))
            per_example = _shared(several, xs, PerExample(rows.unsqueeze(1).expand(-1, x.shape[1], -1)))
            for k, (plain, names) in enumerate(own):
                output, gradient = _alone(plain.train(training), names, weights, x[0])
                assert gradient.abs().max() > 1e-3
                [sparse_output], [sparse_gradient] = _shared(one, x, Sparse(tuple(rows[k].tolist())))
                assert all(close(found, output) for found in (sparse_output, dense[0][k], per_example[0][k]))
                assert all(close(found, gradient) for found in (sparse_gradient, dense[1][k], per_example[1][k]))


def _chunks(networks):
    return [networks[start : start + MANY] for start in range(0, len(networks), MANY)]


def _repeated(supernet):
    """The same supernet `MANY` times, as repeats of one."""
    several = make_supernet(supernet.space, supernet.shape, (0,) * MANY)
    several.load_state_dict({k: v.expand(MANY, *v.shape[1:]) for k, v in supernet.state_dict().items()})
    return several


def _members(supernet, architectures):
    """Networks of their own, each with what the supernet's parameters are called in it."""
    names = [name for name, _ in supernet.network.named_parameters()]
    found = []
    for architecture in architectures:
        selections = sparse_selections(supernet.relaxation, architecture.choices)
        found.append(
            (supernet.extract(architecture), [member_name(name, supernet.runner.points, selections) for name in names])
        )
    return found


def _gradients(module, y):
    """By name, zeros where a parameter took no part."""
    names, parameters = zip(*module.named_parameters(), strict=True)
    found = torch.autograd.grad(y.square().sum(), parameters, allow_unused=True, materialize_grads=True)
    return dict(zip(names, found, strict=True))


def _shared(supernet, x, view):
    """Output of a supernet, and the gradient by all its parameters as one row a repeat."""
    y = supernet(x, view)
    return y.detach(), torch.cat([gradient.flatten(1) for gradient in _gradients(supernet, y).values()], 1)


def _alone(plain, names, like, x):
    """The same of one network, its gradient in the places of the supernet's parameters `like`."""
    y = plain(x)
    found = _gradients(plain, y)
    assert set(found) <= set(names)
    rows = [torch.zeros_like(own) if name is None else found[name] for name, own in zip(names, like, strict=True)]
    return y.detach(), torch.cat([row.flatten() for row in rows])
