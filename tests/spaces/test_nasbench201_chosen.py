"""A NAS-Bench-201 cell of chosen operations: kernels equal what is written out in torch."""

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest
import torch

from polyarch.spaces import nasbench201_chosen_plain as plain
from polyarch.spaces.nasbench201 import EDGES, OPERATIONS
from polyarch.spaces.nasbench201_chosen import ChosenCell

CELLS = [
    [3, 3, 3, 3, 3, 3],
    [2, 1, 4, 0, 3, 2],
    [1, 3, 2, 4, 0, 3],
    [0, 4, 1, 2, 3, 1],
]
"""Every operation on several edges."""
SIZES = [(3, 4, 5, 7), (2, 16, 8, 8), (2, 6, 1, 4), (3, 40, 4, 5)]


def given(size, dtype, device):
    """An image, the weights of a cell, and a gradient of its last node."""
    chance = torch.Generator().manual_seed(sum(size))
    channels = size[1]
    x, gradient = (torch.randn(size, generator=chance).to(device, dtype) for _ in range(2))
    weights = torch.randn(len(EDGES), 10, channels, channels, generator=chance) / (3 * channels**0.5)
    return x.contiguous(memory_format=torch.channels_last), weights.to(device, dtype), gradient


def passed(cell, x, weights, operations, gradient):
    """The last node, its statistics, and the gradients of input and weights."""
    x, weights = (part.detach().requires_grad_() for part in (x, weights))
    value, statistics = cell(x, weights, operations)
    return value, statistics, *torch.autograd.grad(value, [x, weights], gradient)


def convolves(operations):
    return (operations == plain.SMALL) | (operations == plain.LARGE)


def compare_kernels(size, dtype, device, tolerance):
    """Both passes of every cell against the same in double precision."""
    x, weights, gradient = given(size, dtype, device)
    for cell in CELLS:
        operations = torch.tensor(cell, dtype=torch.int32, device=device)
        ours = passed(ChosenCell.apply, x, weights, operations, gradient)
        theirs = passed(plain.cell, x.double(), weights.double(), operations, gradient.double())
        used = convolves(operations)
        pairs = list(zip(ours, theirs, strict=True))
        pairs[1] = (ours[1][:, used], theirs[1][:, used])
        for mine, other in pairs:
            assert mine.isfinite().all()
            assert (mine - other).norm() <= tolerance * other.norm() + 1e-10


def test_a_cell_is_the_sum_of_what_is_chosen():
    """Of one edge after the other, by torch's own layers."""
    x, weights, _ = given((3, 4, 5, 7), torch.float64, "cpu")
    for e in range(len(EDGES)):
        for option in range(len(OPERATIONS)):
            # Skips lead to the edge and from it, and nothing else does: node 3 is made of this operation alone.
            target, source = EDGES[e]
            cell = [0] * len(EDGES)
            cell[e] = option
            if source > 0:
                cell[plain.edge(source, 0)] = plain.SKIP
            if target < 3:
                cell[plain.edge(3, target)] = plain.SKIP
            value, _ = plain.cell(x, weights, torch.tensor(cell))
            kernel = {plain.SMALL: weights[e, 9:], plain.LARGE: weights[e, :9]}.get(option)
            if kernel is None:
                expected = {
                    plain.SKIP: x,
                    plain.POOL: torch.nn.AvgPool2d(3, 1, 1, count_include_pad=False)(x),
                }.get(option, torch.zeros_like(x))
            else:
                side = 3 if len(kernel) == 9 else 1
                made = torch.nn.functional.conv2d(
                    x.relu(), kernel.permute(2, 1, 0).unflatten(-1, (side, side)), padding=side // 2
                )
                expected = torch.nn.functional.batch_norm(made, None, None, training=True)
            torch.testing.assert_close(value, expected)


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
def test_kernels_by_the_interpreter():
    """In a process of its own: whether Triton interprets is decided when it is imported."""
    code = (
        "import torch; torch.set_num_threads(1); torch.backends.cudnn.allow_tf32 = False\n"
        "from tests.spaces.test_nasbench201_chosen import SIZES, compare_kernels\n"
        "for size in SIZES: compare_kernels(size, torch.float32, 'cpu', 3e-5)\n"
    )
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("size", [(3, 6, 5, 7), (64, 16, 32, 32), (64, 64, 8, 8)])
def test_kernels_on_a_device(size, dtype, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    compare_kernels(size, dtype, "cuda", 1e-4 if dtype == torch.float32 else 4e-2)
