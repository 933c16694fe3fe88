"""The merged form of NAS-Bench-201 is the network that it stands for: outputs, gradients and statistics."""

import os
import subprocess
import sys
from contextlib import nullcontext
from functools import partial
from importlib.util import find_spec

import pytest
import torch

from polyarch.data.task import TaskShape
from polyarch.spaces import nasbench201_plain as plain
from polyarch.spaces.nasbench201 import NasBench201
from polyarch.spaces.sub_spaces import Restricted
from polyarch.spaces.supernets import selections_of
from polyarch.spaces.views import Dense, Soft
from polyarch.testing.spaces import make_supernet

SHAPE = TaskShape((3, 9, 8), 5)  # 8 pixels become 4 and 2, 9 become 5 and 3


def supernet_of(repeats, **settings):
    return make_supernet(NasBench201(channels=4, cells=2, **settings), SHAPE, tuple(range(repeats)))


def inputs(repeats, batch=6):
    return torch.randn(repeats, batch, *SHAPE.input, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def view_of(logits):
    return Soft(tuple(logits.softmax(-1).unbind(1)))


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


@pytest.mark.parametrize("repeats", [1, 3])
@pytest.mark.parametrize("of", ["everything", "belief", "weights"])
def test_it_computes_the_same(repeats, of):
    supernet, x = supernet_of(repeats).train(), inputs(repeats)
    logits = torch.randn(repeats, 6, 5, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    logits.requires_grad_(of != "weights")
    asked = [*([logits] if of != "weights" else []), *([] if of == "belief" else supernet.parameters())]
    ours, theirs = (passed(supernet, x, view_of(logits), asked, merged) for merged in (True, False))
    torch.testing.assert_close(ours[0], theirs[0], rtol=1e-10, atol=1e-10)
    assert_same(ours[1], theirs[1], rtol=1e-9, atol=1e-10)
    assert_same(ours[2], theirs[2], rtol=1e-10, atol=1e-10)


def test_single_cells_are_the_same_too():
    supernet, x = supernet_of(2).train(), inputs(2)
    chance = torch.Generator().manual_seed(4)
    for _ in range(10):
        view = Dense(torch.randint(5, (2, 6), generator=chance))
        ours, theirs = (passed(supernet, x, view, list(supernet.parameters()), merged) for merged in (True, False))
        torch.testing.assert_close(ours[0], theirs[0], rtol=1e-10, atol=1e-10)
        assert_same(ours[1], theirs[1], rtol=1e-9, atol=1e-10)
        assert_same(ours[2], theirs[2], rtol=1e-10, atol=1e-10)


def test_evaluation_by_the_batch_is_the_same_and_moves_nothing():
    supernet, x = supernet_of(1).eval(), inputs(1)
    view = view_of(torch.randn(1, 6, 5, generator=torch.Generator().manual_seed(5), dtype=torch.float64))
    with torch.no_grad():
        ours, theirs = (passed(supernet, x, view, (), merged) for merged in (True, False))
    torch.testing.assert_close(ours[0], theirs[0], rtol=1e-10, atol=1e-10)
    assert_same(ours[2], list(supernet.buffers()), rtol=0, atol=0)


def test_the_gradient_of_belief_alone_makes_none_of_weights(monkeypatch):
    supernet, x = supernet_of(1).train(), inputs(1)
    asked_for = []
    backward = torch.ops.aten.convolution_backward

    def counting(*given):
        asked_for.append(given[-1][1])
        return backward(*given)

    monkeypatch.setattr(torch.ops.aten, "convolution_backward", counting)
    logits = torch.zeros(1, 6, 5, dtype=torch.float64, requires_grad=True)
    passed(supernet, x, view_of(logits), [logits], merged=True)
    assert asked_for == [False] * 3 * 6
    asked_for.clear()
    passed(supernet, x, view_of(logits), [logits, *supernet.parameters()], merged=True)
    assert asked_for == [True] * 3 * 6


def test_gradients_can_be_differentiated_again():
    supernet, x = supernet_of(1).train(), inputs(1)
    logits = torch.randn(1, 6, 5, generator=torch.Generator().manual_seed(6), dtype=torch.float64, requires_grad=True)
    found = []
    for merged in (True, False):
        selections = selections_of(supernet.relaxation, view_of(logits), x)
        run = partial(supernet.merged, chosen=False) if merged else partial(supernet.runner.run, training=True)
        outputs = run(x, selections)
        loss = (outputs if merged else outputs[0]).square().sum()
        weights = [p for name, p in supernet.named_parameters() if "edges" not in name or "bias" not in name]
        slopes = torch.autograd.grad(loss, [logits, *weights], create_graph=True)
        twice = torch.autograd.grad(sum(slope.square().sum() for slope in slopes), [logits, *weights])
        found.append([*slopes, *twice])
    assert_same(*found, rtol=1e-8, atol=1e-8)


def test_evaluation_networks_have_no_such_form():
    assert supernet_of(1, network="evaluation").merged is None
    assert "scale and a shift" in supernet_of(1, network="evaluation").allow_fast(True)
    assert supernet_of(1).allow_fast(True) == ""


def test_what_leaves_options_out_runs_them_not():
    space = Restricted(NasBench201(channels=4, cells=1), {"1<-0": ("skip_connect", "nor_conv_3x3")})
    assert make_supernet(space, SHAPE, (0,)).supernet.merged is None


# -- kernels -----------------------------------------------------------------------------------------------------------

SIZES = [(3, 4, 5, 7), (2, 16, 8, 8), (2, 6, 1, 4), (5, 32, 6, 6)]


def cell(size, dtype, device):
    """Values, convolutions, weights of a mixture with zeros among them, and gradients of nodes."""
    chance = torch.Generator().manual_seed(sum(size))
    batch, channels, *sides = size

    def image(channels):
        drawn = torch.randn(batch, channels, *sides, generator=chance).to(device, dtype)
        return drawn.contiguous(memory_format=torch.channels_last)

    values, gradients = [image(channels) for _ in range(3)], {target: image(channels) for target in (1, 2, 3)}
    convolved = [image(2 * (3 - source) * channels).mul_(2).add_(3) for source in range(3)]
    weights = torch.randn(6, 5, generator=chance).to(device)
    for place in ((2, -2), (4, 1), (5, -1), (1, 2)):
        weights[place] = 0
    return values, convolved, weights, gradients


def compare_kernels(size, dtype, device, tolerance):
    """Every kernel against what it is in torch."""
    from polyarch.spaces import nasbench201_triton as kernels

    def assert_close(ours, theirs):
        assert len(ours) == len(theirs)
        for mine, other in zip(ours, theirs, strict=True):
            assert (mine - other).float().norm() <= tolerance * other.float().norm() + 1e-12

    values, convolved, weights, gradients = cell(size, dtype, device)
    found = [plain.statistics(z.float()) for z in convolved]
    for z, expected in zip(convolved, found, strict=True):
        assert_close(kernels.statistics(z), expected)
    means, factors = ([own[k] for own in found] for k in (0, 1))
    summed = {}
    for target, gradient in gradients.items():
        before = [part[:target] for part in (values, convolved, means, factors)]
        exact = [[part.float() for part in own] for own in before]
        assert_close(kernels.node(*before, weights), [own.to(dtype) for own in plain.node(*exact, weights)])
        for of_values in (True, False):
            expected = plain.sums(gradient.float(), *exact, of_values)
            assert_close([kernels.sums(gradient, *before, of_values)], [expected])
        summed[target] = expected
    for source in range(3):
        later = {target: gradients[target] for target in range(source + 1, 4)}
        exact = {target: gradient.float() for target, gradient in later.items()}
        own = (source, convolved[source], means[source], factors[source])
        expected = plain.convolved_gradient(source, own[1].float(), *own[2:], exact, summed, weights)
        assert_close([kernels.convolved_gradient(*own, later, summed, weights)], [expected.to(dtype)])
        given = gradients[1]
        expected = plain.value_gradient(source, values[source].float(), given.float(), exact, weights)
        assert_close([kernels.value_gradient(source, values[source], given, later, weights)], [expected.to(dtype)])


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
def test_kernels_by_the_interpreter():
    """In a process of its own: whether Triton interprets is decided when it is imported."""
    code = (
        "import torch; torch.set_num_threads(1)\n"
        "from tests.spaces.test_nasbench201_merged import SIZES, compare_kernels\n"
        "for size in SIZES: compare_kernels(size, torch.float32, 'cpu', 3e-6)\n"
    )
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("size", [(3, 6, 5, 7), (64, 16, 32, 32), (64, 64, 8, 8)])
def test_kernels_on_a_device(size, dtype):
    compare_kernels(size, dtype, "cuda", 1e-5 if dtype == torch.float32 else 4e-3)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("repeats", [1, 3])
def test_the_whole_network_on_a_device(repeats, monkeypatch):
    """In single precision, from several states, beside the plain network in double precision."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    for state in range(5):
        exact = make_supernet(NasBench201(channels=4, cells=2), SHAPE, tuple(range(state, state + repeats))).train()
        x = torch.randn(repeats, 32, *SHAPE.input, generator=torch.Generator().manual_seed(state), dtype=torch.float64)
        logits = torch.randn(repeats, 6, 5, generator=torch.Generator().manual_seed(state), dtype=torch.float64)
        logits.requires_grad_()
        theirs = passed(exact, x, view_of(logits), [logits, *exact.parameters()], merged=False)
        single = exact.float().cuda()
        ours_logits = logits.detach().float().cuda().requires_grad_()
        asked = [ours_logits, *single.parameters()]
        ours = passed(single, x.float().cuda(), view_of(ours_logits), asked, merged=True)
        for mine, other in zip((ours[0], *ours[1], *ours[2]), (theirs[0], *theirs[1], *theirs[2]), strict=True):
            # A bias before batch norm has a gradient of 0, but for rounding.
            assert (mine.double().cpu() - other).norm() <= 1e-3 * other.norm() + 1e-6
