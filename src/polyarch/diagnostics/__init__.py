"""What weights that many architectures share do: questions to a trained supernet, each with its answer in numbers."""

from __future__ import annotations

from polyarch.diagnostics.batch_means import BatchMeans, Spread, spread_of_means
from polyarch.diagnostics.ensembles import Curve, Ensembles, combine, combine_within, counts_up_to
from polyarch.diagnostics.generalisation import Generalisation, compare_seen, unseen_wirings
from polyarch.diagnostics.normalisation import Normalisation, compare_statistics
from polyarch.diagnostics.running import Evaluation

__all__ = [
    "BatchMeans",
    "Curve",
    "Ensembles",
    "Evaluation",
    "Generalisation",
    "Normalisation",
    "Spread",
    "combine",
    "combine_within",
    "compare_seen",
    "compare_statistics",
    "counts_up_to",
    "spread_of_means",
    "unseen_wirings",
]
