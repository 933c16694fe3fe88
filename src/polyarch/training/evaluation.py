"""What architectures of a supernet, or a mixture of their options, are worth on a split."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor

from polyarch.core import Problem
from polyarch.distributions.base import Distribution
from polyarch.distributions.listed import Listed
from polyarch.distributions.selection import select
from polyarch.spaces.base import Space
from polyarch.spaces.cells import cells_of, collapse
from polyarch.spaces.views import Dense, Soft, Sparse, SparsePerRepeat, View
from polyarch.trees import tree_map

MOST = 5_000
"""Examples of training and validation data that what a search has found is evaluated on at its end, where there are
more; early stopping looks at all, and test data is evaluated whole."""


@torch.no_grad()
def evaluate_view(
    problem: Problem, view: Sparse | SparsePerRepeat | Dense | Soft, split: str, size: int = 1024
) -> dict[str, Tensor]:
    """Mean log-likelihood, and the everyday metric: [repeats] each, in evaluation mode.

    The objective is the same as learning counts examples, which is with the weights of classes where they have any.

    `size` examples of the split are passed at a time. A problem that replays passes does so for views that are data.
    """
    problem.supernet.eval()
    replay = problem.replay
    if isinstance(view, Dense):
        view = problem.supernet.quickest(view.choices, replayed=replay is not None)
    objective = torch.zeros(problem.repeats, dtype=torch.float64, device=problem.device)
    fit, measured = torch.zeros_like(objective), torch.zeros_like(objective)
    sums: tuple[Tensor, ...]
    for batch in problem.passes(split, size):
        if replay is None or not isinstance(view, Dense | Soft):
            sums = _sums(problem, view, batch.x, batch.y)
        else:
            data = view.choices if isinstance(view, Dense) else view.weights
            one = tree_map(itemgetter(0), (batch.x, batch.y))  # the same for all repeats: one is copied
            sums = replay(type(view).__name__, partial(_replayed, problem, type(view)), (one, data))
        for total, own in zip((objective, fit, measured), sums, strict=True):
            total += own
    names = ("objective", "log_likelihood", problem.likelihood.metric)
    count = len(problem.data[split])
    return {name: total / count for name, total in zip(names, (objective, fit, measured), strict=True)}


def _sums(problem: Problem, view: View, x: Any, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Objective, log-likelihood and metric of a batch, summed over its examples: [repeats] each."""
    outputs = problem.supernet(x, view)
    fit = problem.likelihood.unweighted.log_likelihood(outputs, y)
    objective, fit = (own.sum(-1, dtype=torch.float64) for own in (problem.likelihood.counted(fit, y), fit))
    return objective, fit, problem.likelihood.metric_values(outputs, y).sum(-1)


def _replayed(problem: Problem, view: type[Dense | Soft], given: Any) -> tuple[Tensor, Tensor, Tensor]:
    """The same, given a batch without its axis of repeats, and what the view holds."""
    one, data = given
    x, y = tree_map(lambda value: value.expand(problem.repeats, *value.shape), one)
    return _sums(problem, view(data), x, y)


def evaluate_mean(problem: Problem, architectures: Tensor, split: str) -> dict[str, Tensor]:
    """What architectures [n, decisions] are worth in the mean, with the shared weights."""
    found = [evaluate_view(problem, Dense(row.expand(problem.repeats, -1)), split) for row in architectures]
    return {name: torch.stack([one[name] for one in found]).mean(0) for name in found[0]}


def best_architecture(problem: Problem, architectures: Tensor) -> Tensor:
    """Each repeat's best of architectures [n, decisions], by validation data, else by training data: [repeats, ...].

    Where cost has a price, by what is left of the objective.
    """
    split = "select" if "select" in problem.data else "train"
    problem = replace(problem, data={split: problem.data[split].some(MOST)})
    found = [
        evaluate_view(problem, Dense(row.expand(problem.repeats, -1)), split)["objective"] for row in architectures
    ]
    worth = torch.stack(found)
    if problem.price is not None:
        worth = worth - problem.price.of(architectures).to(worth).unsqueeze(-1)
    return architectures[worth.argmax(0)]


def drawn_within(problem: Problem, belief: Distribution, count: int, seed: int) -> Tensor:
    """So many architectures of a belief, or those of its list: choices [count or fewer, decisions].

    Where costs are limited, the first that are within of ten times as many, and one at least; of no more than so many
    where each has to be measured.
    """
    tries = count if problem.bounds is None or problem.bounds.looks else 10 * count
    if isinstance(belief, Listed):
        found = belief.choices if problem.bounds else belief.choices[:count]
    else:
        found = belief.sample(tries, torch.Generator().manual_seed(seed))
    if problem.bounds is None:
        return found
    kept = [row for row in found if problem.bounds.first(row.unsqueeze(0).cpu()) is not None][:count]
    return torch.stack(kept) if kept else torch.tensor([select(belief, "argmax", bounds=problem.bounds)]).to(found)


def collapse_of(space: Space, choices: Tensor) -> dict[str, Tensor]:
    """Of architectures [n, decisions] of a cell space: the share of skips among operations, and the depth in edges."""
    if cells_of(space) is None:
        return {}
    found = [collapse(space, architecture) for architecture in space.decode(choices)]
    return {name: torch.tensor([own[name] for own in found]) for name in found[0]}
