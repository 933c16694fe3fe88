"""Gradients of training itself with respect to an architecture (SoTL thesis, sections 3.3.1 to 3.3.3).

The sum over training losses of T steps of plain SGD,

    SoTL(alpha) = sum_{t=0..T-1} L(w_t, alpha; batch_t),   w_{t+1} = w_t - rate dL/dw (w_t, alpha; batch_t),

depends on alpha directly and through the weights. `sotl_forward` and `sotl_reverse` give its exact gradient,
`sotl_first_order` the direct part alone. `unrolled_exact` is the gradient of DARTS's second order, the validation loss
after one step, `mixed_product` what stands for its second derivative, and `exact_mixed_product` that itself.

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
Step = Callable[[Tensors, Tensors], list[Tensor]]
"""(weights, gradients) -> weights after a step."""


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
        batches: one per step.
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


def sotl_reverse(
    loss: BatchLoss,
    weights: Tensors,
    alpha: Tensors,
    batches: Iterable[Any],
    rate: Rate = 0.0,
    *,
    step: Step | None = None,
) -> Rollout:
    """The exact gradient by differentiating through all steps (Eq. 3.18 to 3.20).

    Memory: the graph of every step. Time: some four backward passes per step, whatever the size of alpha. For many
    numbers and few steps. Arguments as in `sotl_forward`; a `step` other than plain SGD may be given instead of the
    rate: weights and gradients to weights, differentiably.
    """
    weights, alpha = _leaves(weights), _leaves(alpha)
    total = _zero(weights)
    with torch.enable_grad():
        for batch in batches:
            value = loss(weights, alpha, batch)
            gradients = torch.autograd.grad(value, weights, create_graph=True, materialize_grads=True)
            total = total + value
            weights = step(weights, gradients) if step else _stepped(weights, gradients, rate, alpha)
    gradient = torch.autograd.grad(total, alpha, materialize_grads=True) if total.requires_grad else _zeros(alpha)
    return Rollout(list(gradient), _copies(weights), total.detach())


def sotl_first_order(loss: BatchLoss, weights: Tensors, alpha: Tensors, batches: Iterable[Any], rate: Rate) -> Rollout:
    """The sum of direct gradients dL_t/dalpha on the way, weights taken as given (Eq. 3.21, 3.22).

    One backward pass per step gives both gradients. Arguments as in `sotl_forward`.
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


def mixed_product(belief_gradients: Callable[[], list[Tensor]], weights: Tensors, direction: Tensors) -> list[Tensor]:
    """d2 L / d belief d w times a direction in w (Eq. 3.12), by central difference; the weights are left moved.

    Every tensor has a leading axis of repeats, which do not touch each other: the step is 0.01 over the direction's
    norm, each repeat's own. It needs no second derivatives, and the memory of a plain step.
    """
    squares = torch.stack([d.flatten(1).square().sum(1) if d.dim() > 1 else d.square() for d in direction])
    # Where a validation batch is fitted perfectly the direction is 0 or nearly, and so is the product.
    size = 0.01 / squares.sum(0).sqrt().clamp_min(1e-12)

    def shifted(by: float) -> list[Tensor]:
        with torch.no_grad():
            for weight, d in zip(weights, direction, strict=True):
                weight.add_(by * _along(size, d) * d)
        return belief_gradients()

    above, below = shifted(1.0), shifted(-2.0)
    return [(a - b) / (2 * _along(size, a)) for a, b in zip(above, below, strict=True)]


def exact_mixed_product(loss: Tensor, belief: Tensors, weights: Tensors, direction: Tensors) -> list[Tensor]:
    """The same by differentiating twice, of losses [repeats]; it keeps the graph of the gradient in memory."""
    slopes = torch.autograd.grad(loss.sum(), weights, create_graph=True, materialize_grads=True)
    along = _dot(slopes, direction)
    return list(torch.autograd.grad(along, belief, materialize_grads=True)) if along.requires_grad else _zeros(belief)


def _along(values: Tensor, like: Tensor) -> Tensor:
    """[repeats] so that it multiplies [repeats, ...]."""
    return values.view(-1, *[1] * (like.dim() - 1))


# ---------------------------------------------------------------------------------------------------------------------
# Small things.


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
