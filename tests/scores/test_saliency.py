"""Scores of untrained networks against their definitions, worked out weight by weight."""

import copy
from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd.functional import hessian, jacobian
from torch.func import functional_call

from polyarch import PolyarchError
from polyarch.scores import without_batch_norm
from polyarch.scores.grad_norm import grad_norm
from polyarch.scores.grasp import grasp
from polyarch.scores.jacob_cov import jacob_cov
from polyarch.scores.snip import snip
from polyarch.scores.synflow import synflow

INPUT = (1, 5, 5)


@pytest.fixture
def network():
    """A convolution and a linear layer with batch norm between them, smooth, in double precision; one weight is 0."""
    torch.manual_seed(0)
    found = nn.Sequential(
        nn.Conv2d(1, 2, 3, bias=True), nn.BatchNorm2d(2), nn.Softplus(), nn.Flatten(), nn.Linear(18, 3)
    ).double()
    with torch.no_grad():
        found[0].weight[0, 0, 0, 0] = 0
        found[1].weight.copy_(torch.tensor([1.5, -0.5]))
    return found


@pytest.fixture
def loss():
    x, y = torch.randn(6, *INPUT, dtype=torch.float64), torch.tensor([0, 1, 2, 0, 1, 1])
    return lambda network: F.cross_entropy(network(x), y)


def weights_of(network):
    return {name: w.detach() for name, w in network.named_parameters() if name in ("0.weight", "4.weight")}


def by_masks(network, measure, step=1e-5):
    """|d measure / d mask| of every weight by central differences, summed."""
    network, found = copy.deepcopy(network), 0.0
    for weight in weights_of(network).values():
        for k, value in enumerate(weight.flatten().tolist()):
            sides = []
            for mask in (1 + step, 1 - step):
                weight.view(-1)[k] = value * mask
                sides.append(measure(network).item())
            weight.view(-1)[k] = value
            found += abs(sides[0] - sides[1]) / (2 * step)
    return found


def test_snip_is_the_gradient_of_masks(network, loss):
    torch.testing.assert_close(snip(network, loss).item(), by_masks(network.train(), loss), rtol=1e-6, atol=0)


def test_grasp_is_the_whole_hessian_times_the_gradient(network, loss):
    weights = weights_of(network)
    sizes = [w.numel() for w in weights.values()]
    flat = torch.cat([w.flatten() for w in weights.values()])

    def of_weights(values):
        parts = {n: p.view_as(w) for (n, w), p in zip(weights.items(), values.split(sizes), strict=True)}
        return loss(partial(functional_call, network, parts))

    network.train()
    wanted = -(flat * (hessian(of_weights, flat) @ jacobian(of_weights, flat))).sum()
    torch.testing.assert_close(grasp(network, loss), wanted, rtol=1e-9, atol=0)


def test_grasp_is_half_of_what_the_gradients_square_gains_without_weights(network, loss):
    """What the score's sentence says, and with it the sign."""

    def square(scale):
        scaled = copy.deepcopy(network).train()
        for weight in weights_of(scaled).values():
            weight.mul_(scale)
        counted = [scaled[0].weight, scaled[4].weight]
        return sum(g.square().sum() for g in torch.autograd.grad(loss(scaled), counted)).item()

    gain = (square(1 - 1e-5) - square(1 + 1e-5)) / 2e-5
    assert grasp(network, loss).item() == pytest.approx(gain / 2, rel=1e-6)


def test_grasp_of_a_quadratic_by_hand():
    """L = w' A w / 2: g = A w = (1, -2), H g = A A w = (0, -5), and -w * Hg = (0, -5) for w = (1, -1)."""
    network = nn.Linear(2, 1, bias=False)
    curvature = torch.tensor([[2.0, 1.0], [1.0, 3.0]])
    with torch.no_grad():
        network.weight.copy_(torch.tensor([[1.0, -1.0]]))
    assert grasp(network, lambda n: (n.weight @ curvature @ n.weight.T).sum() / 2).item() == -5


def test_synflow_is_the_gradient_of_masks_on_positive_weights(network):
    positive = copy.deepcopy(network)
    positive[1] = nn.Identity()
    with torch.no_grad():
        for value in positive.parameters():
            value.abs_()
    wanted = by_masks(positive, lambda n: n(torch.ones(1, *INPUT, dtype=torch.float64)).sum())
    assert synflow(network, INPUT).item() == pytest.approx(wanted, rel=1e-6)


def test_synflow_of_a_chain_is_its_length_times_the_product_of_its_layers():
    """Every layer multiplies what flows, so the saliencies of each add up to all of it."""
    torch.manual_seed(0)
    chain = nn.Sequential(*(nn.Linear(a, b, bias=False) for a, b in ((3, 4), (4, 5), (5, 2))))
    with torch.no_grad():
        for layer in chain:
            layer.weight.abs_()
    first, second, third = (layer.weight.detach().double() for layer in chain)
    flow = (third @ second @ first).sum()
    torch.testing.assert_close(synflow(chain, (3,)), 3 * flow, rtol=1e-12, atol=0)
    with torch.no_grad():
        chain[1].weight[:, ::2].neg_()
    torch.testing.assert_close(synflow(chain, (3,)), 3 * flow, rtol=1e-12, atol=0)  # signs do not matter


def test_zeros_stay_zero():
    chain = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 1, bias=False))
    with torch.no_grad():
        chain[0].weight.copy_(torch.tensor([[-3.0, 0.0], [0.0, 0.0]]))
        chain[1].weight.copy_(torch.tensor([[2.0, 7.0]]))
    assert synflow(chain, (2,)).item() == 2 * 6


def test_synflow_in_double_precision():
    """A hundred layers pass more than a float can hold."""
    chain = nn.Sequential(*(nn.Linear(1, 1, bias=False) for _ in range(100)))
    with torch.no_grad():
        for layer in chain:
            layer.weight.fill_(-10.0)
    assert synflow(chain, (1,)).item() == pytest.approx(100 * 1e100, rel=1e-12)


def test_biases_and_buffers_flow_as_absolute_values_but_do_not_count():
    class Shifted(nn.Linear):
        def __init__(self):
            super().__init__(1, 1)
            self.register_buffer("shift", torch.tensor(-4.0))
            self.register_buffer("steps", torch.tensor(-1))

        def forward(self, x):
            return (super().forward(x) + self.shift) ** 2

    layer = Shifted()
    with torch.no_grad():
        layer.weight.fill_(-2.0)
        layer.bias.fill_(-1.0)
    assert synflow(layer, (1,)).item() == 2 * 2 * (2 + 1 + 4)


def test_grad_norm_by_central_differences(network, loss):
    """Layer by layer, biases and batch norm left out."""
    network, wanted, step = copy.deepcopy(network).train(), 0.0, 1e-5
    for weight in weights_of(network).values():
        slopes = []
        for k, value in enumerate(weight.flatten().tolist()):
            sides = []
            for moved in (value + step, value - step):
                weight.view(-1)[k] = moved
                sides.append(loss(network).item())
            weight.view(-1)[k] = value
            slopes.append((sides[0] - sides[1]) / (2 * step))
        wanted += np.sqrt(np.square(slopes).sum())
    assert grad_norm(network, loss).item() == pytest.approx(wanted, rel=1e-6)


def test_jacob_cov_by_the_published_formula(network):
    """Every input's gradient by central differences; correlation and eigenvalues by numpy."""
    x = torch.randn(4, *INPUT, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    network.train()
    jacobian, step = np.zeros((4, 25)), 1e-5
    with torch.no_grad():
        for k in range(100):
            sides = []
            for sign in (1, -1):
                moved = x.clone()
                moved.view(-1)[k] += sign * step
                sides.append(network(moved).sum().item())
            jacobian.flat[k] = (sides[0] - sides[1]) / (2 * step)
    values, _ = np.linalg.eig(np.corrcoef(jacobian))
    wanted = -np.sum(np.log(values + 1e-5) + 1 / (values + 1e-5))
    before = x.clone()
    assert jacob_cov(network, x).item() == pytest.approx(wanted, rel=1e-5)
    assert torch.equal(x, before)
    assert not x.requires_grad


def test_jacob_cov_of_jacobians_by_hand():
    """Two inputs whose Jacobians are opposite, (1, -1) and (-1, 1): eigenvalues 2 and 0."""

    class Signed(nn.Module):
        def forward(self, x):
            return (x * x * torch.tensor([1.0, -1.0])).sum(1, keepdim=True) / 2

    wanted = -sum(np.log(v + 1e-5) + 1 / (v + 1e-5) for v in (2, 0))
    assert jacob_cov(Signed(), torch.tensor([[1.0, 1.0], [-1.0, -1.0]])).item() == pytest.approx(wanted, rel=1e-6)


def test_what_passes_nothing_on_tells_inputs_apart_worst(network):
    class Nothing(nn.Module):
        def forward(self, x):
            return x.flatten(1) * 0

    x = torch.randn(4, *INPUT, dtype=torch.float64)
    alike = -(np.log(4 + 1e-5) + 1 / (4 + 1e-5) + 3 * (np.log(1e-5) + 1e5))
    assert jacob_cov(Nothing(), x).item() == pytest.approx(alike, rel=1e-9)
    assert jacob_cov(network, x) > jacob_cov(Nothing(), x)


@pytest.mark.parametrize(
    "score",
    [
        snip,
        grasp,
        lambda network, _: synflow(network, INPUT),
        grad_norm,
        lambda network, _: jacob_cov(network, torch.linspace(0, 1, 150, dtype=torch.float64).sin().view(6, *INPUT)),
    ],
)
def test_the_network_is_left_as_it_was(network, loss, score):
    network.eval()
    network[4].requires_grad_(False)
    before = copy.deepcopy(network.state_dict())
    value = score(network, loss)
    assert value.dtype == torch.float64
    assert not value.requires_grad
    for name, tensor in network.state_dict().items():
        assert torch.equal(tensor, before[name]), name
    assert isinstance(network[1], nn.BatchNorm2d)
    assert not any(module.training for module in network.modules())
    assert all(p.grad is None for p in network.parameters())
    assert not network[4].weight.requires_grad
    network.requires_grad_(True).train()
    assert score(network, loss) == value  # mode and frozen weights make no difference


def test_a_shared_weight_counts_once(loss):
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.other = nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)
            self.other.weight = self.one.weight

        def forward(self, x):
            return self.other(self.one(x))

    network = Twice()
    with torch.no_grad():
        network.one.weight.fill_(3.0)
    assert synflow(network, (1,)).item() == 18  # R = w^2


def test_weights_that_no_output_reaches_add_nothing(network, loss):
    class Idle(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.idle = copy.deepcopy(network), nn.Linear(3, 3).double()

        def forward(self, x):
            return self.inner(x)

    for score in (snip, grasp, grad_norm, lambda network, _: synflow(network, INPUT)):
        assert score(Idle(), loss) == score(network, loss)


def test_attention_is_differentiated_twice():
    torch.manual_seed(0)
    network = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)
    x = torch.randn(2, 3, 4)
    assert torch.isfinite(grasp(network, lambda n: n(x).square().mean()))


def test_networks_without_weights_to_sum_over_are_refused(loss):
    with pytest.raises(PolyarchError, match="no convolution and no linear layer"):
        synflow(nn.Tanh(), (3,))
    with pytest.raises(PolyarchError, match="the layer 0 makes its weight of other parameters"):
        synflow(nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(3, 3))), (3,))


# ---------------------------------------------------------------------------------------------------------------------
# Batch norm.


class Nested(nn.Module):
    def __init__(self):
        super().__init__()
        shared = nn.BatchNorm1d(4)
        self.parts = nn.ModuleDict({"1<-0": nn.ModuleList([nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))])})
        self.first, self.again = shared, nn.Sequential(shared, nn.LayerNorm(4))
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.again(self.first(self.parts["1<-0"][0](x))))


def test_without_batch_norm_in_nested_modules():
    torch.manual_seed(0)
    network, x = Nested().eval(), torch.randn(5, 4)
    for norm in (network.first, network.parts["1<-0"][0][1]):
        norm.running_mean.fill_(3.0)
    before = copy.deepcopy(network.state_dict())
    bare = without_batch_norm(network)
    linear, layer_norm, head = network.parts["1<-0"][0][0], network.again[1], network.head
    assert torch.equal(bare(x), head(layer_norm(linear(x))))
    assert not any(isinstance(m, nn.BatchNorm1d) for m in bare.modules())
    assert [type(m) for m in bare.again] == [nn.Identity, nn.LayerNorm]
    with torch.no_grad():
        bare.head.weight.zero_()
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert sum(isinstance(m, nn.BatchNorm1d) for m in network.modules()) == 2


@pytest.mark.parametrize("norm", [nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm])
def test_every_kind_of_batch_norm_goes(norm):
    assert isinstance(without_batch_norm(norm(3)), nn.Identity)
    assert isinstance(without_batch_norm(nn.Sequential(norm(3)))[0], nn.Identity)


@pytest.mark.parametrize("norm", [nn.InstanceNorm2d(3), nn.GroupNorm(1, 3), nn.LayerNorm(3)])
def test_other_norms_stay(norm):
    assert type(without_batch_norm(nn.Sequential(norm))[0]) is type(norm)
