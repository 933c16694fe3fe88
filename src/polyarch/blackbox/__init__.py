"""Black-box search: the baselines, which evaluate one architecture after another and learn no belief."""

from polyarch.blackbox.base import BlackBox
from polyarch.blackbox.evaluators import Evaluator, ScoreEvaluator, TableEvaluator
from polyarch.blackbox.evolution import RegularisedEvolution
from polyarch.blackbox.history import Budget, Evaluation, History, Spent
from polyarch.blackbox.local_search import LocalSearch
from polyarch.blackbox.random_search import RandomSearch

__all__ = [
    "BlackBox",
    "Budget",
    "Evaluation",
    "Evaluator",
    "History",
    "LocalSearch",
    "RandomSearch",
    "RegularisedEvolution",
    "ScoreEvaluator",
    "Spent",
    "TableEvaluator",
]
