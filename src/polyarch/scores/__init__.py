"""Judges of candidates."""

from polyarch.scores.base import Candidate, Score
from polyarch.scores.grasp import Grasp
from polyarch.scores.macs import Macs
from polyarch.scores.parameters import Parameters
from polyarch.scores.sampling import Sample, sample_and_score
from polyarch.scores.snip import Snip
from polyarch.scores.synflow import SynFlow, without_batch_norm

__all__ = [
    "Candidate",
    "Grasp",
    "Macs",
    "Parameters",
    "Sample",
    "Score",
    "Snip",
    "SynFlow",
    "sample_and_score",
    "without_batch_norm",
]
