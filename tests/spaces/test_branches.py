import torch
from torch.autograd.graph import get_gradient_edge

from polyarch.spaces.branches import _kept_for


def test_a_branch_that_nobody_goes_back_through_is_let_go():
    weight = torch.ones(3, requires_grad=True)

    def forward():
        with _kept_for(None):  # on a CPU there is no stream
            (weight * 2).sigmoid()  # keeps its own output
        get_gradient_edge(weight).node.metadata["first"] = True

    forward()
    assert "first" not in get_gradient_edge(weight).node.metadata


def test_what_a_branch_keeps_may_be_differentiated_twice():
    weight = torch.linspace(-1, 1, 3, dtype=torch.float64, requires_grad=True)

    def run(x):
        with _kept_for(None):
            return (x * 2).sigmoid()

    assert torch.autograd.gradgradcheck(run, weight)
