"""What one architecture of a supernet, or a mixture of its options, is worth on a split."""

from __future__ import annotations

import torch
from torch import Tensor

from polyarch.methods.base import Problem
from polyarch.spaces.base import Hard, Soft


@torch.no_grad()
def judged(problem: Problem, view: Hard | Soft, split: str) -> dict[str, Tensor]:
    """Mean log-likelihood, which is the objective too, and the everyday measure: [repeats] each, in evaluation mode."""
    problem.supernet.eval()
    used = problem.space.used(view.choices.tolist()) if isinstance(view, Hard) and torch.is_tensor(view.choices) else {}
    count = len(problem.data[split])
    fit = torch.zeros(problem.repeats, dtype=torch.float64, device=problem.data[split].y.device)
    measured = torch.zeros_like(fit)
    with problem.supernet.running(used):
        for batch in problem.passes(split):
            outputs = problem.supernet(batch.x, view)
            fit += problem.likelihood.log_likelihood(outputs, batch.y).sum(-1, dtype=torch.float64)
            measured += problem.likelihood.measured(outputs, batch.y).sum(-1)
    mean = fit / count
    return {"objective": mean, "log_likelihood": mean, problem.likelihood.measure: measured / count}
