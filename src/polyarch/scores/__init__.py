"""Scores: one number per candidate architecture, with a direction."""

from polyarch.scores.base import Candidate, Score
from polyarch.scores.curves import Curve, Look, Tuning
from polyarch.scores.fine_tuning import fine_tuned
from polyarch.scores.grad_norm import GradNorm
from polyarch.scores.grasp import Grasp
from polyarch.scores.jacob_cov import JacobCov
from polyarch.scores.macs import Macs
from polyarch.scores.parameters import Parameters
from polyarch.scores.sampling import Sample, candidates_for, candidates_of, sample_and_score
from polyarch.scores.snip import Snip
from polyarch.scores.sog import Sog, Sogn
from polyarch.scores.sotl import Sotl, TrainLoss
from polyarch.scores.synflow import SynFlow, without_batch_norm
from polyarch.scores.table import Tabulated
from polyarch.scores.tuned import Tuned, read_together
from polyarch.scores.validation import ValidAccuracy, ValidLoss

__all__ = [
    "Candidate",
    "Curve",
    "GradNorm",
    "Grasp",
    "JacobCov",
    "Look",
    "Macs",
    "Parameters",
    "Sample",
    "Score",
    "Snip",
    "Sog",
    "Sogn",
    "Sotl",
    "SynFlow",
    "Tabulated",
    "TrainLoss",
    "Tuned",
    "Tuning",
    "ValidAccuracy",
    "ValidLoss",
    "candidates_for",
    "candidates_of",
    "fine_tuned",
    "read_together",
    "sample_and_score",
    "without_batch_norm",
]
