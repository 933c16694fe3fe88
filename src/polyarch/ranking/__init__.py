"""Who is best, and how sure: scores of many architectures compared with the truth."""

from polyarch.ranking.ranking import Ranking, draw, rank
from polyarch.ranking.statistics import (
    Figure,
    Standing,
    kendall,
    mean_of_best,
    spearman,
    standing,
    standing_of_chance,
    to_tenths,
)
from polyarch.ranking.truth import Truth, default_truth, find_truth

__all__ = [
    "Figure",
    "Ranking",
    "Standing",
    "Truth",
    "default_truth",
    "draw",
    "find_truth",
    "kendall",
    "mean_of_best",
    "rank",
    "spearman",
    "standing",
    "standing_of_chance",
    "to_tenths",
]
