"""Batch norm with a scale and a shift for every listed wiring."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from polyarch.spaces.wired import OwnAffine

LISTED, BATCH, CHANNELS = 3, 70, 70
"""More examples and channels than a program takes at once."""


def layer(repeats, dtype=torch.float64, channels=CHANNELS):
    torch.manual_seed(repeats)
    made = OwnAffine(repeats, LISTED, channels)
    for value in (made.weight, made.bias, made.shared.running_mean, made.shared.running_var):
        nn.init.uniform_(value, 0.5, 1.5)
    return made.to(dtype)


def images(repeats, dtype=torch.float64, channels=CHANNELS):
    return (torch.randn(BATCH, channels * repeats, 9, 8) * 2 + 1).to(dtype)


def places(repeats):
    """[repeats, batch] and one-hot."""
    chosen = torch.randint(LISTED, (repeats, BATCH), generator=torch.Generator().manual_seed(0))
    return chosen, F.one_hot(chosen, LISTED).double()


def results(made, x, which):
    """Outputs, gradients by everything, and the statistics that were moved."""
    x = x.detach().clone(memory_format=torch.preserve_format).requires_grad_()
    out = made(x, which)
    pull = torch.randn(out.shape, generator=torch.Generator().manual_seed(0)).to(out)
    found = torch.autograd.grad((out * pull).sum(), [x, made.weight, made.bias])
    return [out, *found, made.shared.running_mean, made.shared.running_var]


@pytest.mark.parametrize("training", [True, False])
def test_every_example_has_the_affine_of_its_wiring(training):
    made, x = layer(2).train(training), images(2)
    chosen, one_hot = places(2)
    out = made(x, one_hot)
    alike = [copy.deepcopy(made)(x, place) for place in range(LISTED)]  # statistics are those of all in any case
    for repeat in range(2):
        own = slice(repeat * CHANNELS, (repeat + 1) * CHANNELS)
        for example, place in enumerate(chosen[repeat].tolist()):
            assert torch.allclose(out[example, own], alike[place][example, own])


def test_one_wiring_for_all_is_plain_batch_norm():
    made, x = layer(1), images(1)
    plain = nn.BatchNorm2d(CHANNELS).double()
    plain.load_state_dict(
        {
            "weight": made.weight[0, 1],
            "bias": made.bias[0, 1],
            "running_mean": made.shared.running_mean[0],
            "running_var": made.shared.running_var[0],
            "num_batches_tracked": torch.tensor(0),
        }
    )
    one_hot = F.one_hot(torch.tensor([[1]]), LISTED).double()
    for which in (1, one_hot, one_hot.expand(-1, BATCH, -1)):
        ours, theirs = copy.deepcopy(made), copy.deepcopy(plain)
        assert torch.allclose(ours(x, which), theirs(x), atol=1e-12)
        assert torch.allclose(ours.shared.running_mean[0], theirs.running_mean)
        assert torch.allclose(ours.shared.running_var[0], theirs.running_var)


def test_the_gradient_of_batch_norm_is_made_from_the_sums_of_every_example():
    """The identity in the words of `normalising_triton`, by torch's own gradients."""
    made, x = layer(1), images(1).requires_grad_()
    _, one_hot = places(1)
    scale = (one_hot[0] @ made.weight[0]).detach().requires_grad_()
    shift = (one_hot[0] @ made.bias[0]).detach().requires_grad_()
    mean, factor = x.mean((0, 2, 3)), (x.var((0, 2, 3), correction=0) + 1e-5).rsqrt()
    normalised = (x - mean[None, :, None, None]) * factor[None, :, None, None]
    out = normalised * scale[..., None, None] + shift[..., None, None]
    pull = torch.randn(out.shape, dtype=out.dtype)
    by_x, by_scale, by_shift = torch.autograd.grad((out * pull).sum(), [x, scale, shift])
    count = x.numel() / CHANNELS
    mean_g = (scale * by_shift).sum(0)[None, :, None, None] / count
    mean_gx = (scale * by_scale).sum(0)[None, :, None, None] / count
    ours = (scale[..., None, None] * pull - mean_g - normalised * mean_gx) * factor[None, :, None, None]
    assert torch.allclose(ours, by_x, atol=1e-12)


@pytest.mark.parametrize("all_alike", [True, False])
def test_hooks_of_batch_norm_see_the_images(all_alike):
    """By which diagnostics and recalibration work."""
    made, x, seen = layer(1), images(1), []
    made.shared.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    made(x, 1 if all_alike else places(1)[1])
    assert torch.equal(seen[0], x)


@pytest.mark.cuda
@pytest.mark.parametrize("mode", ["training", "running", "batch"])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize(("dtype", "close"), [(torch.float32, 1e-5), (torch.bfloat16, 1e-2)])
@pytest.mark.parametrize(("repeats", "channels"), [(1, CHANNELS), (2, CHANNELS), (2, 1)])
def test_kernels_are_the_plain_operations(repeats, channels, dtype, close, layout, mode):
    """Against double precision on the same numbers."""
    made = layer(repeats, torch.float32, channels).train(mode == "training")
    x = images(repeats, dtype, channels)
    made.shared.statistics = "batch" if mode == "batch" else "running"
    _, one_hot = places(repeats)
    expected = results(copy.deepcopy(made).double(), x.double(), one_hot)
    given = x.cuda().to(memory_format=layout)
    found = results(made.cuda(), given, one_hot.cuda())
    assert found[0].stride() == given.stride()
    for one, other in zip(found, expected, strict=True):
        assert (one.cpu().double() - other).abs().max() <= close * other.abs().max()


@pytest.mark.cuda
def test_kernels_keep_what_is_no_number():
    made, x = layer(1, torch.float32).cuda(), images(1, torch.float32).cuda()
    one_hot = places(1)[1].cuda()
    one_hot[:, 2] = torch.nan
    assert made(x, one_hot)[2].isnan().all()
