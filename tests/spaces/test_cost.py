"""What a network multiplies and adds, against counts by hand."""

import pytest
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils.flop_counter import FlopCounterMode

import polyarch as pa
from polyarch import PolyarchError
from polyarch.data.task import TaskShape
from polyarch.spaces import Cost, ModuleSpace, NasBench201
from polyarch.spaces.cost import cost_in_memory, cost_of

STEPS, WIDTH = 5, 4
SEQUENCE = TaskShape((STEPS, WIDTH), 3)
MATRIX = TaskShape((2, STEPS, WIDTH), 3)
IMAGE = TaskShape((4, 6, 5), 3)


class First(nn.Module):
    """The first of several answers of a layer."""

    def __init__(self, layer, places=1):
        super().__init__()
        self.layer, self.places = layer, places

    def forward(self, x):
        return self.layer(*[x] * self.places)[0]


class By(nn.Module):
    """A function, as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def packed(x):
    cell = nn.GRU(WIDTH, 3, batch_first=True).to(x.device)
    return cell(pack_padded_sequence(x, torch.tensor([3]), batch_first=True))[0].data


def heads(x):
    x = x.view(1, STEPS, 2, WIDTH // 2).transpose(1, 2)
    return scaled_dot_product_attention(x, x, x, is_causal=True)


def encoder():
    return nn.TransformerEncoderLayer(WIDTH, 2, 8, batch_first=True)


def gates(count, width, inputs=WIDTH):
    """Of one step of a recurrent layer: a weight for every input and every state, and two biases."""
    return count * width * (inputs + width + 2)


SCORES = 2 * STEPS * STEPS * WIDTH
"""Queries by keys, and scores by values; in how many heads does not matter."""
PROJECTIONS = STEPS * 4 * WIDTH * (WIDTH + 1)
"""Of queries, keys, values and outputs."""
NETWORKS = {
    "linear": (lambda: nn.Linear(WIDTH, 3), MATRIX, 2 * STEPS * 3 * (WIDTH + 1)),
    "no bias": (lambda: nn.Linear(WIDTH, 3, bias=False), MATRIX, 2 * STEPS * 3 * WIDTH),
    "grouped": (lambda: nn.Conv2d(4, 6, 3, groups=2, padding="same"), IMAGE, 30 * 6 * (2 * 9 + 1)),
    "strided": (lambda: nn.Conv2d(4, 6, 3, stride=2, bias=False), IMAGE, 2 * 2 * 6 * 4 * 9),
    "transposed": (lambda: nn.ConvTranspose1d(STEPS, 2, 3, stride=2), SEQUENCE, STEPS * 2 * 3 * WIDTH + 2 * 9),
    "bilinear": (lambda: First(nn.Bilinear(WIDTH, WIDTH, 3), 2), SEQUENCE, STEPS * 3 * (WIDTH * WIDTH + 1)),
    "gru": (lambda: First(nn.GRU(WIDTH, 3, batch_first=True)), SEQUENCE, STEPS * gates(3, 3)),
    "gru, time first": (lambda: First(nn.GRU(WIDTH, 3)), SEQUENCE, STEPS * gates(3, 3)),
    "gru of three steps": (lambda: By(packed), SEQUENCE, 3 * gates(3, 3)),
    "gru cell": (lambda: nn.GRUCell(WIDTH, 3), TaskShape((WIDTH,), 3), gates(3, 3)),
    "lstm": (lambda: First(nn.LSTM(WIDTH, 3)), SEQUENCE, STEPS * gates(4, 3)),
    "lstm, two layers": (
        lambda: First(nn.LSTM(WIDTH, 3, 2, bidirectional=True)),
        SEQUENCE,
        STEPS * 2 * (gates(4, 3) + gates(4, 3, 6)),
    ),
    "lstm, no bias": (lambda: First(nn.LSTM(WIDTH, 3, bias=False)), SEQUENCE, STEPS * 4 * 3 * (WIDTH + 3)),
    "rnn": (lambda: First(nn.RNN(WIDTH, 3, nonlinearity="relu")), SEQUENCE, STEPS * gates(1, 3)),
    "attention": (lambda: By(heads), SEQUENCE, SCORES),
    "attention, projected": (
        lambda: First(nn.MultiheadAttention(WIDTH, 2, batch_first=True), 3),
        SEQUENCE,
        PROJECTIONS + SCORES,
    ),
    "encoder": (encoder, SEQUENCE, PROJECTIONS + SCORES + STEPS * (8 * (WIDTH + 1) + WIDTH * (8 + 1))),
    "matrix": (lambda: By(lambda x: x @ x.mT), SEQUENCE, STEPS * STEPS * WIDTH),
    "vector": (lambda: By(lambda x: x @ x[0, 0]), SEQUENCE, STEPS * WIDTH),
    "einsum": (lambda: By(lambda x: torch.einsum("bti,bsi->bts", x, x)), SEQUENCE, STEPS * STEPS * WIDTH),
    "embedding": (lambda: nn.Embedding(9, WIDTH), TaskShape((STEPS,), 3, tokens=9), 0),
}


@pytest.mark.parametrize("counted", [cost_of, cost_in_memory])
@pytest.mark.parametrize("name", NETWORKS)
def test_by_hand(name, counted):
    make, shape, macs = NETWORKS[name]
    assert counted(make, shape) == Cost(sum(p.numel() for p in make().parameters()), macs)


@pytest.mark.parametrize("name", ["no bias", "strided", "lstm, no bias", "attention", "matrix"])
def test_torchs_flop_counter_agrees_where_there_is_no_bias(name):
    make, shape, macs = NETWORKS[name]
    with FlopCounterMode(display=False) as counter, torch.device("meta"):
        make().eval()(shape.trial(1))
    assert counter.get_total_flops() == 2 * macs


def test_what_is_not_counted_is_named_as_one_calls_it():
    parts = [nn.Conv1d(STEPS, 4, 3), nn.BatchNorm1d(4), nn.ReLU(inplace=True), nn.Dropout(), nn.AdaptiveAvgPool1d(1)]
    for counted in (cost_of, cost_in_memory):
        found = counted(lambda: nn.Sequential(*parts, nn.Flatten(), nn.Linear(4, 3)), SEQUENCE)
        assert found.uncounted == ("adaptive_avg_pool1d", "batch_norm", "relu")
    assert cost_of(lambda: nn.Embedding(9, 4), NETWORKS["embedding"][1]).uncounted == ("embedding",)
    assert cost_of(lambda: By(torch.fft.rfft), SEQUENCE).uncounted == ("fft_rfft",)
    assert cost_of(encoder, SEQUENCE).uncounted == ("add", "layer_norm", "relu")


class Reads(nn.Module):
    """Reads values back, so that it does not run on the meta device."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(WIDTH, 3)
        self.scale = torch.ones(1).item()

    def forward(self, x):
        return self.layer(x) if x.abs().sum() == 0 else x


class Slope(nn.Module):
    """Takes a gradient on its way, which inference mode does not allow."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(WIDTH, 3)

    def forward(self, x):
        with torch.enable_grad():
            x = x.clone().requires_grad_()
            return torch.autograd.grad(self.layer(x).pow(2).sum(), x)[0]


def test_networks_that_do_not_run_without_values_or_without_gradients():
    chance = torch.get_rng_state()
    assert cost_of(Reads, SEQUENCE) == Cost(15, 75)
    slope = 3 * WIDTH * STEPS  # once more, from outputs back to inputs
    assert cost_of(Slope, SEQUENCE) == cost_in_memory(Slope, SEQUENCE) == Cost(15, 75 + slope)
    assert torch.equal(chance, torch.get_rng_state())


def test_a_network_that_does_not_run_at_all():
    with pytest.raises(PolyarchError, match=r"what Linear costs is not known, since .* shape \(5, 4\)") as caught:
        cost_of(lambda: nn.Linear(7, 3), SEQUENCE)
    assert "\n" not in str(caught.value)


def test_counting_leaves_no_trace():
    network, fused = encoder().train(), torch.backends.mha.get_fastpath_enabled()
    cost_in_memory(lambda: network, SEQUENCE)
    assert network.training
    assert torch.backends.mha.get_fastpath_enabled() == fused
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in network.modules())
    network(torch.zeros(2, STEPS, WIDTH)).sum().backward()


def texts():
    """Options that mix positions by weights, by state, and by attention."""
    attention = First(nn.MultiheadAttention(WIDTH, 2, batch_first=True), 3)
    options = {"gru": First(nn.GRU(WIDTH, WIDTH, batch_first=True)), "attention": attention, "skip": nn.Identity()}
    return nn.Sequential(nn.Embedding(9, WIDTH), pa.Choice("mix", options), By(heads), nn.Flatten(), nn.Linear(20, 3))


def test_costs_of_options_add_up():
    space, shape = ModuleSpace(texts), TaskShape((STEPS,), 3, tokens=9)
    table = space.cost_table(shape)
    assert table.base == Cost(9 * WIDTH + 63, SCORES + 63)
    assert [c.macs for c in table.options["mix"]] == [STEPS * gates(3, WIDTH), PROJECTIONS + SCORES, 0]
    for choice, option in enumerate(table.options["mix"]):
        cost = space.cost(space.architecture([choice]), shape)
        assert cost == Cost(table.base.parameters + option.parameters, table.base.macs + option.macs)


def test_a_cell_of_a_benchmark_costs_what_its_layers_say():
    """As it was counted before operations were: outputs times the weights that each one needs, and a bias."""
    space, shape, found = NasBench201(channels=4, cells=1), TaskShape((3, 8, 8), 10), 0
    architecture = space.architecture([3, 2, 4, 1, 3, 2])

    def count(layer, _inputs, output):
        nonlocal found
        found += output[0].numel() * (layer.weight[0].numel() + (layer.bias is not None))

    network = space.evaluated().build(architecture, shape).eval()
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            layer.register_forward_hook(count)
    network(shape.trial(1))
    assert space.cost(architecture, shape).macs == found
