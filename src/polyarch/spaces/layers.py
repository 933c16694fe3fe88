"""Layers whose parameters carry a leading axis of repeats, for supernets.

Vectors travel features-first, [repeats, features, batch], and images with repeats folded into channels,
[batch, repeats * channels, height, width]: in both, one batch norm over (repeats * channels) and one batched
product or grouped convolution serve all repeats without a copy. Measured on a CPU, six repeats of a small
network cost about 2.5 times one (docs/concepts.md has the figures); through `torch.vmap` they cost more than five.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from typing_extensions import override

from polyarch import distributed

Statistics = Literal["running", "batch"]
"""What batch norm normalises by in evaluation mode."""


class ResetsParameters(ABC):
    """A layer that draws its first weights when its supernet does."""

    # No protocol: torch.nn's own layers have a method of this name, which takes no generators.

    @abstractmethod
    def reset_parameters(self, generators: Sequence[torch.Generator]) -> None:
        """Draws fresh weights, one generator per repeat."""


def average_around(images: Tensor, stride: int = 1) -> Tensor:
    """The mean over 3x3 pixels, of those that there are.

    Where images lie channels last, torch 2.11 has wrong gradients of padded pooling on a CUDA device
    (pytorch#188344): there they are pooled as images lie by default.
    """
    return F.avg_pool2d(images.contiguous() if images.is_cuda else images, 3, stride, 1, count_include_pad=False)


def _draw_uniform(parameter: Tensor, fan_in: int, generators: Sequence[torch.Generator]) -> None:
    """PyTorch's default for linear and convolution layers, weights and biases alike: U(-1/sqrt(fan), 1/sqrt(fan))."""
    bound = 1 / math.sqrt(fan_in)
    with torch.no_grad():
        for row, generator in zip(parameter, generators, strict=True):
            row.copy_(torch.empty(row.shape).uniform_(-bound, bound, generator=generator))


class Linear(nn.Module, ResetsParameters):
    """y = W x + b for every repeat: [repeats, inputs, batch] -> [repeats, outputs, batch]."""

    def __init__(self, repeats: int, inputs: int, outputs: int) -> None:
        """Makes room for the parameters; `reset_parameters` fills them."""
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(repeats, outputs, inputs))
        self.bias = nn.Parameter(torch.zeros(repeats, outputs))

    @override
    def reset_parameters(self, generators: Sequence[torch.Generator]) -> None:
        _draw_uniform(self.weight, self.weight.shape[-1], generators)
        _draw_uniform(self.bias, self.weight.shape[-1], generators)

    def forward(self, x: Tensor) -> Tensor:
        """[repeats, inputs, batch] -> [repeats, outputs, batch]."""
        return torch.baddbmm(self.bias.unsqueeze(-1), self.weight, x)


class Conv2d(nn.Module, ResetsParameters):
    """A convolution for every repeat: [batch, repeats * inputs, h, w] -> [batch, repeats * outputs, h', w']."""

    def __init__(
        self,
        repeats: int,
        inputs: int,
        outputs: int,
        kernel: int,
        *,
        stride: int = 1,
        padding: int = 0,
        dilation: int = 1,
        groups: int = 1,
        bias: bool = True,
    ) -> None:
        """Makes room for the parameters; `reset_parameters` fills them."""
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(repeats, outputs, inputs // groups, kernel, kernel))
        self.bias = nn.Parameter(torch.zeros(repeats, outputs)) if bias else None
        self.stride, self.padding, self.dilation, self.groups = stride, padding, dilation, groups

    @override
    def reset_parameters(self, generators: Sequence[torch.Generator]) -> None:
        fan_in = self.weight[0, 0].numel()
        _draw_uniform(self.weight, fan_in, generators)
        if self.bias is not None:
            _draw_uniform(self.bias, fan_in, generators)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, repeats * inputs, h, w] -> [batch, repeats * outputs, h', w']."""
        return F.conv2d(
            x,
            self.weight.flatten(0, 1),
            None if self.bias is None else self.bias.flatten(),
            self.stride,
            self.padding,
            self.dilation,
            self.groups * len(self.weight),
        )


class FoldedLinear(nn.Module, ResetsParameters):
    """A linear layer with repeats folded: [batch, repeats * inputs] -> [batch, repeats * outputs]."""

    def __init__(self, repeats: int, inputs: int, outputs: int) -> None:
        """Makes room for the parameters; `reset_parameters` fills them."""
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(repeats, outputs, inputs))
        self.bias = nn.Parameter(torch.zeros(repeats, outputs))

    @override
    def reset_parameters(self, generators: Sequence[torch.Generator]) -> None:
        _draw_uniform(self.weight, self.weight.shape[-1], generators)
        _draw_uniform(self.bias, self.weight.shape[-1], generators)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, repeats * inputs] -> [batch, repeats * outputs]."""
        x = x.unflatten(1, (len(self.weight), -1)).transpose(0, 1)
        return torch.baddbmm(self.bias.unsqueeze(1), x, self.weight.transpose(1, 2)).transpose(0, 1).flatten(1)


class Once(nn.Module):
    """A module without weights that others share, such as all edges that leave a node: an input is passed once.

    Whoever runs them has it `forget` afterwards.
    """

    def __init__(self, module: nn.Module) -> None:
        """Takes the module over."""
        super().__init__()
        self.module = module
        self._made: tuple[Tensor, Tensor] | None = None

    def forward(self, x: Tensor) -> Tensor:
        """What the module makes of x, made when x first comes."""
        if self._made is None or self._made[0] is not x:
            self._made = (x, self.module(x))
        return self._made[1]

    def forget(self) -> None:
        """Lets go of the last input and of what was made of it."""
        self._made = None


@contextmanager
def made_once(cell: nn.Module) -> Iterator[None]:
    """Around a pass of a cell: afterwards what its parts have made once is let go."""
    try:
        yield
    finally:
        for module in cell.modules():
            if isinstance(module, Once):
                module.forget()


class FeaturesFirst(nn.Module):
    """From folded inputs to vectors features-first: [batch, repeats * channels, ...] -> [repeats, features, batch]."""

    def __init__(self, repeats: int) -> None:
        """Keeps how many repeats are folded."""
        super().__init__()
        self.repeats = repeats

    def forward(self, x: Tensor) -> Tensor:
        """Flattens each input of each repeat."""
        return x.flatten(1).unflatten(1, (self.repeats, -1)).permute(1, 2, 0)


class Dropout(nn.Module):
    """Dropout of single features, [batch, repeats * channels, h, w]; every repeat by its own generator."""

    generators: Sequence[torch.Generator] = ()
    """One per repeat. Where there are none for the device, that device's own chance is taken."""
    thinned_by: Callable[[Sequence[int]], Tensor] | None = None
    """From a shape to numbers from 0 to 1. Where there is one, the layer drops in any mode, and for all examples the
    same features: a thinned network."""

    def __init__(self, rate: float) -> None:
        """Takes the probability of a feature to become 0."""
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        """What stays is as much larger; in evaluation all of it, as it is."""
        if self.thinned_by is not None:
            return self._dropped(x, self.thinned_by(x.shape[1:]))
        if not self.training or not self.generators or self.generators[0].device.type != x.device.type:
            return F.dropout(x, self.rate, self.training)
        shape = (len(x) * distributed.size(), x.shape[1] // len(self.generators), *x.shape[2:])
        drawn = [torch.rand(shape, generator=generator, device=x.device) for generator in self.generators]
        return self._dropped(x, distributed.share(torch.cat(drawn, 1), 0))

    def _dropped(self, x: Tensor, drawn: Tensor) -> Tensor:
        return x * (drawn >= self.rate) / (1 - self.rate)


class BatchNorm(nn.Module, ResetsParameters):
    """The one batch norm of the library: every repeat's own, alike on one rank and on many.

    Training uses batch statistics (of the global batch) and moves the running ones; evaluation uses the running ones,
    or, with `statistics="batch"`, those of the batch: running ones of many architectures are no one's (`recalibrate`
    makes them anew for a network taken out).
    With `options` > 0 vectors are of options, each normalised by its own batch statistics under one shared scale and
    shift; the running statistics are then kept per option, or, with `shared_statistics`, as one average that all
    options push in turn (what a plain batch norm called once per option does). `at` says of which option vectors are.
    """

    momentum = 0.1
    epsilon = 1e-5
    running_mean: Tensor
    running_var: Tensor
    at: int | None = None
    """With options, the one that runs; None is all of them, one after the other along the batch."""

    def __init__(
        self,
        repeats: int,
        channels: int,
        options: int = 0,
        shared_statistics: bool = False,
        *,
        affine: bool = True,
        statistics: Statistics = "running",
    ) -> None:
        """Scale 1, shift 0 (none without `affine`), running mean 0 and variance 1."""
        super().__init__()
        self.options = options
        self.shared_statistics = shared_statistics
        self.statistics = statistics
        self.weight = nn.Parameter(torch.ones(repeats, channels)) if affine else None
        self.bias = nn.Parameter(torch.zeros(repeats, channels)) if affine else None
        kept = (repeats, channels, options) if options and not shared_statistics else (repeats, channels)
        self.register_buffer("running_mean", torch.zeros(kept))
        self.register_buffer("running_var", torch.ones(kept))

    @override
    def reset_parameters(self, generators: Sequence[torch.Generator]) -> None:
        """Back to scale 1, shift 0; nothing here is random."""
        with torch.no_grad():
            for value, start in (
                (self.weight, 1),
                (self.bias, 0),
                (self.running_mean, 0),
                (self.running_var, 1),
            ):
                if value is not None:
                    value.fill_(start)

    def forward(self, x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
        """Normalises [repeats, channels, batch] or [batch, repeats * channels, h, w].

        With options, vectors alone: [repeats, channels, batch] of one, or [repeats, channels, options * batch] of all.
        Images may have their scale and shift from elsewhere: [repeats * channels], or [batch, repeats * channels] where
        they are every example's own.
        """
        if self.options:
            if self.at is not None:
                return self.option(x, self.at)
            return self.all_options(x.unflatten(-1, (self.options, -1))).flatten(2)
        if weight is not None and bias is not None and weight.dim() == 2:
            return self._each(x, weight, bias)
        weight, bias = (self.weight, self.bias) if weight is None else (weight, bias)
        if x.dim() == 4:
            return self._normalise(x, self.running_mean, self.running_var, weight, bias)
        return self._vectors(x, self.running_mean, self.running_var)

    def _vectors(self, x: Tensor, mean: Tensor, var: Tensor) -> Tensor:
        """[repeats, channels, batch], by these statistics."""
        return self._normalise(x.reshape(1, -1, x.shape[-1]), mean, var, self.weight, self.bias).view(x.shape)

    def option(self, x: Tensor, option: int) -> Tensor:
        """Normalises [repeats, channels, batch] as one given option does."""
        if self.shared_statistics:
            return self._vectors(x, self.running_mean, self.running_var)
        mean, var = self.running_mean[..., option].clone(), self.running_var[..., option].clone()
        out = self._vectors(x, mean, var)
        if self.training:
            self.running_mean[..., option] = mean
            self.running_var[..., option] = var
        return out

    def all_options(self, x: Tensor) -> Tensor:
        """Normalises [repeats, channels, options, batch], each option by itself, in one call."""
        assert self.weight is not None
        assert self.bias is not None
        weight = self.weight.unsqueeze(-1).expand(x.shape[:-1])
        bias = self.bias.unsqueeze(-1).expand(x.shape[:-1])
        if not self.shared_statistics:
            mean, var = self.running_mean, self.running_var
        elif self.training:
            mean, var = torch.zeros_like(x[..., 0]), torch.ones_like(x[..., 0])
        else:
            mean = self.running_mean.unsqueeze(-1).expand(x.shape[:-1]).contiguous()
            var = self.running_var.unsqueeze(-1).expand(x.shape[:-1]).contiguous()
        momentum = 1.0 if self.shared_statistics else self.momentum
        out = self._normalise(x.reshape(1, -1, x.shape[-1]), mean, var, weight, bias, momentum).view(x.shape)
        if self.shared_statistics and self.training:
            # Options 0, 1, ... push the one average in turn; in closed form the last ones outweigh the first.
            order = torch.arange(x.shape[2] - 1, -1, -1, device=x.device, dtype=x.dtype)
            push = self.momentum * (1 - self.momentum) ** order
            for kept, seen in ((self.running_mean, mean), (self.running_var, var)):
                kept.mul_((1 - self.momentum) ** x.shape[2]).add_((seen * push).sum(-1))
        return out

    def _each(self, x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
        """Under a scale and a shift of every example's own, [batch, repeats * channels]."""
        mean, var = self.running_mean.view(-1), self.running_var.view(-1)
        # Kernels do not sum over ranks; double precision is for checking, and has none.
        if not x.is_cuda or x.dtype == torch.float64 or distributed.size() > 1:
            x = self._normalise(x, mean, var, None, None)
            scale, shift = (each.to(x.dtype)[..., None, None] for each in (scale, shift))
            return torch.addcmul(shift, x, scale)
        from polyarch.spaces import normalising_triton

        if not self.training and self.statistics == "running":
            return normalising_triton.normalised(x, scale, shift, mean, (var + self.epsilon).rsqrt(), False)
        batch_mean, factor = torch.batch_norm_stats(x.detach(), self.epsilon)
        if self.training:
            count = x.numel() // x.shape[1]
            batch_var = factor.square().reciprocal() - self.epsilon
            mean.lerp_(batch_mean, self.momentum)
            var.lerp_(batch_var * (count / (count - 1)), self.momentum)
        return normalising_triton.normalised(x, scale, shift, batch_mean, factor, True)

    def _normalise(
        self,
        x: Tensor,
        mean: Tensor,
        var: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        momentum: float | None = None,
    ) -> Tensor:
        """[n, channels, ...]; the statistics' memory is changed in place when training."""
        momentum = self.momentum if momentum is None else momentum
        weight = None if weight is None else weight.reshape(-1)
        bias = None if bias is None else bias.reshape(-1)
        if self.training and distributed.size() > 1:
            return normalise_across_ranks(x, mean.view(-1), var.view(-1), weight, bias, momentum, self.epsilon)
        if not self.training and self.statistics == "batch":
            return F.batch_norm(x, None, None, weight, bias, True, momentum, self.epsilon)
        return F.batch_norm(x, mean.view(-1), var.view(-1), weight, bias, self.training, momentum, self.epsilon)


def normalise_across_ranks(
    x: Tensor,
    mean: Tensor | None,
    var: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
    momentum: float,
    epsilon: float,
) -> Tensor:
    """What `F.batch_norm` is in training, by the statistics of the global batch.

    Args:
        x: this rank's slice, [n, channels, ...].
        mean: running mean [channels], changed in place; None where none is kept.
        var: running variance, likewise.
        weight: scale [channels], or None.
        bias: shift [channels], or None.
        momentum: share of the new batch in the running statistics.
        epsilon: added to the variance.
    """
    axes = [d for d in range(x.dim()) if d != 1]
    shape = [1, -1] + [1] * (x.dim() - 2)
    own = x.numel() // x.shape[1]
    count = own * distributed.size()
    # One message forward and one backward: a batch's variance is that within slices and that of their means. Sums are
    # written out, since var_mean is slow on a CPU.
    own_mean = x.sum(axes) / own
    centred = x - own_mean.view(shape)
    own_var = centred.square().sum(axes) / own
    means, variances = distributed.gathered(torch.stack([own_mean, own_var])).unbind(1)
    batch_mean = means.mean(0)
    batch_var = (variances + (means - batch_mean).square()).mean(0)
    if mean is not None and var is not None:
        with torch.no_grad():
            mean.lerp_(batch_mean, momentum)
            var.lerp_(batch_var * count / (count - 1), momentum)
    scale = (batch_var + epsilon).rsqrt()
    if weight is not None:
        scale = weight * scale
    shift = (own_mean - batch_mean) * scale
    if bias is not None:
        shift = shift + bias
    return torch.addcmul(shift.view(shape), centred, scale.view(shape))
