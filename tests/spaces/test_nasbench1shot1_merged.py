"""The merged form of NAS-Bench-1Shot1 is the network that it stands for: outputs, gradients and statistics."""

import os
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from importlib.util import find_spec

import pytest
import torch

from polyarch.data.task import TaskShape
from polyarch.distributions.priors import uniform
from polyarch.spaces import nasbench1shot1_plain as plain
from polyarch.spaces.nasbench1shot1 import NasBench1Shot1
from polyarch.spaces.sub_spaces import Restricted
from polyarch.spaces.supernets import selections_of
from polyarch.spaces.views import Dense, Soft
from polyarch.testing.spaces import make_supernet

SHAPE = TaskShape((3, 7, 6), 5)  # 7 pixels become 4 and 3, 6 become 4 and 3
CELLS = 3


def supernet_of(repeats, sub_space=1, seed=0, **settings):
    """One whose batch norms scale and shift by numbers of their own."""
    space = NasBench1Shot1(sub_space=sub_space, channels=4, cells=CELLS, **settings)
    supernet = make_supernet(space, SHAPE, tuple(range(seed, seed + repeats))).train()
    chance = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in supernet.named_parameters():
            if ".norm." in name:
                parameter.add_(0.3 * torch.randn(parameter.shape, generator=chance, dtype=torch.float64))
    return supernet


def inputs(repeats, batch=5, seed=1):
    chance = torch.Generator().manual_seed(seed)
    return torch.randn(repeats, batch, *SHAPE.input, generator=chance, dtype=torch.float64)


def belief(supernet, seed=3):
    """Logits of every simplex."""
    chance = torch.Generator().manual_seed(seed)
    sizes = [(supernet.repeats, len(simplex)) for simplex in supernet.relaxation.simplices]
    return [torch.randn(size, generator=chance, dtype=torch.float64).requires_grad_() for size in sizes]


def view_of(logits):
    return Soft(tuple(row.softmax(-1) for row in logits))


def passed(supernet, x, view, asked, merged):
    """Outputs, gradients by what is asked for, and the statistics that were moved; which are then put back."""
    before = [buffer.clone() for buffer in supernet.buffers()]
    selections = selections_of(supernet.relaxation, view, x)
    chosen = isinstance(view, Dense)
    with supernet.buffers_of_options.kept(selections) if chosen and supernet.training else nullcontext():
        if merged:
            outputs = supernet.merged(x, selections, chosen)
        else:
            [outputs] = supernet.runner.run(x, selections, supernet.training)
    direction = torch.randn(outputs.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64).to(x)
    found = torch.autograd.grad((outputs * direction).sum(), asked, materialize_grads=True) if asked else ()
    moved = [buffer.clone() for buffer in supernet.buffers()]
    for buffer, value in zip(supernet.buffers(), before, strict=True):
        buffer.copy_(value)
    return outputs, found, moved


def assert_same(ours, theirs, **tolerance):
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, **tolerance)


def assert_same_pass(supernet, x, view, asked):
    """`view` makes it anew for each form, since each follows it back."""
    ours, theirs = (passed(supernet, x, view(), asked, merged) for merged in (True, False))
    torch.testing.assert_close(ours[0], theirs[0], rtol=1e-10, atol=1e-10)
    assert_same(ours[1], theirs[1], rtol=1e-9, atol=1e-9)
    assert_same(ours[2], theirs[2], rtol=1e-10, atol=1e-10)
    return ours


@pytest.mark.parametrize("repeats", [1, 3])
@pytest.mark.parametrize("sub_space", [1, 2, 3])
def test_it_computes_the_same(sub_space, repeats):
    supernet, x = supernet_of(repeats, sub_space), inputs(repeats)
    logits = belief(supernet)
    for training in (True, False):
        supernet.train(training)
        before = [buffer.clone() for buffer in supernet.buffers()]
        _, found, moved = assert_same_pass(supernet, x, partial(view_of, logits), [*logits, *supernet.parameters()])
        assert all(gradient.abs().max() > 1e-6 for gradient in found)
        assert all(torch.equal(*pair) != training for pair in zip(moved, before, strict=True))


@pytest.mark.parametrize("of", ["belief", "weights", "one projection", "one kernel", "one scale"])
def test_what_is_not_asked_for_changes_nothing(of):
    supernet, x = supernet_of(2, 3), inputs(2)
    logits = belief(supernet)
    cell = supernet.network.cells[1]
    asked = {
        "belief": logits,
        "weights": list(supernet.parameters()),
        "one projection": [cell.inputs["1"].layers.conv.weight],
        "one kernel": [cell.operations["2"].options[1].conv.weight],
        "one scale": [cell.output.options[0].layers.norm.weight],
    }[of]
    assert_same_pass(supernet, x, partial(view_of, logits), asked)


@pytest.mark.parametrize("repeats", [1, 3])
@pytest.mark.parametrize("sub_space", [1, 2, 3])
def test_single_cells_are_the_same_too(sub_space, repeats):
    supernet, x = supernet_of(repeats, sub_space), inputs(repeats)
    drawn = uniform(supernet.space.decisions).sample(5 * repeats, torch.Generator().manual_seed(4))
    for k, choices in enumerate(drawn.split(repeats)):
        supernet.train(k > 0)
        assert_same_pass(supernet, x, partial(Dense, choices), list(supernet.parameters()))


def test_equal_maxima_have_the_gradient_of_the_first():
    """Of constant images and shifts far below 0 all that nodes take is 0."""
    supernet, x = supernet_of(1), inputs(1).round().clamp(0, 1)
    with torch.no_grad():
        for name, parameter in supernet.named_parameters():
            if ".norm.bias" in name and "cells" in name:
                parameter.sub_(1)
    choices = torch.tensor([[2] * 4 + [0] * (len(supernet.space.decisions) - 4)])
    assert_same_pass(supernet, x, partial(Dense, choices), list(supernet.parameters()))
    logits = belief(supernet)
    assert_same_pass(supernet, x, partial(view_of, logits), [*logits, *supernet.parameters()])


def test_the_gradient_of_belief_alone_makes_none_of_weights(monkeypatch):
    supernet, x = supernet_of(1), inputs(1)
    asked_for = []
    backward = torch.ops.aten.convolution_backward

    def counting(*given):
        asked_for.append(given[-1][:2])
        return backward(*given)

    monkeypatch.setattr(torch.ops.aten, "convolution_backward", counting)
    logits = belief(supernet)
    nodes = len(supernet.space.nodes)
    passed(supernet, x, view_of(logits), logits, merged=True)
    # Nor of the first cell's input, which belief has no part in.
    assert asked_for == [[True, False]] * (CELLS * (nodes + 1) - 1)
    asked_for.clear()
    passed(supernet, x, view_of(logits), [*logits, *supernet.parameters()], merged=True)
    assert asked_for == [[True, True]] * CELLS * (nodes + 1)


def test_weights_have_gradients_that_lie_as_they_do():
    """Else an optimiser would take them one by one."""
    supernet, x = supernet_of(2), inputs(2)
    weights = list(supernet.parameters())
    for view in (view_of(belief(supernet)), Dense(torch.zeros(2, len(supernet.space.decisions), dtype=torch.int64))):
        _, found, _ = passed(supernet, x, view, weights, merged=True)
        assert all(own.is_contiguous() for own in found)


@pytest.mark.parametrize("sub_space", [1, 2, 3])
def test_gradients_can_be_differentiated_again(sub_space):
    supernet, x = supernet_of(1, sub_space), inputs(1)
    logits = belief(supernet)
    asked, found = [*logits, *supernet.parameters()], []
    for merged in (True, False):
        selections = selections_of(supernet.relaxation, view_of(logits), x)
        run = partial(supernet.merged, chosen=False) if merged else partial(supernet.runner.run, training=True)
        outputs = run(x, selections)
        loss = (outputs if merged else outputs[0]).square().sum()
        slopes = torch.autograd.grad(loss, asked, create_graph=True)
        twice = torch.autograd.grad(sum(slope.square().sum() for slope in slopes), asked)
        found.append([*slopes, *twice])
    assert_same(*found, rtol=1e-8, atol=1e-8)


def test_who_has_this_form():
    supernet = supernet_of(1)
    assert supernet.allow_fast(True) == ""
    space = Restricted(supernet.space, {"op1": ("conv3x3-bn-relu", "maxpool3x3")})
    left_out = make_supernet(space, SHAPE, (0,))
    assert left_out.supernet.merged is None
    assert "left out" in left_out.allow_fast(True)


# -- kernels -----------------------------------------------------------------------------------------------------------

SIZES = [(3, 4, 5, 7), (2, 16, 8, 8), (2, 6, 1, 4), (5, 32, 3, 3)]


def compare_kernels(size, nodes, kinds, dtype, device, tolerance):
    """Every kernel against what it is in torch; weights have zeros among them, and values equals."""
    from polyarch.spaces import nasbench1shot1_triton as kernels

    chance = torch.Generator().manual_seed(sum(size))
    batch, channels, *sides = size

    def assert_close(mine, other):
        assert mine.shape == other.shape
        assert (mine.float() - other.float()).norm() <= tolerance * other.float().norm() + 1e-12

    def image(blocks=1):
        drawn = torch.randn(batch, blocks * channels, *sides, generator=chance).to(device, dtype)
        return drawn.contiguous(memory_format=torch.channels_last)

    def blocks(count):
        z = image(count).mul_(2).add_(3)
        mean, factor, _ = plain.statistics(z.float())
        affine = torch.randn(2, count + 1, channels, generator=chance).to(device)[:, 1:]
        weights = torch.randn(count, generator=chance).to(device)
        weights[::3] = 0
        return plain.Blocks(z, mean, factor, affine, weights)

    def exact(own):
        return replace(own, convolved=own.convolved.float())

    projected, values, gradient = blocks(2 * nodes), [image() for _ in range(nodes)], image(nodes)
    found, expected = kernels.statistics(projected.convolved), plain.statistics(exact(projected).convolved)
    for mine, other in zip(found, expected, strict=True):
        assert_close(mine, other)
    added = torch.randn(nodes + 1, nodes, generator=chance).to(device)
    added[::2, ::2] = 0
    singles, parts = [value.float() for value in values], gradient.split(channels, 1)
    assert_close(kernels.joined(projected, values, added), plain.joined(exact(projected), singles, added).to(dtype))
    for node in range(1, nodes + 1):
        expected = plain.taken(node, exact(projected), singles[: node - 1], added)
        assert_close(kernels.taken(node, projected, values[: node - 1], added), expected.to(dtype))
        convolved, value = blocks(kinds), image().round().relu()
        made, place = kernels.mixed(node, value, convolved, added)
        expected, places = plain.mixed(node, value.float(), exact(convolved), added)
        assert_close(made, expected.to(dtype))
        if added[node - 1, node - 1] != 0:
            assert torch.equal(place, places)
        place = places.contiguous(memory_format=torch.channels_last)
        later = [*values[node:], parts[node - 1]]
        given = [*singles[node:], parts[node - 1].float()]
        for of_added in (True, False):
            own = node, later, value, place, made, convolved, added, of_added
            wanted = node, given, value.float(), place, made.float(), exact(convolved), added, of_added
            found, sums = kernels.node_gradient(*own)
            expected, summed = plain.node_gradient(*wanted)
            assert_close(found, expected.to(dtype))
            assert_close(sums, summed)
        by_convolved = kernels.block_gradient(convolved, [values[0]] * kinds, summed.unflatten(0, (2, -1)))
        expected = plain.block_gradient(exact(convolved), [singles[0]] * kinds, summed.unflatten(0, (2, -1)))
        assert_close(by_convolved, expected.to(dtype))
        expected = plain.value_gradient(node, singles[0], place, singles[1], added)
        assert_close(kernels.value_gradient(node, values[0], place, values[1], added), expected.to(dtype))
    given = [*singles, *(part.float() for part in parts)]
    for of_weights in (True, False):
        sums = kernels.block_sums(projected, [*values, *parts], of_weights)
        summed = plain.block_sums(exact(projected), given, of_weights)
        assert_close(sums, summed)
    expected = plain.block_gradient(exact(projected), given, summed)
    assert_close(kernels.block_gradient(projected, [*values, *parts], summed), expected.to(dtype))


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
def test_kernels_by_the_interpreter():
    """In a process of its own: whether Triton interprets is decided when it is imported.

    Its bfloat16 is cut off, not rounded, so that images may be one unit of the last place apart.
    """
    code = (
        "import torch; torch.set_num_threads(1)\n"
        "from tests.spaces.test_nasbench1shot1_merged import SIZES, compare_kernels\n"
        "for k, size in enumerate(SIZES):\n"
        "    compare_kernels(size, 4 + k % 2, 2 - k % 2, torch.float32, 'cpu', 3e-6)\n"
        "    compare_kernels(size, 4, 1 + k % 2, torch.bfloat16, 'cpu', 2**-7)\n"
    )
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("size", "nodes", "kinds"), [((3, 6, 5, 7), 4, 1), ((64, 16, 32, 32), 5, 2), ((64, 64, 9, 9), 5, 1)]
)
def test_kernels_on_a_device(size, nodes, kinds, dtype):
    compare_kernels(size, nodes, kinds, dtype, "cuda", 1e-5 if dtype == torch.float32 else 4e-3)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("repeats", [1, 3])
def test_the_whole_network_on_a_device(repeats, monkeypatch):
    """In single precision, from several states, beside the plain network in double precision.

    In some states rounding takes a value to the other side of a ReLU, and gradients jump (by up to 5 % here, which
    the plain network in double precision does, too, where its weights are moved by a few millionths): most may not.
    """
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    worst = []
    for state in range(5):
        exact = supernet_of(repeats, 1 + state % 3, state)
        x = inputs(repeats, batch=32, seed=state)
        logits = belief(exact, state)
        theirs = passed(exact, x, view_of(logits), [*logits, *exact.parameters()], merged=False)
        single = exact.float().cuda()
        ours_logits = [row.detach().float().cuda().requires_grad_() for row in logits]
        asked = [*ours_logits, *single.parameters()]
        ours = passed(single, x.float().cuda(), view_of(ours_logits), asked, merged=True)
        for mine, other in zip((ours[0], *ours[2]), (theirs[0], *theirs[2]), strict=True):
            assert (mine.double().cpu() - other).norm() <= 1e-4 * other.norm() + 1e-6
        off = [(mine.double().cpu() - other).norm() for mine, other in zip(ours[1], theirs[1], strict=True)]
        worst.append(max((a / (b.norm() + 1e-3)).item() for a, b in zip(off, theirs[1], strict=True)))
    assert sorted(worst)[2] <= 1e-4
    assert max(worst) <= 0.1
