"""How belief is used: what it predicts, and whether the prediction's confidence can be trusted."""

from __future__ import annotations

from polyarch.uncertainty.attack import image_range, pgd
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
from polyarch.uncertainty.coverage import RiskCoverage, risk_coverage, threshold_for_risk
from polyarch.uncertainty.detection import auroc, detection, fpr95
from polyarch.uncertainty.early_exit import EarlyExit, ExitCurve, Exits, exit_curve
from polyarch.uncertainty.ensemble import Ensemble
from polyarch.uncertainty.members import Members, members_of
from polyarch.uncertainty.predictive import Predictive

__all__ = [
    "EarlyExit",
    "Ensemble",
    "ExitCurve",
    "Exits",
    "Members",
    "Predictive",
    "Reliability",
    "RiskCoverage",
    "accuracy",
    "auroc",
    "brier",
    "detection",
    "ece",
    "ece_all_classes",
    "exit_curve",
    "fpr95",
    "image_range",
    "log_likelihood",
    "members_of",
    "pgd",
    "regression_summary",
    "reliability",
    "risk_coverage",
    "summary",
    "threshold_for_risk",
]
