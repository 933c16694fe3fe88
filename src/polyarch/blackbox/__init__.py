"""Black-box search: the baselines, which ask a judge about one architecture after another and learn no belief."""

from polyarch.blackbox.base import BlackBox
from polyarch.blackbox.evolution import RegularisedEvolution
from polyarch.blackbox.history import Budget, Evaluation, History, Spent
from polyarch.blackbox.judges import Judge, ScoreJudge, TableJudge
from polyarch.blackbox.local_search import LocalSearch
from polyarch.blackbox.random_search import RandomSearch

__all__ = [
    "BlackBox",
    "Budget",
    "Evaluation",
    "History",
    "Judge",
    "LocalSearch",
    "RandomSearch",
    "RegularisedEvolution",
    "ScoreJudge",
    "Spent",
    "TableJudge",
]
