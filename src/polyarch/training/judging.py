"""What one architecture of a supernet, or a mixture of its options, is worth on a split."""

from __future__ import annotations

import torch
from torch import Tensor

from polyarch.core import Problem
from polyarch.spaces.base import Hard, Soft


@torch.no_grad()
def judged(problem: Problem, view: Hard | Soft, split: str) -> dict[str, Tensor]:
    """Mean log-likelihood, which is the objective too, and the everyday measure: [repeats] each, in evaluation mode."""
    problem.supernet.eval()
    if isinstance(view, Hard) and isinstance(view.choices, Tensor):
        view = Hard.read(view.choices)
    count = len(problem.data[split])
    fit = torch.zeros(problem.repeats, dtype=torch.float64, device=problem.data[split].y.device)
    measured = torch.zeros_like(fit)
    for batch in problem.passes(split):
        outputs = problem.supernet(batch.x, view)
        fit += problem.likelihood.log_likelihood(outputs, batch.y).sum(-1, dtype=torch.float64)
        measured += problem.likelihood.measured(outputs, batch.y).sum(-1)
    mean = fit / count
    return {"objective": mean, "log_likelihood": mean, problem.likelihood.measure: measured / count}


def judged_on_average(problem: Problem, architectures: Tensor, split: str) -> dict[str, Tensor]:
    """What architectures [n, decisions] are worth in the mean, with the shared weights."""
    found = [judged(problem, Hard(row.expand(problem.repeats, -1)), split) for row in architectures]
    return {name: torch.stack([one[name] for one in found]).mean(0) for name in found[0]}


def best_judged(problem: Problem, architectures: Tensor) -> Tensor:
    """Each repeat's best of architectures [n, decisions], by validation data, else by training data: [repeats, ...]."""
    split = "select" if "select" in problem.data else "train"
    found = [judged(problem, Hard(row.expand(problem.repeats, -1)), split)["objective"] for row in architectures]
    return architectures[torch.stack(found).argmax(0)]
