"""The merged form of the DARTS space is the network that it stands for: outputs, gradients and statistics."""

import os
import subprocess
import sys
from contextlib import nullcontext
from functools import partial
from importlib.util import find_spec

import pytest
import torch

from polyarch.data.task import TaskShape
from polyarch.spaces import darts_plain as plain
from polyarch.spaces.darts import EDGES, S2_OPERATIONS, Darts
from polyarch.spaces.sub_spaces import Restricted
from polyarch.spaces.supernets import selections_of
from polyarch.spaces.views import Dense, Soft
from polyarch.testing.spaces import make_supernet

SHAPE = TaskShape((3, 9, 8), 5)  # 8 pixels become 4 and 2, 9 become 5 and 3


def supernet_of(repeats, shape=SHAPE, **settings):
    return make_supernet(Darts(**{"channels": 4, "layers": 3, **settings}), shape, tuple(range(repeats)))


def inputs(repeats, batch=6):
    return torch.randn(repeats, batch, *SHAPE.input, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def logits_of(supernet, seed=3):
    shape = (supernet.repeats, 2 * len(EDGES), len(supernet.space.operations))
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


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


def assert_equal_passes(supernet, x, view, asked):
    ours, theirs = (passed(supernet, x, view(), asked, merged) for merged in (True, False))
    torch.testing.assert_close(ours[0], theirs[0], rtol=1e-10, atol=1e-10)
    assert_same(ours[1], theirs[1], rtol=1e-9, atol=1e-10)
    assert_same(ours[2], theirs[2], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("repeats", [1, 2])
@pytest.mark.parametrize("of", ["everything", "belief", "weights"])
def test_it_computes_the_same(repeats, of):
    supernet, x = supernet_of(repeats).train(), inputs(repeats)
    logits = logits_of(supernet).requires_grad_(of != "weights")
    asked = [*([logits] if of != "weights" else []), *([] if of == "belief" else supernet.parameters())]
    assert_equal_passes(supernet, x, lambda: view_of(logits), asked)


@pytest.mark.parametrize("operations", [S2_OPERATIONS, ("max_pool_3x3", "dil_conv_5x5")])
def test_any_operations_will_do(operations):
    supernet, x = supernet_of(1, operations=operations).train(), inputs(1)
    logits = logits_of(supernet).requires_grad_()
    assert_equal_passes(supernet, x, lambda: view_of(logits), [logits, *supernet.parameters()])


def test_single_architectures_are_the_same_too():
    supernet, x = supernet_of(2).train(), inputs(2)
    chance = torch.Generator().manual_seed(4)
    for _ in range(4):
        view = Dense(supernet.space.random().sample(2, chance).reshape(2, -1))
        assert_equal_passes(supernet, x, lambda view=view: view, list(supernet.parameters()))


def test_evaluation_by_the_batch_is_the_same_and_moves_nothing():
    supernet, x = supernet_of(1).eval(), inputs(1)
    view = view_of(logits_of(supernet))
    with torch.no_grad():
        ours, theirs = (passed(supernet, x, view, (), merged) for merged in (True, False))
    torch.testing.assert_close(ours[0], theirs[0], rtol=1e-10, atol=1e-10)
    assert_same(ours[2], list(supernet.buffers()), rtol=0, atol=0)


def test_the_gradient_of_belief_alone_makes_none_of_weights(monkeypatch):
    supernet, x = supernet_of(1).train(), inputs(1)
    calls = []
    made = plain.depthwise_weight_gradient
    monkeypatch.setattr(plain, "depthwise_weight_gradient", lambda *given: calls.append(1) or made(*given))
    logits = logits_of(supernet).requires_grad_()
    passed(supernet, x, view_of(logits), [logits], merged=True)
    assert not calls
    passed(supernet, x, view_of(logits), [logits, *supernet.parameters()], merged=True)
    assert len(calls) == 3 * 5 * 2  # cells, values that edges leave, first and second convolutions


def test_gradients_can_be_differentiated_again():
    supernet, x = supernet_of(1, layers=2).train(), inputs(1, batch=4)
    logits = logits_of(supernet).requires_grad_()
    found = []
    for merged in (True, False):
        selections = selections_of(supernet.relaxation, view_of(logits), x)
        run = partial(supernet.merged, chosen=False) if merged else partial(supernet.runner.run, training=True)
        outputs = run(x, selections)
        loss = (outputs if merged else outputs[0]).square().sum()
        weights = list(supernet.parameters())
        slopes = torch.autograd.grad(loss, [logits, *weights], create_graph=True)
        twice = torch.autograd.grad(sum(slope.square().sum() for slope in slopes), [logits, *weights])
        found.append([*slopes, *twice])
    assert_same(*found, rtol=1e-8, atol=1e-8)


def test_who_has_no_such_form_says_why():
    assert "scale and a shift" in supernet_of(1, network="evaluation").allow_fast(True)
    assert "no convolutions" in supernet_of(1, operations=("skip_connect", "none")).allow_fast(True)
    assert supernet_of(1).allow_fast(True) == ""
    space = Restricted(Darts(channels=2, layers=2), {"normal.0.0": ("skip_connect~0", "sep_conv_3x3~0")})
    assert make_supernet(space, SHAPE, (0,)).supernet.merged is None


# -- kernels -----------------------------------------------------------------------------------------------------------


def single_and_double(repeats, device, state, **settings):
    """A network in single precision that runs by kernels, and beside it the plain one in double precision."""
    exact = supernet_of(repeats, **settings).train()
    for k, parameter in enumerate(exact.parameters()):
        chance = torch.Generator().manual_seed(1000 * state + k)
        parameter.data.add_(0.1 * torch.randn(parameter.shape, generator=chance, dtype=torch.float64))
    single = supernet_of(repeats, **settings).train()
    single.load_state_dict(exact.state_dict())
    return exact, single.float().to(device)


def compare_kernels(device, repeats=1, states=1, tolerance=2e-4, **settings):
    """Every kernel at once: a whole network, its gradients and statistics, mixed and with one operation per slot."""
    for state in range(states):
        exact, single = single_and_double(repeats, device, state, **settings)
        x, logits = inputs(repeats), logits_of(exact, state)
        chance = torch.Generator().manual_seed(state)
        choices = exact.space.random().sample(repeats, chance).reshape(repeats, -1)
        for mixed in (True, False):
            theirs_logits = logits.clone().requires_grad_()
            ours_logits = logits.float().to(device).requires_grad_()
            views = [view_of(theirs_logits), view_of(ours_logits)]
            if not mixed:
                views = [Dense(choices), Dense(choices.to(device))]
            asked = [
                [*([own] if mixed else []), *net.parameters()]
                for own, net in ((theirs_logits, exact), (ours_logits, single))
            ]
            theirs = passed(exact, x, views[0], asked[0], merged=False)
            ours = passed(single, x.float().to(device), views[1], asked[1], merged=True)
            for mine, other in zip((ours[0], *ours[1], *ours[2]), (theirs[0], *theirs[1], *theirs[2]), strict=True):
                assert (mine.double().cpu() - other).norm() <= tolerance * other.norm() + 1e-5


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
@pytest.mark.parametrize(
    "settings", ["{}", pytest.param("{'operations': ('skip_connect', 'sep_conv_3x3')}", marks=pytest.mark.nightly)]
)
def test_kernels_by_the_interpreter(settings):
    """In a process of its own: whether Triton interprets is decided when it is imported."""
    code = (
        "import torch; torch.set_num_threads(1)\n"
        "from polyarch.spaces import darts_merged, darts_triton\n"
        "plain = darts_merged.darts_plain\n"
        "darts_merged.operations_of = lambda like: plain if like.dtype == torch.float64 else darts_triton\n"
        "torch.backends.cudnn.allow_tf32 = False\n"
        "from tests.spaces.test_darts_merged import compare_kernels\n"
        f"compare_kernels('cpu', layers=2, **{settings})\n"
    )
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize(("repeats", "channels"), [(1, 4), (2, 16)])
def test_the_whole_network_on_a_device(repeats, channels, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    compare_kernels("cuda", repeats, 3, 1e-3, channels=channels)
