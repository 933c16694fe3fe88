"""What every space and its supernet must satisfy."""

from __future__ import annotations

import copy
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from polyarch.architecture import Architecture
from polyarch.data.task import TaskShape
from polyarch.distributions.priors import uniform
from polyarch.spaces.base import Space, Supernet
from polyarch.spaces.graph import pictures
from polyarch.spaces.layers import BatchNorm
from polyarch.spaces.relaxation import Relaxation
from polyarch.spaces.supernets import sparse_selections
from polyarch.spaces.views import All, Dense, PerExample, Soft, Sparse, SparsePerRepeat, View


def check_space(space: Space, shape: TaskShape, *, architectures: int = 8, batch: int = 6) -> None:
    """Checks texts, costs and pictures, and that a supernet and plain networks of its weights agree.

    Agreement is of outputs, of gradients of weights and of what batch norm keeps, to 1e-9 in double precision, under
    every view that the supernet takes, in training and in evaluation mode. Where batch norm uses batch statistics in
    evaluation mode, plain networks, which do not, are compared in training mode only.

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
    space.check(shape)

    generator = torch.Generator().manual_seed(0)
    sampled = space.random().sample(architectures, generator)
    for architecture, choices in zip(space.decode(sampled), sampled.tolist(), strict=True):
        assert architecture.choices == tuple(choices), "decode must keep the choices"
        assert space.parse(str(architecture)) == architecture, "parse must read what format writes"
        assert space.canonical(space.parse(str(architecture))) == space.canonical(architecture)
    if space.relaxation is not None:
        check_relaxation(space.relaxation, space, sampled)
    check_pictures(space)
    drawn = space.random()
    assert drawn.decisions == space.decisions, "random must be about the space's decisions"
    assert drawn.architectures <= space.count(), "random must draw architectures of the space"

    x = torch.randn(2, batch, *shape.input, generator=generator, dtype=torch.float64)
    both = make_supernet(space, shape, seeds=(0, 1))
    assert {Sparse, Dense} <= both.views, "a supernet must run under Sparse and Dense"
    assert Soft in both.views or space.relaxation is None, "what has a relaxation must run under Soft"
    for value in (*both.parameters(), *both.buffers()):
        assert value.shape[0] == 2, "every parameter and buffer needs a leading axis of repeats"
    _move_statistics(both, x, sampled)
    for training in (True, False):
        both.train(training)
        for architecture in space.decode(sampled):
            _check_architecture(both, x, architecture)
        if SparsePerRepeat in both.views:
            for pair in sampled[: len(sampled) // 2 * 2].split(2):
                _check_own(both, x, pair)
    _check_repeats(space, shape, both, x, tuple(sampled[0].tolist()))
    cost = space.cost(space.decode(sampled)[0], shape)
    plain = space.evaluated().build(space.decode(sampled)[0], shape)
    counted = [p.numel() for name, p in plain.named_parameters() if not name.startswith("auxiliary.")]
    assert cost.parameters == sum(counted), "cost must count the parameters of build"


def check_relaxation(relaxation: Relaxation, space: Space, sampled: Tensor) -> None:
    """`uses`, `mix`, `usage` and `discretize` must agree with each other."""
    mixed = relaxation.mix(sampled)
    assert relaxation.decisions == space.decisions, "the relaxation must be of the space's decisions"
    assert len(mixed) == len(relaxation.simplices), "mix must give weights for every simplex"
    for k, choices in enumerate(sampled.tolist()):
        for simplex, weights in zip(relaxation.simplices, mixed, strict=True):
            used = dict(sparse_selections(relaxation, choices)[simplex.name])
            wanted = [used.get(option, 0.0) for option in range(len(simplex))]
            assert weights[k].double().tolist() == wanted, f"mix and uses must agree on {simplex.name}"
    probs = uniform(space.decisions).probs()
    for simplex, probability in zip(relaxation.simplices, relaxation.usage(probs), strict=True):
        assert probability.shape == (len(simplex),), "usage must give one probability per option"
        assert ((probability >= 0) & (probability <= 1 + 1e-6)).all(), "usage must give probabilities"
    read = relaxation.discretize([torch.rand(len(sampled), len(d)) for d in relaxation.simplices])
    assert read.shape == sampled.shape, "discretize must give choices [n, decisions]"
    assert space.decode(read), "discretize must give choices of the space"
    belief = relaxation.belief(uniform(relaxation.simplices))
    assert belief.decisions == space.decisions, "belief must be about the space's decisions"
    assert belief.factors == relaxation.simplices, "belief must speak of the simplices"


def check_pictures(space: Space) -> None:
    """Pictures must join nodes that they have, in order."""
    probs = {name: p.tolist() for name, p in uniform(space.decisions).probs().items()}
    for graph in pictures(space, probs):
        order = {node.name: k for k, node in enumerate(graph.nodes)}
        assert len(order) == len(graph.nodes), "nodes of a picture need different names"
        assert all(order[e.source] < order[e.target] for e in graph.edges), "edges must lead to later nodes"


def make_supernet(space: Space, shape: TaskShape, seeds: tuple[int, ...]) -> Supernet:
    """A double-precision supernet, one repeat per seed."""
    supernet = space.supernet(shape, len(seeds))
    supernet.reset_parameters([torch.Generator().manual_seed(s) for s in seeds])
    return supernet.double()


@torch.no_grad()
def _move_statistics(supernet: Supernet, x: Tensor, sampled: Tensor) -> None:
    """Training passes, so that batch-norm statistics are no longer those of the start."""
    supernet.train()
    for choices in sampled:
        supernet(x, Dense(choices.expand(supernet.repeats, -1)))


def _check_architecture(supernet: Supernet, x: Tensor, architecture: Architecture) -> None:
    choices, space = torch.tensor(architecture.choices), supernet.space
    sparse = supernet(x, Sparse(architecture.choices))
    assert sparse.shape == (*x.shape[:2], supernet.shape.outputs), "outputs must be [repeats, batch, outputs]"
    gradients = _gradients(sparse, dict(supernet.named_parameters()))
    views: dict[str, View] = {"Dense": Dense(choices.expand(len(x), -1))}
    if PerExample in supernet.views:
        views["PerExample"] = PerExample(choices.expand(*x.shape[:2], -1))
    if space.relaxation is not None:
        views["Soft"] = Soft(tuple(w.double() for w in space.relaxation.mix(choices.expand(len(x), -1))))
    for name, view in views.items():
        output = supernet(x, view)
        what = f"{name} must agree with Sparse on {architecture}"
        assert torch.allclose(sparse, output, atol=1e-9), what
        _check_equal(gradients, _gradients(output, dict(supernet.named_parameters())), what)
    if All in supernet.views:
        options = supernet(x, All())
        assert torch.allclose(sparse, options[:, architecture.choices[0]], atol=1e-9), "All must agree with Sparse"
    if supernet.training or not _by_batch(supernet):
        _check_extracted(supernet, x, architecture, sparse, gradients)


def _check_own(supernet: Supernet, x: Tensor, choices: Tensor) -> None:
    """Repeats with an architecture of their own must be the same where the host knows of it, and as in a single run."""
    before = {name: value.clone() for name, value in supernet.named_buffers()}
    wanted = supernet(x, Dense(choices))
    gradients = _gradients(wanted, dict(supernet.named_parameters()))
    kept = _put_back(supernet, before)
    output = supernet(x, SparsePerRepeat.read(choices))
    what = f"SparsePerRepeat must agree with Dense on {choices.tolist()}"
    assert torch.allclose(wanted, output, atol=1e-9), what
    _check_equal(gradients, _gradients(output, dict(supernet.named_parameters())), what)
    own = _put_back(supernet, before)
    for repeat, row in enumerate(choices.tolist()):
        with torch.no_grad():
            supernet(x, Sparse(tuple(row)))
        for name, value in _put_back(supernet, before).items():
            for other, view in ((kept, "Dense"), (own, "SparsePerRepeat")):
                agree = torch.allclose(value[repeat], other[name][repeat], atol=1e-9)
                assert agree, f"{view} must keep the {name} that Sparse keeps on {row}"


@torch.no_grad()
def _put_back(supernet: Supernet, before: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Sets the buffers of a supernet back; gives what they were."""
    found = {name: value.clone() for name, value in supernet.named_buffers()}
    for name, value in supernet.named_buffers():
        value.copy_(before[name])
    return found


def _check_extracted(
    supernet: Supernet, x: Tensor, architecture: Architecture, outputs: Tensor, gradients: Mapping[str, Tensor]
) -> None:
    """The plain network of one architecture, with weights copied by name, must be the supernet's member."""
    twin = copy.deepcopy(supernet)  # holds gradients where the supernet holds weights, so that they are found by name
    for name, parameter in twin.named_parameters():
        parameter.data = gradients[name]
    for repeat in range(len(x)):
        plain = supernet.extract(architecture, repeat).train(supernet.training)
        answer = plain(x[repeat])
        output = answer[0] if isinstance(answer, tuple) else answer  # an auxiliary tower speaks in training mode
        what = f"extract must agree with Sparse on {architecture}"
        assert torch.allclose(output, outputs[repeat], atol=1e-9), what
        own = _gradients(output, {name: p for name, p in plain.named_parameters() if p.requires_grad})
        member = twin.member_state(architecture, repeat)
        _check_equal({name: member[name] for name in own}, own, what)


def _by_batch(supernet: nn.Module) -> bool:
    return any(isinstance(m, BatchNorm) and m.statistics == "batch" for m in supernet.modules())


def _gradients(output: Tensor, parameters: Mapping[str, nn.Parameter]) -> dict[str, Tensor]:
    """Of a fixed weighted sum over the last two axes, examples and outputs."""
    rows, columns = (torch.arange(1.0, n + 1, dtype=torch.float64) for n in output.shape[-2:])
    loss = (output * rows.sin().unsqueeze(-1) * columns.cos()).sum()
    found = torch.autograd.grad(loss, list(parameters.values()), materialize_grads=True)
    return dict(zip(parameters, found, strict=True))


def _check_equal(wanted: Mapping[str, Tensor], found: Mapping[str, Tensor], what: str) -> None:
    for name, value in wanted.items():
        assert torch.allclose(value, found[name], atol=1e-9), f"{what}: the gradient of {name} differs"


@torch.no_grad()
def _check_repeats(space: Space, shape: TaskShape, both: Supernet, x: Tensor, choices: tuple[int, ...]) -> None:
    """Repeat 1 of two must be what a supernet of its own is."""
    single = make_supernet(space, shape, seeds=(1,))
    for (name, own), value in zip(single.named_parameters(), both.parameters(), strict=True):
        assert torch.equal(own[0], value[1]), f"repeat 1 must start like a single run of its seed: {name}"
    single.train()
    fresh = make_supernet(space, shape, seeds=(0, 1)).train()
    alone, together = single(x[1:], Sparse(choices)), fresh(x, Sparse(choices))
    assert torch.allclose(alone[0], together[1], atol=1e-9), "repeats must not touch each other"
