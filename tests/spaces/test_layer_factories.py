"""The two factories build the same layers: repeat r of a batched one is the plain one with its weights."""

import math

import pytest
import torch
from scipy import stats
from torch import nn

from polyarch.spaces.layer_factories import BatchedLayers, PlainLayers

REPEATS = 3
CONVOLUTIONS = {
    "plain": {"inputs": 2, "outputs": 4, "kernel": 3},
    "strided": {"inputs": 2, "outputs": 3, "kernel": 3, "stride": 2, "padding": 1},
    "dilated": {"inputs": 2, "outputs": 4, "kernel": 3, "padding": 2, "dilation": 2},
    "grouped": {"inputs": 4, "outputs": 6, "kernel": 3, "padding": 1, "groups": 2},
    "depthwise": {"inputs": 4, "outputs": 4, "kernel": 5, "padding": 2, "groups": 4},
    "pointwise with bias": {"inputs": 4, "outputs": 2, "kernel": 1, "bias": True},
}


def generators(*seeds):
    return [torch.Generator().manual_seed(seed) for seed in seeds]


def drawn(layer, *seeds):
    layer.reset_parameters(generators(*(seeds or range(REPEATS))))
    return layer.double()


def images(channels, batch=5):
    generator = torch.Generator().manual_seed(channels)
    return torch.randn(REPEATS, batch, channels, 8, 7, generator=generator, dtype=torch.float64) * 2 + 1


def fold(x):
    """[repeats, batch, channels, ...] -> [batch, repeats * channels, ...]."""
    return x.transpose(0, 1).flatten(1, 2)


def unfold(x):
    return x.unflatten(1, (REPEATS, -1)).transpose(0, 1)


def plain_twin(plain, batched, repeat):
    """The plain layer with one repeat's weights, under the same names."""
    state = {name: value[repeat] for name, value in batched.state_dict().items()}
    assert set(dict(plain.named_parameters())) == set(dict(batched.named_parameters()))
    plain.double().load_state_dict(state, strict=False)
    return plain


def check_same(make_plain, batched, x):
    """Outputs and gradients of every repeat."""
    x = x.requires_grad_()
    output = unfold(batched(fold(x)))
    weight = torch.arange(output.numel(), dtype=torch.float64).sin().view_as(output)
    found = torch.autograd.grad((output * weight).sum(), [x, *batched.parameters()])
    for repeat in range(REPEATS):
        plain = plain_twin(make_plain(), batched, repeat)
        wanted = plain(x[repeat])
        assert torch.allclose(output[repeat], wanted, atol=1e-12)
        own = torch.autograd.grad((wanted * weight[repeat]).sum(), [x, *plain.parameters()])
        assert torch.allclose(found[0][repeat], own[0][repeat], atol=1e-10)
        for ours, theirs in zip(found[1:], own[1:], strict=True):
            assert torch.allclose(ours[repeat], theirs, atol=1e-10)


@pytest.mark.parametrize("settings", CONVOLUTIONS.values(), ids=CONVOLUTIONS)
def test_convolutions(settings):
    batched = drawn(BatchedLayers(REPEATS).conv(**settings))
    check_same(lambda: PlainLayers().conv(**settings), batched, images(settings["inputs"]))


def test_linear():
    batched = drawn(BatchedLayers(REPEATS).linear(6, 4))
    check_same(lambda: PlainLayers().linear(6, 4), batched, images(6)[..., 0, 0])


@pytest.mark.parametrize("affine", [True, False])
def test_norm(affine):
    batched = drawn(BatchedLayers(REPEATS).norm(3, affine=affine))
    assert len(list(batched.parameters())) == (2 if affine else 0)
    for parameter in batched.parameters():
        nn.init.normal_(parameter.data, 1)
    plains = [plain_twin(PlainLayers().norm(3, affine=affine), batched, repeat) for repeat in range(REPEATS)]
    for seed in range(3):  # training passes move the running statistics alike
        x = images(3, batch=4 + seed)
        output = unfold(batched(fold(x)))
        for repeat, plain in enumerate(plains):
            assert torch.allclose(output[repeat], plain(x[repeat]), atol=1e-12)
    for repeat, plain in enumerate(plains):
        assert torch.allclose(batched.running_mean[repeat], plain.running_mean, atol=1e-12)
        assert torch.allclose(batched.running_var[repeat], plain.running_var, atol=1e-12)
    batched.eval()
    if affine:
        check_same(lambda: PlainLayers().norm(3).eval(), batched, images(3))
    batched.reset_parameters(generators(*range(REPEATS)))
    assert torch.equal(batched.running_mean, torch.zeros(REPEATS, 3, dtype=torch.float64))
    assert torch.equal(batched.running_var, torch.ones(REPEATS, 3, dtype=torch.float64))


def test_norm_by_the_statistics_of_the_batch():
    batched = drawn(BatchedLayers(REPEATS).norm(3, statistics="batch"))
    x = fold(images(3))
    training = batched(x)
    kept = batched.running_mean.clone()
    batched.eval()
    assert torch.allclose(batched(x), training)
    assert torch.equal(batched.running_mean, kept)
    # What a user is handed keeps running statistics in any case: one input must have an answer.
    plain = PlainLayers().norm(3, statistics="batch").eval()
    assert plain(torch.ones(1, 3, 2, 2)).isfinite().all()
    assert plain.track_running_stats


def test_channels_side_by_side():
    parts = [images(2), images(3), images(1)]
    together = unfold(BatchedLayers(REPEATS).cat([fold(part) for part in parts]))
    for repeat in range(REPEATS):
        assert torch.equal(together[repeat], PlainLayers().cat([part[repeat] for part in parts]))


@pytest.mark.parametrize("layer", ["conv", "linear"])
def test_first_weights_have_the_law_of_torchs_own(layer):
    settings = {"conv": (8, 16, 3), "linear": (72, 64)}[layer]
    given = {"bias": True} if layer == "conv" else {}
    batched = getattr(BatchedLayers(2), layer)(*settings, **given)
    batched.reset_parameters(generators(0, 1))
    torch.manual_seed(0)
    plain = getattr(PlainLayers(), layer)(*settings, **given)
    bound = 1 / math.sqrt(72)
    for name, parameter in plain.named_parameters():
        assert parameter.abs().max() <= bound
        for row in batched.get_parameter(name):
            values = row.detach().flatten().numpy()
            assert stats.kstest(values, stats.uniform(-bound, 2 * bound).cdf).pvalue > 1e-3
            assert stats.ks_2samp(values, parameter.detach().flatten().numpy()).pvalue > 1e-3


@pytest.mark.parametrize(
    "make", [lambda factory: factory.conv(2, 3, 3, bias=True), lambda factory: factory.linear(5, 4)]
)
def test_a_repeat_starts_like_its_single_run(make):
    together = drawn(make(BatchedLayers(REPEATS)), 4, 5, 6)
    for repeat, seed in enumerate((4, 5, 6)):
        alone = drawn(make(BatchedLayers(1)), seed)
        for name, value in together.named_parameters():
            assert torch.equal(value[repeat], alone.get_parameter(name)[0])
    weight = next(together.parameters())
    assert not torch.equal(weight[0], weight[1])
