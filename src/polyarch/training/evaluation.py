"""What architectures of a supernet, or a mixture of their options, are worth on a split."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from polyarch.core import Problem
from polyarch.spaces.base import Space
from polyarch.spaces.cells import cells_of, collapse
from polyarch.spaces.views import Dense, Soft, Sparse, SparsePerRepeat

MOST = 5_000
"""Examples of training and validation data that what a search has found is evaluated on at its end, where there are
more; early stopping looks at all, and test data is evaluated whole."""


@torch.no_grad()
def evaluate_view(
    problem: Problem, view: Sparse | SparsePerRepeat | Dense | Soft, split: str, size: int = 1024
) -> dict[str, Tensor]:
    """Mean log-likelihood, which is the objective too, and the everyday metric: [repeats] each, in evaluation mode.

    `size` examples of the split are passed at a time.
    """
    problem.supernet.eval()
    quickest = problem.supernet.quickest(view.choices) if isinstance(view, Dense) else view
    count = len(problem.data[split])
    fit = torch.zeros(problem.repeats, dtype=torch.float64, device=problem.device)
    measured = torch.zeros_like(fit)
    for batch in problem.passes(split, size):
        outputs = problem.supernet(batch.x, quickest)
        fit += problem.likelihood.log_likelihood(outputs, batch.y).sum(-1, dtype=torch.float64)
        measured += problem.likelihood.metric_values(outputs, batch.y).sum(-1)
    mean = fit / count
    return {"objective": mean, "log_likelihood": mean, problem.likelihood.metric: measured / count}


def evaluate_mean(problem: Problem, architectures: Tensor, split: str) -> dict[str, Tensor]:
    """What architectures [n, decisions] are worth in the mean, with the shared weights."""
    found = [evaluate_view(problem, Dense(row.expand(problem.repeats, -1)), split) for row in architectures]
    return {name: torch.stack([one[name] for one in found]).mean(0) for name in found[0]}


def best_architecture(problem: Problem, architectures: Tensor) -> Tensor:
    """Each repeat's best of architectures [n, decisions], by validation data, else by training data: [repeats, ...]."""
    split = "select" if "select" in problem.data else "train"
    problem = replace(problem, data={split: problem.data[split].some(MOST)})
    found = [
        evaluate_view(problem, Dense(row.expand(problem.repeats, -1)), split)["objective"] for row in architectures
    ]
    return architectures[torch.stack(found).argmax(0)]


def collapse_of(space: Space, choices: Tensor) -> dict[str, Tensor]:
    """Of architectures [n, decisions] of a cell space: the share of skips among operations, and the depth in edges."""
    if cells_of(space) is None:
        return {}
    found = [collapse(space, architecture) for architecture in space.decode(choices)]
    return {name: torch.tensor([own[name] for own in found]) for name in found[0]}
