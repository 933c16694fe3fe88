"""What every likelihood must satisfy."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from polyarch.data.checks import Array
from polyarch.data.likelihood import Likelihood, likelihood_from

MEMBERS, STEP = 3, 1e-4
"""Networks of a mixture that is looked at; how far outputs are moved where a slope is measured."""


def check_likelihood(likelihood: Likelihood, targets: Array) -> None:
    """Checks that a likelihood is what searches, predictions and results take it for.

    Args:
        likelihood: as it is before it has seen targets, or after.
        targets: some of its own, [n] or [n, k], at least four; of classes their numbers.
    """
    checked = likelihood.checked(np.asarray(targets), "targets")
    assert len(checked) == len(targets) >= 4, "give four targets at least; `checked` must keep them all"
    likelihood = likelihood.learn(checked)
    chance = torch.get_rng_state()
    generator = torch.Generator().manual_seed(0)
    outputs = torch.randn(MEMBERS, len(checked), likelihood.outputs, generator=generator, dtype=torch.float64)
    target = torch.from_numpy(checked)
    _check_fit(likelihood, outputs, target)
    _check_slope(likelihood, outputs[0], target)
    _check_mixture(likelihood, outputs)
    _check_predictions(likelihood, outputs, target)
    _check_settings(likelihood, outputs, target)
    with FakeTensorMode():  # fails where a value is read back to the host: no captured step may
        output = torch.empty(2, len(checked), likelihood.outputs)
        likelihood.log_likelihood(output, torch.empty(target.shape, dtype=target.dtype))
    assert torch.equal(chance, torch.get_rng_state()), "a likelihood draws nothing"


def _check_fit(likelihood: Likelihood, outputs: Tensor, target: Tensor) -> None:
    fit = likelihood.log_likelihood(outputs, target)
    assert fit.shape == outputs.shape[:-1], "log_likelihood must be one number per example: [..., batch]"
    assert bool(fit.isfinite().all()), "log_likelihood must be finite where outputs are"
    repeated = likelihood.log_likelihood(outputs.unsqueeze(0), target[None, None])
    assert _close(repeated[0], fit), "targets must broadcast over leading axes of outputs, such as members"
    alone = torch.cat([likelihood.log_likelihood(outputs[:, [k]], target[[k]]) for k in range(len(target))], -1)
    assert _close(alone, fit), "an example's log_likelihood must not depend on others"
    plain = likelihood.unweighted.log_likelihood(outputs, target)
    assert _close(likelihood.counted(plain, target), fit), "`counted` must make log_likelihood of that of `unweighted`"
    single = likelihood.log_likelihood(outputs.float(), target)
    assert single.dtype == torch.float32, "log_likelihood must have the precision of outputs"
    assert torch.allclose(single.double(), fit, rtol=1e-3, atol=1e-3), "log_likelihood must hold in single precision"


def _check_slope(likelihood: Likelihood, output: Tensor, target: Tensor) -> None:
    """Gradients may be those in another metric (natural ones), but must lead uphill."""
    leaf = output.clone().requires_grad_()
    [gradient] = torch.autograd.grad(likelihood.log_likelihood(leaf, target).sum(), leaf)
    assert bool(gradient.isfinite().all()), "gradients of log_likelihood must be finite"
    for place in range(output.shape[-1]):
        step = STEP * torch.nn.functional.one_hot(torch.tensor(place), output.shape[-1]).to(output)
        change = likelihood.log_likelihood(output + step, target) - likelihood.log_likelihood(output - step, target)
        agrees = (gradient[:, place] * change >= 0) | (change.abs() < 1e-9)
        assert bool(agrees.all()), f"gradients by output {place} must lead to where log_likelihood is larger"


def _check_mixture(likelihood: Likelihood, outputs: Tensor) -> None:
    even = torch.full((len(outputs),), 1 / len(outputs), dtype=outputs.dtype)
    mixed, means = likelihood.mixture(outputs, even), likelihood.mean(outputs)
    assert mixed.shape == outputs.shape[1:], "mixture must take the members' axis away and leave all others"
    expected = torch.tensordot(even, means, dims=1)
    assert _close(likelihood.mean(mixed), expected), "the mean of a mixture must be the mean of its members' means"
    same = likelihood.mixture(outputs[:1].expand_as(outputs), even)
    assert _close(likelihood.mean(same), means[0]), "a mixture of equal members must say what each of them says"
    repeats = likelihood.mixture(outputs.unsqueeze(1).expand(-1, 2, -1, -1), even.unsqueeze(-1).expand(-1, 2))
    assert _close(repeats[1], mixed), "mixture must take weights [members, repeats] for outputs with that axis"


def _check_predictions(likelihood: Likelihood, outputs: Tensor, target: Tensor) -> None:
    mean, metric = likelihood.mean(outputs), likelihood.metric_values(outputs, target)
    assert mean.shape[:2] == outputs.shape[:2], "mean must be [..., batch] or [..., batch, k]"
    assert metric.shape == outputs.shape[:-1], "metric_values must be one number per example: [..., batch]"
    assert likelihood.metric.isidentifier(), "metric must be a word that can name a number"
    variance, entropy = likelihood.variance(outputs), likelihood.entropy(outputs)
    assert variance is None or (variance.shape == mean.shape and bool((variance >= 0).all())), (
        "variance must be of the shape of mean and not below 0, or None"
    )
    assert entropy is None or entropy.shape == metric.shape, "entropy must be one number per example, or None"
    if mean.shape[1:] == target.shape:
        figures = likelihood.figures(mean[0], target.double())
        assert all(isinstance(value, float) for value in figures.values()), "figures must be floats by name"
        columns = likelihood.columns(mean[0], ())
        assert columns, "columns must tell the predictions"
        assert all(len(column) == len(target) for column in columns.values()), "a column has one value per example"


def _check_settings(likelihood: Likelihood, outputs: Tensor, target: Tensor) -> None:
    again = likelihood_from(likelihood.settings())
    assert again.settings() == likelihood.settings(), "a likelihood must be made again by its settings"
    assert torch.equal(again.log_likelihood(outputs, target), likelihood.log_likelihood(outputs, target)), (
        "whatever changes log_likelihood must be a field, so that a run keeps it"
    )


def _close(one: Tensor, other: Tensor) -> bool:
    return torch.allclose(one, other, rtol=1e-6, atol=1e-8)
