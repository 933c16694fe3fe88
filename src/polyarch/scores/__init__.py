"""Judges of candidates."""

from polyarch.scores.base import Candidate, Score
from polyarch.scores.parameters import Parameters

__all__ = ["Candidate", "Parameters", "Score"]
