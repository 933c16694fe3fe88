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
from polyarch.ranking.trust import Drawn, Trust, judge, read_trust, trust_by_table, trust_by_training

__all__ = [
    "Drawn",
    "Estimate",
    "Ranking",
    "Standing",
    "Trust",
    "draw",
    "judge",
    "kendall",
    "mean_of_best",
    "rank",
    "read_trust",
    "spearman",
    "standing",
    "standing_of_chance",
    "to_tenths",
    "trust_by_table",
    "trust_by_training",
]
