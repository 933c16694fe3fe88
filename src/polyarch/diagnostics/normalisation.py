"""Whether architectures are worth as much by running statistics as by those of the batch.

Running statistics of batch norm are of all architectures that were trained. Where they fit none of them, evaluation
ranks architectures otherwise than training does (Deng et al. 2020, Figs. 2 and 3).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from torch import Tensor

from polyarch.diagnostics.resampling import resampled
from polyarch.diagnostics.running import Evaluation, check_single, evaluate, normalising, shuffled, views_of
from polyarch.errors import PolyarchError
from polyarch.ranking.statistics import RESAMPLES, Estimate, Numbers, spearman
from polyarch.settings import at_least
from polyarch.spaces.base import Supernet


@final
@dataclass(frozen=True)
class Normalisation:
    """The same architectures under both kinds of statistics."""

    batch: Evaluation
    """With batch norm in training mode."""
    running: Evaluation
    """With batch norm in evaluation mode."""
    accuracy_correlation: Estimate
    """Spearman's, between the accuracies of both; not defined where one of them is the same for all."""
    log_likelihood_correlation: Estimate


def compare_statistics(
    supernet: Supernet,
    x: Tensor,
    y: Tensor,
    choices: Tensor,
    *,
    batch_size: int = 128,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Normalisation:
    """Evaluates architectures twice, on the same examples in the same batches.

    Batch norm alone changes its mode, and so also where a space's own rule is to evaluate by the batch.

    Args:
        supernet: of one repeat; nothing of it is different afterwards.
        x: [n, ...], standardised inputs on its device.
        y: [n] int64, true classes.
        choices: [architectures, decisions].
        batch_size: of the statistics; batches are of this size or as little smaller as makes them equal.
        resamples: of the architectures, for intervals.
        seed: of the order of examples, and of the resampling.
    """
    check_single(supernet)
    at_least("batch_size", batch_size, 2)
    if len(x) < 2 or len(x) != len(y):
        raise PolyarchError(f"{len(x)} inputs and {len(y)} classes; give as many of both, two at least")
    views = views_of(supernet, choices)
    batches, y = shuffled(x, y, batch_size, seed)
    with normalising(supernet, "batch"):
        batch = evaluate(supernet, views, batches, y)
    with normalising(supernet, "running"):
        running = evaluate(supernet, views, batches, y)

    def correlation(one: Sequence[float], other: Sequence[float]) -> Estimate:
        return resampled(_spearman, np.stack([one, other], 1), resamples=resamples, seed=seed)

    return Normalisation(
        batch,
        running,
        correlation(batch.accuracy, running.accuracy),
        correlation(batch.log_likelihood, running.log_likelihood),
    )


def _spearman(pairs: Numbers) -> float | None:
    return spearman(pairs[:, 0], pairs[:, 1])
