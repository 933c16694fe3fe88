"""Who is best, and how sure: scores of many architectures compared with the truth."""

from polyarch.ranking.ranking import Ranking, draw, rank
from polyarch.ranking.statistics import (
    Estimate,
    Standing,
    kendall,
    mean_of_best,
    spearman,
    standing,
    standing_of_chance,
    to_tenths,
)

__all__ = [
    "Estimate",
    "Ranking",
    "Standing",
    "draw",
    "kendall",
    "mean_of_best",
    "rank",
    "spearman",
    "standing",
    "standing_of_chance",
    "to_tenths",
]
