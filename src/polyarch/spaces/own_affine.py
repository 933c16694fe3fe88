"""Batch norm with a scale and a shift for every listed wiring, and statistics that all share.

Where examples of a batch have wirings of their own, s_e and t_e are those of example e's:

    y = s_e x^ + t_e,    x^ = (x - mean) / sqrt(var + epsilon)

Two sums over the pixels of every example are the gradients of s_e and t_e, and batch norm's own gradient is made from
the same sums, so that such a layer moves no more memory than plain batch norm does:

    dL/ds_e = sum g x^,    dL/dt_e = sum g
    dL/dx = (s_e g - mean of s_e g - x^ mean of s_e g x^) / sqrt(var + epsilon)
    n mean of s_e g = sum_e s_e dL/dt_e,    n mean of s_e g x^ = sum_e s_e dL/ds_e    (n examples times pixels)

On a CUDA device this is done by kernels; elsewhere torch's operations are put together.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from polyarch.spaces.layers import BatchNorm
from polyarch.training import world

Which = int | Tensor | None
"""The place of a wiring in the list: a number, or one-hot [repeats, batch or 1, listed]; None where nobody asks."""


class OwnAffine(nn.Module):
    """Batch norm of images, under the wiring of all or of each example."""

    def __init__(self, repeats: int, listed: int, channels: int) -> None:
        """Scales 1, shifts 0."""
        super().__init__()
        self.shared = BatchNorm(repeats, channels, affine=False)
        self.weight = nn.Parameter(torch.ones(repeats, listed, channels))
        self.bias = nn.Parameter(torch.zeros(repeats, listed, channels))

    def draw(self, generators: Sequence[torch.Generator]) -> None:
        """Back to scale 1, shift 0; nothing here is random."""
        with torch.no_grad():
            self.weight.fill_(1)
            self.bias.fill_(0)

    def forward(self, x: Tensor, which: Which) -> Tensor:
        """[batch, repeats * channels, h, w]."""
        with torch.autocast(x.device.type, enabled=False):  # what is small stays in single precision
            scale, shift = (self._of(values, which) for values in (self.weight, self.bias))
        if len(scale) == 1:
            return self.shared.under(x, scale[0], shift[0])
        # Kernels do not sum over ranks; double precision is for checking, and has none.
        if x.is_cuda and x.dtype != torch.float64 and world.size() == 1:
            return self._by_kernels(x, scale, shift)
        scale, shift = (each.to(x.dtype)[..., None, None] for each in (scale, shift))
        return torch.addcmul(shift, self.shared(x), scale)

    def _of(self, values: Tensor, which: Which) -> Tensor:
        """[batch or 1, repeats * channels]."""
        if isinstance(which, Tensor):
            return torch.einsum("rbs,rsc->brc", which.to(values.dtype), values).flatten(1)
        assert which is not None
        return values[:, which].reshape(1, -1)

    def _by_kernels(self, x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
        from polyarch.spaces import own_affine_cuda

        norm = self.shared
        if not norm.training and norm.statistics == "running":
            factor = (norm.running_var + norm.epsilon).rsqrt()
            return own_affine_cuda.normalised(x, scale, shift, norm.running_mean.view(-1), factor.view(-1), False)
        mean, factor = torch.batch_norm_stats(x.detach(), norm.epsilon)
        if norm.training:
            count = x.numel() // x.shape[1]
            var = (factor.square().reciprocal() - norm.epsilon) * (count / (count - 1))
            norm.running_mean.view(-1).lerp_(mean, norm.momentum)
            norm.running_var.view(-1).lerp_(var, norm.momentum)
        return own_affine_cuda.normalised(x, scale, shift, mean, factor, True)
