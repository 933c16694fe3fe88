"""Rows of a stage: what they read, and gradients that are written by hand."""

import pytest
import torch
from torch import nn

from polyarch.spaces.reading import DrawnRows, KnownRows

ROWS, BATCH, CHANNELS = 5, 4, 3


def plainly(x, weights, nodes):
    """A stage in torch's own operations, whose gradients torch finds; weights [batch, repeats, rows, values]."""
    values = [x]
    for row in range(ROWS):
        shares = [weights[:, :, row, k].repeat_interleave(CHANNELS, 1)[..., None, None] for k in range(row + 1)]
        z = sum(share * value for share, value in zip(shares, values, strict=True)).relu()
        if row < ROWS - 1:
            values.append(nodes[row](z))
    return z


def by_rows(x, read, nodes):
    for node in nodes:
        x = node(read(x))
    return read(x)


def stage(repeats, batch, dtype=torch.float64, device="cpu"):
    torch.manual_seed(repeats)
    nodes = [nn.Conv2d(CHANNELS * repeats, CHANNELS * repeats, 3, padding=1) for _ in range(ROWS - 1)]
    weights = torch.rand(batch, repeats, ROWS, ROWS).tril() * (torch.rand(batch, repeats, ROWS, ROWS) > 0.5)
    weights.diagonal(dim1=-2, dim2=-1).add_(0.5)
    x = torch.randn(BATCH, CHANNELS * repeats, 6, 5)
    return (
        x.to(device, dtype).requires_grad_(),
        weights.to(device, dtype).requires_grad_(),
        nn.ModuleList(nodes).to(device, dtype),
    )


def results(run, x, weights, nodes):
    """Outputs, and gradients by everything."""
    out = run(x, weights, nodes)
    pull = torch.randn(out.shape, generator=torch.Generator().manual_seed(0)).to(out)
    return [out, *torch.autograd.grad((out * pull).sum(), [x, weights, *nodes.parameters()])]


@pytest.mark.parametrize("repeats", [1, 2])
@pytest.mark.parametrize("batch", [BATCH, 1])
def test_gradients_are_those_of_the_plain_stage(repeats, batch):
    given = stage(repeats, batch)
    ours = results(lambda x, weights, nodes: by_rows(x, DrawnRows(weights), nodes), *given)
    for one, other in zip(ours, results(plainly, *given), strict=True):
        assert torch.allclose(one, other, atol=1e-12)


def test_without_gradients_of_weights_values_are_let_go():
    x, weights, nodes = stage(1, BATCH)
    read = DrawnRows(weights.detach())
    out = by_rows(x, read, nodes)
    assert read.values == []
    (gradient,) = torch.autograd.grad(out.sum(), x, retain_graph=True)
    (again,) = torch.autograd.grad(out.sum(), x)
    (expected,) = torch.autograd.grad(plainly(x, weights, nodes).sum(), x)
    assert torch.allclose(gradient, expected, atol=1e-12)
    assert torch.equal(again, gradient)


def test_known_rows_are_drawn_rows_of_every_example():
    x, weights, nodes = stage(1, 1)
    weights = (weights.detach() > 0.3).double()
    rows = [[(k, float(weights[0, 0, row, k])) for k in range(row + 1) if weights[0, 0, row, k]] for row in range(ROWS)]
    ours = by_rows(x, DrawnRows(weights), nodes)
    assert torch.allclose(ours, by_rows(x, KnownRows(rows), nodes), atol=1e-12)


@pytest.mark.cuda
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize(("dtype", "close"), [(torch.float32, 1e-5), (torch.bfloat16, 1e-2)])
@pytest.mark.parametrize("repeats", [1, 2])
def test_kernels_are_the_plain_operations(repeats, layout, dtype, close):
    """Each operation for itself, against double precision on the same numbers; rounding flips no ReLU this way."""
    from polyarch.spaces import reading_plain, reading_triton

    if repeats > 1 and layout is torch.channels_last:
        pytest.skip("an example of a repeat does not lie in one piece then")
    torch.manual_seed(repeats)
    shape = (BATCH, 40 * repeats, 9, 7)  # more than a program has, and no multiple of it
    values = [torch.randn(shape, device="cuda").to(dtype, memory_format=layout) for _ in range(ROWS)]
    upstream = torch.randn(shape, device="cuda").to(dtype)  # laid out otherwise, as gradients may be
    weights = stage(repeats, BATCH)[1].detach().float().cuda()

    def exact(tensors):
        return [None if t is None else t.double() for t in tensors]

    def same(one, other):
        assert (one.double() - other).abs().max() <= close * other.abs().max()

    for row in range(ROWS):
        out = reading_triton.read_row(values[: row + 1], weights, row)
        assert out.stride() == values[0].stride()
        same(out, reading_plain.read_row(exact(values[: row + 1]), weights.double(), row))
        later = [values[k] if k > row else None for k in range(ROWS)]
        ours = reading_triton.value_gradient(upstream, out, later, weights, row)
        plain = reading_plain.value_gradient(*exact([upstream, out]), exact(later), weights.double(), row)
        for one, other in zip(ours, plain, strict=True):
            same(one, other)
        found = reading_triton.weight_gradient(ours[0], values[: row + 1], weights, row)
        plain = reading_plain.weight_gradient(ours[0].double(), exact(values[: row + 1]), weights.double(), row)
        same(found, plain * (weights[:, :, row] != 0))


@pytest.mark.cuda
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_a_stage_of_kernels_has_the_plain_gradients(layout):
    x, weights, nodes = stage(1, BATCH, torch.float32, "cuda")
    given = x.detach().to(memory_format=layout).requires_grad_(), weights, nodes
    ours = results(lambda x, weights, nodes: by_rows(x, DrawnRows(weights), nodes), *given)
    for one, other in zip(ours, results(plainly, *given), strict=True):
        learnt = weights != 0 if one.shape == weights.shape else torch.ones_like(one, dtype=torch.bool)
        assert (one - other)[learnt].abs().max() <= 1e-3 * other[learnt].abs().max()
