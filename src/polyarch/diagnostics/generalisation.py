"""Whether shared weights serve architectures that training never saw (Deng et al. 2020, section 4.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from torch import Tensor

from polyarch.diagnostics.resampling import resampled
from polyarch.diagnostics.running import Evaluation, check_single, evaluate, evaluation_mode, views_of
from polyarch.errors import PolyarchError
from polyarch.ranking.statistics import RESAMPLES, Estimate, Numbers
from polyarch.settings import at_least
from polyarch.spaces.base import Supernet
from polyarch.spaces.wiring import Wiring
from polyarch.uncertainty.detection import auroc


@final
@dataclass(frozen=True)
class Generalisation:
    """Architectures that were trained, and others."""

    seen: Evaluation
    unseen: Evaluation
    seen_accuracy: float
    """The mean."""
    unseen_accuracy: float
    auc: Estimate
    """How often a seen architecture is more accurate than an unseen one, ties by half: 1 where every one is, 0.5 where
    accuracy does not tell them apart. Both groups are resampled for the interval."""


def compare_seen(
    supernet: Supernet,
    x: Tensor,
    y: Tensor,
    seen: Tensor,
    unseen: Tensor,
    *,
    batch_size: int = 1024,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Generalisation:
    """Evaluates two groups of architectures on the same examples, in evaluation mode.

    Architectures with weights of their own have none for unseen ones; the supernet refuses those.

    Args:
        supernet: of one repeat; nothing of it is different afterwards.
        x: [n, ...], standardised inputs on its device.
        y: [n] int64, true classes.
        seen: choices [architectures, decisions].
        unseen: likewise, none of them in `seen`.
        batch_size: examples per pass.
        resamples: of the architectures, for the interval.
        seed: of the resampling.
    """
    check_single(supernet)
    at_least("batch_size", batch_size, 1)
    known, unknown = views_of(supernet, seen), views_of(supernet, unseen)
    both = {view.choices for view in known} & {view.choices for view in unknown}
    if both:
        raise PolyarchError(f"{len(both)} of the unseen architectures are seen ones too; leave them out of one group")
    batches = x.split(batch_size)
    with evaluation_mode(supernet):
        ours, others = (evaluate(supernet, views, batches, y) for views in (known, unknown))
    accuracies = np.array(ours.accuracy), np.array(others.accuracy)
    auc = resampled(_auc, *accuracies, resamples=resamples, seed=seed)
    return Generalisation(ours, others, float(accuracies[0].mean()), float(accuracies[1].mean()), auc)


def _auc(seen: Numbers, unseen: Numbers) -> float:
    return auroc(torch.from_numpy(unseen), torch.from_numpy(seen))


def unseen_wirings(space: Wiring, seen: Tensor, count: int, seed: int = 0) -> Tensor:
    """Random wirings, all different, that are not in a list.

    Args:
        space: draws them, by its `link_probability`.
        seen: choices [n, decisions] of the whole list, such as those of `Run.distribution`.
        count: how many.
        seed: a smaller count of the same seed is the beginning of a larger one.

    Returns:
        Choices [count, decisions].
    """
    at_least("count", count, 1)
    listed = {tuple(row) for row in seen.tolist()}
    found: dict[tuple[int, ...], None] = {}
    for number in range(100 * (count + len(listed))):
        choices = space.random_choices(f"unseen:{seed}:{number}")
        if choices not in listed:
            found[choices] = None
        if len(found) == count:
            return torch.tensor(list(found))
    raise PolyarchError(f"there are not {count} wirings of {space.nodes} nodes beside the list; ask for fewer")
