"""How belief is used: what it predicts, and whether the prediction's confidence can be trusted."""

from __future__ import annotations

from polyarch.uncertainty.calibration import (
    Reliability,
    accuracy,
    brier,
    ece,
    ece_all_classes,
    log_likelihood,
    regression_summary,
    reliability,
    summary,
)
from polyarch.uncertainty.ensemble import Ensemble
from polyarch.uncertainty.predictive import Predictive

__all__ = [
    "Ensemble",
    "Predictive",
    "Reliability",
    "accuracy",
    "brier",
    "ece",
    "ece_all_classes",
    "log_likelihood",
    "regression_summary",
    "reliability",
    "summary",
]
