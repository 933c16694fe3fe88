"""Gradients of training itself with respect to an architecture (SoTL thesis, sections 3.3.1 to 3.3.3).

The sum over training losses of T steps of plain SGD,

    SoTL(alpha) = sum_{t=0..T-1} L(w_t, alpha; batch_t),   w_{t+1} = w_t - rate dL/dw (w_t, alpha; batch_t),

depends on alpha directly and through the weights. `sotl_forward` and `sotl_reverse` give its exact gradient,
`sotl_first_order` the direct part alone. `unrolled_exact` and `unrolled_finite_difference` are the gradients of DARTS's
second order: the validation loss after one step.

Everything here is a function of plain tensors: weights and alpha are lists of tensors, which are neither changed nor
need gradients, and a loss computes from them (a module by `torch.func.functional_call`). Weight decay belongs inside
the loss. Sums are over steps, not means, as in the thesis.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

Tensors = Sequence[Tensor]
Loss = Callable[[Tensors, Tensors], Tensor]
"""(weights, alpha) -> scalar."""
BatchLoss = Callable[[Tensors, Tensors, Any], Tensor]
"""(weights, alpha, batch) -> scalar."""
Rate = float | Tensor | Callable[[Tensors], Tensor]
"""Of weights: a number, or a function of alpha, for which the rate itself is learnt."""


class Rollout(NamedTuple):
    """What T steps of training give."""

    gradient: list[Tensor]
    """With respect to alpha, shaped like it."""
    weights: list[Tensor]
    """After the last step."""
    total: Tensor
    """SoTL, a scalar."""


def sotl_forward(loss: BatchLoss, weights: Tensors, alpha: Tensors, batches: Iterable[Any], rate: Rate) -> Rollout:
    """The exact gradient by the forward recursion, which carries dw/dalpha along (Eq. 3.16).

        dw_{t+1}/dalpha = (I - rate d2L/dw2) dw_t/dalpha - rate d2L/dw dalpha

    Memory: a copy of the weights for every number in alpha, however many steps. Time: a backward pass through the
    gradient for every number in alpha and step. For few numbers and many steps.

    Args:
        loss: of one batch; can be differentiated twice.
        weights: where training starts.
        alpha: the architecture.
        batches: one a step.
        rate: of the weights.
    """
    weights, alpha = _leaves(weights), _leaves(alpha)
    columns = [_zeros(weights) for _ in range(sum(part.numel() for part in alpha))]
    total, gradient = _zero(weights), torch.zeros_like(_flat(alpha))
    for batch in batches:
        with torch.enable_grad():
            value = loss(weights, alpha, batch)
            found = torch.autograd.grad(value, [*weights, *alpha], create_graph=True, materialize_grads=True)
            gradients, direct = found[: len(weights)], _flat(found[len(weights) :])
            # One number in alpha: how this loss changes with it (Eq. 3.15), directly and through the weights.
            slopes = [_dot(gradients, column) + own for column, own in zip(columns, direct, strict=True)]
        columns = _moved(columns, slopes, weights, gradients, alpha, rate)
        weights = _leaves(_stepped(weights, gradients, rate, alpha))
        total, gradient = total + value.detach(), gradient + torch.stack(slopes).detach()
    parts = gradient.split([part.numel() for part in alpha])
    return Rollout([part.view_as(like) for part, like in zip(parts, alpha, strict=True)], _copies(weights), total)


def _moved(
    columns: list[list[Tensor]], slopes: Tensors, weights: Tensors, gradients: Tensors, alpha: Tensors, rate: Rate
) -> list[list[Tensor]]:
    """dw/dalpha after a step, column by column. Both second derivatives are those of the slope by the weights."""
    size, growth = _rate_and_growth(rate, alpha)
    found = []
    for column, slope, own in zip(columns, slopes, growth, strict=True):
        seconds = (
            torch.autograd.grad(slope, weights, retain_graph=True, materialize_grads=True)
            if slope.requires_grad
            else _zeros(weights)
        )
        found.append(
            [
                old - size * second - own * gradient.detach()
                for old, second, gradient in zip(column, seconds, gradients, strict=True)
            ]
        )
    return found


def _rate_and_growth(rate: Rate, alpha: Tensors) -> tuple[float | Tensor, Tensor]:
    """The rate, and its derivative by every number in alpha, [numbers]."""
    if not callable(rate):
        return rate, torch.zeros_like(_flat(alpha))
    with torch.enable_grad():
        size = rate(alpha)
    return size.detach(), _flat(torch.autograd.grad(size, alpha, materialize_grads=True))


def sotl_reverse(loss: BatchLoss, weights: Tensors, alpha: Tensors, batches: Iterable[Any], rate: Rate) -> Rollout:
    """The exact gradient by differentiating through all steps (Eq. 3.18 to 3.20).

    Memory: the graph of every step. Time: some four backward passes a step, whatever the size of alpha. For many
    numbers and few steps. Arguments as in `sotl_forward`.
    """
    weights, alpha = _leaves(weights), _leaves(alpha)
    total = _zero(weights)
    with torch.enable_grad():
        for batch in batches:
            value = loss(weights, alpha, batch)
            gradients = torch.autograd.grad(value, weights, create_graph=True, materialize_grads=True)
            total, weights = total + value, _stepped(weights, gradients, rate, alpha)
    gradient = torch.autograd.grad(total, alpha, materialize_grads=True) if total.requires_grad else _zeros(alpha)
    return Rollout(list(gradient), _copies(weights), total.detach())


def sotl_first_order(loss: BatchLoss, weights: Tensors, alpha: Tensors, batches: Iterable[Any], rate: Rate) -> Rollout:
    """The sum of direct gradients dL_t/dalpha on the way, weights taken as given (Eq. 3.21, 3.22).

    One backward pass a step gives both gradients. Arguments as in `sotl_forward`.
    """
    weights, alpha = _leaves(weights), _leaves(alpha)
    total, gradient = _zero(weights), _zeros(alpha)
    for batch in batches:
        with torch.enable_grad():
            value = loss(weights, alpha, batch)
        found = torch.autograd.grad(value, [*weights, *alpha], materialize_grads=True)
        gradient = [old + new for old, new in zip(gradient, found[len(weights) :], strict=True)]
        weights = _leaves(_stepped(weights, found[: len(weights)], rate, alpha))
        total = total + value.detach()
    return Rollout(gradient, _copies(weights), total)


def unrolled_exact(train_loss: Loss, valid_loss: Loss, weights: Tensors, alpha: Tensors, rate: Rate) -> list[Tensor]:
    """The gradient of the validation loss after one training step, by differentiating through it (Eq. 3.10, 3.11).

    Args:
        train_loss: of the training batch.
        valid_loss: of the validation batch.
        weights: before the step.
        alpha: the architecture.
        rate: of the weights.

    Returns:
        With respect to alpha, shaped like it.
    """
    weights, alpha = _leaves(weights), _leaves(alpha)
    with torch.enable_grad():
        gradients = torch.autograd.grad(train_loss(weights, alpha), weights, create_graph=True, materialize_grads=True)
        value = valid_loss(_stepped(weights, gradients, rate, alpha), alpha)
    return list(torch.autograd.grad(value, alpha, materialize_grads=True))


def unrolled_finite_difference(
    train_loss: Loss, valid_loss: Loss, weights: Tensors, alpha: Tensors, rate: float | Tensor
) -> list[Tensor]:
    """`unrolled_exact` with the mixed second derivative by a central difference (Eq. 3.12).

    The difference is taken along the validation gradient, 0.01 to either side in the Euclidean norm of the weights. No
    second derivatives, so it works where a loss has none, and needs the memory of a plain step. Where the validation
    gradient is zero, so is the term.
    """
    weights, alpha = _leaves(weights), _leaves(alpha)
    stepped = _leaves(_stepped(weights, _gradients(train_loss, weights, alpha, of=weights), rate, alpha))
    both = _gradients(valid_loss, stepped, alpha, of=[*stepped, *alpha])
    along, direct = both[: len(weights)], both[len(weights) :]
    norm = _dot(along, along).sqrt()
    distance = 0.01 / norm.clamp(min=torch.finfo(norm.dtype).tiny ** 0.5)
    ends = []
    for sign in (1, -1):
        moved = [weight.detach() + sign * distance * part for weight, part in zip(weights, along, strict=True)]
        ends.append(_gradients(train_loss, moved, alpha, of=alpha))
    return [first - rate * (above - below) / (2 * distance) for first, above, below in zip(direct, *ends, strict=True)]


# ---------------------------------------------------------------------------------------------------------------------
# Small things.


def _gradients(loss: Loss, weights: Tensors, alpha: Tensors, of: Tensors) -> list[Tensor]:
    with torch.enable_grad():
        value = loss(weights, alpha)
    return list(torch.autograd.grad(value, of, materialize_grads=True))


def _stepped(weights: Tensors, gradients: Tensors, rate: Rate, alpha: Tensors) -> list[Tensor]:
    """Plain SGD."""
    size = rate(alpha) if callable(rate) else rate
    return [weight - size * gradient for weight, gradient in zip(weights, gradients, strict=True)]


def _copies(tensors: Tensors) -> list[Tensor]:
    return [tensor.detach().clone() for tensor in tensors]


def _leaves(tensors: Tensors) -> list[Tensor]:
    return [copy.requires_grad_() for copy in _copies(tensors)]


def _zeros(tensors: Tensors) -> list[Tensor]:
    return [torch.zeros_like(tensor) for tensor in tensors]


def _zero(weights: Tensors) -> Tensor:
    return weights[0].new_zeros(())


def _flat(tensors: Tensors) -> Tensor:
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


def _dot(some: Tensors, others: Tensors) -> Tensor:
    return torch.stack([(one * other).sum() for one, other in zip(some, others, strict=True)]).sum()
